"""How fits of AttentionNTKRegressor end: alike with both solvers, and with one clear word."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skcurse.datasets import make_residual_ssm
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.theory.attention_network import forward, initial_network

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The loss on the training rows"),
]


def problem(n_outputs=1, n_samples=60):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, 6))
    y = 0.5 * X[:, -1] + 0.3 * X[:, 0] + 0.1 * rng.standard_normal(n_samples)
    return X, (y if n_outputs == 1 else np.column_stack([y, 0.2 * X[:, 1] - 0.5 * y]))


def fitted(solver, X, y, **parameters):
    parameters = {"n_neurons": 100, "max_iter": 200, "random_state": 0} | parameters
    return AttentionNTKRegressor(solver=solver, **parameters).fit(X, y)


def check_alike(direct, table, X):
    """Both fits took the same steps and came to the same place."""
    assert table.n_iter_ == direct.n_iter_
    assert table.learning_rate_ == pytest.approx(direct.learning_rate_, rel=1e-9)
    np.testing.assert_allclose(table.loss_curve_, direct.loss_curve_, rtol=1e-7)
    for own, other in zip(*map(np.atleast_2d, (table.weights_, direct.weights_)), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-8 * np.abs(other).max())
    np.testing.assert_allclose(table.predict(X), direct.predict(X), atol=1e-8)
    assert direct.solver_ == "direct"
    tabulated = getattr(table, "compressed_", None) is not None
    assert table.solver_ == ("collocation" if tabulated else "direct")
    for model in (direct, table):
        *_, last = model.predict(X), *model.staged_predict(X)
        np.testing.assert_array_equal(last, model.predict(X))


@pytest.mark.parametrize("exponent", [0, 3, 6, 9, 12, 18, 24, 27, 30, 60, 105, 150])
def test_solvers_end_alike_whatever_the_size_of_y(exponent):
    X, y = problem()
    y = y * 10.0**exponent
    check_alike(*(fitted(solver, X, y) for solver in ("direct", "collocation")), X)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("exponent", [3, 9, 60])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"learning_rate": 1.0},
        {"learning_rate": 0.01},
        {"alpha": 1e-3, "max_iter": 30},
        {"n_neurons": 2000, "max_iter": 30},
    ],
)
def test_variants_of_large_y_end_alike(exponent, options):
    X, Y = problem(2)
    # One column may rest far away while the other goes on learning.
    for y in (10.0**exponent * Y, np.column_stack([10.0**exponent * Y[:, 0], Y[:, 1]])):
        models = [fitted(solver, X, y, **options) for solver in ("direct", "collocation")]
        check_alike(*models, X)


@pytest.mark.parametrize("exponent", [1, 3, 9, 60])
def test_warm_starts_go_on_from_where_large_y_left_the_weights(exponent):
    X, y = problem()
    y = y * 10.0**exponent
    models = [fitted(s, X, y, warm_start=True, max_iter=20) for s in ("direct", "collocation")]
    check_alike(*(model.fit(X, y) for model in models), X)
    check_alike(*(model.fit(X, -y) for model in models), X)


@pytest.mark.parametrize("solver", ["direct", "collocation"])
@pytest.mark.parametrize("regime", ["lazy", "infinite"])
@pytest.mark.parametrize("learning_rate", [1e10, 1.7e308])
@pytest.mark.parametrize("limit", [{"max_iter": 1}, {"max_iter": 1000}, {"max_iter": np.inf}])
@pytest.mark.parametrize("alpha", [0.0, 1e10])
def test_closed_forms_refuse_steps_that_diverge_before_all_else(
    solver, regime, learning_rate, limit, alpha
):
    options = {"regime": regime, "learning_rate": learning_rate, "alpha": alpha, **limit}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="diverges with learning_rate="):
            fitted(solver, *problem(), **options)


@pytest.mark.parametrize("regime", ["finite", "lazy", "infinite"])
def test_whole_numbers_of_steps_may_be_floats(regime):
    X, y = problem()
    for max_iter in (20.0, np.float64(20), np.int32(20)):
        given, usual = (
            fitted("auto", X, y, regime=regime, max_iter=m, tol=0.0, verbose=0)
            for m in (max_iter, 20)
        )
        np.testing.assert_array_equal(given.predict(X), usual.predict(X))
        assert given.n_iter_ == 20
        assert type(given.n_iter_) is int
        assert len(list(given.staged_predict(X))) == 20
    for max_iter in (10.5, np.nan, 0.0, 0.5, -np.inf):
        with pytest.raises(ValueError, match="max_iter"):
            fitted("auto", X, y, regime=regime, max_iter=max_iter)
    with pytest.raises(ValueError, match=r"whole number of steps.*10\.5"):
        fitted("auto", X, y, regime=regime, max_iter=10.5)
    with pytest.raises(TypeError, match="max_iter must be an instance of"):
        fitted("auto", X, y, regime=regime, max_iter="20")


@pytest.mark.parametrize(
    ("exponent", "solver"), [(0, "collocation"), (6, "direct"), (60, "direct")]
)
def test_solver_tells_how_the_fit_ended(exponent, solver):
    X, y = problem()
    model = fitted("collocation", X, 10.0**exponent * y)
    assert model.solver_ == solver
    exact = fitted("direct", X, 10.0**exponent * y)
    # The run is replayed on the table that it began on.
    for stage, step in zip(model.staged_predict(X), exact.staged_predict(X), strict=True):
        np.testing.assert_allclose(stage, step, atol=1e-8)
    np.testing.assert_array_equal(stage, model.predict(X))
    # Nothing of it is left when the next fit has another regime.
    assert not hasattr(model.set_params(regime="lazy").fit(X, y), "start_solver_")


def said(fit):
    """Categories and texts of the warnings of a fit."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        fit()
    assert all(warning.filename == __file__ for warning in caught)
    return [(warning.category, str(warning.message)) for warning in caught]


