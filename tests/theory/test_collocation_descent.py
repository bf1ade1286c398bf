"""Descent on a table, transported or not, against descent by the direct formula."""

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest

from skcurse.datasets import make_residual_ssm
from skcurse.theory import collocation
from skcurse.theory.attention_network import forward, initial_network, loss_gradient
from skcurse.theory.attention_ntk import gradient_descent
from skcurse.theory.collocation import CollocationTable
from skcurse.theory.collocation_descent import TableDescent, accurate_table, collocation_pays
from skcurse.theory.compression import compressed_forward
from skcurse.theory.descent import descent_steps, follow
from skcurse.theory.ntk import kernel_features
from skcurse.theory.skeleton import digested_skeleton
from skcurse.theory.transport import Particles, neurons_as_particles


def data(name, n_samples=60):
    if name == "ssm":
        return make_residual_ssm(n_samples, 12, random_state=0)
    rng = np.random.default_rng(1)
    X = rng.standard_t(3, (n_samples, 12))
    return X, X[:, -1] + 0.1 * rng.standard_t(3, n_samples)


def train(table, weights, signs, n_steps, **options):
    """Run a descent at half the largest stable rate of the table."""
    bound = table.largest_stable_rate(np.atleast_2d(weights)[0], alpha=options.get("alpha", 0.0))
    descent = TableDescent(table, weights, signs, **options)
    run = follow(
        descent.steps(0.5 * bound),
        learning_rate=0.5 * bound,
        largest_stable_rate=lambda: bound,
        max_iter=n_steps,
        tol=0.0,
    )
    return descent, run


@pytest.mark.parametrize("name", ["ssm", "student"])
@pytest.mark.parametrize("antisymmetric", [True, False])
@pytest.mark.parametrize("n_neurons", [40, 2500])
def test_run_equals_the_direct_one(name, antisymmetric, n_neurons):
    X, y = data(name)
    rng = np.random.default_rng(2)
    weights, signs = initial_network(n_neurons, rng, antisymmetric=antisymmetric)
    table = accurate_table(X, y, weights, signs)
    descent, run = train(table, weights, signs, 40)
    direct = gradient_descent(
        X, y, weights, signs, learning_rate=run.learning_rate, max_iter=40, tol=0.0
    )
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)
    np.testing.assert_allclose(run.weights, direct.weights, atol=1e-8)
    assert descent.transport_error <= 1e-9


def test_transport_over_a_long_run_equals_neuron_by_neuron(monkeypatch):
    X, y = data("ssm", 200)
    weights, signs = initial_network(3000, np.random.default_rng(3))
    table = accurate_table(X, y, weights, signs)
    descent, run = train(table, weights, signs, 800)
    assert descent.n_particles < 1500
    monkeypatch.setattr(
        TableDescent, "_particles_for", lambda _, w, a, __: neurons_as_particles(w, a)
    )
    by_neuron = TableDescent(table, weights, signs)
    assert by_neuron.n_particles == weights.size
    reference = follow(
        by_neuron.steps(run.learning_rate),
        learning_rate=run.learning_rate,
        largest_stable_rate=lambda: np.inf,
        max_iter=800,
        tol=0.0,
    )
    np.testing.assert_allclose(run.losses, reference.losses, rtol=1e-10)
    np.testing.assert_allclose(run.weights, reference.weights, atol=1e-9)


def test_where_trajectories_part_the_neurons_are_followed():
    X, y = data("student", 200)
    weights, signs = initial_network(2000, np.random.default_rng(4))
    table = accurate_table(X, y, weights, signs)
    descent, run = train(table, weights, signs, 400)
    assert descent.n_particles == weights.size
    steps = descent_steps(partial(loss_gradient, X, y, signs=signs), weights, run.learning_rate)
    for step in steps:
        assert run.losses[step.n_iter] == pytest.approx(step.loss, rel=1e-9)
        if step.n_iter == 20:
            break


