"""Real series: two bundled ones in the public domain, and one that is fetched."""

import hashlib
import os
import shutil
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import get_data_home
from sklearn.utils import Bunch

__all__ = ["fetch_ett", "load_co2", "load_sunspots"]

_BUNDLED = files("skcurse.datasets") / "data"
_ETT_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/"
_ETT_SHA256 = {
    "ETTh1": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
}
_TIMEOUT = 60.0  # seconds without a byte


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


def fetch_ett(
    name: str = "ETTh1",
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
    as_frame: bool = False,
) -> Any:
    """Load an hourly Electricity Transformer Temperature series, fetching it if needed.

    Parameters
    ----------
    name : {"ETTh1", "ETTh2"}, default="ETTh1"
        Which transformer.
    data_home : str or path-like, default=None
        Folder of downloaded data, by default scikit-learn's (see
        :func:`sklearn.datasets.get_data_home`). The file is looked for in its sub-folder ``ett``
        and in the folder itself, and used from there without the network; a download goes to the
        sub-folder.
    download_if_missing : bool, default=True
        Whether to download a file that is not there.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a `Bunch`.
    as_frame : bool, default=False
        Whether data and target are pandas objects, indexed by date.

    Returns
    -------
    bunch : :class:`~sklearn.utils.Bunch`
        - ``data`` ndarray or DataFrame of shape (17420, 6): the loads
        - ``target`` ndarray or Series of shape (17420,): the oil temperature OT
        - ``index`` ndarray of datetime64 of shape (17420,): the hours
        - ``frame`` DataFrame of data and target, None unless `as_frame`
        - ``feature_names``, ``target_names`` lists of str
        - ``DESCR`` str: content, source and licence
        - ``filename`` str: path of the file
    (data, target) : tuple
        If `return_X_y`.

    Raises
    ------
    ValueError
        If `name` is unknown.
    OSError
        If the file is absent and not to be downloaded, if the download fails, or if the file's
        sha256 sum is wrong. No partial file is left, and a file already there is not touched.
    ImportError
        If `as_frame` and pandas is not installed.

    Notes
    -----
    The data are licensed under CC BY-ND 4.0 and not part of this package.

    References
    ----------
    Zhou, Zhang, Peng, Zhang, Li, Xiong, Zhang, "Informer: Beyond Efficient Transformer for Long
    Sequence Time-Series Forecasting", AAAI 2021.

    Examples
    --------
    >>> from skcurse.datasets import fetch_ett
    >>> bunch = fetch_ett("ETTh1")  # doctest: +SKIP
    >>> bunch.target.shape  # doctest: +SKIP
    (17420,)
    """
    if name not in _ETT_SHA256:
        raise ValueError(f"name must be one of {sorted(_ETT_SHA256)}, got {name!r}.")
    path = _locate_ett(name, data_home, download_if_missing)
    names, dates, values = _read_csv(path)
    return _as_bunch(
        values[:, :-1],
        values[:, -1],
        dates,
        names=names,
        return_X_y=return_X_y,
        as_frame=as_frame,
        DESCR=_description("ett"),
        filename=str(path),
    )


def _locate_ett(name: str, data_home: str | os.PathLike[str] | None, download: bool) -> Path:
    """Path of the checked file, downloaded if it is nowhere."""
    try:
        home = Path(get_data_home(data_home))
    except OSError as error:
        raise OSError(f"The data folder cannot be used: {error}") from error
    folder, file = home / "ett", f"{name}.csv"
    for path in (folder / file, home / file):
        if path.is_file():
            _check_sha256(path, _ETT_SHA256[name])
            return path
    if not download:
        raise OSError(f"{file} is neither in {folder} nor in {home}; download_if_missing is False.")
    url = _ETT_URL + file
    try:
        folder.mkdir(exist_ok=True)
        # The scratch folder vanishes whatever happens, and only a whole, checked file leaves it.
        with TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
            part = Path(scratch) / file
            with urlopen(url, timeout=_TIMEOUT) as response, part.open("wb") as target:
                shutil.copyfileobj(response, target)
            _check_sha256(part, _ETT_SHA256[name])
            os.replace(part, folder / file)
    except (OSError, HTTPException) as error:
        raise OSError(
            f"Could not fetch {url} to {folder}: {error} A copy of the file put there, or its "
            "folder as data_home, is used without the network."
        ) from error
    return folder / file


def _check_sha256(path: Path, expected: str) -> None:
    """Raise OSError unless the file has the expected sha256 sum."""
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != expected:
        raise OSError(
            f"{path} ({path.stat().st_size} bytes) is truncated or changed: its sha256 sum is "
            f"{actual}, not {expected}. Remove it and fetch it again."
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
