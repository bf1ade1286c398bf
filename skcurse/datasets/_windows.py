"""Windows of a series: lag tables for forecasting, and a series as a data model."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array

from skcurse.datasets._base import DataModel

__all__ = ["SeriesWindows", "WindowIndex", "make_windows"]


class WindowIndex(NamedTuple):
    """Where each window of `make_windows` comes from.

    Attributes
    ----------
    channel : ndarray of shape (n_windows,)
        Column of the series: its name in a data frame, else its position (0 for a 1-D series).
    target : ndarray of shape (n_windows,)
        Row of the window's first target: its label (say, a timestamp) if the series has an
        ``index``, else its position.
    """

    channel: NDArray[Any]
    target: NDArray[Any]


@overload
def make_windows(
    series: Any,
    n_steps: int,
    horizon: int = ...,
    *,
    step: int = ...,
    return_index: Literal[False] = ...,
) -> tuple[NDArray[Any], NDArray[Any]]: ...


@overload
def make_windows(
    series: Any, n_steps: int, horizon: int = ..., *, step: int = ..., return_index: Literal[True]
) -> tuple[NDArray[Any], NDArray[Any], WindowIndex]: ...


def make_windows(
    series: Any, n_steps: int, horizon: int = 1, *, step: int = 1, return_index: bool = False
) -> tuple[NDArray[Any], NDArray[Any]] | tuple[NDArray[Any], NDArray[Any], WindowIndex]:
    """Cut a series into windows of past values and the values that follow.

    Parameters
    ----------
    series : array-like of shape (n_rows,) or (n_rows, n_channels)
        Values in time order. Each column of a 2-D array or data frame is a channel, and channels
        become rows: first all windows of the first channel, then those of the second, and so on.
        float32 is kept, other types become float64.
    n_steps : int
        Number of past values in a window.
    horizon : int, default=1
        Number of values to forecast.
    step : int, default=1
        Rows between the starts of consecutive windows of a channel.
    return_index : bool, default=False
        Whether to return the origin of each window as well.

    Returns
    -------
    X : ndarray of shape (n_windows, n_steps)
        Past values, the newest in the last column. Read-only.
    y : ndarray of shape (n_windows,) or (n_windows, horizon)
        The next values, one-dimensional for a horizon of 1. Read-only.
    index : WindowIndex
        Channel and first target of each window; only if `return_index`.

    Raises
    ------
    ValueError
        If the series is too short, not numeric, or has missing or infinite values: the message
        names the numbers, or the row and the column.

    Notes
    -----
    For one channel, X and y are strided views of the series (of the caller's own array, if that is
    one of floats), so n_windows * n_steps values cost the memory of n_rows. Windows of several
    channels have no common stride: there, X and y are parts of one copy of n_windows rows of
    ``n_steps + horizon`` values.

    Examples
    --------
    >>> from skcurse.datasets import make_windows
    >>> X, y = make_windows([1.0, 2.0, 3.0, 4.0, 5.0], n_steps=3)
    >>> X
    array([[1., 2., 3.],
           [2., 3., 4.]])
    >>> y
    array([4., 5.])
    """
    for name, value in (("n_steps", n_steps), ("horizon", horizon), ("step", step)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    values = _check_series(series)
    length = n_steps + horizon
    if len(values) < length:
        raise ValueError(
            f"The series has {len(values)} rows, but n_steps={n_steps} and horizon={horizon} need "
            f"at least {length}."
        )
    columns = values.reshape(len(values), -1)
    windows = sliding_window_view(columns, length, axis=0)[::step].transpose(1, 0, 2)
    n_channels, n_windows, _ = windows.shape
    rows = windows.reshape(-1, length)  # a view for one channel, a copy for several
    rows.flags.writeable = False
    X, y = rows[:, :n_steps], rows[:, n_steps:] if horizon > 1 else rows[:, n_steps]
    if not return_index:
        return X, y
    first = n_steps + step * np.arange(n_windows)
    return X, y, _window_index(series, first, n_channels)


class SeriesWindows(DataModel):
    """Windows of one real series, in time order, as a data model.

    A series is one realisation of its law, so nothing here is random: ``sample(n_samples)`` returns
    the first `n_samples` windows, an ordered training segment, whatever the ``random_state``. Two
    samples are therefore never independent: split `windows` in time order, by
    ``TimeSeriesSplit(gap=horizon - 1)``, and keep the rows of a final test set out of `series`.

    Parameters
    ----------
    series : array-like of shape (n_rows,) or (n_rows, 1)
        Values in time order.
    n_steps : int
        Number of past values in a window.
    horizon : int, default=1
        Number of values to forecast.
    scale : bool, default=True
        Whether the series is standardised before it is cut, by the mean and the standard deviation
        of its training part: the rows that the sampled windows (`sample`) or the training windows
        (`windows`) cover. A constant training part is centred only.

    See Also
    --------
    make_windows : The windows as a function, for several channels too.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.datasets import SeriesWindows
    >>> model = SeriesWindows(np.arange(10.0), n_steps=3, scale=False)
    >>> X, y = model.sample(2)
    >>> X
    array([[0., 1., 2.],
           [1., 2., 3.]])
    >>> y
    array([3., 4.])
    """

    def __init__(self, series: Any, n_steps: int, horizon: int = 1, *, scale: bool = True) -> None:
        self.series = series
        self.n_steps = n_steps
        self.horizon = horizon
        self.scale = scale

    def windows(self, n_train: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return all windows of the series, in time order.

        Parameters
        ----------
        n_train : int, default=None
            Number of leading windows whose rows set the scale; ``None`` means all. Later rows
            have no influence, so a split in time order leaks nothing.

        Returns
        -------
        X : ndarray of shape (n_windows, n_steps)
            Past values, read-only.
        y : ndarray of shape (n_windows,) or (n_windows, horizon)
            Next values, read-only.

        Raises
        ------
        ValueError
            As in `make_windows`; if the series has several columns; or if `n_train` is
            not between 1 and its number of windows.

        Examples
        --------
        >>> from skcurse.datasets import SeriesWindows, load_sunspots
        >>> model = SeriesWindows(load_sunspots().target, n_steps=16)
        >>> X, y = model.windows(n_train=200)
        >>> X.shape, bool(abs(X[:200].mean()) < 0.1)
        ((293, 16), True)
        """
        values = _check_series(self.series)
        if values.ndim == 2 and values.shape[1] > 1:
            raise ValueError(
                f"SeriesWindows takes one series, got {values.shape[1]} columns: pick one, or use "
                "make_windows, which turns channels into rows."
            )
        X, y = make_windows(values.ravel(), self.n_steps, self.horizon)
        n_train = len(X) if n_train is None else n_train
        if not 1 <= n_train <= len(X):
            raise ValueError(
                f"The number of windows must be between 1 and {len(X)}, the windows of a series of "
                f"{len(values)} rows with n_steps={self.n_steps} and horizon={self.horizon}, got "
                f"{n_train}."
            )
        if not self.scale:
            return X, y
        column = values.reshape(-1, 1)
        training_part = column[: n_train + self.n_steps + self.horizon - 1]
        # In units of the peak, since squares of huge or tiny values leave the floating-point range.
        peak = np.abs(training_part).max() or 1.0
        scaled = StandardScaler().fit(training_part / peak).transform(column / peak)
        return make_windows(scaled, self.n_steps, self.horizon)

    def target_index(self) -> NDArray[Any]:
        """Return where the first target of each window stands, in the order of `windows`.

        Returns
        -------
        ndarray of shape (n_windows,)
            Labels of the series' index, say timestamps, if it has one; otherwise rows.

        Examples
        --------
        >>> import numpy as np
        >>> from skcurse.datasets import SeriesWindows
        >>> SeriesWindows(np.arange(6.0), n_steps=3).target_index()
        array([3, 4, 5])
        """
        return make_windows(self.series, self.n_steps, self.horizon, return_index=True)[2].target

    def _sample(
        self, n_samples: int, shift: str | None, rng: np.random.RandomState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        X, y = self.windows(n_train=n_samples)
        return X[:n_samples], y[:n_samples]


def _check_series(series: Any) -> NDArray[Any]:
    """Return the series as a finite float array of one or two dimensions."""
    if np.ma.is_masked(series):
        series = np.ma.filled(np.ma.asarray(series, dtype=np.float64), np.nan)
    try:
        if np.asarray(series).dtype.kind in "mM":
            raise TypeError("The series holds dates or durations, not numbers.")
        values = check_array(
            series,
            dtype=[np.float64, np.float32],
            ensure_2d=False,
            ensure_all_finite=False,
            ensure_min_samples=0,
            ensure_min_features=0,
            input_name="series",
        )
    except (TypeError, ValueError) as error:
        raise ValueError(_describe_non_numeric(series) or str(error)) from error
    if values.ndim not in (1, 2) or 0 in values.shape[1:]:
        raise ValueError(f"series must be 1-D, or 2-D with a column a channel, got {values.shape}.")
    bad = ~np.isfinite(values)
    if bad.any():
        row, *column = np.argwhere(bad)[0].tolist()
        kind = "a missing value (NaN)" if np.isnan(values[row, *column]) else "an infinite value"
        raise ValueError(
            f"The series has {kind} at {_where(series, row, *column)}; {bad.sum()} of its "
            f"{bad.size} values are missing or infinite: fill or drop them first."
        )
    return values


def _describe_non_numeric(series: Any) -> str | None:
    """Name the first value that is no number, if there is one."""
    for position, value in np.ndenumerate(np.asarray(series, dtype=object)):
        try:
            float(value)
        except (TypeError, ValueError):
            if value is not None and str(value) != "<NA>":
                return f"The series is not numeric: {value!r} at {_where(series, *position)}."
    return None


def _where(series: Any, row: int, column: int = 0) -> str:
    """Row and column in words, with the labels of a pandas or polars object."""
    index: Any = getattr(series, "index", None)
    place = f"row {row}"
    if hasattr(index, "to_numpy") and index[row] != row:
        place += f" ({index[row]})"
    columns = getattr(series, "columns", None)
    name = getattr(series, "name", None) if columns is None else columns[column]
    return f"{place}, column {column if name is None else name!r}"


def _window_index(series: Any, first: NDArray[Any], n_channels: int) -> WindowIndex:
    """Channel and first target of each window, in the labels of a data frame."""
    index: Any = getattr(series, "index", None)
    target = index.to_numpy()[first] if hasattr(index, "to_numpy") else first
    names = np.asarray(getattr(series, "columns", np.arange(n_channels)))
    return WindowIndex(np.repeat(names, len(first)), np.tile(target, n_channels))
