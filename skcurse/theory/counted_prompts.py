"""Prompts over a finite vocabulary: the cost of a step does not depend on the context's length.

Equal tokens get equal attention, so a context matters only through how often each distinct token
is in it, and through the sum of its labels. Prompts that ask for the same token moreover share all
their scores, and their pulls add up before any token is looked at.
"""

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.softmax_icl import CACHE_BYTES, LossGradient, loss_gradient

Array = NDArray[np.float64]

# Odds of exp of this leave room for products with any label within the range of doubles.
_LOWEST_SCORE = -300.0
# A thread is worth its while from about this much data on.
_THREAD_BYTES = 2**18


class CountedPrompts(NamedTuple):
    """A batch of prompts by counts, sorted by query, as `count_prompts` makes it.

    Attributes
    ----------
    tokens : ndarray of shape (K, d)
        The distinct tokens.
    groups : list of (slice, ndarray)
        Rows of the arrays below, and their query, shape (1, d), or their queries, shape (size, d).
    counts : ndarray of shape (n, K)
        How often each token is in each context.
    totals : ndarray of shape (n_outputs, n, K)
        Sums of the labels of each token, less the mean label of the context.
    targets : ndarray of shape (n_outputs, n)
        Labels of the queries, less the same mean.
    weight : ndarray of shape (n,)
        Weights of the prompts, which add up to 1.
    """

    tokens: Array
    groups: list[tuple[slice, Array]]
    counts: Array
    totals: Array
    targets: Array
    weight: Array

    def loss_gradient(
        self,
        query_key: Array,
        *,
        alpha: float = 0.0,
        block_bytes: int = 2**26,
        map: Callable[..., Any] = map,
    ) -> LossGradient:
        """Loss and gradient, up to rounding those of `skcurse.theory.softmax_icl.loss_gradient`.

        Parameters
        ----------
        query_key : ndarray of shape (d, d)
            The matrix Q.
        alpha, block_bytes, map
            As there.

        Returns
        -------
        LossGradient
            The loss, infinite where scores overflow, and an array of the shape of `query_key`.

        Examples
        --------
        >>> import numpy as np
        >>> from skcurse.theory.counted_prompts import count_prompts
        >>> prompts = count_prompts([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [[1.0, 0.0]], [1.0])
        >>> prompts.loss_gradient(np.zeros((2, 2)))
        LossGradient(loss=0.125, gradient=array([[-0.125,  0.   ],
               [ 0.125,  0.   ]]))
        """
        blocks = self._blocks(block_bytes)
        small = self.counts.nbytes < _THREAD_BYTES * len(blocks)
        run = builtins.map if small else map

        def one_block(block: tuple[slice, Array]) -> LossGradient:
            # A step that is too long overflows here: the caller sees an infinite loss.
            with np.errstate(over="ignore", invalid="ignore"):
                return self._block(*block, query_key)

        loss, gradient = 0.0, alpha * query_key
        for part in run(one_block, blocks):
            loss += part.loss
            gradient += part.gradient
        loss += 0.5 * alpha * float(np.vdot(query_key, query_key))
        return LossGradient(loss if np.isfinite(loss) else np.inf, gradient)

    def _blocks(self, block_bytes: int) -> list[tuple[slice, Array]]:
        """Cut the groups to what memory allows."""
        step = max(1, min(block_bytes, CACHE_BYTES) // (5 * 8 * len(self.tokens)))
        return [
            (slice(i, min(i + step, rows.stop)), query if len(query) == 1 else query[i : i + step])
            for rows, query in self.groups
            for i in range(rows.start, rows.stop, step)
        ]

    def _block(self, rows: slice, query: Array, query_key: Array) -> LossGradient:
        """Share of some prompts in loss and gradient."""
        scores = (query @ query_key.T) @ self.tokens.T
        scores -= scores.max(axis=1, keepdims=True)
        if not scores.min() > _LOWEST_SCORE:
            return self._sharp_block(rows, query, query_key)
        odds = np.exp(scores)
        counts, weight = self.counts[rows], self.weight[rows]
        mass = _along(counts, odds)
        loss, pull = 0.0, np.zeros_like(odds)
        for totals, targets in zip(self.totals[:, rows], self.targets[:, rows], strict=True):
            prediction = _along(totals, odds) / mass
            residual = prediction - targets
            loss += 0.5 * float(weight @ residual**2)
            share = weight * residual / mass
            if len(query) == 1:
                pull += share @ totals - (share * prediction) @ counts
            else:
                pull += share[:, None] * totals - (share * prediction)[:, None] * counts
        pull *= odds
        return LossGradient(loss, (pull @ self.tokens).T @ query)

    def _sharp_block(self, rows: slice, query: Array, query_key: Array) -> LossGradient:
        """Compute the same with the largest score *in each context* as the reference."""
        counts, weight = self.counts[rows], self.weight[rows]
        with np.errstate(divide="ignore"):
            log_mass = np.log(counts)
        part = loss_gradient(
            self.tokens[None],
            np.moveaxis(self.totals[:, rows] / np.maximum(counts, 1), 0, 2),
            np.broadcast_to(query, (len(counts), query.shape[1])),
            self.targets[:, rows].T,
            query_key,
            log_mass=log_mass,
            sample_weight=weight,
        )
        return LossGradient(weight.sum() * part.loss, weight.sum() * part.gradient)


def count_prompts(
    tokens: ArrayLike,
    labels: ArrayLike,
    query: ArrayLike,
    target: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> CountedPrompts | None:
    """Replace the tokens of prompts by counts, where there are few enough distinct ones.

    Parameters
    ----------
    tokens : array-like of shape (n, n_context, d)
        Context tokens.
    labels : array-like of shape (n, n_context[, n_outputs])
        Their labels.
    query : array-like of shape (n, d)
        Query tokens; they need not be among the context tokens.
    target : array-like of shape (n,) or (n, n_outputs)
        Labels of the queries.
    sample_weight : array-like of shape (n,), default=None
        Weights of the prompts, not all zero.

    Returns
    -------
    CountedPrompts or None
        ``None`` if there are more distinct tokens than places in a context: then it would not pay.

    Examples
    --------
    >>> from skcurse.theory.counted_prompts import count_prompts
    >>> prompts = count_prompts([[[0.0], [2.0], [2.0]]], [[1.0, 3.0, 5.0]], [[2.0]], [4.0])
    >>> prompts.tokens[:, 0], prompts.counts, prompts.totals[0]
    (array([0., 2.]), array([[1., 2.]]), array([[-2.,  2.]]))
    """
    tokens, labels, query, target = (
        np.asarray(array, dtype=np.float64) for array in (tokens, labels, query, target)
    )
    weight = np.ones(len(query)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if not weight.all():
        present = weight > 0
        tokens, labels, query = tokens[present], labels[present], query[present]
        target, weight = target[present], weight[present]
    n, n_context = tokens.shape[:2]
    found = distinct_tokens(tokens, n_context)
    if found is None:
        return None
    keys, which = found
    cell = (np.arange(n)[:, None] * len(keys) + which).ravel()
    counts = np.bincount(cell, minlength=n * len(keys)).reshape(n, -1).astype(np.float64)
    # Attention adds up to 1: taking a constant from all labels of a prompt changes no residual.
    columns = np.moveaxis(labels.reshape(n, n_context, -1), 2, 0)
    offset = columns.mean(axis=2)
    totals = np.empty((len(columns), n, len(keys)))
    for total, y, m in zip(totals, columns, offset, strict=True):
        total[:] = np.bincount(cell, (y - m[:, None]).ravel(), n * len(keys)).reshape(n, -1)
    targets = target.reshape(n, -1).T - offset
    asked = distinct_tokens(query[:, None], n // 8)
    if asked is None:
        order = np.arange(n)
        groups = [(slice(0, n), query)]
    else:
        order = np.argsort(asked[1][:, 0], kind="stable")
        ends = np.cumsum(np.bincount(asked[1][:, 0]))
        starts = [0, *ends[:-1].tolist()]
        groups = [
            (slice(start, end), q[None])
            for start, end, q in zip(starts, ends.tolist(), asked[0], strict=True)
        ]
    weight = weight[order] / weight.sum()
    return CountedPrompts(keys, groups, counts[order], totals[:, order], targets[:, order], weight)


def _along(rows: Array, odds: Array) -> Array:
    """Sum each row against its odds; one row of odds serves all."""
    return rows @ odds[0] if len(odds) == 1 else np.einsum("nk,nk->n", rows, odds)


def distinct_tokens(tokens: Array, most: int) -> tuple[Array, NDArray[np.intp]] | None:
    """Find the distinct tokens of contexts.

    Parameters
    ----------
    tokens : ndarray of shape (n, n_context, d)
        Context tokens.
    most : int
        Give up when there are more than this.

    Returns
    -------
    tuple of ndarray or None
        The K distinct tokens, shape (K, d), and where each token is among them, shape
        (n, n_context); ``None`` if there are more than `most`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.counted_prompts import distinct_tokens
    >>> distinct_tokens(np.array([[[0.0], [2.0], [2.0]]]), 3)
    (array([[0.],
           [2.]]), array([[0, 1, 1]]))
    """
    n, n_context, n_features = tokens.shape
    head = tokens[:5].reshape(-1, n_features)
    if len(np.unique(head, axis=0)) > most:
        return None
    # Equal tokens share a hash of their bits; what it claims is then checked entry by entry.
    spread = np.uint64(0x9E3779B97F4A7C15)
    odd = np.arange(1, 2 * n_features, 2, dtype=np.uint64) * spread
    step = max(1, 2**22 // (8 * n_context * n_features))
    mark = np.empty((n, n_context), dtype=np.uint64)
    for i in range(0, n, step):
        bits = (tokens[i : i + step] + 0.0).view(np.uint64)  # + 0.0 makes -0.0 and 0.0 one
        # Whole numbers differ in few bits: spread them, or small tokens share a sum.
        bits = (bits ^ bits >> np.uint64(32)) * spread
        mark[i : i + step] = (bits ^ bits >> np.uint64(29)) @ odd
    _, first, which = np.unique(mark, return_index=True, return_inverse=True)
    if len(first) > most:
        return None
    which = which.reshape(n, n_context)
    keys = tokens[np.unravel_index(first, (n, n_context))]
    same = all(
        np.array_equal(keys[which[i : i + step]], tokens[i : i + step]) for i in range(0, n, step)
    )
    return (keys, which) if same else None
