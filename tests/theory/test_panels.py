"""Piecewise Chebyshev interpolation and its transpose against the functions themselves."""

import mpmath
import numpy as np
import pytest
from numpy.polynomial import chebyshev

from skcurse.theory.panels import Panels, PointsOnPanels, chebyshev_basis, chebyshev_rule

FUNCTIONS = [np.sin, np.exp, lambda w: 1.0 / (1.0 + w**2), lambda w: np.ones_like(w)]
BREAKS = np.array([-1.0, -0.25, 0.0, 0.5, 0.75, 1.5])


@pytest.fixture
def points():
    inside = np.random.default_rng(0).uniform(BREAKS[0], BREAKS[-1], 200)
    return np.concatenate([inside, BREAKS])


@pytest.mark.parametrize("order", [2, 3, 7, 16, 33])
def test_basis_is_chebyshev(order):
    t = np.linspace(-1, 1, 41)
    expected = chebyshev.chebvander(t, order - 1).T
    np.testing.assert_allclose(chebyshev_basis(t, order), expected, atol=1e-12)


@pytest.mark.parametrize("order", [2, 5, 16])
def test_rule_transforms_and_differentiates_polynomials_exactly(order):
    nodes, transform, derivative = chebyshev_rule(order)
    coefficients = np.random.default_rng(1).standard_normal(order)
    values = chebyshev.chebval(nodes, coefficients)
    np.testing.assert_allclose(transform @ values, coefficients, atol=1e-13)
    expected = chebyshev.chebder(coefficients)
    np.testing.assert_allclose((derivative @ coefficients)[: order - 1], expected, atol=1e-12)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_interpolates_values_and_derivatives(f, points):
    panels = Panels(BREAKS)
    coefficients = panels.coefficients(f(panels.nodes))
    located = panels.at(points)
    np.testing.assert_allclose(located.evaluate(coefficients), f(points), atol=1e-13)
    step = 1e-6
    slope = (f(points + step) - f(points - step)) / (2 * step)
    found = located.evaluate(panels.derivative(coefficients))
    np.testing.assert_allclose(found, slope, atol=1e-8)


@pytest.mark.parametrize("breaks", [BREAKS, [0.5, 1.0, 3.0], [-3.0, -1.0, -0.5], [0.0, 2.0]])
def test_antiderivative_is_the_integral_from_the_break_nearest_to_zero(breaks):
    panels = Panels(breaks)
    points = np.random.default_rng(5).uniform(breaks[0], breaks[-1], 50)
    start = min(breaks, key=abs)
    both = panels.coefficients(np.stack([np.exp(panels.nodes), 3.0 * panels.nodes**2]))
    found = panels.at(points).evaluate_many(panels.antiderivative(both))
    exact = np.stack([np.exp(points) - np.exp(start), points**3 - start**3])
    np.testing.assert_allclose(found, exact, atol=1e-12)


@pytest.mark.parametrize("block_bytes", [0, 2**26])
@pytest.mark.parametrize("n_points", [1, 50, 3 * PointsOnPanels.chunk + 7])
def test_moments_integrate_what_evaluate_interpolates(n_points, block_bytes):
    rng = np.random.default_rng(2)
    points, masses = rng.uniform(BREAKS[0], BREAKS[-1], n_points), rng.standard_normal(n_points)
    panels = Panels(BREAKS)
    moments = panels.at(points, block_bytes=block_bytes).moments(masses)
    for f in FUNCTIONS:
        values = f(panels.nodes)
        expected = masses @ f(points)
        tolerance = 1e-12 * np.abs(masses).sum()
        assert panels.coefficients(values) @ moments == pytest.approx(expected, abs=tolerance)
        assert values @ panels.node_masses(moments) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("n_points", [1, 5, 2 * PointsOnPanels.chunk + 3])
