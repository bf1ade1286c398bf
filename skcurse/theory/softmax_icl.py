"""One softmax attention layer that regresses in context: attention, prediction, loss and gradient.

Arrays follow one convention. The first axis counts queries; an array of tokens, labels or masses
whose first axis has length 1 is shared by all queries.
"""

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Map = Callable[..., Any]

# A block is read from memory once and found in the last-level cache after that; much smaller ones
# leave threads waiting for each other.
CACHE_BYTES = 2**23


class LossGradient(NamedTuple):
    """A loss and its gradient with respect to the query-key matrix."""

    loss: float
    gradient: Array


def attention(
    tokens: ArrayLike,
    query: ArrayLike,
    query_key: ArrayLike,
    *,
    log_mass: ArrayLike | None = None,
    leave_one_out: bool = False,
) -> Array:
    r"""Softmax attention of each query to its context.

    Parameters
    ----------
    tokens : array-like of shape (n_queries, n_context, n_features) or (1, n_context, n_features)
        Context tokens, one set for each query or one set for all.
    query : array-like of shape (n_queries, n_features)
        Query tokens.
    query_key : array-like of shape (n_features, n_features)
        The matrix Q.
    log_mass : array-like of shape (n_queries, n_context) or (1, n_context), default=None
        Logarithm of the multiplicity of each token, ``-inf`` for an absent one; ``None`` is one
        each.
    leave_one_out : bool, default=False
        Tokens and masses are shared and query i is token i: one unit is taken from its own mass
        (floored at zero), so that no query sees itself.

    Returns
    -------
    ndarray of shape (n_queries, n_context)
        Rows are non-negative and add up to 1.

    Raises
    ------
    ValueError
        If shapes do not fit, a query has no context, or scores overflow.

    Notes
    -----
    With masses :math:`c_i`, the weight of token i is
    :math:`c_i e^{x_i^\top Q x_q} / \sum_j c_j e^{x_j^\top Q x_q}`.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.softmax_icl import attention
    >>> tokens = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    >>> attention(tokens, [[1.0, 0.0]], np.log(2) * np.eye(2))
    array([[0.5 , 0.25, 0.25]])
    """
    context = _Context.checked(tokens, query, query_key, log_mass, leave_one_out)
    with np.errstate(over="ignore", invalid="ignore"):
        return _finite(context.weights(slice(0, len(context.query))))


def predict(
    tokens: ArrayLike,
    labels: ArrayLike,
    query: ArrayLike,
    query_key: ArrayLike,
    *,
    log_mass: ArrayLike | None = None,
    leave_one_out: bool = False,
    block_bytes: int = 2**26,
) -> Array:
    r"""Attention-weighted mean of the labels in each query's context.

    Parameters
    ----------
    tokens, query, query_key, log_mass, leave_one_out
        As in `attention`.
    labels : array-like of shape (n_queries, n_context[, n_outputs]) or (1, n_context[, n_outputs])
        Labels of the context tokens.
    block_bytes : int, default=2**26
        Upper bound on the memory for temporaries.

    Returns
    -------
    ndarray of shape (n_queries,) or (n_queries, n_outputs)
        :math:`\hat y = \sum_i \mathrm{attn}_i\, y_i`.

    Raises
    ------
    ValueError
        If shapes do not fit, a query has no context, or scores overflow.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.softmax_icl import predict
    >>> tokens = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    >>> predict(tokens, [[4.0, 0.0, 8.0]], [[1.0, 0.0]], np.log(2) * np.eye(2))
    array([4.])
    """
    context = _Context.checked(tokens, query, query_key, log_mass, leave_one_out)
    labels = np.asarray(labels, dtype=np.float64)
    columns = labels[:, :, None] if labels.ndim == 2 else labels
    out = np.empty((len(context.query), columns.shape[2]))
    for rows in context.blocks(block_bytes):
        with np.errstate(over="ignore", invalid="ignore"):
            weights = context.weights(rows)
        for j, label in enumerate(np.moveaxis(_take(columns, rows), 2, 0)):
            out[rows, j] = _mean(weights, label)
    return _finite(out.reshape(len(out), *labels.shape[2:]))


