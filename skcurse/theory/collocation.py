"""Spectral collocation: the attention network's training loss from a small table.

All that gradient descent needs from n rows are the features φ_x(w) of `skcurse.theory.skeleton`,
and only through inner products over the rows. A table of k functions on a few hundred Chebyshev
nodes therefore replaces the data: a step costs O(m p + k P) for m neurons, p nodes a panel and P
nodes in all, whatever the number of rows and the length of the windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from skcurse.theory.attention_network import forward
from skcurse.theory.attention_ntk import DescentTerms
from skcurse.theory.compression import compress, compressed_forward
from skcurse.theory.descent import overflow
from skcurse.theory.infinite_width import GaussianNodes
from skcurse.theory.kernel_table import GAUSSIAN_INTERVAL, KernelTable, gaussian_nodes_on
from skcurse.theory.ntk import kernel_features
from skcurse.theory.panels import Panels, PointsOnPanels
from skcurse.theory.skeleton import Skeleton, digested_skeleton, triangle
from skcurse.theory.tilted_moments import Array, Map

__all__ = ["CollocationTable", "TableErrors", "infinite_width_kernel"]


# Exponentials that a look at a table's outputs may cost.
_AUDIT_CELLS = 2**22


class TableErrors(NamedTuple):
    """Root mean squares of errors and of what they are errors of, on a sample.

    Attributes
    ----------
    slope, slope_size : float
        Error and size of the slopes Σ_i weight_i (F_i - y_i) x_{i,d} var(x_i; w_r).
    output, residual_size : float
        Error of F_i, and size of the weighted residual.
    """

    slope: float
    slope_size: float
    output: float
    residual_size: float


class CollocationTable:
    """Loss and gradient of the attention network as functions of its neurons alone.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
        Targets. None is zero: what kernels need.
    interval : tuple of two floats
        Range of weights to tabulate.
    sample_weight : array-like of shape (n_samples,), default=None
        Non-negative weight of every row in the loss.
    tol : float, default=1e-13
        Error of the tabulated features, relative to their sizes.
    map : callable, default=map
        Parallel map over blocks of rows.

    Attributes
    ----------
    skeleton : Skeleton
        How every row's feature is rebuilt from those at a few weights.
    X, y, sample_weight, map
        The arguments of the direct formula; y with a column for each output.
    rank : int
        Rows of the table, that is, dimension of the reduced residual.
    floors : ndarray of shape (n_outputs,)
        Squared norms of what no network can fit, a column of y each.

    Raises
    ------
    ValueError
        If X has scores above 1e20, or features too steep to tabulate, or what overflows.

    Notes
    -----
    Derived. With the skeleton's φ = φ(u) T and the windows' means appended, the rows
    √weight [φ(u), mean, y] have a triangular factor R, accumulated over blocks of rows. The
    residual F - y for neurons of weights w_r and masses a_r/√m is then an orthogonal matrix times
    R [Σ_r a_r ∫_0^{w_r} T/√m; Σ_r a_r/√m; -1], so its norm, and its inner product with every
    feature, need R alone.

    References
    ----------
    .. [1] Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Def. 4.3.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 16))
    >>> table = CollocationTable(X, X[:, -1], interval=(-3.0, 3.0))
    >>> loss, slope = table.loss_slope(np.array([0.5, -0.5]), np.array([1.0, 1.0]))
    >>> step = 1e-6
    >>> ahead, _ = table.loss_slope(np.array([0.5 + step, -0.5]), np.array([1.0, 1.0]))
    >>> bool(abs((ahead - loss) / step - slope[0]) < 1e-3 * abs(slope[0]))
    True
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        interval: tuple[float, float],
        sample_weight: ArrayLike | None = None,
        tol: float = 1e-13,
        map: Map = map,
    ) -> None:
        self.X = np.asarray(X, dtype=np.float64)
        self.y = np.zeros((len(self.X), 0)) if y is None else np.asarray(y, dtype=np.float64)
        self.y = self.y.reshape(len(self.X), -1)
        self.sample_weight = sample_weight
        self._tol = tol
        self.map = map
        weight = np.ones(len(self.X)) if sample_weight is None else sample_weight
        weight = np.asarray(weight, dtype=np.float64)
        self._total_weight = float(weight.sum())
        self.skeleton, parts = digested_skeleton(
            self.X, interval, _digest, (self.y, np.sqrt(weight)), tol=tol, map=map
        )
        factors, products = zip(*parts, strict=True)
        self._audit_products = sum(products)
        self._tabulate(triangle(np.concatenate(factors)))

    def _tabulate(self, R: Array) -> None:
        """Tables from the triangular factor of √weight [φ(u), mean, y]."""
        if not np.isfinite(np.vdot(R, R)):
            raise overflow()
        panels = self.skeleton.panels
        one = np.zeros((1, panels.nodes.size))
        one[0, :: panels.order] = 1.0
        k = self.skeleton.weights.size
        self._table = R[: k + 1, : k + 1] @ np.concatenate([self.skeleton.integrals, one])
        with np.errstate(over="ignore"):
            self._slope_table = R[: k + 1, :k] @ self.skeleton.coefficients
        if not np.isfinite(self._slope_table).all():
            raise overflow()
        self._target = R[: k + 1, k + 1 :].T.copy()
        self.floors = np.sum(R[k + 1 :, k + 1 :] ** 2, axis=0)
        self.rank = len(self._table)
        self._points: dict[int, PointsOnPanels] = {}

    @property
    def interval(self) -> tuple[float, float]:
        """Range of weights that is tabulated."""
        breaks = self.skeleton.panels.breaks
        return float(breaks[0]), float(breaks[-1])

    def covering(self, weights: ArrayLike) -> CollocationTable:
        """Table that covers the weights: this one, or one of the same data on a wider range."""
        if self.skeleton.panels.covers(weights):
            return self
        low, high = self.interval
        margin = 0.5 * (high - low)
        low = min(low, np.min(weights) - margin)
        high = max(high, np.max(weights) + margin)
        return CollocationTable(
            self.X,
            self.y,
            interval=(low, high),
            sample_weight=self.sample_weight,
            tol=self._tol,
            map=self.map,
        )

    def residual(self, weights: ArrayLike, masses: ArrayLike, output: int = 0) -> Array:
        """Residual F - y in the table's orthonormal basis of row space.

        Parameters
        ----------
        weights : array-like of shape (n_neurons,)
            Neurons' weights, inside `interval`.
        masses : array-like of shape (n_neurons,)
            a_r/√m for the network's neurons.
        output : int, default=0
            Column of y.

        Returns
        -------
        residual : ndarray of shape (rank,)
            The part of y that no network reaches is left out; `loss` adds it.
        """
        return self._residual(self.skeleton.panels.at(weights), masses, output)

    def loss(self, weights: ArrayLike, masses: ArrayLike, output: int = 0) -> float:
        """Loss ½ Σ_i weight_i (F_i - y_i)²; parameters as in `residual`."""
        return self._loss(self.residual(weights, masses, output), output)

    def loss_slope(
        self, weights: ArrayLike, masses: ArrayLike, output: int = 0
    ) -> tuple[float, Array]:
        """Loss, and the slope of its potential at every neuron.

        Parameters
        ----------
        weights, masses, output
            As in `residual`.

        Returns
        -------
        loss : float
            ½ Σ_i weight_i (F_i - y_i)².
        slope : ndarray of shape (n_neurons,)
            Σ_i weight_i (F_i - y_i) x_{i,d} var(x_i; w_r): times a neuron's mass, the gradient.
        """
        # In a descent most points stay on their panels from step to step.
        w = np.asarray(weights, dtype=np.float64)
        points = self._points.get(output)
        if points is None or not points.move(w):
            points = self._points[output] = self.skeleton.panels.at(w)
        residual = self._residual(points, masses, output)
        # What overflows here shows in the result, where the caller decides.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._loss(residual, output), points.evaluate(residual @ self._slope_table)

    def features(self, weights: ArrayLike) -> Array:
        """Tangent features, shape (rank, n_neurons): Φ = Q features with QᵀQ = I.

        Φ_ir = √weight_i x_{i,d} var(x_i; w_r), so ``features.T @ features`` is ΦᵀΦ and the
        kernel ΦΦᵀ/m has the squared singular values of features/√m.
        """
        return self.skeleton.panels.at(weights).evaluate_many(self._slope_table)

    def largest_stable_rate(self, weights: ArrayLike, *, alpha: float = 0.0) -> float:
        """Step size 2/(λ_max(H) + alpha); infinite if nothing can move."""
        top = float(self.ntk_eigenvalues(weights).max(initial=0.0)) + alpha
        return 2.0 / top if top > np.finfo(float).tiny else np.inf

    def errors(self, weights: ArrayLike, masses: ArrayLike, output: int = 0) -> TableErrors:
        """Compare the table with the direct formula on a few neurons and a few rows.

        Parameters
        ----------
        weights, masses, output
            As in `residual`.

        Returns
        -------
        errors : TableErrors
            Slopes at 16 weights, over all rows; and outputs at up to 16 rows, from all neurons.

        Notes
        -----
        What the slopes are compared with was summed up when the table was made, so that a look at
        them costs no exponential.
        """
        w, masses = np.asarray(weights, dtype=np.float64), np.asarray(masses, dtype=np.float64)
        network = compress(self.skeleton, [(w, masses)])
        target = np.zeros(self.y.shape[1])
        target[output] = -1.0
        pull = np.concatenate([network.masses[:, 0], network.totals, target])
        exact_slope = self._audit_products.T @ pull
        residual = self.residual(w, masses, output)
        panels, potential = self.skeleton.panels, residual @ self._slope_table
        slope = panels.at(_audit_weights(panels)).evaluate(potential)
        # Slopes near w = 0 may be larger than those of any neuron by many orders of magnitude.
        neurons_slope = panels.at(w).evaluate(potential)
        features = self.features(np.sort(w)[:: -(-w.size // 16)])

        rows = _spread_by_width(self.X, min(16, 1 + _AUDIT_CELLS // self.X[0].size // w.size))
        exact_output = forward(rows, w, masses * np.sqrt(w.size), map=self.map)
        output_error = compressed_forward(rows, network)[:, 0] - exact_output
        # A residual below this share of the windows' range is zero but for rounding.
        least = 1e-5 * _root_mean_square(np.ptp(self.X, axis=1))
        return TableErrors(
            _root_mean_square(slope - exact_slope),
            max(
                _root_mean_square(neurons_slope),
                least * np.sqrt(self._total_weight) * float(_column_norms(features).max()),
            ),
            _root_mean_square(output_error),
            max(np.sqrt(2.0 * self._loss(residual, output) / self._total_weight), least),
        )

    def ntk_eigenvalues(self, weights: ArrayLike) -> Array:
        """Eigenvalues of the neural tangent kernel H = ΦΦᵀ/m, through singular values.

        Parameters
        ----------
        weights : array-like of shape (n_neurons,)
            Neurons' weights, inside `interval`.

        Returns
        -------
        eigenvalues : ndarray of shape (min(rank, n_neurons),)
            Descending; the others are zero to the table's precision, which resolves those above
            about 1e-26 of the largest.

        References
        ----------
        .. [1] arXiv:2412.06061, Def. F.1.
        """
        points = self.skeleton.panels.at(weights)
        root = points.gram_root(self._slope_table)
        values: Array = scipy.linalg.svdvals(root)[: points.points.size]
        return values**2 / points.points.size

    def descent_terms(
        self,
        weights: ArrayLike,
        masses: ArrayLike,
        *,
        learning_rate: float,
        output: int = 0,
    ) -> DescentTerms:
        """Split what one gradient step does to the loss into three parts.

        Parameters
        ----------
        weights, masses, output
            As in `residual`; the weights must be inside `interval` after the step too.
        learning_rate : float
            Step size η.

        Returns
        -------
        DescentTerms
            As `skcurse.theory.attention_ntk.descent_terms` finds them from all rows.

        References
        ----------
        .. [1] arXiv:2412.06061, Appendix G.
        """
        w, masses = np.asarray(weights, dtype=np.float64), np.asarray(masses, dtype=np.float64)
        before, slope = self.loss_slope(w, masses, output)
        after = w - learning_rate * masses * slope
        residual = self.residual(w, masses, output)
        shift = self.residual(after, masses, output) - residual
        kernel = -learning_rate * float(np.sum((masses * slope) ** 2))
        linear, quadratic = float(residual @ shift), 0.5 * float(shift @ shift)
        change = self.loss(after, masses, output) - before
        return DescentTerms(kernel, linear - kernel, quadratic, change)

    def gaussian_nodes(self) -> GaussianNodes:
        """Quadrature for w ~ N(0, 1); the interval must contain `GAUSSIAN_INTERVAL`."""
        return gaussian_nodes_on(self.skeleton.panels)

    def _residual(self, points: PointsOnPanels, masses: ArrayLike, output: int) -> Array:
        residual: Array = self._table @ points.moments(masses) - self._target[output]
        return residual

    def _loss(self, residual: Array, output: int) -> float:
        return 0.5 * float(residual @ residual + self.floors[output])


def infinite_width_kernel(X: ArrayLike, Y: ArrayLike | None = None, *, map: Map = map) -> Array:
    """Neural tangent kernel of the infinitely wide attention network.

    Parameters
    ----------
    X : array-like of shape (n_samples_X, n_features)
        Windows.
    Y : array-like of shape (n_samples_Y, n_features), default=None
        Windows; None is X.
    map : callable, default=map
        Parallel map over blocks of rows.

    Returns
    -------
    kernel : ndarray of shape (n_samples_X, n_samples_Y)
        E[x_d var(x; w) y_d var(y; w)] for w ~ N(0, 1).

    Raises
    ------
    ValueError
        If the windows have scores above 1e20, or features too steep to tabulate, or that overflow.

    Notes
    -----
    The small matrix M of `skcurse.theory.kernel_table` is E[T(w) T(w)ᵀ], by composite
    Gauss-Legendre quadrature.

    References
    ----------
    .. [1] arXiv:2412.06061, Def. F.1.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((5, 4))
    >>> w = np.random.default_rng(1).standard_normal(200_000)
    >>> phi = kernel_features(X, w)
    >>> bool(np.allclose(infinite_width_kernel(X), phi @ phi.T / w.size, rtol=0.1))
    True
    """
    X = np.asarray(X, dtype=np.float64)
    Y = X if Y is None else np.asarray(Y, dtype=np.float64)
    table = KernelTable(np.concatenate([X, Y]), GAUSSIAN_INTERVAL, map=map)
    left, right = np.split(table.infinite_width_factor(), [len(X)])
    kernel: Array = left @ right.T
    return kernel


def _audit_weights(panels: Panels, n_weights: int = 16) -> Array:
    """Weights between nodes, where panels are many if they are many."""
    panel = np.linspace(0, panels.n_panels, n_weights, endpoint=False).astype(np.intp)
    # Multiples of the golden ratio are spread evenly, and no node is among them.
    inside = np.arange(1, n_weights + 1) * 0.5 * (np.sqrt(5.0) - 1.0) % 1.0
    weights: Array = panels.centers[panel] + (2.0 * inside - 1.0) * panels.halves[panel]
    return weights


def _spread_by_width(X: Array, n_rows: int) -> Array:
    """Rows from the narrowest to the widest."""
    width = np.abs(X[:, -1]) * np.ptp(X, axis=1)
    chosen = np.unique(np.linspace(len(X) - 1, 0, n_rows).astype(np.intp))
    rows: Array = X[np.argsort(width, kind="stable")[chosen]]
    return rows


def _column_norms(matrix: Array) -> Array:
    """Norms of columns, which may be as large as numbers get."""
    scale = np.abs(matrix).max(initial=0.0) or 1.0
    norms: Array = scale * np.linalg.norm(matrix / scale, axis=0)
    return norms


def _root_mean_square(values: Array) -> float:
    # The norm of linear algebra does not overflow where squares do.
    return float(scipy.linalg.norm(values, check_finite=False) / np.sqrt(values.size))


def _digest(
    skeleton: Skeleton, X: Array, values: Array, y: Array, root_weight: Array
) -> tuple[Array, Array]:
    """R factor of rows √weight [φ(u), mean, y], and their products with features elsewhere."""
    features = kernel_features(X, _audit_weights(skeleton.panels))
    with np.errstate(over="ignore", invalid="ignore"):
        means = X.mean(axis=1, keepdims=True)
        rows = np.concatenate([values, means, y], axis=1) * root_weight[:, None]
        return triangle(rows), rows.T @ (features * root_weight[:, None])
