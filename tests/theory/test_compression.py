"""Compressed networks against the direct formula."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from skcurse.theory.attention_network import forward, initial_network
from skcurse.theory.compression import compress, compressed_forward
from skcurse.theory.ntk import kernel_features
from skcurse.theory.skeleton import find_skeleton

INTERVAL = (-6.0, 6.0)


def windows(n_samples, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((n_samples, 10))


def networks(n_neurons, antisymmetric):
    rng = np.random.default_rng(1)
    weights, signs = initial_network(n_neurons, rng, antisymmetric=antisymmetric)
    pulls = 0.3 * signs * np.tanh(weights)
    return np.stack([weights + pulls, weights - 2.0 * pulls]), signs


@pytest.mark.parametrize("antisymmetric", [True, False])
@pytest.mark.parametrize("n_neurons", [2, 300, 20_000])
def test_predicts_what_all_neurons_predict(n_neurons, antisymmetric):
    weights, signs = networks(n_neurons, antisymmetric)
    masses = signs / np.sqrt(n_neurons)
    network = compress(find_skeleton(windows(400), INTERVAL), [(w, masses) for w in weights])
    X = windows(50, seed=2, scale=0.9)
    exact = forward(X, weights, signs)
    np.testing.assert_allclose(compressed_forward(X, network), exact, atol=1e-9)
    assert network.weights.size < 100


def test_rows_that_are_not_covered_get_the_direct_formula():
    weights, signs = networks(1000, antisymmetric=False)
    masses = signs / np.sqrt(1000)
    network = compress(find_skeleton(windows(400), INTERVAL), [(w, masses) for w in weights])
    X = windows(60, seed=3)
    X[::7] *= 6.0
    seen = []

    def direct(rows):
        seen.append(rows)
        return forward(rows, weights, signs)

    exact = forward(X, weights, signs)
    np.testing.assert_allclose(compressed_forward(X, network, direct), exact, atol=1e-9)
    assert 0 < sum(map(len, seen)) < 20
    assert np.abs(compressed_forward(X, network) - exact).max() > 1e-6


def test_linearised_networks():
    weights, _ = networks(500, antisymmetric=False)
    rng = np.random.default_rng(4)
    masses = rng.standard_normal((2, 500))
    pairs = list(zip(weights, masses, strict=True))
    network = compress(find_skeleton(windows(400), INTERVAL), pairs, derivative=True)
    X = windows(50, seed=2, scale=0.9)
    exact = np.column_stack([kernel_features(X, w) @ mass for w, mass in pairs])
    np.testing.assert_allclose(compressed_forward(X, network), exact, atol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-6])
@pytest.mark.parametrize("derivative", [False, True])
def test_windows_of_any_small_scale(scale, derivative):
    weights, signs = networks(500, antisymmetric=False)
    train, X = windows(400, scale=scale), windows(50, seed=2, scale=0.9 * scale)
    masses = signs / np.sqrt(500)
    network = compress(
        find_skeleton(train, INTERVAL), [(weights[0], masses)], derivative=derivative
    )
    exact = forward(X, weights[0], signs)
    if derivative:
        exact = kernel_features(X, weights[0]) @ masses
    found = compressed_forward(X, network)[:, 0]
    np.testing.assert_allclose(found, exact, atol=1e-10 * np.abs(exact).max())


def test_a_parallel_map_gives_the_same_bits():
    weights, signs = networks(1000, antisymmetric=True)
    network = compress(find_skeleton(windows(400), INTERVAL), [(weights[0], signs)])
    X = windows(5000, seed=5, scale=2.0)
    direct = partial(forward, weights=weights[:1], signs=signs * np.sqrt(1000))
    with ThreadPoolExecutor(2) as pool:
        both = [compressed_forward(X, network, direct, map=mapping) for mapping in (map, pool.map)]
    np.testing.assert_array_equal(both[0], both[1])
