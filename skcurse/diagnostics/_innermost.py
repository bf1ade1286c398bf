"""See through pipelines and meta-estimators."""

from typing import Any

from sklearn.pipeline import Pipeline

# Where scikit-learn's and our meta-estimators keep the fitted estimator they wrap.
_WRAPPED = ("best_estimator_", "regressor_", "estimator_")


def innermost(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator inside pipelines and meta-estimators, and X as it receives it.

    Parameters
    ----------
    estimator : fitted estimator
        Possibly a `Pipeline`, a search, a `TransformedTargetRegressor`, a
        `ResidualTargetRegressor`, or one of these around another.
    X : array-like of shape (n_samples, n_features)
        Rows for the outer estimator.

    Returns
    -------
    estimator : fitted estimator
        The innermost one.
    X : array-like
        The rows, transformed by the pipelines on the way.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skcurse.diagnostics import innermost
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> pipeline = make_pipeline(StandardScaler(), Ridge()).fit(X, X[:, 0])
    >>> model, scaled = innermost(pipeline, X)
    >>> model, bool(abs(scaled.mean()) < 1e-12)
    (Ridge(), True)
    """
    while True:
        if isinstance(estimator, Pipeline):
            if len(estimator) > 1:
                X = estimator[:-1].transform(X)
            estimator = estimator[-1]
            continue
        for name in _WRAPPED:
            if hasattr(estimator, name):
                estimator = getattr(estimator, name)
                break
        else:
            return estimator, X