def test_a_witness_that_strays_has_the_neurons_followed(monkeypatch):
    X, y = data("ssm")
    weights, signs = initial_network(2500, np.random.default_rng(13))
    table = accurate_table(X, y, weights, signs)
    monkeypatch.setattr(Particles, "error", lambda *_: 1e-6)
    descent, run = train(table, weights, signs, 5)
    assert descent.n_particles == weights.size
    direct = gradient_descent(
        X, y, weights, signs, learning_rate=run.learning_rate, max_iter=5, tol=0.0
    )
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-10)
    np.testing.assert_allclose(run.weights, direct.weights, atol=1e-10)


@pytest.mark.parametrize("n_neurons", [60, 2500])
def test_ridge_towards_initialisation(n_neurons):
    X, y = data("ssm")
    weights, signs = initial_network(n_neurons, np.random.default_rng(5))
    table = accurate_table(X, y, weights, signs)
    alpha = 2.0
    options = {"alpha": alpha, "initial_weights": weights}
    _, run = train(table, weights, signs, 30, **options)
    direct = gradient_descent(
        X, y, weights, signs, learning_rate=run.learning_rate, max_iter=30, tol=0.0, alpha=alpha
    )
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)
    np.testing.assert_allclose(run.weights, direct.weights, atol=1e-9)
    half = run.weights
    resumed = next(TableDescent(table, half, signs, **options).steps(run.learning_rate))
    exact = loss_gradient(X, y, half, signs, alpha=alpha, initial_weights=weights)
    assert resumed.loss == pytest.approx(exact.loss, rel=1e-9)
    scale = np.linalg.norm(exact.gradient)
    np.testing.assert_allclose(resumed.gradient, exact.gradient, atol=1e-8 * scale)


@pytest.mark.parametrize("n_neurons", [30, 2500])
def test_columns_of_y_and_weights_of_rows(n_neurons):
    X, y = data("ssm")
    Y = np.column_stack([y, 1.0 - 0.5 * y])
    sample_weight = np.random.default_rng(6).uniform(0, 2, len(X))
    initial, signs = initial_network(n_neurons, np.random.default_rng(6))
    weights = np.stack([initial, 0.9 * initial])
    table = accurate_table(X, Y, weights, signs, sample_weight=sample_weight)
    descent, run = train(table, weights, signs, 30)
    direct = gradient_descent(
        X,
        Y,
        weights,
        signs,
        learning_rate=run.learning_rate,
        max_iter=30,
        tol=0.0,
        sample_weight=sample_weight,
    )
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)
    np.testing.assert_allclose(run.weights, direct.weights, atol=1e-9)
    assert run.weights.shape == weights.shape
    outputs = compressed_forward(X, descent.network())
    np.testing.assert_allclose(outputs, forward(X, run.weights, signs), atol=1e-9)


def test_the_table_grows_with_the_weights():
    X, y = data("ssm")
    weights, signs = initial_network(200, np.random.default_rng(7))
    sample_weight = np.linspace(0.5, 1.5, len(X))
    interval = (weights.min() - 0.01, weights.max() + 0.01)
    table = CollocationTable(X, 20.0 * y, interval=interval, sample_weight=sample_weight)
    descent, run = train(table, weights, signs, 200)
    assert descent.table is not table
    direct = gradient_descent(
        X,
        20.0 * y,
        weights,
        signs,
        learning_rate=run.learning_rate,
        max_iter=200,
        tol=0.0,
        sample_weight=sample_weight,
    )
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)


@pytest.mark.parametrize("n_neurons", [50, 2500])
@pytest.mark.parametrize("name", ["ssm", "student"])
@pytest.mark.parametrize("excess", [1.1, 40.0])
def test_steps_are_shortened_like_those_of_the_direct_formula(name, n_neurons, excess):
    X, y = data(name)
    weights, signs = initial_network(n_neurons, np.random.default_rng(11))
    table = accurate_table(X, y, weights, signs)
    rate = excess * table.largest_stable_rate(weights)
    objective = partial(loss_gradient, X, y, signs=signs)
    exact = descent_steps(objective, weights, rate, shorten=True)
    found = TableDescent(table, weights, signs).steps(rate, shorten=True)
    for step, direct in islice(zip(found, exact, strict=False), 25):
        assert step.n_iter == direct.n_iter
        assert step.learning_rate == direct.learning_rate
        assert step.loss == pytest.approx(direct.loss, rel=1e-8)
    assert step.learning_rate < rate or excess < 2.0
    np.testing.assert_allclose(step.weights, direct.weights, atol=1e-8)


