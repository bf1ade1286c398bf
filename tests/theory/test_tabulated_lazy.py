"""The linearised network from a table against the decomposition of all its features."""

from functools import partial

import numpy as np
import pytest

from skcurse.theory.attention_network import forward, initial_network
from skcurse.theory.attention_ntk import linearised_features
from skcurse.theory.collocation import CollocationTable
from skcurse.theory.lazy_descent import lazy_losses, lazy_model, lazy_weights
from skcurse.theory.tabulated_lazy import tabulated_lazy_model


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
    assert model.values[-1] > 1e-11 * model.values[0]
    energy = np.sum(model.target**2) + model.floor
    assert energy == pytest.approx(np.sum(X[:, 0] ** 2), rel=1e-12)
