"""A scorer on a sample of another law."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.base import clone
from sklearn.metrics import check_scoring, get_scorer

from skcurse.datasets import DataModel
from skcurse.scorer import held_out


def _ood_score(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    data_model: DataModel,
    shift: str | None,
    metric: Any,
    n_samples: int,
    random_state: Any,
) -> float:
    """Score on a sample of the shifted law; X and y serve only a `DataModelStudy` on the way."""
    estimator, _, _ = held_out(estimator, X, y)
    sample = data_model.sample(n_samples, shift=shift, random_state=random_state)
    return float(get_scorer(metric)(estimator, *sample))


def ood_scorer(
    data_model: DataModel,
    *,
    shift: str | None,
    metric: str | Callable[..., float] = "neg_mean_squared_error",
    n_samples: int = 2000,
    random_state: int = 0,
) -> Callable[..., float]:
    """Make a scorer that ignores its X and y and scores on a sample of a shifted law.

    Every call draws the same sample, so that splits, candidates and estimators are compared on
    equal ground.

    Parameters
    ----------
    data_model : DataModel
        What to sample from; a copy is kept.
    shift : str or None
        One of ``data_model.shifts``; None scores on fresh draws of the training law.
    metric : str or callable, default="neg_mean_squared_error"
        A scikit-learn scorer, ``scorer(estimator, X, y)``, or its name; a function of y_true and
        y_pred becomes one by :func:`sklearn.metrics.make_scorer`.
    n_samples : int, default=2000
        Size of the sample.
    random_state : int, default=0
        Seed of the sample.

    Returns
    -------
    callable (estimator, X, y) -> float
        A picklable scorer.

    Raises
    ------
    ValueError
        If the data model knows no such shift, or scikit-learn no such metric.

    Examples
    --------
    >>> from sklearn.model_selection import cross_validate
    >>> from skcurse import ResidualLinearRegressor, ResidualSSM, ood_scorer
    >>> law = ResidualSSM(n_steps=8)
    >>> X, y = law.sample(200, random_state=0)
    >>> scoring = {"r2": "r2", "ood": ood_scorer(law, shift="sign_inconsistent")}
    >>> scores = cross_validate(ResidualLinearRegressor(), X, y, scoring=scoring)
    >>> scores["test_ood"].shape
    (5,)
    """
    data_model = clone(data_model)
    data_model.sample(1, shift=shift, random_state=random_state)  # an unknown shift fails here
    check_scoring(scoring=get_scorer(metric))  # no function of y_true and y_pred
    return partial(
        _ood_score,
        data_model=data_model,
        shift=shift,
        metric=metric,
        n_samples=n_samples,
        random_state=random_state,
    )
