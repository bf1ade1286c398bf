r"""Training of the attention network by gradient descent; the theory's names in one place.

`gradient_descent` binds the data to `loss_gradient` and hands it to
`skcurse.theory.descent.descend`; another source of the loss and its gradient shares that loop by
being handed to it in the same way.

All functions take ``block_bytes``, the most temporaries to hold beside the result, and ``map``, a
function with the signature of the built-in one, applied to blocks of rows. Blocks do not depend on
the map and are combined in order, so a parallel map gives the same bits.

References
----------
.. [1] Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.attention_network import (
    LossGradient,
    forward,
    initial_network,
    loss_gradient,
    rounding_loss,
)
from skcurse.theory.descent import Descent, Step, descend
from skcurse.theory.ntk import (
    feature_product,
    kernel_features,
    largest_stable_rate,
    neural_tangent_kernel,
    ntk_singular_values,
)
from skcurse.theory.tilted_moments import (
    BLOCK_BYTES,
    Array,
    Map,
    last_step_attention,
    tilted_moments,
)

__all__ = [
    "Descent",
    "DescentTerms",
    "LossGradient",
    "descent_terms",
    "forward",
    "gradient_descent",
    "initial_network",
    "kernel_features",
    "largest_stable_rate",
    "last_step_attention",
    "linearised_features",
    "linearised_forward",
    "loss_gradient",
    "neural_tangent_kernel",
    "ntk_singular_values",
    "rounding_loss",
    "tilted_moments",
]


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
        every step is stable because the kernel vanishes, and halves it for good should a step lift
        the loss above its first value.
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
        Last weights, losses, number of steps, whether the run converged, and the last step size.

    Raises
    ------
    ValueError
        If the run diverges, or if the loss overflows at the start.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definition D.5.

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

    shorten = learning_rate is None
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
        noise=rounding_loss(X, y, signs, sample_weight=sample_weight),
        shorten=shorten,
        watch=watch,
    )


def linearised_features(
    X: ArrayLike,
    weights: ArrayLike,
    signs: ArrayLike,
    *,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    """Differentiate the network's output with respect to its weights.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        Weights of one network.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    features : ndarray of shape (n_samples, n_neurons)
        ``a_r / sqrt(m)`` times the kernel's factor.

    Raises
    ------
    ValueError
        If a feature overflows.

    Examples
    --------
    >>> from skcurse.theory.attention_ntk import linearised_features
    >>> linearised_features([[1.0, 3.0, 2.0]], [0.0], [-1.0]).round(6)
    array([[-1.333333]])
    """
    a = np.asarray(signs, dtype=np.float64)
    return kernel_features(X, weights, block_bytes=block_bytes, map=map) * (a / math.sqrt(len(a)))


def linearised_forward(
    X: ArrayLike,
    weights: ArrayLike,
    initial_weights: ArrayLike,
    signs: ArrayLike,
    *,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    """Output of the network's linearisation at its initial weights.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Weights of the linearised networks.
    initial_weights : array-like of shape (n_neurons,)
        Where they were linearised.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    prediction : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Output at the initial weights plus its derivative times the displacement.

    Raises
    ------
    ValueError
        If a feature overflows.

    Examples
    --------
    >>> from skcurse.theory.attention_ntk import linearised_forward
    >>> linearised_forward([[1.0, 3.0, 2.0]], [0.5], [0.0], [1.0]).round(6)
    array([2.666667])
    """
    W, start = np.asarray(weights, dtype=np.float64), np.asarray(initial_weights, dtype=np.float64)
    a = np.asarray(signs, dtype=np.float64) / math.sqrt(len(start))
    blocks: dict[str, Any] = {"block_bytes": block_bytes, "map": map}
    out = forward(X, start, signs, **blocks)[:, None]
    out = out + feature_product(X, start, (np.atleast_2d(W) - start).T * a[:, None], **blocks)
    return out[:, 0] if W.ndim == 1 else out


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
