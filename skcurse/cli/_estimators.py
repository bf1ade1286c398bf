"""What the command line compares unless it is told otherwise, and how names become estimators."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils.discovery import all_estimators

from skcurse.estimators import (
    AttentionNTKRegressor,
    ResidualLinearRegressor,
    ResidualTargetRegressor,
    SoftmaxICLRegressor,
)
from skcurse.plugins import get_estimators


class Rows(NamedTuple):
    """What an estimator must know of the rows it will see."""

    horizon: int = 1
    n_context: int | None = None


def _attention(rows: Rows) -> Any:
    return AttentionNTKRegressor()


def _residual_linear(rows: Rows) -> Any:
    return ResidualLinearRegressor()


def _residual_ridge(rows: Rows) -> Any:
    alphas = [0.0, *np.logspace(-2, 4, 7)]
    splits = TimeSeriesSplit(5, gap=rows.horizon - 1)  # no training row holds a target of its test
    return GridSearchCV(
        ResidualLinearRegressor(), {"alpha": alphas}, cv=splits, scoring="neg_mean_squared_error"
    )


def _persistence(rows: Rows) -> Any:
    unchanged = DummyRegressor(strategy="constant", constant=[0.0] * rows.horizon)
    return ResidualTargetRegressor(unchanged)


def _gradient_boosting(rows: Rows) -> Any:
    # What scikit-learn's guide advises first for tables of this size: it needs no tuning.
    boosting = HistGradientBoostingRegressor()
    return boosting if rows.horizon == 1 else MultiOutputRegressor(boosting)


def _softmax_icl(rows: Rows) -> Any:
    return SoftmaxICLRegressor(rows.n_context)


ESTIMATORS: dict[str, Callable[[Rows], Any]] = {
    "attention": _attention,
    "residual_linear": _residual_linear,
    "residual_ridge": _residual_ridge,
    "persistence": _persistence,
    "gradient_boosting": _gradient_boosting,
    "softmax_icl": _softmax_icl,
}
# A data model gives as many rows as one likes: no ridge strength to tune.
FOR_WINDOWS = ("attention", "residual_linear", "persistence", "gradient_boosting")
FOR_SERIES = ("attention", "residual_linear", "residual_ridge", "persistence", "gradient_boosting")
FOR_PROMPTS = ("softmax_icl", "Ridge", "gradient_boosting")


def make_estimator(name: str, rows: Rows) -> Any:
    """Return one of `ESTIMATORS`, a registered estimator or a regressor of scikit-learn.

    Raises
    ------
    ValueError
        If there is none of this name.
    """
    if name in ESTIMATORS:
        return ESTIMATORS[name](rows)
    registered = get_estimators()
    if name in registered:
        return registered[name]()
    regressors = dict(all_estimators("regressor"))
    if name in regressors:
        return regressors[name]()
    raise ValueError(
        f"Unknown estimator {name!r}: name one of {', '.join({**ESTIMATORS, **registered})}, "
        "or a regressor of scikit-learn, such as Ridge."
    )
