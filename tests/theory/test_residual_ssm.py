"""The residual state space model: realisation, sampler, closed forms, exact predictors."""

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from skcurse.theory.residual_ssm import (
    build_system,
    exact_weights,
    persistence_risk,
    residual_coefficients,
    sample_states,
    spread_angles,
    zero_risk,
)

GAMMAS = [-0.5, 0.0, 0.3, 0.8, 0.95, 0.999]


def make_system(n_states, n_steps, gamma, *, unit_root=True, seed=0):
    rng = np.random.default_rng(seed)
    angles = spread_angles(n_states, rng, unit_root=unit_root)
    return build_system(angles, gamma, n_steps, rng)


def ood_series(system, n_samples, seed=0):
    rng = np.random.default_rng(seed)
    return sample_states(system, n_samples, rng, sign_inconsistent=True) @ system.P.T


def assert_mean(values, expected, n_errors=4.0):
    """The sample mean is within n_errors standard errors of the expected value."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) < n_errors * error


# ---------------------------------------------------------------------------------- realisation


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("n_states", "n_steps"), [(2, 1), (2, 2), (4, 3), (16, 16), (128, 128)])
def test_rows_have_unit_norm_and_consecutive_inner_product_gamma(n_states, n_steps, gamma):
    P = make_system(n_states, n_steps, gamma).P
    assert P.shape == (n_steps + 1, n_states)
    np.testing.assert_allclose(np.sum(P**2, axis=1), 1.0, atol=1e-10, rtol=0)
    np.testing.assert_allclose(np.sum(P[1:] * P[:-1], axis=1), gamma, atol=1e-10, rtol=0)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_rows_generate_the_published_recursion(gamma):
    system = make_system(16, 24, gamma, seed=1)
    B = system.C[:, np.newaxis]
    A = system.M - B @ system.C[np.newaxis, :]
    h = np.random.default_rng(0).normal(size=16)
    expected = system.P @ h
    for u in expected:
        assert system.C @ h == pytest.approx(u, abs=1e-12)
        h = A @ h + B[:, 0] * (system.C @ h)


@pytest.mark.parametrize("unit_root", [True, False])
@pytest.mark.parametrize("n_states", [15, 16])
def test_closed_loop_matrix_is_orthogonal_with_the_given_angles(n_states, unit_root):
    system = make_system(n_states, 8, 0.5, unit_root=unit_root)
    np.testing.assert_allclose(system.M @ system.M.T, np.eye(n_states), atol=1e-13)
    found = np.abs(np.angle(np.linalg.eigvals(system.M)))
    assert (np.abs(found) < 1e-7).sum() == unit_root
    plane = (system.angles > 0) & (system.angles < np.pi)
    np.testing.assert_allclose(np.sort(found), np.repeat(system.angles, 1 + plane), atol=1e-7)


def test_series_is_stationary():
    P = make_system(12, 20, 0.6).P
    gram = P @ P.T
    for lag in range(20):
        np.testing.assert_allclose(np.diag(gram, lag), gram[0, lag], atol=1e-12)


def test_read_out_is_tilted_exponentially_over_the_eigenvectors():
    system = make_system(12, 4, 0.6)
    values, vectors = np.linalg.eig(system.M)
    weights = np.abs(system.C @ vectors) ** 2
    slope, offset = np.polyfit(values.real, np.log(weights), 1)
    np.testing.assert_allclose(np.log(weights), slope * values.real + offset, atol=1e-9)


def test_angles_are_spread_one_in_each_cell():
    for seed in range(20):
        angles = spread_angles(21, np.random.default_rng(seed))
        cells = np.pi * np.arange(10) / 10
        assert angles[0] == 0.0
        assert np.all(angles[1:] > cells + np.pi / 40)
        assert np.all(angles[1:] < cells + 3 * np.pi / 40)


@pytest.mark.parametrize(
    ("n_states", "unit_root", "gamma"), [(1, True, 0.8), (1, False, -0.5), (2, False, 0.8)]
)
def test_a_single_cosine_leaves_no_choice_of_gamma(n_states, unit_root, gamma):
    rng = np.random.default_rng(0)
    angles = spread_angles(n_states, rng, unit_root=unit_root)
    with pytest.raises(ValueError, match=f"single cosine {np.cos(angles[0]):.6g} .*more states"):
        build_system(angles, gamma, 8, rng)


@pytest.mark.parametrize(("n_states", "unit_root", "gamma"), [(8, False, 0.999), (7, True, -0.99)])
def test_gamma_outside_the_interval_names_it(n_states, unit_root, gamma):
    rng = np.random.default_rng(0)
    angles = spread_angles(n_states, rng, unit_root=unit_root)
    low, high = np.cos(angles).min(), np.cos(angles).max()
    with pytest.raises(ValueError, match="strictly inside") as error:
        build_system(angles, gamma, 8, rng)
    assert f"({low:.6g}, {high:.6g})" in str(error.value)


@pytest.mark.parametrize("gamma", [1.0, -1.0, np.nan, np.inf])
def test_gamma_that_no_system_has_is_refused(gamma):
    with pytest.raises(ValueError, match="strictly inside"):
        make_system(8, 8, gamma)


@pytest.mark.parametrize("margin", [1e-6, 1e-10])
def test_gamma_close_to_the_ends_of_the_interval(margin):
    for gamma in (1.0 - margin, margin - 1.0):
        P = make_system(8, 8, gamma).P
        np.testing.assert_allclose(np.sum(P[1:] * P[:-1], axis=1), gamma, atol=1e-13, rtol=0)


# -------------------------------------------------------------------------------------- sampler


@pytest.mark.parametrize("gamma", [*GAMMAS, 1.0 - 1e-6, 1.0 - 1e-10])
def test_every_draw_given_the_event_changes_sign(gamma):
    u = ood_series(make_system(16, 16, gamma), 100_000)
    assert np.all(u[:, -2] * u[:, -1] < 0)


class ExtremeAngles:
    """A source of states at the ends of the arcs, where rounding could undo the event."""

    def __init__(self, system):
        q, r = np.linalg.qr(system.P[-2:].T)
        self.basis = q * np.sign(np.diag(r))

    def normal(self, size):
        turns = np.pi * np.array([0.0, -0.0, 1.0, -1.0])
        z = np.column_stack([np.cos(turns), np.sin(turns)])
        assert size == (4, len(self.basis))
        return z @ self.basis.T


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_ends_of_the_arcs_change_sign_too(gamma):
    system = make_system(16, 16, gamma)
    states = sample_states(system, 4, ExtremeAngles(system), sign_inconsistent=True)
    u = states @ system.P.T
    assert np.all(u[:, -2] * u[:, -1] < 0)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_closed_form_risks_against_the_sampler(gamma):
    u = ood_series(make_system(8, 6, gamma), 200_000, seed=3)
    assert_mean(u[:, -1] ** 2, zero_risk(gamma))
    assert_mean((u[:, -1] - u[:, -2]) ** 2, persistence_risk(gamma))


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 0.3, 0.8, 0.95])
def test_the_law_is_that_of_plain_rejection(gamma):
    system = make_system(6, 5, gamma)
    n_samples = 20_000
    rng = np.random.default_rng(11)
    proposed = rng.normal(size=(int(n_samples * np.pi / np.arccos(gamma) * 1.1) + 1000, 6))
    v = proposed @ system.P[-2:].T
    rejected = proposed[v[:, 0] * v[:, 1] < 0][:n_samples]
    assert len(rejected) == n_samples
    exact = sample_states(system, n_samples, np.random.default_rng(5), sign_inconsistent=True)

    u_exact, u_rejected = exact @ system.P.T, rejected @ system.P.T
    pairs = [*zip(u_exact.T, u_rejected.T, strict=True), *zip(exact.T, rejected.T, strict=True)]
    pairs += [
        (u_exact[:, i] * u_exact[:, j], u_rejected[:, i] * u_rejected[:, j])
        for i, j in [(4, 5), (0, 5), (2, 4), (0, 1)]
    ]
    pairs.append((np.sum(exact**2, axis=1), np.sum(rejected**2, axis=1)))
    pairs.append((u_exact[:, 4] / u_exact[:, 5], u_rejected[:, 4] / u_rejected[:, 5]))
    smallest = min(stats.ks_2samp(a, b).pvalue for a, b in pairs)
    assert smallest > 1e-3 / len(pairs)


class CountingNormals:
    """A source of normal draws that counts them and offers nothing else."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.n_draws = 0

    def normal(self, size):
        self.n_draws += int(np.prod(size))
        return self.rng.normal(size=size)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_draw_costs_one_normal_per_state_whatever_gamma(gamma):
    system = make_system(16, 16, gamma)
    for sign_inconsistent in (False, True):
        source = CountingNormals(0)
        sample_states(system, 500, source, sign_inconsistent=sign_inconsistent)
        assert source.n_draws == 500 * 16


