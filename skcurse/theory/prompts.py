"""The layout of prompts as rows of a table."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


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
    >>> from skcurse.theory.prompts import pack_prompts
    >>> pack_prompts([[[1.0, 2.0], [3.0, 4.0]]], [[0.1, 0.2]], [[5.0, 6.0]])
    array([[1. , 2. , 0.1, 3. , 4. , 0.2, 5. , 6. ]])
    """
    tokens, labels, query = (np.asarray(a, dtype=np.float64) for a in (tokens, labels, query))
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
        If X is not two-dimensional or no number of features fits its columns.

    Examples
    --------
    >>> from skcurse.theory.prompts import unpack_prompts
    >>> tokens, labels, query = unpack_prompts([[1.0, 2.0, 0.1, 3.0, 4.0, 0.2, 5.0, 6.0]], 2)
    >>> tokens.tolist(), labels.tolist(), query.tolist()
    ([[[1.0, 2.0], [3.0, 4.0]]], [[0.1, 0.2]], [[5.0, 6.0]])
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or n_context < 1 or n_outputs < 1:
        raise ValueError(
            "X must be two-dimensional, and n_context and n_outputs at least 1; got X of shape "
            f"{X.shape}, n_context={n_context} and n_outputs={n_outputs}."
        )
    n_features, rest = divmod(X.shape[1] - n_context * n_outputs, n_context + 1)
    if rest or n_features < 1:
        valid = [
            f"{d * (n_context + 1) + n_context * n_outputs} (d={d})"
            for d in (n_features, n_features + 1)
            if d >= 1
        ] or [f"{n_context * (n_outputs + 1) + 1} (d=1)"]
        raise ValueError(
            f"Prompts of n_context={n_context} tokens have {n_context}(d+{n_outputs})+d columns: "
            f"the tokens in order, each its d features x then its y ({n_outputs} a token), then "
            f"the d features of the query. X has {X.shape[1]} columns; the nearest valid counts "
            f"are {' and '.join(valid)}."
        )
    end = n_context * (n_features + n_outputs)
    context = X[:, :end].reshape(len(X), n_context, n_features + n_outputs)
    labels = context[:, :, n_features:]
    return (
        context[:, :, :n_features],
        labels[:, :, 0] if n_outputs == 1 else labels,
        X[:, end:],
    )
