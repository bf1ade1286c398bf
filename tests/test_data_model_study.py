"""A study over seeds is the experiment done by hand, inside scikit-learn's searches."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from skcurse.comparison import DataModelStudy, study_scorer
from skcurse.datasets import ResidualSSM, SeriesWindows
from skcurse.diagnostics import ood_scorer, sign_agreement
from skcurse.plugins import get_diagnostics

SEEDS = np.arange(20)
LAW = ResidualSSM(n_steps=6)
SHIFT = "sign_inconsistent"


def stream(seeds):
    return np.random.RandomState(np.asarray(seeds, dtype=np.uint32))


def test_grid_search_equals_a_loop_by_hand():
    study = DataModelStudy(Ridge(), LAW, n_samples=60)
    grid = {"data_model__gamma": [-0.3, 0.8], "estimator__alpha": [0.1, 30.0]}
    search = GridSearchCV(study, grid, cv=5, n_jobs=2, return_train_score=True).fit(SEEDS)
    results = search.cv_results_
    assert len(results["params"]) == 4
    for i, params in enumerate(results["params"]):
        law = ResidualSSM(n_steps=6, gamma=params["data_model__gamma"])
        for k, (train, test) in enumerate(KFold(5).split(SEEDS)):
            X, y = law.sample(60, random_state=stream(SEEDS[train]))
            ridge = Ridge(alpha=params["estimator__alpha"]).fit(X, y)
            held_out = ridge.score(*law.sample(60, random_state=stream(SEEDS[test])))
            assert results[f"split{k}_test_score"][i] == pytest.approx(held_out, abs=1e-12)
            seen = results[f"split{k}_train_score"][i]
            assert seen == pytest.approx(ridge.score(X, y), abs=1e-12)


def test_scorers_see_the_sample_under_every_shift():
    scoring = {
        "id": study_scorer("neg_mean_squared_error", shift=None),
        "ood": study_scorer("neg_mean_squared_error", shift=SHIFT),
        "own": study_scorer("neg_mean_squared_error"),
        "fixed": ood_scorer(LAW, shift=SHIFT, n_samples=50, random_state=3),
        **get_diagnostics(["sign_agreement"]),
    }
    study = DataModelStudy(Ridge(), LAW, n_samples=80, shift=SHIFT)
    scores = cross_validate(study, SEEDS, cv=4, scoring=scoring)
    for k, (train, test) in enumerate(KFold(4).split(SEEDS)):
        ridge = Ridge().fit(*LAW.sample(80, random_state=stream(SEEDS[train])))
        for name, law in (("id", None), ("ood", SHIFT), ("own", SHIFT)):
            X, y = LAW.sample(80, shift=law, random_state=stream(SEEDS[test]))
            expected = -mean_squared_error(y, ridge.predict(X))
            assert scores[f"test_{name}"][k] == pytest.approx(expected, abs=1e-12)
        assert scores["test_sign_agreement"][k] == sign_agreement(ridge, X)
        X, y = LAW.sample(50, shift=SHIFT, random_state=3)
        fixed = -mean_squared_error(y, ridge.predict(X))
        assert scores["test_fixed"][k] == pytest.approx(fixed, abs=1e-12)


def test_scorer_sees_through_a_search():
    search = GridSearchCV(DataModelStudy(Ridge(), LAW), {"estimator__alpha": [1.0]}, cv=2)
    search.fit(SEEDS)
    scorer = study_scorer("r2")
    assert scorer(search, SEEDS[:3]) == scorer(search.best_estimator_, SEEDS[:3])
    assert search.score(SEEDS[:3]) == scorer(search, SEEDS[:3])


def test_replicates_are_independent_and_repeatable():
    study = DataModelStudy(Ridge(), LAW)
    X, _ = study.test_sample([0, 1])
    again, _ = study.test_sample(np.array([[0], [1]]))
    np.testing.assert_array_equal(X, again)
    draws = [study.test_sample(seeds)[0] for seeds in ([0, 1], [0, 2], [1, 0], [0], [0, 1, 2])]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            # 400 x 6 correlated entries: far above the chance level of a shared stream
            assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.15


def test_predict_takes_rows_and_clone_keeps_parameters():
    study = DataModelStudy(make_pipeline(StandardScaler(), Ridge()), LAW, n_samples=50, shift=SHIFT)
    fitted = clone(study).fit(SEEDS)
    X, y = fitted.test_sample([7])
    assert fitted.predict(X).shape == y.shape
    assert fitted.score([7]) == fitted.estimator_.score(X, y)
    assert not hasattr(study, "estimator_")
    assert not hasattr(fitted.estimator[-1], "coef_")  # a clone was fitted
    twin = pickle.loads(pickle.dumps(fitted))
    assert twin.score([7]) == fitted.score([7])


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (np.random.default_rng(0).normal(size=(20, 3)), "rows of a DataModelStudy are seeds"),
        (np.linspace(0, 1, 5), "rows of a DataModelStudy are seeds"),
        (np.array([], dtype=int), "rows of a DataModelStudy are seeds"),
        (["a", "b"], "rows of a DataModelStudy are seeds"),
        ([-1, 2], r"Seeds must lie in \[0, 2\*\*32 - 1\]"),
        ([2**32], r"Seeds must lie in"),
    ],
)
def test_what_is_no_seed_is_refused(seeds, message):
    with pytest.raises(ValueError, match=message):
        DataModelStudy(Ridge(), LAW).fit(seeds)


def test_errors_name_the_cause():
    with pytest.raises(ValueError, match="knows no shift 'sideways'"):
        DataModelStudy(Ridge(), LAW, shift="sideways").fit(SEEDS).score([99])
    with pytest.raises(ValueError, match="no_such_metric"):
        study_scorer("no_such_metric")
    with pytest.raises(NotFittedError, match="not fitted yet"):
        DataModelStudy(Ridge(), LAW).score([1])


def test_tags_follow_the_estimator():
    tags = DataModelStudy(RandomForestRegressor(), LAW).__sklearn_tags__()
    assert tags.estimator_type == "regressor"
    assert not tags.target_tags.required


def test_scikit_learn_is_told_that_rows_are_no_table():
    """It then leaves out the checks that feed tables of floats, and says so."""
    with pytest.warns(SkipTestWarning, match="requires input"):
        logs = check_estimator(DataModelStudy(Ridge(), LAW))
    assert {log["status"] for log in logs} == {"passed"}


def test_a_series_has_no_replicates():
    study = DataModelStudy(Ridge(), SeriesWindows(np.arange(50.0) ** 2, 4))
    with pytest.raises(ValueError, match="is one series"):
        study.fit(np.arange(3))
