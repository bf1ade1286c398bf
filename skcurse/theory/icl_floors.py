"""The two floors of the in-context loss: a lower bound and the infimum, from unseen features."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from skcurse.theory.icl_moments import Array, check_population, check_query, group_gradient


def _unseen(p: Array, n_context: int, query: int) -> float:
    """Probability (1 - p_query)^N that the context lacks the query's feature."""
    return float(np.exp(n_context * np.log1p(-p[query]))) if p[query] < 1 else 0.0


def loss_lower_bound(p: ArrayLike, n_context: int, *, query: int | None = None) -> float:
    """Lower bound on the population loss from contexts that lack the query's feature.

    Parameters
    ----------
    p : array-like of shape (K,)
        Probabilities of the features.
    n_context : int
        Number of context tokens N.
    query : int, default=None
        Bound the loss given this query feature; None bounds the whole loss.

    Returns
    -------
    float
        The bound; it is not attained unless K = 2 or N → ∞, see `loss_infimum` for what is.

    Raises
    ------
    ValueError
        If `p`, `n_context` or `query` is invalid.

    Notes
    -----
    ½ Σ_k p_k (1 - p_k)^N (1 + 1/(K - 1)): unseen, the attentions to the other K - 1 features sum
    to 1, so their squares sum to 1/(K - 1) at least. K counts the features that occur (p > 0).

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, Lemmas A.7
    and A.9.

    Examples
    --------
    >>> from skcurse.theory.icl_population import loss_lower_bound
    >>> round(loss_lower_bound([0.25, 0.25, 0.5], 10), 6)
    0.021484
    """
    p = check_population(p, n_context)
    if query is None:
        each = [loss_lower_bound(p, n_context, query=k) for k in range(p.size)]
        return float(p @ each)
    k = check_query(query, p.size)
    others = np.count_nonzero(np.delete(p, k))
    return 0.5 * _unseen(p, n_context, k) * (1 + 1 / others) if others else 0.0


def _smallest_concentration(p: Array, sizes: Array, n: int) -> float:
    """Smallest over logits of E[sum of squared attentions], for groups of features, N tokens."""
    m = sizes.sum()
    if n == 1 or p.size == 1:
        return float(1 / n + (1 - 1 / n) / m)
    p, sizes = np.append(0.0, p), np.append(1.0, sizes)  # a query feature that never occurs

    def loss(b: Array) -> tuple[float, Array]:
        group = group_gradient(np.append(0.0, b), p, sizes, n)
        return group.loss, -(sizes * group.rates)[1:]

    # Start where the expected attention is uniform over the features that are likely to occur; the
    # loss is flat far out, and optima lie within a few log N, so keep line searches inside.
    start = -np.log(np.maximum(p[1:], 1 / n))
    reach = 2 * np.log(n) + 10
    best = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-reach, reach)] * start.size,
        options={"gtol": 1e-9, "ftol": 0.0, "maxcor": 30},
    )
    return float(2 * best.fun - 1)


def loss_infimum(p: ArrayLike, n_context: int, *, query: int | None = None) -> float:
    """Infimum of the population loss over Q: the floor that training approaches.

    Parameters
    ----------
    p : array-like of shape (K,)
        Probabilities of the features.
    n_context : int
        Number of context tokens N.
    query : int, default=None
        Infimum of the loss given this query feature; None is the whole loss.

    Returns
    -------
    float
        The infimum, at least `loss_lower_bound`.

    Raises
    ------
    ValueError
        If `p`, `n_context` or `query` is invalid.

    Notes
    -----
    Derived. As the query attends ever more to its own feature, only contexts that lack it cost:
    ½ (1 - p_k)^N (1 + min E[Σ_m Attn_m²]) over multinomial counts of the other features. When
    these are equally likely, attention that is uniform over tokens is best and the minimum is
    1/N + (1 - 1/N)/(K - 1); otherwise it is found numerically from exact gradients.

    Examples
    --------
    >>> from skcurse.theory.icl_population import loss_infimum
    >>> round(loss_infimum([0.25, 0.25, 0.25, 0.25], 10), 6)
    0.039419
    >>> round(loss_infimum([0.25, 0.25, 0.5], 10), 6)
    0.02233
    """
    p = check_population(p, n_context)
    if query is None:
        values, first, counts = np.unique(p, return_index=True, return_counts=True)
        each = [loss_infimum(p, n_context, query=k) if p[k] > 0 else 0.0 for k in first]
        return float((counts * values) @ each)
    k = check_query(query, p.size)
    unseen = _unseen(p, n_context, k)
    others = np.delete(p, k)
    values, sizes = np.unique(others[others > 0], return_counts=True)
    if unseen == 0.0 or values.size == 0:
        return 0.0
    scale = float(sizes @ values)
    smallest = _smallest_concentration(values / scale, sizes.astype(np.float64), int(n_context))
    return 0.5 * unseen * (1 + smallest)
