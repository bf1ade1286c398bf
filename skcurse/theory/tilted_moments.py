"""Moments of a window under its own softmax, for many neurons, in cache-sized blocks.

Every quantity of the attention network is made of the mean and the variance of the window's
entries under ``S_r(x) = softmax(w_r x_d x)``. The largest of the scores ``w x_d x_k`` over ``k``
belongs to the largest or the smallest entry of ``x``, whichever the sign of ``w x_d`` asks for.
With the distances ``g_k >= 0`` of the entries from that one,

    S_k ∝ exp(-|w x_d| g_k),    var = ⟨S, g²⟩ - ⟨S, g⟩² >= ⟨S, g²⟩/d.

So no exponential overflows, the sums have terms of one sign, and the difference loses at most
``log10(d)`` digits, because the entry at distance 0 has a weight of at least ``1/d`` (derived).
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Map = Callable[..., Iterable[Any]]

#: Bytes of temporaries a function holds unless told otherwise.
BLOCK_BYTES = 2**27
# Exponentials in flight: they fit the second-level cache of one core.
_CACHE_BYTES = 2**20
# A product of three rows with more cells than this would start threads of its own in BLAS, which
# get in the way of a parallel map; so it stays on one.
_SERIAL_CELLS = 2**16
# Exponentials in one task of a parallel map: about two milliseconds of work.
_TASK_CELLS = 2**20
# A rate beyond this is a one-hot softmax; the cap keeps 0 * inf out of the exponent.
_LARGEST_RATE = 1e300


class TiltedMoments(NamedTuple):
    """Moments of each window under each neuron's softmax, both of shape (n_samples, n_neurons)."""

    mean: Array
    var: Array


class Tilts(NamedTuple):
    """Neurons grouped by the sign of their weights, the order in which `query_moments` works.

    Attributes
    ----------
    sizes : ndarray of shape (n_neurons,)
        Absolute weights, those of the non-negative ones first: ``abs(weights[order])``.
    n_positive : int
        How many come first.
    order : ndarray of shape (n_neurons,)
        Where each one stood.
    """

    sizes: Array
    n_positive: int
    order: NDArray[np.intp]


def tilts(weights: ArrayLike) -> Tilts:
    """Group the weights, of shape (n_neurons,), by sign."""
    w = np.asarray(weights, dtype=np.float64)
    negative = w < 0
    order = np.argsort(negative, kind="stable")
    return Tilts(np.abs(w[order]), len(w) - int(np.count_nonzero(negative)), order)


