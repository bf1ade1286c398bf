"""Tables of pandas and polars go in everywhere, and timestamps come out with the forecasts."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import TimeSeriesSplit, cross_val_predict, cross_val_score

from skcurse.comparison import compare
from skcurse.datasets import (
    SeriesWindows,
    load_co2,
    load_sunspots,
    make_icl_prompts,
    make_residual_ssm,
    make_windows,
)
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

WINDOWS = make_residual_ssm(60, n_steps=5, random_state=0)
PROMPTS = make_icl_prompts(60, n_context=4, vocabulary_size=3, random_state=0)
MODELS = {
    "attention": (AttentionNTKRegressor(16, regime="lazy", max_iter=50, random_state=0), WINDOWS),
    "infinite attention": (AttentionNTKRegressor(regime="infinite", max_iter=50), WINDOWS),
    "residual linear": (ResidualLinearRegressor(), WINDOWS),
    "residual target": (ResidualTargetRegressor(Ridge()), WINDOWS),
    "rows in context": (SoftmaxICLRegressor(max_iter=50), WINDOWS),
    "prompts": (SoftmaxICLRegressor(4, max_iter=50), PROMPTS),
}
FRAMES = {
    "pandas": (lambda X: pd.DataFrame(X).add_prefix("lag"), pd.Series),
    "polars": (lambda X: pl.DataFrame(X, [f"lag{k}" for k in range(X.shape[1])]), pl.Series),
}


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("name", MODELS)
def test_tables_are_arrays(name, library):
    model, (X, y) = MODELS[name]
    frame, column = FRAMES[library]
    weight = np.random.default_rng(0).integers(0, 3, size=len(y)).astype(float)
    expected = model.fit(X, y, sample_weight=weight).predict(X)
    model.fit(frame(X), column(y), sample_weight=column(weight))
    # Tables store columns, arrays rows: sums are taken in another order.
    np.testing.assert_allclose(model.predict(frame(X)), expected, rtol=1e-12, atol=1e-13)
    assert model.feature_names_in_.tolist() == [f"lag{k}" for k in range(X.shape[1])]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame(X)[model.feature_names_in_[::-1]])


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("name", MODELS)
def test_splits_of_tables(name, library):
    model, (X, y) = MODELS[name]
    frame, column = FRAMES[library]
    weight = np.linspace(0.5, 2.0, len(y))
    cv = {"cv": TimeSeriesSplit(3), "error_score": "raise"}
    expected = cross_val_score(model, X, y, params={"sample_weight": weight}, **cv)
    found = cross_val_score(
        model, frame(X), column(y), params={"sample_weight": column(weight)}, **cv
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("load", [load_sunspots, load_co2])
@pytest.mark.parametrize("horizon", [1, 3])
def test_forecasts_know_their_time(load, horizon):
    series = load(as_frame=True).target
    X, y, index = make_windows(series, 12, horizon, return_index=True)
    forecast = pd.Series(
        ResidualLinearRegressor().fit(X, y).predict(X).reshape(len(X), -1)[:, 0], index.target
    )
    first = y.reshape(len(y), -1)[:, 0]
    np.testing.assert_array_equal(series.loc[forecast.index], first)
    assert isinstance(forecast.index, pd.DatetimeIndex)
    assert forecast.index[0] == series.index[12]


def test_windows_of_a_series_as_a_data_model_keep_the_order_of_the_index():
    series = load_sunspots(as_frame=True).target
    model = SeriesWindows(series, 12, scale=False)
    X, y = model.windows()
    times = model.target_index()
    np.testing.assert_array_equal(series.loc[times], y)
    forecast = pd.Series(cross_val_predict(ResidualLinearRegressor(), X, y), times)
    assert (forecast - series).dropna().std() < series.std()


def test_channels_know_their_names_and_time():
    days = pd.date_range("2024-01-01", periods=20, freq="D")
    frame = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(100.0, 120.0)}, days)
    _, y, index = make_windows(frame, 4, step=3, return_index=True)
    long = pd.Series(y, pd.MultiIndex.from_arrays([index.target, index.channel]))
    wide = long.unstack()
    pd.testing.assert_frame_equal(wide, frame.loc[wide.index], check_freq=False)


def test_a_comparison_is_a_table():
    comparison = compare({"ridge": Ridge()}, {"sun": SeriesWindows(load_sunspots().target, 8)})
    table = comparison.to_frame()
    assert isinstance(table, pd.DataFrame)
    assert "mean_test_mse" in table.columns
    assert len(table) == 1
