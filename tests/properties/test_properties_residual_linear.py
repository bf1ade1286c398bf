"""Identities of residual linear regression, of its risks and of linear descent."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tables import SCALES, UNIT, WHOLE, layouts, tables

from skcurse.datasets import ResidualSSM, make_windows
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.theory.lazy_descent import lazy_losses, lazy_model, lazy_stable_rate, lazy_weights
from skcurse.theory.residual_risk import best_residual_weights, linear_risk
from skcurse.theory.residual_ssm import residual_coefficients, sample_states

pytestmark = pytest.mark.filterwarnings("ignore:The newest value:UserWarning")


@st.composite
def regressions(draw):
    """Tables of small integers, whose rank no rounding blurs, targets and settings."""
    X = draw(tables(elements=WHOLE, spike=10.0))
    y = draw(arrays(np.float64, (len(X), draw(st.integers(1, 2))), elements=WHOLE))
    settings = {
        "alpha": draw(st.sampled_from([0.0, 0.0, 0.5, 100.0])),
        "fit_intercept": draw(st.booleans()),
        "centered": draw(st.booleans()),
        "last_step": draw(st.integers(-X.shape[1], X.shape[1] - 1)),
    }
    return X, y, settings


def design(X, settings):
    newest = X[:, [settings["last_step"]]]
    Z = np.delete(X, settings["last_step"], axis=1)
    return (Z - newest if settings["centered"] else Z), newest


@given(regressions())
def test_solution_is_optimal_and_of_least_norm(regression):
    """Against the pseudo-inverse of the design written out, whatever its shape and rank."""
    X, y, settings = regression
    Z, newest = design(X, settings)
    target = y - newest
    if settings["fit_intercept"]:
        Z, target = Z - Z.mean(axis=0), target - target.mean(axis=0)
    alpha = settings["alpha"]
    if alpha:
        w = np.linalg.solve(Z.T @ Z + alpha * np.eye(Z.shape[1]), Z.T @ target)
    else:
        w = np.linalg.pinv(Z, rcond=1e-10) @ target
    model = ResidualLinearRegressor(**settings).fit(X, y)
    fitted = np.delete(model.coef_, settings["last_step"], axis=1).T
    np.testing.assert_allclose(fitted, w, atol=1e-8 * (1 + np.abs(w).max(initial=0)))


@given(regressions(), SCALES)
def test_the_unit_of_the_series_cancels(regression, unit):
    X, y, settings = regression
    settings |= {"alpha": 0.0}
    plain = ResidualLinearRegressor(**settings).fit(X, y)
    scaled = ResidualLinearRegressor(**settings).fit(unit * X, unit * y)
    np.testing.assert_allclose(scaled.coef_, plain.coef_, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        scaled.predict(unit * X) / unit, plain.predict(X), rtol=1e-7, atol=1e-7
    )


@given(regressions(), st.integers(-1000, 1000))
def test_the_level_of_the_series_moves_the_forecast(regression, level):
    X, y, settings = regression
    settings |= {"centered": True}
    plain = ResidualLinearRegressor(**settings).fit(X, y)
    moved = ResidualLinearRegressor(**settings).fit(X + level, y + level)
    np.testing.assert_allclose(moved.predict(X + level) - level, plain.predict(X), atol=1e-7)


@given(regressions(), st.data())
def test_chunks_multiplicities_columns_and_layouts(regression, data):
    """Chunks make no difference, weight k is k rows, a column of y is a fit of its own."""
    X, y, settings = regression
    n = len(X)
    times = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(times.any())
    cuts = sorted(data.draw(st.lists(st.integers(1, n), max_size=3)))
    whole = ResidualLinearRegressor(**settings).fit(
        X.repeat(times, axis=0), y.repeat(times, axis=0)
    )
    chunked = ResidualLinearRegressor(**settings)
    for part in np.split(np.arange(n), cuts):
        if times[part].any():
            chunked.partial_fit(X[part], y[part], sample_weight=times[part])
    tolerance = {"atol": 1e-8 * (1 + np.abs(whole.coef_).max())}
    np.testing.assert_allclose(chunked.coef_, whole.coef_, **tolerance)
    np.testing.assert_allclose(chunked.intercept_, whole.intercept_, **tolerance)
    placed = data.draw(layouts(X))
    turned = ResidualLinearRegressor(**settings).fit(placed, y[:, 0], sample_weight=times)
    np.testing.assert_allclose(turned.coef_, whole.coef_[0], **tolerance)
    np.testing.assert_allclose(turned.predict(placed), whole.predict(X)[:, 0], atol=1e-7)


@given(
    arrays(np.float64, st.integers(4, 40), elements=st.integers(-50, 50).map(float)),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_windows_that_slide_are_windows_that_were_copied(series, n_steps, horizon, step, centered):
    """A view of a series and its copy: the same numbers, and the same fit by another road."""
    assume(len(series) >= n_steps + horizon)
    X, y = make_windows(series, n_steps, horizon, step=step)
    for i, (window, future) in enumerate(zip(X, y.reshape(len(X), -1), strict=True)):
        start = i * step
        np.testing.assert_array_equal(window, series[start : start + n_steps])
        np.testing.assert_array_equal(future, series[start + n_steps : start + n_steps + horizon])
    assert len(X) == (len(series) - n_steps - horizon) // step + 1
    fits = [ResidualLinearRegressor(centered=centered).fit(T, y) for T in (X, X.copy())]
    np.testing.assert_allclose(fits[0].predict(X), fits[1].predict(X), atol=1e-6)


@st.composite
def systems(draw):
    """Data models inside the range of gamma that their angles allow."""
    n_steps, n_states = draw(st.integers(2, 8)), draw(st.integers(2, 9))
    unit_root = draw(st.booleans())
    model = ResidualSSM(
        n_steps,
        n_states,
        gamma=draw(st.floats(-0.95, 0.97)),
        noise=draw(st.sampled_from([0.0, 0.05, 0.5])),
        unit_root=unit_root,
        system_state=draw(st.integers(0, 1000)),
    )
    try:
        return model, model.system()
    except ValueError as error:
        assume("gamma" not in str(error))
        raise


@given(systems(), st.booleans(), st.integers(0, 10**6))
def test_no_residual_predictor_has_less_risk_than_the_best(drawn, centered, seed):
    model, system = drawn
    best = best_residual_weights(system, model.noise, centered)
    least = model.best_residual_risk(centered=centered)
    coef = residual_coefficients(best, centered=centered)
    assert model.linear_risk(coef) == pytest.approx(least, rel=1e-9, abs=1e-12)
    rng = np.random.default_rng(seed)
    for step in (1e-3, 1.0):
        other = best + step * rng.standard_normal(best.shape)
        risk = linear_risk(
            system, residual_coefficients(other, centered=centered), noise=model.noise
        )
        assert risk >= least - 1e-12
    # Persistence is the residual predictor of weight zero; all risks contain the target's noise.
    assert model.noise**2 - 1e-12 <= least <= model.persistence_risk() + 1e-12
    assert model.persistence_risk() == pytest.approx(
        2 - 2 * model.gamma + 2 * model.noise**2, rel=1e-9
    )


@given(systems(), st.integers(0, 10**6))
def test_risks_under_the_sign_event_are_bounded(drawn, seed):
    """Every draw changes sign, so whoever keeps the sign of x_d does no better than zero."""
    model, system = drawn
    states = sample_states(system, 20, np.random.default_rng(seed), sign_inconsistent=True)
    series = states @ system.P.T
    assert (series[:, -2] * series[:, -1] < 0).all()
    shift = "sign_inconsistent"
    zero, persistence = model.zero_risk(shift), model.persistence_risk(shift)
    assert model.noise**2 < zero <= persistence + 1e-12
    for scale in (0.5, 2.0):  # any positive multiple of the last value keeps its sign
        assert model.linear_risk(scale * np.eye(model.n_steps)[-1], shift=shift) >= zero - 1e-12
    assert model.best_residual_risk(shift) >= model.noise**2 - 1e-12


@given(tables(elements=UNIT), st.integers(0, 40), st.sampled_from([0.0, 0.3]), st.data())
def test_closed_form_is_descent_step_by_step(J, n_steps, alpha, data):
    n = len(J)
    y = data.draw(arrays(np.float64, n, elements=UNIT))
    weight = data.draw(arrays(np.float64, n, elements=st.floats(0.1, 2.0)))
    J = J / max(1.0, np.abs(J).max())
    model = lazy_model(J, y, lambda X: X, sample_weight=weight)
    bound = lazy_stable_rate(model, alpha)
    eta = 0.9 * min(bound, 1.0)
    delta, losses = np.zeros(J.shape[1]), []
    for _ in range(n_steps + 1):
        residual = J @ delta - y
        losses.append(0.5 * weight @ residual**2 + 0.5 * alpha * delta @ delta)
        last = delta
        delta = delta - eta * (J.T @ (weight * residual) + alpha * delta)
    rate = {"learning_rate": eta, "alpha": alpha}
    np.testing.assert_allclose(
        lazy_weights(model, n_steps, **rate).ravel(), last, atol=1e-9 * (1 + n_steps)
    )
    np.testing.assert_allclose(
        lazy_losses(model, np.arange(n_steps + 1), **rate), losses, rtol=1e-9, atol=1e-12
    )
    assert lazy_losses(model, [np.inf], **rate)[0] <= losses[-1] * (1 + 1e-9) + 1e-12
