"""The residual linear network: the newest value plus a linear model of the window."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Tags, check_array, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from skcurse.estimators._all_or_nothing import all_or_nothing
from skcurse.estimators._resources import checked_sample_weight
from skcurse.theory.residual_regression import (
    ResidualFactor,
    add_rows,
    column_weights,
    newest_column,
    solve_factor,
)

__all__ = ["ResidualLinearRegressor"]

Floats = NDArray[np.floating[Any]]

# Adding back a last value that predicts worse than this many variances of y cannot be meant.
_SCALED_APART = 4.0


class ResidualLinearRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Linear model of the change from the newest value of a window.

    With l the column of the newest value, ``centered=True`` predicts
    ``x_l + ⟨w, x_k - x_l⟩ + b``, k running over the other columns: the linear forecaster NLinear.
    ``centered=False`` predicts ``x_l + ⟨w, x_k⟩ + b``.

    Parameters
    ----------
    alpha : float, default=0.0
        Ridge penalty on the weights w, so towards forecasting the newest value itself. With 0,
        collinear columns get the weights of least norm.
    fit_intercept : bool, default=True
        Whether to fit the constant b.
    centered : bool, default=True
        Whether the newest value is subtracted from the other columns. Then a constant added to a
        series is added to its forecast.
    last_step : int, default=-1
        Column that holds the newest value; tables of lags often have it first, ``last_step=0``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Coefficients on the columns of X themselves: ``X @ coef_.T + intercept_`` is the prediction.
    intercept_ : float or ndarray of shape (n_outputs,)
        The constant b, 0.0 without `fit_intercept`.
    n_samples_seen_ : int
        Rows of positive weight seen by `fit` and by every `partial_fit` since.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of X, if they are all strings.

    Warns
    -----
    UserWarning
        If the newest value predicts y four times worse, in mean squared error, than the mean of y
        does: X was then scaled without y, and adding the newest value back is meaningless.

    See Also
    --------
    ResidualTargetRegressor : Any regressor, on the change from the newest value.
    sklearn.linear_model.Ridge : Linear model of the value itself.

    Notes
    -----
    The fit decomposes blocks of rows by QR and keeps the triangular factor, so `partial_fit`
    continues where `fit` stopped, in the memory of one block, and rows in any chunks give the same
    weights. Nearly collinear windows cost no more digits than they must, since normal equations are
    not formed from them. The exception is a view of windows that slide along one series, as
    `skcurse.datasets.make_windows` returns: without sample weights its Gram matrix is built from
    the series by a recursion, in O(n d) instead of O(n d²), and used where its condition number
    leaves ten digits.

    References
    ----------
    Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Section 6.2 and
    Proposition 6.3.

    Zeng, Chen, Zhang, Xu, "Are Transformers Effective for Time Series Forecasting?",
    arXiv:2205.13504 (NLinear).

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.datasets import make_windows
    >>> from skcurse.estimators.residual_linear import ResidualLinearRegressor
    >>> X, y = make_windows(np.sin(np.arange(60.0)), n_steps=4)
    >>> model = ResidualLinearRegressor().fit(X[:40], y[:40])
    >>> bool(np.allclose(model.predict(X[40:]), y[40:]))
    True
    """

    _factor: ResidualFactor
    _reading: dict[str, Any]

    def __init__(
        self,
        *,
        alpha: float = 0.0,
        fit_intercept: bool = True,
        centered: bool = True,
        last_step: int = -1,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.centered = centered
        self.last_step = last_step

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Values to predict, on the scale of X.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows.

        Returns
        -------
        self : ResidualLinearRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or an input is not valid, or values are so large that they overflow.
        """
        with all_or_nothing(self):
            return self._add(X, y, sample_weight, reset=True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the model to these rows and all rows seen before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Values to predict, on the scale of X.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights of the rows.

        Returns
        -------
        self : ResidualLinearRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            As `fit`, and if the number of columns of X or y, `centered` or `last_step` is not what
            it was in earlier calls; `alpha` and `fit_intercept` may change.
        """
        with all_or_nothing(self):
            return self._add(X, y, sample_weight, reset=not hasattr(self, "_factor"))

    def predict(self, X: ArrayLike) -> Floats:
        """Predict the values that follow windows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.

        Raises
        ------
        ValueError
            If X does not fit the estimator, or a prediction overflows.
        """
        check_is_fitted(self)
        windows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        batches = gen_batches(len(windows), max(1, _block_bytes() // windows[0].nbytes))
        with np.errstate(over="ignore", invalid="ignore"):
            blocks = [windows[rows] @ self.coef_.T + self.intercept_ for rows in batches]
        return _finite(np.concatenate(blocks), "The predictions")

    def _add(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> Self:
        """Fit to the rows given and, unless `reset`, to those seen before."""
        self._check_parameters()
        windows, values = validate_data(
            self,
            X,
            y,
            dtype=[np.float64, np.float32],
            y_numeric=True,
            multi_output=True,
            reset=reset,
        )
        targets = check_array(values.reshape(len(values), -1), dtype=[np.float64, np.float32])
        weights = checked_sample_weight(sample_weight, len(windows))
        last_step = newest_column(self.last_step, windows.shape[1])
        reading = {"centered": self.centered, "last_step": last_step, "outputs": values.shape[1:]}
        if not reset and reading != self._reading:
            raise ValueError(
                f"These rows are read as {reading}, but the rows seen before as {self._reading}: "
                "call fit to start anew."
            )
        factor = add_rows(
            None if reset else self._factor,
            windows,
            targets,
            weights,
            last_step=last_step,
            centered=self.centered,
            block_bytes=_block_bytes(),
        )
        w, b = solve_factor(factor, float(self.alpha), self.fit_intercept)
        with np.errstate(over="ignore", invalid="ignore"):
            coef = np.column_stack([column_weights(w, last_step, self.centered), b])
            coef = _finite(coef.astype(windows.dtype), "The coefficients")
        self._factor, self._reading = factor, reading
        self.n_samples_seen_ = factor.n_rows
        self.coef_ = coef[:, :-1] if values.ndim == 2 else coef[0, :-1]
        self.intercept_ = coef[:, -1] if values.ndim == 2 else coef[0, -1]
        self._check_scale(windows[:, [last_step]], targets, weights, reset)
        return self

    def _check_parameters(self) -> None:
        """Refuse parameters that mean nothing."""
        if not isinstance(self.alpha, Real) or not 0.0 <= self.alpha < np.inf:
            raise ValueError(f"alpha must be a finite number of at least 0, got {self.alpha!r}.")
        for name in ("fit_intercept", "centered"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}.")

    def _check_scale(self, newest: Floats, y: Floats, weights: Floats | None, reset: bool) -> None:
        """Warn if the newest value cannot be what y goes on from."""
        if reset:
            self._moments = StandardScaler()
        thin = slice(None, None, 1 + y.size // 10**6)  # a hint need not read a long y to the end
        values = np.hstack([y[thin], y[thin] - newest[thin]], dtype=np.float64)
        # After an overflow, or with no weight in the rows read, the comparison is false.
        with np.errstate(all="ignore"):
            self._moments.partial_fit(
                values, sample_weight=weights if weights is None else weights[thin]
            )
            variances, changes = np.split(self._moments.var_, 2)
            changes = changes + np.split(self._moments.mean_, 2)[1] ** 2
            by_mean, by_newest = variances.mean(), changes.mean()
        # Over a stretch no longer than windows and horizon, a moving series hardly leaves its mean.
        enough = self.n_samples_seen_ > self.n_features_in_ + y.shape[1]
        if enough and by_newest > _SCALED_APART * by_mean:
            warnings.warn(
                f"The newest value (column {self.last_step}) predicts y worse than the mean of y "
                f"does: mean squared error {by_newest:.3g} against {by_mean:.3g}. If X was scaled "
                "and y was not, adding the newest value back is meaningless: scale the series "
                "before cutting it into windows, or scale inside "
                "ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge())).",
                UserWarning,
                stacklevel=4,
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # The newest value's coefficient is fixed at 1, whatever the data say.
        tags.regressor_tags.poor_score = not self.centered
        return tags


def _finite(values: Floats, what: str) -> Floats:
    """Pass values on, unless they overflowed."""
    if not np.isfinite(values).all():
        raise ValueError(f"{what} overflow {values.dtype}: divide the series by a constant first.")
    return values


def _block_bytes() -> int:
    """Temporary memory: what scikit-learn's configuration allows, but larger is no faster."""
    return min(int(get_config()["working_memory"] * 2**20), 2**26)
