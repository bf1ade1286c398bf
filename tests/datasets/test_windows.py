"""make_windows and SeriesWindows."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import TimeSeriesSplit

from skcurse.datasets import SeriesWindows, make_windows


def by_loop(series, n_steps, horizon, step):
    """Windows of a 2-D array, channel by channel, one at a time."""
    X, y, index = [], [], []
    for channel in range(series.shape[1]):
        for start in range(0, len(series) - n_steps - horizon + 1, step):
            middle = start + n_steps
            X.append(series[start:middle, channel])
            y.append(series[middle : middle + horizon, channel])
            index.append((channel, middle))
    y = np.array(y)
    return np.array(X), (y[:, 0] if horizon == 1 else y), np.array(index)


@pytest.mark.parametrize("n_channels", [1, 3])
@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize(("n_steps", "horizon"), [(1, 1), (3, 1), (4, 3), (1, 7), (11, 9)])
def test_windows_against_a_loop(n_channels, step, n_steps, horizon):
    series = np.random.default_rng(0).normal(size=(20, n_channels))
    X, y, index = make_windows(series, n_steps, horizon, step=step, return_index=True)
    expected = by_loop(series, n_steps, horizon, step)
    np.testing.assert_array_equal(X, expected[0])
    np.testing.assert_array_equal(y, expected[1])
    np.testing.assert_array_equal(np.column_stack(index), expected[2])


@pytest.mark.parametrize("shape", [(50,), (50, 1)])
def test_one_channel_is_a_view_of_the_callers_array(shape):
    series = np.arange(50.0).reshape(shape)
    for part in make_windows(series, 7, 2):
        assert np.shares_memory(part, series)


@pytest.mark.parametrize("shape", [(50,), (50, 2)])
@pytest.mark.parametrize("horizon", [1, 3])
def test_windows_are_read_only(shape, horizon):
    for part in make_windows(np.zeros(shape), 7, horizon):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1.0


def test_long_windows_of_a_long_series_take_no_memory():
    X, y = make_windows(np.zeros(1_000_000), 100_000)
    assert X.shape == (900_000, 100_000)  # 720 GB, if it were copied
    assert y.shape == (900_000,)


VALUES = [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    "series",
    [
        VALUES,
        tuple(VALUES),
        np.array(VALUES, dtype=np.int8),
        np.array(VALUES, dtype=object),
        np.arange(10)[::2] * 0 + np.array(VALUES),
        pd.Series(VALUES, dtype="Int64"),
        pd.DataFrame({"a": VALUES}),
        pl.Series(VALUES),
        pl.DataFrame({"a": VALUES}),
    ],
    ids=lambda s: f"{type(s).__module__}.{type(s).__name__}",
)
def test_every_kind_of_series_is_read(series):
    X, y = make_windows(series, 2)
    np.testing.assert_array_equal(X, [[1, 2], [2, 4], [4, 8]])
    np.testing.assert_array_equal(y, [4, 8, 16])
    assert X.dtype == np.float64


def test_float32_is_kept_and_not_copied():
    series = np.arange(9, dtype=np.float32)
    X, _ = make_windows(series, 3)
    assert X.dtype == np.float32
    assert np.shares_memory(X, series)


def test_index_holds_names_and_timestamps_of_a_data_frame():
    dates = pd.date_range("2024-01-01", periods=6, freq="h")
    frame = pd.DataFrame({"load": range(6), "temperature": range(6)}, index=dates)
    index = make_windows(frame, 3, 2, return_index=True)[2]
    assert index.channel.tolist() == ["load"] * 2 + ["temperature"] * 2
    assert [*index.target] == [*dates[[3, 4, 3, 4]].to_numpy()]


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ([1.0, np.nan, 3.0, np.nan], r"\(NaN\) at row 1, column 0; 2 of its 4 values"),
        ([[1.0, 2.0], [3.0, np.inf], [5.0, 6.0]], "infinite value at row 1, column 1"),
        (
            pd.DataFrame(
                {"a": [1, 2, 3], "b": [1, None, 3]}, index=pd.date_range("2024", periods=3)
            ),
            r"row 1 \(2024-01-02 00:00:00\), column 'b'",
        ),
        (pd.Series([1, pd.NA, 3], dtype="Int64", name="load"), r"row 1, column 'load'"),
        (pl.DataFrame({"a": [1, 2, None]}), "row 2, column 'a'"),
        (pd.DataFrame({"a": [1, 2], "b": ["3", "x4"]}), "not numeric: 'x4' at row 1, column 'b'"),
        (["1", "two"], "not numeric: 'two' at row 1, column 0"),
        (pd.Series(pd.date_range("2024", periods=9)), "not numeric: Timestamp"),
        (np.arange("2024-01-01", "2024-01-09", dtype="datetime64[D]"), "not numeric"),
        ([1 + 2j, 3.0], "not numeric"),
        ([], "has 0 rows, but n_steps=2 and horizon=1 need at least 3"),
        ([1.0, 2.0], "has 2 rows, but n_steps=2 and horizon=1 need at least 3"),
        (3.0, "1-D, or 2-D"),
        (np.zeros((5, 0)), "1-D, or 2-D"),
        (np.zeros((5, 2, 2)), "dim 3"),
    ],
)
def test_a_series_that_cannot_be_cut_gets_one_clear_error(series, message):
    with pytest.raises(ValueError, match=message):
        make_windows(series, 2)


@pytest.mark.parametrize("name", ["n_steps", "horizon", "step"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_sizes_are_positive_integers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1"):
        make_windows(np.zeros(20), **{"n_steps": 2, name: value})


# -------------------------------------------------------------------------------- SeriesWindows

SERIES = np.random.default_rng(0).normal(5.0, 3.0, size=60).cumsum()


@pytest.mark.parametrize("horizon", [1, 4])
def test_sample_is_the_leading_segment_whatever_the_seed(horizon):
    model = SeriesWindows(SERIES, 6, horizon, scale=False)
    X, y = make_windows(SERIES, 6, horizon)
    for seed in (0, 1, None):
        for part, whole in zip(model.sample(20, random_state=seed), (X, y), strict=True):
            np.testing.assert_array_equal(part, whole[:20])
    np.testing.assert_array_equal(model.windows()[0], X)


@pytest.mark.parametrize("horizon", [1, 4])
def test_scale_comes_from_the_rows_of_the_training_windows_alone(horizon):
    n_train, n_rows = 20, 20 + 6 + horizon - 1
    expected = (SERIES - SERIES[:n_rows].mean()) / SERIES[:n_rows].std()
    X, y = make_windows(expected, 6, horizon)
    model = SeriesWindows(SERIES, 6, horizon)
    for found, wanted in zip(model.windows(n_train), (X, y), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    for found, wanted in zip(model.sample(n_train), (X, y), strict=True):
        np.testing.assert_allclose(found, wanted[:n_train], rtol=1e-12)

    later = SERIES.copy()
    later[n_rows:] += 100.0
    changed = SeriesWindows(later, 6, horizon).windows(n_train)
    np.testing.assert_array_equal(changed[0][:n_train], model.windows(n_train)[0][:n_train])


def test_splits_in_time_order_share_no_target():
    horizon = 3
    series = np.arange(60.0)  # every value names its row
    X, y = SeriesWindows(series, 6, horizon, scale=False).windows()
    for train, test in TimeSeriesSplit(4, gap=horizon - 1).split(X):
        assert y[train].max() < y[test].min()


@pytest.mark.parametrize("factor", [1e300, 1e-300, 1.0])
def test_scale_is_independent_of_the_unit(factor):
    X, y = SeriesWindows(SERIES, 6).windows()
    X2, y2 = SeriesWindows(SERIES * factor, 6).windows()
    np.testing.assert_allclose(X2, X, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(y2, y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e300])
def test_a_constant_series_is_centred(value):
    X, _ = SeriesWindows(np.full(30, value), 6).windows()
    np.testing.assert_allclose(X, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "series", [SERIES, pd.Series(SERIES), pd.DataFrame({"a": SERIES}), [*SERIES]]
)
def test_series_windows_are_parameter_objects(series):
    model = SeriesWindows(series, 6)
    copy = pickle.loads(pickle.dumps(clone(model)))
    assert copy.get_params().keys() == {"series", "n_steps", "horizon", "scale"}
    np.testing.assert_array_equal(copy.sample(9)[0], model.sample(9)[0])
    assert copy.set_params(n_steps=4).sample(9)[0].shape == (9, 4)
    assert repr(copy).startswith("SeriesWindows(")
    assert "SeriesWindows" in copy._repr_html_()


def test_caller_and_series_windows_do_not_write_to_each_other():
    series = SERIES.copy()
    X, _ = SeriesWindows(series, 6).windows()
    series[:] = 0.0
    assert np.abs(X).max() > 1.0


@pytest.mark.parametrize(("call", "n_windows"), [("sample", 55), ("windows", 55), ("windows", 0)])
def test_more_windows_than_there_are_is_an_error_with_the_numbers(call, n_windows):
    with pytest.raises(ValueError, match=rf"between 1 and 54.* 60 rows .*n_steps=6.*{n_windows}"):
        getattr(SeriesWindows(SERIES, 6), call)(n_windows)


def test_series_windows_take_one_channel_and_no_shift():
    with pytest.raises(ValueError, match="takes one series, got 2 columns"):
        SeriesWindows(np.zeros((30, 2)), 6).windows()
    with pytest.raises(ValueError, match="knows no shift 'later'"):
        SeriesWindows(SERIES, 6).sample(3, shift="later")
