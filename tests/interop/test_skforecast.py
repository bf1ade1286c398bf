"""Forecasts through skforecast are those of the estimator on the windows themselves.

skforecast puts the newest lag first, windows have it last: residual models take ``last_step=0``,
attention gets its columns turned round.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcurse.datasets import load_sunspots, make_windows
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pytestmark = pytest.mark.extra
pd = pytest.importorskip("pandas")
pytest.importorskip("skforecast")
from skforecast.direct import ForecasterDirect  # noqa: E402
from skforecast.recursive import ForecasterRecursive  # noqa: E402

N_LAGS, N_AHEAD = 8, 4


def network():
    return AttentionNTKRegressor(32, regime="lazy", max_iter=50, alpha=0.1, random_state=0)


# What skforecast is given, and the same model for windows with the newest value last.
PAIRS = {
    "residual linear": (ResidualLinearRegressor(last_step=0), ResidualLinearRegressor()),
    "residual ridge": (
        ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge()), last_step=0),
        ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge())),
    ),
    "attention": (make_pipeline(FunctionTransformer(np.fliplr), network()), network()),
    "in context": (SoftmaxICLRegressor(max_iter=5), SoftmaxICLRegressor(max_iter=5)),
}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def series():
    sunspots = load_sunspots(as_frame=True).target.asfreq("YS")
    return (sunspots - sunspots.mean()) / sunspots.std()


def recursive_forecasts(model, values):
    """Feed each forecast back as the newest value."""
    X, y = make_windows(values, N_LAGS)
    model = clone(model).fit(X, y)
    values = list(values)
    for _ in range(N_AHEAD):
        values.append(model.predict([values[-N_LAGS:]])[0])
    return values[-N_AHEAD:]


def direct_forecasts(model, values):
    """Fit one model for each step of the horizon."""
    X, y = make_windows(values, N_LAGS, N_AHEAD)
    return [clone(model).fit(X, column).predict([values[-N_LAGS:]])[0] for column in y.T]


def test_lags_are_windows_turned_round(series):
    table, target = ForecasterRecursive(estimator=Ridge(), lags=N_LAGS).create_train_X_y(series)
    X, y, index = make_windows(series, N_LAGS, return_index=True)
    np.testing.assert_array_equal(table, X[:, ::-1])
    np.testing.assert_array_equal(target, y)
    np.testing.assert_array_equal(target.index, index.target)


@pytest.mark.parametrize("name", PAIRS)
def test_recursive_forecaster(series, name):
    inside, ours = PAIRS[name]
    forecaster = ForecasterRecursive(estimator=inside, lags=N_LAGS)
    forecaster.fit(series)
    expected = recursive_forecasts(ours, series.to_numpy())
    forecast = forecaster.predict(steps=N_AHEAD)
    np.testing.assert_allclose(forecast, expected, rtol=0, atol=1e-8)
    assert forecast.index[0] == series.index[-1] + series.index.freq


@pytest.mark.parametrize("name", PAIRS)
def test_direct_forecaster(series, name):
    inside, ours = PAIRS[name]
    forecaster = ForecasterDirect(estimator=inside, steps=N_AHEAD, lags=N_LAGS)
    forecaster.fit(series)
    expected = direct_forecasts(ours, series.to_numpy())
    np.testing.assert_allclose(forecaster.predict(), expected, rtol=0, atol=1e-8)


def test_scaling_the_series_is_the_right_way_round(series):
    """``transformer_y`` scales before the lags are cut, so nothing of the residual is lost."""
    raw = 40.0 * series + 50.0
    scaled = ForecasterRecursive(
        estimator=ResidualLinearRegressor(last_step=0),
        lags=N_LAGS,
        transformer_y=StandardScaler(),
    )
    scaled.fit(raw)
    expected = 40.0 * np.array(recursive_forecasts(ResidualLinearRegressor(), series)) + 50.0
    np.testing.assert_allclose(scaled.predict(steps=N_AHEAD), expected, rtol=0, atol=1e-6)
