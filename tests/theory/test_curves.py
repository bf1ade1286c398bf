"""Curves and the panels that resolve them, against the direct formula."""

import mpmath
import numpy as np
import pytest
from curve_rows import KINDS, draw

from skcurse.theory.curves import OUTPUTS, SLOPES, curve_values, graded_panels
from skcurse.theory.tilted_moments import tilted_moments

INTERVAL = (-4.0, 4.0)


@pytest.mark.parametrize("kind", KINDS)
def test_curves_are_tilted_means_and_variances(kind):
    X = draw(kind, 20)
    w = np.array([0.0, 1.5, -2.0, 0.01])
    mean, var = tilted_moments(X, w)
    np.testing.assert_allclose(curve_values(X, w), mean - X[:, -1:], atol=1e-12)
    slopes = curve_values(X, w, SLOPES)
    np.testing.assert_allclose(slopes, X[:, -1:] * var, rtol=1e-13)
    assert np.all(np.abs(slopes).max(axis=1) <= SLOPES.size(X) * (1 + 1e-15))


def test_curve_in_exact_arithmetic():
    x, w = [0.3, -2.0, 41.0, 7.0], -0.37
    with mpmath.workdps(60):
        weights = [mpmath.exp(mpmath.mpf(w) * x[-1] * entry) for entry in map(mpmath.mpf, x)]
        mean = mpmath.fsum(e * v for e, v in zip(weights, x, strict=True)) / mpmath.fsum(weights)
        exact = float(mean - x[-1])
    assert curve_values([x], [w])[0, 0] == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("curves", [OUTPUTS, SLOPES], ids=["outputs", "slopes"])
@pytest.mark.parametrize("kind", KINDS)
def test_graded_panels_resolve_every_curve(kind, curves):
    X = draw(kind, 30)
    panels = graded_panels(X, INTERVAL, curves=curves)
    assert tuple(panels.breaks[[0, -1]]) == INTERVAL
    w = np.random.default_rng(1).uniform(*INTERVAL, 100)
    coefficients = panels.coefficients(curve_values(X, panels.nodes, curves))
    error = panels.at(w).evaluate_many(coefficients) - curve_values(X, w, curves)
    assert np.all(np.abs(error).max(axis=1) <= 1e-12 * curves.size(X) + 1e-15)


@pytest.mark.parametrize("rate", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("curves", [OUTPUTS, SLOPES], ids=["outputs", "slopes"])
def test_a_bend_at_zero_does_not_hide_between_nodes(rate, curves):
    # Away from zero, where the first nodes are, this curve is flat.
    X = np.array([[-1.0, 1.0]]) * np.sqrt(rate / 2.0)
    panels = graded_panels(X, INTERVAL, curves=curves)
    w = np.linspace(-20.0, 20.0, 401) / rate
    coefficients = panels.coefficients(curve_values(X, panels.nodes, curves))
    error = panels.at(w).evaluate_many(coefficients) - curve_values(X, w, curves)
    assert np.abs(error).max() <= 1e-12 * curves.size(X)[0]


@pytest.mark.parametrize("interval", [(1.0, 3.0), (-3.0, -1.0), (0.0, 2.0)])
def test_an_interval_on_one_side_of_zero(interval):
    X = draw("normal", 10)
    panels = graded_panels(X, interval)
    w = np.linspace(*interval, 50)
    coefficients = panels.coefficients(curve_values(X, panels.nodes))
    error = panels.at(w).evaluate_many(coefficients) - curve_values(X, w)
    assert np.abs(error).max() < 1e-11


def test_too_many_panels_is_an_error():
    X = np.array([[0.0, 1.0, 1e-3 + 1.0, 1e60]])
    with pytest.raises(ValueError, match="panels"):
        graded_panels(np.geomspace(1e-30, 1e30, 30)[:, None] * X, (-1e90, 1e90), tol=0.0)
