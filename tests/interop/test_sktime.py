"""Forecasts through sktime's reduction are those of the estimator on the windows themselves.

sktime's windows have the newest value last, as ours do: estimators fit as they are.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcurse.datasets import load_sunspots, make_windows
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pytestmark = pytest.mark.extra
pytest.importorskip("pandas")
pytest.importorskip("sktime")
from sktime.forecasting.compose import TransformedTargetForecaster, make_reduction  # noqa: E402
from sktime.transformations.series.adapt import TabularToSeriesAdaptor  # noqa: E402

N_STEPS, FH = 8, [1, 2, 3, 4]
MODELS = {
    "residual linear": ResidualLinearRegressor(),
    "residual ridge": ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge())),
    "attention": AttentionNTKRegressor(32, regime="lazy", max_iter=50, alpha=0.1, random_state=0),
    "in context": SoftmaxICLRegressor(max_iter=5),
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
    X, y = make_windows(values, N_STEPS)
    model = clone(model).fit(X, y)
    values = list(values)
    for _ in FH:
        values.append(model.predict([values[-N_STEPS:]])[0])
    return values[-len(FH) :]


def direct_forecasts(model, values):
    """Fit one model for each step of the horizon."""
    X, y = make_windows(values, N_STEPS, len(FH))
    return [clone(model).fit(X, column).predict([values[-N_STEPS:]])[0] for column in y.T]


def multioutput_forecasts(model, values):
    """Fit one model for the whole horizon."""
    X, y = make_windows(values, N_STEPS, len(FH))
    return clone(model).fit(X, y).predict([values[-N_STEPS:]])[0]


WITNESSES = {
    "recursive": recursive_forecasts,
    "direct": direct_forecasts,
    "multioutput": multioutput_forecasts,
}


@pytest.mark.parametrize("strategy", WITNESSES)
@pytest.mark.parametrize("name", MODELS)
def test_reduction(series, name, strategy):
    forecaster = make_reduction(MODELS[name], strategy=strategy, window_length=N_STEPS)
    forecast = forecaster.fit(series, fh=FH).predict()
    expected = WITNESSES[strategy](MODELS[name], series.to_numpy())
    np.testing.assert_allclose(forecast.to_numpy().ravel(), expected, rtol=0, atol=1e-8)
    assert forecast.index[0] == series.index[-1] + series.index.freq


def test_scaling_the_series_is_the_right_way_round(series):
    """A scaler around the forecaster acts before the windows are cut."""
    raw = 40.0 * series + 50.0
    reduction = make_reduction(ResidualLinearRegressor(), window_length=N_STEPS)
    scaled = TransformedTargetForecaster(
        [("scale", TabularToSeriesAdaptor(StandardScaler())), ("forecast", reduction)]
    )
    forecast = scaled.fit(raw, fh=FH).predict()
    expected = recursive_forecasts(ResidualLinearRegressor(), series.to_numpy())
    np.testing.assert_allclose(
        forecast.to_numpy().ravel(), 40.0 * np.array(expected) + 50.0, rtol=0, atol=1e-6
    )
