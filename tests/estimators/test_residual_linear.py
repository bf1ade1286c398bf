"""ResidualLinearRegressor: what least squares, sums of squares and symmetry say it must be."""

import pickle

import mpmath
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcurse.datasets import ResidualSSM, make_windows
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.theory.residual_ssm import exact_weights

READINGS = [{"centered": c, "fit_intercept": b} for c in (True, False) for b in (True, False)]
COLUMNS = [-1, 0, 3, -4]


def random_walks(n=60, d=7, horizon=1, seed=0):
    """Independent windows of random walks, with a level and a y of one or several columns."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(n, d + horizon))
    walks = 3.0 + np.cumsum(steps, axis=1) + 0.3 * np.roll(steps, 1, axis=1)
    return walks[:, :d], walks[:, d:] if horizon > 1 else walks[:, d]


def collinear_ssm(n=400, d=128, noise=0.0):
    """Windows whose singular values span six decades (noise 0)."""
    return ResidualSSM(n_steps=d, gamma=0.95, noise=noise).sample(n, random_state=1)


def explicit(X, y, model, weights=None):
    """Design matrix and targets written out, with the column of ones and weighted rows."""
    newest = X[:, [model.last_step]]
    Z = np.delete(X, model.last_step % X.shape[1], axis=1) - newest * model.centered
    design = np.hstack([np.ones((len(X), int(model.fit_intercept))), Z])
    root = 1.0 if weights is None else np.sqrt(weights)[:, None]
    return design * root, (y.reshape(len(y), -1) - newest) * root


def fitted_weights(model):
    """(intercept and) weights of the explicit design, from the attributes."""
    coef = np.atleast_2d(model.coef_)
    w = np.delete(coef, model.last_step % coef.shape[1], axis=1)
    return np.vstack([np.reshape(model.intercept_, (1, -1))] * model.fit_intercept + [w.T])


# --- the solution ---------------------------------------------------------------------------


@pytest.mark.parametrize("last_step", COLUMNS)
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("horizon", [1, 3])
def test_equals_lstsq_on_the_design_written_out(reading, last_step, horizon):
    X, y = random_walks(horizon=horizon)
    model = ResidualLinearRegressor(last_step=last_step, **reading).fit(X, y)
    solution = np.linalg.lstsq(*explicit(X, y, model))[0]
    assert_allclose(fitted_weights(model), solution, rtol=0, atol=1e-12)
    newest = np.atleast_2d(model.coef_)[:, last_step]
    others = np.atleast_2d(model.coef_).sum(axis=1) - newest
    assert_allclose(newest, 1.0 - others if model.centered else 1.0, atol=1e-12)
    assert np.shape(model.coef_) == ((3, 7) if horizon == 3 else (7,))
    assert np.shape(model.intercept_) == ((3,) if horizon == 3 else ())
    if not model.fit_intercept:
        assert not np.any(model.intercept_)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("reading", READINGS)
def test_equals_sklearn_ridge_on_the_residuals(reading, alpha):
    X, y = random_walks(horizon=2)
    w = np.random.default_rng(3).uniform(size=len(X))
    model = ResidualLinearRegressor(alpha=alpha, **reading).fit(X, y, sample_weight=w)
    Z = X[:, :-1] - X[:, [-1]] * model.centered
    ridge = Ridge(alpha=alpha, fit_intercept=model.fit_intercept, solver="svd")
    ridge.fit(Z, y - X[:, [-1]], sample_weight=w)
    assert_allclose(model.coef_[:, :-1], ridge.coef_, atol=1e-12)
    assert_allclose(model.intercept_, ridge.intercept_, atol=1e-12)
    assert_allclose(model.predict(X), ridge.predict(Z) + X[:, [-1]], atol=1e-12)


@pytest.mark.parametrize("reading", READINGS)
def test_prediction_is_the_linear_form_of_its_attributes(reading):
    X, y = random_walks(horizon=3)
    model = ResidualLinearRegressor(**reading).fit(X, y)
    assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_, rtol=1e-14)
    with config_context(working_memory=1e-3):  # a few rows at a time
        assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_, rtol=1e-14)
    column = clone(model).fit(X, y[:, :1])
    assert column.coef_.shape == (1, 7)
    assert column.predict(X).shape == (60, 1)
    assert_allclose(column.predict(X)[:, 0], clone(model).fit(X, y[:, 0]).predict(X), rtol=1e-14)


def test_a_large_penalty_leaves_persistence_and_its_mean_change():
    X, y = random_walks()
    model = ResidualLinearRegressor(alpha=1e16).fit(X, y)
    assert_allclose(model.predict(X), X[:, -1] + (y - X[:, -1]).mean(), atol=1e-10)


def collinear_problem(spread, rng):
    """Windows of 5 columns of which the third almost is the sum of two others."""
    X = rng.normal(size=(30, 5))
    X[:, 2] = X[:, 0] + X[:, 1] + spread * rng.normal(size=30)
    return X, X @ [0.5, -1.0, 2.0, 0.25, 1.0]


@pytest.mark.parametrize("alpha", [0.0, 1e-9])
@pytest.mark.parametrize("spread", [1e-5, 1e-7])
def test_nearly_collinear_columns_against_fifty_digits(spread, alpha):
    """The error is ε·cond, where normal equations, as a peer solves them, lose ε·cond²."""
    X, y = collinear_problem(spread, np.random.default_rng(0))
    model = ResidualLinearRegressor(alpha=alpha, fit_intercept=False, centered=False).fit(X, y)
    design, target = explicit(X, y, model)
    with mpmath.workdps(50):
        A, b = mpmath.matrix(design.tolist()), mpmath.matrix(target.tolist())
        exact = mpmath.lu_solve(A.T * A + mpmath.mpf(alpha) * mpmath.eye(4), A.T * b)
    exact = np.array(exact.tolist(), dtype=float)
    error = np.abs(fitted_weights(model) - exact).max() / np.abs(exact).max()
    assert error < 100 * np.finfo(float).eps * np.linalg.cond(design)
    normal = np.linalg.solve(design.T @ design + alpha * np.eye(4), design.T @ target)
    assert np.abs(normal - exact).max() / np.abs(exact).max() > 100 * error


@pytest.mark.parametrize("chunks", [1, 30])
@pytest.mark.parametrize("level", [0.0, 1e6])
@pytest.mark.parametrize("reading", READINGS)
def test_exactly_collinear_columns_get_the_least_norm(reading, level, chunks):
    """Repeated columns share a weight; the witness is the pseudo-inverse."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) + level
    X[:, 1], X[:, 2] = X[:, 0], X[:, 3]
    y = X[:, -1] + (X[:, 0] - X[:, 3]) + 0.1 * rng.normal(size=300)
    model = ResidualLinearRegressor(**reading)
    for rows in np.array_split(np.arange(300), chunks):
        model.partial_fit(X[rows], y[rows])
    assert_allclose(model.coef_[0], model.coef_[1], atol=1e-9)
    assert_allclose(model.coef_[2], model.coef_[3], atol=1e-9)
    Z = X[:, :-1] - X[:, [-1]] * model.centered
    offset = Z.mean(axis=0) * model.fit_intercept
    change = y - X[:, -1] - (y - X[:, -1]).mean() * model.fit_intercept
    least = np.linalg.pinv(Z - offset, rcond=1e-10) @ change
    assert_allclose(model.coef_[:-1], least, atol=1e-8)


