r"""The attention network of the curse-of-attention paper: initialisation, output and gradient.

For a window :math:`x \in \mathbb{R}^d` whose last entry :math:`x_d` is the query,

.. math::
    f(x) = \frac{1}{\sqrt m} \sum_{r=1}^m a_r \langle S_r(x), x \rangle, \qquad
    S_r(x) = \mathrm{softmax}(w_r x_d x),

with fixed signs :math:`a_r` and trained weights :math:`w_r`. The functions here use the formula
directly: ``n_samples * n_neurons * n_features`` exponentials each, in blocks. They are the
reference for every faster way.

References
----------
.. [1] Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Definitions 4.3, D.1-D.4
   and E.1-E.4.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import ArrayLike

from skcurse.theory.tilted_moments import (
    BLOCK_BYTES,
    Array,
    Map,
    Tilts,
    query_moments,
    row_tasks,
    tilts,
)


class LossGradient(NamedTuple):
    """The loss, and its gradient in the shape of the weights."""

    loss: float
    gradient: Array


def initial_network(
    n_neurons: int, rng: Generator | RandomState, *, antisymmetric: bool = True
) -> tuple[Array, Array]:
    """Draw the weights and the signs of a network.

    Parameters
    ----------
    n_neurons : int
        Width m.
    rng : Generator or RandomState
        Source of randomness.
    antisymmetric : bool, default=True
        Draw half of the weights and give the other half the same weights and the opposite signs, so
        that the output is zero. Otherwise weights and signs are all independent.

    Returns
    -------
    weights : ndarray of shape (n_neurons,)
        Standard normal.
    signs : ndarray of shape (n_neurons,)
        +1 or -1 with equal probability.

    Raises
    ------
    ValueError
        If `antisymmetric` and the number of neurons is odd.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definitions D.1, D.2 and
       Assumption D.7.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.attention_network import initial_network
    >>> initial_network(4, np.random.default_rng(0))[1]
    array([ 1.,  1., -1., -1.])
    """
    if not antisymmetric:
        weights = rng.normal(size=n_neurons)
        return weights, np.where(rng.uniform(size=n_neurons) < 0.5, 1.0, -1.0)
    if n_neurons % 2:
        raise ValueError(
            f"An antisymmetric network needs an even number of neurons, got {n_neurons}."
        )
    half = n_neurons // 2
    return np.tile(rng.normal(size=half), 2), np.repeat([1.0, -1.0], half)


def forward(
    X: ArrayLike,
    weights: ArrayLike,
    signs: ArrayLike,
    *,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    r"""Output of the network.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Weights; each row is a network of its own.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    prediction : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        :math:`f(x) = m^{-1/2} \sum_r a_r \langle S_r(x), x \rangle`.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definition D.3.

    Examples
    --------
    >>> from skcurse.theory.attention_network import forward
    >>> forward([[1.0, 3.0, 2.0]], [0.0], [1.0])
    array([2.])
    """
    X = np.asarray(X, dtype=np.float64)
    W = np.asarray(weights, dtype=np.float64)
    networks = [_network(w, signs) for w in np.atleast_2d(W)]
    tasks = row_tasks(X, W.shape[-1], block_bytes)
    out = np.empty((len(X), len(networks)))
    for k, network in enumerate(networks):
        parts = map(partial(_outputs, network=network), [X[rows] for rows in tasks])
        for rows, part in zip(tasks, parts, strict=True):
            out[rows, k] = part
    return out[:, 0] if W.ndim == 1 else out


def loss_gradient(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    signs: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    alpha: float = 0.0,
    initial_weights: ArrayLike | None = None,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> LossGradient:
    r"""Squared loss of the network and its gradient.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Weights; each row is a network of its own and has its own column of `y`.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    alpha : float, default=0.0
        Ridge towards `initial_weights`.
    initial_weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons), default=None
        The weights at initialisation; needed if `alpha` is not 0.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    loss : float
        The sum over outputs.
    gradient : ndarray, of the shape of `weights`
        Its derivative. Both may be infinite or NaN where `X` or `y` is too large.

    Notes
    -----
    .. math::
        L = \tfrac12 \sum_i s_i (F_i - y_i)^2 + \tfrac\alpha2 \sum_r (w_r - w_r(0))^2, \qquad
        \frac{\partial F_i}{\partial w_r} = \frac{a_r}{\sqrt m} x_{i,d} \mathrm{var}_r(x_i).

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definitions E.1-E.4.

    Examples
    --------
    >>> from skcurse.theory.attention_network import loss_gradient
    >>> loss_gradient([[1.0, 3.0, 2.0]], [1.0], [0.0], [1.0])
    LossGradient(loss=0.5, gradient=array([1.33333333]))
    """
    X = np.asarray(X, dtype=np.float64)
    W = np.asarray(weights, dtype=np.float64)
    Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
    s = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    loss, gradient = 0.0, np.zeros_like(W)
    tasks = row_tasks(X, W.shape[-1], block_bytes)
    for target, w, g in zip(Y.T, np.atleast_2d(W), np.atleast_2d(gradient), strict=True):
        network = _network(w, signs)
        blocks = [(X[rows], target[rows], s[rows]) for rows in tasks]
        for part in map(partial(_block_gradient, network=network), *zip(*blocks, strict=True)):
            loss += part.loss
            g[network.tilt.order] += part.gradient
    if alpha:
        shift = W - np.asarray(initial_weights, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            loss += 0.5 * alpha * float(np.sum(shift * shift))
            gradient += alpha * shift
    return LossGradient(loss, gradient)


def rounding_loss(
    X: ArrayLike, y: ArrayLike, signs: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Estimate the loss that rounding errors make where the network fits `y` exactly.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.

    Returns
    -------
    loss : float
        From the sizes of the terms that are added up: ``sqrt(m)`` times the range of a window, its
        query times the sum of the signs, and the target.

    Examples
    --------
    >>> from skcurse.theory.attention_network import rounding_loss
    >>> 0 < rounding_loss([[1.0, 3.0, 2.0]], [1.0], [1.0, -1.0]) < 1e-28
    True
    """
    X, a = np.asarray(X, dtype=np.float64), np.asarray(signs, dtype=np.float64)
    Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
    s = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    with np.errstate(over="ignore"):
        terms = math.sqrt(len(a)) * np.ptp(X, axis=1) + np.abs(X[:, -1] * a.sum()) / math.sqrt(
            len(a)
        )
        size = np.finfo(float).eps * (terms[:, None] + np.abs(Y))
        return float(0.5 * s @ np.sum(size**2, axis=1))


