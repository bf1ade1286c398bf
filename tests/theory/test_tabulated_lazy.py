"""The linearised network from a table against all its features and the direct sum over them."""

from functools import partial

import numpy as np
import pytest

from skcurse.datasets import make_residual_ssm
from skcurse.theory import tabulated_lazy
from skcurse.theory.attention_network import forward, initial_network
from skcurse.theory.attention_ntk import linearised_features
from skcurse.theory.collocation import CollocationTable
from skcurse.theory.compression import compressed_forward
from skcurse.theory.infinite_width import infinite_width_forward
from skcurse.theory.kernel_table import GAUSSIAN_INTERVAL
from skcurse.theory.lazy_descent import lazy_losses, lazy_model, lazy_weights
from skcurse.theory.ntk import kernel_features
from skcurse.theory.tabulated_lazy import CompressedLazyModel, tabulated_lazy_model


@pytest.mark.parametrize("n_neurons", [4, 200])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_model_is_that_of_all_rows(n_neurons, n_outputs):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((400, 10)), rng.standard_normal((400, n_outputs))
    sample_weight = rng.uniform(0, 2, 400)
    weights, signs = initial_network(n_neurons, rng, antisymmetric=False)
    masses = signs / np.sqrt(n_neurons)
    table = CollocationTable(X, Y, interval=(-4.0, 4.0), sample_weight=sample_weight)
    found = tabulated_lazy_model(table, weights, masses, masses)
    features = partial(linearised_features, weights=weights, signs=signs)
    residual = Y - forward(X, weights, signs)[:, None]
    exact = lazy_model(X, residual, features, sample_weight=sample_weight)
    size = np.count_nonzero(exact.values > 1e-6 * exact.values[0])
    np.testing.assert_allclose(found.values[:size], exact.values[:size], rtol=1e-5)
    rate = {"learning_rate": 1.0 / exact.values[0] ** 2}
    for n_steps in (1, 100, 10_000):
        np.testing.assert_allclose(
            lazy_weights(found, n_steps, **rate), lazy_weights(exact, n_steps, **rate), atol=1e-8
        )
    steps = [0, 1, 50, 10**4]
    np.testing.assert_allclose(
        lazy_losses(found, steps, **rate), lazy_losses(exact, steps, **rate), rtol=1e-9
    )


def test_errors_of_the_table_are_left_out():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 10))
    table = CollocationTable(X, X[:, 0], interval=(-4.0, 4.0))
    w = np.linspace(-3.0, 3.0, 500)
    model = tabulated_lazy_model(table, w, np.ones(500), np.zeros(500))
    assert model.values[-1] > 1e-13 * model.values[0]
    energy = np.sum(model.target**2) + model.floor
    assert energy == pytest.approx(np.sum(X[:, 0] ** 2), rel=1e-12)


def tabulated(kind, X, Y, antisymmetric=True, n_neurons=800):
    """Table of the rows, measure of a lazy or infinitely wide network on it, and its model."""
    if kind == "infinite":
        table = CollocationTable(X, Y, interval=GAUSSIAN_INTERVAL)
        nodes = table.gaussian_nodes()
        measure = (nodes.points, nodes.roots, np.zeros_like(nodes.roots))
    else:
        rng = np.random.default_rng(3)
        weights, signs = initial_network(n_neurons, rng, antisymmetric=antisymmetric)
        table = CollocationTable(X, Y, interval=(weights.min() - 1.0, weights.max() + 1.0))
        measure = (weights, signs / np.sqrt(n_neurons), signs / np.sqrt(n_neurons))
    return table, measure, tabulated_lazy_model(table, *measure)


def direct_sum(X, measure, displacement):
    """Output at the start plus the derivative along the displacement, term by term."""
    weights, scales, masses = measure
    start = forward(X, weights, masses * np.sqrt(weights.size))
    return start[:, None] + kernel_features(X, weights) @ (scales[:, None] * displacement)


def root_mean_square(outputs):
    return np.sqrt(np.mean(outputs**2, axis=0))


LAWS = {
    "ssm": lambda n, rng: make_residual_ssm(n, 12, random_state=int(rng.integers(100)))[0],
    "heavy tails": lambda n, rng: rng.standard_t(3, size=(n, 12)),
    "daily returns": lambda n, rng: 0.01 * rng.standard_normal((n, 12)),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("kind", "antisymmetric"), [("lazy", True), ("lazy", False), ("infinite", True)]
)
def test_compressed_stages_are_the_direct_sum(law, kind, antisymmetric):
    rng = np.random.default_rng(5)
    X, unseen = LAWS[law](500, rng), LAWS[law](300, rng)
    unseen[::10] *= np.geomspace(1.0, 10.0, 30)[:, None]
    table, measure, model = tabulated(kind, X, X[:, :2], antisymmetric)
    compressed = CompressedLazyModel(table.skeleton, X, model, *measure)
    rate = 1.0 / model.values[0] ** 2
    for n_steps, alpha in ((1, 0.0), (100, 0.0), (10_000, 0.0), (np.inf, 0.1)):
        descent = {"learning_rate": rate / (1.0 + alpha * rate), "alpha": alpha}
        network = compressed.network(n_steps, **descent)
        moved = lazy_weights(model, n_steps, **descent)
        summed = []

        def direct(rows, moved=moved, summed=summed):
            summed.append(rows)
            return direct_sum(rows, measure, moved)

        size = root_mean_square(direct_sum(X, measure, moved))
        # A network that starts at zero does so up to this.
        rounding = np.finfo(float).eps * np.sqrt(measure[0].size) * np.ptp(X)
        assert network.weights.size < 150
        for rows, most in ((X, 50), (unseen, 60)):
            error = compressed_forward(rows, network, direct) - direct_sum(rows, measure, moved)
            assert np.all(np.abs(error) <= 1e-9 * size + rounding)
            assert sum(map(len, summed)) <= most
            summed.clear()


