import numpy as np
import pytest
import skcurse_heavy_tails
from scipy.stats import kstest, t
from skcurse_heavy_tails import HeavyTailedAR
from sklearn.model_selection import GridSearchCV

import skcurse
from skcurse.testing import check_plugin


def test_contract():
    check_plugin(skcurse_heavy_tails)


def test_installed():
    assert skcurse.get_data_models(["heavy_tailed_ar"]) == {"heavy_tailed_ar": HeavyTailedAR}


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 0.8, 0.95])
def test_stationary_with_correlation_gamma(gamma):
    X, y = HeavyTailedAR(5, gamma, degrees_of_freedom=10.0).sample(50_000, random_state=0)
    series = np.column_stack([X, y])
    expected = gamma ** np.abs(np.subtract.outer(range(6), range(6)))
    np.testing.assert_allclose(np.cov(series, rowvar=False), expected, atol=0.03)


@pytest.mark.parametrize("nu", [3.0, 5.0, np.inf])
def test_innovations_follow_their_law(nu):
    X, y = HeavyTailedAR(4, 0.8, nu).sample(20_000, random_state=1)
    e = (y - 0.8 * X[:, -1]) / np.sqrt(1 - 0.8**2)
    law = t(nu, scale=np.sqrt((nu - 2) / nu)) if np.isfinite(nu) else t(1e9)
    assert kstest(e, law.cdf).pvalue > 0.001


@pytest.mark.parametrize("shift", [None, "regime_switch"])
def test_risk_of_the_best_predictor(shift):
    model = HeavyTailedAR(4, 0.6, degrees_of_freedom=10.0)
    X, y = model.sample(200_000, shift=shift, random_state=2)
    losses = (y - 0.6 * X[:, -1]) ** 2
    error = 5 * losses.std() / np.sqrt(len(losses))
    assert losses.mean() == pytest.approx(model.reference_risks(shift)["best"], abs=error)


@pytest.mark.parametrize(
    "params", [{"gamma": 1.0}, {"degrees_of_freedom": 2.0}, {"n_steps": 0}, {"gamma": np.nan}]
)
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="needs"):
        HeavyTailedAR(**params).sample(3)


def test_in_a_search():
    study = skcurse.DataModelStudy(skcurse.ResidualLinearRegressor(), HeavyTailedAR(6))
    search = GridSearchCV(study, {"data_model__gamma": [0.2, 0.9]}, cv=3).fit(np.arange(9))
    low, high = search.cv_results_["mean_test_score"]
    assert low < high  # the stronger the correlation, the better it is predicted


def test_a_comparison_shows_the_exact_risk():
    comparison = skcurse.compare(
        skcurse.ResidualLinearRegressor(), HeavyTailedAR(4, 0.6), cv=2, n_samples=50, n_test=50
    )
    risks = {(r.name, r.shift): r.risk for r in comparison.references_}
    assert risks == pytest.approx({("best", None): 0.64, ("best", "regime_switch"): 2.08})