class _Network(NamedTuple):
    """One network, its neurons in the order of `tilt`."""

    tilt: Tilts
    output: Array  # a_r / sqrt(m)


def _network(weights: Array, signs: ArrayLike) -> _Network:
    """Sort the neurons and scale the second layer."""
    tilt = tilts(weights)
    signs = np.asarray(signs, dtype=np.float64)
    return _Network(tilt, signs[tilt.order] / math.sqrt(len(weights)))


def _outputs(X: Array, network: _Network) -> Array:
    """F for a block of rows."""
    return _weigh(query_moments(X, network.tilt).mean, X, network)


def _weigh(mean: Array, X: Array, network: _Network) -> Array:
    """Output for means measured from the queries; einsum, for the same bits on any threads."""
    return np.einsum("ir,r->i", mean, network.output) + X[:, -1] * network.output.sum()


def _block_gradient(X: Array, y: Array, s: Array, network: _Network) -> LossGradient:
    """Loss of a block of rows, and its gradient in the order of the sorted neurons."""
    # What overflows here shows in the result, where the caller decides.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, var = query_moments(X, network.tilt)
        residual = _weigh(mean, X, network) - y
        pull = s * residual
        gradient = network.output * np.einsum("i,ir->r", pull * X[:, -1], var)
        return LossGradient(0.5 * float(pull @ residual), gradient)