# --- the data of the theory -----------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "d"), [(-0.5, 8), (0.0, 16), (0.8, 8), (0.95, 16), (0.95, 64)])
@pytest.mark.parametrize(
    ("centered", "n_states", "unit_root"),
    [(True, 0, True), (True, -1, False), (False, -1, False), (False, -1, True)],
)
def test_recovers_the_exact_weights_without_noise(gamma, d, centered, n_states, unit_root):
    law = ResidualSSM(n_steps=d, n_states=d + n_states, gamma=gamma, noise=0.0, unit_root=unit_root)
    exact = exact_weights(law.system(), centered=centered)
    assert exact.unique
    X, y = law.sample(3 * d, random_state=0)
    model = ResidualLinearRegressor(centered=centered).fit(X, y)
    assert_allclose(model.coef_[:-1], exact.weights, rtol=0, atol=1e-8)
    assert_allclose(model.intercept_, 0.0, atol=1e-8)
    X, y = law.sample(500, shift="sign_inconsistent", random_state=1)
    assert_allclose(model.predict(X), y, atol=1e-8)


def test_predicts_exactly_where_the_weights_cannot_be_told():
    law = ResidualSSM(n_steps=16, gamma=0.999, noise=0.0)
    X, y = law.sample(200, random_state=0)
    model = ResidualLinearRegressor().fit(X[:100], y[:100])
    assert_allclose(model.predict(X[100:]), y[100:], atol=1e-8)


