"""Tangent kernels and spectra of the estimator, from a table and by the direct formula."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from skcurse.datasets import make_residual_ssm
from skcurse.estimators import _attention_kernels
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.theory.kernel_table import KernelTable

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("regime", ["finite", "lazy", "infinite"])
@pytest.mark.parametrize("at", ["initial", "fitted"])
def test_kernels_come_from_a_table_where_that_pays(regime, at, monkeypatch):
    made = []

    def counted(*args, **options):
        made.append(args)
        return KernelTable(*args, **options)

    monkeypatch.setattr(_attention_kernels, "KernelTable", counted)
    X, y = make_residual_ssm(400, 16, random_state=0)
    table = AttentionNTKRegressor(
        1000, regime=regime, solver="auto", max_iter=20, tol=0.0, random_state=0
    ).fit(X, y)
    direct = clone(table).set_params(solver="direct").fit(X, y)
    for Z in (None, X[:7]):
        kernel = table.neural_tangent_kernel(X, Z, at=at)
        exact = direct.neural_tangent_kernel(X, Z, at=at)
        np.testing.assert_allclose(kernel, exact, atol=1e-10 * exact.max())
    assert len(made) == 2
    values, exact = table.ntk_eigenvalues(X, at=at), direct.ntk_eigenvalues(X, at=at)
    assert len(made) == 3
    resolved = ~np.isnan(values)
    assert resolved.sum() > 30
    assert values[resolved].min() > 1e-28 * values[0]
    np.testing.assert_allclose(
        np.sqrt(values[resolved]),
        np.sqrt(exact[resolved]),
        atol=1e-12 * np.sqrt(exact[0]),
        rtol=1e-8,
    )
    assert np.nanmax(exact[~resolved], initial=0.0) < 1e-22 * exact[0]
    few = AttentionNTKRegressor(10, regime=regime, max_iter=3, random_state=0).fit(X[:20], y[:20])
    few.ntk_eigenvalues(X[:20], at=at)
    assert len(made) == 3


def test_a_kernel_that_no_table_holds_is_computed_directly():
    # At weights of size one these windows' features are e^-1000 of what they are near zero.
    X = 300.0 + np.random.default_rng(0).standard_normal((30, 12))
    fitted = AttentionNTKRegressor(40, regime="lazy", solver="direct", max_iter=1, random_state=0)
    with warnings.catch_warnings(action="ignore"):
        fitted.fit(X, X[:, -1])
    exact = fitted.ntk_eigenvalues(X), fitted.neural_tangent_kernel(X)
    fitted.solver = "collocation"
    np.testing.assert_array_equal(fitted.ntk_eigenvalues(X), exact[0])
    np.testing.assert_array_equal(fitted.neural_tangent_kernel(X), exact[1])
