"""Whether a collocation table gives what the direct formula gives, and what to do if it does not.

The two are compared on *checks*: networks whose slopes at a few neurons, over all rows, and whose
outputs at a few rows, from all neurons, are worked out both ways. They must agree to 1e-9 of the
size that these had when training started. A table that has to grow is a new one, and is checked as
the first was. One that only just fails is tabulated more finely; where that does not help either,
the direct formula is the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.collocation import CollocationTable, TableErrors
from skcurse.theory.tilted_moments import Array, Map

__all__ = ["Check", "accurate_cover", "accurate_table", "probes"]

_ACCURACY = 1e-9
_FINER_TOL = 1e-14
# Errors beyond this are rounding errors of steep curves: a finer table has them too.
_CURABLE = 100.0 * _ACCURACY
_N_PROBES = 64
# Room for the weights to move in before the table has to grow.
_MARGIN = 1.0


class Check(NamedTuple):
    """A network, as a measure on w, on which a table is compared with the direct formula.

    Attributes
    ----------
    weights, masses : ndarray of shape (n_neurons,)
        Σ_r masses_r δ(w - weights_r); a network's own masses are a_r/√m.
    output : int
        Column of y.
    sizes : TableErrors, default=None
        Whose sizes the errors are relative to; None is those of this network.
    """

    weights: Array
    masses: Array
    output: int
    sizes: TableErrors | None = None


def accurate_table(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    signs: ArrayLike,
    *,
    also: ArrayLike = (),
    sample_weight: ArrayLike | None = None,
    map: Map = map,
) -> CollocationTable:
    """Tabulate data and compare the gradient with the direct formula.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Weights that the table covers, with a margin.
    signs : array-like of shape (n_neurons,)
        Second layer.
    also : array-like, default=()
        Further weights that it covers.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    map : callable, default=map
        Parallel map over blocks of rows.

    Returns
    -------
    table : CollocationTable
        With slopes and outputs within 1e-9 of the direct ones, in root mean square over a sample.

    Raises
    ------
    ValueError
        If no table is that accurate: the direct formula is the way then.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((40, 4))
    >>> accurate_table(X, X[:, 0], [0.5, -0.5], [1.0, 1.0]).interval
    (-1.5, 1.5)
    """
    starts = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    margin = max(_MARGIN, 0.25 * np.ptp(starts))
    ends = np.concatenate([[starts.min() - margin, starts.max() + margin], np.ravel(also)])
    table = CollocationTable(
        X,
        y,
        interval=(float(ends.min()), float(ends.max())),
        sample_weight=sample_weight,
        map=map,
    )
    masses = np.asarray(signs, dtype=np.float64) / np.sqrt(starts.shape[1])
    checks = [Check(start, masses, output) for output, start in enumerate(starts)]
    return accurate_cover(table, [*checks, *probes(checks)])


def accurate_cover(table: CollocationTable, checks: Sequence[Check]) -> CollocationTable:
    """Give a table of the same data that covers networks, and is accurate for them.

    Parameters
    ----------
    table : CollocationTable
        The table in use.
    checks : sequence of Check
        The networks.

    Returns
    -------
    table : CollocationTable
        This one, or a wider or finer one.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((40, 4))
    >>> table = CollocationTable(X, X[:, 0], interval=(-1.0, 1.0))
    >>> accurate_cover(table, [Check(np.array([0.9]), np.ones(1), 0)]) is table
    True
    >>> accurate_cover(table, [Check(np.array([1.1]), np.ones(1), 0)]).interval
    (-1.0, 2.1)
    """
    table = table.covering(np.concatenate([check.weights for check in checks]))
    errors = _errors(table, checks)
    if not _within(_ACCURACY, errors) and _within(_CURABLE, errors):
        table = CollocationTable(
            table.X,
            table.y,
            interval=table.interval,
            sample_weight=table.sample_weight,
            tol=_FINER_TOL,
            map=table.map,
        )
        errors = _errors(table, checks)
    if not _within(_ACCURACY, errors):
        raise ValueError(
            "The windows cannot be tabulated to the accuracy of the direct formula: scale X to "
            "unit variance, or use solver='direct'."
        )
    return table


def probes(checks: Sequence[Check]) -> list[Check]:
    """Take a part of every network, with signs that do not cancel.

    A network that starts at zero hides errors of its outputs; a few of its neurons do not.

    Parameters
    ----------
    checks : sequence of Check
        The networks.

    Returns
    -------
    probes : list of Check
        At most 64 neurons of each.

    Examples
    --------
    >>> (probe,) = probes([Check(np.array([2.0, 1.0]), np.array([1.0, -1.0]), 0)])
    >>> probe.weights
    array([1., 2.])
    """
    found = []
    for check in checks:
        size = check.weights.size
        part = np.sort(check.weights)[:: -(-size // _N_PROBES)]
        masses = np.where(np.arange(part.size) % 3, 1.0, -1.0) / np.sqrt(part.size)
        found.append(Check(part, masses, check.output))
    return found


def _errors(
    table: CollocationTable, checks: Sequence[Check]
) -> list[tuple[TableErrors, TableErrors]]:
    """Errors of the table, and what they are relative to."""
    errors = [table.errors(check.weights, check.masses, check.output) for check in checks]
    return [(e, check.sizes or e) for e, check in zip(errors, checks, strict=True)]


def _within(accuracy: float, errors: list[tuple[TableErrors, TableErrors]]) -> bool:
    """Whether all errors are small, and nothing overflows."""
    return all(
        error.slope <= accuracy * sizes.slope_size < np.inf
        and error.output <= accuracy * sizes.residual_size < np.inf
        for error, sizes in errors
    )
