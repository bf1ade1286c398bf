"""ResidualSSM and make_residual_ssm."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_squared_error

from skcurse.datasets import ResidualSSM, make_residual_ssm
from skcurse.theory.residual_ssm import persistence_risk, zero_risk

OOD = "sign_inconsistent"
SHIFTS = pytest.mark.parametrize("shift", [None, OOD])


def assert_mean(values, expected, n_errors=4.0):
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) < n_errors * error


@SHIFTS
def test_function_and_object_give_the_same_sample(shift):
    parameters = {"n_states": 6, "gamma": 0.3, "noise": 0.2, "unit_root": True, "system_state": 5}
    X, y = ResidualSSM(4, **parameters).sample(50, shift=shift, random_state=1)
    X2, y2 = make_residual_ssm(50, 4, shift=shift, random_state=1, **parameters)
    assert X.shape == (50, 4)
    assert y.shape == (50,)
    np.testing.assert_array_equal(X, X2)
    np.testing.assert_array_equal(y, y2)


@SHIFTS
def test_sample_follows_its_seed_and_the_system_its_own(shift):
    model = ResidualSSM(8, noise=0.1)
    first, again, other = (model.sample(20, shift=shift, random_state=s)[0] for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).min() > 0
    np.testing.assert_array_equal(model.system().P, ResidualSSM(8, noise=0.7).system().P)
    assert np.abs(model.system().P - ResidualSSM(8, system_state=1).system().P).max() > 0.1
    copy = pickle.loads(pickle.dumps(clone(model)))
    np.testing.assert_array_equal(copy.sample(20, shift=shift, random_state=0)[0], first)


@SHIFTS
@pytest.mark.parametrize("gamma", [-0.5, 0.8])
def test_risks_are_those_of_a_sample_with_its_noise(gamma, shift):
    model = ResidualSSM(6, gamma=gamma, noise=0.3)
    X, y = model.sample(200_000, shift=shift, random_state=2)
    assert_mean(y**2, model.zero_risk(shift))
    assert_mean((y - X[:, -1]) ** 2, model.persistence_risk(shift))
    coef, intercept = np.arange(6) / 10.0, 0.4
    assert_mean((y - X @ coef - intercept) ** 2, model.linear_risk(coef, intercept, shift=shift))


def test_risks_contain_the_noise_of_target_and_of_inputs():
    model = ResidualSSM(gamma=0.8, noise=0.3)
    assert model.zero_risk() == pytest.approx(1.0 + 0.09)
    assert model.persistence_risk() == pytest.approx(0.4 + 0.18)
    assert model.zero_risk(OOD) == pytest.approx(zero_risk(0.8) + 0.09)
    assert model.persistence_risk(OOD) == pytest.approx(persistence_risk(0.8) + 0.18)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize(("n_states", "gamma"), [(None, 0.8), (None, -0.5), (24, 0.8), (5, 0.3)])
def test_best_residual_risk_against_a_large_fit(n_states, gamma, centered):
    model = ResidualSSM(12, n_states, gamma, noise=0.1)
    X, y = model.sample(150_000, random_state=0)
    fit = LinearRegression().fit(X[:, :-1] - centered * X[:, -1:], y - X[:, -1])
    for shift in (None, OOD):
        X, y = model.sample(150_000, shift=shift, random_state=1)
        errors = (y - X[:, -1] - fit.predict(X[:, :-1] - centered * X[:, -1:])) ** 2
        best = model.best_residual_risk(shift, centered=centered)
        # The fit's own error is of order sqrt(d / n) off the training law.
        slack = 4 * errors.std() / np.sqrt(len(errors)) + 5 * best * np.sqrt(12 / len(errors))
        assert abs(errors.mean() - best) < slack


def test_best_residual_risk_without_noise_is_zero_where_it_can_be():
    assert ResidualSSM(noise=0.0).best_residual_risk(OOD) < 1e-20
    assert ResidualSSM(noise=0.0, unit_root=False).best_residual_risk(OOD) > 1e-3


def test_noise_is_added_independently_of_the_sign_event():
    clean, noisy = (ResidualSSM(6, noise=noise) for noise in (0.0, 0.2))
    n_samples = 50_000
    X, y = clean.sample(n_samples, shift=OOD, random_state=0)
    assert np.all(X[:, -1] * y < 0)
    X_noisy, y_noisy = noisy.sample(n_samples, shift=OOD, random_state=0)
    u = np.column_stack([X, y])
    noise = (np.column_stack([X_noisy, y_noisy]) - u) / 0.2
    np.testing.assert_allclose(
        noise.T @ noise / n_samples, np.eye(7), atol=5 * np.sqrt(2 / n_samples)
    )
    np.testing.assert_allclose(noise.T @ u / n_samples, 0.0, atol=5 / np.sqrt(n_samples))
    assert not np.all(X_noisy[:, -1] * y_noisy < 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_steps": 0}, "n_steps must be an integer"),
        ({"n_steps": 2.5}, "n_steps must be an integer"),
        ({"n_states": 0}, "n_states must be an integer"),
        ({"noise": -0.1}, "noise must be a finite number"),
        ({"noise": np.nan}, "noise must be a finite number"),
        ({"gamma": 1.0}, r"strictly inside \(-1, 1\)"),
        ({"gamma": 1.0}, r"eigenvalue angles\.$"),  # no more states would help
        ({"gamma": np.nan}, r"strictly inside \(-1, 1\)"),
        ({"gamma": 0.999, "unit_root": False}, "more states widen the interval"),
        ({"gamma": "a"}, "gamma must be a number between -1 and 1, got 'a'"),
        ({"gamma": None}, "gamma must be a number"),
        ({"gamma": True}, "gamma must be a number"),
        ({"n_steps": True}, "n_steps must be an integer"),
        ({"n_steps": "abc"}, "n_steps must be an integer"),
        ({"unit_root": "maybe"}, "unit_root must be True or False, got 'maybe'"),
        ({"n_steps": 1}, "it needs more states"),
        ({"n_steps": 2, "unit_root": False}, "it needs more states"),
    ],
)
@pytest.mark.parametrize("method", ["sample", "zero_risk", "persistence_risk", "linear_risk"])
def test_bad_parameters_are_named(parameters, message, method):
    arguments = {"sample": (3,), "linear_risk": ([0.0] * 16,)}.get(method, ())
    with pytest.raises(ValueError, match=message):
        getattr(ResidualSSM(**parameters), method)(*arguments)


@pytest.mark.parametrize(
    "method", ["zero_risk", "persistence_risk", "best_residual_risk", "sample"]
)
def test_unknown_shift_is_refused(method):
    arguments = (3,) if method == "sample" else ()
    with pytest.raises(ValueError, match="sign_inconsistent"):
        getattr(ResidualSSM(), method)(*arguments, shift="louder")


@pytest.mark.parametrize(("n_steps", "n_states"), [(1, 2), (2, 2), (2, 4), (1, 5)])
def test_short_windows_and_few_states(n_steps, n_states):
    model = ResidualSSM(n_steps, n_states, gamma=0.5, noise=0.1)
    X, y = model.sample(100_000, shift=OOD, random_state=0)
    assert X.shape == (100_000, n_steps)
    assert_mean((y - X[:, -1]) ** 2, model.persistence_risk(OOD))
    if n_steps == 1:  # no weights are left: persistence it is
        assert model.best_residual_risk(OOD) == pytest.approx(model.persistence_risk(OOD))


def test_a_predictor_of_the_next_value_beats_zero_where_theory_says_so():
    model = ResidualSSM(16, gamma=0.8, noise=0.05)
    X, y = model.sample(2000, random_state=0)
    X_ood, y_ood = model.sample(2000, shift=OOD, random_state=1)
    fit = LinearRegression().fit(X, y)
    assert mean_squared_error(y_ood, fit.predict(X_ood)) < model.zero_risk(OOD) / 5
