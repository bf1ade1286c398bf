"""Piecewise Chebyshev interpolation: functions of one variable on adjacent panels.

An interval is cut into panels, each carries the same number of Chebyshev nodes, and a function
is held as the Chebyshev coefficients of its interpolant on every panel. The transpose of
interpolation, *moments*, turns a cloud of weighted points into the same number of coefficients:
whatever is linear in the interpolated functions then costs no more for a million points.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.tilted_moments import Array

Indices = NDArray[np.intp]

# Smallest over largest eigenvalue of a Gram matrix whose Cholesky factor keeps 13 digits.
_WELL_CONDITIONED = 1e-3

__all__ = ["Panels", "PointsOnPanels", "chebyshev_basis", "chebyshev_rule"]


@lru_cache
def chebyshev_rule(order: int) -> tuple[Array, Array, Array]:
    """Chebyshev nodes of the first kind with their transform and differentiation matrices.

    Parameters
    ----------
    order : int
        Number p of nodes.

    Returns
    -------
    nodes : ndarray of shape (order,)
        Increasing, inside (-1, 1).
    transform : ndarray of shape (order, order)
        ``transform @ values`` are the coefficients of the interpolant.
    derivative : ndarray of shape (order, order)
        ``derivative @ coefficients`` are the coefficients of its derivative.

    Examples
    --------
    >>> nodes, transform, derivative = chebyshev_rule(8)
    >>> np.allclose(derivative @ transform @ nodes**2, 2 * transform @ nodes)
    True
    """
    # cos(π k/(2 p)) for integers k, brought to [0, 2 p] first: angles of hundreds lose digits.
    k = np.outer(np.arange(order), np.arange(2 * order - 1, 0, -2)) % (4 * order)
    step = np.pi / (2 * order)
    transform = 2.0 / order * np.sin(step * (order - np.minimum(k, 4 * order - k)))
    transform[0] /= 2.0
    derivative = np.zeros((order, order))
    derivative[: order - 1] = chebyshev.chebder(np.eye(order))
    return np.sin(step * np.arange(1 - order, order, 2)), transform, derivative


def chebyshev_basis(t: ArrayLike, order: int, out: Array | None = None) -> Array:
    """Values of the first Chebyshev polynomials.

    Parameters
    ----------
    t : array-like of shape (n_points,)
        Arguments in [-1, 1].
    order : int
        Number of polynomials, at least 2.
    out : ndarray of shape (order, n_points), default=None
        Where to write them.

    Returns
    -------
    basis : ndarray of shape (order, n_points)
        Row j holds T_j(t).

    Notes
    -----
    T_{m+i} = 2 T_m T_i - T_{m-i} fills m rows at once: log2(order) array operations instead of
    order.

    Examples
    --------
    >>> np.round(chebyshev_basis([0.5], 4).ravel(), 12)
    array([ 1. ,  0.5, -0.5, -1. ])
    """
    t = np.asarray(t, dtype=np.float64)
    basis = np.empty((order, t.size)) if out is None else out
    basis[0], basis[1] = 1.0, t
    top = 1
    while top < order - 1:
        more = min(top, order - 1 - top)
        rows = basis[top + 1 : top + more + 1]
        np.multiply(basis[1 : more + 1], 2.0 * basis[top], out=rows)
        rows -= basis[top - more : top][::-1]
        top += more
    return basis


class Panels:
    """Adjacent panels with Chebyshev nodes on each.

    Parameters
    ----------
    breaks : array-like of shape (n_panels + 1,)
        Increasing end points of the panels.
    order : int, default=16
        Nodes a panel.

    Attributes
    ----------
    nodes : ndarray of shape (n_panels * order,)
        All nodes, increasing.

    Examples
    --------
    >>> panels = Panels([-1.0, 0.0, 2.0])
    >>> coefficients = panels.coefficients(np.sin(panels.nodes))
    >>> points = np.array([-0.3, 1.7])
    >>> np.allclose(panels.at(points).evaluate(coefficients), np.sin(points), atol=1e-13)
    True
    >>> slope = panels.derivative(coefficients)
    >>> np.allclose(panels.at(points).evaluate(slope), np.cos(points), atol=1e-11)
    True
    """

    def __init__(self, breaks: ArrayLike, order: int = 16) -> None:
        self.breaks = np.asarray(breaks, dtype=np.float64)
        self.order = order
        self.centers = (self.breaks[1:] + self.breaks[:-1]) / 2.0
        self.halves = np.diff(self.breaks) / 2.0
        if not (self.breaks.ndim == 1 and self.halves.size and np.all(self.halves > 0)):
            raise ValueError("breaks must be at least two increasing numbers.")
        unit_nodes = chebyshev_rule(order)[0]
        self.nodes = (self.centers[:, None] + self.halves[:, None] * unit_nodes).ravel()

    @property
    def n_panels(self) -> int:
        """Number of panels."""
        return self.centers.size

    def covers(self, points: ArrayLike) -> bool:
        """Whether all points lie between the first and the last break."""
        points = np.asarray(points)
        return bool(points.min() >= self.breaks[0] and points.max() <= self.breaks[-1])

    def coefficients(self, values: ArrayLike) -> Array:
        """Chebyshev coefficients, shape (..., n_nodes), from values at the nodes, same shape."""
        transform = chebyshev_rule(self.order)[1]
        return self._per_panel(values, transform)

    def derivative(self, coefficients: ArrayLike) -> Array:
        """Coefficients of the derivative, shape (..., n_nodes), from those of a function."""
        scaled = self._per_panel(coefficients, chebyshev_rule(self.order)[2])
        return scaled / np.repeat(self.halves, self.order)

    def antiderivative(self, coefficients: ArrayLike) -> Array:
        """Coefficients of the antiderivative that is zero at the break nearest to zero."""
        rises = chebyshev.chebint(np.eye(self.order), lbnd=-1.0)[: self.order]
        integral = np.asarray(rises, dtype=np.float64)
        scaled = self._per_panel(coefficients, integral) * np.repeat(self.halves, self.order)
        # A view: what all panels to the left add is added to the constants.
        blocks = scaled.reshape(*scaled.shape[:-1], self.n_panels, self.order)
        ends = np.cumsum(blocks.sum(axis=-1), axis=-1)
        starts = np.concatenate([np.zeros_like(ends[..., :1]), ends], axis=-1)
        zero = np.argmin(np.abs(self.breaks))
        blocks[..., 0] += starts[..., :-1] - starts[..., zero, None]
        return scaled

    def node_masses(self, moments: ArrayLike) -> Array:
        """Masses on the nodes that integrate every interpolant as `moments` do."""
        return self._per_panel(moments, chebyshev_rule(self.order)[1].T)

    def quadrature(self) -> tuple[Array, Array]:
        """Composite Gauss-Legendre rule with `order` points a panel: points and weights."""
        t, weights = np.polynomial.legendre.leggauss(self.order)
        points = self.centers[:, None] + self.halves[:, None] * t
        return points.ravel(), np.outer(self.halves, weights).ravel()

    def split(self) -> Panels:
        """Panels of half the width."""
        return Panels(np.sort(np.concatenate([self.breaks, self.centers])), self.order)

    def at(self, points: ArrayLike, *, block_bytes: int = 2**26) -> PointsOnPanels:
        """Locate points; values and moments there are methods of the result."""
        return PointsOnPanels(self, np.asarray(points, dtype=np.float64), block_bytes)

    def _per_panel(self, array: ArrayLike, matrix: Array) -> Array:
        """Apply an (order, order) matrix to the entries of every panel."""
        array = np.asarray(array, dtype=np.float64)
        blocks = array.reshape(*array.shape[:-1], self.n_panels, self.order)
        return (blocks @ matrix.T).reshape(array.shape)


class _Chunk(NamedTuple):
    """Points in the order of their panels.

    `order` sorts them, `panel`, `center` and `half` are those of each one's panel, a panel's first
    point is at one of the `starts`, and `basis` holds the Chebyshev polynomials at the points.
    """

    order: Indices
    panel: Indices
    center: Array
    half: Array
    starts: Indices
    basis: Array


class PointsOnPanels:
    """Points located on panels, ready to interpolate at and to take moments of.

    Made by `Panels.at`. Points are processed in chunks that fit a processor's cache; their
    Chebyshev values are kept between calls as long as all of them fit in `block_bytes`.
    """

    chunk = 4096

    def __init__(self, panels: Panels, points: Array, block_bytes: int) -> None:
        self.panels = panels
        self.points = points
        # New memory for every product would cost more than the product does.
        self._scratch = np.empty((panels.order, min(points.size, self.chunk)))
        fits = points.size * panels.order * 8 <= block_bytes
        self._located = list(self._locate()) if fits else None

    def move(self, points: Array) -> bool:
        """Move the points, at less than the price of locating them.

        Parameters
        ----------
        points : ndarray of shape (n_points,)
            Where they are now, one for each of the old ones.

        Returns
        -------
        moved : bool
            False if a point has left its panel, or nothing is kept of them: they have to be
            located anew.
        """
        if self._located is None or points.size != self.points.size:
            return False
        where = [(points[c.order] - c.center) / c.half for c in self._located]
        # Not a number is nowhere.
        if not all(np.abs(t).max(initial=0.0) <= 1.0 for t in where):
            return False
        for t, chunk in zip(where, self._located, strict=True):
            chebyshev_basis(t, self.panels.order, out=chunk.basis)
        self.points = points
        return True

    def moments(self, masses: ArrayLike) -> Array:
        """Chebyshev moments of a measure carried by the points.

        Parameters
        ----------
        masses : array-like of shape (n_points,)
            One mass, of any sign, a point.

        Returns
        -------
        moments : ndarray of shape (n_nodes,)
            ``coefficients @ moments`` is Σ_r masses_r f(points_r) for the interpolant f with
            these coefficients.
        """
        masses = np.asarray(masses, dtype=np.float64)
        moments = np.zeros((self.panels.n_panels, self.panels.order))
        for order, panel, _, _, starts, basis in self._located or self._locate():
            weighted = self._scratch[:, : order.size]
            np.multiply(basis, masses[order], out=weighted)
            moments[panel[starts]] += np.add.reduceat(weighted, starts, axis=1).T
        return moments.ravel()

    def evaluate(self, coefficients: Array) -> Array:
        """Values of one interpolant at the points.

        Parameters
        ----------
        coefficients : ndarray of shape (n_nodes,)
            Chebyshev coefficients of the function.

        Returns
        -------
        values : ndarray of shape (n_points,)
        """
        by_degree = coefficients.reshape(self.panels.n_panels, self.panels.order).T
        values = np.empty(self.points.size)
        for order, panel, _, _, starts, basis in self._located or self._locate():
            counts = np.diff(starts, append=order.size)
            terms = np.multiply(
                np.repeat(by_degree[:, panel[starts]], counts, axis=1),
                basis,
                out=self._scratch[:, : order.size],
            )
            values[order] = terms.sum(axis=0)
        return values

    def evaluate_many(self, coefficients: Array) -> Array:
        """Values of many interpolants, shape (n_functions, n_points), at the points."""
        by_panel = coefficients.reshape(-1, self.panels.n_panels, self.panels.order)
        values = np.empty((len(coefficients), self.points.size))
        for order, panel, _, _, starts, basis in self._located or self._locate():
            for first, last in zip(starts, [*starts[1:], order.size], strict=True):
                values[:, order[first:last]] = by_panel[:, panel[first]] @ basis[:, first:last]
        return values

    def gram_root(self, coefficients: Array, masses: ArrayLike | None = None) -> Array:
        """Short vectors with the inner products that functions have under a positive measure.

        Parameters
        ----------
        coefficients : ndarray of shape (n_functions, n_nodes)
            Chebyshev coefficients of functions f_k.
        masses : array-like of shape (n_points,), default=None
            Non-negative masses of the points. None is one each.

        Returns
        -------
        root : ndarray of shape (n_functions, n_nodes)
            (root rootᵀ)_kl = Σ_r masses_r f_k(points_r) f_l(points_r).

        Notes
        -----
        The polynomials' Gram matrix on a panel has a triangular root: by Cholesky where there are
        points enough to make it well-conditioned, else by QR of the points' values.
        """
        n_panels, p = self.panels.n_panels, self.panels.order
        scale = None if masses is None else np.sqrt(np.asarray(masses, dtype=np.float64))
        grams, factors = np.zeros((2, n_panels, p, p))
        for panel, segment in self._scaled(scale):
            grams[panel] += segment @ segment.T
        extremes = np.linalg.eigvalsh(grams)[:, [0, -1]]
        plain = extremes[:, 0] > _WELL_CONDITIONED * extremes[:, 1]
        factors[plain] = np.linalg.cholesky(grams[plain]).swapaxes(1, 2)
        segments: dict[int, list[Array]] = {}
        for panel, segment in self._scaled(scale, ~plain):
            segments.setdefault(panel, []).append(segment)
        for panel, parts in segments.items():
            (factor,) = scipy.linalg.qr(np.hstack(parts).T, mode="r", check_finite=False)
            factors[panel, : len(factor)] = factor[:p]
        by_panel = coefficients.reshape(-1, n_panels, p).swapaxes(0, 1)
        root: Array = by_panel @ factors.swapaxes(1, 2)
        return root.swapaxes(0, 1).reshape(coefficients.shape)

    def _scaled(
        self, scale: Array | None, wanted: NDArray[np.bool_] | None = None
    ) -> Iterator[Any]:
        """Per chunk and (wanted) panel: its index, and the polynomials at its points, scaled."""
        for order, panel, _, _, starts, basis in self._located or self._locate():
            for first, last in zip(starts, [*starts[1:], order.size], strict=True):
                index = panel[first]
                if wanted is None or wanted[index]:
                    segment = basis[:, first:last]
                    yield index, segment if scale is None else segment * scale[order[first:last]]

    def _locate(self) -> Iterator[_Chunk]:
        panels = self.panels
        for first in range(0, self.points.size, self.chunk):
            points = self.points[first : first + self.chunk]
            panel = np.searchsorted(panels.breaks[1:-1], points, side="right")
            # Few panels: a stable sort of short integers is a radix sort.
            order = np.argsort(panel.astype(np.int16), kind="stable")
            panel = panel[order]
            center, half = panels.centers[panel], panels.halves[panel]
            starts = np.concatenate([[0], 1 + np.flatnonzero(panel[1:] != panel[:-1])])
            basis = chebyshev_basis((points[order] - center) / half, panels.order)
            yield _Chunk(order + first, panel, center, half, starts, basis)
