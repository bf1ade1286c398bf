"""Diagnostics: functions (estimator, X, y) -> float that run as scorers.

Each measures one quantity of the papers on a fitted estimator, so that it can stand in the
``scoring`` dict of `cross_validate` or `GridSearchCV`. A diagnostic asks for what it needs
(``weights_``, ``signs_``, ...), never for a type, and returns nan where the estimator has none of
it. Pipelines, searches and other meta-estimators are seen through.

References
----------
.. [Curse] Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061.
.. [ICL] Huang, Cheng, Liang, "In-Context Convergence of Transformers", arXiv:2310.05249.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline
from sklearn.utils import gen_batches

from skcurse.datasets import DataModel, unpack_prompts
from skcurse.theory.icl_population import loss_infimum

__all__ = [
    "attention_concentration",
    "kernel_drift",
    "last_step_attention",
    "loss_floor_gap",
    "ntk_effective_rank",
    "ntk_min_eigenvalue",
    "ood_scorer",
    "sign_agreement",
    "update_alignment",
    "weight_movement",
    "weight_sign_alignment",
]

# Where scikit-learn's and our meta-estimators keep the fitted estimator they wrap.
_WRAPPED = ("best_estimator_", "regressor_", "estimator_")


def _innermost(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator inside pipelines and meta-estimators, and X as it receives it."""
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


def _test_sample(estimator: Any, X: Any, y: Any) -> tuple[Any, Any, Any]:
    """Replace the seeds of a `DataModelStudy` by the sample it draws with them."""
    if hasattr(estimator, "best_estimator_") and hasattr(estimator.best_estimator_, "test_sample"):
        estimator = estimator.best_estimator_
    if hasattr(estimator, "test_sample"):
        X, y = estimator.test_sample(X)
        estimator = estimator.estimator_
    return estimator, X, y


