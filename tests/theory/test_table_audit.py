"""A table is held to the direct formula during a run, and where it fails the formula takes over."""

from functools import partial
from itertools import islice

import numpy as np
import pytest

from skcurse.datasets import make_residual_ssm
from skcurse.theory import collocation_descent
from skcurse.theory.attention_network import forward, initial_network, loss_gradient
from skcurse.theory.attention_ntk import gradient_descent
from skcurse.theory.collocation import CollocationTable, TableErrors
from skcurse.theory.collocation_descent import TableDescent, accurate_table
from skcurse.theory.compression import compressed_forward
from skcurse.theory.descent import descent_steps, follow
from skcurse.theory.table_audit import Check, accurate_cover, probes


def problem(n_neurons, *, scale=20.0, seed=7):
    """Give data whose weights leave a table without margin, that table, and a good step size."""
    X, y = make_residual_ssm(60, 12, random_state=0)
    weights, signs = initial_network(n_neurons, np.random.default_rng(seed))
    y = scale * y
    ends = (weights.min() - 1e-3, weights.max() + 1e-3)
    table = CollocationTable(X, y, interval=ends)
    return X, y, weights, signs, table, 0.5 * table.largest_stable_rate(weights)


def run_of(descent, rate, n_steps):
    return follow(
        descent.steps(rate),
        learning_rate=rate,
        largest_stable_rate=lambda: np.inf,
        max_iter=n_steps,
        tol=0.0,
    )


def watch_tables(monkeypatch, error=lambda interval, tol: 0.0):
    """Record every new table, and spoil its slopes by a relative error."""
    made, make = [], CollocationTable.__init__

    def spoiled(self, X, y=None, *, interval, tol=1e-13, **options):
        make(self, X, y, interval=interval, tol=tol, **options)
        made.append((self, tol))
        self._slope_table = (1.0 + error(interval, tol)) * self._slope_table

    monkeypatch.setattr(CollocationTable, "__init__", spoiled)
    return made


def watch_audits(monkeypatch):
    audited, errors = [], CollocationTable.errors

    def recorded(self, *network):
        audited.append(self)
        return errors(self, *network)

    monkeypatch.setattr(CollocationTable, "errors", recorded)
    return audited


def never_wider(monkeypatch):
    """No table covers what this one does not."""
    cover = CollocationTable.covering

    def refused(self, weights):
        if not self.skeleton.panels.covers(weights):
            raise ValueError("too steep")
        return cover(self, weights)

    monkeypatch.setattr(CollocationTable, "covering", refused)


@pytest.mark.parametrize("n_neurons", [200, 2500])
def test_a_table_that_grows_is_audited_before_it_is_used(monkeypatch, n_neurons):
    _X, _y, weights, signs, table, rate = problem(n_neurons)
    made, audited, used = watch_tables(monkeypatch), watch_audits(monkeypatch), []
    slope = CollocationTable.loss_slope

    def recorded(self, *network):
        used.append((self, self in audited))
        return slope(self, *network)

    monkeypatch.setattr(CollocationTable, "loss_slope", recorded)
    descent = TableDescent(table, weights, signs)
    run_of(descent, rate, 100)
    assert made
    assert descent.table is made[-1][0]
    assert all(known for user, known in used if user is not table)
    assert not descent.direct


def test_a_grown_table_that_just_fails_is_made_finer(monkeypatch):
    X, y, weights, signs, table, rate = problem(200)
    made = watch_tables(monkeypatch, lambda interval, tol: 3e-9 if tol > 1e-14 else 0.0)
    descent = TableDescent(table, weights, signs)
    run = run_of(descent, rate, 100)
    assert [tol for _, tol in made[:2]] == [1e-13, 1e-14]
    assert descent.table is made[-1][0]
    assert made[-1][1] == 1e-14
    direct = gradient_descent(X, y, weights, signs, learning_rate=rate, max_iter=100, tol=0.0)
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)


