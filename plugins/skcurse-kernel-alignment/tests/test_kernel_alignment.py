from types import SimpleNamespace

import numpy as np
import pytest
import skcurse_kernel_alignment
from skcurse_kernel_alignment import kernel_target_alignment
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skcurse
from skcurse.testing import check_plugin


def with_kernel(kernel):
    return SimpleNamespace(neural_tangent_kernel=kernel)


def test_contract():
    check_plugin(skcurse_kernel_alignment)


def test_one_for_the_targets_own_kernel_and_scale_free():
    y = np.random.default_rng(0).normal(size=20)
    ideal = with_kernel(lambda X: 3.0 * np.outer(y, y) + 5.0)  # centring removes the constant
    assert kernel_target_alignment(ideal, np.zeros((20, 2)), y) == pytest.approx(1.0)
    assert kernel_target_alignment(ideal, np.zeros((20, 2)), 1e3 * y - 7) == pytest.approx(1.0)


def test_against_the_definition_with_centring_matrices():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(15, 15)), rng.normal(size=15)
    centring = np.eye(15) - 1 / 15
    K, Y = centring @ X @ X.T @ centring, centring @ np.outer(y, y) @ centring
    expected = np.sum(K * Y) / np.linalg.norm(K) / np.linalg.norm(Y)
    value = kernel_target_alignment(with_kernel(lambda X: X @ X.T), X, y)
    assert value == pytest.approx(expected, rel=1e-12)


def test_nan_where_it_does_not_apply():
    X, y = np.eye(6), np.arange(6.0)
    assert np.isnan(kernel_target_alignment(LinearRegression().fit(X, y), X, y))
    constant = with_kernel(lambda X: np.ones((6, 6)))
    assert np.isnan(kernel_target_alignment(constant, X, y))


def test_in_a_search_over_a_pipeline():
    X, y = skcurse.make_residual_ssm(60, 6, random_state=0)
    model = make_pipeline(StandardScaler(), skcurse.AttentionNTKRegressor(8, regime="lazy"))
    search = GridSearchCV(
        model,
        {"attentionntkregressor__n_neurons": [8, 16]},
        scoring={"r2": "r2", **skcurse.get_diagnostics(["kernel_target_alignment"])},
        refit="r2",
    ).fit(X, y)
    alignment = search.cv_results_["mean_test_kernel_target_alignment"]
    assert ((alignment > 0) & (alignment < 1)).all()
