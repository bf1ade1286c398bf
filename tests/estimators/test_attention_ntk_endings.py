"""How fits of AttentionNTKRegressor end: alike with both solvers, and with one clear word."""

import warnings

import numpy as np
import pytest

from skcurse.estimators.attention_ntk import AttentionNTKRegressor

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


@pytest.mark.parametrize("exponent", range(0, 151, 3))
def test_solvers_end_alike_whatever_the_size_of_y(exponent):
    X, y = problem()
    y = y * 10.0**exponent
    check_alike(*(fitted(solver, X, y) for solver in ("direct", "collocation")), X)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("exponent", [3, 9, 27, 60, 150])
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
@pytest.mark.parametrize("learning_rate", [1e10, 1e300, 1.7e308])
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
