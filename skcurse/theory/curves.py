"""The curves that rows contribute as functions of one neuron's weight, and panels for them.

Row x contributes G_x(w) = ⟨softmax(w x_d x), x⟩ - x_d to the network's output and
G_x'(w) = x_d var(x; w) to its tangent kernel. These curves are analytic with poles no closer to the
real axis than π / (|x_d| range(x)), so Chebyshev interpolation on panels of about that width
resolves them to double precision; wider ones do away from w = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.node_moments import node_moments
from skcurse.theory.panels import Panels, chebyshev_rule
from skcurse.theory.tilted_moments import Array, Map, TiltedMoments, query_moments, tilts

__all__ = [
    "CURVES",
    "OUTPUTS",
    "SLOPES",
    "Curves",
    "curve_values",
    "first_breaks",
    "graded_panels",
    "resolved_curves",
    "suited_curves",
]

_MAX_PANELS = 2048
# Width of panels at w = 0 in units of 1 / (|x_d| range(x)) of the steepest curve, to begin with:
# about twice what is needed in the end, and nodes lie where that curve bends.
_WIDEST_AT_ZERO = 8.0
# Rows in one task of a parallel map.
_TASK_ROWS = 48


class Curves(NamedTuple):
    """A family of curves, one a row, from which outputs and their slopes are made.

    Attributes
    ----------
    name : str
        Key in `CURVES`.
    values : callable
        From rows and their tilted moments at weights, mean less query, to the curves there.
    size : callable
        From rows to the largest that each one's curve can be.
    anchor : callable
        From rows to what is added to the part of an output that the curve makes.
    output_part, slope_part : callable
        From panels and coefficients of a curve to those of that part, and of its slope.
    """

    name: str
    values: Callable[[Array, TiltedMoments], Array]
    size: Callable[[Array], Array]
    anchor: Callable[[Array], Array]
    output_part: Callable[[Panels, Array], Array]
    slope_part: Callable[[Panels, Array], Array]


def _itself(panels: Panels, coefficients: Array) -> Array:
    return coefficients


def _outputs(X: Array, moments: TiltedMoments) -> Array:
    return moments.mean


def _query(X: Array) -> Array:
    return X[:, -1]


def _range(X: Array) -> Array:
    width: Array = np.ptp(X, axis=1)
    return width


# Overflow shows in the result, where the caller decides; so below.
@np.errstate(over="ignore", invalid="ignore")
def _slopes(X: Array, moments: TiltedMoments) -> Array:
    return X[:, -1:] * moments.var


@np.errstate(over="ignore", invalid="ignore")
def _steepest(X: Array) -> Array:
    steepest: Array = 0.25 * np.abs(X[:, -1]) * np.ptp(X, axis=1) ** 2
    return steepest


def _mean(X: Array) -> Array:
    mean: Array = X.mean(axis=1)
    return mean


#: G_x(w) = ⟨softmax(w x_d x), x⟩ - x_d; an output is this and x_d.
OUTPUTS = Curves("outputs", _outputs, _range, _query, _itself, Panels.derivative)
#: G_x'(w) = x_d var(x; w); an output is the integral of this from zero, and the window's mean.
SLOPES = Curves("slopes", _slopes, _steepest, _mean, Panels.antiderivative, _itself)
CURVES = {curves.name: curves for curves in (OUTPUTS, SLOPES)}


def suited_curves(X: ArrayLike, interval: tuple[float, float]) -> Curves:
    """Curves that outputs and slopes are rebuilt from with least error.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.
    interval : tuple of two floats
        Range of weights.

    Returns
    -------
    curves : Curves
        `SLOPES` if all scores w x_d x are so small that outputs hardly depend on the weights: their
        derivatives would be made of rounding errors. Else `OUTPUTS`, which are bounded where slopes
        are steep.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> suited_curves(X, (-4.0, 4.0)).name, suited_curves(0.01 * X, (-4.0, 4.0)).name
    ('outputs', 'slopes')
    """
    return SLOPES if _largest_rate(np.asarray(X)) * np.abs(interval).max() < 1.0 else OUTPUTS


def curve_values(X: ArrayLike, weights: ArrayLike, curves: Curves = OUTPUTS) -> Array:
    """Curves of rows at given weights.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.
    weights : array-like of shape (n_weights,)
        Neurons' weights w.
    curves : Curves, default=OUTPUTS
        Which curves.

    Returns
    -------
    values : ndarray of shape (n_samples, n_weights)
        G_x(w), or G_x'(w).

    Examples
    --------
    >>> np.round(curve_values([[0.0, 1.0]], [0.0, 2.0]), 4)
    array([[-0.5   , -0.1192]])
    """
    X = np.asarray(X, dtype=np.float64)
    tilt = tilts(weights)
    values = np.empty((len(X), tilt.order.size))
    values[:, tilt.order] = curves.values(X, query_moments(X, tilt))
    return values


def graded_panels(
    X: Array,
    interval: tuple[float, float],
    *,
    order: int = 16,
    tol: float = 1e-13,
    curves: Curves = OUTPUTS,
) -> Panels:
    """Panels on which the curves of all given rows are resolved.

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
        the curve's size, are below this.
    curves : Curves, default=OUTPUTS
        Which curves.

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
    return resolved_curves(X, first_breaks(X, interval), order, tol, curves)[0]


