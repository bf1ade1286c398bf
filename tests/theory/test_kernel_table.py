"""Tangent kernels from a table against the direct formula and against quadrature."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import integrate
from window_kinds import KINDS, draw

from skcurse.theory.feature_panels import feature_sizes
from skcurse.theory.kernel_table import (
    GAUSSIAN_INTERVAL,
    KernelTable,
    kernel_table_pays,
)
from skcurse.theory.ntk import kernel_features, neural_tangent_kernel, ntk_singular_values


def covering(X, weights, **options):
    return KernelTable(X, (weights.min(), weights.max()), **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_neurons", [40, 3000])
@pytest.mark.parametrize("n_samples", [6, 400])
def test_kernel_and_spectrum(kind, n_neurons, n_samples):
    X = draw(kind, n_samples)
    weights = np.random.default_rng(1).standard_normal(n_neurons)
    if kind == "far from zero":
        weights *= 0.01
    table = covering(X, weights)
    factor = table.factor(weights)
    kernel = neural_tangent_kernel(X, None, weights)
    size = feature_sizes(X)
    assert np.all(np.abs(factor @ factor.T - kernel) <= 1e-12 * np.outer(size, size))
    found, exact = table.singular_values(weights), ntk_singular_values(X, weights)
    assert table.noise < 1e-12 * exact[0]
    assert found.size <= n_neurons
    assert np.all(np.diff(found) <= 0)
    k = min(found.size, exact.size)
    np.testing.assert_allclose(found[:k], exact[:k], rtol=0, atol=table.noise)
    assert np.all(exact[k:] <= table.noise)
    assert np.all(found[k:] <= table.noise)


def test_weights_where_features_vanish_are_an_error():
    X, weights = draw("far from zero", 30), np.array([-1.0, 0.7, 1.0])
    assert neural_tangent_kernel(X, None, weights).max() < 1e-6 * np.max(feature_sizes(X)) ** 2
    table = covering(X, weights)
    for method in (table.factor, table.singular_values):
        with pytest.raises(ValueError, match="solver='direct'"):
            method(weights)
    assert covering(np.ones((5, 3)), weights).singular_values(weights).size == 0


def test_eigenvalues_far_below_those_of_the_matrix():
    # A spectrum over 24 decades, of which the matrix itself keeps 16.
    X = draw("normal", 60)
    weights = np.random.default_rng(1).standard_normal(5000)
    exact = ntk_singular_values(X, weights)
    found = covering(X, weights).singular_values(weights)
    resolved = exact > 1e-12 * exact[0]
    assert exact[resolved].min() ** 2 < 1e-20 * exact[0] ** 2
    np.testing.assert_allclose(found[: resolved.sum()], exact[resolved], rtol=0.02)


def test_infinite_width_is_the_gaussian_average():
    X = np.random.default_rng(4).standard_normal((4, 6))
    X[0] = 1.0  # no range: no feature

    def integrand(w, i, j):
        left, right = kernel_features(X[[i, j]], [w])[:, 0]
        return left * right * np.exp(-0.5 * w**2) / np.sqrt(2.0 * np.pi)

    exact = [
        [
            integrate.quad(integrand, -9.0, 9.0, (i, j), points=[0.0], limit=200, epsabs=1e-12)[0]
            for j in range(4)
        ]
        for i in range(4)
    ]
    table = KernelTable(X, GAUSSIAN_INTERVAL)
    factor = table.infinite_width_factor()
    np.testing.assert_allclose(factor @ factor.T, exact, atol=1e-10)
    spectrum = np.linalg.eigvalsh(exact)[::-1]
    found = table.infinite_width_singular_values()
    # What is left out is zero.
    assert found.size >= 3
    np.testing.assert_allclose(np.pad(found, (0, 4))[:4] ** 2, spectrum, atol=1e-10)


def test_many_neurons_approach_infinite_width():
    X = draw("normal", 20)
    weights = np.random.default_rng(2).standard_normal(200_000)
    low, high = GAUSSIAN_INTERVAL
    table = KernelTable(X, (low, high))
    finite, infinite = table.factor(weights), table.infinite_width_factor()
    gap = np.linalg.norm(finite @ finite.T - infinite @ infinite.T)
    assert 0 < gap < 0.02 * np.linalg.norm(infinite @ infinite.T)


def test_overflowing_features_are_an_error():
    with pytest.raises(ValueError, match="scale X down"):
        KernelTable(1e120 * draw("normal", 10), (-1e-200, 1e-200))


def test_a_parallel_map_gives_the_same_bits():
    X = draw("normal", 3000)
    weights = np.random.default_rng(1).standard_normal(500)
    alone = covering(X, weights).singular_values(weights)
    with ThreadPoolExecutor(3) as pool:
        np.testing.assert_array_equal(
            covering(X, weights, map=pool.map).singular_values(weights), alone
        )


def test_tables_pay_for_large_problems_only():
    assert not kernel_table_pays(50, 100, 8)
    assert kernel_table_pays(500, 10_000, 32)
    assert kernel_table_pays(100_000, 200, 8)
    assert not kernel_table_pays(100_000, 50, 8)
