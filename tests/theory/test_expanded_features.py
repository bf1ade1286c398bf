"""Features from Chebyshev moments of the rows, against exact arithmetic and the direct formula."""

import mpmath
import numpy as np
import pytest
from window_kinds import KINDS, draw, width

from skcurse.theory import expanded_features
from skcurse.theory.expanded_features import ExpandedFeatures
from skcurse.theory.feature_panels import feature_sizes
from skcurse.theory.ntk import kernel_features
from skcurse.theory.tilted_moments import tilted_moments


def exact_features(x, weights):
    """x_d var(x; w), with 40 digits."""
    with mpmath.workdps(40):
        x = [mpmath.mpf(entry) for entry in x]
        features = []
        for w in map(mpmath.mpf, weights):
            share = [mpmath.exp(w * x[-1] * entry) for entry in x]
            total = mpmath.fsum(share)
            mean = mpmath.fdot(share, x) / total
            var = mpmath.fdot(share, [(entry - mean) ** 2 for entry in x]) / total
            features.append(float(x[-1] * var))
        return np.array(features)


@pytest.mark.parametrize("score", [0.0, 1e-3, 3.99, 4.01, 15.0, 17.0, 60.0, 70.0, 255.0])
@pytest.mark.parametrize("n_features", [2, 5, 64])
def test_features_in_exact_arithmetic(score, n_features):
    # Of every group of rates a row whose largest score is this one.
    x = np.random.default_rng(n_features).standard_normal(n_features)
    x *= np.sqrt(score / 3.0 / width(x[None]))
    w = 3.0 * np.array([-1.0, -0.5, -0.24, -0.05, 0.0, 1e-9, 0.06, 0.25, 0.26, 0.7, 1.0])
    found = ExpandedFeatures(x[None], (-3.0, 3.0))(w)[0]
    # The direct formula is off by 1e-15 here.
    assert np.abs(found - exact_features(x, w)).max() <= 6e-15 * feature_sizes(x[None])[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-100, 1e-4, 0.1, 1.0, 7.0])
def test_kinds_and_scales_of_windows(kind, scale):
    X, interval = scale * draw(kind, 300), (-4.0, 2.5)
    w = np.random.default_rng(0).uniform(*interval, 50)
    error = np.abs(ExpandedFeatures(X, interval)(w) - kernel_features(X, w)).max(axis=1)
    # The scores are rounded as well.
    assert np.all(error <= (1e-14 + 1e-16 * 4.0 * width(X)) * feature_sizes(X))


@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
def test_long_windows_lose_no_digits(kind):
    # Hundreds of entries whose rounding errors would drown the one with the largest score.
    draw_entries = np.random.default_rng(0)
    shape = (100, 1000)
    X = draw_entries.standard_normal(shape)
    if kind == "heavy tails":
        X = draw_entries.standard_t(3, shape)
    w = np.linspace(-4.0, 4.0, 41)
    error = np.abs(ExpandedFeatures(X, (-4.0, 4.0))(w) - kernel_features(X, w)).max(axis=1)
    assert np.all(error <= 5e-14 * feature_sizes(X))
    assert np.median(error / feature_sizes(X)) <= 1e-14


def test_steep_rows_take_the_direct_formula(monkeypatch):
    X = draw("normal", 50)
    X[7] *= 100.0
    w = np.linspace(-4.0, 4.0, 9)
    asked = []
    monkeypatch.setattr(
        expanded_features,
        "tilted_moments",
        lambda rows, weights: asked.append(rows) or tilted_moments(rows, weights),
    )
    features = ExpandedFeatures(X, (-4.0, 4.0))(w)
    np.testing.assert_array_equal(features[7], kernel_features(X[7:8], w)[0])
    np.testing.assert_array_equal(np.concatenate(asked), X[7:8])


@pytest.mark.parametrize("interval", [(-3.0, 0.0), (0.0, 3.0), (0.0, 0.0), (-1e-5, 2.0)])
def test_intervals_with_one_side(interval):
    X = draw("normal", 40)
    w = np.linspace(*interval, 7)
    np.testing.assert_allclose(
        ExpandedFeatures(X, interval)(w), kernel_features(X, w), rtol=1e-12, atol=1e-13
    )


def test_many_rows_in_blocks_are_the_same_rows(monkeypatch):
    X, w = draw("heavy tails", 400), np.linspace(-3.0, 3.0, 30)
    whole = ExpandedFeatures(X, (-3.0, 3.0))(w)
    monkeypatch.setattr(expanded_features, "_CELLS", 2**10)
    blocks = ExpandedFeatures(X, (-3.0, 3.0))(w)
    assert np.all(np.abs(blocks - whole).max(axis=1) <= 1e-14 * feature_sizes(X))


def test_weights_in_any_order():
    X, w = draw("normal", 30), np.array([2.0, -1.0, 0.0, 0.3, -3.0, 0.3])
    features = ExpandedFeatures(X, (-3.0, 2.0))
    by_size = np.argsort(w)
    np.testing.assert_allclose(
        features(w)[:, by_size], features(w[by_size]), rtol=1e-12, atol=1e-14
    )
    assert features([]).shape == (30, 0)


def test_left_out_coefficients_are_negligible():
    # Σ_q c_q(z) T_q(t) without them is exp(-z (1 + t)) to less than rounding.
    widths = np.diff(expanded_features._SCORES, prepend=0.0) / 2.0
    for degree, z in zip(expanded_features._degrees(), widths, strict=True):
        with mpmath.workdps(30):
            tail = mpmath.nsum(
                lambda q, z=z: 2 * mpmath.exp(-z) * mpmath.besseli(q, z), [degree, mpmath.inf]
            )
        assert tail < 3e-17


def test_features_that_overflow_are_not_finite():
    X = 1e150 * draw("normal", 10)
    features = ExpandedFeatures(X, (-1.0, 1.0))([1e-310])
    np.testing.assert_array_equal(np.isfinite(features[:, 0]), np.isfinite(feature_sizes(X)))
