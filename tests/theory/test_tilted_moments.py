"""Moments of a window under its softmax, against brute force and 50-digit arithmetic."""

from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest

from skcurse.theory.tilted_moments import (
    last_step_attention,
    query_moments,
    tilted_moments,
    tilts,
)

WEIGHTS = np.array([0.0, 1e-9, -0.3, 0.7, -2.0, 4.0, 60.0, -900.0])


def windows(name):
    rng = np.random.default_rng(7)
    X = {
        "normal": rng.normal(size=(9, 16)),
        "two entries": rng.normal(size=(5, 2)),
        "ties": rng.integers(-2, 3, size=(9, 6)).astype(float),
        "one outlier": np.where(np.arange(12) == 3, 50.0, rng.normal(size=(6, 12))),
        "far from zero": 300.0 + rng.normal(size=(6, 8)),
        "heavy tails": rng.standard_t(1.5, size=(8, 10)),
    }
    return X[name]


NAMES = ["normal", "two entries", "ties", "one outlier", "far from zero", "heavy tails"]


def exact(x, w):
    """Softmax weights, mean and variance of one window with 50 digits."""
    with mpmath.workdps(50):
        x = [mpmath.mpf(float(v)) for v in x]
        e = [mpmath.exp(mpmath.mpf(float(w)) * x[-1] * v) for v in x]
        S = [v / mpmath.fsum(e) for v in e]
        mean = mpmath.fdot(S, x)
        var = mpmath.fdot(S, [(v - mean) ** 2 for v in x])
        return S, mean, var


@pytest.mark.parametrize("name", NAMES)
def test_moments_and_attention_agree_with_fifty_digits(name):
    X = windows(name)[:4]
    mean, var = tilted_moments(X, WEIGHTS)
    attention = last_step_attention(X, WEIGHTS)
    eps = np.finfo(float).eps
    for i, x in enumerate(X):
        for r, w in enumerate(WEIGHTS):
            S, true_mean, true_var = exact(x, w)
            # What a relative error of the scores' spread by eps does to an exponential.
            slack = eps * (4 + abs(w * x[-1]) * np.ptp(x))
            assert abs(mean[i, r] - true_mean) <= 4 * slack * np.ptp(x) + eps * abs(x).max()
            assert abs(attention[i, r] - S[-1]) <= 4 * slack * S[-1] + 1e-300
            assert abs(var[i, r] - true_var) <= 4 * slack * len(x) * true_var + 1e-300


def test_variance_keeps_its_digits_where_the_window_has_one_outlier():
    # The hardest window for a difference of moments: at w = 0 the lone reference entry has 1/d.
    x = np.r_[1e3, np.linspace(0.0, 1e-3, 99)]
    _, var = tilted_moments([x], [0.0])
    assert abs(var[0, 0] / float(exact(x, 0.0)[2]) - 1) < 1e-14


def test_huge_and_tiny_windows_are_exact_limits():
    X = np.array([[1e300, -1e300, 5e299], [1e-300, -1e-300, 5e-301], [3.0, 3.0, 3.0]])
    with np.errstate(all="raise", under="ignore"):
        mean, var = tilted_moments(X, [1.0, -1.0])
    np.testing.assert_array_equal(mean[0], [1e300, -1e300])
    np.testing.assert_array_equal(var[0], 0.0)
    np.testing.assert_allclose(mean[1], X[1].mean())
    np.testing.assert_array_equal((mean[2], var[2]), [[3.0, 3.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    "function", [lambda *a, **k: np.array(tilted_moments(*a, **k)), last_step_attention]
)
def test_blocks_change_rounding_only_and_maps_not_even_that(function):
    X = np.random.default_rng(0).normal(size=(70, 9))
    w = np.random.default_rng(1).normal(size=333)
    whole = function(X, w)
    for block_bytes in (1, 2**14, 2**17):
        np.testing.assert_allclose(function(X, w, block_bytes=block_bytes), whole, rtol=1e-12)
    with ThreadPoolExecutor(3) as pool:
        parallel = function(X, w, block_bytes=2**15, map=pool.map)
    np.testing.assert_array_equal(parallel, function(X, w, block_bytes=2**15))


@pytest.mark.parametrize("cache_bytes", [1, 1000, 2**14, 2**24])
def test_cache_blocks_change_rounding_only(cache_bytes):
    X, w = windows("normal"), np.random.default_rng(1).normal(size=77)
    whole, cut = query_moments(X, tilts(w)), query_moments(X, tilts(w), cache_bytes=cache_bytes)
    np.testing.assert_allclose(cut.mean, whole.mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(cut.var, whole.var, rtol=1e-12)
