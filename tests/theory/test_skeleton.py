"""Curves, graded panels and skeletons against the direct formula."""

import numpy as np
import pytest
from curve_rows import KINDS, draw, width

from skcurse.theory.curves import OUTPUTS, SLOPES, curve_values
from skcurse.theory.skeleton import digested_skeleton, find_skeleton, rebuilding_errors

INTERVAL = (-4.0, 4.0)


@pytest.mark.parametrize("curves", [OUTPUTS, SLOPES], ids=["outputs", "slopes"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_samples", [5, 1500, 5000])
def test_skeleton_rebuilds_every_curve(kind, n_samples, curves):
    X = draw(kind, n_samples)
    skeleton = find_skeleton(X, INTERVAL, curves=curves)
    assert skeleton.errors(X).max() <= skeleton.tol
    w = np.random.default_rng(2).uniform(*INTERVAL, 60)
    T = skeleton.panels.at(w).evaluate_many(skeleton.coefficients)
    error = curve_values(X, skeleton.weights, curves) @ T - curve_values(X, w, curves)
    assert np.all(np.abs(error).max(axis=1) <= 2e-11 * curves.size(X) + 1e-15)
    assert skeleton.weights.size <= 200


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
    np.testing.assert_allclose(values, curve_values(X, skeleton.weights), rtol=1e-12, atol=1e-15)


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


@pytest.mark.parametrize("scale", [1e10, 1e100, 1e160])
def test_scores_far_too_large_are_refused_before_any_work(scale, monkeypatch):
    monkeypatch.setattr("skcurse.theory.skeleton.resolved_curves", None)
    X = scale * np.random.default_rng(0).standard_normal((50, 4))
    with pytest.raises(ValueError, match="cannot be tabulated: scale X down"):
        find_skeleton(X, (-1.0, 1.0))
