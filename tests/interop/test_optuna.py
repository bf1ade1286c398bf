"""An optuna study over our estimators finds what a grid search finds."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score

from skcurse.comparison import DataModelStudy
from skcurse.datasets import ResidualSSM, load_sunspots, make_windows
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor

pytestmark = pytest.mark.extra
optuna = pytest.importorskip("optuna")

SUNSPOTS = make_windows((load_sunspots().target - 50.0) / 40.0, n_steps=8)
SEARCHES = {
    "attention on a series": (
        AttentionNTKRegressor(16, regime="lazy", max_iter=100, random_state=0),
        {"alpha": [0.01, 1.0, 100.0], "n_neurons": [8, 32]},
        *SUNSPOTS,
    ),
    "an estimator and a data model": (
        DataModelStudy(ResidualLinearRegressor(), ResidualSSM(n_steps=6), n_samples=40),
        {"estimator__alpha": [0.1, 10.0], "data_model__gamma": [0.2, 0.9]},
        np.arange(12),
        None,
    ),
}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", SEARCHES)
def test_a_study_over_a_grid_is_a_grid_search(name, n_jobs):
    estimator, grid, X, y = SEARCHES[name]
    cv = TimeSeriesSplit(3)
    search = GridSearchCV(estimator, grid, cv=cv, error_score="raise").fit(X, y)

    def objective(trial):
        params = {key: trial.suggest_categorical(key, values) for key, values in grid.items()}
        candidate = clone(estimator).set_params(**params)
        return cross_val_score(candidate, X, y, cv=cv, error_score="raise").mean()

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.GridSampler(grid, seed=0)
    )
    study.optimize(objective, n_jobs=n_jobs)
    found = {tuple(sorted(trial.params.items())): trial.value for trial in study.trials}
    expected = {
        tuple(sorted(params.items())): score
        for params, score in zip(
            search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
        )
    }
    assert found.keys() == expected.keys()
    for params, score in expected.items():
        np.testing.assert_allclose(found[params], score, rtol=1e-12)
    assert study.best_params == search.best_params_
