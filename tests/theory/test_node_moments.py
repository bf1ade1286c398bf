"""Moments at the nodes of panels, from shared exponentials, against one exponential each."""

import mpmath
import numpy as np
import pytest
from window_kinds import KINDS, draw

from skcurse.theory.node_moments import node_moments
from skcurse.theory.panels import Panels
from skcurse.theory.tilted_moments import tilted_moments

BREAKS = {
    "halved often": np.concatenate([[0.0], 2.0 ** np.arange(-9.0, 3.0)]),
    "both sides": np.array([-4.0, -2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0]),
    "no two alike": np.array([-3.1, -0.7, -0.1, 0.0, 0.3, 1.9]),
    "away from zero": np.array([2.0, 2.5, 3.0, 3.25, 3.5]),
    "negative only": np.array([-8.0, -4.0, -3.0]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BREAKS)
def test_nodes_of_all_panels(kind, name):
    X, panels = draw(kind, 40), Panels(BREAKS[name], 12)
    mean, var = node_moments(X, panels.breaks[:-1], panels.breaks[1:], 12)
    exact = tilted_moments(X, panels.nodes)
    span = np.ptp(X, axis=1, keepdims=True)
    # The nodes themselves are rounded, and the rates of windows far from zero multiply that.
    rate = np.abs(X[:, -1:]) * span * np.abs(panels.nodes)
    tol = 1e-15 * (30.0 + rate)
    assert np.all(np.abs(mean + X[:, -1:] - exact.mean) <= tol * span + 1e-13 * np.abs(X[:, -1:]))
    assert np.all(np.abs(var - exact.var) <= tol * span**2)


def test_in_exact_arithmetic():
    x, breaks = np.array([0.3, -2.0, 1.1, 0.7]), [-2.0, -1.0, 0.0, 0.125, 0.25, 0.5, 1.0, 2.0]
    panels = Panels(breaks, 6)
    mean, var = node_moments(x[None], breaks[:-1], breaks[1:], 6)
    with mpmath.workdps(50):
        entries = [mpmath.mpf(entry) for entry in x]
        for node, first, second in zip(panels.nodes, mean[0], var[0], strict=True):
            e = [mpmath.exp(mpmath.mpf(node) * entries[-1] * entry) for entry in entries]
            share = [value / mpmath.fsum(e) for value in e]
            exact = mpmath.fdot(share, entries)
            spread = mpmath.fdot(share, [(entry - exact) ** 2 for entry in entries])
            assert first == pytest.approx(float(exact - x[-1]), rel=3e-15, abs=3e-15)
            assert second == pytest.approx(float(spread), rel=1e-14)


def test_panels_need_not_be_adjacent_nor_ordered():
    X = draw("normal", 7)
    low, high = np.array([1.0, -2.0, 0.0]), np.array([1.5, -1.0, 0.5])
    mean, var = node_moments(X, low, high, 8)
    for k, ends in enumerate(zip(low, high, strict=True)):
        alone = node_moments(X, [ends[0]], [ends[1]], 8)
        np.testing.assert_allclose(mean[:, 8 * k : 8 * k + 8], alone.mean, atol=1e-14)
        np.testing.assert_allclose(var[:, 8 * k : 8 * k + 8], alone.var, rtol=1e-12, atol=1e-300)


def test_many_rows_in_blocks_are_the_same_rows():
    X = np.random.default_rng(0).standard_normal((3000, 40))
    low, high = np.linspace(-2, 1.5, 8), np.linspace(-1.5, 2, 8)
    whole = node_moments(X, low, high, 16)
    last = node_moments(X[-2:], low, high, 16)
    np.testing.assert_allclose(whole.mean[-2:], last.mean, rtol=1e-13, atol=1e-14)


def test_huge_rates_neither_overflow_nor_make_nan():
    X = 1e140 * draw("normal", 10)
    mean, var = node_moments(X, [0.0, -1e20], [1e-280, 0.0], 8)
    assert np.isfinite(mean).all()
    assert np.isfinite(var).all()
    assert np.all(var >= 0.0)


def test_zero_inside_a_panel_is_an_error():
    with pytest.raises(ValueError, match="w = 0"):
        node_moments(draw("normal", 5), [-1.0], [1.0], 8)