def _network(estimator: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """Weights (n_outputs, m), initial weights (m,) and signs (m,), if the estimator has them."""
    names = ("weights_", "initial_weights_", "signs_")
    if not all(hasattr(estimator, name) for name in names):
        return None
    weights, initial, signs = (np.asarray(getattr(estimator, name), float) for name in names)
    return np.atleast_2d(weights), initial, signs


def weight_sign_alignment(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Share of neurons whose weight has the sign of their output, averaged over the two signs.

    Parameters
    ----------
    estimator : fitted estimator
        With ``weights_``, ``initial_weights_`` and ``signs_``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Not used but by meta-estimators on the way.
    y : ignored

    Returns
    -------
    float
        In [0, 1]; 0.5 is chance, 1 is what the theorem claims with high probability. nan if the
        estimator has no such weights or all signs are equal.

    Notes
    -----
    :math:`\tfrac12\,(\Pr[w_r > 0 \mid a_r = 1] + \Pr[w_r < 0 \mid a_r = -1])`, the statement of
    [Curse], Theorem 5.2 (I.1). Its :math:`1-\delta` needs weights that move further than
    :math:`|w_r(0)| \sim 1`, which the lazy bound :math:`R \sim m^{-1/2}` of the same theorem
    excludes: at finite width expect values near 0.5-0.6, and see `update_alignment`.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import weight_sign_alignment
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> 0.0 <= weight_sign_alignment(model, X) <= 1.0
    True
    """
    network = _network(_innermost(*_test_sample(estimator, X, y)[:2])[0])
    if network is None:
        return np.nan
    weights, _, signs = network
    up, down = weights[:, signs > 0] > 0, weights[:, signs < 0] < 0
    return float((up.mean() + down.mean()) / 2) if up.size and down.size else np.nan


def update_alignment(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Share of neurons that moved in the direction of their output's sign.

    Parameters
    ----------
    estimator : fitted estimator
        With ``weights_``, ``initial_weights_`` and ``signs_``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Not used but by meta-estimators on the way.
    y : ignored

    Returns
    -------
    float
        In [0, 1]; nan if the estimator has no such weights or none moved.

    Notes
    -----
    Mean of :math:`1\{\operatorname{sign}(w_r(t) - w_r(0)) = a_r\}`, neurons that did not move
    left out: the direction form of [Curse], Theorem 5.2 and Lemma I.3. It is exactly 1 after the
    first step from zero initialisation whenever
    :math:`\sum_i y_i x_{i,d} \mathrm{var}_r(x_i) > 0` for every neuron, and may fall later.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import update_alignment
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", max_iter=1, random_state=0).fit(X, y)
    >>> update_alignment(model, X)
    1.0
    """
    network = _network(_innermost(*_test_sample(estimator, X, y)[:2])[0])
    if network is None:
        return np.nan
    weights, initial, signs = network
    update = np.sign(weights - initial)
    moved = update != 0
    return float((update == signs)[moved].mean()) if moved.any() else np.nan


def last_step_attention(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Attention that the negative neurons pay to the last step, relative to uniform.

    Parameters
    ----------
    estimator : fitted estimator
        With ``attention(X)`` and ``signs_``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        d times the mean of :math:`S_{r,d}(x_i)` over rows and over neurons with
        :math:`a_r = -1`: 1 is uniform attention, 0 is a lost residual feature. nan where it does
        not apply.

    Notes
    -----
    [Curse], Theorem 5.3 (I.2): the softmax weight on the last step is small for
    :math:`a_r = -1`.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import last_step_attention
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> last_step_attention(model, X) > 0
    True
    """
    estimator, X, _ = _test_sample(estimator, X, y)
    estimator, X = _innermost(estimator, X)
    if not (hasattr(estimator, "signs_") and hasattr(estimator, "attention")):
        return np.nan
    attention = np.asarray(estimator.attention(X))  # (..., n, m)
    negative = attention[..., np.asarray(estimator.signs_) < 0]
    return float(negative.mean() * np.shape(X)[1]) if negative.size else np.nan


def sign_agreement(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    """Share of predictions with the sign of the last step.

    Parameters
    ----------
    estimator : fitted estimator
        Any regressor. ``last_step``, where it or what it wraps has this parameter, names the
        column of the newest value; otherwise that is the last one.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        In [0, 1]. On the sign-inconsistent task 1 means always wrong in sign.

    Notes
    -----
    The mechanism of [Curse], Proposition 6.3 (J.2): attention copies the sign of :math:`x_d`. It
    does so only on data with gamma > 0.

    Examples
    --------
    >>> from skcurse import make_residual_ssm, ResidualLinearRegressor
    >>> from skcurse.diagnostics import sign_agreement
    >>> X, y = make_residual_ssm(100, 8, random_state=0)
    >>> 0.5 < sign_agreement(ResidualLinearRegressor().fit(X, y), X) <= 1.0
    True
    """
    estimator, X, _ = _test_sample(estimator, X, y)
    column = getattr(estimator, "last_step", getattr(_innermost(estimator, X)[0], "last_step", -1))
    last = np.asarray(X, float)[:, column]
    predicted = np.asarray(estimator.predict(X))
    return float(np.mean(np.sign(last) == np.sign(predicted).T))  # .T: outputs broadcast over rows


def weight_movement(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Largest distance a weight has moved from its initial value.

    Parameters
    ----------
    estimator : fitted estimator
        With ``weights_``, ``initial_weights_`` and ``signs_``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Not used but by meta-estimators on the way.
    y : ignored

    Returns
    -------
    float
        :math:`R = \max_r |w_r(t) - w_r(0)|`, nan where it does not apply.

    Notes
    -----
    The radius R of [Curse], Lemma 5.1 (F.4), on which kernel stability rests.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import weight_movement
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> weight_movement(model, X) > 0
    True
    """
    network = _network(_innermost(*_test_sample(estimator, X, y)[:2])[0])
    if network is None:
        return np.nan
    weights, initial, _ = network
    return float(np.abs(weights - initial).max())


def kernel_drift(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Relative change of the neural tangent kernel during training.

    Parameters
    ----------
    estimator : fitted estimator
        With ``neural_tangent_kernel(X, Y, at=...)``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Windows on which the kernel is evaluated.
    y : ignored

    Returns
    -------
    float
        :math:`\|H(t) - H(0)\|_F / \|H(0)\|_F`, nan where it does not apply
        or H(0) = 0. Of several outputs the root mean square.

    Notes
    -----
    The left side of [Curse], Lemma 5.1 (F.4), made relative. The kernel is formed in row blocks.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import kernel_drift
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, max_iter=5, tol=0, random_state=0)
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     drift = kernel_drift(model.fit(X, y), X)
    >>> 0 < drift < 1
    True
    """
    estimator, X, _ = _test_sample(estimator, X, y)
    estimator, X = _innermost(estimator, X)
    if not hasattr(estimator, "neural_tangent_kernel") or _network(estimator) is None:
        return np.nan
    X = np.asarray(X, float)
    drift = norm = 0.0
    for rows in gen_batches(len(X), 512):
        initial = estimator.neural_tangent_kernel(X[rows], X, at="initial")
        change = estimator.neural_tangent_kernel(X[rows], X, at="fitted") - initial
        drift += float(np.sum(change**2)) / max(1, change.size // initial.size)
        norm += float(np.sum(initial**2))
    return float(np.sqrt(drift / norm)) if norm > 0 else np.nan


def ntk_min_eigenvalue(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Smallest eigenvalue of the neural tangent kernel on X.

    Parameters
    ----------
    estimator : fitted estimator
        With ``ntk_eigenvalues(X)``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        :math:`\lambda_{\min}(H(t))`, from singular values of the feature matrix; nan below what
        double precision resolves, and where it does not apply.

    Notes
    -----
    [Curse], Definition F.2 and Lemma F.4 assume it positive; the convergence rate of
    Theorem 5.2 is proportional to it.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import ntk_min_eigenvalue
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> ntk_min_eigenvalue(model, X[:3]) > 0
    True
    """
    estimator, X, _ = _test_sample(estimator, X, y)
    estimator, X = _innermost(estimator, X)
    if not hasattr(estimator, "ntk_eigenvalues"):
        return np.nan
    return float(np.min(estimator.ntk_eigenvalues(X)))  # nan, where one is unresolved, wins


def ntk_effective_rank(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Effective rank of the neural tangent kernel on X.

    Parameters
    ----------
    estimator : fitted estimator
        With ``ntk_eigenvalues(X)``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        :math:`(\sum \lambda)^2 / \sum \lambda^2`, between 1 and the number of rows; nan where it
        does not apply or H = 0.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import ntk_effective_rank
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> 1 <= ntk_effective_rank(model, X) <= 50
    True
    """
    estimator, X, _ = _test_sample(estimator, X, y)
    estimator, X = _innermost(estimator, X)
    if not hasattr(estimator, "ntk_eigenvalues"):
        return np.nan
    eigenvalues = np.nan_to_num(np.asarray(estimator.ntk_eigenvalues(X)))  # unresolved: ~0
    if not eigenvalues.any():
        return np.nan
    scaled = eigenvalues / eigenvalues.max()
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def _prompts(estimator: Any, X: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Context tokens (n, N, d) and queries (n, d) of an in-context learner in prompt mode."""
    n_context = getattr(estimator, "n_context", None)
    if n_context is None or not hasattr(estimator, "query_key_"):
        return None
    tokens, _, query = unpack_prompts(np.asarray(X, float), n_context)
    return tokens, query


def attention_concentration(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Mean attention on the context tokens that equal the query.

    Parameters
    ----------
    estimator : fitted estimator
        A `SoftmaxICLRegressor` with ``n_context`` set, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_context * (d + 1) + d)
        Flattened prompts.
    y : ignored

    Returns
    -------
    float
        Mean over prompts of :math:`\mathrm{Attn}_k`, k the query's feature; a prompt in which the
        query does not occur counts 0. nan where it does not apply.

    Notes
    -----
    [ICL], Definition 3.1; Theorems 3.1 and 3.2 drive :math:`(1 - \mathrm{Attn}_k)^2` to
    :math:`O(\epsilon)`.

    Examples
    --------
    >>> from skcurse import SoftmaxICLRegressor, make_icl_prompts
    >>> from skcurse.diagnostics import attention_concentration
    >>> X, y = make_icl_prompts(200, n_context=8, vocabulary_size=3, random_state=0)
    >>> model = SoftmaxICLRegressor(8, max_iter=200).fit(X, y)
    >>> 0.5 < attention_concentration(model, X) < 1.0
    True
    """
    estimator, X, _ = _test_sample(estimator, X, y)
    estimator, X = _innermost(estimator, X)
    prompts = _prompts(estimator, X)
    if prompts is None:
        return np.nan
    tokens, query = prompts
    same = (tokens == query[:, None, :]).all(axis=2)
    return float((np.asarray(estimator.attention(X)) * same).sum(axis=1).mean())


def loss_floor_gap(estimator: Any, X: ArrayLike, y: Any) -> float:
    r"""Excess of the loss over the smallest one that attention can reach.

    Parameters
    ----------
    estimator : fitted estimator
        A `SoftmaxICLRegressor` with ``n_context`` set, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_context * (d + 1) + d)
        Flattened prompts of a finite vocabulary.
    y : array-like of shape (n_samples,)
        Labels of the queries.

    Returns
    -------
    float
        Half the mean squared error minus `loss_infimum` at the token frequencies of X. A finite
        sample can fall below its expectation: small negative values are sampling noise. nan
        where it does not apply.

    Notes
    -----
    :math:`L - L^*` of [ICL], Theorems 3.1 and 3.2, with :math:`L^*` the attained infimum (tasks
    of identity covariance, features orthonormal).

    Examples
    --------
    >>> from skcurse import SoftmaxICLRegressor, make_icl_prompts
    >>> from skcurse.diagnostics import loss_floor_gap
    >>> X, y = make_icl_prompts(500, n_context=8, vocabulary_size=3, random_state=0)
    >>> model = SoftmaxICLRegressor(8, max_iter=200).fit(X, y)
    >>> abs(loss_floor_gap(model, X, y)) < 0.1
    True
    """
    estimator, X, y = _test_sample(estimator, X, y)
    inner, X_inner = _innermost(estimator, X)
    prompts = _prompts(inner, X_inner)
    if prompts is None:
        return np.nan
    tokens, query = prompts
    everything = np.concatenate([tokens.reshape(-1, tokens.shape[2]), query])
    _, counts = np.unique(everything, axis=0, return_counts=True)
    loss = np.mean((np.asarray(estimator.predict(X)) - np.asarray(y, float)) ** 2) / 2
    return float(loss - loss_infimum(counts / counts.sum(), tokens.shape[1]))


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
    estimator, _, _ = _test_sample(estimator, X, y)
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
        A scikit-learn scorer or its name.
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
    get_scorer(metric)
    return partial(
        _ood_score,
        data_model=data_model,
        shift=shift,
        metric=metric,
        n_samples=n_samples,
        random_state=random_state,
    )
