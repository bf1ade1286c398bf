"""The triangular factor: what it keeps, and what the solution reads from it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcurse.theory.residual_regression import (
    add_rows,
    column_weights,
    newest_column,
    residual_problem,
    solve_factor,
)

D = 6


def rows(n=50, k=2, seed=0):
    generator = np.random.default_rng(seed)
    return 4.0 + generator.normal(size=(n, D)), generator.normal(size=(n, k))


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("last_step", range(D))
def test_coefficients_of_the_columns_are_the_model(last_step, centered):
    X, y = rows()
    w = np.random.default_rng(1).normal(size=(3, D - 1))
    Z, targets = residual_problem(X, y, last_step, centered)
    by_definition = X[:, [last_step]] + Z @ w.T
    assert_allclose(X @ column_weights(w, last_step, centered).T, by_definition, atol=1e-13)
    assert_array_equal(targets + X[:, [last_step]], (y - X[:, [last_step]]) + X[:, [last_step]])
    others = [k for k in range(D) if k != last_step]
    for j, k in enumerate(others):
        assert_array_equal(Z[:, j], X[:, k] - X[:, last_step] if centered else X[:, k])


@pytest.mark.parametrize("last_step", range(-D, D))
def test_newest_column_counts_as_python_does(last_step):
    assert newest_column(last_step, D) == list(range(D))[last_step]


@pytest.mark.parametrize("last_step", [D, -D - 1, 0.0, None, False])
def test_newest_column_refuses_what_is_none(last_step):
    with pytest.raises(ValueError, match="one of the 6 columns"):
        newest_column(last_step, D)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("block_bytes", [1, 10**4, 2**26])
def test_factor_keeps_the_products_of_the_design(centered, weighted, block_bytes):
    X, y = rows(n=200)
    X[3] *= -100.0
    weights = np.random.default_rng(1).uniform(size=200) if weighted else None
    options = {"last_step": 2, "centered": centered, "block_bytes": block_bytes}
    first = add_rows(None, X[:7], y[:7], None if weights is None else weights[:7], **options)
    kept = first.triangle.copy()
    factor = add_rows(first, X[7:], y[7:], None if weights is None else weights[7:], **options)
    assert_array_equal(first.triangle, kept)
    Z, targets = residual_problem(X, y, 2, centered)
    A = np.hstack([np.ones((200, 1)), np.hstack([Z, targets]) - factor.origin])
    A *= 1.0 if weights is None else np.sqrt(weights)[:, None]
    assert factor.triangle.shape == (D, D + 2)
    assert_allclose(np.tril(factor.triangle[:, :D], -1), 0.0, atol=1e-13)
    assert_allclose(
        factor.triangle[:, :D].T @ factor.triangle, A[:, :D].T @ A, rtol=1e-12, atol=1e-9
    )
    assert factor.n_rows == 200
    assert factor.resolution == np.finfo(float).eps * np.abs(X).max()


def test_directions_within_rounding_of_the_windows_get_no_weight():
    """Windows known to float32 only: what float32 rounding made is not fitted."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 4)) + 1000.0
    X[:, 1] = X[:, 0]
    y = generator.normal(size=(200, 1)) + X[:, [3]]
    rounded = X.astype(np.float32)
    rounded[:, 1] = np.nextafter(rounded[:, 0], np.float32(np.inf), dtype=np.float32)
    rounded[::3, 1] = rounded[::3, 0]
    w, _ = solve_factor(add_rows(None, rounded, y, last_step=3))
    exact, _ = solve_factor(add_rows(None, X, y, last_step=3))
    assert_allclose(w, exact, atol=1e-3)
    trusted, _ = solve_factor(add_rows(None, rounded.astype(np.float64), y, last_step=3))
    assert np.abs(trusted).max() > 100.0  # the same numbers taken for exact


def test_thousands_of_updates_leave_collinear_columns_collinear():
    """Rounding adds up over the updates, but not to a direction that would be fitted."""
    X, y = rows(n=3000)
    X = np.sign(X - 4.0)  # no entry is large, so the entries' own rounding excuses little
    X[:, 1], X[:, 3] = X[:, 0], X[:, 2]
    factor = None
    for i in range(3000):
        factor = add_rows(factor, X[[i]], y[[i]], last_step=5, centered=False)
    Z, targets = residual_problem(X, y, 5, centered=False)
    Z, targets = Z - Z.mean(axis=0), targets - targets.mean(axis=0)
    assert_allclose(
        solve_factor(factor)[0], (np.linalg.pinv(Z, rcond=1e-9) @ targets).T, atol=1e-12
    )


@pytest.mark.parametrize("centered", [True, False])
def test_a_high_level_costs_no_digits(centered):
    """Integers, so that adding the level is exact and the weights are the same."""
    X, y = np.round(rows()[0] * 1e3), np.round(rows()[1] * 1e3)
    low, high = (
        solve_factor(add_rows(None, X + level, y + level, last_step=5, centered=centered))[0]
        for level in (0.0, 2.0**40)
    )
    assert_allclose(high, low, rtol=0, atol=1e-13)


def test_weight_on_no_row_is_refused():
    X, y = rows()
    with pytest.raises(ValueError, match="weight zero"):
        add_rows(None, X, y, np.zeros(50), last_step=0)


def test_shrinks_as_the_ridge_filter_says():
    """Along each right singular vector of the centred design by s² / (s² + alpha)."""
    X, y = rows()
    factor = add_rows(None, X, y, last_step=5)
    Z, targets = residual_problem(X, y, 5)
    _, s, Vt = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
    free, _ = solve_factor(factor)
    for alpha in (1e-3, 1.0, 1e3):
        shrunk, intercept = solve_factor(factor, alpha)
        assert_allclose(shrunk @ Vt.T, free @ Vt.T * (s**2 / (s**2 + alpha)), atol=1e-13)
        assert_allclose(intercept, (targets - Z @ shrunk.T).mean(axis=0), atol=1e-13)
