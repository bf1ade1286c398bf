"""Tangent kernels of AttentionNTKRegressor and their spectra, by a table or the direct formula.

A network is given by its weights; None stands for infinite width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svdvals

from skcurse.estimators._resources import Map, block_bytes
from skcurse.theory.infinite_width import gaussian_nodes, infinite_width_features
from skcurse.theory.kernel_table import GAUSSIAN_INTERVAL, KernelTable, kernel_table_pays
from skcurse.theory.ntk import neural_tangent_kernel, ntk_singular_values

Array = NDArray[np.float64]
Windows = NDArray[np.floating]

# Singular values below this share of the largest are rounding errors.
_RESOLUTION = 1e-15
# About as many nodes stand for the weights of the infinitely wide network.
_N_NODES = 1000


def tangent_kernel(
    X: Windows, Y: Windows | None, weights: Array | None, *, solver: str, blocks: Map
) -> Array:
    """Kernel between windows, Y None meaning X."""
    rows = X if Y is None else np.vstack([X, Y])

    def factor(table: KernelTable) -> Array:
        return table.infinite_width_factor() if weights is None else table.factor(weights)

    found = _from_table(factor, rows, weights, solver, blocks)
    resources: dict[str, Any] = {"block_bytes": block_bytes(), "map": blocks}
    if found is None and weights is not None:
        return neural_tangent_kernel(X, Y, weights, **resources)
    if found is None:
        found = infinite_width_features(rows, gaussian_nodes(rows), **resources)
    return found[: len(X)] @ (found if Y is None else found[len(X) :]).T


def tangent_eigenvalues(X: Windows, weights: Array | None, *, solver: str, blocks: Map) -> Array:
    """Eigenvalues of the kernel of windows, descending, NaN for those that are not resolved."""

    def spectrum(table: KernelTable) -> tuple[Array, float]:
        if weights is None:
            return table.infinite_width_singular_values(), table.noise
        return table.singular_values(weights), table.noise

    found = _from_table(spectrum, X, weights, solver, blocks)
    if found is None:
        resources: dict[str, Any] = {"block_bytes": block_bytes(), "map": blocks}
        if weights is None:
            values = svdvals(infinite_width_features(X, gaussian_nodes(X), **resources))
        else:
            values = ntk_singular_values(X, weights, **resources)
        found = values, 0.0
    values, noise = found
    resolved = values > max(noise, _RESOLUTION * values[0]) if values.any() else values == 0.0
    squares = np.zeros(len(X))
    # A network has no more eigenvalues than neurons; what a table leaves out is below its noise.
    squares[: len(X) if weights is None else weights.size] = np.nan if values.any() else 0.0
    squares[: len(values)] = np.where(resolved, values**2, np.nan)[: len(X)]
    return squares


def _from_table(
    what: Callable[[KernelTable], Any],
    X: Windows,
    weights: Array | None,
    solver: str,
    blocks: Map,
) -> Any:
    """Ask a table; None where the direct formula is asked for, cheaper, or more precise."""
    n_neurons = _N_NODES if weights is None else weights.size
    pays = kernel_table_pays(len(X), n_neurons, X.shape[1])
    if solver == "direct" or not (pays or solver == "collocation"):
        return None
    low, high = GAUSSIAN_INTERVAL if weights is None else (weights.min(), weights.max())
    try:
        return what(KernelTable(X, (low, max(high, low + 1e-6)), map=blocks))
    except ValueError:
        # Windows that overflow, which the direct formula tells better, or that no table resolves.
        return None