def first_breaks(X: Array, interval: tuple[float, float]) -> Array:
    """Cut an interval into panels that curves need at least, narrow at w = 0 and wider outwards.

    No curve's bend at w = 0 can then hide between nodes.

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
    if not low < 0.0 < high:
        return np.array([low, high], dtype=np.float64)
    rate = _largest_rate(X)
    sides = []
    for end in (low, high):
        n_halvings = np.ceil(np.log2(max(abs(end) * min(rate, 1e300) / _WIDEST_AT_ZERO, 1.0)))
        ends = end * 0.5 ** np.arange(n_halvings + 1.0)
        # Poles recede in proportion to w at best: panels are as wide as half that. Windows so
        # extreme that there are hundreds of panels do not need all of them so narrow.
        middles = 0.75 * ends[:-1] if n_halvings <= 64 else ends[:0]
        sides.append(np.sort(np.concatenate([ends, middles])))
    return np.concatenate([sides[0], [0.0], sides[1]])


def resolved_curves(
    X: Array, breaks: Array, order: int, tol: float, curves: Curves, map: Map = map
) -> tuple[Panels, Array]:
    """Panels, halved until all rows are resolved, and the rows' curves at their nodes.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows.
    breaks : ndarray of shape (n_panels + 1,)
        Where to start from; w = 0 may be inside no panel.
    order, tol, curves
        See `graded_panels`.
    map : callable, default=map
        Parallel map over blocks of rows.

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
    >>> panels, values = resolved_curves(X, np.array([-8.0, 0.0, 8.0]), 16, 1e-13, OUTPUTS)
    >>> bool(np.allclose(values, curve_values(X, panels.nodes)))
    True
    """
    size = curves.size(X)
    limit = tol * np.where(size > 0, size, 1.0)[:, None, None]
    transform = chebyshev_rule(order)[1][-2:]
    lows, highs, done = breaks[:-1], breaks[1:], []
    n_done, blocks = 0, np.array_split(X, -(-len(X) // _TASK_ROWS))
    while lows.size:
        parts = map(
            partial(_node_values, lows=lows, highs=highs, order=order, curves=curves), blocks
        )
        values = np.concatenate(list(parts)).reshape(len(X), -1, order)
        coarse = np.any(np.abs(values @ transform.T) > limit, axis=(0, 2))
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


# What overflows is too large in any case.
@np.errstate(over="ignore", invalid="ignore")
def _largest_rate(X: Array) -> float:
    """Largest |x_d| range(x)."""
    return float(np.max(np.abs(X[:, -1]) * np.ptp(X, axis=1), initial=0.0))


def _node_values(X: Array, lows: Array, highs: Array, order: int, curves: Curves) -> Array:
    """Curves at the nodes of panels."""
    return curves.values(X, node_moments(X, lows, highs, order))
