"""Closed-form risks of linear predictors against samples and against normal equations."""

import numpy as np
import pytest

from skcurse.theory.residual_risk import best_residual_weights, linear_risk
from skcurse.theory.residual_ssm import (
    build_system,
    exact_weights,
    persistence_risk,
    residual_coefficients,
    sample_states,
    spread_angles,
    zero_risk,
)

GAMMAS = [-0.5, 0.0, 0.8, 0.999]
LAWS = pytest.mark.parametrize("sign_inconsistent", [False, True], ids=["training", "ood"])
READINGS = pytest.mark.parametrize("centered", [True, False])


def make_system(n_states=10, n_steps=8, gamma=0.8, seed=0):
    rng = np.random.default_rng(seed)
    return build_system(spread_angles(n_states, rng), gamma, n_steps, rng)


def draw(system, n_samples, noise, sign_inconsistent, seed=0):
    rng = np.random.default_rng(seed)
    series = sample_states(system, n_samples, rng, sign_inconsistent=sign_inconsistent) @ system.P.T
    series += noise * rng.normal(size=series.shape)
    return series[:, :-1], series[:, -1]


def assert_mean(values, expected, n_errors=4.0):
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) < n_errors * error


@LAWS
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_risk_of_any_linear_predictor_is_its_mean_squared_error(gamma, noise, sign_inconsistent):
    system = make_system(gamma=gamma)
    X, y = draw(system, 100_000, noise, sign_inconsistent, seed=7)
    for coef in np.random.default_rng(1).normal(size=(3, 8)):
        risk = linear_risk(system, coef, noise=noise, sign_inconsistent=sign_inconsistent)
        assert_mean((y - X @ coef) ** 2, risk)


@pytest.mark.parametrize("gamma", [-0.9, *GAMMAS])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_zero_and_persistence_are_linear_predictors(gamma, noise):
    system = make_system(gamma=gamma)
    zero, last = np.zeros(8), np.eye(8)[-1]

    def risk(coef, event):
        return linear_risk(system, coef, noise=noise, sign_inconsistent=event)

    assert risk(zero, False) == pytest.approx(1.0 + noise**2, rel=1e-12)
    assert risk(last, False) == pytest.approx(2.0 - 2.0 * gamma + 2.0 * noise**2, rel=1e-12)
    assert risk(zero, True) == pytest.approx(zero_risk(gamma) + noise**2, rel=1e-9)
    assert risk(last, True) == pytest.approx(persistence_risk(gamma) + 2.0 * noise**2, rel=1e-9)


@READINGS
@pytest.mark.parametrize("noise", [0.05, 0.5])
@pytest.mark.parametrize(("n_states", "n_steps"), [(10, 8), (8, 8), (4, 8), (2, 2)])
def test_best_weights_solve_the_normal_equations(n_states, n_steps, noise, centered):
    system = make_system(n_states, n_steps)
    covariance = system.P @ system.P.T + noise**2 * np.eye(n_steps + 1)  # of (x, y)
    last = np.eye(n_steps + 1)[n_steps - 1]
    design = np.eye(n_steps + 1)[: n_steps - 1] - (last if centered else 0.0)
    target = np.eye(n_steps + 1)[n_steps] - last
    expected = np.linalg.solve(design @ covariance @ design.T, design @ covariance @ target)
    weights = best_residual_weights(system, noise, centered)
    np.testing.assert_allclose(weights, expected, atol=1e-10)


@READINGS
def test_best_risk_is_the_limit_of_least_squares(centered):
    system, noise, n_samples = make_system(8, 8), 0.1, 200_000
    X, y = draw(system, n_samples, noise, sign_inconsistent=False, seed=3)
    design = X[:, :-1] - (X[:, -1:] if centered else 0.0)
    fitted, *_ = np.linalg.lstsq(design, y - X[:, -1])
    coef = residual_coefficients(best_residual_weights(system, noise, centered), centered=centered)
    np.testing.assert_allclose(
        residual_coefficients(fitted, centered=centered), coef, atol=30 / np.sqrt(n_samples)
    )
    X, y = draw(system, n_samples, noise, sign_inconsistent=True, seed=5)
    risk = linear_risk(system, coef, noise=noise, sign_inconsistent=True)
    assert_mean((y - X @ coef) ** 2, risk)
    fitted_risk = np.mean((y - X @ residual_coefficients(fitted, centered=centered)) ** 2)
    assert fitted_risk == pytest.approx(risk, rel=0.02)


@READINGS
def test_no_other_weights_have_less_risk_under_the_training_law(centered):
    system, noise = make_system(12, 8), 0.2
    best = best_residual_weights(system, noise, centered)

    def risk(weights):
        coef = residual_coefficients(weights, centered=centered)
        return linear_risk(system, coef, noise=noise)

    for direction in np.random.default_rng(0).normal(size=(20, 7)):
        steps = [risk(best + t * direction) - risk(best) for t in (1e-3, -1e-3)]
        assert min(steps) > 0
        assert steps[0] == pytest.approx(steps[1], rel=1e-6)  # no slope


@READINGS
def test_best_weights_without_noise_are_the_exact_ones(centered):
    system = make_system(7, 8)
    expected = exact_weights(system, centered).weights
    np.testing.assert_allclose(best_residual_weights(system, 0.0, centered), expected, atol=1e-8)


def test_risk_of_the_exact_predictor_grows_with_the_noise_squared():
    system = make_system(8, 8)
    coef = residual_coefficients(exact_weights(system).weights)
    for noise in (0.01, 1.0):
        for event in (False, True):
            risk = linear_risk(system, coef, noise=noise, sign_inconsistent=event)
            assert risk == pytest.approx(system.noise_gain * noise**2, rel=1e-9)


def test_coefficients_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"shape \(8,\)"):
        linear_risk(make_system(), np.zeros(9))