@pytest.mark.parametrize("source", [np.random.default_rng, np.random.RandomState])
def test_both_kinds_of_generators_serve(source):
    rng = source(0)
    system = build_system(spread_angles(6, rng), 0.3, 4, rng)
    assert sample_states(system, 10, rng, sign_inconsistent=True).shape == (10, 6)


# ---------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("gamma", [-0.999, *GAMMAS])
def test_closed_forms_against_quadrature_over_the_arc(gamma):
    beta = np.arccos(gamma)

    def arc_mean(function):
        value, _ = integrate.quad(function, np.pi / 2, np.pi / 2 + beta, epsabs=1e-14)
        return 2.0 * value / beta  # E[r^2] = 2

    zero = arc_mean(lambda phi: np.cos(phi - beta) ** 2)
    persistence = arc_mean(lambda phi: (np.cos(phi - beta) - np.cos(phi)) ** 2)
    assert zero_risk(gamma) == pytest.approx(zero, rel=1e-10)
    assert persistence_risk(gamma) == pytest.approx(persistence, rel=1e-10)


@pytest.mark.parametrize("gap", [1e-3, 1e-8, 2.0**-50])
def test_closed_forms_keep_their_digits_close_to_one(gap):
    gamma = 1.0 - gap
    with mpmath.workdps(50):
        beta = mpmath.acos(mpmath.mpf(gamma))
        zero = 1 - mpmath.sin(2 * beta) / (2 * beta)
        persistence = 2 * zero - 2 * (mpmath.cos(beta) - mpmath.sin(beta) / beta)
    assert zero_risk(gamma) == pytest.approx(float(zero), rel=1e-13)
    assert persistence_risk(gamma) == pytest.approx(float(persistence), rel=1e-13)