@pytest.mark.parametrize(("error", "n_tables"), [(3e-9, 2), (1e-4, 1)])
def test_a_grown_table_that_fails_is_not_used(monkeypatch, error, n_tables):
    X, y, weights, signs, table, rate = problem(200)
    made = watch_tables(monkeypatch, lambda interval, tol: error)
    descent = TableDescent(table, weights, signs)
    run = run_of(descent, rate, 100)
    assert (len(made), descent.direct, descent.network()) == (n_tables, True, None)
    assert descent.table is table
    direct = gradient_descent(X, y, weights, signs, learning_rate=rate, max_iter=100, tol=0.0)
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)


@pytest.mark.parametrize("n_neurons", [200, 2500])
@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_the_direct_formula_takes_over(monkeypatch, n_neurons, alpha):
    X, y, weights, signs, table, rate = problem(n_neurons)
    descent = TableDescent(table, weights, signs, alpha=alpha)
    scattered = descent.n_particles < n_neurons
    assert scattered == (n_neurons == 2500)
    never_wider(monkeypatch)
    run = run_of(descent, rate, 60)
    assert descent.direct
    assert descent.n_particles == n_neurons
    direct = gradient_descent(
        X, y, weights, signs, learning_rate=rate, max_iter=60, tol=0.0, alpha=alpha
    )
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)
    np.testing.assert_allclose(run.weights, direct.weights, atol=1e-8)
    np.testing.assert_array_equal(descent.weights(), run.weights)


def test_the_direct_formula_takes_over_for_all_columns_of_y(monkeypatch):
    X, y, initial, signs, _, rate = problem(2500)
    Y = np.column_stack([0.01 * y, y])
    weights = np.stack([initial, 0.9 * initial])
    sample_weight = np.linspace(0.5, 1.5, len(X))
    ends = (weights.min() - 1e-3, weights.max() + 1e-3)
    table = CollocationTable(X, Y, interval=ends, sample_weight=sample_weight)
    descent = TableDescent(table, weights, signs)
    never_wider(monkeypatch)
    run = run_of(descent, rate, 40)
    assert descent.direct
    options = {"learning_rate": rate, "max_iter": 40, "tol": 0.0, "sample_weight": sample_weight}
    direct = gradient_descent(X, Y, weights, signs, **options)
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-9)
    np.testing.assert_allclose(run.weights, direct.weights, atol=1e-8)


@pytest.mark.parametrize("n_neurons", [50, 2500])
def test_steps_are_shortened_as_before_when_the_formula_has_taken_over(monkeypatch, n_neurons):
    X, y, weights, signs, table, rate = problem(n_neurons, scale=5.0)
    never_wider(monkeypatch)
    descent = TableDescent(table, weights, signs)
    found = descent.steps(50.0 * rate, shorten=True)
    objective = partial(loss_gradient, X, y, signs=signs)
    exact = descent_steps(objective, weights, 50.0 * rate, shorten=True)
    for step, direct in islice(zip(found, exact, strict=False), 20):
        assert (step.n_iter, step.learning_rate) == (direct.n_iter, direct.learning_rate)
        assert step.loss == pytest.approx(direct.loss, rel=1e-8)
    assert descent.direct


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("n_neurons", [50, 2500])
@pytest.mark.parametrize("rate", [1.0, 1e6, 1e100, 1e280])
def test_runs_that_diverge_say_what_the_direct_ones_say(monkeypatch, rate, n_neurons, alpha):
    X, y, weights, signs, table, stable = problem(n_neurons, scale=1.0)
    options = {"learning_rate": rate, "largest_stable_rate": lambda: stable, "max_iter": 20}
    steps = partial(loss_gradient, X, y, signs=signs, alpha=alpha, initial_weights=weights)
    with pytest.raises(ValueError, match="diverges with learning_rate=") as direct:
        follow(descent_steps(steps, weights, rate), **options)
    made = watch_tables(monkeypatch)
    descent = TableDescent(table, weights, signs, alpha=alpha)
    n_particles = descent.n_particles
    with pytest.raises(ValueError, match="diverges") as tabulated:
        follow(descent.steps(rate), **options)
    assert str(tabulated.value) == str(direct.value)
    # Weights that have run away are not tabulated, nor followed one by one.
    assert len(made) == (rate == 1.0)
    assert descent.n_particles == n_particles or rate == 1.0
    assert (descent.network() is None) == (rate > 1.0)