def loss_gradient(
    tokens: ArrayLike,
    labels: ArrayLike,
    query: ArrayLike,
    target: ArrayLike,
    query_key: ArrayLike,
    *,
    log_mass: ArrayLike | None = None,
    leave_one_out: bool = False,
    sample_weight: ArrayLike | None = None,
    alpha: float = 0.0,
    block_bytes: int = 2**26,
    map: Map = map,
) -> LossGradient:
    r"""Half the weighted mean squared error of the in-context prediction, and its gradient.

    Parameters
    ----------
    tokens, labels, query, query_key, log_mass, leave_one_out
        As in `predict`.
    target : array-like of shape (n_queries,) or (n_queries, n_outputs)
        Labels of the queries.
    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.
    alpha : float, default=0.0
        Adds ``alpha / 2 * ||Q||^2`` to the loss.
    block_bytes : int, default=2**26
        Upper bound on the memory for temporaries of one call that `map` makes.
    map : callable, default=map
        ``map(function, iterable)``: evaluates blocks of queries, in parallel if it likes, and
        returns their results in order, so that it does not change the sum.

    Returns
    -------
    LossGradient
        The loss, infinite where scores overflow, and an array of the shape of `query_key`.

    Raises
    ------
    ValueError
        If shapes do not fit.

    Notes
    -----
    With :math:`\hat y = \sum_i \mathrm{attn}_i y_i`, the gradient is the mean over queries of

    .. math::
        (\hat y - y_q) \sum_i \mathrm{attn}_i\, (y_i - \hat y)\, x_i x_q^\top ,

    summed over outputs where there are several.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.softmax_icl import loss_gradient
    >>> tokens = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> loss_gradient(tokens, [[1.0, 0.0]], [[1.0, 0.0]], [1.0], np.zeros((2, 2)))
    LossGradient(loss=0.125, gradient=array([[-0.125,  0.   ],
           [ 0.125,  0.   ]]))
    """
    context = _Context.checked(tokens, query, query_key, log_mass, leave_one_out)
    n = len(context.query)
    target = np.asarray(target, dtype=np.float64).reshape(n, -1)
    labels = np.asarray(labels, dtype=np.float64)
    labels = labels.reshape(*labels.shape[:2], -1)
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    weight = weight / weight.sum()

    def one_block(rows: slice) -> tuple[float, Array]:
        # A step that is too long overflows here: the caller sees an infinite loss.
        with np.errstate(over="ignore", invalid="ignore"):
            loss, pull = _loss_pull(
                context.weights(rows), _take(labels, rows), target[rows], weight[rows]
            )
            return loss, context.mix(pull, rows).T @ context.query[rows]

    loss, gradient = 0.0, np.zeros_like(context.query_key)
    blocks = context.blocks(block_bytes)
    run = builtins.map if len(blocks) == 1 else map
    for block_loss, block_gradient in run(one_block, blocks):
        loss += block_loss
        gradient += block_gradient
    loss += 0.5 * alpha * float(np.vdot(context.query_key, context.query_key))
    return LossGradient(loss if np.isfinite(loss) else np.inf, gradient + alpha * context.query_key)