def row_tasks(X: Array, n_neurons: int, block_bytes: int) -> list[slice]:
    """Slices of rows whose work suits one task and whose moments fit `block_bytes`."""
    n_samples, n_features = X.shape
    held = block_bytes // (32 * max(n_neurons, 1))
    most = max(1, min(held, _TASK_CELLS // max(n_features * n_neurons, 1)))
    # Equal tasks: with one for each of two workers, the one waits for the other.
    n_tasks = max(1, math.ceil(n_samples / most))
    size = max(1, math.ceil(n_samples / n_tasks))
    return [slice(i, min(i + size, n_samples)) for i in range(0, n_samples, size)]


def tilted_moments(
    X: ArrayLike, weights: ArrayLike, *, block_bytes: int = BLOCK_BYTES, map: Map = map
) -> TiltedMoments:
    r"""Tilted mean and variance of each window for each neuron.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        The neurons' weights.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    mean, var : ndarray of shape (n_samples, n_neurons)
        Moments in the units of `X` and their square.

    Notes
    -----
    .. math::
        \mathrm{mean}_r(x) = \langle S_r, x \rangle, \quad
        \mathrm{var}_r(x) = \langle S_r, (x - \mathrm{mean}_r)^{\circ 2} \rangle, \quad
        S_r = \mathrm{softmax}(w_r x_d x).

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definitions E.1-E.3.

    Examples
    --------
    >>> from skcurse.theory.tilted_moments import tilted_moments
    >>> mean, var = tilted_moments([[1.0, 3.0, 2.0]], [0.0, 50.0])
    >>> mean.round(6), var.round(6)
    (array([[2., 3.]]), array([[0.666667, 0.      ]]))
    """
    X = np.asarray(X, dtype=np.float64)
    tilt = tilts(weights)
    mean, var = np.empty((2, len(X), len(tilt.sizes)))
    tasks = row_tasks(X, len(tilt.sizes), block_bytes)
    parts = map(partial(query_moments, tilt=tilt), [X[rows] for rows in tasks])
    for rows, part in zip(tasks, parts, strict=True):
        mean[rows, tilt.order] = part.mean + X[rows, -1:]
        var[rows, tilt.order] = part.var
    return TiltedMoments(mean, var)


def last_step_attention(
    X: ArrayLike, weights: ArrayLike, *, block_bytes: int = BLOCK_BYTES, map: Map = map
) -> Array:
    """Softmax weight that each neuron puts on the last entry of each window.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_neurons,)
        The neurons' weights.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    attention : ndarray of shape (n_samples, n_neurons)
        Between 0 and 1; ``1 / n_features`` is uniform attention.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Theorem 5.3.

    Examples
    --------
    >>> from skcurse.theory.tilted_moments import last_step_attention
    >>> last_step_attention([[1.0, 3.0, 2.0, 2.0]], [0.0, 50.0]).round(6)
    array([[0.25, 0.  ]])
    """
    X = np.asarray(X, dtype=np.float64)
    tilt = tilts(weights)
    attention = np.empty((len(X), len(tilt.sizes)))
    tasks = row_tasks(X, len(tilt.sizes), block_bytes)
    parts = map(partial(_query_attention, tilt=tilt), [X[rows] for rows in tasks])
    for rows, part in zip(tasks, parts, strict=True):
        attention[rows, tilt.order] = part
    return attention


# What overflows is a rate, capped right after, or shows in the result, where the caller decides.
@np.errstate(over="ignore", invalid="ignore")
def query_moments(X: Array, tilt: Tilts, *, cache_bytes: int = _CACHE_BYTES) -> TiltedMoments:
    """Tilted mean less the query ``x_d``, and tilted variance, columns in the order of `tilt`.

    Measured from the query, the mean keeps its digits when a window sits far from zero.
    """
    mean, var = np.empty((2, len(X), len(tilt.sizes)))
    for side in sides(X, tilt):
        gap = side.distance
        powers = np.stack([np.ones_like(gap), gap, gap**2], axis=1)
        offset = side.top - X[:, -1:]
        for rows, columns, e in _exponentials(side, cache_bytes):
            sums = powers[rows] @ e
            sums[:, 1:] /= sums[:, :1]
            first, second = sums[:, 1], sums[:, 2]
            second -= first * first
            span = side.span[rows]
            mean[rows, columns] = offset[rows] + span * first
            # In this order a variance that underflows stays zero: no 0 * inf.
            var[rows, columns] = second * span * span
    return TiltedMoments(mean, var)


@np.errstate(over="ignore", invalid="ignore")
def _query_attention(X: Array, tilt: Tilts, *, cache_bytes: int = _CACHE_BYTES) -> Array:
    """Softmax weight of the last entry, columns in the order of `tilt`."""
    attention = np.empty((len(X), len(tilt.sizes)))
    for side in sides(X, tilt):
        for rows, columns, e in _exponentials(side, cache_bytes):
            attention[rows, columns] = e[:, -1] / e.sum(axis=1)
    return attention


class Side(NamedTuple):
    """All windows, seen by the neurons whose weights share a sign."""

    columns: slice
    sizes: Array  # of those neurons
    top: Array  # (n, 1): the entry with the largest score
    span: Array  # (n, 1): range of the window, signed: x = top + span * distance
    distance: Array  # (n, d): in units of the range, from the entry with the largest score
    rate: Array  # (n, 1): |x_d| * range


def sides(X: Array, tilt: Tilts) -> Iterator[Side]:
    """Yield the groups of neurons that are not empty."""
    query, high, low = X[:, -1:], X.max(axis=1, keepdims=True), X.min(axis=1, keepdims=True)
    span = high - low
    unit = np.where(span > 0, span, 1.0)
    rate = np.minimum(np.abs(query) * span, _LARGEST_RATE)
    for columns, up in (
        (slice(0, tilt.n_positive), query >= 0),
        (slice(tilt.n_positive, len(tilt.sizes)), query < 0),
    ):
        if columns.start < columns.stop:
            top = np.where(up, high, low)
            distance = np.abs(top - X) / unit
            yield Side(columns, tilt.sizes[columns], top, np.where(up, -span, span), distance, rate)


def _exponentials(side: Side, cache_bytes: int) -> Iterator[tuple[slice, slice, Array]]:
    """Yield (rows, columns, exp(-rate * size * distance)), the last of shape (rows, d, columns)."""
    (n, d), m = side.distance.shape, len(side.sizes)
    cells = max(d, cache_bytes // 8)
    width = math.ceil(m / math.ceil(m * d / min(cells, max(d, _SERIAL_CELLS))))
    height = max(1, min(n, cells // (width * d)))
    buffer = np.empty(height * d * width)
    exponent = -side.distance[:, :, None]
    for i in range(0, n, height):
        rows = slice(i, min(i + height, n))
        for j in range(0, m, width):
            tilt = np.minimum(side.rate[rows] * side.sizes[j : j + width], _LARGEST_RATE)
            block = (len(tilt), d, tilt.shape[1])
            e = buffer[: math.prod(block)].reshape(block)
            np.multiply(exponent[rows], tilt[:, None, :], out=e)
            np.exp(e, out=e)
            start = side.columns.start + j
            yield rows, slice(start, start + block[2]), e
