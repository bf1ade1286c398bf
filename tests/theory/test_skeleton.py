"""Skeletons against the direct formula."""

import numpy as np
import pytest
from window_kinds import KINDS, draw, width

from skcurse.theory.compression import compress, compressed_forward
from skcurse.theory.feature_panels import divisors, feature_sizes
from skcurse.theory.ntk import kernel_features
from skcurse.theory.skeleton import digested_skeleton, find_skeleton, rebuilding_errors
from skcurse.theory.tilted_moments import tilted_moments

INTERVAL = (-4.0, 4.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_samples", [5, 1500, 5000])
def test_skeleton_rebuilds_every_feature_and_output(kind, n_samples):
    X = draw(kind, n_samples)
    skeleton = find_skeleton(X, INTERVAL)
    assert skeleton.errors(X).max() <= skeleton.tol
    w = np.random.default_rng(2).uniform(*INTERVAL, 60)
    values, points = kernel_features(X, skeleton.weights), skeleton.panels.at(w)
    error = values @ points.evaluate_many(skeleton.coefficients) - kernel_features(X, w)
    assert np.all(np.abs(error).max(axis=1) <= 2e-11 * feature_sizes(X) + 1e-15)
    outputs = X.mean(axis=1)[:, None] + values @ points.evaluate_many(skeleton.integrals)
    error = np.abs(outputs - tilted_moments(X, w).mean)
    # Features with rates of thousands are as large; rounding errors are relative to the level.
    level = np.abs(X).max(axis=1)
    assert np.all(error.max(axis=1) <= 5e-11 * np.ptp(X, axis=1) + 1e-14 * level)
    assert skeleton.weights.size <= 200


@pytest.mark.parametrize("interval", [(1.0, 3.0), (-3.0, -0.5)])
def test_zero_is_covered_as_outputs_are_summed_up_from_there(interval):
    X = draw("normal", 100)
    skeleton = find_skeleton(X, interval)
    assert skeleton.panels.covers([0.0, *interval])
    T = skeleton.panels.at(interval).evaluate_many(skeleton.integrals)
    outputs = X.mean(axis=1)[:, None] + kernel_features(X, skeleton.weights) @ T
    np.testing.assert_allclose(outputs, tilted_moments(X, interval).mean, atol=1e-11)


def test_blocks_are_digested_with_their_own_columns():
    X = draw("normal", 5000)
    column = np.arange(5000.0)
    skeleton, parts = digested_skeleton(
        X,
        INTERVAL,
        lambda skeleton, rows, values, numbers: (rows[:, 0], values, numbers),
        (column,),
    )
    first, values, numbers = map(np.concatenate, zip(*parts, strict=True))
    assert len(parts) > 1
    np.testing.assert_array_equal(first, X[:, 0])
    np.testing.assert_array_equal(numbers, column)
    np.testing.assert_allclose(values, kernel_features(X, skeleton.weights), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
def test_uncovered_rows_are_recognised(kind):
    seen = draw(kind, 300)
    skeleton = find_skeleton(seen, INTERVAL)
    unseen = draw(kind, 4000, seed=1)
    w = np.linspace(*INTERVAL, 200)
    T = skeleton.panels.at(w).evaluate_many(skeleton.coefficients)
    error = np.abs(kernel_features(unseen, skeleton.weights) @ T - kernel_features(unseen, w)).max(
        axis=1
    )
    relative = error / divisors(unseen)
    covered = skeleton.errors(unseen) <= skeleton.tol
    assert covered.mean() > 0.97
    assert relative[covered].max() < 10 * skeleton.tol
    wide = 5.0 * unseen
    too_wide = width(wide) > 4.0 * width(seen).max()
    assert too_wide.any()
    assert np.all(skeleton.errors(wide[too_wide]) > skeleton.tol)


def test_errors_are_relative_to_the_size():
    X = np.array([[0.0, 2.0], [0.0, 20.0], [1.0, 1.0]])
    values = np.array([[1.0, 0.5], [1.0, 0.5], [0.0, 0.0]])
    np.testing.assert_allclose(
        rebuilding_errors(X, values, np.array([[0.6]]), 400.0), [0.05, 0.00005, 0.0], atol=1e-15
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


@pytest.mark.parametrize("scale", [1e10, 1e100, 1e160])
def test_scores_far_too_large_are_refused_before_any_work(scale, monkeypatch):
    monkeypatch.setattr("skcurse.theory.skeleton.resolved_features", None)
    X = scale * np.random.default_rng(0).standard_normal((50, 4))
    with pytest.raises(ValueError, match="cannot be tabulated: scale X down"):
        find_skeleton(X, (-1.0, 1.0))


@pytest.mark.parametrize("factor", [3.0, 100.0, 1e4, 1e8])
def test_rows_far_steeper_than_all_others_are_not_covered(factor):
    # Their features are spikes at w = 0, between all weights at which one looks.
    X = draw("normal", 200)
    skeleton = find_skeleton(X, INTERVAL)
    steep = draw("normal", 50, seed=3)[4:]
    steep[:, -1] *= factor * width(X).max() / width(steep)
    assert np.all(skeleton.errors(steep) > skeleton.tol)
    network = compress(skeleton, [(np.array([2.0]), np.array([1.0]))])
    exact = tilted_moments(steep, [2.0]).mean
    found = compressed_forward(steep, network, lambda rows: tilted_moments(rows, [2.0]).mean)
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("outlier", [10.0, 100.0, 1e3, 1e4])
def test_rows_between_the_steepest_and_all_others_are_rebuilt_or_not_covered(outlier):
    X = draw("normal", 800)
    X[5] *= outlier
    skeleton = find_skeleton(X, (-12.0, 12.0))
    between = X[5] * np.geomspace(0.01, 1.0, 200)[:, None]
    w = np.concatenate(
        [np.linspace(-12.0, 12.0, 101), np.linspace(-20.0, 20.0, 81) / width(X[5:6])]
    )
    values, points = kernel_features(between, skeleton.weights), skeleton.panels.at(w)
    features = values @ points.evaluate_many(skeleton.coefficients) - kernel_features(between, w)
    outputs = values @ points.evaluate_many(skeleton.integrals) + between.mean(axis=1)[:, None]
    covered = skeleton.errors(between) <= skeleton.tol
    assert covered[-1]
    assert np.all(np.abs(features).max(axis=1)[covered] <= 1e-8 * feature_sizes(between)[covered])
    error = np.abs(outputs - tilted_moments(between, w).mean).max(axis=1)
    # Features are rounded in units of their largest, rate * range / 4, and integrated to w = 12.
    limit = (1e-8 + 12.0 * np.finfo(float).eps / 4.0 * width(between)) * np.ptp(between, axis=1)
    assert np.all(error[covered] <= limit[covered])