def test_closed_forms_take_arrays_and_both_limits():
    np.testing.assert_allclose(zero_risk([-1.0, 0.0, 1.0]), [1.0, 1.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(persistence_risk([-1.0, 1.0]), [4.0, 0.0], atol=1e-15)
    for function in (zero_risk, persistence_risk):
        with pytest.raises(ValueError, match=r"\[-1, 1\]"):
            function(1.1)


# ------------------------------------------------------------------------------ exact predictors

PI = np.pi
ROOT_7, ROOT_8, ROOT_9 = [0, 0.5, 1.2, 2.5], [0, 0.5, 1.2, 2.1, PI], [0, 0.4, 1.1, 1.8, 2.6]
NO_ROOT_7, NO_ROOT_8 = [0.2, 0.9, 1.9, PI], [0.2, 0.9, 1.9, 2.6]
TRACE_1 = [0, 0.5, 1.2, PI - 1.2, PI - 0.5]  # symmetric about pi/2: nine states, trace M = 1

EXACT = [  # angles, n_steps, centered, unique
    pytest.param(ROOT_8, 8, True, True, id="centred, N=d, unit root"),
    pytest.param(NO_ROOT_7, 8, True, True, id="centred, N=d-1, no unit root"),
    pytest.param(ROOT_7, 8, True, False, id="centred, N=d-1, unit root"),
    pytest.param([0.2, PI], 8, True, False, id="centred, few states"),
    pytest.param(NO_ROOT_7, 8, False, True, id="uncentred, N=d-1, no unit root"),
    pytest.param(ROOT_7, 8, False, True, id="uncentred, N=d-1, unit root"),
    pytest.param(TRACE_1, 9, False, True, id="uncentred, N=d, trace 1"),
    pytest.param([0, 0.5, 2.5], 8, False, False, id="uncentred, few states"),
]
BIASED = [  # angles, n_steps, centered
    pytest.param(NO_ROOT_8, 8, True, id="centred, N=d, no unit root"),
    pytest.param(ROOT_9, 8, True, id="centred, N>d"),
    pytest.param(ROOT_8, 8, False, id="uncentred, N=d, trace not 1"),
    pytest.param(ROOT_9, 8, False, id="uncentred, N>d"),
    pytest.param([0, PI], 1, True, id="one step"),
]


def residual_problem(system, centered, n_samples=400, seed=0):
    """Design and target of the residual regression on noise-free data."""
    u = sample_states(system, n_samples, np.random.default_rng(seed)) @ system.P.T
    past, last = u[:, :-2], u[:, -2:-1]
    return (past - last if centered else past), u[:, -1] - u[:, -2]


@pytest.mark.parametrize("gamma", [-0.5, 0.3, 0.8, 0.95])
@pytest.mark.parametrize(("angles", "n_steps", "centered", "unique"), EXACT)
def test_exact_weights_predict_exactly(angles, n_steps, centered, unique, gamma):
    system = build_system(angles, gamma, n_steps, np.random.default_rng(4))
    result = exact_weights(system, centered)
    design, target = residual_problem(system, centered)
    np.testing.assert_allclose(design @ result.weights, target, atol=1e-12)
    assert result.bias < 1e-20
    assert result.unique == unique
    if unique:  # an independent fit finds the same weights
        fitted, *_ = np.linalg.lstsq(design, target)
        np.testing.assert_allclose(fitted, result.weights, atol=1e-8)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_exact_weights_are_the_characteristic_polynomial(gamma):
    system = make_system(12, 12, gamma)
    polynomial = np.real(np.poly(np.linalg.eigvals(system.M)))  # M^12 = -sum of lower powers
    np.testing.assert_allclose(exact_weights(system).weights, -polynomial[:1:-1], atol=1e-10)


def test_exact_weights_do_not_fade_with_the_planes_that_gamma_hides():
    system = make_system(64, 64, 0.999)
    result = exact_weights(system)
    np.testing.assert_allclose(
        result.weights, exact_weights(make_system(64, 64, 0.0)).weights, atol=1e-10
    )
    design, target = residual_problem(system, centered=True)
    np.testing.assert_allclose(design @ result.weights, target, atol=1e-12)


@pytest.mark.parametrize(("angles", "n_steps", "centered"), BIASED)
def test_weights_that_cannot_be_exact_are_the_best_and_say_so(angles, n_steps, centered):
    system = build_system(angles, 0.5, n_steps, np.random.default_rng(4))
    result = exact_weights(system, centered)
    assert result.bias > 1e-3
    design, target = residual_problem(system, centered, n_samples=100_000)
    assert_mean((target - design @ result.weights) ** 2, result.bias)
    # Least squares on the sample gains no more than its d degrees of freedom.
    fitted, *_ = np.linalg.lstsq(design, target)
    gain = np.mean((target - design @ result.weights) ** 2 - (target - design @ fitted) ** 2)
    assert 0.0 <= gain < 30 * n_steps * result.bias / len(design)


@pytest.mark.parametrize("n_states", [7, 8, 9])
def test_noise_gain_is_the_noise_that_the_predictor_passes_on(n_states):
    system = make_system(n_states, 8, 0.8)
    noise = np.random.default_rng(2).normal(size=(100_000, 9))
    weights = exact_weights(system).weights
    prediction = noise[:, 7] + (noise[:, :7] - noise[:, 7:8]) @ weights
    assert_mean((noise[:, 8] - prediction) ** 2, system.noise_gain)


@pytest.mark.parametrize("centered", [True, False])
def test_residual_coefficients_are_the_predictor_in_the_windows_columns(centered):
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=4), rng.normal(size=(6, 5))
    expected = x[:, 4] + (x[:, :4] - (x[:, 4:] if centered else 0.0)) @ w
    coef = residual_coefficients(w, centered=centered)
    np.testing.assert_allclose(x @ coef, expected, atol=1e-14)
