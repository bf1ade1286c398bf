"""Any regressor, on the change from the newest value of a window."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.linear_model import LinearRegression
from sklearn.utils import Tags, assert_all_finite, check_array, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from skcurse.estimators._all_or_nothing import all_or_nothing
from skcurse.theory.residual_regression import newest_column

__all__ = ["ResidualTargetRegressor"]

_FLOATS = [np.float64, np.float32]


class ResidualTargetRegressor(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Regressor fitted on the change from the newest value, which its forecast adds back.

    A clone of `estimator` is fitted on ``y - X[:, last_step]``; the prediction is
    ``X[:, last_step] + estimator_.predict(X)``. The estimator sees all of X unchanged.

    Parameters
    ----------
    estimator : estimator object, default=None
        Regressor, a pipeline for instance: scaling X inside it leaves the value that is added back
        on the scale of y. ``None`` is `sklearn.linear_model.LinearRegression`;
        ``DummyRegressor(strategy="constant", constant=0.0)`` makes this persistence.
    last_step : int, default=-1
        Position of the column that holds the newest value, in data frames too.

    Attributes
    ----------
    estimator_ : estimator object
        The fitted clone.
    newest_mean_ : float
        Mean of the newest column in the first fit, which stands in for newest values that are
        missing.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of X, if they are all strings.

    See Also
    --------
    ResidualLinearRegressor : A linear model of the differences to the newest value.
    sklearn.compose.TransformedTargetRegressor : Other changes of y, that do not depend on X.

    Notes
    -----
    What X may be (sparse, with missing values, of mixed types) is up to the inner estimator; only
    the newest column must be numeric. Where it is missing, its mean over the rows of the first fit
    takes its place in both subtracting and adding back, so the inner estimator, which sees that it
    is missing, learns the rest. An inner estimator that does not look at X cannot: then a missing
    newest value is an error.

    Metadata such as ``sample_weight`` goes to the inner estimator: all keyword arguments of `fit`,
    `partial_fit` and `predict` without metadata routing, and what it requests with it.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skcurse.datasets import make_windows
    >>> from skcurse.estimators.residual_target import ResidualTargetRegressor
    >>> X, y = make_windows([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], n_steps=2)
    >>> model = ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge()))
    >>> model.fit(X, y).predict([[10.0, 11.0]])
    array([12.])
    """

    newest_mean_: float

    def __init__(self, estimator: Any = None, *, last_step: int = -1) -> None:
        self.estimator = estimator
        self.last_step = last_step

    def fit(self, X: Any, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit a clone of the inner estimator on the change from the newest value.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Windows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Values to predict, on the scale of the newest column of X.
        **fit_params : dict
            Metadata for the inner estimator's ``fit``, such as ``sample_weight``.

        Returns
        -------
        self : ResidualTargetRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If there is no column `last_step`, an input is not valid, or values overflow.
        """
        with all_or_nothing(self):
            return self._fit(clone(self._inner()), "fit", X, y, fit_params)

    @available_if(lambda self: hasattr(self._inner(), "partial_fit"))
    def partial_fit(self, X: Any, y: ArrayLike, **partial_fit_params: Any) -> Self:
        """Continue to fit the inner estimator; only available if it can.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Windows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Values to predict, on the scale of the newest column of X.
        **partial_fit_params : dict
            Metadata for the inner estimator's ``partial_fit``, such as ``sample_weight``.

        Returns
        -------
        self : ResidualTargetRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If there is no column `last_step`, an input is not valid, or values overflow.
        """
        estimator = self.estimator_ if hasattr(self, "estimator_") else clone(self._inner())
        with all_or_nothing(self):
            return self._fit(estimator, "partial_fit", X, y, partial_fit_params)

    def predict(self, X: Any, **predict_params: Any) -> NDArray[Any]:
        """Predict the values that follow windows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Windows.
        **predict_params : dict
            Metadata for the inner estimator's ``predict``.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.

        Raises
        ------
        ValueError
            If X does not fit the estimator, or a forecast is not finite.
        """
        check_is_fitted(self)
        newest = self._newest(X, reset=False)
        newest = np.where(np.isnan(newest), self.newest_mean_, newest)
        change = self.estimator_.predict(X, **self._routed("predict", predict_params))
        with np.errstate(over="ignore"):
            forecast = change + (newest if np.ndim(change) == 1 else newest[:, None])
        if not np.isfinite(forecast).all():
            raise ValueError(
                f"Forecasts of {self.estimator_} are not finite: divide the series by a constant "
                "of its own size first."
            )
        return forecast

    def get_metadata_routing(self) -> MetadataRouter:
        """Describe how metadata is routed to the inner estimator.

        Returns
        -------
        routing : MetadataRouter
            The routing of `fit`, `partial_fit` and `predict`, and what `score` itself requests.
        """
        mapping = MethodMapping()
        for method in ("fit", "partial_fit", "predict"):
            mapping = mapping.add(caller=method, callee=method)
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self._inner(), method_mapping=mapping)

    def _fit(
        self, estimator: Any, method: str, X: Any, y: ArrayLike, params: dict[str, Any]
    ) -> Self:
        """Fit or continue `estimator` on the change, and keep it."""
        if get_tags(estimator).estimator_type not in ("regressor", None):
            raise ValueError(
                f"estimator must be a regressor, since changes from the newest value are numbers; "
                f"got {estimator}."
            )
        first = method == "fit" or not hasattr(self, "estimator_")
        newest = self._newest(X, y, reset=first)
        values = check_array(y, ensure_2d=False, dtype=_FLOATS, input_name="y", estimator=self)
        check_consistent_length(newest, values)
        missing = np.isnan(newest)
        mean = 0.0 if missing.all() else float(newest[~missing].mean())
        newest = np.where(missing, mean if first else self.newest_mean_, newest)
        with np.errstate(over="ignore"):
            change = values - (newest if values.ndim == 1 else newest[:, None])
        if not np.isfinite(change).all():
            raise ValueError(
                f"Changes from the newest value overflow {change.dtype}: divide the series by a "
                "constant first."
            )
        getattr(estimator, method)(X, change, **self._routed(method, params))
        if first:
            self.estimator_, self.newest_mean_ = estimator, mean
        return self

    def _newest(
        self, X: Any, y: Any = "no_validation", *, reset: bool
    ) -> NDArray[np.floating[Any]]:
        """Check the columns of X and return the newest one, as floats of shape (n_samples,)."""
        table, sparse = X, issparse(X)
        if sparse:
            table = X.tocsr()
        elif not hasattr(X, "columns"):  # neither a pandas nor a polars data frame
            table = check_array(X, dtype=None, ensure_all_finite=False, estimator=self)
        validate_data(self, table, y, reset=reset, skip_check_array=True)
        column = newest_column(self.last_step, table.shape[1])
        if sparse:
            newest = table[:, [column]].toarray()[:, 0]
        else:
            newest = table.iloc[:, column] if hasattr(table, "iloc") else table[:, column]
        looked_at = not get_tags(self._inner()).no_validation
        names = getattr(self, "feature_names_in_", range(table.shape[1]))
        what = f"newest column of X ({names[column]!r}, last_step={self.last_step})"
        try:
            values: NDArray[np.floating[Any]] = check_array(
                newest, ensure_2d=False, dtype=_FLOATS, ensure_all_finite=False, estimator=self
            )
        except ValueError as error:
            raise ValueError(f"The {what} must be numeric: {error}") from error
        assert_all_finite(values, allow_nan=looked_at, input_name=f"the {what}")
        return values

    def _routed(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Metadata for the inner estimator."""
        if get_config()["enable_metadata_routing"]:
            return process_routing(self, method, **params)["estimator"][method]
        return params

    def _inner(self) -> Any:
        """Return the inner estimator's template."""
        if self.estimator is not None:
            return self.estimator
        if get_config()["enable_metadata_routing"]:
            return LinearRegression().set_fit_request(sample_weight=True)
        return LinearRegression()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._inner())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.target_tags.multi_output = inner.target_tags.multi_output
        tags.target_tags.single_output = inner.target_tags.single_output
        if inner.regressor_tags is not None:  # fit refuses what is no regressor
            tags.regressor_tags.poor_score = inner.regressor_tags.poor_score
        tags.non_deterministic = inner.non_deterministic
        tags.no_validation = inner.no_validation
        return tags