# --- symmetries ------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("reading", READINGS)
def test_the_order_of_the_columns_does_not_matter(reading, alpha):
    X, y = random_walks()
    last = ResidualLinearRegressor(alpha=alpha, **reading).fit(X, y)
    first = ResidualLinearRegressor(alpha=alpha, last_step=0, **reading).fit(X[:, ::-1], y)
    assert_allclose(first.coef_[::-1], last.coef_, atol=1e-13)
    shuffled = np.array([2, 6, 0, 1, 3, 5, 4])
    middle = ResidualLinearRegressor(alpha=alpha, last_step=1, **reading).fit(X[:, shuffled], y)
    assert_allclose(middle.coef_, last.coef_[shuffled], atol=1e-13)
    negative = ResidualLinearRegressor(alpha=alpha, last_step=-6, **reading)
    assert_array_equal(negative.fit(X[:, shuffled], y).coef_, middle.coef_)


@pytest.mark.parametrize("shift", [1.0, -300.0, 1e6])
def test_a_constant_added_to_the_series_is_added_to_the_forecast(shift):
    X, y = random_walks()
    model = ResidualLinearRegressor(alpha=0.1).fit(X, y)
    moved = clone(model).fit(X + shift, y + shift)
    assert_allclose(moved.coef_, model.coef_, atol=1e-14 * abs(shift) + 1e-13)
    assert_allclose(moved.predict(X + shift), model.predict(X) + shift, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("exponent", [-1000, -300, 300, 1000])
@pytest.mark.parametrize("alpha", [0.0, 2.0**-20])
@pytest.mark.parametrize("reading", READINGS)
def test_the_unit_of_the_series_does_not_matter(reading, alpha, exponent):
    """Powers of two, so that no digit differs; 2^1000 is 1e301 and squares overflow."""
    X, y = random_walks()
    unit = 2.0**exponent
    if alpha and abs(exponent) == 1000:
        alpha = 0.0  # alpha has the unit of a square, which overflows
    model = ResidualLinearRegressor(alpha=alpha, **reading).fit(X, y)
    scaled = ResidualLinearRegressor(alpha=alpha * unit**2 if alpha else 0.0, **reading)
    scaled.fit(X * unit, y * unit)
    assert_allclose(scaled.coef_, model.coef_, rtol=1e-10)
    assert_allclose(scaled.predict(X * unit) / unit, model.predict(X), rtol=1e-10)


@pytest.mark.parametrize("view", [True, False])
@pytest.mark.parametrize("reading", READINGS)
def test_values_near_the_largest_number(reading, view):
    """The right answer for a series of 1e300s, and an error that says why beyond."""
    series = np.random.default_rng(0).normal(size=80)
    X, y = make_windows(series, 4)
    huge, huge_y = make_windows(series * 1e300, 4)
    model = ResidualLinearRegressor(**reading).fit(X, y)
    model_huge = clone(model).fit(huge if view else huge.copy(), huge_y)
    assert_allclose(model_huge.coef_, model.coef_, rtol=1e-9)
    wild = series / np.abs(series).max() * 1.7e308
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="divide the series"):
        clone(model).fit(*make_windows(wild, 4))  # scikit-learn's own check of X sums it first
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="predictions overflow"):
        model.fit(X, 1e3 * y).predict([[-1.7e308, 1.7e308, -1.7e308, 1.7e308]])


