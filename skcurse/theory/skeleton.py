"""The few weights at which attention must be evaluated to know it everywhere.

The features of `skcurse.theory.feature_panels` are analytic, so for rows up to a given width they
span, to double precision, a space of a few dozen dimensions: k *skeleton* weights u_1, ..., u_k
and interpolating functions T_l give every one of them,

    φ_x(w) = Σ_l φ_x(u_l) T_l(w),

and what a row adds to a network's output, mean(x) + Σ_l φ_x(u_l) ∫_0^w T_l.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.expanded_features import ExpandedFeatures
from skcurse.theory.feature_panels import (
    divisors,
    feature_rates,
    feature_sizes,
    first_breaks,
    resolved_features,
)
from skcurse.theory.panels import Panels
from skcurse.theory.tilted_moments import BLOCK_BYTES, Array, Map, row_tasks

__all__ = [
    "Skeleton",
    "digested_skeleton",
    "find_skeleton",
    "rebuilding_errors",
    "triangle",
]

_N_CHECKS = 8
_N_PROBES = 2048
# Relative to their sizes, values of features are rounded by about this.
_ROUNDING = 1e-15
# Indices of rows and their features.
_Known = tuple[NDArray[np.intp], Array]
# Softmax is one-hot but for a sliver of weights around zero, which takes hundreds of panels.
_LARGEST_SCORE = 1e20


@dataclass(frozen=True)
class Skeleton:
    """Weights from the features at which every covered row's feature is rebuilt.

    Made by `find_skeleton`.

    Attributes
    ----------
    panels : Panels
        Where the interpolating functions T_l are tabulated.
    weights : ndarray of shape (n_skeleton,)
        The skeleton weights u_l.
    coefficients : ndarray of shape (n_skeleton, n_nodes)
        Chebyshev coefficients of T_l.
    check_weights : ndarray of shape (n_checks,)
        Off-node weights at which a row shows whether it is covered.
    check_values : ndarray of shape (n_skeleton, n_checks)
        T_l there.
    rate : float
        Largest |x_d| range(x) of a covered row: wider ones may hide between the check weights.
    tol : float
        Largest error, relative to its feature's size, of a covered row.
    """

    panels: Panels
    weights: Array
    coefficients: Array
    check_weights: Array
    check_values: Array
    rate: float
    tol: float

    @cached_property
    def integrals(self) -> Array:
        """Chebyshev coefficients of ∫_0^w T_l, shape (n_skeleton, n_nodes)."""
        return self.panels.antiderivative(self.coefficients)

    def errors(self, X: Array) -> Array:
        """Largest error of every row at the check weights, relative to its feature's size."""
        return self.values(X)[1]

    def values(self, X: Array) -> tuple[Array, Array]:
        """Features of rows at the skeleton weights, and the errors of the rows."""
        weights = np.concatenate([self.weights, self.check_weights])
        values = ExpandedFeatures(X, (weights.min(), weights.max()))(weights)
        errors = rebuilding_errors(X, values, self.check_values, self.rate)
        return values[:, : self.weights.size], errors

    def tasks(self, X: Array) -> list[slice]:
        """Slices of rows that suit one task of a parallel map each."""
        # Expanded features take about a quarter of the time of exponentials.
        return row_tasks(X, (self.weights.size + self.check_weights.size) // 4, BLOCK_BYTES)


def rebuilding_errors(X: Array, values: Array, check_values: Array, rate: float) -> Array:
    """Largest error of every row's rebuilt feature at check weights, relative to its size.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows.
    values : ndarray of shape (n_samples, n_skeleton + n_checks)
        Their features at the skeleton weights, then at the check weights.
    check_values : ndarray of shape (n_skeleton, n_checks)
        The interpolating functions at the check weights.
    rate : float
        Largest |x_d| range(x) that is covered.

    Returns
    -------
    errors : ndarray of shape (n_samples,)
        Infinite above that rate.
    """
    known, checks = values[:, : len(check_values)], values[:, len(check_values) :]
    error = np.abs(checks - known @ check_values).max(axis=1, initial=0.0)
    return np.where(feature_rates(X) <= rate, error / divisors(X), np.inf)


def find_skeleton(X: ArrayLike, interval: tuple[float, float], **options: Any) -> Skeleton:
    """Skeleton that covers all given rows; parameters, errors and notes of `digested_skeleton`.

    Examples
    --------
    >>> from skcurse.theory.ntk import kernel_features
    >>> X = np.random.default_rng(0).standard_normal((2000, 16))
    >>> skeleton = find_skeleton(X, (-3.0, 3.0))
    >>> values = kernel_features(X, skeleton.weights)
    >>> w = np.array([-1.234, 0.777])
    >>> T = skeleton.panels.at(w).evaluate_many(skeleton.coefficients)
    >>> bool(np.abs(values @ T - kernel_features(X, w)).max() < 1e-11)
    True
    """
    return digested_skeleton(X, interval, **options)[0]


def digested_skeleton(
    X: ArrayLike,
    interval: tuple[float, float],
    digest: Callable[..., Any] | None = None,
    columns: Sequence[Array] = (),
    *,
    order: int = 16,
    tol: float = 1e-13,
    n_rows: int | None = None,
    stretch: float = 1.2,
    map: Map = map,
) -> tuple[Skeleton, list[Any]]:
    """Skeleton that covers all given rows, and what the caller makes of their values.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows.
    interval : tuple of two floats
        Range of weights to cover; w = 0, where integrals start, is covered in any case.
    digest : callable, default=None
        Called with the skeleton, a block of rows of X, their features at the skeleton weights and
        the same rows of `columns`. To see whether rows are covered takes their values: this saves a
        second look.
    columns : sequence of ndarray of shape (n_samples, ...)
        What else it needs of every row.
    order : int, default=16
        Chebyshev nodes a panel.
    tol : float, default=1e-13
        Error of the tabulated features, relative to their sizes.
    n_rows : int, default=None
        Rows the skeleton is first found from: the widest by |x_d| range(x), and others, the fewer
        the narrower they are. Rows that it turns out not to cover are added. None is 192, or more
        of many rows, as their extremes are more extreme.
    stretch : float, default=1.2
        The widest rows times this are covered too, so that most unseen rows are; 1 where there will
        be none.
    map : callable, default=map
        Parallel map over blocks of rows.

    Returns
    -------
    skeleton : Skeleton
    digests : list
        Of the blocks, in order.

    Raises
    ------
    ValueError
        If X has scores above 1e20, or features too steep to tabulate, or that overflow.

    Notes
    -----
    Column-pivoted QR of the sampled rows at all nodes, Φ = Q [R_1 R_2] up to a permutation, gives
    the k skeleton nodes and T = [I, R_1^{-1} R_2]: an interpolative decomposition.

    References
    ----------
    .. [1] H. Cheng, Z. Gimbutas, P.-G. Martinsson, V. Rokhlin, "On the compression of low rank
       matrices", SIAM J. Sci. Comput. 26 (2005).

    Examples
    --------
    >>> from skcurse.theory.ntk import kernel_features
    >>> X = np.random.default_rng(0).standard_normal((100, 4))
    >>> sums = lambda skeleton, X, values: values.sum(axis=0)
    >>> skeleton, parts = digested_skeleton(X, (-1.0, 1.0), sums)
    >>> np.allclose(sum(parts), kernel_features(X, skeleton.weights).sum(axis=0))
    True
    """
    X = np.asarray(X, dtype=np.float64)
    n_rows = n_rows or max(256, int(64.0 * np.log2(max(len(X), 1) / 32.0)))
    width = feature_rates(X)
    with np.errstate(over="ignore"):
        largest = float(np.max(width, initial=0.0)) * max(np.abs(interval)) * stretch**2
    if not largest <= _LARGEST_SCORE:
        raise ValueError(
            f"Windows with scores w x_d x up to {largest:.1g} cannot be tabulated: scale X down, "
            "or use the direct formula (solver='direct')."
        )
    if not np.all(np.isfinite(feature_sizes(stretch * X))):
        raise ValueError("The features x_d var(x; w) overflow: scale X down.")
    interval = (min(interval[0], 0.0), max(interval[1], 0.0))
    by_width = np.argsort(-width, kind="stable")
    widest = by_width[: n_rows // 4]
    sample = np.union1d(widest, by_width[_spread(len(X), n_rows - n_rows // 4, power=2.0)])
    probe = by_width[_spread(len(X), _N_PROBES)]
    breaks = first_breaks(stretch * X[widest], interval)
    while True:
        rows = X[sample]
        if stretch != 1.0:
            rows = np.concatenate([stretch * X[widest], rows])
        skeleton, values = _skeleton_from(rows, breaks, order, tol)
        breaks = skeleton.panels.breaks
        if len(X) > 8 * _N_PROBES:
            # Most skeletons that fall short do so on a few rows already.
            missed = _missed(skeleton.errors(X[probe]), skeleton.tol, n_rows)
            fresh = np.setdiff1d(probe[missed], sample)
            if fresh.size:
                sample = np.union1d(sample, fresh)
                continue
        tasks = skeleton.tasks(X)
        known = _by_block(sample, values[-len(sample) :], tasks)
        blocks = ([column[rows] for rows in tasks] for column in (X, *columns))
        digested = partial(_digested, skeleton=skeleton, digest=digest)
        # One task is done sooner here than by a worker.
        if len(tasks) == 1:
            parts = [digested(known[0], X, *columns)]
        else:
            parts = list(map(digested, known, *blocks))
        errors = np.concatenate([error for error, _ in parts])
        missed = _missed(errors, skeleton.tol, n_rows)
        if not missed.size:
            return skeleton, [digested for _, digested in parts]
        sample = np.union1d(sample, missed)


def _spread(size: int, n_chosen: int, power: float = 1.0) -> NDArray[np.intp]:
    """Choose indices from first to last; with a power above 1, denser at the first ones."""
    steps = (size - 1) * np.linspace(0.0, 1.0, min(n_chosen, size)) ** power
    return np.unique(steps.astype(np.intp))


def _missed(errors: Array, tol: float, n_most: int) -> NDArray[np.intp]:
    """Rows that are not covered, the worst ones if they are many."""
    worst = np.argsort(-errors, kind="stable")[:n_most]
    return worst[~(errors[worst] <= tol)]


def _by_block(indices: NDArray[np.intp], values: Array, blocks: list[slice]) -> list[_Known]:
    """Of rows with these (increasing) indices those of every block, counted from its start."""
    ends = np.searchsorted(indices, [[block.start, block.stop] for block in blocks])
    pairs = zip(ends, blocks, strict=True)
    return [(indices[i:j] - block.start, values[i:j]) for (i, j), block in pairs]


def _digested(
    known: _Known,
    X: Array,
    *columns: Array,
    skeleton: Skeleton,
    digest: Callable[..., Any] | None,
) -> tuple[Array, Any]:
    """Errors of a block of rows, and its digest."""
    fresh = np.ones(len(X), dtype=bool)
    fresh[known[0]] = False
    errors, values = np.zeros(len(X)), np.empty((len(X), skeleton.weights.size))
    values[known[0]] = known[1]
    values[fresh], errors[fresh] = skeleton.values(X[fresh])
    return errors, None if digest is None else digest(skeleton, X, values, *columns)


def _skeleton_from(X: Array, breaks: Array, order: int, tol: float) -> tuple[Skeleton, Array]:
    """Skeleton of the given rows, from all of them at all nodes, and their values there."""
    panels, values = resolved_features(X, breaks, order, tol)
    relative = values / divisors(X)[:, None]
    R, pivots = scipy.linalg.qr(relative, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(R))
    floor = max(0.1 * tol * diagonal[0], _ROUNDING * math.sqrt(len(X)))
    k = int(np.count_nonzero(diagonal > floor))
    T = np.empty((k, panels.nodes.size))
    T[:, pivots[:k]] = np.eye(k)
    T[:, pivots[k:]] = scipy.linalg.solve_triangular(R[:k, :k], R[:k, k:])
    functions = panels.coefficients(T)
    # The next pivots are where the sampled rows were hardest to rebuild; midway to the next node
    # a row that the panels do not resolve shows as well.
    hardest = np.sort(np.minimum(pivots[k : k + _N_CHECKS], panels.nodes.size - 2))
    rate = float(np.max(feature_rates(X), initial=0.0))
    checks = np.concatenate(
        [(panels.nodes[hardest] + panels.nodes[hardest + 1]) / 2.0, _octaves(breaks[[0, -1]], rate)]
    )
    check_values = panels.at(checks).evaluate_many(functions)
    skeleton = Skeleton(
        panels,
        panels.nodes[pivots[:k]],
        functions,
        checks,
        check_values,
        # Rounding may tell a row from itself.
        (1.0 + 1e-12) * rate,
        100.0 * tol,
    )
    return skeleton, values[:, pivots[:k]]


def _octaves(interval: Array, rate: float) -> Array:
    """One weight in each octave: every row's feature shows at one of them, however steep it is."""
    points = []
    for end in interval:
        n_octaves = 1 + math.ceil(math.log2(max(abs(end) * rate / 4.0, 1.0)))
        points.append(0.7 * end * 0.5 ** np.arange(n_octaves if end else 0))
    return np.concatenate(points)


def triangle(matrix: Array) -> Array:
    """R factor of the QR decomposition: few rows with the inner products of all.

    Parameters
    ----------
    matrix : ndarray of shape (n_rows, n_columns)
        Any.

    Returns
    -------
    R : ndarray of shape (min(n_rows, n_columns), n_columns)

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((100, 3))
    >>> np.allclose(triangle(rows).T @ triangle(rows), rows.T @ rows)
    True
    """
    (R,) = scipy.linalg.qr(matrix, mode="r", check_finite=False)
    return np.asarray(R[: matrix.shape[1]], dtype=np.float64)
