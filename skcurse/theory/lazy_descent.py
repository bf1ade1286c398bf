r"""Gradient descent on a model that is linear in its weights, at any step in closed form.

For outputs :math:`F = F(0) + J \delta`, the loss
:math:`L = \tfrac12 \|F - y\|^2 + \tfrac\alpha2 \|\delta\|^2` and steps
:math:`\delta \leftarrow \delta - \eta \nabla L` from :math:`\delta = 0`, the singular value
decomposition :math:`J = U \Sigma V^\top` gives, with :math:`\lambda = \sigma^2 + \alpha` (derived),

.. math::
    \delta_T = V \Sigma\, \frac{1 - (1 - \eta\lambda)^T}{\lambda}\, U^\top (y - F(0)).

Nothing is divided by a kernel's small eigenvalues. The attention network linearised at its
initialisation has :math:`J_{ir} = a_r \Phi_{ir}/\sqrt m`; its infinitely wide limit has one column
for each node of a quadrature over the weights.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from skcurse.theory.descent import divergence, overflow
from skcurse.theory.tilted_moments import BLOCK_BYTES, Array

# The losses of a run are given at no more steps than this.
_MAX_STEPS = 1000
_SMALLEST = math.sqrt(np.finfo(float).tiny)


class LazyModel(NamedTuple):
    """A linear model's features and target in the basis where its descent decouples.

    Attributes
    ----------
    values : ndarray of shape (k,)
        Singular values of the weighted features above rounding, descending.
    right : ndarray of shape (k, n_weights)
        Their right singular vectors.
    target : ndarray of shape (k, n_outputs)
        The weighted residual at the start in the left singular vectors.
    floor : float
        Squared norm of what no weights can fit.
    """

    values: Array
    right: Array
    target: Array
    floor: float


def lazy_model(
    X: ArrayLike,
    residual: ArrayLike,
    features: Callable[[Array], Array],
    *,
    sample_weight: ArrayLike | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> LazyModel:
    """Decompose a linear model.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs.
    residual : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets less the outputs at the start.
    features : callable
        ``features(X)`` of shape (n_samples, n_weights): derivatives of the output of each row.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    block_bytes : int, default=2**27
        Where there are more rows than weights, features are reduced in blocks of about this size,
        so that memory does not grow with the rows.

    Returns
    -------
    LazyModel
        What `lazy_weights` and `lazy_losses` need.

    Raises
    ------
    ValueError
        If the loss overflows.

    Notes
    -----
    Singular values below ``max(n_samples, n_weights) * eps`` times the largest are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.lazy_descent import lazy_model, lazy_weights
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> model = lazy_model(X, [1.0, 2.0, 3.0], lambda X: X)
    >>> lazy_weights(model, np.inf, learning_rate=0.1).ravel()
    array([1., 1.])
    """
    X = np.asarray(X, dtype=np.float64)
    n = len(X)
    residual = np.asarray(residual, dtype=np.float64).reshape(n, -1)
    root = np.ones((n, 1))
    if sample_weight is not None:
        root = np.sqrt(np.asarray(sample_weight, dtype=np.float64).reshape(-1, 1))

    def panel(start: int, stop: int) -> Array:
        rows = slice(start, stop)
        with np.errstate(over="ignore"):
            part = root[rows] * np.hstack([features(X[rows]), residual[rows]])
        if not np.isfinite(part).all():
            raise overflow()
        return part

    width = features(X[:1]).shape[1]
    step = max(width, block_bytes // (32 * (width + residual.shape[1])), 1)
    joint: NDArray[Any] = panel(0, step)
    for start in range(step, n, step):
        # The triangular factor of the rows so far stands for them: Q is never needed.
        joint = linalg.qr(np.vstack([joint, panel(start, start + step)]), mode="r")[0]
        joint = joint[: joint.shape[1]]
    design, target = joint[:, :width], joint[:, width:]
    left, values, right = linalg.svd(design, full_matrices=False)
    # What rounding errors alone would make, and what underflows when squared, moves nothing.
    smallest = np.maximum(max(n, width) * np.finfo(float).eps * values[:1], _SMALLEST)
    k = int(np.count_nonzero(values > smallest))
    left, values, right = left[:, :k], values[:k], right[:k]
    with np.errstate(over="ignore", invalid="ignore"):
        projected = left.T @ target
        floor = float(np.sum((target - left @ projected) ** 2))
        if not (np.isfinite(floor) and np.isfinite(np.sum(projected**2))):
            raise overflow()
    return LazyModel(values, right, projected, floor)


def descent_filter(
    eigenvalues: ArrayLike, n_steps: float, *, learning_rate: float, alpha: float = 0.0
) -> Array:
    r"""Evaluate :math:`(1 - (1 - \eta\lambda)^T)/\lambda` for :math:`\lambda = \sigma^2 + \alpha`.

    Parameters
    ----------
    eigenvalues : array-like
        Values :math:`\sigma^2 \ge 0`.
    n_steps : float
        Whole number of steps, or infinity.
    learning_rate : float
        Step size, stable for every eigenvalue.
    alpha : float, default=0.0
        Ridge.

    Returns
    -------
    ndarray of the shape of `eigenvalues`
        Accurate also where the difference cancels; ``learning_rate * n_steps`` at zero.

    Examples
    --------
    >>> from skcurse.theory.descent import descend
    >>> from skcurse.theory.lazy_descent import descent_filter
    >>> descent_filter([0.0, 1e-20, 1.0], 10, learning_rate=0.5).round(6)
    array([5.      , 5.      , 0.999023])
    """
    lam = np.asarray(eigenvalues, dtype=np.float64) + alpha
    positive = lam > 0
    safe = np.where(positive, lam, 1.0)
    complement = _powers(learning_rate * safe, n_steps)[1]
    return np.where(positive, complement / safe, learning_rate * n_steps)


def lazy_weights(
    model: LazyModel, n_steps: float, *, learning_rate: float, alpha: float = 0.0
) -> Array:
    """Weights after a number of steps, less those at the start.

    Parameters
    ----------
    model : LazyModel
        From `lazy_model`.
    n_steps : float
        Whole number of steps, or infinity for the limit.
    learning_rate : float
        Step size.
    alpha : float, default=0.0
        Ridge.

    Returns
    -------
    displacement : ndarray of shape (n_weights, n_outputs)
        The ridge or minimum-norm solution in the limit.

    Raises
    ------
    ValueError
        If the step size is too large for the descent to be stable.

    Examples
    --------
    See `lazy_model`.
    """
    _check_rate(model, learning_rate, alpha)
    gain = descent_filter(model.values**2, n_steps, learning_rate=learning_rate, alpha=alpha)
    displacement: Array = model.right.T @ ((model.values * gain)[:, None] * model.target)
    return displacement


def lazy_losses(
    model: LazyModel, steps: ArrayLike, *, learning_rate: float, alpha: float = 0.0
) -> Array:
    """Losses after given numbers of steps.

    Parameters
    ----------
    model : LazyModel
        From `lazy_model`.
    steps : array-like of shape (n_losses,)
        Whole numbers of steps, or infinity.
    learning_rate : float
        Step size.
    alpha : float, default=0.0
        Ridge.

    Returns
    -------
    losses : ndarray of shape (n_losses,)
        Half the weighted squared residual plus the ridge term, the sum over outputs.

    Raises
    ------
    ValueError
        If the step size is too large for the descent to be stable, or the loss overflows.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.lazy_descent import lazy_losses, lazy_model
    >>> model = lazy_model(np.eye(2), [1.0, 1.0], lambda X: X)
    >>> lazy_losses(model, [0, 1, np.inf], learning_rate=0.5)
    array([1.  , 0.25, 0.  ])
    """
    _check_rate(model, learning_rate, alpha)
    energy = np.sum(model.target**2, axis=1)
    if not math.isfinite(float(energy.sum()) + model.floor):
        raise overflow()
    square = model.values**2
    lam = square + alpha
    losses = []
    for step in np.asarray(steps, dtype=np.float64):
        power, complement = _powers(learning_rate * lam, step)
        kept = (alpha + square * power) / lam
        moved = model.values * complement / lam
        losses.append(0.5 * (energy @ (kept**2 + alpha * moved**2) + model.floor))
    return np.array(losses)


def lazy_steps(
    model: LazyModel, n_steps: float, *, learning_rate: float, alpha: float = 0.0
) -> Array:
    """Choose steps to report: 0, then evenly spaced logarithms up to the last.

    Parameters
    ----------
    model : LazyModel
        From `lazy_model`.
    n_steps : float
        The last step. If it is infinite, the one before is where the slowest mode has decayed.
    learning_rate : float
        Step size.
    alpha : float, default=0.0
        Ridge.

    Returns
    -------
    steps : ndarray of shape (at most 1000,)
        Increasing whole numbers as floats.

    Raises
    ------
    ValueError
        If the step size is too large for the descent to be stable.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.lazy_descent import lazy_model, lazy_steps
    >>> model = lazy_model(np.eye(2), [1.0, 1.0], lambda X: X)
    >>> lazy_steps(model, 4, learning_rate=0.5)
    array([0., 1., 2., 3., 4.])
    """
    _check_rate(model, learning_rate, alpha)
    last = float(n_steps)
    if math.isinf(last):
        slowest = learning_rate * (model.values[-1:] ** 2 + alpha)
        last = float(np.max(np.ceil(40.0 / np.maximum(slowest, 1e-290)), initial=1.0))
    steps = np.unique(np.rint(np.geomspace(1.0, last, _MAX_STEPS - 2)))
    return np.concatenate([[0.0], steps, [np.inf] if math.isinf(n_steps) else []])


def lazy_stable_rate(model: LazyModel, alpha: float = 0.0) -> float:
    """Step size beyond which the descent diverges; infinite if no weight can move."""
    with np.errstate(over="ignore"):
        top = float(np.square(model.values).max(initial=0.0)) + alpha
    if not math.isfinite(top):
        raise overflow()
    return 2.0 / top if top > np.finfo(float).tiny else math.inf


def _check_rate(model: LazyModel, learning_rate: float, alpha: float) -> None:
    """Raise for a step size that grows some mode."""
    bound = lazy_stable_rate(model, alpha)
    if learning_rate > bound:
        raise divergence(learning_rate, bound)


def _powers(x: Array, n_steps: float) -> tuple[Array, Array]:
    """``(1 - x)**n_steps`` and one minus that for 0 < x <= 2, neither by cancellation."""
    if math.isinf(n_steps):
        return np.zeros_like(x), np.ones_like(x)
    with np.errstate(divide="ignore"):
        size = n_steps * np.log1p(np.where(x < 1.0, -x, x - 2.0)) if n_steps else np.zeros_like(x)
    odd = (x > 1.0) & (n_steps % 2 == 1)
    power = np.exp(size)
    return np.where(odd, -power, power), np.where(odd, 1.0 + power, -np.expm1(size))
