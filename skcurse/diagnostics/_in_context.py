"""Attention and loss of the in-context learner on prompts."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.datasets import unpack_prompts
from skcurse.diagnostics._innermost import innermost
from skcurse.scorer import held_out
from skcurse.theory.icl_population import loss_infimum


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
    estimator, X = innermost(*held_out(estimator, X, y)[:2])
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
    estimator, X, y = held_out(estimator, X, y)
    inner, X_inner = innermost(estimator, X)
    prompts = _prompts(inner, X_inner)
    if prompts is None:
        return np.nan
    tokens, query = prompts
    everything = np.concatenate([tokens.reshape(-1, tokens.shape[2]), query])
    _, counts = np.unique(everything, axis=0, return_counts=True)
    loss = np.mean((np.asarray(estimator.predict(X)) - np.asarray(y, float)) ** 2) / 2
    return float(loss - loss_infimum(counts / counts.sum(), tokens.shape[1]))