@pytest.mark.parametrize(("n_neurons", "rate"), [(50, 1.0), (50, 1e6), (2500, 1e6)])
@pytest.mark.parametrize("has_wider", [True, False])
def test_weights_that_leap_to_a_good_place_are_followed(monkeypatch, n_neurons, rate, has_wider):
    X, y, weights, signs, table, _ = problem(n_neurons, scale=0.0)
    table = accurate_table(X, y + 100.0, weights, signs)
    if not has_wider:
        never_wider(monkeypatch)
    descent = TableDescent(table, weights, signs)
    objective = partial(loss_gradient, X, y + 100.0, signs=signs)
    exact = descent_steps(objective, weights, rate)
    for step, direct in islice(zip(descent.steps(rate), exact, strict=False), 4):
        assert step.loss == pytest.approx(direct.loss, rel=1e-8)
        atol = 1e-9 * max(1.0, rate)
        np.testing.assert_allclose(step.weights, direct.weights, atol=atol)
    assert np.ptp(step.weights) > 10.0
    rests = not step.gradient.any()
    assert has_wider or rests or descent.direct
    network = descent.network()
    assert (network is None) == (rests or descent.direct)
    if network is not None:
        outputs = compressed_forward(X, network)
        np.testing.assert_allclose(outputs, forward(X, step.weights, signs), atol=1e-8)


def test_particles_by_the_formula_are_particles_on_the_table():
    _X, _y, weights, signs, table, _ = problem(2500)
    descent = TableDescent(table, weights, signs)
    at = 0.9 * np.concatenate(descent._positions)
    loss, gradient = descent._by_formula(0, at)
    expected = descent._one(0, at)
    assert loss == pytest.approx(expected[0], rel=1e-11)
    scale = np.linalg.norm(expected[1])
    np.testing.assert_allclose(gradient, expected[1], atol=1e-11 * scale)


def test_a_table_that_does_not_cover_the_start_is_replaced():
    X, y, weights, signs, _table, rate = problem(50)
    narrow = CollocationTable(X, y, interval=(-0.1, 0.1))
    descent = TableDescent(narrow, weights, signs)
    run = run_of(descent, rate, 5)
    direct = gradient_descent(X, y, weights, signs, learning_rate=rate, max_iter=5, tol=0.0)
    np.testing.assert_allclose(run.losses, direct.losses, rtol=1e-10)


@pytest.mark.parametrize("n_neurons", [60, 2500])
@pytest.mark.parametrize("renewable", [True, False])
def test_a_table_that_goes_wrong_on_the_way_is_found_out(monkeypatch, n_neurons, renewable):
    X, y, weights, signs, _, rate = problem(n_neurons, scale=1.0)
    descent = TableDescent(accurate_table(X, y, weights, signs), weights, signs)
    monkeypatch.setattr(collocation_descent, "_STEPS_PER_AUDIT", 0)
    exact = descent_steps(partial(loss_gradient, X, y, signs=signs), weights, rate)
    error = 9e-8 if renewable else 1e-4
    for step, direct in islice(zip(descent.steps(rate), exact, strict=False), 40):
        assert step.loss == pytest.approx(direct.loss, rel=1e-6)
        if step.n_iter == 3:
            table = descent.table
            table._slope_table = (1.0 + error) * table._slope_table
        # Audits are at 1, 2, 4, 8, ... steps.
        if step.n_iter == 7:
            assert (descent.table is table, descent.direct) == ((not renewable), not renewable)
    assert descent.n_particles == n_neurons or renewable
    assert (descent.network() is None) == descent.direct


