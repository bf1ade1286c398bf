"""Gram matrices of windows from the series: against windows written out, and their guard."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.testing import assert_allclose, assert_array_equal

from skcurse.theory import window_gram as module
from skcurse.theory.residual_regression import add_rows, residual_problem, solve_factor
from skcurse.theory.window_gram import window_gram, window_rows, window_series

rng = np.random.default_rng(0)
SERIES = {
    "white": rng.normal(size=400),
    "level": 1e5 + rng.normal(size=400),
    "walk": np.cumsum(rng.normal(size=400)),
    "trend": 3.0 * np.arange(400.0) + rng.normal(size=400),
    "burst": np.where(np.arange(400) == 0, 1e3, rng.normal(size=400)),
}


def smooth(n, bandwidth, seed=0):
    """White noise with its high frequencies damped: windows become collinear."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).normal(size=n))
    return np.fft.irfft(spectrum * np.exp(-np.arange(len(spectrum)) / (bandwidth * n)), n)


# --- which matrices are windows --------------------------------------------------------------


def test_windows_are_known_by_their_strides():
    series = np.arange(20.0)
    windows = sliding_window_view(series, 6)
    for view in (windows, windows[:, :4], windows[3:9], sliding_window_view(series[::2], 4)):
        found = window_series(view)
        assert_array_equal(sliding_window_view(found, view.shape[1]), view)
    column = np.arange(60.0).reshape(20, 3)[:, 1]
    assert_array_equal(window_series(sliding_window_view(column, 5)), column)
    assert_array_equal(window_series(np.broadcast_to(7.0, (5, 3))), np.full(7, 7.0))
    assert window_series(windows.astype(np.float32)) is None


@pytest.mark.parametrize(
    "matrix",
    [
        np.ones((5, 3)),
        np.asfortranarray(np.ones((5, 3))),
        sliding_window_view(np.arange(20.0), 6)[::2],
        sliding_window_view(np.arange(20.0), 6)[:, ::-1],
        sliding_window_view(np.arange(20.0), 6)[:, ::2],
        np.ones((4, 1)),
        np.ones((1, 1)),
    ],
    ids=["C", "F", "stepped", "reversed", "thinned", "column", "number"],
)
def test_other_matrices_are_not_taken_for_windows(matrix):
    assert window_series(matrix) is None


# --- the recursion ---------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), [(1, 1), (1, 5), (5, 1), (4, 4), (3, 7), (7, 3)])
def test_recursion_is_exact_on_integers(p, q):
    n = 30
    left = rng.integers(-9, 10, size=n + p - 1).astype(float)
    right = rng.integers(-9, 10, size=n + q - 1).astype(float)
    expected = sliding_window_view(left, p).T @ sliding_window_view(right, q)
    assert_array_equal(window_gram(left, right, n), expected)


@pytest.mark.parametrize("n", [100, 20_000])
def test_recursion_adds_up_to_rounding(n):
    """Rational arithmetic along the last diagonal, where most steps have been taken."""
    p = 60
    series = np.random.default_rng(1).normal(size=n + p - 1)
    gram = window_gram(series, series, n)
    exact = sum(Fraction(x) * Fraction(x) for x in series[p - 1 :])
    assert abs(gram[-1, -1] - exact) < 200 * np.finfo(float).eps * exact
    assert_allclose(gram, gram.T, rtol=0, atol=1e-13 * n)


# --- rows that stand for all windows ---------------------------------------------------------


def case(name, horizon, d=9):
    series = SERIES[name]
    n = len(series) - d - horizon + 1
    X = sliding_window_view(series, d)[:n]
    return X, sliding_window_view(series[d:], horizon)[:n]


@pytest.mark.parametrize("as_view", [True, False])
@pytest.mark.parametrize("last_step", [8, 0, 4])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("name", SERIES)
def test_rows_have_the_products_of_the_whole_design(name, centered, last_step, as_view):
    X, y = case(name, horizon=3)
    found = window_rows(
        window_series(X), y if as_view else y.copy(), X.shape[1], last_step, centered
    )
    if found is None:
        assert (name, centered) == ("walk", False) or name == "burst"
        return
    rows, origin = found
    assert rows.shape[0] <= X.shape[1] + 1
    design = np.hstack(residual_problem(X, y, last_step, centered)) - origin
    design = np.hstack([np.ones((len(X), 1)), design])
    d = X.shape[1]
    scale = np.linalg.norm(design, axis=0)
    assert_allclose(
        (rows[:, :d].T @ rows) / np.outer(scale[:d], scale),
        (design[:, :d].T @ design) / np.outer(scale[:d], scale),
        rtol=0,
        atol=1e-11,
    )


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("bandwidth", [np.inf, 0.3, 0.1, 0.05, 0.03, 0.01, 0.001])
def test_whatever_route_is_taken_no_digits_are_lost(bandwidth, centered):
    """Eight digits of the coefficients that a QR decomposition of the windows finds."""
    series = smooth(2000, bandwidth)
    X, y = sliding_window_view(series, 12)[:-1], series[12:, None]
    by_gram, by_rows = (
        solve_factor(add_rows(None, windows, y, last_step=11, centered=centered))[0]
        for windows in (X, X.copy())
    )
    assert np.abs(by_gram - by_rows).max() < 1e-8 * np.abs(by_rows).max()


def test_the_guard_is_what_keeps_the_digits(monkeypatch):
    series = smooth(2000, 0.02)
    X, y = sliding_window_view(series, 12)[:-1], series[12:, None]
    assert window_rows(series[:-1], y, 12, 11) is None
    monkeypatch.setattr(module, "_GRAM_LOSS", np.inf)
    assert window_rows(series[:-1], y, 12, 11) is not None
    by_gram, by_rows = (
        solve_factor(add_rows(None, windows, y, last_step=11))[0] for windows in (X, X.copy())
    )
    assert np.abs(by_gram - by_rows).max() > 1e-6 * np.abs(by_rows).max()


def test_differences_make_a_moving_level_harmless():
    """Windows of a series that moves far and slowly are collinear, their differences are not."""
    walk = np.cumsum(np.random.default_rng(0).normal(size=2000))
    series = walk + 3000.0 * np.sin(np.arange(2000.0) / 500.0)
    arguments = series[:-1], series[24:, None], 24, 23
    assert window_rows(*arguments, centered=False) is None
    assert window_rows(*arguments, centered=True) is not None


DEGENERATE = {
    "constant": np.full(100, 3.0),
    "line": np.arange(100.0),
    "sine": np.sin(np.arange(100.0)),
    "overflow": np.tile([1.7e308, -1.7e308], 50),
}


@pytest.mark.filterwarnings("ignore:(overflow|invalid):RuntimeWarning")
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("name", DEGENERATE)
def test_leaves_to_others_what_it_cannot_do(name, centered):
    series = DEGENERATE[name]
    assert window_rows(series[:-1], series[10:, None], 10, 9, centered) is None


def test_too_few_windows_are_cheaper_to_decompose():
    series = SERIES["white"]
    assert window_rows(series[:48], series[10:49, None], 10, 9) is None
    assert window_rows(series[:49], series[10:50, None], 10, 9) is not None