def test_new_particles_do_not_change_when_steps_are_shortened(monkeypatch):
    X, _ = data("ssm")
    weights, signs = initial_network(40, np.random.default_rng(14))
    # The second mode is learnt first; then the leading one, which the step is too long for, grows.
    y = np.linalg.svd(kernel_features(X, weights))[0][:, 1]
    table = accurate_table(X, y, weights, signs)
    rate = 1.1 * table.largest_stable_rate(weights)
    monkeypatch.setattr(TableDescent, "_refined", lambda _, n_iter: n_iter % 3 == 0)
    found = TableDescent(table, weights, signs).steps(rate, shorten=True)
    objective = partial(loss_gradient, X, y, signs=signs)
    exact = descent_steps(objective, weights, rate, shorten=True)
    losses = []
    for step, direct in islice(zip(found, exact, strict=False), 120):
        assert step.learning_rate == direct.learning_rate
        assert step.loss == pytest.approx(direct.loss, rel=1e-7)
        losses.append(step.loss)
    assert np.diff(losses).max() > 0


def test_a_step_that_is_too_long_is_told():
    X, y = data("ssm")
    weights, signs = initial_network(50, np.random.default_rng(8), antisymmetric=False)
    table = accurate_table(X, 1e3 * y, weights, signs)
    descent = TableDescent(table, weights, signs, alpha=1.0)
    with pytest.raises(ValueError, match="diverges"):
        follow(descent.steps(1e280), learning_rate=1e280, largest_stable_rate=lambda: 1.0)


def test_accurate_table_checks_every_output():
    X, y = data("ssm")
    weights, signs = initial_network(50, np.random.default_rng(9))
    table = accurate_table(X, np.zeros(len(X)), weights, signs)
    assert table.loss(weights, signs / np.sqrt(50)) < 1e-25
    with pytest.raises(ValueError, match="scale X down"):
        accurate_table(1e200 * X, y, weights, signs)


@pytest.mark.parametrize("attribute", ["_table", "_slope_table", "_target"])
def test_accurate_table_refuses_a_wrong_one(monkeypatch, attribute):
    X, y = data("ssm")
    weights, signs = initial_network(50, np.random.default_rng(10))
    tabulate = CollocationTable._tabulate

    def spoiled(self, R):
        tabulate(self, R)
        setattr(self, attribute, (1.0 + 1e-7) * getattr(self, attribute))

    monkeypatch.setattr(CollocationTable, "_tabulate", spoiled)
    with pytest.raises(ValueError, match="direct"):
        accurate_table(X, y, weights, signs)


def test_accurate_table_refuses_a_skeleton_that_rebuilds_wrong_values(monkeypatch):
    X, y = data("ssm")
    weights, signs = initial_network(50, np.random.default_rng(12))

    def shifted(*args, **kwargs):
        skeleton, factors = digested_skeleton(*args, **kwargs)
        coefficients = skeleton.coefficients.copy()
        coefficients[:, :: skeleton.panels.order] += 1e-7  # the slopes stay
        return replace(skeleton, coefficients=coefficients), factors

    monkeypatch.setattr(collocation, "digested_skeleton", shifted)
    with pytest.raises(ValueError, match="direct"):
        accurate_table(X, y, weights, signs)


def test_the_table_pays_for_large_problems_only():
    small, large = (10, 100, 8, 50), (512, 1024, 32, 1000)
    assert not collocation_pays(*small)
    assert collocation_pays(*large)
    for axis in range(4):
        more = [10**6 if i == axis else size for i, size in enumerate(large)]
        assert collocation_pays(*more)
    assert not collocation_pays(400, 256, 16, 1)


