"""The tangent features of rows as functions of one neuron's weight, and panels for them.

Row x contributes φ_x(w) = x_d var(x; w) to the network's tangent kernel, and the integral of this
to its output,

    ⟨softmax(w x_d x), x⟩ = mean(x) + ∫_0^w φ_x,

so the features are all that has to be tabulated. (Integrals of interpolants are more accurate than
interpolants; derivatives of interpolated outputs lose digits, all of them where scores are small.)
The features are analytic with poles no closer to the real axis than π / (|x_d| range(x)), so
Chebyshev interpolation on panels of about that width resolves them to double precision; wider ones
do away from w = 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.expanded_features import ExpandedFeatures
from skcurse.theory.panels import Panels, chebyshev_rule
from skcurse.theory.tilted_moments import Array

__all__ = [
    "divisors",
    "feature_rates",
    "feature_sizes",
    "first_breaks",
    "graded_panels",
    "resolved_features",
]

_MAX_PANELS = 2048
# Width of panels at w = 0 in units of 1 / (|x_d| range(x)) of the steepest feature, to begin with:
# about twice what is needed in the end, and nodes lie where that feature bends.
_WIDEST_AT_ZERO = 8.0


# Overflow shows in the result, where the caller decides; so below.
@np.errstate(over="ignore", invalid="ignore")
def feature_rates(X: ArrayLike) -> Array:
    """How fast each row's feature changes at w = 0: π over this is how far its poles are.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.

    Returns
    -------
    rates : ndarray of shape (n_samples,)
        |x_d| range(x).

    Examples
    --------
    >>> feature_rates([[0.0, 4.0, 2.0], [1.0, 1.0, 1.0]])
    array([8., 0.])
    """
    X = np.asarray(X, dtype=np.float64)
    rates: Array = np.abs(X[:, -1]) * np.ptp(X, axis=1)
    return rates


@np.errstate(over="ignore", invalid="ignore")
def feature_sizes(X: ArrayLike) -> Array:
    """Largest that |x_d var(x; w)| can be for each row.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.

    Returns
    -------
    sizes : ndarray of shape (n_samples,)
        |x_d| range(x)²/4.

    Examples
    --------
    >>> feature_sizes([[0.0, 4.0, 2.0], [1.0, 1.0, 1.0]])
    array([8., 0.])
    """
    X = np.asarray(X, dtype=np.float64)
    sizes: Array = 0.25 * np.abs(X[:, -1]) * np.ptp(X, axis=1) ** 2
    return sizes


def divisors(X: ArrayLike) -> Array:
    """Sizes to divide features by: those of `feature_sizes`, and 1 where there is no feature."""
    sizes = feature_sizes(X)
    return np.where(sizes > 0, sizes, 1.0)


def graded_panels(
    X: Array,
    interval: tuple[float, float],
    *,
    order: int = 16,
    tol: float = 1e-13,
) -> Panels:
    """Panels on which the features of all given rows are resolved.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows.
    interval : tuple of two floats
        Range of weights to cover.
    order : int, default=16
        Chebyshev nodes a panel.
    tol : float, default=1e-13
        A panel is bisected until the last two Chebyshev coefficients of every row, relative to
        the feature's size, are below this.

    Returns
    -------
    panels : Panels
        Narrow near w = 0, where the poles are, and wider towards the ends; w = 0 is an end of
        panels if the interval contains it.

    Raises
    ------
    ValueError
        If the rows need more than 2048 panels.

    Examples
    --------
    >>> panels = graded_panels(np.array([[3.0, -1.0, 2.0]]), (-8.0, 8.0))
    >>> widths = np.diff(panels.breaks)
    >>> bool(widths[0] > widths[panels.n_panels // 2])
    True
    """
    return resolved_features(X, first_breaks(X, interval), order, tol)[0]


def first_breaks(X: Array, interval: tuple[float, float]) -> Array:
    """Cut an interval into panels that features need at least, narrow at w = 0, wider outwards.

    No feature's bend at w = 0 can then hide between nodes.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows.
    interval : tuple of two floats
        Range of weights to cover.

    Returns
    -------
    breaks : ndarray of shape (n_panels + 1,)
        Increasing, from one end of the interval to the other.

    Examples
    --------
    >>> first_breaks(np.array([[-4.0, 4.0]]), (-0.25, 1.0))
    array([-0.25 ,  0.   ,  0.25 ,  0.375,  0.5  ,  0.75 ,  1.   ])
    """
    low, high = interval
    if low > 0.0 or high < 0.0:
        return np.array([low, high], dtype=np.float64)
    rate = float(np.max(feature_rates(X), initial=0.0))
    parts = [np.zeros(1)]
    for end in (low, high):
        if end == 0.0:
            continue
        n_halvings = np.ceil(np.log2(max(abs(end) * min(rate, 1e300) / _WIDEST_AT_ZERO, 1.0)))
        ends = end * 0.5 ** np.arange(n_halvings + 1.0)
        # Poles recede in proportion to w at best: panels are as wide as half that. Windows so
        # extreme that there are hundreds of panels do not need all of them so narrow.
        middles = 0.75 * ends[:-1] if n_halvings <= 64 else ends[:0]
        parts += [ends, middles]
    return np.sort(np.concatenate(parts))


def resolved_features(X: Array, breaks: Array, order: int, tol: float) -> tuple[Panels, Array]:
    """Panels, halved until all rows are resolved, and the rows' features at their nodes.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows.
    breaks : ndarray of shape (n_panels + 1,)
        Where to start from.
    order, tol
        See `graded_panels`.

    Returns
    -------
    panels : Panels
    values : ndarray of shape (n_samples, n_nodes)

    Raises
    ------
    ValueError
        If the rows need more than 2048 panels.

    Examples
    --------
    >>> X = np.array([[3.0, -1.0, 2.0]])
    >>> from skcurse.theory.ntk import kernel_features
    >>> panels, values = resolved_features(X, np.array([-8.0, 0.0, 8.0]), 16, 1e-13)
    >>> bool(np.allclose(values, kernel_features(X, panels.nodes)))
    True
    """
    limit = tol * divisors(X)[:, None, None]
    features = ExpandedFeatures(X, (breaks[0], breaks[-1]))
    unit_nodes, transform, _ = chebyshev_rule(order)
    lows, highs, done, n_done = breaks[:-1], breaks[1:], [], 0
    while lows.size:
        nodes = (lows + highs)[:, None] / 2.0 + (highs - lows)[:, None] / 2.0 * unit_nodes
        values = features(nodes.ravel()).reshape(len(X), -1, order)
        coarse = np.any(np.abs(values @ transform[-2:].T) > limit, axis=(0, 2))
        done.append((lows[~coarse], values[:, ~coarse]))
        n_done += int(np.count_nonzero(~coarse))
        lows, highs = lows[coarse], highs[coarse]
        if n_done + 2 * lows.size > _MAX_PANELS:
            raise ValueError(
                f"The windows need more than {_MAX_PANELS} panels to be tabulated on "
                f"{breaks[[0, -1]]}: scale X down, or use the direct formula (solver='direct')."
            )
        middle = (lows + highs) / 2.0
        lows, highs = np.concatenate([lows, middle]), np.concatenate([middle, highs])
    starts = np.concatenate([lows for lows, _ in done])
    values = np.concatenate([values for _, values in done], axis=1)
    by_start = np.argsort(starts)
    panels = Panels([*starts[by_start], breaks[-1]], order)
    return panels, values[:, by_start].reshape(len(X), -1)
