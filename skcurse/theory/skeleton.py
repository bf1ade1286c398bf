"""The few weights at which attention must be evaluated to know it everywhere.

As a function of one neuron's weight w, row x contributes G_x(w) = ⟨softmax(w x_d x), x⟩ - x_d.
These curves are analytic with poles no closer to the real axis than π / (|x_d| range(x)), so for
rows up to a given width they span, to double precision, a space of a few dozen dimensions: k
*skeleton* weights u_1, ..., u_k and interpolating functions T_l give every one of them,

    G_x(w) = Σ_l G_x(u_l) T_l(w).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from skcurse.theory.panels import Panels
from skcurse.theory.tilted_moments import (
    BLOCK_BYTES,
    Array,
    Map,
    query_moments,
    row_tasks,
    tilts,
)

__all__ = [
    "Skeleton",
    "curve_values",
    "find_skeleton",
    "graded_panels",
    "rebuilding_errors",
]

_MAX_PANELS = 2048
_N_CHECKS = 8


def curve_values(X: ArrayLike, weights: ArrayLike) -> Array:
    """Curves of rows at given weights.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.
    weights : array-like of shape (n_weights,)
        Neurons' weights w.

    Returns
    -------
    values : ndarray of shape (n_samples, n_weights)
        G_x(w) = ⟨softmax(w x_d x), x⟩ - x_d.

    Examples
    --------
    >>> np.round(curve_values([[0.0, 1.0]], [0.0, 2.0]), 4)
    array([[-0.5   , -0.1192]])
    """
    X = np.asarray(X, dtype=np.float64)
    tilt = tilts(weights)
    values = np.empty((len(X), tilt.order.size))
    values[:, tilt.order] = query_moments(X, tilt).mean
    return values


def graded_panels(
    X: Array, interval: tuple[float, float], *, order: int = 16, tol: float = 1e-13
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
        the row's range, are below this.

    Returns
    -------
    panels : Panels
        Narrow near w = 0, where the poles are, and wider towards the ends.

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
    return _resolved(X, np.array(interval, dtype=np.float64), order, tol)[0]


def _resolved(X: Array, breaks: Array, order: int, tol: float) -> tuple[Panels, Array]:
    """Panels, halved until all rows are resolved, and the rows' curves at their nodes."""
    scale = np.ptp(X, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    todo = list(itertools.pairwise(breaks.tolist()))
    done: dict[float, Array] = {}
    while todo:
        halved: list[tuple[float, float]] = []
        for pair in todo:
            panel = Panels(pair, order)
            values = curve_values(X, panel.nodes) / scale[:, None]
            if np.abs(panel.coefficients(values)[:, -2:]).max(initial=0.0) > tol:
                halved += itertools.pairwise(panel.split().breaks.tolist())
            else:
                done[pair[0]] = values
        if len(halved) + len(done) > _MAX_PANELS:
            raise ValueError(
                f"The windows need more than {_MAX_PANELS} panels to be tabulated on "
                f"{breaks[[0, -1]]}: scale X down, or use the direct formula (solver='direct')."
            )
        todo = halved
    lows = sorted(done)
    panels = Panels([*lows, breaks[-1]], order)
    return panels, np.concatenate([done[low] for low in lows], axis=1)


@dataclass(frozen=True)
class Skeleton:
    """Weights from whose curve values every covered row's curve is rebuilt.

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
    tol : float
        Largest error, relative to the row's range, of a covered row.
    """

    panels: Panels
    weights: Array
    coefficients: Array
    check_weights: Array
    check_values: Array
    tol: float

    def errors(self, X: Array) -> Array:
        """Largest error of every row at the check weights, relative to its range."""
        values = curve_values(X, np.concatenate([self.weights, self.check_weights]))
        return rebuilding_errors(X, values, self.check_values)

    def blocks(self, X: Array) -> list[Array]:
        """Blocks of rows that suit one task of a parallel map each."""
        size = self.weights.size + self.check_weights.size
        return [X[rows] for rows in row_tasks(X, size, BLOCK_BYTES)]


def rebuilding_errors(X: Array, values: Array, check_values: Array) -> Array:
    """Largest error of every row's rebuilt curve at check weights, relative to the row's range.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows.
    values : ndarray of shape (n_samples, n_skeleton + n_checks)
        Their curves at the skeleton weights, then at the check weights.
    check_values : ndarray of shape (n_skeleton, n_checks)
        The interpolating functions at the check weights.

    Returns
    -------
    errors : ndarray of shape (n_samples,)
    """
    known, checks = np.split(values, [len(check_values)], axis=1)
    scale = np.ptp(X, axis=1)
    error = np.abs(checks - known @ check_values).max(axis=1, initial=0.0)
    relative: Array = error / np.where(scale > 0, scale, 1.0)
    return relative


def find_skeleton(
    X: ArrayLike,
    interval: tuple[float, float],
    *,
    order: int = 16,
    tol: float = 1e-13,
    n_rows: int = 256,
    stretch: float = 1.2,
    map: Map = map,
) -> Skeleton:
    """Skeleton that covers all given rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows.
    interval : tuple of two floats
        Range of weights to cover.
    order : int, default=16
        Chebyshev nodes a panel.
    tol : float, default=1e-13
        Error of the tabulated curves, relative to a row's range.
    n_rows : int, default=256
        Rows the skeleton is first found from: the widest ones and evenly spaced ranks of the
        width |x_d| range(x) among the others. Rows that it turns out not to cover are added.
    stretch : float, default=1.2
        The widest rows times this are covered too, so that most unseen rows are.
    map : callable, default=map
        Parallel map over blocks of rows.

    Returns
    -------
    skeleton : Skeleton

    Raises
    ------
    ValueError
        If X has scores that overflow, or curves too steep to tabulate.

    Notes
    -----
    Column-pivoted QR of the sampled rows at all nodes, G = Q [R_1 R_2] up to a permutation, gives
    the k skeleton nodes and T = [I, R_1^{-1} R_2]: an interpolative decomposition.

    References
    ----------
    .. [1] H. Cheng, Z. Gimbutas, P.-G. Martinsson, V. Rokhlin, "On the compression of low rank
       matrices", SIAM J. Sci. Comput. 26 (2005).

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((2000, 16))
    >>> skeleton = find_skeleton(X, (-3.0, 3.0))
    >>> values = curve_values(X, skeleton.weights)
    >>> w = np.array([-1.234, 0.777])
    >>> T = skeleton.panels.at(w).evaluate_many(skeleton.coefficients)
    >>> bool(np.abs(values @ T - curve_values(X, w)).max() < 1e-11)
    True
    """
    X = np.asarray(X, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        width = np.abs(X[:, -1]) * np.ptp(X, axis=1)
        scores = width * max(np.abs(interval)) * stretch**2
    if not np.all(np.isfinite(scores)):
        raise ValueError("The scores w x_d x overflow: scale X down.")
    by_width = np.argsort(-width, kind="stable")
    widest = np.arange(min(n_rows // 4, len(X)))
    spread = np.linspace(0, len(X) - 1, min(n_rows - n_rows // 4, len(X))).astype(int)
    sample = by_width[np.union1d(widest, spread)]
    stretched = stretch * X[by_width[widest]]
    while True:
        rows = np.concatenate([stretched, X[sample]])
        skeleton = _skeleton_from(rows, interval, order, tol)
        errors = np.concatenate(list(map(skeleton.errors, skeleton.blocks(X))))
        errors[sample] = 0.0
        worst = np.argsort(-errors, kind="stable")[:n_rows]
        missed = worst[errors[worst] > skeleton.tol]
        if not missed.size:
            return skeleton
        sample = np.concatenate([sample, missed])


def _skeleton_from(X: Array, interval: tuple[float, float], order: int, tol: float) -> Skeleton:
    """Skeleton of the given rows, from all of them at all nodes."""
    # A fifth of the rows finds most panels at a fifth of the price.
    coarse = graded_panels(X[::5], interval, order=order, tol=tol)
    panels, curves = _resolved(X, coarse.breaks, order, tol)
    R, pivots = scipy.linalg.qr(curves, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(R))
    k = int(np.count_nonzero(diagonal > 0.1 * tol * diagonal[0]))
    T = np.empty((k, panels.nodes.size))
    T[:, pivots[:k]] = np.eye(k)
    T[:, pivots[k:]] = scipy.linalg.solve_triangular(R[:k, :k], R[:k, k:])
    functions = panels.coefficients(T)
    # The next pivots are where the sampled rows were hardest to rebuild; midway to the next node
    # a row that the panels do not resolve shows as well.
    hardest = np.sort(np.minimum(pivots[k : k + _N_CHECKS], panels.nodes.size - 2))
    checks = (panels.nodes[hardest] + panels.nodes[hardest + 1]) / 2.0
    check_values = panels.at(checks).evaluate_many(functions)
    return Skeleton(panels, panels.nodes[pivots[:k]], functions, checks, check_values, 100.0 * tol)
