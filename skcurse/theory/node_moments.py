"""Tilted moments at all nodes of panels, from few exponentials.

The nodes of a panel are ``near + half (1 + t_j)`` away from w = 0, with the same t_j on every
panel. So with the distances g_k of `skcurse.theory.tilted_moments`,

    exp(-|w x_d| g_k) = exp(-|x_d| near g_k) exp(-|x_d| half (1 + t_j) g_k),

where the first factor knows only the panel and the second only its width: the sums over k for all
panels of a width are one matrix product, and halving a panel takes the root of the second factor
(derived).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.panels import chebyshev_rule
from skcurse.theory.tilted_moments import Array, Side, TiltedMoments, Tilts, sides

__all__ = ["node_moments"]

# Numbers in flight: they fit the second-level cache of one core.
_CACHE_BYTES = 2**20
_LARGEST_RATE = 1e300
# Squaring doubles the relative error: three times keep it below that of the sums.
_MOST_SQUARES = 3


# What overflows is a rate, capped right after, or shows in the result, where the caller decides.
@np.errstate(over="ignore", invalid="ignore")
def node_moments(X: Array, lows: ArrayLike, highs: ArrayLike, order: int) -> TiltedMoments:
    """Tilted mean less the query ``x_d``, and tilted variance, at the Chebyshev nodes of panels.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows; the last column is the query.
    lows, highs : array-like of shape (n_panels,)
        Ends of the panels; w = 0 may be inside none of them.
    order : int
        Nodes a panel.

    Returns
    -------
    mean, var : ndarray of shape (n_samples, n_panels * order)

    Raises
    ------
    ValueError
        If w = 0 is inside a panel.

    Examples
    --------
    >>> from skcurse.theory.panels import Panels
    >>> from skcurse.theory.tilted_moments import tilted_moments
    >>> X = np.array([[1.0, 3.0, 2.0]])
    >>> mean, var = node_moments(X, [-1.0, 0.0], [0.0, 2.0], 8)
    >>> exact = tilted_moments(X, Panels([-1.0, 0.0, 2.0], 8).nodes)
    >>> np.allclose(mean + 2.0, exact.mean), np.allclose(var, exact.var)
    (True, True)
    """
    low, high = np.asarray(lows, dtype=np.float64), np.asarray(highs, dtype=np.float64)
    negative = low < 0
    if np.any(negative & (high > 0)):
        raise ValueError("w = 0 is inside a panel; it must be an end of one.")
    by_sign = np.argsort(negative, kind="stable")
    near = np.minimum(np.abs(low), np.abs(high))[by_sign]
    tilt = Tilts(near, int(np.count_nonzero(~negative)), by_sign)
    t = chebyshev_rule(order)[0]
    mean, var = np.empty((2, len(X), low.size, order))
    height = max(1, _CACHE_BYTES // (8 * X.shape[1] * (order + 3 * low.size)))
    for first in range(0, len(X), height):
        rows = slice(first, first + height)
        for side in sides(X[rows], tilt):
            chosen = by_sign[side.columns]
            away = 1.0 - t if negative[chosen[0]] else 1.0 + t
            offset = (side.top - X[rows, -1:])[:, :, None]
            span = side.span[:, :, None]
            for part, sums in _sums(side, (high - low)[chosen] / 2.0, away):
                first_moment = sums[:, 1] / sums[:, 0]
                second = sums[:, 2] / sums[:, 0] - first_moment * first_moment
                mean[rows, chosen[part]] = offset + span * first_moment
                # In this order a variance that underflows stays zero: no 0 * inf.
                var[rows, chosen[part]] = second * span * span
    return TiltedMoments(mean.reshape(len(X), -1), var.reshape(len(X), -1))


def _sums(side: Side, halves: Array, away: Array) -> Iterator[tuple[NDArray[np.intp], Array]]:
    """Sum 1, g and g² under the exponentials, for panels of one width at a time.

    Yields the panels' indices and an array of shape (n_samples, 3, n_chosen, order).
    """
    gap, (n, d) = side.distance, side.distance.shape
    powers = np.stack([np.ones_like(gap), gap, gap * gap], axis=1)
    # Halved panels have widths that differ by powers of two, but for rounding.
    widths = np.round(np.log2(halves), 13)
    within, before, squares = np.empty(0), -math.inf, 0
    for width in np.unique(widths):
        here = np.flatnonzero(widths == width)
        if width == before + 1.0 and squares < _MOST_SQUARES:
            within, squares = within * within, squares + 1
        else:
            within, squares = _decay(side, halves[here[0]] * away), 0
        before = width
        outside = _decay(side, side.sizes[here])
        left = (powers[:, :, None, :] * outside[:, None]).reshape(n, 3 * here.size, d)
        sums = left @ within.swapaxes(1, 2)
        yield here, sums.reshape(n, 3, here.size, away.size)


def _decay(side: Side, sizes: Array) -> Array:
    """exp(-rate sizes_j g_k), of shape (n_samples, n_sizes, n_features)."""
    exponent = np.minimum(side.rate * sizes, _LARGEST_RATE)[:, :, None] * -side.distance[:, None]
    return np.exp(exponent, out=exponent)