def test_one_wild_row_of_weight_zero_does_not_cost_a_digit():
    X, y = random_walks()
    X[5], y[5] = 1e200, -1e200
    weights = np.where(np.arange(60) == 5, 0.0, 1.0)
    model = ResidualLinearRegressor().fit(X, y, sample_weight=weights)
    without = ResidualLinearRegressor().fit(np.delete(X, 5, axis=0), np.delete(y, 5))
    assert_allclose(model.coef_, without.coef_, rtol=1e-11)
    assert model.n_samples_seen_ == 59


# --- series that must be forecast exactly ----------------------------------------------------


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e-300, 1e300])
def test_a_constant_series_is_forecast_exactly(reading, alpha, value):
    X, y = make_windows(np.full(30, value), 5, 2)
    model = ResidualLinearRegressor(alpha=alpha, **reading).fit(X, y)
    assert_array_equal(model.predict(X), y)
    assert_array_equal(model.intercept_, 0.0)


@pytest.mark.parametrize("horizon", [1, 12])
@pytest.mark.parametrize("slope", [0.1, -3.0, 1e-5, 1e250])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_linear_trend_is_continued_exactly(slope, fit_intercept, horizon):
    series = 7.0 + slope * np.arange(1000.0)
    X, y = make_windows(series, 8, horizon)
    model = ResidualLinearRegressor(fit_intercept=fit_intercept).fit(X[:100], y[:100])
    scale = np.abs(series).max()
    assert_allclose(model.predict(X) / scale, y / scale, rtol=0, atol=1e-12)
    if fit_intercept and horizon == 1:  # the differences are constant: all is in the intercept
        assert_allclose(model.intercept_, slope, rtol=1e-6)
        assert_allclose(model.coef_[:-1], 0.0, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("centered", [True, False])
def test_one_column_is_persistence_plus_the_mean_change(centered, fit_intercept):
    X, y = random_walks(d=1)
    X = np.ascontiguousarray(X)
    model = ResidualLinearRegressor(centered=centered, fit_intercept=fit_intercept, alpha=1.0)
    model.fit(X, y)
    assert_array_equal(model.coef_, [1.0])
    expected = (y - X[:, 0]).mean() if fit_intercept else 0.0
    assert_allclose(model.intercept_, expected, rtol=1e-13)
    halves = clone(model).partial_fit(X[:7], y[:7]).partial_fit(X[7:], y[7:])
    assert_allclose(halves.intercept_, expected, rtol=1e-13)


def test_one_row_is_persistence_plus_its_change():
    X, y = np.array([[1.0, 2.0, 4.0]]), np.array([7.0])
    model = ResidualLinearRegressor().fit(X, y)
    assert_array_equal(model.coef_, [0.0, 0.0, 1.0])
    assert model.intercept_ == 3.0


# --- weights and chunks ----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("reading", READINGS)
def test_weight_two_is_a_row_twice_and_weight_zero_a_row_absent(reading, alpha):
    X, y = random_walks(horizon=2)
    weights = np.random.default_rng(0).integers(0, 3, size=60).astype(float)
    model = ResidualLinearRegressor(alpha=alpha, **reading)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    assert_allclose(weighted.coef_, model.fit(X[repeated], y[repeated]).coef_, atol=1e-13)
    assert_allclose(weighted.intercept_, model.intercept_, atol=1e-13)
    one = clone(model).fit(X, y)
    assert_allclose(clone(model).fit(X, y, sample_weight=1.0).coef_, one.coef_, atol=1e-13)
    if not alpha:
        assert_allclose(clone(model).fit(X, y, np.full(60, 7.0)).coef_, one.coef_, atol=1e-13)


def chunkings(n):
    return {
        "fewer rows than columns": np.array_split(np.arange(n), n // 25),
        "one row, then the others": [[0], np.arange(1, n)],
        "all but one, then that": [np.arange(n - 1), [n - 1]],
        "shuffled": np.array_split(np.random.default_rng(0).permutation(n), 5),
    }


def fit_in_chunks(model, chunks, X, y, weights=None):
    for rows in chunks:
        model.partial_fit(X[rows], y[rows], None if weights is None else weights[rows])
    return model


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 1e-6])
@pytest.mark.parametrize("noise", [0.0, 1e-4])
@pytest.mark.parametrize("centered", [True, False])
def test_any_chunks_of_nearly_collinear_windows_equal_fit(centered, noise, alpha, weighted):
    X, y = collinear_ssm(n=260, noise=noise)
    assert np.linalg.cond(X[:, :-1] - X[:, [-1]]) > (1e5 if noise == 0.0 else 1e3)
    weights = np.random.default_rng(2).uniform(0.1, 2.0, len(X)) if weighted else None
    model = ResidualLinearRegressor(alpha=alpha, centered=centered)
    whole = clone(model).fit(X, y, sample_weight=weights)
    for name, chunks in chunkings(len(X)).items():
        parts = fit_in_chunks(clone(model), chunks, X, y, weights)
        assert_allclose(parts.coef_, whole.coef_, rtol=0, atol=1e-8, err_msg=name)
        assert_allclose(parts.predict(X), whole.predict(X), rtol=0, atol=1e-8, err_msg=name)
        assert parts.n_samples_seen_ == len(X)


