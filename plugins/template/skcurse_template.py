"""A template: one diagnostic for skcurse."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcurse import hookimpl


def mean_error(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Mean of prediction minus target: positive where the model predicts too much.

    Parameters
    ----------
    estimator : fitted estimator
        Any regressor.
    X : array-like of shape (n_samples, n_features)
        Held-out rows.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Their targets.

    Returns
    -------
    float
        The mean error, over outputs too.
    """
    return float(np.mean(estimator.predict(X) - np.asarray(y)))


@hookimpl
def skcurse_diagnostics() -> dict[str, Callable[..., float]]:
    """Offer the diagnostic by name."""
    return {"mean_error": mean_error}
