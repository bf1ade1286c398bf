"""statsmodels' autoregression, fitted to each window on its own, as an estimator for skcurse."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from statsmodels.tsa.ar_model import AutoReg

from skcurse import hookimpl


class WindowAutoReg(RegressorMixin, BaseEstimator):
    """Forecast each window with an autoregression that has seen nothing but this window.

    A baseline without training: what it gets right needs no other window.

    Parameters
    ----------
    lags : int, default=1
        Order of the autoregression. A window needs at least ``2 * lags`` steps, one more with a
        constant.
    trend : {"n", "c"}, default="n"
        Without ("n") or with ("c") a constant.

    Attributes
    ----------
    n_features_in_ : int
        Window length.

    See Also
    --------
    statsmodels.tsa.ar_model.AutoReg : What is fitted.

    Examples
    --------
    >>> from skcurse import make_residual_ssm
    >>> from skcurse_statsmodels import WindowAutoReg
    >>> X, y = make_residual_ssm(20, 12, random_state=0)
    >>> WindowAutoReg().fit(X, y).predict(X).shape
    (20,)
    """

    def __init__(self, lags: int = 1, trend: str = "n") -> None:
        self.lags = lags
        self.trend = trend

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Check the windows; there is nothing to learn from them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows, oldest step first.
        y : array-like of shape (n_samples,)
            Next values.

        Returns
        -------
        self : WindowAutoReg
        """
        if self.lags < 1 or self.trend not in ("n", "c"):
            raise ValueError(f'{self!r} needs lags >= 1 and trend "n" or "c".')
        X, _ = validate_data(self, X, y, y_numeric=True)
        needed = 2 * self.lags + (self.trend == "c")
        if X.shape[1] < needed:
            raise ValueError(
                f"{self!r} needs windows of at least {needed} steps, got {X.shape[1]} feature(s)."
            )
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Forecast the step after each window.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Forecasts.
        """
        check_is_fitted(self, "n_features_in_")
        X = validate_data(self, X, reset=False, dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):  # variances of a perfect fit
            models = [AutoReg(x, self.lags, trend=self.trend).fit() for x in X]
            return np.array([model.forecast(1)[0] for model in models])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # y is never looked at
        return tags


@hookimpl
def skcurse_estimators() -> dict[str, type[WindowAutoReg]]:
    """Offer the estimator by name."""
    return {"window_autoreg": WindowAutoReg}