@pytest.mark.parametrize("reading", READINGS)
def test_rows_one_at_a_time_equal_fit(reading):
    X, y = random_walks(n=100, d=12, horizon=2)
    model = ResidualLinearRegressor(alpha=1e-3, **reading)
    parts = fit_in_chunks(clone(model), np.arange(100)[:, None], X, y)
    assert_allclose(parts.coef_, model.fit(X, y).coef_, rtol=0, atol=1e-12)


def test_fewer_rows_than_columns_is_the_least_norm_interpolation():
    X, y = random_walks(n=5, d=20)
    model = ResidualLinearRegressor().partial_fit(X[:2], y[:2]).partial_fit(X[2:], y[2:])
    assert_allclose(model.predict(X), y, atol=1e-11)
    Z, change = X[:, :-1] - X[:, [-1]], y - X[:, -1]
    least = np.linalg.pinv(Z - Z.mean(axis=0)) @ (change - change.mean())
    assert_allclose(model.coef_[:-1], least, atol=1e-12)


def test_partial_fit_goes_on_from_fit_and_fit_starts_anew():
    X, y = random_walks(horizon=2)
    model = ResidualLinearRegressor(alpha=0.3)
    whole = clone(model).fit(X, y)
    assert_allclose(model.fit(X[:40], y[:40]).partial_fit(X[40:], y[40:]).coef_, whole.coef_)
    assert model.n_samples_seen_ == 60
    assert_array_equal(model.fit(X, y).coef_, whole.coef_)
    restored = pickle.loads(pickle.dumps(clone(model).fit(X[:40], y[:40])))
    assert_allclose(restored.partial_fit(X[40:], y[40:]).coef_, whole.coef_)


def test_penalty_and_intercept_may_change_between_chunks():
    """The factor knows the rows only: the next call solves with the parameters of then."""
    X, y = random_walks()
    model = ResidualLinearRegressor().fit(X[:30], y[:30])
    model.set_params(alpha=2.0, fit_intercept=False).partial_fit(X[30:], y[30:])
    whole = ResidualLinearRegressor(alpha=2.0, fit_intercept=False).fit(X, y)
    assert_allclose(model.coef_, whole.coef_, atol=1e-13)


@pytest.mark.parametrize(
    ("params", "y_columns"),
    [({"centered": False}, 1), ({"last_step": 0}, 1), ({}, 2)],
)
def test_rows_read_otherwise_than_before_are_refused(params, y_columns):
    X, y = random_walks(horizon=2)
    model = ResidualLinearRegressor().fit(X, y[:, 0])
    before = model.coef_.copy()
    more = y[:, 0] if y_columns == 1 else y
    with pytest.raises(ValueError, match="call fit to start anew"):
        model.set_params(**params).partial_fit(X, more)
    assert_array_equal(model.coef_, before)


# --- windows that slide along a series -------------------------------------------------------


