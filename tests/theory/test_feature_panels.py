"""Features as functions of the weight, and the panels that resolve them."""

import mpmath
import numpy as np
import pytest
from window_kinds import KINDS, draw

from skcurse.theory.feature_panels import feature_sizes, first_breaks, graded_panels
from skcurse.theory.ntk import kernel_features
from skcurse.theory.tilted_moments import tilted_moments

INTERVAL = (-4.0, 4.0)


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_bound_features(kind):
    X = draw(kind, 20)
    features = kernel_features(X, [0.0, 1.5, -2.0, 0.01])
    assert np.all(np.abs(features).max(axis=1) <= feature_sizes(X) * (1 + 1e-15))
    # Half of the entries at either end: the bound is reached.
    assert feature_sizes([[-1.0, 3.0]])[0] == kernel_features([[-1.0, 3.0]], [0.0])[0, 0] == 12.0


def test_outputs_are_integrals_of_features():
    x, w = [0.3, -2.0, 1.4, 0.7], -0.37

    def feature(v):
        weights = [mpmath.exp(v * x[-1] * entry) for entry in map(mpmath.mpf, x)]
        total = mpmath.fsum(weights)
        mean = mpmath.fsum(e * v for e, v in zip(weights, x, strict=True)) / total
        square = mpmath.fsum(e * v * v for e, v in zip(weights, x, strict=True)) / total
        return x[-1] * (square - mean * mean)

    with mpmath.workdps(30):
        integral = float(mpmath.quad(feature, [0, w]))
    exact = tilted_moments([x], [w]).mean[0, 0]
    assert np.mean(x) + integral == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_graded_panels_resolve_every_feature(kind):
    X = draw(kind, 30)
    panels = graded_panels(X, INTERVAL)
    assert tuple(panels.breaks[[0, -1]]) == INTERVAL
    w = np.random.default_rng(1).uniform(*INTERVAL, 100)
    coefficients = panels.coefficients(kernel_features(X, panels.nodes))
    error = panels.at(w).evaluate_many(coefficients) - kernel_features(X, w)
    assert np.all(np.abs(error).max(axis=1) <= 1e-12 * feature_sizes(X) + 1e-15)


@pytest.mark.parametrize("rate", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("interval", [INTERVAL, (0.0, 3.0), (-3.0, 0.0)])
def test_a_bend_at_zero_does_not_hide_between_nodes(rate, interval):
    # Away from zero, where the first nodes are, this feature is flat.
    X = np.array([[-1.0, 1.0]]) * np.sqrt(rate / 2.0)
    panels = graded_panels(X, interval)
    w = (np.linspace(-20.0, 20.0, 401) / rate).clip(*interval)
    coefficients = panels.coefficients(kernel_features(X, panels.nodes))
    error = panels.at(w).evaluate_many(coefficients) - kernel_features(X, w)
    assert np.abs(error).max() <= 1e-12 * feature_sizes(X)[0]


@pytest.mark.parametrize("interval", [(1.0, 3.0), (-3.0, -1.0), (0.0, 2.0)])
def test_an_interval_on_one_side_of_zero(interval):
    X = draw("normal", 10)
    breaks = first_breaks(X, interval)
    assert (breaks[0], breaks[-1]) == interval
    panels = graded_panels(X, interval)
    w = np.linspace(*interval, 50)
    coefficients = panels.coefficients(kernel_features(X, panels.nodes))
    error = panels.at(w).evaluate_many(coefficients) - kernel_features(X, w)
    assert np.abs(error).max() < 1e-11


def test_too_many_panels_is_an_error():
    X = np.array([[0.0, 1.0, 1e-3 + 1.0, 1e60]])
    with pytest.raises(ValueError, match="panels"):
        graded_panels(np.geomspace(1e-30, 1e30, 30)[:, None] * X, (-1e90, 1e90), tol=0.0)
