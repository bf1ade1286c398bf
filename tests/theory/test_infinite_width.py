"""The infinitely wide network, against Monte Carlo over widths, quadrature and 60 digits."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from skcurse.theory.attention_ntk import kernel_features, last_step_attention
from skcurse.theory.infinite_width import (
    gaussian_nodes,
    infinite_width_attention,
    infinite_width_features,
    infinite_width_forward,
)


def infinite_width_kernel(X):
    features = infinite_width_features(X, gaussian_nodes(X))
    return features @ features.T


def windows(name, n=6):
    rng = np.random.default_rng(5)
    return {
        "normal": rng.normal(size=(n, 8)),
        "heavy tails": rng.standard_t(2, size=(n, 8)),
        "wide": 20.0 * rng.normal(size=(n, 4)),
        "narrow": 0.01 * rng.normal(size=(n, 4)),
    }[name]


@pytest.mark.parametrize("name", ["normal", "heavy tails", "wide", "narrow"])
def test_kernel_is_the_gaussian_integral(name):
    X = windows(name)
    kernel = infinite_width_kernel(X)
    # With w = ±exp(s) the integrand falls off at both ends: the trapezoid rule converges fast,
    # and has points at every scale.
    step = 0.01
    w = np.exp(np.arange(-36.0, 2.4, step))
    sides = [kernel_features(X, side * w) * np.sqrt(step * w * norm.pdf(w)) for side in (1, -1)]
    expected = sum(phi @ phi.T for phi in sides)
    size = np.sqrt(np.diag(kernel))
    assert np.all(np.abs(kernel - expected) < 1e-12 * np.outer(size, size))


def test_finite_width_approaches_it_like_one_over_the_root_of_the_width():
    X = windows("normal")
    kernel = infinite_width_kernel(X)
    rng = np.random.default_rng(0)
    widths, repeats = 4 ** np.arange(3, 8), 24
    errors = []
    for m in widths:
        samples = []
        for _ in range(repeats):
            features = kernel_features(X, rng.normal(size=m))
            samples.append(features @ features.T / m - kernel)
        samples = np.array(samples)
        errors.append(np.sqrt(np.mean(samples**2)))
        # Unbiased: every entry's mean lies within five standard errors.
        z = samples.mean(axis=0) / (samples.std(axis=0, ddof=1) / np.sqrt(repeats))
        assert np.abs(z).max() < 5.5
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    # Each error is known to 1/sqrt(2 * 24) of itself or better.
    assert abs(slope + 0.5) < 0.1


def test_small_eigenvalues_agree_with_sixty_digits():
    # Two entries: φ(w) = c³ / (2 + 2 cosh(c² w)) in closed form for the window (0, c).
    c = np.linspace(0.8, 1.3, 10)
    X = np.stack([np.zeros(10), c], axis=1)
    values = np.linalg.svd(infinite_width_features(X, gaussian_nodes(X)), compute_uv=False)
    with mpmath.workdps(60):
        # The trapezoid rule with step h errs by exp(-2π · 1.8/h) or less: poles at ±iπ/c².
        h = mpmath.mpf(1) / 12
        nodes = [h * k for k in range(-200, 201)]
        roots = [mpmath.sqrt(h * mpmath.npdf(w)) for w in nodes]
        phi = mpmath.matrix(
            [
                [
                    root * v**3 / (2 + 2 * mpmath.cosh(v**2 * w))
                    for w, root in zip(nodes, roots, strict=True)
                ]
                for v in map(mpmath.mpf, map(float, c))
            ]
        )
        eigenvalues = mpmath.eigsy(phi * phi.T, eigvals_only=True)
        exact = np.array([float(mpmath.sqrt(v)) for v in eigenvalues])[::-1]
    assert exact[-1] ** 2 < 1e-16 * exact[0] ** 2
    np.testing.assert_allclose(values, exact, rtol=0, atol=1e-14 * exact[0])


@pytest.mark.parametrize("wider", [1.0, 4.0, 40.0])
def test_weights_carry_over_to_windows_that_need_finer_nodes(wider):
    X = windows("normal")
    Z = wider * np.random.default_rng(1).normal(size=(5, 8))
    nodes = gaussian_nodes(X)
    dual = np.random.default_rng(2).normal(size=(6, 2))
    trained = infinite_width_features(X, nodes).T @ dual
    both = gaussian_nodes(np.vstack([X, Z]))
    left, right = (infinite_width_features(rows, both) for rows in (Z, X))
    expected = left @ right.T @ dual
    scale = np.abs(left) @ np.abs(right.T @ dual)
    out = infinite_width_forward(Z, trained.T, nodes.breaks)
    assert np.all(np.abs(out - expected) < 1e-12 * scale)
    one = infinite_width_forward(Z, trained[:, 0], nodes.breaks)
    np.testing.assert_allclose(one, out[:, 0], rtol=1e-12)
    alone = infinite_width_forward(Z[:1], trained.T, nodes.breaks)
    assert np.all(np.abs(alone - expected[:1]) < 1e-12 * scale[:1])


@pytest.mark.parametrize("name", ["normal", "wide"])
def test_attention_is_the_average_over_neurons(name):
    X = windows(name)
    w = np.random.default_rng(0).normal(size=20_000)
    sample = last_step_attention(X, w)
    error = sample.std(axis=1) / np.sqrt(len(w))
    average = infinite_width_attention(X, gaussian_nodes(X))
    assert np.all(np.abs(sample.mean(axis=1) - average) < 5 * error + 1e-15)


@pytest.mark.parametrize("scale", [1e-60, 1e-3, 1.0, 1e3, 1e6, 1e12, 1e50])
def test_one_window_of_any_size_in_closed_form(scale):
    # φ(w) = c³ / (2 + 2 cosh(c² w)) for the window (0, c): a spike of width 1/c² and its integral.
    c = float(scale)
    kernel = infinite_width_kernel(np.array([[0.0, c]]))[0, 0]
    if c <= 1e-3:
        expected = c**6 / 16
    else:

        def square(v):
            return norm.pdf(v / c**2) / (2 + 2 * np.cosh(v)) ** 2

        expected = 2 * c**4 * quad(square, 0, 40, epsabs=0, epsrel=1e-12)[0]
    assert kernel == pytest.approx(expected, rel=1e-10)


def test_windows_that_move_nothing_and_windows_too_wide():
    still = np.array([[2.0, 2.0, 2.0], [1.0, -1.0, 0.0]])
    nodes = gaussian_nodes(still)
    np.testing.assert_array_equal(infinite_width_features(still, nodes), 0.0)
    assert np.sum(nodes.roots**2) == pytest.approx(1.0, abs=1e-14)
    for huge in (1e300, 1e160):
        X = huge * np.array([[1.0, 2.0]])
        with pytest.raises(ValueError, match="too large"):
            infinite_width_features(X, gaussian_nodes(X))
