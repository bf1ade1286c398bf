"""[ICL], Sections 2 to 4, Appendix A.1: the layer, its attention, its gradient, the loss.

The expectation over prompts is taken by brute force: all prompts of three features and three
tokens, each with all eight tasks of coordinates +1 and -1, whose second moment is the identity.
"""

from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skcurse.ledger._checks._icl_runs import Array
from skcurse.ledger._finding import Finding, identity, judged, largest, smallest
from skcurse.theory import icl_population, softmax_icl

_P = np.array([0.5, 0.3, 0.2])
_N = 3
_ALL = "every prompt of 3 features and 3 tokens with every task of signs, p = (0.5, 0.3, 0.2)"


class Prompts(NamedTuple):
    """All prompts: features (K, d), tokens, labels, query, target, probability, token indices."""

    features: Array
    tokens: Array
    labels: Array
    query: Array
    target: Array
    weight: Array
    token_index: NDArray[np.intp]


@lru_cache(maxsize=1)
def _prompts() -> Prompts:
    V = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 3)))[0].T
    index = np.array(list(product(range(3), repeat=_N + 1)))
    tasks = np.array(list(product((-1.0, 1.0), repeat=3)))
    weight = np.repeat(_P[index].prod(axis=1), len(tasks)) / len(tasks)
    index, task = np.repeat(index, len(tasks), axis=0), np.tile(tasks, (len(index), 1))
    labels = np.take_along_axis(task, index, axis=1)
    return Prompts(
        V, V[index[:, :-1]], labels[:, :-1], V[index[:, -1]], labels[:, -1], weight, index[:, :-1]
    )


def _query_key(logits: Array) -> Array:
    """Q with v_n^T Q v_k = logits[n, k]."""
    V = _prompts().features
    Q: Array = V.T @ logits @ V
    return Q


def _logits(seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(size=(3, 3))


def self_attention() -> Finding:
    """Definition 2.1, masked and with the structured W^KQ and W^V: the layer written out."""
    data, Q, error = _prompts(), _query_key(_logits()), 0.0
    d = Q.shape[0]
    KQ, V = np.zeros((d + 1, d + 1)), np.zeros((d + 1, d + 1))
    KQ[:d, :d], V[d, d] = Q, 1.0
    predicted = softmax_icl.predict(data.tokens, data.labels, data.query, Q)
    for i in range(0, len(data.target), 17):
        context = np.vstack([data.tokens[i].T, data.labels[i]])
        last = np.append(data.query[i], 0.0)
        score = context.T @ KQ @ last  # the mask leaves the query out of keys and values
        attention = np.exp(score) / np.exp(score).sum()
        error = largest(error, abs((V @ context @ attention)[-1] - predicted[i]))
    return identity(error, "39 prompts, the layer written out with its masked embedding")


def attention_scores() -> Finding:
    """Definition 3.1: scores of features add up, and give the prediction."""
    data, Q = _prompts(), _query_key(_logits())
    attention = softmax_icl.attention(data.tokens, data.query, Q)
    one_hot = data.token_index[:, :, None] == np.arange(3)
    scores = np.einsum("qi,qik->qk", attention, one_hot)
    task = np.zeros_like(scores)
    np.put_along_axis(task, data.token_index, data.labels, axis=1)
    gaps = (
        np.abs(scores.sum(axis=1) - 1).max(),
        np.abs(
            np.sum(scores * task, axis=1)
            - softmax_icl.predict(data.tokens, data.labels, data.query, Q)
        ).max(),
    )
    return identity(largest(gaps), _ALL)


def _loss(Q: Array) -> float:
    data = _prompts()
    predicted = softmax_icl.predict(data.tokens, data.labels, data.query, Q)
    return float(0.5 * data.weight @ (predicted - data.target) ** 2)


def _gradient(Q: Array) -> Array:
    data = _prompts()
    return softmax_icl.loss_gradient(
        data.tokens, data.labels, data.query, data.target, Q, sample_weight=data.weight
    ).gradient


def gradient() -> Finding:
    """Lemma A.1: the gradient in Q by central differences."""
    Q, h = _query_key(_logits()), 1e-5
    numeric = np.zeros_like(Q)
    for place in np.ndindex(*Q.shape):
        step = np.zeros_like(Q)
        step[place] = h
        numeric[place] = (_loss(Q + step) - _loss(Q - step)) / (2 * h)
    error = np.abs(_gradient(Q) - numeric).max() / np.abs(numeric).max()
    return identity(error, f"{_ALL}, by central differences", tolerance=1e-8)


def bilinear_weights() -> Finding:
    """Definition 4.1: five steps of Q, projected, against the recursion of A and B."""
    Q, eta, V = np.zeros((4, 4)), 2.0, _prompts().features
    run = icl_population.population_descent(_P, _N, learning_rate=eta, n_iter=5, record=1)
    error = 0.0
    for logits in run.logits:  # (query, n)
        error = largest(error, np.abs((V @ Q @ V.T).T - logits).max())
        Q = Q - eta * _gradient(Q)
    return identity(error, f"{_ALL}, five steps of 2")


def rates() -> Finding:
    """Lemmas 4.1 and A.2: alpha and beta against the projected gradient, and alpha >= 0."""
    error, least, V = 0.0, np.inf, _prompts().features
    for seed in range(5):
        logits = 2 * _logits(seed)
        projected = -V @ _gradient(_query_key(logits)) @ V.T
        for k in range(3):
            exact = icl_population.population_gradient(logits[:, k], _P, _N, k).rates
            error = largest(error, np.abs(exact - projected[:, k]) / np.abs(exact).max())
            least = smallest(least, exact[k])
    measured = {"largest error": error, "smallest alpha": least}
    return judged(error < 1e-11 and least >= 0, f"{_ALL}, five matrices Q", measured)


def loss() -> Finding:
    """Lemma A.6: the loss in attention scores against the squared error of all prompts."""
    error = 0.0
    for seed in range(5):
        logits = 2 * _logits(seed)
        parts = [icl_population.population_gradient(logits[:, k], _P, _N, k).loss for k in range(3)]
        error = largest(error, abs(float(_P @ parts) / _loss(_query_key(logits)) - 1))
    return identity(error, f"{_ALL}, five matrices Q")
