"""joblib on two dask processes changes no number of our estimators."""

import os
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

import skcurse
from skcurse.datasets import make_icl_prompts, make_residual_ssm
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pytestmark = pytest.mark.extra
distributed = pytest.importorskip("distributed")

WINDOWS = make_residual_ssm(60, n_steps=6, random_state=0)
PROMPTS = make_icl_prompts(60, n_context=6, vocabulary_size=3, random_state=0)
NETWORK = AttentionNTKRegressor(16, max_iter=10_000, tol=1e-2, random_state=0)
SEARCHES = {
    "attention": (NETWORK, {"alpha": [0.1, 1.0]}, WINDOWS),
    "residual linear": (ResidualLinearRegressor(), {"alpha": [0.1, 1.0]}, WINDOWS),
    "residual target": (
        ResidualTargetRegressor(Ridge()),
        {"estimator__alpha": [0.1, 1.0]},
        WINDOWS,
    ),
    "prompts": (SoftmaxICLRegressor(6, max_iter=500), {"alpha": [0.01, 0.1]}, PROMPTS),
}


def process(estimator, X, y):
    """Where the score is computed, as a score."""
    return os.getpid()


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as workers,
        distributed.Client(workers),
    ):
        yield workers


@pytest.mark.parametrize("name", SEARCHES)
def test_a_grid_search_on_two_processes(cluster, name):
    estimator, grid, (X, y) = SEARCHES[name]
    search = GridSearchCV(
        estimator,
        grid,
        scoring={"r2": "r2", "process": process, **skcurse.get_diagnostics(["sign_agreement"])},
        refit="r2",
        error_score="raise",
    )
    here = search.fit(X, y).cv_results_
    with joblib.parallel_config(backend="dask"):
        there = search.fit(X, y).cv_results_
    splits = [f"split{k}_test_" for k in range(5)]
    workers = {pid for split in splits for pid in there[split + "process"]}
    assert workers
    assert os.getpid() not in workers
    for key in [f"{split}{score}" for split in splits for score in ("r2", "sign_agreement")]:
        np.testing.assert_allclose(there[key], here[key], rtol=1e-12, atol=1e-14, err_msg=key)


def test_blocks_of_one_fit_on_two_processes(cluster):
    X, y = WINDOWS
    network = AttentionNTKRegressor(
        16, solver="direct", learning_rate=0.01, tol=0.0, max_iter=5, random_state=0
    )
    with warnings.catch_warnings(), sklearn.config_context(working_memory=0.01):  # three blocks
        warnings.simplefilter("ignore")  # five steps are too few to converge
        expected = network.fit(X, y).predict(X)
        with joblib.parallel_config(backend="dask"):
            found = clone(network).set_params(n_jobs=2).fit(X, y).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
