r"""The attention network of the curse-of-attention paper: output, gradient, kernel and training.

For a window :math:`x \in \mathbb{R}^d` whose last entry :math:`x_d` is the query,

.. math::
    f(x) = \frac{1}{\sqrt m} \sum_{r=1}^m a_r \langle S_r(x), x \rangle, \qquad
    S_r(x) = \mathrm{softmax}(w_r x_d x),

with fixed signs :math:`a_r` and trained weights :math:`w_r`. The derivative is
:math:`\partial f/\partial w_r = a_r x_d \mathrm{var}_r(x)/\sqrt m`. The functions here use that
formula directly: ``n_samples * n_neurons * n_features`` exponentials a step, in blocks. They are
the reference for every faster way.

`gradient_descent` binds the data to `loss_gradient` and hands it to
`skcurse.theory.descent.descend`; another source of the loss and its gradient shares that loop by
being handed to it in the same way.

All functions take ``block_bytes``, the most temporaries to hold beside the result, and ``map``, a
function with the signature of the built-in one, applied to blocks of rows. Blocks do not depend on
the map and are combined in order, so a parallel map gives the same bits.

References
----------
.. [1] Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Definitions 4.3, D.1-D.4,
   E.1-E.4 and F.1-F.2.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.descent import Descent, Step, descend
from skcurse.theory.ntk import (
    kernel_features,
    largest_stable_rate,
    neural_tangent_kernel,
    ntk_singular_values,
)
from skcurse.theory.tilted_moments import (
    BLOCK_BYTES,
    Array,
    Map,
    Tilts,
    last_step_attention,
    query_moments,
    row_tasks,
    tilted_moments,
    tilts,
)

__all__ = [
    "DescentTerms",
    "LossGradient",
    "descent_terms",
    "forward",
    "gradient_descent",
    "kernel_features",
    "largest_stable_rate",
    "last_step_attention",
    "loss_gradient",
    "neural_tangent_kernel",
    "ntk_singular_values",
    "tilted_moments",
]


class LossGradient(NamedTuple):
    """The loss, and its gradient in the shape of the weights."""

    loss: float
    gradient: Array


class DescentTerms(NamedTuple):
    """What one step does to the loss: ``change == kernel + remainder + quadratic``.

    Attributes
    ----------
    kernel : float
        ``-η rᵀHr``, the decrease that the neural tangent kernel promises.
    remainder : float
        ``rᵀ(ΔF + ηHr)``, what the network's curvature adds to the linear term.
    quadratic : float
        ``½‖ΔF‖²``.
    change : float
        ``L(t+1) - L(t)``, from the two losses.
    """

    kernel: float
    remainder: float
    quadratic: float
    change: float


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
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definition 4.3.

    Examples
    --------
    >>> from skcurse.theory.attention_ntk import forward
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
    >>> from skcurse.theory.attention_ntk import loss_gradient
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


def gradient_descent(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    signs: ArrayLike,
    *,
    learning_rate: float | None = None,
    max_iter: int = 1000,
    tol: float = 1e-4,
    n_iter_no_change: int = 10,
    sample_weight: ArrayLike | None = None,
    alpha: float = 0.0,
    initial_weights: ArrayLike | None = None,
    watch: Callable[[Step], bool] | None = None,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Descent:
    """Train the network by full-batch gradient descent with a fixed step.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Where to start.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.
    learning_rate : float, default=None
        Step size; ``None`` takes half of `largest_stable_rate` at `initial_weights`, or 1 where
        every step is stable because the kernel vanishes.
    max_iter, tol, n_iter_no_change, watch
        See `skcurse.theory.descent.descend`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    alpha : float, default=0.0
        Ridge towards `initial_weights`.
    initial_weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons), default=None
        The weights at initialisation, if the run continues another; default `weights`.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    Descent
        Last weights, losses, number of steps, whether the run converged, and the step size.

    Raises
    ------
    ValueError
        If the run diverges, or if the loss overflows at the start.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definition E.4.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.attention_ntk import gradient_descent
    >>> rng = np.random.default_rng(0)
    >>> X, w = rng.normal(size=(6, 3)), rng.normal(size=8)
    >>> run = gradient_descent(X, X[:, 0], np.r_[w, w], np.repeat([1.0, -1.0], 8))
    >>> bool(run.losses[-1] < run.losses[0]), run.weights.shape
    (True, (16,))
    """
    start = np.asarray(weights, dtype=np.float64)
    origin = start if initial_weights is None else np.asarray(initial_weights, dtype=np.float64)
    blocks: dict[str, Any] = {"block_bytes": block_bytes, "map": map}

    def stable_rate() -> float:
        return min(
            largest_stable_rate(X, w, sample_weight=sample_weight, alpha=alpha, **blocks)
            for w in np.unique(np.atleast_2d(origin), axis=0)
        )

    if learning_rate is None:
        bound = stable_rate()
        learning_rate = 0.5 * bound if math.isfinite(bound) else 1.0
    objective = partial(
        loss_gradient,
        X,
        y,
        signs=signs,
        sample_weight=sample_weight,
        alpha=alpha,
        initial_weights=origin,
        **blocks,
    )
    return descend(
        objective,
        start,
        learning_rate=learning_rate,
        largest_stable_rate=stable_rate,
        max_iter=max_iter,
        tol=tol,
        n_iter_no_change=n_iter_no_change,
        watch=watch,
    )


def descent_terms(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    signs: ArrayLike,
    *,
    learning_rate: float,
    sample_weight: ArrayLike | None = None,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> DescentTerms:
    r"""Split what one gradient step does to the loss into three parts.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Weights before the step.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.
    learning_rate : float
        Step size :math:`\eta`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    block_bytes : int, default=2**27
        Most bytes of temporaries.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    DescentTerms
        The three parts and the change of the loss that they add up to.

    Notes
    -----
    With :math:`r = F - y` and :math:`\Delta F = F(t+1) - F(t)` (derived),

    .. math::
        L(t+1) - L(t) = -\eta r^\top H r + r^\top (\Delta F + \eta H r) + \tfrac12 \|\Delta F\|^2 .

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Appendix G.

    Examples
    --------
    >>> from skcurse.theory.attention_ntk import descent_terms
    >>> terms = descent_terms([[1.0, 3.0, 2.0]], [1.0], [0.0], [1.0], learning_rate=0.1)
    >>> abs(terms.kernel + terms.remainder + terms.quadratic - terms.change) < 1e-15
    True
    """
    blocks: dict[str, Any] = {"block_bytes": block_bytes, "map": map}
    W, Y = np.asarray(weights, dtype=np.float64), np.asarray(y, dtype=np.float64)
    s = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    loss, gradient = loss_gradient(X, Y, W, signs, sample_weight=s, **blocks)
    after = W - learning_rate * gradient
    now, then = forward(X, W, signs, **blocks), forward(X, after, signs, **blocks)
    end = loss_gradient(X, Y, after, signs, sample_weight=s, **blocks)
    column = np.ones((1, 1)) if s is None else s[:, None]
    shift, residual = (z.reshape(len(Y), -1) for z in (then - now, now - Y))
    kernel = -learning_rate * float(np.sum(gradient**2))
    linear = float(np.sum(column * residual * shift))
    quadratic = 0.5 * float(np.sum(column * shift**2))
    return DescentTerms(kernel, linear - kernel, quadratic, end.loss - loss)


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
    """F for a block of rows: the mean is measured from x_d, which the signs then weigh as one."""
    mean = query_moments(X, network.tilt).mean
    return mean @ network.output + X[:, -1] * network.output.sum()


def _block_gradient(X: Array, y: Array, s: Array, network: _Network) -> LossGradient:
    """Loss of a block of rows, and its gradient in the order of the sorted neurons."""
    # What overflows here shows in the result, where the caller decides.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, var = query_moments(X, network.tilt)
        residual = mean @ network.output + X[:, -1] * network.output.sum() - y
        pull = s * residual
        gradient = network.output * ((pull * X[:, -1]) @ var)
        return LossGradient(0.5 * float(pull @ residual), gradient)
