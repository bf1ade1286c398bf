"""Samples and formulas written out, shared by the checks of the attention network."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcurse.datasets import make_residual_ssm
from skcurse.ledger._finding import largest
from skcurse.theory import attention_network

Array = NDArray[np.float64]


def windows(n: int, d: int = 8, *, seed: int = 0, **law: Any) -> tuple[Array, Array]:
    """Return windows of the residual state space model and their next values."""
    return make_residual_ssm(n, d, random_state=seed, **law)


def network(m: int, *, seed: int = 0, paired: bool = True) -> tuple[Array, Array]:
    """Draw initial weights and signs."""
    return attention_network.initial_network(m, np.random.default_rng(seed), antisymmetric=paired)


def softmax(X: Array, w: Any) -> Array:
    """Every softmax of every window, written out: shape (n, m, d)."""
    scores = (X[:, -1:] * np.asarray(w))[:, :, None] * X[:, None, :]
    e = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights: Array = e / e.sum(axis=2, keepdims=True)
    return weights


def moments(X: Array, w: Any) -> tuple[Array, Array]:
    """Tilted means and variances, written out: both of shape (n, m)."""
    S = softmax(X, w)
    mean = np.sum(S * X[:, None, :], axis=2)
    return mean, np.sum(S * (X[:, None, :] - mean[:, :, None]) ** 2, axis=2)


def output(X: Array, w: Array, a: Array) -> Array:
    """Output of the network, written out."""
    F: Array = moments(X, w)[0] @ a / np.sqrt(len(a))
    return F


def data_bound(n: int, n_states: int, noise: float, delta: float) -> float:
    """B of Definition K.1."""
    return largest(1.0, np.sqrt((1 + noise**2) * np.log(n * n_states / delta)))


def weight_bound(m: int, delta: float) -> float:
    """D of Definition K.2."""
    return largest(1.0, np.sqrt(np.log(m / delta)))
