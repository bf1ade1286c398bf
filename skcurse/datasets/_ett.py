"""The Electricity Transformer Temperature series, fetched once and checked."""

from __future__ import annotations

import hashlib
import os
import shutil
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from sklearn.datasets import get_data_home

from skcurse.datasets._series import _as_bunch, _description, _read_csv

__all__ = ["fetch_ett"]

_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/"
_SHA256 = {
    "ETTh1": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
}
_TIMEOUT = 60.0  # seconds without a byte


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
    if name not in _SHA256:
        raise ValueError(f"name must be one of {sorted(_SHA256)}, got {name!r}.")
    path = _locate(name, data_home, download_if_missing)
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


def _locate(name: str, data_home: str | os.PathLike[str] | None, download: bool) -> Path:
    """Path of the checked file, downloaded if it is nowhere."""
    try:
        home = Path(get_data_home(data_home))
    except OSError as error:
        raise OSError(f"The data folder cannot be used: {error}") from error
    folder, file = home / "ett", f"{name}.csv"
    for path in (folder / file, home / file):
        if path.is_file():
            if flaw := _flaw(path, _SHA256[name]):
                raise OSError(f"{path} {flaw}: remove it to fetch it again.")
            return path
    if not download:
        raise OSError(f"{file} is neither in {folder} nor in {home}; download_if_missing is False.")
    url = _URL + file
    try:
        # The scratch folder vanishes whatever happens, and only a whole, checked file leaves it.
        with TemporaryDirectory(dir=home, prefix=f".{name}-") as scratch:
            part = Path(scratch) / file
            with urlopen(url, timeout=_TIMEOUT) as response, part.open("wb") as target:
                shutil.copyfileobj(response, target)
            if flaw := _flaw(part, _SHA256[name]):
                raise OSError(f"the download {flaw}")
            folder.mkdir(exist_ok=True)
            os.replace(part, folder / file)
    except (OSError, HTTPException) as error:
        raise OSError(
            f"Could not fetch {url} to {folder}: {error}. A copy of the file put there, or its "
            "folder as data_home, is used without the network."
        ) from error
    return folder / file


def _flaw(path: Path, sha256: str) -> str | None:
    """Say what is wrong with a file unless it has the expected sha256 sum."""
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual == sha256:
        return None
    size = path.stat().st_size
    return f"is truncated or changed ({size} bytes; its sha256 sum is {actual}, not {sha256})"
