"""What the command line compares unless it is told otherwise, and how names become estimators."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils.discovery import all_estimators

from skcurse.cli._names import plugins_that_offer, refuse_ambiguous
from skcurse.estimators import (
    AttentionNTKRegressor,
    ResidualLinearRegressor,
    ResidualTargetRegressor,
    SoftmaxICLRegressor,
)
from skcurse.plugins import PluginError, construct, describe_unknown, get_estimators


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
        If there is none of this name, or several, or it needs arguments.
    """
    owners = plugins_that_offer("estimators", name)
    if name in ESTIMATORS:
        refuse_ambiguous("Estimator", name, ["the command itself", *owners])
        return ESTIMATORS[name](rows)
    try:
        registered = get_estimators([name])[name]
    except PluginError:  # two plugins offer it, or strict mode
        raise
    except ValueError:
        registered = None
    if registered is not None and not owners:
        return construct(name, registered)
    regressors = dict(all_estimators("regressor"))  # slow: it imports all of scikit-learn
    if registered is not None:
        refuse_ambiguous("Estimator", name, [*owners, *["scikit-learn"] * (name in regressors)])
        return construct(name, registered)
    if name in regressors:
        return construct(name, regressors[name])
    known = [*ESTIMATORS, *get_close_matches(name, regressors)]
    raise ValueError(
        f"{describe_unknown('estimators', name, known)} Regressors of scikit-learn can be named "
        "too, such as Ridge."
    )
