"""One softmax attention layer that regresses in context: attention, loss and gradient descent.

Arrays follow one convention. The first axis counts queries; an array of tokens, labels or masses
whose first axis has length 1 is shared by all queries.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Map = Callable[..., Any]

#: Tokens of a few prompts are read from memory once and then found in the last-level cache.
CACHE_BYTES = 2**22


class LossGradient(NamedTuple):
    """The loss and its gradient with respect to the query-key matrix."""

    loss: float
    gradient: Array


class DescentStep(NamedTuple):
    """One iterate of gradient descent, its loss, and the step size that led to it."""

    query_key: Array
    loss: float
    learning_rate: float


def pack_prompts(tokens: ArrayLike, labels: ArrayLike, query: ArrayLike) -> Array:
    """Lay prompts out as rows of a table.

    Parameters
    ----------
    tokens : array-like of shape (n_prompts, n_context, n_features)
        Context tokens x.
    labels : array-like of shape (n_prompts, n_context[, n_outputs])
        Context labels y.
    query : array-like of shape (n_prompts, n_features)
        Query tokens.

    Returns
    -------
    ndarray of shape (n_prompts, n_context * (n_features + n_outputs) + n_features)
        In each row the tokens in order, each x then y, then the query's x.

    Raises
    ------
    ValueError
        If the shapes do not belong together.

    Examples
    --------
    >>> from skcurse.theory.softmax_icl import pack_prompts
    >>> pack_prompts([[[1.0, 2.0], [3.0, 4.0]]], [[0.1, 0.2]], [[5.0, 6.0]])
    array([[1. , 2. , 0.1, 3. , 4. , 0.2, 5. , 6. ]])
    """
    tokens, labels, query = _as_float(tokens, labels, query)
    labels = labels[:, :, None] if labels.ndim == 2 else labels
    if (
        tokens.ndim != 3
        or labels.shape[:2] != tokens.shape[:2]
        or query.shape != (len(tokens), tokens.shape[2])
    ):
        raise ValueError(
            "tokens, labels and query must have shapes (n_prompts, n_context, n_features), "
            "(n_prompts, n_context[, n_outputs]) and (n_prompts, n_features), got "
            f"{tokens.shape}, {labels.shape} and {query.shape}."
        )
    context = np.concatenate([tokens, labels], axis=2)
    return np.hstack([context.reshape(len(context), -1), query])


def unpack_prompts(X: ArrayLike, n_context: int, n_outputs: int = 1) -> tuple[Array, Array, Array]:
    """Take rows that `pack_prompts` made apart again.

    Parameters
    ----------
    X : array-like of shape (n_prompts, n_context * (n_features + n_outputs) + n_features)
        Flattened prompts.
    n_context : int
        Number of context tokens N.
    n_outputs : int, default=1
        Number of labels of each token.

    Returns
    -------
    tokens : ndarray of shape (n_prompts, n_context, n_features)
    labels : ndarray of shape (n_prompts, n_context) or (n_prompts, n_context, n_outputs)
    query : ndarray of shape (n_prompts, n_features)
        Views of `X` where its memory layout allows it. Labels are 2-D for one output.

    Raises
    ------
    ValueError
        If no number of features fits the columns of `X`.

    Examples
    --------
    >>> from skcurse.theory.softmax_icl import unpack_prompts
    >>> tokens, labels, query = unpack_prompts([[1.0, 2.0, 0.1, 3.0, 4.0, 0.2, 5.0, 6.0]], 2)
    >>> tokens.tolist(), labels.tolist(), query.tolist()
    ([[[1.0, 2.0], [3.0, 4.0]]], [[0.1, 0.2]], [[5.0, 6.0]])
    """
    (X,) = _as_float(X)
    n_features, rest = divmod(X.shape[1] - n_context * n_outputs, n_context + 1)
    if rest or n_features < 1:
        near = [max(1, n_features), max(1, n_features) + 1] if n_features >= 1 else [1]
        nearest = " or ".join(
            f"{d * (n_context + 1) + n_context * n_outputs} (d={d})" for d in near
        )
        raise ValueError(
            f"n_context={n_context} needs rows of N(d+{n_outputs})+d columns with N={n_context}: "
            f"the N tokens in order, each its d features x then its {n_outputs} label(s) y, then "
            f"the d features of the query. X has {X.shape[1]} columns; the nearest valid counts "
            f"are {nearest}."
        )
    end = n_context * (n_features + n_outputs)
    context = X[:, :end].reshape(len(X), n_context, n_features + n_outputs)
    labels = context[:, :, n_features:]
    return (
        context[:, :, :n_features],
        labels[:, :, 0] if n_outputs == 1 else labels,
        X[:, end:],
    )


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
        Tokens are shared and query i is token i: one unit is taken from its own mass (floored at
        zero), so that no query sees itself.

    Returns
    -------
    ndarray of shape (n_queries, n_context)
        Rows are non-negative and add up to 1.

    Raises
    ------
    ValueError
        If a query has no context, or scores overflow.

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
    tokens, query, query_key = _as_float(tokens, query, query_key)
    mass = None if log_mass is None else np.asarray(log_mass, dtype=np.float64)
    weights = _softmax(_scores(tokens, query, query_key, mass, leave_one_out, 0))
    return _finite(weights)


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
        If a query has no context, or scores overflow.

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
    tokens, labels, query, query_key = _as_float(tokens, labels, query, query_key)
    mass = None if log_mass is None else np.asarray(log_mass, dtype=np.float64)
    out = np.empty((len(query), *labels.shape[2:]))
    for rows in _blocks(tokens, query, block_bytes):
        weights = _softmax(
            _scores(_take(tokens, rows), query[rows], query_key, _take(mass, rows), leave_one_out,
                    rows.start)
        )  # fmt: skip
        local = _take(labels, rows)
        if labels.ndim == 2:
            out[rows] = (weights * local).sum(axis=1)
        else:
            for j in range(labels.shape[2]):
                out[rows, j] = (weights * local[:, :, j]).sum(axis=1)
    return _finite(out)


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
        Upper bound on the memory for temporaries of one call of `map`.
    map : callable, default=map
        ``map(function, iterable)``: evaluates blocks of queries, in any order, in parallel if it
        likes. Results come back in order, so it does not change the sum.

    Returns
    -------
    LossGradient
        The loss (not finite where scores overflow) and an array of the shape of `query_key`.

    Notes
    -----
    With :math:`\hat y = \sum_i \mathrm{attn}_i y_i`,

    .. math::
        \frac{\partial L}{\partial Q} = \Big\langle \sum_i (\hat y - y_q)\, \mathrm{attn}_i
        (y_i - \hat y)\, x_i x_q^\top \Big\rangle ,

    the mean over queries, and the sum over outputs where there are several.

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
    tokens, labels, query, target, query_key = _as_float(tokens, labels, query, target, query_key)
    mass = None if log_mass is None else np.asarray(log_mass, dtype=np.float64)
    weight = np.ones(len(query)) if sample_weight is None else np.asarray(sample_weight, float)
    weight = weight / weight.sum()
    if labels.ndim == 2:
        labels, target = labels[:, :, None], target[:, None]

    def one_block(rows: slice) -> tuple[float, Array]:
        local = _take(tokens, rows)
        # A step that is too long overflows here; the caller sees a loss that is not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            scores = _scores(
                local, query[rows], query_key, _take(mass, rows), leave_one_out, rows.start
            )
            loss, pull = _residual_pull(
                _softmax(scores), _take(labels, rows), target[rows], weight[rows]
            )
            if len(tokens) == 1:
                return loss, tokens[0].T @ (pull.T @ query[rows])
            return loss, np.matmul(pull[:, None, :], local)[:, 0, :].T @ query[rows]

    loss, gradient = 0.0, np.zeros_like(query_key)
    for block_loss, block_gradient in map(one_block, _blocks(tokens, query, block_bytes)):
        loss += block_loss
        gradient += block_gradient
    return LossGradient(
        loss + 0.5 * alpha * float(np.vdot(query_key, query_key)), gradient + alpha * query_key
    )


def count_tokens(tokens: ArrayLike, labels: ArrayLike) -> tuple[Array, Array, Array] | None:
    """Replace repeated tokens by multiplicities, where that makes a step cheaper.

    Parameters
    ----------
    tokens : array-like of shape (n_queries, n_context, n_features)
        Context tokens.
    labels : array-like of shape (n_queries, n_context[, n_outputs])
        Their labels.

    Returns
    -------
    tuple of ndarray or None
        ``(tokens, labels, log_mass)`` as `loss_gradient` takes them: the K distinct tokens, shape
        (1, K, n_features), the mean label of each in each context, and the logarithm of its count.
        ``None`` if there are more distinct tokens than places in a context.

    Notes
    -----
    Equal tokens get equal attention, so prediction and gradient depend on their labels only
    through count and mean. The cost of a step no longer depends on the length of the context.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.softmax_icl import count_tokens
    >>> tokens, labels, log_mass = count_tokens([[[0.0], [2.0], [2.0]]], [[1.0, 3.0, 5.0]])
    >>> tokens[0, :, 0], labels, np.exp(log_mass)
    (array([0., 2.]), array([[1., 4.]]), array([[1., 2.]]))
    """
    tokens, labels = _as_float(tokens, labels)
    n, n_context = tokens.shape[:2]
    found = _distinct(tokens, n_context)
    if found is None:
        return None
    keys, which = found
    cell = (np.arange(n)[:, None] * len(keys) + which).ravel()
    size = n * len(keys)
    count = np.bincount(cell, minlength=size).reshape(n, -1)
    outputs = labels.reshape(n * n_context, -1).T
    total = np.stack([np.bincount(cell, weights=y, minlength=size) for y in outputs], axis=-1)
    mean = total.reshape(n, len(keys), -1) / np.maximum(count, 1)[:, :, None]
    with np.errstate(divide="ignore"):
        return keys[None], mean.reshape(n, len(keys), *labels.shape[2:]), np.log(count)


def gradient_descent(
    objective: Callable[[Array], LossGradient],
    query_key: Array,
    *,
    learning_rate: float | str = "auto",
) -> Iterator[DescentStep]:
    """Iterate full-batch gradient descent for as long as the caller asks.

    Parameters
    ----------
    objective : callable
        ``objective(query_key)`` returns a `LossGradient`.
    query_key : ndarray of shape (n_features, n_features)
        Where to start.
    learning_rate : float or "auto", default="auto"
        A fixed step size, or one step size found by doubling and halving on the loss after the
        first step, and halved (and kept halved) whenever a step would raise the loss.

    Yields
    ------
    DescentStep
        First the start, then one iterate a step.

    Raises
    ------
    ValueError
        If a fixed step size takes the loss above its starting value.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.softmax_icl import LossGradient, gradient_descent
    >>> bowl = lambda q: LossGradient(0.5 * float(np.vdot(q, q)), q)
    >>> steps = gradient_descent(bowl, np.eye(2), learning_rate=0.5)
    >>> [next(steps).loss for _ in range(3)]
    [1.0, 0.25, 0.0625]
    """
    loss, gradient = objective(query_key)
    if not np.isfinite(loss):
        raise ValueError("The loss is not finite at the start: rescale the features or labels.")
    start = loss
    adaptive = isinstance(learning_rate, str)
    rate = _first_rate(objective, query_key, loss, gradient) if adaptive else float(learning_rate)
    yield DescentStep(query_key, loss, rate)
    while True:
        moved = query_key - rate * gradient
        new_loss, new_gradient = objective(moved)
        while adaptive and not new_loss <= loss + _rounding(loss):
            rate /= 2
            moved = query_key - rate * gradient
            new_loss, new_gradient = objective(moved)
        if not new_loss <= start + 1e6 * _rounding(start):
            raise ValueError(
                f"Gradient descent with learning_rate={rate:g} diverges: the loss rose from "
                f"{start:.6g} to {new_loss:.6g}. Use a smaller one, or learning_rate='auto'."
            )
        query_key, loss, gradient = moved, new_loss, new_gradient
        yield DescentStep(query_key, loss, rate)


def _first_rate(
    objective: Callable[[Array], LossGradient], query_key: Array, loss: float, gradient: Array
) -> float:
    """Walk along powers of two to the step size with the lowest loss after one step."""
    slope = float(np.vdot(gradient, gradient))
    if slope == 0.0:
        return 1.0

    def after(rate: float) -> float:
        value = objective(query_key - rate * gradient).loss
        return value if np.isfinite(value) else np.inf

    # Where a straight line would reach loss 0: the start has the units of a step size.
    rate = loss / slope
    value = after(rate)
    factor = 2.0 if after(2 * rate) < value <= loss else 0.5
    for _ in range(60):
        changed = after(factor * rate)
        if value <= loss and not changed < value:
            break
        rate, value = factor * rate, changed
    return rate


def _rounding(loss: float) -> float:
    """How much two evaluations of an unchanged loss may differ."""
    return 16 * np.finfo(np.float64).eps * abs(loss)


def _as_float(*arrays: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays)


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise ValueError(
            "A query has no context token of positive mass, or attention scores overflow: "
            "in the latter case rescale the features."
        )
    return values


def _take(array: Any, rows: slice) -> Any:
    """Rows of an array, or all of one that is shared (or absent)."""
    return array if array is None or len(array) == 1 else array[rows]


def _blocks(tokens: Array, query: Array, block_bytes: int) -> list[slice]:
    """Slices of the queries whose temporaries fit."""
    n_context, n_features = tokens.shape[1:]
    if len(tokens) == 1:  # scores, weights, pull and two products of that shape
        step = block_bytes // (5 * 8 * n_context)
    else:
        step = min(block_bytes, CACHE_BYTES) // (8 * n_context * (n_features + 5))
    step = max(1, step)
    return [slice(i, min(i + step, len(query))) for i in range(0, len(query), step)]


def _scores(
    tokens: Array,
    query: Array,
    query_key: Array,
    log_mass: Array | None,
    leave_one_out: bool,
    first: int,
) -> Array:
    """Score each token against queries first, first + 1, …: x_i'Q x_q plus its log-mass."""
    projected = query @ query_key.T
    if len(tokens) == 1:
        scores = projected @ tokens[0].T
    else:
        scores = np.matmul(tokens, projected[:, :, None])[:, :, 0]
    diagonal = np.arange(len(query))
    own = scores[diagonal, first + diagonal] if leave_one_out else None
    if log_mass is not None:
        scores += log_mass
    if own is not None:
        left = np.zeros(1) if log_mass is None else np.expm1(log_mass[0, first + diagonal])
        with np.errstate(divide="ignore"):
            scores[diagonal, first + diagonal] = own + np.log(np.maximum(left, 0.0))
    return scores


