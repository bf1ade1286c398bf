"""Forecasts against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.displays._style import COLORS, LABEL, LEGEND, make_axes


class ForecastDisplay:
    """A series and what was forecast for it.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        The series.
    y_pred : dict of str to array-like of shape (n_samples,)
        Forecasts by name.
    index : array-like of shape (n_samples,), default=None
        Time of each value, say timestamps; None counts.

    Attributes
    ----------
    ax_ : matplotlib axes
        Set by `plot`.
    figure_ : matplotlib figure
        Set by `plot`.

    Examples
    --------
    >>> from skcurse.displays import ForecastDisplay
    >>> display = ForecastDisplay.from_predictions([1.0, 2.0], [1.5, 1.5])
    >>> len(display.ax_.lines)
    2
    """

    def __init__(
        self, y_true: ArrayLike, y_pred: Mapping[str, ArrayLike], *, index: Any = None
    ) -> None:
        self.y_true = y_true
        self.y_pred = y_pred
        self.index = index

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, y_pred: Any, *, index: Any = None, step: int = 0, ax: Any = None
    ) -> Self:
        """Plot forecasts.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, horizon)
            Truth.
        y_pred : array-like of the same shape, or dict of str to such arrays
            Forecasts; a dict names them.
        index : array-like of shape (n_samples,), default=None
            Time of each value, for instance ``index.target`` of `make_windows`.
        step : int, default=0
            Which step of the horizon.
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        ForecastDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If lengths differ or there is no such step.
        ImportError
            If matplotlib is not installed.
        """
        forecasts = y_pred if isinstance(y_pred, Mapping) else {"forecast": y_pred}
        columns = {name: _column(name, values, step) for name, values in forecasts.items()}
        return cls(_column("y_true", y_true, step), columns, index=index).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        index: Any = None,
        step: int = 0,
        ax: Any = None,
    ) -> Self:
        """Plot the forecasts of one fitted estimator, or of a dict of them.

        Parameters
        ----------
        estimator : fitted estimator or dict of str to fitted estimator
            What predicts; a dict names them.
        X : array-like of shape (n_samples, n_features)
            Windows.
        y : array-like of shape (n_samples,) or (n_samples, horizon)
            What came next.
        index : array-like of shape (n_samples,), default=None
            Time of each value.
        step : int, default=0
            Which step of the horizon.
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        ForecastDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If lengths differ or there is no such step.
        ImportError
            If matplotlib is not installed.
        """
        if not isinstance(estimator, Mapping):
            estimator = {type(estimator).__name__: estimator}
        predictions = {name: model.predict(X) for name, model in estimator.items()}
        return cls.from_predictions(y, predictions, index=index, step=step, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure, one column of a paper wide.

        Returns
        -------
        self : ForecastDisplay
            With ``ax_`` and ``figure_``.

        Raises
        ------
        ValueError
            If lengths differ.
        ImportError
            If matplotlib is not installed.
        """
        own_figure = ax is None
        self._check_lengths()
        self.ax_ = ax = make_axes(ax)
        times = np.arange(np.size(self.y_true)) if self.index is None else self.index
        ax.plot(times, self.y_true, color="black", linewidth=1, label="truth")
        for k, (name, values) in enumerate(self.y_pred.items()):
            ax.plot(times, values, color=COLORS[k % len(COLORS)], linewidth=1, label=name,
                    linestyle=("--", "-.", ":")[k % 3])  # fmt: skip
        ax.set_xlabel("window" if self.index is None else "time", **LABEL)
        ax.set_ylabel("value", **LABEL)
        ax.tick_params(labelsize=8)
        self.figure_ = ax.figure
        if own_figure:
            if self.index is not None:
                self.figure_.autofmt_xdate()
            self.figure_.legend(loc="outside upper center", ncols=2, **LEGEND)
        else:
            ax.legend(**LEGEND)
        return self

    def _check_lengths(self) -> None:
        """Refuse forecasts or times that are not as many as the values."""
        columns = dict(self.y_pred) | ({} if self.index is None else {"index": self.index})
        for name, values in columns.items():
            if np.shape(values) != np.shape(self.y_true):
                raise ValueError(
                    f"{name!r} has shape {np.shape(values)}, but y_true has shape "
                    f"{np.shape(self.y_true)}."
                )


def _column(name: str, values: ArrayLike, step: int) -> NDArray[Any]:
    """One step of the horizon."""
    values = np.asarray(values)
    if values.ndim == 1:
        values = values[:, np.newaxis]
    if values.ndim != 2:
        raise ValueError(f"{name!r} must have one or two dimensions, got shape {values.shape}.")
    if not isinstance(step, Integral) or not 0 <= step < values.shape[1]:
        raise ValueError(
            f"step must be an integer in [0, {values.shape[1]}), the horizon of {name!r}, got "
            f"{step!r}."
        )
    return values[:, step]