class _Context(NamedTuple):
    """Checked arguments of `attention`."""

    tokens: Array
    query: Array
    query_key: Array
    log_mass: Array | None
    leave_one_out: bool

    @classmethod
    def checked(
        cls,
        tokens: ArrayLike,
        query: ArrayLike,
        query_key: ArrayLike,
        log_mass: ArrayLike | None,
        leave_one_out: bool,
    ) -> "_Context":
        tokens, query, query_key = (
            np.asarray(array, dtype=np.float64) for array in (tokens, query, query_key)
        )
        mass = None if log_mass is None else np.asarray(log_mass, dtype=np.float64)
        n, d = query.shape if query.ndim == 2 else (-1, -1)
        fits = tokens.ndim == 3 and len(tokens) in (1, n) and tokens.shape[2] == d
        fits &= query_key.shape == (d, d)
        fits &= mass is None or mass.shape in ((1, tokens.shape[1]), (n, tokens.shape[1]))
        if leave_one_out:
            fits &= tokens.shape[:2] == (1, n) and (mass is None or len(mass) == 1)
        if not fits:
            raise ValueError(
                "Shapes do not fit: tokens (n_queries or 1, n_context, n_features), query "
                "(n_queries, n_features), query_key (n_features, n_features), log_mass (n_queries "
                "or 1, n_context), and n_context = n_queries with shared tokens to leave one out; "
                f"got tokens {tokens.shape}, query {query.shape}, query_key {query_key.shape}, "
                f"log_mass {None if mass is None else mass.shape}."
            )
        return cls(tokens, query, query_key, mass, leave_one_out)

    def blocks(self, block_bytes: int) -> list[slice]:
        """Slices of the queries whose temporaries fit."""
        n_context, n_features = self.tokens.shape[1:]
        # Scores and four arrays of their shape, and tokens where each query has its own. Blocks of
        # temporaries alone are best kept to half the cache: the allocator reuses those.
        width = 10 if len(self.tokens) == 1 else 5 + n_features
        step = max(1, min(block_bytes, CACHE_BYTES) // (8 * n_context * width))
        n = len(self.query)
        return [slice(i, min(i + step, n)) for i in range(0, n, step)]

    def weights(self, rows: slice) -> Array:
        """Attention of some queries; nan where a query has no context or its scores overflow."""
        projected = self.query[rows] @ self.query_key.T
        if len(self.tokens) == 1:
            scores = projected @ self.tokens[0].T
        else:
            scores = np.matmul(self.tokens[rows], projected[:, :, None])[:, :, 0]
        if self.leave_one_out:
            own = np.arange(rows.start, rows.stop)
            diagonal = own - rows.start, own
            own_scores = scores[diagonal]
        if self.log_mass is not None:
            scores += _take(self.log_mass, rows)
        if self.leave_one_out:
            left = np.zeros(1) if self.log_mass is None else np.expm1(self.log_mass[0, own])
            with np.errstate(divide="ignore"):
                scores[diagonal] = own_scores + np.log(np.maximum(left, 0.0))
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= (scores @ np.ones(scores.shape[1]))[:, None]  # sum(axis=1) is slow on short rows
        return scores

    def mix(self, pull: Array, rows: slice) -> Array:
        """Sum the tokens of each query with given coefficients."""
        if len(self.tokens) == 1:
            return pull @ self.tokens[0]
        return np.matmul(pull[:, None, :], self.tokens[rows])[:, 0, :]


def _loss_pull(
    weights: Array, labels: Array, target: Array, sample_weight: Array
) -> tuple[float, Array]:
    """Loss of a block, and the coefficients of x_i x_q' in its gradient."""
    loss, pull = 0.0, np.zeros(())
    for j in range(target.shape[1]):
        label = labels[:, :, j]
        prediction = _mean(weights, label)
        residual = prediction - target[:, j]
        loss += 0.5 * float(sample_weight @ residual**2)
        # Subtract before summing: labels may share a large offset.
        term = label - prediction[:, None]
        term *= (sample_weight * residual)[:, None]
        pull = term if j == 0 else pull + term
    pull *= weights
    return loss, pull


def _mean(weights: Array, label: Array) -> Array:
    """Weighted mean of the labels of each query."""
    return weights @ label[0] if len(label) == 1 else np.einsum("bn,bn->b", weights, label)


def _take(array: Array, rows: slice) -> Array:
    """Rows of an array, or all of one that is shared."""
    return array if len(array) == 1 else array[rows]


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise ValueError(
            "A query has no context token of positive mass, or attention scores overflow: "
            "in the latter case rescale the features."
        )
    return values
