"""Lazy and infinitely wide networks from a collocation table: no array grows with the rows.

They predict from few nodes too: the output is linear in the row's features, which a skeleton
rebuilds from those at its weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.collocation import CollocationTable
from skcurse.theory.compression import CompressedNetwork, compress, compressed_forward
from skcurse.theory.feature_panels import feature_sizes
from skcurse.theory.lazy_descent import LazyModel, lazy_model, lazy_weights
from skcurse.theory.skeleton import Skeleton
from skcurse.theory.tilted_moments import BLOCK_BYTES, Array

__all__ = ["CompressedLazyModel", "tabulated_lazy_model"]

# The table's features have errors of this size, relative to the largest singular value.
_RESOLUTION = 1e-13
# What a compressed output may deviate from the direct sum, relative to the outputs' size.
_ACCURACY = 1e-9
# Rows on which that size is taken.
_N_ROWS = 128
# Outputs below this share of the windows' range are zero but for rounding.
_NOTHING = 1e-12


def tabulated_lazy_model(
    table: CollocationTable, weights: ArrayLike, scales: ArrayLike, masses: ArrayLike
) -> LazyModel:
    """Decompose a linearised network, from the table in place of the rows.

    Parameters
    ----------
    table : CollocationTable
        Of the training data, on an interval that contains the weights.
    weights : array-like of shape (n_weights,)
        Where the network is linearised, or the nodes of a quadrature for infinite width.
    scales : array-like of shape (n_weights,)
        What each feature x_d var(x; w) is multiplied by: a_r/√m, or the root of a node's mass.
    masses : array-like of shape (n_weights,)
        The network's own masses a_r/√m, for the outputs at the start; zeros for infinite width.

    Returns
    -------
    model : LazyModel
        For `skcurse.theory.lazy_descent`.

    Notes
    -----
    The table's reduced rows are the weighted rows in an orthonormal basis, so features and
    residuals there have the singular values and the projections of those in all the rows. Singular
    values below 1e-13 of the largest, which are errors of the table, are left out.

    Examples
    --------
    >>> from skcurse.theory.lazy_descent import lazy_losses
    >>> rng = np.random.default_rng(0)
    >>> X, w, mass = rng.normal(size=(1000, 8)), rng.normal(size=64), np.full(64, 0.125)
    >>> table = CollocationTable(X, X[:, 0], interval=(-4.0, 4.0))
    >>> model = tabulated_lazy_model(table, w, mass, mass)
    >>> losses = lazy_losses(model, [0, 10], learning_rate=1e-3)
    >>> bool(np.isclose(losses[0], table.loss(w, mass))), bool(losses[1] < losses[0])
    (True, True)
    """
    features = table.features(weights) * np.asarray(scales, dtype=np.float64)
    outputs = range(table.floors.size)
    residual = -np.stack([table.residual(weights, masses, output) for output in outputs], axis=1)
    values, right, target, floor = lazy_model(features, residual, lambda rows: rows)
    kept = int(np.count_nonzero(values > _RESOLUTION * values[:1]))
    floor += float(np.sum(target[kept:] ** 2) + table.floors.sum())
    return LazyModel(values[:kept], right[:kept], target[:kept], floor)


class CompressedLazyModel:
    """A linear model at any step of its descent, as a network of a few nodes.

    Parameters
    ----------
    skeleton : Skeleton
        Of the training windows, on an interval that contains the weights.
    X : array-like of shape (n_samples, n_features)
        Windows on which the size of the outputs is taken, those of the training.
    model : LazyModel
        From `tabulated_lazy_model`.
    weights, scales, masses : array-like of shape (n_weights,)
        As there.

    Notes
    -----
    Derived. With displacements δ, the output is

        f(x) = Σ_r masses_r (mean(x) + ∫_0^{w_r} φ_x) + Σ_r scales_r δ_r φ_x(w_r),

    where φ_x(w) = x_d var(x; w) is rebuilt from few of its values. As δ is linear in what the
    descent does to the k modes of the model, so are the nodes' masses: once every mode is
    compressed, a step costs as much as a model with k weights, whatever their true number.

    A feature that is rebuilt up to ρ times its size makes an error of ρ size ‖scales‖ ‖δ‖ at most.
    Rows whose ρ might make more than 1e-9 of the outputs' size do not count as covered.

    Examples
    --------
    >>> from skcurse.theory.ntk import kernel_features
    >>> rng = np.random.default_rng(0)
    >>> X, w, scales = rng.normal(size=(500, 8)), rng.normal(size=2000), np.full(2000, 2000**-0.5)
    >>> table = CollocationTable(X, X[:, 0], interval=(-4.0, 4.0))
    >>> measure = (w, scales, np.zeros(2000))
    >>> model = tabulated_lazy_model(table, *measure)
    >>> stage = {"n_steps": 100, "learning_rate": 0.005}
    >>> network = CompressedLazyModel(table.skeleton, X, model, *measure).network(**stage)
    >>> exact = kernel_features(X, w) @ (scales[:, None] * lazy_weights(model, **stage))
    >>> error = compressed_forward(X, network) - exact
    >>> network.weights.size < 100, bool(np.abs(error).max() < 1e-10)
    (True, True)
    """

    def __init__(
        self,
        skeleton: Skeleton,
        X: ArrayLike,
        model: LazyModel,
        weights: ArrayLike,
        scales: ArrayLike,
        masses: ArrayLike,
    ) -> None:
        w, scales = np.asarray(weights, dtype=np.float64), np.asarray(scales, dtype=np.float64)
        self._start = compress(skeleton, [(w, masses)])
        # Another linear model, in which the masses of the nodes and the displacement in the basis
        # of the modes take the place of the weights.
        modes = _compressed_modes(skeleton, model, w, scales)
        self._model = model._replace(right=np.concatenate([modes, np.eye(len(modes))], axis=1))
        self._tabulated = 0.01 * skeleton.tol
        X = np.asarray(X, dtype=np.float64)
        rows = X[np.unique(np.linspace(0, len(X) - 1, _N_ROWS).astype(np.intp))]
        single = np.eye(skeleton.weights.size)
        alone = self._start._replace(masses=single, totals=np.zeros(len(single)))
        self._values, self._means = compressed_forward(rows, alone), rows.mean(axis=1)
        self._range = _root_mean_square(np.ptp(rows, axis=1))
        self._growth = np.linalg.norm(scales) * _root_mean_square(feature_sizes(rows))

    def network(
        self, n_steps: float, *, learning_rate: float, alpha: float = 0.0
    ) -> CompressedNetwork | None:
        """Compress the model after a number of steps.

        Parameters
        ----------
        n_steps, learning_rate, alpha
            As in `skcurse.theory.lazy_descent.lazy_weights`.

        Returns
        -------
        network : CompressedNetwork or None
            With the tolerance for rows that 1e-9 of the size of every output asks for; None where
            the table is coarser than that.
        """
        moved = lazy_weights(self._model, n_steps, learning_rate=learning_rate, alpha=alpha)
        moved, path = np.split(moved, [self._start.weights.size])
        masses = self._start.masses + moved
        totals = np.repeat(self._start.totals, masses.shape[1])
        outputs = self._values @ masses + np.multiply.outer(self._means, totals)
        size = np.maximum(_root_mean_square(outputs), _NOTHING * self._range)
        error = self._growth * np.linalg.norm(path, axis=0)
        # Nothing has moved, or no window varies: then nothing can be off.
        off = error > 0
        tol = float(np.min(_ACCURACY * size[off] / error[off], initial=self._start.tol))
        if not tol >= self._tabulated:
            return None
        return self._start._replace(masses=masses, totals=totals, tol=tol)


def _compressed_modes(skeleton: Skeleton, model: LazyModel, weights: Array, scales: Array) -> Array:
    """Masses of the skeleton's nodes, a row for each singular vector as displacement."""
    functions = skeleton.coefficients
    modes = np.zeros((len(model.values), len(functions)))
    step = max(1, BLOCK_BYTES // (16 * max(1, len(functions))))
    for first in range(0, weights.size, step):
        part = slice(first, first + step)
        values = skeleton.panels.at(weights[part]).evaluate_many(functions)
        modes += model.right[:, part] @ (values * scales[part]).T
    return modes


def _root_mean_square(values: Array) -> Array:
    """Root of the mean square over rows, column by column."""
    # The norm of linear algebra does not overflow where squares do.
    return np.linalg.norm(values, axis=0) / np.sqrt(len(values))