def test_infinite_width_agrees_with_finer_quadratures():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((400, 8))
    table, measure, model = tabulated("infinite", X, X[:, 0])
    network = CompressedLazyModel(table.skeleton, X, model, *measure).network(
        100, learning_rate=1.0 / model.values[0] ** 2
    )
    moved = lazy_weights(model, 100, learning_rate=1.0 / model.values[0] ** 2)
    # Rows that need finer panels refine the quadrature of all: the sum has other terms then.
    rows = np.concatenate([X[:50], 8.0 * X[:5]])
    breaks = table.gaussian_nodes().breaks
    exact = infinite_width_forward(rows, moved.T, breaks)[:50]
    np.testing.assert_allclose(compressed_forward(rows[:50], network), exact, atol=1e-11)


@pytest.mark.parametrize("kind", ["lazy", "infinite"])
@pytest.mark.parametrize("law", LAWS)
def test_cancellation_beyond_the_table_leaves_it_to_the_direct_sum(kind, law):
    rng = np.random.default_rng(7)
    X = LAWS[law](500, rng)
    table, measure, model = tabulated(kind, X, X[:, 0])
    compressed = CompressedLazyModel(table.skeleton, X, model, *measure)
    rate = {"learning_rate": 1.0 / model.values[0] ** 2}
    networks = [compressed.network(n_steps, **rate) for n_steps in np.geomspace(1, 1e16, 17)]
    tols = [network.tol for network in networks if network is not None]
    # The further the weights have moved, the better a row must be rebuilt, until none is enough.
    assert len(networks) > len(tols) > 2
    assert networks[len(tols) :] == [None] * (len(networks) - len(tols))
    assert np.all(np.diff(tols) <= 0)
    assert tols[-1] < 0.1 * tols[0]
    moved = lazy_weights(model, 1e16, **rate)
    exact = direct_sum(X, measure, moved)
    masses = table.skeleton.panels.at(measure[0]).evaluate_many(table.skeleton.coefficients)
    masses = masses @ (measure[1][:, None] * moved)
    forced = networks[0]._replace(masses=masses, totals=np.zeros(1), tol=np.inf)
    error = np.abs(compressed_forward(X, forced) - exact).max()
    assert error > 1e-9 * root_mean_square(exact)


def test_an_output_that_moves_far_is_not_hidden_by_one_that_does_not():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((500, 8))
    still = np.zeros(500)
    alone, both = (
        tabulated("lazy", X, Y) for Y in (X[:, 0], np.column_stack([still, X[:, 0], still]))
    )
    tols = []
    for table, measure, model in (alone, both):
        compressed = CompressedLazyModel(table.skeleton, X, model, *measure)
        network = compressed.network(100_000, learning_rate=1.0 / model.values[0] ** 2)
        tols.append(network.tol)
    assert tols[0] < 1e-11
    assert tols[1] == pytest.approx(tols[0])
    np.testing.assert_allclose(network.masses[:, [0, 2]], 0.0, atol=1e-12)


@pytest.mark.parametrize("kind", ["lazy", "infinite"])
def test_windows_that_do_not_vary_move_nothing(kind):
    X = np.ones((30, 4)) * np.arange(30.0)[:, None]
    table, measure, model = tabulated(kind, X, X[:, 0], antisymmetric=False)
    compressed = CompressedLazyModel(table.skeleton, X, model, *measure)
    network = compressed.network(10, learning_rate=1.0)
    total = np.sum(measure[2])
    np.testing.assert_allclose(compressed_forward(X, network)[:, 0], total * X[:, 0], atol=1e-12)
    varying = np.random.default_rng(0).standard_normal((5, 4))
    out = compressed_forward(varying, network, lambda rows: np.full((len(rows), 1), 7.0))
    np.testing.assert_array_equal(out, 7.0)


def test_blocks_of_weights_add_up(monkeypatch):
    X = np.random.default_rng(9).standard_normal((300, 8))
    table, measure, model = tabulated("lazy", X, X[:, 0])
    masses = []
    for block_bytes in (2**27, 16 * 100 * 300):
        monkeypatch.setattr(tabulated_lazy, "BLOCK_BYTES", block_bytes)
        compressed = CompressedLazyModel(table.skeleton, X, model, *measure)
        masses.append(compressed.network(10, learning_rate=1.0 / model.values[0] ** 2).masses)
    np.testing.assert_allclose(masses[1], masses[0], rtol=1e-9, atol=1e-12)


def test_rounding_errors_of_an_output_that_stays_zero_ask_for_no_accuracy():
    X = np.random.default_rng(10).standard_normal((500, 8))
    table, measure, model = tabulated("lazy", X, np.zeros(500))
    compressed = CompressedLazyModel(table.skeleton, X, model, *measure)
    network = compressed.network(1e7, learning_rate=1.0 / model.values[0] ** 2)
    assert network.tol == table.skeleton.tol
    np.testing.assert_allclose(compressed_forward(X, network), 0.0, atol=1e-12)