def _softmax(scores: Array) -> Array:
    """Normalise exp(scores) along the last axis, in place; nan for a row of -inf."""
    with np.errstate(invalid="ignore"):
        scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _residual_pull(
    weights: Array, labels: Array, target: Array, sample_weight: Array
) -> tuple[float, Array]:
    """Loss of a block, and what multiplies x_i x_q' in its gradient."""
    loss, pull = 0.0, np.zeros_like(weights)
    for j in range(target.shape[1]):
        label = labels[:, :, j]
        prediction = (weights * label).sum(axis=1)
        residual = prediction - target[:, j]
        loss += 0.5 * float(sample_weight @ residual**2)
        pull += (sample_weight * residual)[:, None] * (label - prediction[:, None])
    pull *= weights
    return loss, pull


def _distinct(tokens: Array, most: int) -> tuple[Array, NDArray[np.intp]] | None:
    """Distinct tokens and where each token is among them, or None if there are more than `most`."""
    n, n_context, n_features = tokens.shape
    head = tokens[:5].reshape(-1, n_features)
    if len(np.unique(head, axis=0)) > most:
        return None
    # Equal tokens share a hash of their bits; what it claims is then checked entry by entry.
    odd = np.arange(1, 2 * n_features, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    step = max(1, 2**22 // (8 * n_context * n_features))
    mark = np.empty((n, n_context), dtype=np.uint64)
    for i in range(0, n, step):
        bits = (tokens[i : i + step] + 0.0).view(np.uint64)  # + 0.0 makes -0.0 and 0.0 one
        mark[i : i + step] = (bits ^ bits >> np.uint64(32)) @ odd
    _, first, which = np.unique(mark, return_index=True, return_inverse=True)
    if len(first) > most:
        return None
    which = which.reshape(n, n_context)
    keys = tokens[np.unravel_index(first, (n, n_context))]
    same = all(
        np.array_equal(keys[which[i : i + step]], tokens[i : i + step]) for i in range(0, n, step)
    )
    return (keys, which) if same else None