@pytest.mark.parametrize("last_step", [-1, 0, 5])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("horizon", [1, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_view_of_a_series_gives_what_its_copy_gives(reading, last_step, horizon, dtype):
    series = (5.0 + np.cumsum(np.random.default_rng(0).normal(size=500))).astype(dtype)
    X, y = make_windows(series, 12, horizon)
    assert X.strides[0] == X.strides[1]
    model = ResidualLinearRegressor(alpha=0.1, last_step=last_step, **reading)
    by_gram = clone(model).fit(X, y)
    by_rows = clone(model).fit(X.copy(), y.copy())
    tolerance = 1e-10 if dtype == np.float64 else 1e-6
    assert_allclose(by_gram.coef_, by_rows.coef_, rtol=0, atol=tolerance)
    assert_allclose(by_gram.intercept_, by_rows.intercept_, rtol=0, atol=10 * tolerance)
    parts = clone(model).fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    assert_allclose(parts.coef_, by_rows.coef_, rtol=0, atol=tolerance)


# --- what it warns about and refuses ---------------------------------------------------------


def apart(ratio, n=100):
    """Windows whose newest value predicts y `ratio` times worse than the mean of y does."""
    rng = np.random.default_rng(0)
    y = np.tile([-1.0, 1.0], n // 2)
    X = rng.normal(size=(n, 3))
    X[:, -1] = y + np.sqrt(ratio)
    return X, y


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(("ratio", "warns"), [(3.9, False), (4.1, True), (1e6, True)])
def test_warns_from_four_times_worse_than_the_mean(ratio, warns, method, recwarn):
    X, y = apart(ratio)
    model = ResidualLinearRegressor()
    for rows in np.array_split(np.arange(100), 1 if method == "fit" else 9):
        getattr(model, method)(X[rows], y[rows])
    messages = [str(w.message) for w in recwarn if "scale the series" in str(w.message)]
    assert bool(messages) is warns
    assert all("ResidualTargetRegressor(make_pipeline" in message for message in messages)


def test_warns_when_only_x_was_scaled_and_not_when_the_series_was():
    series = 300.0 + np.cumsum(np.random.default_rng(0).normal(size=300))
    X, y = make_windows(series, 6)
    with pytest.warns(UserWarning, match="before cutting it into windows") as record:
        make_pipeline(StandardScaler(), ResidualLinearRegressor()).fit(X, y)
    (warning,) = (w for w in record if "newest value" in str(w.message))
    assert "column -1" in str(warning.message)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_stays_silent_on_series_however_they_are_cut(slope):
    rng = np.random.default_rng(0)
    series = np.cumsum(rng.normal(size=200)) + slope * np.arange(200.0)
    X, y = make_windows(series, 6, 4)
    singly = np.arange(60)[:, None]
    fit_in_chunks(ResidualLinearRegressor().fit(X, y), singly, X, y)
    fit_in_chunks(ResidualLinearRegressor(), singly, X, y)
    ResidualLinearRegressor().fit(*make_windows(rng.normal(size=500), 6, 4))


@pytest.mark.parametrize(
    "params",
    [
        {"alpha": -1.0},
        {"alpha": np.nan},
        {"alpha": np.inf},
        {"alpha": "1"},
        {"fit_intercept": "yes"},
        {"centered": 2},
        {"last_step": 7},
        {"last_step": -8},
        {"last_step": 1.0},
        {"last_step": True},
        {"last_step": None},
    ],
    ids=str,
)
def test_meaningless_parameters_are_named(params):
    X, y = random_walks()
    (name,) = params
    with pytest.raises(ValueError, match=name):
        ResidualLinearRegressor(**params).fit(X, y)


@pytest.mark.parametrize("bad", [[-1.0] + [1.0] * 59, [0.0] * 60, [[1.0] * 2] * 60, [1.0] * 59])
def test_meaningless_weights_are_refused(bad):
    X, y = random_walks()
    with pytest.raises(ValueError, match=r"sample_weight|inconsistent numbers of samples"):
        ResidualLinearRegressor().fit(X, y, sample_weight=bad)


# --- as a scikit-learn estimator -------------------------------------------------------------


def as_memmap(X, tmp_path):
    path = tmp_path / "windows.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize(
    "convert",
    [
        lambda X, tmp_path: np.asfortranarray(X),
        lambda X, tmp_path: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X, tmp_path: np.repeat(X, 3, axis=0)[::3],
        lambda X, tmp_path: X[::-1][::-1],
        as_memmap,
        lambda X, tmp_path: X.tolist(),
        lambda X, tmp_path: pd.DataFrame(X, columns=list("abcdefg")),
        lambda X, tmp_path: pl.DataFrame(X, schema=list("abcdefg")),
    ],
    ids=["fortran", "columns", "rows", "reversed", "memmap", "list", "pandas", "polars"],
)
def test_any_container_is_read_and_left_as_it_was(convert, tmp_path):
    X, y = random_walks()
    for array in (X, y):
        array.flags.writeable = False
    expected = ResidualLinearRegressor().fit(X, y)
    held = convert(X, tmp_path)
    model = ResidualLinearRegressor().fit(held, y).partial_fit(held, y)
    assert_allclose(model.coef_, expected.coef_, rtol=1e-12)
    assert_allclose(model.predict(held), expected.predict(X), rtol=1e-12)
    assert_array_equal(np.asarray(held), X)
    assert hasattr(model, "feature_names_in_") == hasattr(held, "columns")


def test_integers_are_read_as_numbers():
    """An unsigned difference would wrap around."""
    X = np.array([[3, 9], [7, 4], [1, 250], [8, 8]], dtype=np.uint8)
    y = np.array([5, 3, 250, 9], dtype=np.uint8)
    model = ResidualLinearRegressor().fit(X, y)
    assert_allclose(model.coef_, ResidualLinearRegressor().fit(X * 1.0, y * 1.0).coef_)


@pytest.mark.parametrize("horizon", [1, 3])
def test_float32_in_gives_float32_out(horizon):
    X, y = random_walks(horizon=horizon)
    model = ResidualLinearRegressor().fit(X.astype(np.float32), y.astype(np.float32))
    predicted = model.predict(X.astype(np.float32))
    assert predicted.dtype == model.coef_.dtype == model.intercept_.dtype == np.float32
    assert_allclose(predicted, ResidualLinearRegressor().fit(X, y).predict(X), rtol=1e-4)
    with pytest.raises(ValueError, match="overflow float32"):
        ResidualLinearRegressor().fit(X.astype(np.float32), y * 1e60)


def test_block_size_is_no_more_than_rounding():
    X, y = random_walks(n=400, horizon=2)
    expected = ResidualLinearRegressor().fit(X, y)
    with config_context(working_memory=1e-3):
        model = ResidualLinearRegressor().fit(X, y)
    assert_allclose(model.coef_, expected.coef_, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The newest value:UserWarning")
def test_composes_with_the_rest_of_scikit_learn():
    X, y = random_walks(horizon=2)
    plain = ResidualLinearRegressor(alpha=0.1).fit(X, y)
    several = MultiOutputRegressor(ResidualLinearRegressor(alpha=0.1)).fit(X, y)
    assert_allclose(several.predict(X), plain.predict(X), atol=1e-12)

    rescaled = FunctionTransformer(lambda X: X * 4.0)
    inverse = {"func": lambda y: y * 4.0, "inverse_func": lambda y: y / 4.0}
    piped = make_pipeline(rescaled, ResidualLinearRegressor())
    target = TransformedTargetRegressor(piped, **inverse).fit(X, y)
    assert_allclose(target.predict(X), ResidualLinearRegressor().fit(X, y).predict(X), atol=1e-11)

    piped.set_output(transform="pandas").fit(pd.DataFrame(X, columns=list("abcdefg")), y)
    assert_array_equal(piped[-1].feature_names_in_, list("abcdefg"))

    grid = {"alpha": [0.0, 1.0], "centered": [True, False], "last_step": [-1, 0]}
    search = GridSearchCV(ResidualLinearRegressor(), grid, cv=3).fit(X, y)
    assert search.best_params_["last_step"] == -1
    assert search.best_score_ > 0.5


def test_plain_least_squares_of_the_value_is_beaten_where_the_level_moves():
    """The reason for the residual: far levels extrapolate."""
    series = np.cumsum(np.random.default_rng(0).normal(size=400))
    X, y = make_windows(series, 6)
    far = X[:100] + 1e4, y[:100] + 1e4
    residual = ResidualLinearRegressor(alpha=1.0).fit(X[:200], y[:200])
    plain = LinearRegression().fit(X[:200], y[:200])
    assert residual.score(*far) > 0.5 > plain.score(*far)
