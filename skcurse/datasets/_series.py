"""The bundled series, both in the public domain."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

__all__ = ["load_co2", "load_sunspots"]

_BUNDLED = files("skcurse.datasets") / "data"


def load_sunspots(*, return_X_y: bool = False, as_frame: bool = False) -> Any:
    """Load the yearly number of sunspots, 1700-2008.

    Parameters
    ----------
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a `Bunch`.
    as_frame : bool, default=False
        Whether data and target are pandas objects, indexed by date.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        - ``data`` ndarray or DataFrame of shape (309, 1): the time, in years
        - ``target`` ndarray or Series of shape (309,): the series
        - ``index`` ndarray of datetime64 of shape (309,): the dates
        - ``frame`` DataFrame of data and target, None unless `as_frame`
        - ``feature_names``, ``target_names`` lists of str
        - ``DESCR`` str: content, source and licence
        - ``filename`` str: path of the file
    (data, target) : tuple
        If `return_X_y`.

    Raises
    ------
    ImportError
        If `as_frame` and pandas is not installed.

    Examples
    --------
    >>> from skcurse.datasets import load_sunspots, make_windows
    >>> series = load_sunspots().target
    >>> X, y = make_windows(series, n_steps=16)
    >>> X.shape
    (293, 16)
    """
    path = _BUNDLED / "sunspots.csv"
    _, dates, values = _read_csv(path)
    return _as_bunch(
        _decimal_year(dates),
        values[:, 0],
        dates,
        names=["year", "sunspots"],
        return_X_y=return_X_y,
        as_frame=as_frame,
        DESCR=_description("sunspots"),
        filename=str(path),
    )


def load_co2(*, return_X_y: bool = False, as_frame: bool = False, interpolate: bool = True) -> Any:
    """Load the weekly carbon dioxide concentration at Mauna Loa, 1958-2001.

    Parameters
    ----------
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a `Bunch`.
    as_frame : bool, default=False
        Whether data and target are pandas objects, indexed by date.
    interpolate : bool, default=True
        Whether the 59 weeks without a published value are filled linearly between their
        neighbours, so that the series can be used at once; False leaves NaN there.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        - ``data`` ndarray or DataFrame of shape (2284, 1): the time, in years
        - ``target`` ndarray or Series of shape (2284,): the series, in ppmv
        - ``missing`` ndarray of bool of shape (2284,): weeks without a published value
        - ``index`` ndarray of datetime64 of shape (2284,): the dates
        - ``frame`` DataFrame of data and target, None unless `as_frame`
        - ``feature_names``, ``target_names`` lists of str
        - ``DESCR`` str: content, source and licence
        - ``filename`` str: path of the file
    (data, target) : tuple
        If `return_X_y`.

    Raises
    ------
    ImportError
        If `as_frame` and pandas is not installed.

    Examples
    --------
    >>> from skcurse.datasets import load_co2
    >>> bunch = load_co2()
    >>> bunch.target.shape, int(bunch.missing.sum())
    ((2284,), 59)
    """
    path = _BUNDLED / "co2.csv"
    _, dates, values = _read_csv(path)
    series = values[:, 0]
    missing = np.isnan(series)
    if interpolate:
        days = (dates - dates[0]).astype(np.float64)
        series = np.interp(days, days[~missing], series[~missing])
    return _as_bunch(
        _decimal_year(dates),
        series,
        dates,
        names=["year", "co2"],
        return_X_y=return_X_y,
        as_frame=as_frame,
        missing=missing,
        DESCR=_description("co2"),
        filename=str(path),
    )


def _read_csv(path: Any) -> tuple[list[str], NDArray[np.datetime64], NDArray[np.float64]]:
    """Column names, dates (first column) and values (NaN where empty) of a CSV file."""
    with path.open(encoding="utf-8") as stream:
        header = stream.readline().strip().split(",")
        cells = np.loadtxt(stream, delimiter=",", dtype=str)
    values = np.where(cells[:, 1:] == "", "nan", cells[:, 1:]).astype(np.float64)
    return header[1:], cells[:, 0].astype("datetime64"), values


def _decimal_year(dates: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Dates as one column of years and their fractions."""
    year = dates.astype("datetime64[Y]")
    start, end = year.astype("datetime64[D]"), (year + 1).astype("datetime64[D]")
    fraction = (dates.astype("datetime64[D]") - start) / (end - start)
    return (1970.0 + year.astype(np.int64) + fraction)[:, np.newaxis]


def _description(section: str) -> str:
    """Section of the data's README."""
    text = (_BUNDLED / "README.md").read_text(encoding="utf-8")
    return next(part for part in text.split("\n## ") if part.startswith(section + "\n"))


def _as_bunch(
    data: NDArray[np.float64],
    target: NDArray[np.float64],
    dates: NDArray[np.datetime64],
    *,
    names: list[str],
    return_X_y: bool,
    as_frame: bool,
    **extra: Any,
) -> Any:
    """Assemble what the loaders return; the last of `names` is the target's."""
    X: Any = data
    y: Any = target
    frame: Any = None
    if as_frame:
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                'as_frame=True needs pandas: pip install "skcurse[dataframe]".'
            ) from error
        index = pd.DatetimeIndex(dates.astype("datetime64[s]"), name="date")
        frame = pd.DataFrame(np.column_stack([data, target]), index=index, columns=names)
        X, y = frame[names[:-1]], frame[names[-1]]
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        frame=frame,
        index=dates,
        feature_names=names[:-1],
        target_names=names[-1:],
        **extra,
    )