def count_calls(monkeypatch, owner, name):
    """Where calls of a method are noted from now on."""
    method, calls = getattr(owner, name), []
    monkeypatch.setattr(owner, name, lambda *a, **k: calls.append(a[1:]) or method(*a, **k))
    return calls


@pytest.mark.parametrize("scale", [1e12, 1e25, 1e27, 1e60, 1e150])
@pytest.mark.parametrize("n_neurons", [50, 2500])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_leap_to_where_nothing_moves_is_not_tabulated(monkeypatch, scale, n_neurons, n_outputs):
    X, y = data("ssm")
    Y = scale * np.column_stack([y, y**2 - 0.3 * y])[:, :n_outputs]
    initial, signs = initial_network(n_neurons, np.random.default_rng(15))
    weights = np.tile(initial, (n_outputs, 1))
    table = accurate_table(X, Y, weights, signs)
    rate = 0.5 * table.largest_stable_rate(initial)
    tables = count_calls(monkeypatch, CollocationTable, "__init__")
    descent = TableDescent(table, weights, signs)
    found = descent.steps(rate, shorten=True)
    exact = descent_steps(partial(loss_gradient, X, Y, signs=signs), weights, rate, shorten=True)
    for step, direct in islice(zip(found, exact, strict=False), 3):
        assert (step.n_iter, step.learning_rate) == (direct.n_iter, rate)
        assert step.loss == pytest.approx(direct.loss, rel=1e-13)
        assert step.gradient.any() == direct.gradient.any() == (step.n_iter == 0)
        size = np.abs(direct.weights).max()
        np.testing.assert_allclose(step.weights, direct.weights, atol=1e-9 * size)
    assert not tables
    assert descent.network() is None


@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_an_output_that_rests_far_away_is_looked_at_once(monkeypatch, alpha):
    X, y = data("ssm")
    Y = np.column_stack([1e60 * y, y])
    initial, signs = initial_network(40, np.random.default_rng(16))
    weights = np.tile(initial, (2, 1))
    table = accurate_table(X, Y, weights, signs)
    rate = 0.5 * table.largest_stable_rate(initial, alpha=alpha)
    looks = count_calls(monkeypatch, TableDescent, "_by_formula")
    objective = partial(loss_gradient, X, Y, signs=signs, alpha=alpha, initial_weights=initial)
    found = TableDescent(table, weights, signs, alpha=alpha, initial_weights=initial)
    exact = descent_steps(objective, weights, rate, shorten=True)
    for step, direct in islice(zip(found.steps(rate, shorten=True), exact, strict=False), 12):
        assert step.learning_rate == direct.learning_rate
        for own, other in zip(step.weights, direct.weights, strict=True):
            np.testing.assert_allclose(own, other, atol=1e-9 * np.abs(other).max())
    # Pulled by the ridge it does not rest.
    assert alpha > 0 or [output for output, _ in looks] == [0]


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("factor", [1e5, 1e9])
def test_trials_that_are_too_long_leave_the_table_in_use(monkeypatch, scale, factor):
    X, y = data("ssm")
    y = scale * y
    weights, signs = initial_network(60, np.random.default_rng(17))
    table = accurate_table(X, y, weights, signs)
    rate = factor * table.largest_stable_rate(weights)
    tables = count_calls(monkeypatch, CollocationTable, "__init__")
    descent = TableDescent(table, weights, signs)
    _, found = islice(descent.steps(rate, shorten=True), 2)
    objective = partial(loss_gradient, X, y, signs=signs)
    _, exact = islice(descent_steps(objective, weights, rate, shorten=True), 2)
    assert found.learning_rate == exact.learning_rate < 1e-4 * rate
    assert found.loss == pytest.approx(exact.loss, rel=1e-9)
    assert len(tables) <= 3
    assert not descent.direct
