r"""The neural tangent kernel of the attention network, by its factor.

With the derivatives :math:`\Phi_{ir} = x_{i,d} \mathrm{var}_r(x_i)` of the neurons' outputs, the
kernel is :math:`H = \Phi \Phi^\top / m`. Its small eigenvalues lie far below the rounding errors of
the matrix itself, so the spectrum is taken from the singular values of :math:`\Phi / \sqrt m`.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from skcurse.theory.tilted_moments import (
    BLOCK_BYTES,
    Array,
    Map,
    Tilts,
    query_moments,
    row_tasks,
    tilts,
)

# Up to this many rows or neurons the largest eigenvalue comes from a dense Gram matrix.
_DENSE = 512


def kernel_features(
    X: ArrayLike, weights: ArrayLike, *, block_bytes: int = BLOCK_BYTES, map: Map = map
) -> Array:
    r"""Compute the factor of the neural tangent kernel: each neuron's derivative.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        Weights of one network.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    features : ndarray of shape (n_samples, n_neurons)
        :math:`\Phi_{ir} = x_{i,d} \mathrm{var}_r(x_i)`, so that the kernel is
        :math:`\Phi \Phi^\top / m`.

    Raises
    ------
    ValueError
        If a feature overflows.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definition F.1.

    Examples
    --------
    >>> from skcurse.theory.ntk import kernel_features
    >>> kernel_features([[1.0, 3.0, 2.0]], [0.0]).round(6)
    array([[1.333333]])
    """
    X = np.asarray(X, dtype=np.float64)
    features = np.empty((len(X), np.size(weights)))
    for rows, part in _feature_blocks(X, weights, block_bytes, map):
        features[rows] = part
    return features


def feature_product(
    X: ArrayLike,
    weights: ArrayLike,
    coefficients: Array,
    *,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    """Multiply the features with coefficients without holding them.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        Weights of one network.
    coefficients : ndarray of shape (n_neurons, n_outputs)
        What to multiply with.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    product : ndarray of shape (n_samples, n_outputs)
        ``kernel_features(X, weights) @ coefficients``.

    Raises
    ------
    ValueError
        If a feature overflows.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.ntk import feature_product
    >>> feature_product([[1.0, 3.0, 2.0]], [0.0], np.array([[3.0]])).round(6)
    array([[4.]])
    """
    X = np.asarray(X, dtype=np.float64)
    product = np.empty((len(X), coefficients.shape[1]))
    for rows, part in _feature_blocks(X, weights, block_bytes, map):
        product[rows] = part @ coefficients
    return product


def neural_tangent_kernel(
    X: ArrayLike,
    Y: ArrayLike | None,
    weights: ArrayLike,
    *,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    r"""Neural tangent kernel of the network.

    Parameters
    ----------
    X : array-like of shape (n_samples_X, n_features)
        Windows; the last entry of each is the query.
    Y : array-like of shape (n_samples_Y, n_features) or None
        The other windows; ``None`` means `X`.
    weights : array-like of shape (n_neurons,)
        Weights of one network.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    kernel : ndarray of shape (n_samples_X, n_samples_Y)
        :math:`H_{ij} = \frac1m \sum_r x_{i,d} \mathrm{var}_r(x_i) \, y_{j,d} \mathrm{var}_r(y_j)`.

    Raises
    ------
    ValueError
        If a feature overflows.

    Notes
    -----
    The small eigenvalues of this matrix are rounding errors: take `ntk_singular_values`.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definitions F.1 and F.2.

    Examples
    --------
    >>> from skcurse.theory.ntk import neural_tangent_kernel
    >>> neural_tangent_kernel([[1.0, 3.0, 2.0]], None, [0.0]).round(6)
    array([[1.777778]])
    """
    X = np.asarray(X, dtype=np.float64)
    Z = X if Y is None else np.asarray(Y, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    kernel = np.zeros((len(X), len(Z)))
    for neurons in _chunks(len(w), 16 * (len(X) + len(Z)), block_bytes):
        left = kernel_features(X, w[neurons], block_bytes=block_bytes, map=map)
        right = (
            left if Y is None else kernel_features(Z, w[neurons], block_bytes=block_bytes, map=map)
        )
        kernel += left @ right.T
    return kernel / len(w)


def ntk_singular_values(
    X: ArrayLike,
    weights: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    r"""Singular values whose squares are the eigenvalues of the neural tangent kernel.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        Weights of one network.
    sample_weight : array-like of shape (n_samples,), default=None
        With weights :math:`s`, the kernel is :math:`s^{1/2} H s^{1/2}`.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside a square matrix of the smaller side.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    values : ndarray of shape (min(n_samples, n_neurons),)
        Singular values of :math:`\Phi / \sqrt m`, descending. They are accurate to about 1e-15
        times the largest, so eigenvalues are resolved to about 1e-30 times the largest, where those
        of the kernel itself end at 1e-16.

    Raises
    ------
    ValueError
        If a feature overflows.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Lemma F.4.

    Examples
    --------
    >>> from skcurse.theory.ntk import ntk_singular_values
    >>> (ntk_singular_values([[1.0, 3.0, 2.0]], [0.0, 0.0]) ** 2).round(6)
    array([1.777778])
    """
    X = np.asarray(X, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    n, m = len(X), len(w)
    root = _root(sample_weight, n)
    features = partial(kernel_features, block_bytes=block_bytes, map=map)
    if n <= m:
        neurons = _chunks(m, 32 * n, block_bytes, at_least=n)
        panels = ((root * features(X, w[c])).T for c in neurons)
    else:
        rows = _chunks(n, 32 * m, block_bytes, at_least=m)
        panels = (root[c] * features(X[c], w) for c in rows)
    # Only the triangular factor of the panels stacked so far is kept: it has their singular values.
    factor: NDArray[Any] = np.empty((0, min(n, m)))
    for panel in panels:
        factor = linalg.qr(np.vstack([factor, panel]), mode="r", overwrite_a=True)[0]
        factor = factor[: min(n, m)]
    return linalg.svdvals(factor) / math.sqrt(m)


def largest_stable_rate(
    X: ArrayLike,
    weights: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    alpha: float = 0.0,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> float:
    r"""Step size beyond which gradient descent on the linearised network diverges.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        Weights of one network, usually at initialisation.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    alpha : float, default=0.0
        Ridge of the loss.
    block_bytes : int, default=2**27
        Most bytes of temporaries; features that need more are computed anew in every pass.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    rate : float
        :math:`2/(\lambda_{\max}(H) + \alpha)`; infinite if all features and `alpha` are zero.

    Raises
    ------
    ValueError
        If a feature or the kernel overflows.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Appendix G.

    Examples
    --------
    >>> from skcurse.theory.ntk import largest_stable_rate
    >>> round(largest_stable_rate([[1.0, 3.0, 2.0]], [0.0]), 6)
    1.125
    """
    X = np.asarray(X, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    root = _root(sample_weight, len(X))
    with np.errstate(over="ignore"):
        if len(X) <= min(len(w), _DENSE):
            kernel = neural_tangent_kernel(X, None, w, block_bytes=block_bytes, map=map)
            top = _top_eigenvalue(root * kernel * root.T)
        else:
            top = _top_squared_value(X, w, root, block_bytes, map) / len(w)
    if not math.isfinite(top):
        raise _overflow()
    # Below the range of normal numbers the kernel is as good as zero: nothing can move.
    return 2.0 / (top + alpha) if top + alpha > np.finfo(float).tiny else math.inf


def _top_squared_value(X: Array, w: Array, root: Array, block_bytes: int, map: Map) -> float:
    """Square of the largest singular value of the weighted features."""

    def blocks() -> Iterator[Array]:
        for rows, part in _feature_blocks(X, w, block_bytes, map):
            yield root[rows] * part

    m = len(w)
    if m <= _DENSE:
        return _top_eigenvalue(sum((part.T @ part for part in blocks()), np.zeros((m, m))))
    held = list(blocks()) if 16 * len(X) * m <= block_bytes else None

    def gram(v: Array) -> Array:
        return sum((part.T @ (part @ v) for part in held or blocks()), np.zeros(m))

    start = gram(np.ones(m))
    if not np.isfinite(start).all() or not start.any():
        return float(np.abs(start).max())
    operator = LinearOperator((m, m), matvec=gram, dtype=np.float64)
    return float(eigsh(operator, k=1, v0=start, tol=1e-12, return_eigenvectors=False)[0])


def _top_eigenvalue(gram: Array) -> float:
    """Largest eigenvalue of a dense Gram matrix, infinite if it overflowed."""
    if not np.isfinite(gram).all():
        return math.inf
    last = len(gram) - 1
    return float(linalg.eigvalsh(gram, subset_by_index=[last, last])[0])


def _feature_blocks(
    X: Array, weights: ArrayLike, block_bytes: int, map: Map
) -> Iterator[tuple[slice, Array]]:
    """Yield rows and their features, neurons in the given order."""
    tilt = tilts(weights)
    back = np.argsort(tilt.order)
    tasks = row_tasks(X, len(back), block_bytes)
    parts = map(partial(_block_features, tilt=tilt), [X[rows] for rows in tasks])
    for rows, part in zip(tasks, parts, strict=True):
        if not np.isfinite(part).all():
            raise _overflow()
        yield rows, part[:, back]


def _block_features(X: Array, tilt: Tilts) -> Array:
    """Features of a block of rows, neurons in the order of `tilt`."""
    with np.errstate(over="ignore", invalid="ignore"):
        return X[:, -1:] * query_moments(X, tilt).var


def _chunks(size: int, item_bytes: int, block_bytes: int, at_least: int = 1) -> Iterator[slice]:
    """Slices of `at_least` items or as many as fit the block."""
    step = max(at_least, block_bytes // item_bytes, 1)
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def _root(sample_weight: ArrayLike | None, n_samples: int) -> Array:
    """Square roots of the sample weights, as a column."""
    if sample_weight is None:
        return np.ones((n_samples, 1))
    return np.sqrt(np.asarray(sample_weight, dtype=np.float64).reshape(-1, 1))


def _overflow() -> ValueError:
    """Describe windows whose kernel cannot be represented."""
    return ValueError(
        "The neural tangent kernel overflows: X holds values too large for this model. Rescale the "
        "windows, for example to unit variance."
    )
