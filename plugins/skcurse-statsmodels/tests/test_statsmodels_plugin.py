import numpy as np
import pytest
import skcurse_statsmodels
from skcurse_statsmodels import WindowAutoReg

import skcurse
from skcurse.testing import check_plugin


def test_contract():
    check_plugin(skcurse_statsmodels)


@pytest.mark.parametrize("lags", [1, 2])
@pytest.mark.parametrize("trend", ["n", "c"])
def test_is_least_squares_on_the_windows_own_lags(lags, trend):
    X = np.random.default_rng(0).normal(size=(5, 12))
    predicted = WindowAutoReg(lags, trend).fit(X, X[:, 0]).predict(X)
    for x, value in zip(X, predicted, strict=True):
        past = np.array([x[i : i + lags] for i in range(12 - lags)])
        now = x[-lags:]
        if trend == "c":
            past, now = np.column_stack([np.ones(len(past)), past]), np.append(1.0, now)
        coef = np.linalg.lstsq(past, x[lags:], rcond=None)[0]
        assert value == pytest.approx(now @ coef, rel=1e-9)


@pytest.mark.filterwarnings("ignore:The design matrix is rank-deficient")
@pytest.mark.parametrize("value", [0.0, 3.0])
@pytest.mark.parametrize("trend", ["n", "c"])
def test_constant_window_is_continued(value, trend):
    X = np.full((2, 8), value)
    predicted = WindowAutoReg(trend=trend).fit(X, X[:, 0]).predict(X)
    np.testing.assert_allclose(predicted, value, atol=1e-12)


def test_short_windows_are_refused():
    with pytest.raises(ValueError, match="at least 4 steps"):
        WindowAutoReg(lags=2).fit(np.zeros((3, 3)), np.zeros(3))


def test_in_a_comparison():
    comparison = skcurse.compare(
        ["window_autoreg", "residual_linear"], skcurse.ResidualSSM(8), cv=2, n_samples=50,
        n_test=50, random_state=0,
    )  # fmt: skip
    assert np.isfinite(comparison.results_["mean_test_mse"]).all()
