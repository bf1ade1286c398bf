"""A data model and an estimator as one estimator whose rows are seeds."""

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.metrics import get_scorer
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skcurse.datasets import DataModel
from skcurse.datasets._base import is_series


class DataModelStudy(MetaEstimatorMixin, BaseEstimator):
    """Fit an estimator on samples of a data model; the rows are seeds.

    `fit` draws a training sample with the seeds that it is given and fits a clone of the estimator
    on it; `score` draws a test sample with other seeds. So a plain `GridSearchCV` or
    `cross_validate` over ``np.arange(20)`` searches data models and estimators at once, and the
    splits of its ``cv_results_`` are independent replicates of the whole experiment.

    Parameters
    ----------
    estimator : estimator
        What is fitted. A grid reaches its parameters as ``estimator__...``.
    data_model : DataModel
        What is sampled. A grid reaches its parameters as ``data_model__...``.
    n_samples : int, default=400
        Rows of each training and of each test sample, however many seeds there are.
    shift : str, default=None
        The law of the test samples: one of ``data_model.shifts``, or None for the training law.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone.

    See Also
    --------
    study_scorer : Any scikit-learn metric, under any shift, in the ``scoring`` of a search.
    compare : Several estimators on several data models in one call.

    Notes
    -----
    The sample of a set of seeds is
    ``data_model.sample(n_samples, random_state=numpy.random.RandomState(seeds))``: one draw from
    one stream, so different sets of seeds give independent samples, and the same ones in the same
    order give the sample that `fit` saw (`GridSearchCV`'s training scores rely on it). What is
    fixed by the data model's own parameters, such as the system of a `ResidualSSM`, is shared by
    all of them.

    A search passes a scorer nothing but seeds. The diagnostics of this package ask `test_sample`
    for the rows themselves; scikit-learn's metrics need `study_scorer`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skcurse.comparison import DataModelStudy
    >>> from skcurse.datasets import ResidualSSM
    >>> study = DataModelStudy(Ridge(), ResidualSSM(n_steps=8), n_samples=100)
    >>> grid = {"data_model__gamma": [0.3, 0.8], "estimator__alpha": [0.1, 10.0]}
    >>> search = GridSearchCV(study, grid, cv=5).fit(np.arange(20))
    >>> search.cv_results_["mean_test_score"].shape
    (4,)
    """

    def __init__(
        self, estimator: Any, data_model: Any, *, n_samples: int = 400, shift: str | None = None
    ) -> None:
        self.estimator = estimator
        self.data_model = data_model
        self.n_samples = n_samples
        self.shift = shift

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draw a training sample with the seeds `X` and fit a clone of the estimator on it.

        Parameters
        ----------
        X : array-like of shape (n_seeds,) or (n_seeds, 1)
            Seeds: integers from 0 to 2**32 - 1.
        y : ignored
            Present for scikit-learn's sake.

        Returns
        -------
        self : DataModelStudy
            The fitted study.

        Raises
        ------
        ValueError
            If `X` does not hold seeds, or the data model is a series.
        """
        sample = self._draw(X, None)
        self.estimator_ = clone(self.estimator).fit(*sample)
        return self

    def test_sample(
        self, X: ArrayLike, *, shift: str | None = "study"
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw the sample that belongs to the seeds `X`.

        Parameters
        ----------
        X : array-like of shape (n_seeds,) or (n_seeds, 1)
            Seeds.
        shift : str or None, default="study"
            The law to draw from; "study" is the study's own `shift`, None the training law.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Inputs.
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        Raises
        ------
        ValueError
            If `X` does not hold seeds or the data model knows no such shift.
        """
        return self._draw(X, self.shift if shift == "study" else shift)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict for rows of the data model (not for seeds) with the fitted estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows such as `test_sample` returns.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(X)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Score the fitted estimator on the test sample of the seeds `X`.

        Parameters
        ----------
        X : array-like of shape (n_seeds,) or (n_seeds, 1)
            Seeds that `fit` has not seen.
        y : ignored
            Present for scikit-learn's sake.

        Returns
        -------
        float
            The estimator's own score: R² for a regressor.
        """
        check_is_fitted(self, "estimator_")
        return float(self.estimator_.score(*self.test_sample(X)))

    def _draw(
        self, X: ArrayLike, shift: str | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sample the data model with a stream that is seeded by all of `X`."""
        stream = np.random.RandomState(_check_seeds(X))
        model: DataModel = self.data_model
        if is_series(model):
            raise ValueError(
                f"{type(model).__name__} is one series: no seed draws a sample that the training "
                "has not seen. Compare forecasters on it with compare(), or cross-validate with "
                "TimeSeriesSplit."
            )
        return model.sample(self.n_samples, shift=shift, random_state=stream)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = get_tags(self.estimator).estimator_type
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def study_scorer(scoring: Any, *, shift: str | None = "study") -> Any:
    """Make a scorer that sees the test sample of a `DataModelStudy` instead of its seeds.

    Parameters
    ----------
    scoring : str or callable
        A scikit-learn metric's name or a scorer ``(estimator, X, y) -> float``.
    shift : str or None, default="study"
        The law of the test sample; "study" is the study's own `shift`, None the training law. So
        one search can score in and out of distribution.

    Returns
    -------
    callable
        A picklable scorer ``(study, seeds, y=None) -> float``.

    Raises
    ------
    ValueError
        If scikit-learn knows no metric of this name.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.model_selection import cross_validate
    >>> from skcurse.comparison import DataModelStudy, study_scorer
    >>> from skcurse.datasets import ResidualSSM
    >>> study = DataModelStudy(LinearRegression(), ResidualSSM(n_steps=8))
    >>> mse = "neg_mean_squared_error"
    >>> scoring = {"id": study_scorer(mse), "ood": study_scorer(mse, shift="sign_inconsistent")}
    >>> scores = cross_validate(study, np.arange(20), scoring=scoring)
    >>> bool((scores["test_ood"] < 0).all())
    True
    """
    return partial(_score_study, scorer=get_scorer(scoring), shift=shift)


def _score_study(
    study: Any, X: ArrayLike, y: Any = None, *, scorer: Any, shift: str | None
) -> float:
    """Call `scorer` on the fitted estimator and the sample of the seeds `X`."""
    study = getattr(study, "best_estimator_", study)
    check_is_fitted(study, "estimator_")
    return float(scorer(study.estimator_, *study.test_sample(X, shift=shift)))


def _check_seeds(X: ArrayLike) -> NDArray[np.uint32]:
    """Return seeds as a vector, or say why `X` holds none."""
    seeds = np.asarray(X)
    if seeds.ndim == 2 and seeds.shape[1] == 1:
        seeds = seeds[:, 0]
    if seeds.ndim != 1 or seeds.size == 0 or not np.issubdtype(seeds.dtype, np.integer):
        raise ValueError(
            "The rows of a DataModelStudy are seeds: pass a vector of integers such as "
            f"np.arange(20), got shape {seeds.shape} and dtype {seeds.dtype}."
        )
    if seeds.min() < 0 or seeds.max() > np.iinfo(np.uint32).max:
        raise ValueError(
            f"Seeds must lie in [0, 2**32 - 1], got values from {seeds.min()} to {seeds.max()}."
        )
    return seeds.astype(np.uint32)
