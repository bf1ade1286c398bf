"""Lazy and infinitely wide networks from a collocation table: no array grows with the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.collocation import CollocationTable
from skcurse.theory.lazy_descent import LazyModel, lazy_model

__all__ = ["tabulated_lazy_model"]

# The table's features have errors of this size, relative to the largest singular value.
_RESOLUTION = 1e-11


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
    values below 1e-11 of the largest, which are errors of the table, are left out.

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
