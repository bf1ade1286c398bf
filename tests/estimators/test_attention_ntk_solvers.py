"""Both solvers of AttentionNTKRegressor give the same model, at very different prices."""

import pickle
from copy import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcurse.datasets import make_residual_ssm
from skcurse.estimators import _attention_training, attention_ntk
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.theory.collocation import CollocationTable

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

VARIANTS = {
    "plain": {},
    "ridge": {"alpha": 1.0},
    "independent": {"init": "iid"},
    "transported": {"n_neurons": 2500, "max_iter": 12},
    "loose tolerance": {"tol": 1e-2},
}


def problem(n_outputs, n_samples=80):
    X, y = make_residual_ssm(n_samples, 12, random_state=0)
    return X, (y if n_outputs == 1 else np.column_stack([y, 1.0 - y]))


def fitted(solver, X, y, sample_weight=None, **parameters):
    parameters = {"n_neurons": 128, "max_iter": 60, "random_state": 0} | parameters
    model = AttentionNTKRegressor(solver=solver, **parameters)
    return model.fit(X, y, sample_weight=sample_weight)


def last_stage(model, X):
    """Staged prediction of a closed form at its last step: no stage needs the ones before it."""
    model = copy(model)
    model.loss_steps_ = model.loss_steps_[[0, -1]]
    [last] = model.staged_predict(X)
    return last


