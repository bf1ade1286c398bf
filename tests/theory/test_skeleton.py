"""Curves, graded panels and skeletons against the direct formula."""

import mpmath
import numpy as np
import pytest

from skcurse.theory.skeleton import (
    curve_values,
    find_skeleton,
    graded_panels,
    rebuilding_errors,
)
from skcurse.theory.tilted_moments import tilted_moments

INTERVAL = (-4.0, 4.0)


def draw(kind, n_samples, seed=0):
    """Windows of a kind, n_samples of them."""
    rng = np.random.default_rng(seed)
    X = {
        "normal": lambda: rng.standard_normal((n_samples, 12)),
        "heavy tails": lambda: rng.standard_t(3, (n_samples, 12)),
        "far from zero": lambda: 300.0 + rng.standard_normal((n_samples, 12)),
        "trend": lambda: rng.standard_normal((n_samples, 1)) * np.linspace(0, 1, 12),
        "two values": lambda: rng.choice([-1.0, 1.0], (n_samples, 12)),
    }[kind]()
    X[0] = X[1]  # duplicates
    X[2] = 3.0  # no range
    X[3, -1] = 0.0  # no query
    return X


def width(X):
    """What the distance of the poles from the real axis is inversely proportional to."""
    return np.abs(X[:, -1]) * np.ptp(X, axis=1)


KINDS = ["normal", "heavy tails", "far from zero", "trend", "two values"]


@pytest.mark.parametrize("kind", KINDS)
def test_curves_are_tilted_means(kind):
    X = draw(kind, 20)
    w = np.array([0.0, 1.5, -2.0, 0.01])
    expected = tilted_moments(X, w).mean - X[:, -1:]
    np.testing.assert_allclose(curve_values(X, w), expected, atol=1e-12)


def test_curve_in_exact_arithmetic():
    x, w = [0.3, -2.0, 41.0, 7.0], -0.37
    with mpmath.workdps(60):
        weights = [mpmath.exp(mpmath.mpf(w) * x[-1] * entry) for entry in map(mpmath.mpf, x)]
        mean = mpmath.fsum(e * v for e, v in zip(weights, x, strict=True)) / mpmath.fsum(weights)
        exact = float(mean - x[-1])
    assert curve_values([x], [w])[0, 0] == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_graded_panels_resolve_every_curve(kind):
    X = draw(kind, 30)
    panels = graded_panels(X, INTERVAL)
    assert tuple(panels.breaks[[0, -1]]) == INTERVAL
    w = np.random.default_rng(1).uniform(*INTERVAL, 100)
    coefficients = panels.coefficients(curve_values(X, panels.nodes))
    error = panels.at(w).evaluate_many(coefficients) - curve_values(X, w)
    assert np.all(np.abs(error).max(axis=1) <= 1e-12 * np.ptp(X, axis=1) + 1e-15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_samples", [5, 1500])
def test_skeleton_rebuilds_every_curve(kind, n_samples):
    X = draw(kind, n_samples)
    skeleton = find_skeleton(X, INTERVAL)
    assert skeleton.errors(X).max() <= skeleton.tol
    w = np.random.default_rng(2).uniform(*INTERVAL, 60)
    T = skeleton.panels.at(w).evaluate_many(skeleton.coefficients)
    error = curve_values(X, skeleton.weights) @ T - curve_values(X, w)
    assert np.all(np.abs(error).max(axis=1) <= 2e-11 * np.ptp(X, axis=1) + 1e-15)
    assert skeleton.weights.size <= 200


@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
def test_uncovered_rows_are_recognised(kind):
    seen = draw(kind, 300)
    skeleton = find_skeleton(seen, INTERVAL)
    unseen = draw(kind, 4000, seed=1)
    w = np.linspace(*INTERVAL, 200)
    T = skeleton.panels.at(w).evaluate_many(skeleton.coefficients)
    error = np.abs(curve_values(unseen, skeleton.weights) @ T - curve_values(unseen, w)).max(axis=1)
    relative = error / np.where(np.ptp(unseen, axis=1) > 0, np.ptp(unseen, axis=1), 1.0)
    covered = skeleton.errors(unseen) <= skeleton.tol
    assert covered.mean() > 0.97
    assert relative[covered].max() < 10 * skeleton.tol
    wide = 5.0 * unseen
    too_wide = width(wide) > 4.0 * width(seen).max()
    assert too_wide.any()
    assert np.all(skeleton.errors(wide[too_wide]) > skeleton.tol)


def test_errors_are_relative_to_the_range():
    X = np.array([[0.0, 2.0], [0.0, 20.0], [1.0, 1.0]])
    values = np.array([[1.0, 0.5], [1.0, 0.5], [0.0, 0.0]])
    np.testing.assert_allclose(
        rebuilding_errors(X, values, np.array([[0.6]])), [0.05, 0.005, 0.0], atol=1e-15
    )


def test_a_lone_wide_row_is_found_and_covered():
    X = draw("normal", 3000)
    X[1234] *= 4.0
    skeleton = find_skeleton(X, INTERVAL, n_rows=16, stretch=1.0)
    assert skeleton.errors(X).max() <= skeleton.tol


@pytest.mark.parametrize("scale", [1e155, 1e300])
def test_overflowing_scores_are_an_error(scale):
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match="scale X down"),
    ):
        find_skeleton(scale * draw("normal", 10), INTERVAL)


def test_too_many_panels_is_an_error():
    X = np.array([[0.0, 1.0, 1e-3 + 1.0, 1e60]])
    with pytest.raises(ValueError, match="panels"):
        graded_panels(np.geomspace(1e-30, 1e30, 30)[:, None] * X, (-1e90, 1e90), tol=0.0)
