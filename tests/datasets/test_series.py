"""The bundled series."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skcurse.datasets import load_co2, load_sunspots, make_windows

LOADERS = pytest.mark.parametrize(
    ("loader", "n_rows", "name"), [(load_sunspots, 309, "sunspots"), (load_co2, 2284, "co2")]
)


@LOADERS
def test_bunch_arrays_and_tuple_agree(loader, n_rows, name):
    bunch = loader()
    assert bunch.data.shape == (n_rows, 1)
    assert bunch.target.shape == bunch.index.shape == (n_rows,)
    assert bunch.feature_names == ["year"]
    assert bunch.target_names == [name]
    assert bunch.frame is None
    X, y = loader(return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


@LOADERS
def test_frames_hold_the_same_values_under_their_dates(loader, n_rows, name):
    bunch, arrays = loader(as_frame=True), loader()
    assert [*bunch.frame.columns] == ["year", name]
    assert isinstance(bunch.frame.index, pd.DatetimeIndex)
    np.testing.assert_array_equal(bunch.frame.index.year, arrays.data[:, 0].astype(int))
    np.testing.assert_array_equal(bunch.target, arrays.target)
    np.testing.assert_array_equal(bunch.data, arrays.data)
    X, y = loader(return_X_y=True, as_frame=True)
    pd.testing.assert_frame_equal(X, bunch.data)
    pd.testing.assert_series_equal(y, bunch.target)


@LOADERS
def test_series_can_be_cut_into_windows_at_once(loader, n_rows, name):
    X, _ = make_windows(loader().target, 16)
    assert X.shape == (n_rows - 16, 16)


@LOADERS
def test_source_and_licence_are_stated(loader, n_rows, name):
    bunch = loader()
    for word in ("Source:", "Licence: public domain", name, "statsmodels"):
        assert word in bunch.DESCR
    assert "ett" not in bunch.DESCR.split()
    assert Path(bunch.filename).is_file()


@LOADERS
def test_pandas_is_asked_for_by_its_extra(loader, n_rows, name, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    loader()
    with pytest.raises(ImportError, match=r"skcurse\[dataframe\]"):
        loader(as_frame=True)


def test_values_and_dates_are_those_of_statsmodels():
    datasets = pytest.importorskip("statsmodels.datasets")
    sunspots = datasets.sunspots.load_pandas().data
    np.testing.assert_array_equal(load_sunspots().target, sunspots["SUNACTIVITY"])
    np.testing.assert_array_equal(load_sunspots().data[:, 0], sunspots["YEAR"])
    co2 = datasets.co2.load_pandas().data
    bunch = load_co2(interpolate=False, as_frame=True)
    np.testing.assert_array_equal(bunch.target, co2["co2"])
    assert (bunch.target.index == co2.index).all()


def test_known_values():
    sunspots = load_sunspots()
    assert sunspots.target[sunspots.data[:, 0] == 1957] == 190.2  # the highest maximum on record
    assert sunspots.target.argmax() == 1957 - 1700
    co2 = load_co2()
    assert str(co2.index[0]) == "1958-03-29"
    assert str(co2.index[-1]) == "2001-12-29"
    assert co2.target[0] == 316.1
    assert np.all(np.diff(co2.index) == np.timedelta64(7, "D"))


def test_missing_weeks_are_interpolated_unless_they_are_asked_for():
    published, filled = load_co2(interpolate=False), load_co2()
    np.testing.assert_array_equal(np.isnan(published.target), published.missing)
    assert published.missing.sum() == 59
    expected = pd.Series(published.target, index=published.index).interpolate("time")
    np.testing.assert_allclose(filled.target, expected, rtol=1e-12)
    np.testing.assert_array_equal(filled.missing, published.missing)
    with pytest.raises(ValueError, match="59 of its 2284 values"):
        make_windows(published.target, 16)


def test_decimal_years_count_the_days():
    bunch = load_co2()
    row = np.flatnonzero(bunch.index == np.datetime64("2000-12-30"))[0]
    assert bunch.data[row, 0] == pytest.approx(2000 + 364 / 366)