@parametrize_with_checks(
    [AttentionNTKRegressor(128, solver="collocation", max_iter=50, random_state=0)]
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_solvers_agree(variant, n_outputs, weighted):
    X, y = problem(n_outputs, n_samples=40)
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float) if weighted else None
    direct, table = (
        fitted(solver, X, y, weight, **VARIANTS[variant]) for solver in ("direct", "collocation")
    )
    assert (direct.solver_, table.solver_) == ("direct", "collocation")
    assert table.n_iter_ == direct.n_iter_
    assert table.learning_rate_ == pytest.approx(direct.learning_rate_, rel=1e-9)
    np.testing.assert_allclose(table.loss_curve_, direct.loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(table.weights_, direct.weights_, atol=1e-8)
    unseen = 1.5 * make_residual_ssm(50, 12, random_state=1)[0]
    np.testing.assert_allclose(table.predict(unseen), direct.predict(unseen), atol=1e-8)
    *_, last = table.staged_predict(unseen)
    np.testing.assert_array_equal(last, table.predict(unseen))
    for model in (direct, table):
        model.set_params(warm_start=True).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(table.weights_, direct.weights_, atol=1e-8)


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("limit", [{"max_iter": 1000}, {"max_iter": np.inf, "alpha": 1e-2}])
def test_closed_forms_agree(regime, n_outputs, weighted, limit):
    X, y = problem(n_outputs)
    weight = np.random.default_rng(2).integers(0, 3, len(X)).astype(float) if weighted else None
    direct, table = (
        fitted(solver, X, y, weight, regime=regime, init="iid", **limit)
        for solver in ("direct", "collocation")
    )
    assert (direct.solver_, table.solver_) == ("direct", "collocation")
    assert table.learning_rate_ == pytest.approx(direct.learning_rate_, rel=1e-9)
    for X_new in (X, make_residual_ssm(50, 12, random_state=1)[0]):
        np.testing.assert_allclose(table.predict(X_new), direct.predict(X_new), atol=1e-7)
    assert table.loss_curve_[0] == pytest.approx(direct.loss_curve_[0], rel=1e-9)
    assert table.loss_curve_[-1] == pytest.approx(direct.loss_curve_[-1], rel=1e-8)
    np.testing.assert_array_equal(last_stage(table, X), table.predict(X))


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
def test_auto_tabulates_closed_forms_of_many_rows_but_not_without_ridge_in_the_limit(regime):
    X, y = make_residual_ssm(3000, 6, random_state=0)
    auto = {"regime": regime, "n_neurons": 1024}
    assert fitted("auto", X, y, max_iter=10, **auto).solver_ == "collocation"
    assert fitted("auto", X[:20], y[:20], max_iter=10, **auto).solver_ == "direct"
    assert fitted("auto", X[:900], y[:900], max_iter=np.inf, **auto).solver_ == "direct"


def test_staged_predictions_agree():
    X, y = problem(2)
    models = [fitted(solver, X, y, max_iter=20) for solver in ("direct", "collocation")]
    for direct, table in zip(*(model.staged_predict(X) for model in models), strict=True):
        np.testing.assert_allclose(table, direct, atol=1e-8)


def by_the_direct_formula(model):
    """The same fitted model without its nodes."""
    direct = pickle.loads(pickle.dumps(model))
    del direct.compressed_
    return direct


def count_rows(monkeypatch, regime):
    """Where the direct formula notes the number of its rows from now on."""
    name = {"lazy": "linearised_forward", "infinite": "infinite_width_forward"}[regime]
    formula, rows = getattr(_attention_training, name), []

    def counted(X, *args, **kwargs):
        rows.append(len(X))
        return formula(X, *args, **kwargs)

    monkeypatch.setattr(_attention_training, name, counted)
    return rows


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("stage", [{"max_iter": 300}, {"max_iter": np.inf, "alpha": 1.0}])
def test_closed_forms_predict_from_nodes(regime, n_outputs, heavy, stage, monkeypatch):
    X, y = problem(n_outputs)
    unseen = make_residual_ssm(60, 12, random_state=1)[0]
    if heavy:
        X, unseen = np.random.default_rng(4).standard_t(3, size=(2, 80, 12))
    model = fitted("collocation", X, y, regime=regime, n_neurons=2000, init="iid", **stage)
    assert model.compressed_.weights.size < 150
    unseen[::6] *= 20.0
    for rows, most in ((X, len(X) // 5), (unseen, 2 * len(unseen) // 5)):
        exact = by_the_direct_formula(model).predict(rows)
        size = np.sqrt(np.mean(model.predict(X) ** 2, axis=0))
        summed = count_rows(monkeypatch, regime)
        error = np.abs(model.predict(rows) - exact)
        assert sum(summed) <= most
        assert np.all(error <= 1e-9 * size)
        monkeypatch.undo()


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_closed_forms_are_staged_on_one_table(regime, n_outputs, monkeypatch):
    X, y = problem(n_outputs)
    model = fitted("collocation", X, y, regime=regime, n_neurons=1000)
    summed, tables, weights = count_rows(monkeypatch, regime), [], []
    for name, seen in (("linear_table", tables), ("linear_weights", weights)):
        function = getattr(attention_ntk, name)
        monkeypatch.setattr(
            attention_ntk, name, lambda *a, f=function, seen=seen: seen.append(1) or f(*a)
        )
    stages = list(model.staged_predict(X))
    assert (sum(summed), len(tables), len(weights)) == (0, 1, 0)
    np.testing.assert_array_equal(stages[-1], model.predict(X))
    far = np.concatenate([X, 30.0 * X[:3]])
    for staged, n_iter in zip(model.staged_predict(far), model.loss_steps_[1:], strict=True):
        if n_iter in (1, 5, 60):
            again = fitted("collocation", X, y, regime=regime, n_neurons=1000, max_iter=int(n_iter))
            np.testing.assert_allclose(
                staged, by_the_direct_formula(again).predict(far), rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
def test_closed_forms_that_cancel_too_much_take_the_direct_formula(regime):
    X, y = problem(1)
    model = fitted("collocation", X, y, regime=regime, max_iter=np.inf, alpha=1e-12)
    assert model.compressed_ is None
    np.testing.assert_array_equal(last_stage(model, X), model.predict(X))


def test_few_neurons_are_cheaper_than_nodes():
    X, y = problem(1)
    assert fitted("collocation", X, y, regime="lazy", n_neurons=16).compressed_ is None


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
def test_nodes_of_closed_forms_follow_every_fit(regime):
    X, y = problem(2)
    model = fitted("collocation", X, y, regime="finite", n_neurons=1000, max_iter=5)
    model.set_params(regime=regime, warm_start=True, max_iter=60)
    fresh = fitted("collocation", X, y[:, 0], regime=regime, n_neurons=1000)
    # Once with two outputs, twice with one: nothing of an earlier fit shows.
    model.fit(X, y)
    for _ in range(2):
        np.testing.assert_array_equal(model.fit(X, y[:, 0]).predict(X), fresh.predict(X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), fresh.predict(X))
    assert again.predict(X.astype(np.float32)).dtype == np.float32
    two = fitted("collocation", X, y[:, 0], regime=regime, n_neurons=1000, n_jobs=2)
    np.testing.assert_array_equal(two.predict(X), fresh.predict(X))
    assert not hasattr(model.set_params(solver="direct").fit(X, y), "compressed_")


@pytest.mark.parametrize("n_neurons", [128, 3000])
@pytest.mark.parametrize("regime", ["finite", "lazy", "infinite"])
def test_predictions_do_not_depend_on_what_else_is_predicted(n_neurons, regime):
    X, y = problem(1)
    model = fitted("collocation", X, y, n_neurons=n_neurons, max_iter=10, regime=regime)
    X = X * np.geomspace(0.1, 10.0, len(X))[:, None]
    alone = np.concatenate([model.predict(row[None]) for row in X])
    np.testing.assert_allclose(model.predict(X), alone, rtol=1e-12, atol=1e-12)


def test_auto_takes_the_cheaper_solver():
    X, y = problem(1)
    assert fitted("auto", X, y, n_neurons=8, max_iter=2).solver_ == "direct"
    assert fitted("auto", X, y, n_neurons=1024, max_iter=500, tol=0.5).solver_ == "collocation"


def test_windows_that_no_table_holds_go_to_the_direct_formula():
    X, y = problem(1)
    X = X.copy()
    X[:3] *= 1e200
    with pytest.raises(ValueError, match="scale X down"):
        fitted("collocation", X, y)
    for solver in ("auto", "direct"):
        with pytest.raises(ValueError, match=r"overflow|[Rr]escale"):
            fitted(solver, X, y, n_neurons=1024, max_iter=500)


def test_heavy_tailed_windows_choose_the_direct_formula():
    X = np.random.default_rng(0).standard_t(0.5, (80, 12))
    sizes = {"n_neurons": 1024, "max_iter": 500, "tol": 0.5}
    auto, direct = (fitted(solver, X, X[:, -1], **sizes) for solver in ("auto", "direct"))
    assert auto.solver_ == "direct"
    np.testing.assert_array_equal(auto.weights_, direct.weights_)
    with pytest.raises(ValueError, match="solver='direct'"):
        fitted("collocation", X, X[:, -1], **sizes)


@pytest.fixture
def narrow_tables(monkeypatch):
    """No table reaches beyond the range that it was made for."""
    cover = CollocationTable.covering

    def refused(self, weights):
        if not self.skeleton.panels.covers(weights):
            raise ValueError("The windows need more panels.")
        return cover(self, weights)

    monkeypatch.setattr(CollocationTable, "covering", refused)


@pytest.mark.usefixtures("narrow_tables")
@pytest.mark.filterwarnings("ignore:The loss on the training rows")
@pytest.mark.parametrize("n_neurons", [128, 2500])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_fits_go_on_when_weights_leave_every_table(n_neurons, n_outputs):
    X, y = problem(n_outputs, n_samples=30)
    y = 10.0 * np.sqrt(n_neurons) * y
    sizes = {"n_neurons": n_neurons, "max_iter": 10}
    direct, table, workers = (
        fitted(solver, X, y, n_jobs=n_jobs, **sizes)
        for solver, n_jobs in (("direct", None), ("collocation", None), ("collocation", 2))
    )
    assert (table.solver_, table.compressed_) == ("direct", None)
    np.testing.assert_array_equal(table.weights_, workers.weights_)
    np.testing.assert_allclose(table.loss_curve_, direct.loss_curve_, rtol=1e-9)
    np.testing.assert_allclose(table.weights_, direct.weights_, atol=1e-7)
    unseen = make_residual_ssm(50, 12, random_state=1)[0]
    np.testing.assert_allclose(table.predict(unseen), direct.predict(unseen), atol=1e-6)
    stages = zip(*(model.staged_predict(unseen) for model in (table, direct)), strict=True)
    for stage, exact in stages:
        np.testing.assert_allclose(stage, exact, atol=1e-6)
    np.testing.assert_array_equal(stage, table.predict(unseen))
    for model in (direct, table):
        model.set_params(warm_start=True).fit(X, y)
    np.testing.assert_allclose(table.weights_, direct.weights_, atol=1e-6)


@pytest.mark.parametrize("n_neurons", [128, 2500])
@pytest.mark.parametrize("learning_rate", [0.3, 10.0, 1e6, 1e200])
def test_diverging_fits_say_the_same(n_neurons, learning_rate):
    X, y = problem(1)
    messages = []
    for solver in ("direct", "collocation"):
        with pytest.raises(ValueError, match="diverges with learning_rate=") as error:
            fitted(solver, X, y, n_neurons=n_neurons, learning_rate=learning_rate)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_compressed_network_survives_pickle_and_cloning():
    X, y = problem(1)
    model = fitted("collocation", X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert not hasattr(clone(model), "compressed_")
    assert not hasattr(model.set_params(solver="direct").fit(X, y), "compressed_")


def test_single_precision_in_single_precision_out():
    X, y = problem(1)
    model = fitted("collocation", X.astype(np.float32), y)
    assert model.predict(X.astype(np.float32)).dtype == np.float32


def test_workers_change_nothing():
    X, y = problem(1)
    one, two = (fitted("collocation", X, y, n_jobs=n_jobs, max_iter=10) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.weights_, two.weights_)