CASES = {
    "max_iter": ("After 3 steps max_iter=3 ended", {"max_iter": 3}),
    "rise": ("is above the", {"max_iter": 1}),
    "nothing": ("After 1 step nothing has been learnt", {}),
    "saturated": ("After 0 steps nothing has been learnt", {}),
    "slow": ("unit variance, or raise learning_rate", {"learning_rate": 1e-12}),
}


@pytest.mark.parametrize("solver", ["direct", "collocation"])
@pytest.mark.parametrize("case", CASES)
def test_one_warning_says_how_a_fit_ended(case, solver):
    X, y = problem()
    y = y - y.mean()
    text, options = CASES[case]
    if case == "nothing":
        y = 1e12 * y
    if case == "saturated":
        X, solver = 1e6 * X, "direct"
    if case == "rise":
        rate = 2.0 * fitted("direct", X, y, max_iter=1).learning_rate_
        for factor in np.arange(1.0, 3.0, 0.05):
            options = {"learning_rate": factor * rate, "max_iter": 1}
            if np.diff(fitted("direct", X, y, **options).loss_curve_) > 0:
                break
    model = AttentionNTKRegressor(100, solver=solver, random_state=0, **options)
    ((category, message),) = said(lambda: model.fit(X, y))
    assert category is ConvergenceWarning
    assert text in message


@pytest.mark.parametrize("solver", ["direct", "collocation"])
def test_fits_with_nothing_to_learn_are_not_warned_of(solver):
    X, y = problem()
    y = y - y.mean()
    model = AttentionNTKRegressor(
        100, solver=solver, random_state=0, max_iter=3000, init="iid", tol=1e-3
    )
    constant = np.tile(X[:, :1], (1, X.shape[1]))
    zero_query = np.column_stack([X, np.zeros(len(X))])
    # What the network gives before it is trained, but for rounding.
    start = forward(X, *initial_network(100, np.random.RandomState(0), antisymmetric=False))
    assert not said(lambda: model.fit(X, start))
    model.set_params(init="antisymmetric")
    for windows, target in ((X, y), (constant, y), (zero_query, y), (X, 0.0 * y)):
        assert not said(lambda X=windows, y=target: model.fit(X, y))


def test_a_loose_tolerance_is_not_warned_of():
    X, y = problem()
    model = fitted("direct", X, y - y.mean(), learning_rate=1e-4, tol=0.5)
    assert not said(lambda: model.fit(X, y - y.mean()))
    assert model.n_iter_ == 10
    assert 0.5 < model.loss_curve_[-1] / model.loss_curve_[0] < 0.9998


def test_targets_far_off_centre_are_warned_of_once():
    X, y = problem()
    model = AttentionNTKRegressor(100, random_state=0)
    ((category, message),) = said(lambda: model.fit(X, 1e12 + y))
    assert category is UserWarning
    assert "predicting the mean of y" in message


class Stop:
    """A callback that ends a fit after its first step."""

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        return context.task_name == "step"


def test_a_fit_that_a_callback_ends_is_not_warned_of():
    X, y = problem()
    model = AttentionNTKRegressor(100, random_state=0, learning_rate=1e-12)
    model.set_callbacks(Stop())
    assert not said(lambda: model.fit(X, y))
    assert model.n_iter_ == 1


def test_a_warm_start_that_gains_nothing_is_not_warned_of():
    X, y = problem()
    model = AttentionNTKRegressor(100, random_state=0, warm_start=True, solver="collocation")
    assert not said(lambda: model.set_params(tol=1e-5, max_iter=20_000).fit(X, y))
    model.set_params(tol=1e-4)
    for _ in range(2):
        assert not said(lambda: model.fit(X, y))
        assert model.loss_curve_[-1] > 0.9999 * model.loss_curve_[0] > 0


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
@pytest.mark.parametrize(("alpha", "solver"), [(1e-3, "collocation"), (1e-14, "direct")])
def test_a_ridge_that_tables_cannot_resolve_is_left_to_the_formula(regime, alpha, solver):
    X, y = make_residual_ssm(600, 12, random_state=0)
    settings = {"regime": regime, "n_neurons": 600, "max_iter": np.inf, "random_state": 0}
    top = AttentionNTKRegressor(**settings, alpha=1.0, solver="direct").fit(X, y)
    # In units of the largest eigenvalue.
    alpha /= top.learning_rate_
    fits = [
        AttentionNTKRegressor(**settings, alpha=alpha, solver=name).fit(X, y)
        for name in ("auto", "direct")
    ]
    assert fits[0].solver_ == solver
    size = np.std(fits[1].predict(X))
    np.testing.assert_allclose(fits[0].predict(X), fits[1].predict(X), atol=1e-8 * size)
