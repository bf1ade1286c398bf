"""A trained network as the few masses that predict what all its neurons predict.

The output f(x) = Σ_r a_r ⟨S_r(x), x⟩/√m integrates a function of w over the signed measure
Σ_r a_r δ(w_r)/√m. A skeleton rebuilds it from k features of x, so the measure may be replaced by
k masses: predicting with a million neurons costs what a hundred neurons cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.ntk import kernel_features
from skcurse.theory.skeleton import Skeleton, rebuilding_errors
from skcurse.theory.tilted_moments import BLOCK_BYTES, Array, Map, row_tasks

__all__ = ["CompressedNetwork", "compress", "compressed_forward"]


class CompressedNetwork(NamedTuple):
    """Networks, one an output, on a common skeleton; without its last axis, one network.

    Attributes
    ----------
    weights : ndarray of shape (n_skeleton,)
        Skeleton weights.
    masses : ndarray of shape (n_skeleton, n_outputs)
        What the row's features there are multiplied by.
    totals : ndarray of shape (n_outputs,)
        What the window's mean is multiplied by: Σ_r a_r/√m.
    check_weights : ndarray of shape (n_checks,)
        Where a row shows whether the skeleton covers it.
    check_values : ndarray of shape (n_skeleton, n_checks)
        How the skeleton rebuilds a feature there.
    rate : float
        Largest |x_d| range(x) of a covered row.
    tol : float
        Largest error of a covered row, relative to the size of its feature.
    """

    weights: Array
    masses: Array
    totals: Array
    check_weights: Array
    check_values: Array
    rate: float
    tol: float


def compress(
    skeleton: Skeleton,
    measures: Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    derivative: bool = False,
) -> CompressedNetwork:
    """Compress networks, given as signed measures on w.

    Parameters
    ----------
    skeleton : Skeleton
        From `skcurse.theory.skeleton.find_skeleton`.
    measures : sequence of pairs (weights, masses)
        One an output: the measure Σ_r masses_r δ(w - weights_r), with weights inside the skeleton's
        panels. The network's own masses are a_r/√m.
    derivative : bool, default=False
        Compress the output Σ_r masses_r x_d var(x; weights_r) instead, which linearised networks
        have.

    Returns
    -------
    network : CompressedNetwork
        For `compressed_forward`.

    Examples
    --------
    >>> from skcurse.theory.attention_network import forward
    >>> from skcurse.theory.skeleton import find_skeleton
    >>> rng = np.random.default_rng(0)
    >>> X, w, a = rng.normal(size=(500, 8)), rng.normal(size=10_000), rng.choice([-1, 1], 10_000)
    >>> network = compress(find_skeleton(X, (-5.0, 5.0)), [(w, a / 100.0)])
    >>> direct = lambda rows: forward(rows, w, a)[:, None]
    >>> error = compressed_forward(X, network, direct)[:, 0] - forward(X, w, a)
    >>> network.weights.size < 100, bool(np.abs(error).max() < 1e-10)
    (True, True)
    """
    functions, totals = skeleton.integrals, [np.sum(masses) for _, masses in measures]
    if derivative:
        functions, totals = skeleton.coefficients, [0.0] * len(measures)
    moments = [skeleton.panels.at(weights).moments(masses) for weights, masses in measures]
    return CompressedNetwork(
        skeleton.weights,
        functions @ np.transpose(moments),
        np.array(totals),
        skeleton.check_weights,
        skeleton.check_values,
        skeleton.rate,
        skeleton.tol,
    )


def compressed_forward(
    X: ArrayLike,
    network: CompressedNetwork,
    direct: Callable[[Array], Array] | None = None,
    *,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    """Output of compressed networks, by the direct formula for rows that are not covered.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    network : CompressedNetwork
        From `compress`.
    direct : callable, default=None
        Outputs, in the shape of this function's, of the whole network for windows of shape
        (n, n_features). None if all rows are known to be covered.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Parallel map over blocks of rows.

    Returns
    -------
    outputs : ndarray of shape (n_samples, n_outputs) or (n_samples,)
        The same numbers either way, to about ten digits.
    """
    X = np.asarray(X, dtype=np.float64)
    tasks = row_tasks(X, network.weights.size + network.check_weights.size, block_bytes)
    rebuilt = partial(_rebuilt, network=network)
    # One task is done sooner here than by a worker.
    parts = [rebuilt(X)] if len(tasks) == 1 else list(map(rebuilt, [X[rows] for rows in tasks]))
    outputs = np.concatenate([output for output, _ in parts])
    if direct is not None:
        uncovered = ~(np.concatenate([error for _, error in parts]) <= network.tol)
        if uncovered.any():
            outputs[uncovered] = direct(X[uncovered])
    return outputs


def _rebuilt(X: Array, network: CompressedNetwork) -> tuple[Array, Array]:
    """Give the outputs of a block of rows, and how well their features are rebuilt."""
    values = kernel_features(X, np.concatenate([network.weights, network.check_weights]))
    outputs = values[:, : network.weights.size] @ network.masses
    outputs += np.multiply.outer(X.mean(axis=1), network.totals)
    return outputs, rebuilding_errors(X, values, network.check_values, network.rate)
