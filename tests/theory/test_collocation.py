"""The collocation table against the direct formula, along whole runs and at its limits."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate

from skcurse.datasets import load_sunspots, make_residual_ssm, make_windows
from skcurse.theory.attention_network import initial_network, loss_gradient
from skcurse.theory.attention_ntk import descent_terms
from skcurse.theory.collocation import CollocationTable, infinite_width_kernel
from skcurse.theory.descent import descent_steps
from skcurse.theory.kernel_table import GAUSSIAN_INTERVAL, KernelTable
from skcurse.theory.ntk import kernel_features, largest_stable_rate
from skcurse.theory.tilted_moments import tilted_moments


def ssm():
    return make_residual_ssm(300, 16, random_state=0)


def sunspots():
    series = np.ravel(load_sunspots(return_X_y=True)[1]).astype(float)
    X, y = make_windows((series - series.mean()) / series.std(), 24)
    return np.array(X)[:300], np.array(y)[:300]


def student():
    rng = np.random.default_rng(1)
    X = rng.standard_t(3, (300, 16))
    return X, X[:, -1] + 0.1 * rng.standard_t(3, 300)


def degenerate():
    """Duplicates, constant windows, zero queries and a level far from zero."""
    rng = np.random.default_rng(2)
    X = np.repeat(rng.standard_normal((60, 8)), 2, axis=0)
    X[10:20] = 2.0
    X[30:40, -1] = 0.0
    X[60:] += 50.0
    return X, rng.standard_normal(120) + X.mean(axis=1)


def few_rows():
    rng = np.random.default_rng(3)
    return rng.standard_normal((3, 5)), rng.standard_normal(3)


def electricity(name):
    folder = os.environ.get("SKCURSE_ETT_DIR")
    if folder is None:
        pytest.skip("SKCURSE_ETT_DIR names no folder with the ETT files")
    series = np.loadtxt(Path(folder) / f"{name}.csv", delimiter=",", skiprows=1, usecols=7)[:1000]
    X, y = make_windows((series - series.mean()) / series.std(), 32)
    return np.array(X)[::3], np.array(y)[::3]


def returns():
    """Windows so small that outputs hardly depend on the weights, as daily returns are."""
    rng = np.random.default_rng(4)
    X = 0.01 * rng.standard_normal((200, 10))
    return X, X[:, 0] + X[:, -1] ** 2 + 0.001 * rng.standard_normal(200)


DATA = {
    "ssm": ssm,
    "returns": returns,
    "sunspots": sunspots,
    "student": student,
    "degenerate": degenerate,
    "few rows": few_rows,
    "ETTh1": partial(electricity, "ETTh1"),
    "ETTh2": partial(electricity, "ETTh2"),
}


def network(n_neurons=64, *, antisymmetric=True, seed=0):
    rng = np.random.default_rng(seed)
    return initial_network(n_neurons, rng, antisymmetric=antisymmetric)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("antisymmetric", [True, False])
def test_loss_and_gradient_along_a_run(name, antisymmetric):
    X, y = DATA[name]()
    weights, signs = network(antisymmetric=antisymmetric)
    masses = signs / np.sqrt(signs.size)
    table = CollocationTable(X, y, interval=(weights.min() - 1, weights.max() + 1))
    rate = 0.5 * largest_stable_rate(X, weights)
    run = descent_steps(partial(loss_gradient, X, y, signs=signs), weights, rate)
    first = next(run)
    scale = np.linalg.norm(first.gradient)
    for step in islice(run, 0, 150, 5):
        table = table.covering(step.weights)
        loss, slope = table.loss_slope(step.weights, masses)
        assert np.linalg.norm(masses * slope - step.gradient) <= 1e-9 * scale
        assert loss == pytest.approx(step.loss, rel=1e-9, abs=1e-18 * first.loss)
        assert table.loss(step.weights, masses) == loss


def test_sample_weight_scales_rows_in_the_loss():
    X, y = ssm()
    weights, signs = network(antisymmetric=False)
    masses = signs / np.sqrt(signs.size)
    sample_weight = np.random.default_rng(0).choice([0.0, 1.0, 2.0, 0.3], len(X))
    table = CollocationTable(X, y, interval=(-4.0, 4.0), sample_weight=sample_weight)
    loss, slope = table.loss_slope(weights, masses)
    exact = loss_gradient(X, y, weights, signs, sample_weight=sample_weight)
    assert loss == pytest.approx(exact.loss, rel=1e-10)
    np.testing.assert_allclose(
        masses * slope, exact.gradient, atol=1e-10 * np.linalg.norm(exact.gradient)
    )


def test_columns_of_y_are_networks_of_their_own():
    X, y = ssm()
    Y = np.column_stack([y, -3.0 * y, np.ones_like(y)])
    weights, signs = network(antisymmetric=False)
    masses = signs / np.sqrt(signs.size)
    table = CollocationTable(X, Y, interval=(-4.0, 4.0))
    for output, target in enumerate(Y.T):
        alone = CollocationTable(X, target, interval=(-4.0, 4.0))
        loss, slope = table.loss_slope(weights, masses, output)
        expected_loss, expected_slope = alone.loss_slope(weights, masses)
        assert loss == pytest.approx(expected_loss, rel=1e-12)
        np.testing.assert_allclose(slope, expected_slope, rtol=1e-9, atol=1e-9)


def test_residuals_are_as_far_apart_as_outputs():
    X, y = ssm()
    weights, signs = network(antisymmetric=False)
    masses = signs / np.sqrt(signs.size)
    table = CollocationTable(X, y, interval=(-4.0, 4.0))
    here, there = (table.residual(w, masses) for w in (weights, 0.5 * weights))
    assert here.shape == (table.rank,)
    moved = (tilted_moments(X, weights).mean - tilted_moments(X, 0.5 * weights).mean) @ masses
    assert np.linalg.norm(here - there) == pytest.approx(np.linalg.norm(moved), rel=1e-10)


def test_weights_that_leave_the_interval_get_a_wider_table():
    X, y = ssm()
    weights, signs = network()
    masses = signs / np.sqrt(signs.size)
    table = CollocationTable(X, y, interval=(-0.5, 0.5))
    assert table.covering([-0.5, 0.5]) is table
    wide = table.covering(3.0 * weights)
    assert wide.interval[0] < 3.0 * weights.min()
    assert wide.interval[1] > 3.0 * weights.max()
    exact = loss_gradient(X, y, 3.0 * weights, signs)
    loss, slope = wide.loss_slope(3.0 * weights, masses)
    assert loss == pytest.approx(exact.loss, rel=1e-10)
    np.testing.assert_allclose(
        masses * slope, exact.gradient, atol=1e-9 * np.linalg.norm(exact.gradient)
    )


@pytest.mark.parametrize("name", ["ssm", "sunspots", "student", "degenerate", "few rows"])
@pytest.mark.parametrize("n_neurons", [6, 200, 10_000])
def test_kernel_eigenvalues(name, n_neurons):
    X, _ = DATA[name]()
    weights, _ = network(n_neurons)
    table = CollocationTable(X, interval=(weights.min(), weights.max()))
    found = table.ntk_eigenvalues(weights)
    exact = np.linalg.svd(kernel_features(X, weights), compute_uv=False) / np.sqrt(n_neurons)
    size = min(found.size, exact.size)
    np.testing.assert_allclose(np.sqrt(found[:size]), exact[:size], atol=1e-11 * exact[0])
    assert np.all(exact[size:] <= 1e-11 * exact[0])
    assert np.all(np.diff(found) <= 0)
    rate = table.largest_stable_rate(weights, alpha=0.3)
    assert rate == pytest.approx(largest_stable_rate(X, weights, alpha=0.3), rel=1e-9)


def test_features_have_the_inner_products_of_the_direct_ones():
    X, _ = ssm()
    weights, _ = network()
    sample_weight = np.linspace(0, 2, len(X))
    table = CollocationTable(X, interval=(-4.0, 4.0), sample_weight=sample_weight)
    found = table.features(weights)
    direct = np.sqrt(sample_weight)[:, None] * kernel_features(X, weights)
    np.testing.assert_allclose(found.T @ found, direct.T @ direct, rtol=1e-9)


@pytest.mark.parametrize("name", ["ssm", "student", "degenerate", "few rows"])
def test_descent_terms_are_those_of_all_rows(name):
    X, y = DATA[name]()
    weights, signs = network(antisymmetric=False)
    masses = signs / np.sqrt(signs.size)
    gradient = loss_gradient(X, y, weights, signs).gradient
    # A step of 0.3 at most stays inside the table.
    rate = min(largest_stable_rate(X, weights), 0.3 / np.abs(gradient).max())
    table = CollocationTable(X, y, interval=(-4.0, 4.0))
    found = table.descent_terms(weights, masses, learning_rate=rate)
    exact = descent_terms(X, y, weights, signs, learning_rate=rate)
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-11 * abs(exact.kernel))
    assert sum(found[:3]) == pytest.approx(found.change, rel=1e-10)


def test_infinite_width_kernel_is_a_gaussian_average():
    rng = np.random.default_rng(4)
    X, Y = rng.standard_normal((4, 6)), 2.0 * rng.standard_normal((3, 6))
    X[0] = 1.0  # no range: no feature

    def integrand(w, x, y):
        (left, right) = kernel_features(np.stack([x, y]), [w])[:, 0]
        return left * right * np.exp(-0.5 * w**2) / np.sqrt(2.0 * np.pi)

    exact = [
        [
            integrate.quad(integrand, -9.0, 9.0, (x, y), points=[0.0], limit=200, epsabs=1e-12)[0]
            for y in Y
        ]
        for x in X
    ]
    np.testing.assert_allclose(infinite_width_kernel(X, Y), exact, atol=1e-9)
    whole = infinite_width_kernel(X)
    np.testing.assert_allclose(whole, whole.T, rtol=1e-12)
    table = KernelTable(X, GAUSSIAN_INTERVAL)
    spectrum = table.infinite_width_singular_values()[: len(X)] ** 2
    np.testing.assert_allclose(
        spectrum, np.linalg.eigvalsh(whole)[::-1][: spectrum.size], atol=1e-12 * spectrum[0]
    )


def test_a_parallel_map_gives_the_same_bits():
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((3000, 8)), rng.standard_normal(3000)
    weights, signs = network()
    results = []
    with ThreadPoolExecutor(2) as pool:
        for mapping in (map, pool.map):
            table = CollocationTable(X, y, interval=(-4.0, 4.0), map=mapping)
            results.append((table.loss_slope(weights, signs), infinite_width_kernel(X[:9], X)))
    np.testing.assert_equal(results[0], results[1])


@pytest.mark.parametrize("name", ["ssm", "student", "degenerate"])
def test_errors_are_small_for_a_table_and_large_for_a_wrong_one(name):
    X, y = DATA[name]()
    weights, signs = network()
    masses = signs / np.sqrt(signs.size)
    good = CollocationTable(X, y, interval=(-4.0, 4.0)).errors(weights, masses)
    assert good.slope <= 1e-10 * good.slope_size
    assert good.output <= 1e-10 * good.residual_size
    coarse = CollocationTable(X, y, interval=(-4.0, 4.0), tol=1e-4).errors(weights, masses)
    assert coarse.slope > 1e-9 * coarse.slope_size


def test_nothing_moves_a_network_that_sees_constant_windows():
    X = np.full((4, 3), 2.0)
    weights, signs = network(antisymmetric=False)
    table = CollocationTable(X, np.zeros(4), interval=(-4.0, 4.0))
    masses = signs / np.sqrt(signs.size)
    loss, slope = table.loss_slope(weights, masses)
    assert loss == pytest.approx(0.5 * 4 * (2.0 * masses.sum()) ** 2)
    assert not slope.any()
    assert table.largest_stable_rate(weights) == np.inf
