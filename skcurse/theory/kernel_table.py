"""Tangent kernels from a skeleton of their features, at a cost that hardly knows the width.

The kernel H_ij = Σ_r φ_i(w_r) φ_j(w_r)/m is an integral over the neurons' weights of products of
the features φ_x(w) = x_d var(x; w). A skeleton rebuilds every one of them from k values,
φ_x(w) = Σ_l φ_x(u_l) T_l(w), so with V_il = φ_i(u_l) and M = Σ_r T(w_r) T(w_r)ᵀ/m,

    H = V M Vᵀ,

where V is made once for all networks and M without any window.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from skcurse.theory.feature_panels import feature_sizes
from skcurse.theory.infinite_width import GaussianNodes, nodes_on
from skcurse.theory.panels import Panels
from skcurse.theory.skeleton import Skeleton, digested_skeleton, triangle
from skcurse.theory.tilted_moments import Array, Map

__all__ = [
    "GAUSSIAN_INTERVAL",
    "KernelTable",
    "gaussian_nodes_on",
    "kernel_table_pays",
]

#: Where weights drawn from N(0, 1) count, to double precision.
GAUSSIAN_INTERVAL = (-12.0, 12.0)


class KernelTable:
    """Tangent kernels on some windows, for networks with any weights in an interval.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.
    interval : tuple of two floats
        Range of weights to cover.
    tol : float, default=2e-14
        Error of the tabulated features, relative to their sizes.
    map : callable, default=map
        Parallel map over blocks of rows.

    Attributes
    ----------
    skeleton : Skeleton
        How every feature is rebuilt from its values at a few weights.
    values : ndarray of shape (n_samples, n_skeleton)
        The features there.
    noise : float
        Singular values below this are errors of the table.

    Raises
    ------
    ValueError
        If a feature overflows, or the features are too steep to tabulate; and by the methods, if a
        network's weights are where the features of these windows vanish in that noise.

    References
    ----------
    .. [1] Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Definition F.1.

    Examples
    --------
    >>> from skcurse.theory.ntk import neural_tangent_kernel
    >>> rng = np.random.default_rng(0)
    >>> X, w = rng.standard_normal((100, 8)), rng.standard_normal(5000)
    >>> factor = KernelTable(X, (w.min(), w.max())).factor(w)
    >>> kernel = neural_tangent_kernel(X, None, w)
    >>> factor.shape[1] < 100, bool(np.abs(factor @ factor.T - kernel).max() < 1e-12 * kernel.max())
    (True, True)
    """

    def __init__(
        self,
        X: ArrayLike,
        interval: tuple[float, float],
        *,
        tol: float = 2e-14,
        map: Map = map,
    ) -> None:
        X = np.asarray(X, dtype=np.float64)
        self.noise = tol * float(scipy.linalg.norm(feature_sizes(X), check_finite=False))
        if not np.isfinite(self.noise):
            raise ValueError("The tangent kernel's features overflow: scale X down.")
        self.skeleton, values = digested_skeleton(
            X, interval, _values, tol=tol, stretch=1.0, map=map
        )
        self.values: Array = np.concatenate(values)

    def factor(self, weights: ArrayLike) -> Array:
        """Few columns whose inner products are the kernel of a network.

        Parameters
        ----------
        weights : array-like of shape (n_neurons,)
            Neurons' weights, inside the interval.

        Returns
        -------
        factor : ndarray of shape (n_samples, n_skeleton)
            H = factor factorᵀ.
        """
        return self._factor(self._root(weights))

    def infinite_width_factor(self) -> Array:
        """Factor, as in `factor`, of the kernel E[φ(w) φ(w)ᵀ] for w ~ N(0, 1).

        The interval must be `GAUSSIAN_INTERVAL`, or contain it.
        """
        return self._factor(self._infinite_width_root())

    def singular_values(self, weights: ArrayLike) -> Array:
        """Singular values whose squares are the kernel's eigenvalues.

        Parameters
        ----------
        weights : array-like of shape (n_neurons,)
            Neurons' weights, inside the interval.

        Returns
        -------
        values : ndarray of shape (at most n_skeleton,)
            Descending; what is left out is zero to the table's precision.
        """
        values = self._singular_values(self._root(weights))
        return values[: np.size(weights)]

    def infinite_width_singular_values(self) -> Array:
        """Singular values, as in `singular_values`, for w ~ N(0, 1).

        The interval must be `GAUSSIAN_INTERVAL`, or contain it.
        """
        return self._singular_values(self._infinite_width_root())

    def _root(self, weights: ArrayLike) -> Array:
        """Root of M, shape (n_skeleton, n_nodes), for a network."""
        points = self.skeleton.panels.at(weights)
        root: Array = points.gram_root(self.skeleton.coefficients) / np.sqrt(points.points.size)
        return root

    def _infinite_width_root(self) -> Array:
        """Root of M for w ~ N(0, 1)."""
        nodes = gaussian_nodes_on(self.skeleton.panels)
        functions = self.skeleton.panels.at(nodes.points).evaluate_many(self.skeleton.coefficients)
        root: Array = functions * nodes.roots
        return root

    def _factor(self, root: Array) -> Array:
        factor: Array = self.values @ triangle(root.T).T
        self._check(float(np.linalg.norm(factor)))
        return factor

    def _singular_values(self, root: Array) -> Array:
        values: Array = scipy.linalg.svdvals(triangle(self.values) @ root)
        self._check(float(values.max(initial=0.0)))
        return values

    def _check(self, size: float) -> None:
        """Raise for a kernel of which the table has not even twelve digits."""
        if 0.0 < 1e-12 * size < self.noise:
            raise ValueError(
                "The weights are where the features of these windows vanish next to those at other "
                "weights: use the direct formula (solver='direct')."
            )


def gaussian_nodes_on(panels: Panels) -> GaussianNodes:
    """Quadrature for w ~ N(0, 1) of products of functions that panels resolve."""
    # Panels of width 1.5 at most resolve the density as well.
    return nodes_on(np.union1d(panels.breaks, np.linspace(*GAUSSIAN_INTERVAL, 17)))


def kernel_table_pays(n_samples: int, n_neurons: int, n_features: int) -> bool:
    """Whether a table is predicted to save time over the direct formula.

    Parameters
    ----------
    n_samples, n_neurons, n_features : int
        Sizes n, m, d of the problem.

    Returns
    -------
    pays : bool

    Notes
    -----
    Counted in exponentials: n m d by the direct formula, and for a table a few hundred for each
    entry of a few hundred sampled rows, a hundred for each entry of X, and what takes a few
    milliseconds in any case.

    Examples
    --------
    >>> kernel_table_pays(20, 100, 8), kernel_table_pays(500, 1000, 16)
    (False, True)
    """
    direct = float(n_samples) * n_neurons * n_features
    return direct > n_features * (2e2 * min(n_samples, 200) + 1e2 * n_samples) + 3e6


def _values(skeleton: Skeleton, X: Array, values: Array) -> Array:
    return values