def test_neurons_that_were_lost_are_found_again_when_the_formula_takes_over(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.standard_t(3, (60, 12))
    y = 5.0 * X[:, -1]
    weights, signs = initial_network(2000, np.random.default_rng(4))
    table = accurate_table(X, y, weights, signs)
    rate = 0.5 * table.largest_stable_rate(weights)
    monkeypatch.setattr(collocation_descent, "_WATCHFUL_STEPS", 0)
    monkeypatch.setattr(collocation_descent, "_LOOK_EVERY", 1000)
    monkeypatch.setattr(collocation_descent, "_STEPS_PER_AUDIT", 0)
    descent = TableDescent(table, weights, signs)
    exact = descent_steps(partial(loss_gradient, X, y, signs=signs), weights, rate)
    errors = []
    for step, direct in islice(zip(descent.steps(rate), exact, strict=False), 17):
        errors.append(np.abs(step.weights - direct.weights).max())
        if step.n_iter == 15:
            # From here on no table is good enough.
            monkeypatch.setattr(CollocationTable, "errors", lambda *_: TableErrors(1, 1, 1, 1))
    assert descent.direct
    assert errors[15] > 1e-9
    assert errors[16] < 1e-11


def test_audits_are_few_and_cost_little(monkeypatch):
    X, y, weights, signs, _, rate = problem(300, scale=1.0)
    table = accurate_table(X, y, weights, signs)
    audited = watch_audits(monkeypatch)
    steps = TableDescent(table, weights, signs).steps(rate)
    at = []
    for step in islice(steps, 1025):
        at += [step.n_iter] * (len(audited) - len(at))
    # One for the sizes at the start, then one whenever the steps have doubled.
    first = at[0]
    assert first > 16
    assert at == [first, *(first * 2**k for k in range(len(at) - 1))]
    assert 2 * at[-1] > 1024


def test_the_size_that_counts_is_that_at_the_start():
    _X, _y, weights, signs, table, _ = problem(60, scale=1.0)
    masses = signs / np.sqrt(60)
    sizes = table.errors(weights, masses)
    table._slope_table = (1.0 + 1e-8) * table._slope_table
    tiny = sizes._replace(slope_size=1e-3 * sizes.slope_size)
    large = sizes._replace(slope_size=1e3 * sizes.slope_size)
    assert accurate_cover(table, [Check(weights, masses, 0, large)]) is table
    assert accurate_cover(table, [Check(weights, masses, 0, sizes)]) is not table
    with pytest.raises(ValueError, match="direct"):
        accurate_cover(table, [Check(weights, masses, 0, tiny)])


def test_probes_do_not_cancel():
    X, _y, weights, signs, _, _ = problem(2500)
    assert np.abs(forward(X, weights, signs)).max() < 1e-12
    (probe,) = probes([Check(weights, signs / 50.0, 0)])
    assert probe.weights.size <= 64
    output = forward(X, probe.weights, np.sqrt(probe.weights.size) * probe.masses)
    assert np.abs(output).min() > 1e-3


def test_further_weights_are_covered():
    X, y, weights, signs, _, _ = problem(60)
    table = accurate_table(X, y, weights, signs, also=[weights.max() + 3.0])
    assert table.interval == (weights.min() - 1.0, weights.max() + 3.0)


@pytest.mark.parametrize("scale", [0.3, 0.05, 5e-3, 1e-5, 1e-20])
@pytest.mark.parametrize("antisymmetric", [True, False])
def test_windows_of_any_small_scale_are_tabulated(scale, antisymmetric):
    X, y = make_residual_ssm(80, 12, random_state=0)
    X, y = scale * X, scale * y
    rng = np.random.default_rng(8)
    weights, signs = initial_network(200, rng, antisymmetric=antisymmetric)
    table = accurate_table(X, y, weights, signs)
    moved = weights + 0.1 * rng.standard_normal(200)
    exact = loss_gradient(X, y, moved, signs)
    loss, slope = table.loss_slope(moved, signs / np.sqrt(200))
    assert loss == pytest.approx(exact.loss, rel=1e-11)
    size = np.abs(exact.gradient).max()
    np.testing.assert_allclose(signs / np.sqrt(200) * slope, exact.gradient, atol=1e-10 * size)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_small_windows_and_weights_on_one_side_of_zero(side):
    X, y = make_residual_ssm(80, 12, random_state=0)
    X, y = 0.01 * X, 0.01 * y
    weights = side * np.linspace(4.0, 6.0, 50)
    signs = np.where(np.arange(50) % 3, 1.0, -1.0)
    exact = loss_gradient(X, y, weights, signs)
    loss, slope = accurate_table(X, y, weights, signs).loss_slope(weights, signs / np.sqrt(50))
    assert loss == pytest.approx(exact.loss, rel=1e-11)
    size = np.abs(exact.gradient).max()
    np.testing.assert_allclose(signs / np.sqrt(50) * slope, exact.gradient, atol=1e-10 * size)
