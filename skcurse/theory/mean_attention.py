"""Mean attention on the last entry of windows, at a cost that hardly grows with the neurons.

The softmax weight A_x(w) of a window's last entry is an analytic function of a neuron's weight,
with the poles of the features of `skcurse.theory.feature_panels`. So on panels as narrow as those
its Chebyshev interpolant stands for it, and a sum over neurons is one over nodes, with masses that
integrate every interpolant as the neurons do. A panel is halved until it resolves A_x for all rows;
where it holds few neurons, they are summed up themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.feature_panels import feature_rates, first_breaks
from skcurse.theory.panels import chebyshev_basis, chebyshev_rule
from skcurse.theory.tilted_moments import BLOCK_BYTES, Array, Map, last_step_attention, row_tasks

__all__ = ["mean_last_step_attention"]

_ORDER = 16
# Neurons on a panel that its nodes are not worth it for.
_FEW = 2 * _ORDER
# Largest of the last two Chebyshev coefficients on a panel; attention is at most 1.
_TOL = 1e-14


def mean_last_step_attention(
    X: ArrayLike, weights: ArrayLike, *, block_bytes: int = BLOCK_BYTES, map: Map = map
) -> float:
    """Mean over rows and neurons of the softmax weight on the last entry of a window.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        The neurons' weights.
    block_bytes : int, default=2**27
        Most bytes of temporaries for rows.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    mean : float
        Between 0 and 1; ``1 / n_features`` is uniform attention. NaN without rows or neurons.

    Examples
    --------
    >>> from skcurse.theory.tilted_moments import last_step_attention
    >>> rng = np.random.default_rng(0)
    >>> X, w = rng.standard_normal((20, 4)), rng.standard_normal(5000)
    >>> bool(abs(mean_last_step_attention(X, w) - last_step_attention(X, w).mean()) < 1e-14)
    True
    """
    X, w = np.asarray(X, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if not (len(X) and w.size):
        return float("nan")
    points, repeats = np.unique(w, return_counts=True)
    counts = repeats.astype(np.float64)
    # With w = 0 among them, no bend of A there can hide between nodes.
    ends = min(points[0], 0.0), max(points[-1], 0.0)
    # Rows whose features are about as steep share their panels; some scores overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        steepness = feature_rates(X) * np.abs(points).max()
    kinds = np.where(np.isfinite(steepness), np.maximum(np.frexp(steepness)[1], 1), 0)
    total = 0.0
    for kind in np.unique(kinds):
        rows = X[kinds == kind]
        sums = partial(_sums, rows, block_bytes=block_bytes, map=map)
        if kind == 0 or points.size <= _FEW:
            total += float(sums(points)[0] @ counts)
        else:
            total += _sum_on_panels(sums, first_breaks(rows, ends), points, counts)
    return total / len(X) / w.size


def _sum_on_panels(
    sums: Callable[[Array], tuple[Array, Array]], breaks: Array, points: Array, counts: Array
) -> float:
    """Sum over rows and neurons, `counts` of them at each of the increasing `points`."""
    unit, transform, _ = chebyshev_rule(_ORDER)
    lows, highs = breaks[:-1], breaks[1:]
    inner = np.searchsorted(points, breaks[1:-1])
    firsts, lasts = np.append(0, inner), np.append(inner, points.size)
    total, alone = 0.0, np.ones(points.size, dtype=bool)
    while np.any(many := lasts - firsts > _FEW):
        lows, highs, firsts, lasts = (z[many] for z in (lows, highs, firsts, lasts))
        centers, halves = (lows + highs) / 2.0, (highs - lows) / 2.0
        values, tails = sums((centers[:, None] + halves[:, None] * unit).ravel())
        # Not a number is not resolved.
        coarse = ~(tails <= _TOL)
        for k in np.flatnonzero(~coarse):
            own = slice(firsts[k], lasts[k])
            alone[own] = False
            basis = chebyshev_basis((points[own] - centers[k]) / halves[k], _ORDER)
            total += float(values.reshape(-1, _ORDER)[k] @ transform.T @ (basis @ counts[own]))
        lows, highs, firsts, lasts, middles = (
            z[coarse] for z in (lows, highs, firsts, lasts, centers)
        )
        inner = np.searchsorted(points, middles)
        lows, highs = np.append(lows, middles), np.append(middles, highs)
        firsts, lasts = np.append(firsts, inner), np.append(inner, lasts)
    return total + float(sums(points[alone])[0] @ counts[alone]) if alone.any() else total


def _sums(X: Array, w: Array, *, block_bytes: int, map: Map) -> tuple[Array, Array]:
    """Attention at each weight, summed over rows, and how well panels of weights resolve it."""
    tasks = row_tasks(X, w.size, block_bytes)
    sums, tails = zip(*map(partial(_block_sums, w=w), [X[rows] for rows in tasks]), strict=True)
    return np.sum(sums, axis=0), np.max(tails, axis=0)


def _block_sums(X: Array, w: Array) -> tuple[Array, Array]:
    attention = last_step_attention(X, w)
    whole = w.size // _ORDER * _ORDER
    last_two = chebyshev_rule(_ORDER)[1][-2:]
    tails = np.abs(attention[:, :whole].reshape(len(X), -1, _ORDER) @ last_two.T)
    return attention.sum(axis=0), tails.max(axis=(0, 2))