def test_many_functions_and_their_gram_matrix(n_points):
    rng = np.random.default_rng(3)
    points, masses = rng.uniform(BREAKS[0], BREAKS[-1], n_points), rng.uniform(0, 2, n_points)
    panels = Panels(BREAKS)
    coefficients = np.stack([panels.coefficients(f(panels.nodes)) for f in FUNCTIONS])
    values = np.stack([f(points) for f in FUNCTIONS])
    located = panels.at(points)
    np.testing.assert_allclose(located.evaluate_many(coefficients), values, atol=1e-13)
    root = located.gram_root(coefficients, masses)
    assert root.shape == coefficients.shape
    np.testing.assert_allclose(root @ root.T, (values * masses) @ values.T, rtol=1e-11, atol=1e-11)


def test_quadrature_is_exact_for_polynomials_of_twice_the_degree():
    points, weights = Panels(BREAKS, 8).quadrature()
    for degree in range(16):
        exact = (BREAKS[-1] ** (degree + 1) - BREAKS[0] ** (degree + 1)) / (degree + 1)
        assert weights @ points**degree == pytest.approx(exact, abs=1e-12)


def test_split_halves_every_panel():
    finer = Panels(BREAKS).split()
    assert finer.n_panels == 2 * (BREAKS.size - 1)
    np.testing.assert_allclose(np.sort(np.unique(finer.halves)), np.unique(np.diff(BREAKS)) / 4)


@pytest.mark.parametrize(
    ("points", "covered"), [([-1.0, 1.5], True), ([-1.001], False), ([0.0, 1.6], False)]
)
def test_covers(points, covered):
    assert Panels(BREAKS).covers(points) is covered


@pytest.mark.parametrize("breaks", [[0.0], [1.0, 0.0], [0.0, 0.0], [[0.0, 1.0]]])
def test_breaks_must_increase(breaks):
    with pytest.raises(ValueError, match="increasing"):
        Panels(breaks)


def test_points_that_stay_on_their_panels_are_moved():
    panels = Panels([-2.0, -0.5, 0.0, 1.0, 3.0], 12)
    rng = np.random.default_rng(0)
    start = rng.uniform(-2.0, 3.0, 5000)
    coefficients = panels.coefficients(np.sin(panels.nodes))
    points = panels.at(start)
    middle = panels.centers[np.searchsorted(panels.breaks[1:-1], start, side="right")]
    moved = start + 0.3 * (middle - start)
    assert points.move(moved)
    np.testing.assert_allclose(points.evaluate(coefficients), np.sin(moved), atol=1e-9)
    masses = rng.standard_normal(5000)
    np.testing.assert_allclose(points.moments(masses), panels.at(moved).moments(masses), atol=1e-11)
    assert not points.move(moved[:-1])
    half = panels.halves[np.flatnonzero(panels.centers == middle[0])[0]]
    for outside in (-moved[0], middle[0] + 1.01 * half, middle[0] - 1.01 * half, np.nan):
        astray = moved.copy()
        astray[0] = outside
        assert not points.move(astray)
    # A move that fails leaves the points where they were.
    np.testing.assert_allclose(points.evaluate(coefficients), np.sin(moved), atol=1e-9)
    assert not panels.at(start, block_bytes=0).move(moved)


@pytest.mark.parametrize("order", [2, 16, 87])
def test_the_rule_is_exact_to_rounding(order):
    nodes, transform, _ = chebyshev_rule(order)
    with mpmath.workdps(30):
        angles = [mpmath.pi * (2 * j + 1) / (2 * order) for j in reversed(range(order))]
        exact = [[2 * mpmath.cos(q * angle) / order for angle in angles] for q in range(order)]
        np.testing.assert_allclose(nodes, [float(mpmath.cos(a)) for a in angles], atol=2e-16)
    exact = np.array(exact, dtype=float)
    exact[0] /= 2.0
    np.testing.assert_allclose(transform, exact, atol=8e-16 / order)
