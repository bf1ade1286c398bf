r"""The infinitely wide attention network, by quadrature over the law of its weights.

The neural tangent kernel tends to
:math:`H_\infty = E_{w \sim N(0,1)}[\varphi(w) \varphi(w)^\top]` with
:math:`\varphi_i(w) = x_{i,d} \mathrm{var}(x_i; w)`. Composite Gauss-Legendre panels turn it into
:math:`\Phi \Phi^\top` with one column for each node,
:math:`\Phi_{iq} = \varphi_i(w_q) \mu_q^{1/2}`, where :math:`\mu_q` is the node's share of the
normal law. The infinitely wide network is then a lazy one with as many neurons as there are
nodes, about a thousand.

The poles of :math:`\varphi_i` stay at least :math:`\pi/(|x_{i,d}| \mathrm{range}(x_i))` away from
the real axis, and further in proportion to :math:`|w|`, since entries matter only as long as their
scores are within a few units of the largest. So panels are halved towards :math:`w = 0` down to
that width (a spike there could hide between the nodes of a wide one), and elsewhere where rows turn
out to need it. They are finer than the kernel's entries ask for, and reach further out, so that its
small eigenvalues are right too.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike

from skcurse.theory.feature_panels import graded_panels
from skcurse.theory.ntk import feature_product, kernel_features
from skcurse.theory.panels import Panels
from skcurse.theory.tilted_moments import BLOCK_BYTES, Array, Map, last_step_attention

# exp(-12²/4), the square root of the density, is 2e-16: what lies beyond is not resolved.
_RANGE = 12.0
_COARSEST = np.linspace(-_RANGE, _RANGE, 17)
# Resolved with 24 coefficients, integrated with 32 nodes.
_TEST_ORDER, _ORDER = 24, 32
# Rows that are resolved at a time: their features take some megabytes.
_TEST_ROWS = 512


class GaussianNodes(NamedTuple):
    """Quadrature for w ~ N(0, 1) that resolves the windows it was made for.

    Attributes
    ----------
    breaks : ndarray of shape (n_panels + 1,)
        Ends of the panels.
    points : ndarray of shape (n_nodes,)
        Weights of the nodes.
    roots : ndarray of shape (n_nodes,)
        Square roots of their masses, which add up to 1.
    """

    breaks: Array
    points: Array
    roots: Array


def gaussian_nodes(X: ArrayLike, breaks: ArrayLike | None = None) -> GaussianNodes:
    """Quadrature that resolves every window.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    breaks : array-like of shape (n_panels + 1,), default=None
        Panels of another quadrature to refine, so that what it resolves stays resolved.

    Returns
    -------
    GaussianNodes
        Points and roots of the masses.

    Raises
    ------
    ValueError
        If the windows' values are too large.

    Examples
    --------
    >>> from skcurse.theory.infinite_width import gaussian_nodes
    >>> nodes = gaussian_nodes([[1.0, 3.0, 2.0]])
    >>> bool(abs((nodes.roots**2).sum() - 1) < 1e-14)
    True
    """
    X = np.asarray(X, dtype=np.float64)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            # Panels are halves of halves: what some rows need is a refinement of what others do.
            blocks = [X[i : i + _TEST_ROWS] for i in range(0, len(X), _TEST_ROWS)] or [X]
            needed = np.unique(np.concatenate([_needed_breaks(rows) for rows in blocks]))
    except ValueError as error:
        raise ValueError(
            "The windows' values are too large for the infinitely wide network: rescale them, for "
            "example to unit variance."
        ) from error
    return nodes_on(
        np.union1d(_halvings(X), needed if breaks is None else np.union1d(breaks, needed))
    )


def _needed_breaks(X: Array) -> Array:
    """Find ends of panels that resolve these windows."""
    return graded_panels(X, (-_RANGE, _RANGE), order=_TEST_ORDER).breaks


def nodes_on(breaks: ArrayLike) -> GaussianNodes:
    """Quadrature on given panels, such as the breaks of another."""
    breaks = np.asarray(breaks, dtype=np.float64)
    points, lengths = Panels(breaks, _ORDER).quadrature()
    density = np.exp(-0.5 * points**2) / np.sqrt(2.0 * np.pi)
    return GaussianNodes(breaks, points, np.sqrt(lengths * density))


def _halvings(X: Array) -> Array:
    """Halve the range down to the distance of the nearest pole from zero."""
    with np.errstate(over="ignore"):
        rate = float(np.max(np.abs(X[:, -1]) * np.ptp(X, axis=1), initial=1.0))
    depth = math.ceil(math.log2(_RANGE * min(rate, 1e300) / math.pi))
    sizes = _RANGE * 0.5 ** np.arange(max(depth, 0) + 1)
    return np.unique(np.concatenate([-sizes, _COARSEST, sizes]))


def infinite_width_features(
    X: ArrayLike, nodes: GaussianNodes, *, block_bytes: int = BLOCK_BYTES, map: Map = map
) -> Array:
    """Compute the factor of the infinitely wide network's neural tangent kernel.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    nodes : GaussianNodes
        From `gaussian_nodes`.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    features : ndarray of shape (n_samples, n_nodes)
        The kernel is ``features @ features.T``.

    Raises
    ------
    ValueError
        If a feature overflows.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definition F.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.infinite_width import gaussian_nodes, infinite_width_features
    >>> X = np.array([[0.0, 1.0]])
    >>> features = infinite_width_features(X, gaussian_nodes(X))
    >>> w = np.random.default_rng(0).normal(size=100_000)
    >>> sample = 1 / (2 + 2 * np.cosh(w)) ** 2
    >>> bool(abs(np.sum(features**2) - sample.mean()) < 5 * sample.std() / 100_000**0.5)
    True
    """
    return nodes.roots * kernel_features(X, nodes.points, block_bytes=block_bytes, map=map)


def infinite_width_forward(
    X: ArrayLike,
    weights: ArrayLike,
    breaks: ArrayLike,
    *,
    block_bytes: int = BLOCK_BYTES,
    map: Map = map,
) -> Array:
    """Output of the infinitely wide network, which starts at zero.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    weights : array-like of shape (n_nodes,) or (n_outputs, n_nodes)
        Weights of the features, from training.
    breaks : array-like of shape (n_panels + 1,)
        Panels of the quadrature that resolves the training windows. Where `X` needs finer ones, the
        weights are interpolated.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    prediction : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The kernel between `X` and the training windows times their dual coefficients.

    Raises
    ------
    ValueError
        If the windows' values are too large.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.infinite_width import (
    ...     gaussian_nodes, infinite_width_features, infinite_width_forward
    ... )
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0]])
    >>> nodes = gaussian_nodes(X)
    >>> features = infinite_width_features(X, nodes)
    >>> kernel_row = infinite_width_forward(X, features[0], nodes.breaks)
    >>> bool(np.allclose(kernel_row, (features @ features.T)[0]))
    True
    """
    W = np.asarray(weights, dtype=np.float64)
    nodes = gaussian_nodes(X, breaks)
    coefficients = transfer_weights(np.atleast_2d(W).T, breaks, nodes) * nodes.roots[:, None]
    out = feature_product(X, nodes.points, coefficients, block_bytes=block_bytes, map=map)
    return out[:, 0] if W.ndim == 1 else out


def transfer_weights(weights: Array, breaks: ArrayLike, finer: GaussianNodes) -> Array:
    """Carry a lazy model's weights from one quadrature to a refinement of it.

    Parameters
    ----------
    weights : ndarray of shape (n_nodes, n_outputs)
        Weights of the features on `nodes`.
    breaks : array-like of shape (n_panels + 1,)
        Panels of the quadrature that the weights belong to.
    finer : GaussianNodes
        Its breaks include all of `breaks`.

    Returns
    -------
    weights : ndarray of shape (n_finer_nodes, n_outputs)
        Weights that give the same outputs.

    Notes
    -----
    A weight over the root of its node's length is the value there of a function, the features'
    combination times the root of the density, that the panels resolve; it is interpolated.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.infinite_width import gaussian_nodes, transfer_weights
    >>> nodes = gaussian_nodes([[0.0, 1.0]])
    >>> finer = gaussian_nodes([[0.0, 30.0]], nodes.breaks)
    >>> moved = transfer_weights(nodes.roots[:, None], nodes.breaks, finer)
    >>> bool(np.allclose(moved[:, 0], finer.roots, atol=1e-14))
    True
    """
    breaks = np.asarray(breaks, dtype=np.float64)
    if len(breaks) == len(finer.breaks):
        return weights
    t, share = legendre.leggauss(_ORDER)
    # Values at the nodes to Legendre coefficients, by the orthogonality of the polynomials.
    to_coefficients = (legendre.legvander(t, _ORDER - 1) * share[:, None]).T
    to_coefficients *= np.arange(_ORDER)[:, None] + 0.5
    lengths = Panels(breaks, _ORDER).quadrature()[1]
    values = (weights / np.sqrt(lengths)[:, None]).reshape(-1, _ORDER, weights.shape[1])
    coefficients = to_coefficients @ values

    panel = np.searchsorted(breaks, finer.points) - 1
    left, right = breaks[panel], breaks[panel + 1]
    basis = legendre.legvander((2 * finer.points - left - right) / (right - left), _ORDER - 1)
    moved = np.einsum("qk,qko->qo", basis, coefficients[panel])
    return moved * np.sqrt(Panels(finer.breaks, _ORDER).quadrature()[1])[:, None]


def infinite_width_attention(
    X: ArrayLike, nodes: GaussianNodes, *, block_bytes: int = BLOCK_BYTES, map: Map = map
) -> Array:
    """Average over w ~ N(0, 1) of the softmax weight on the last entry of each window.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last entry of each is the query.
    nodes : GaussianNodes
        From `gaussian_nodes`.
    block_bytes : int, default=2**27
        Most bytes of temporaries beside the result.
    map : callable, default=map
        Applies a function to blocks of rows; a parallel one gives the same bits.

    Returns
    -------
    attention : ndarray of shape (n_samples,)
        Between 0 and 1.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Theorem 5.3.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.infinite_width import gaussian_nodes, infinite_width_attention
    >>> X = np.array([[1.0, 1.0]])
    >>> infinite_width_attention(X, gaussian_nodes(X)).round(12)
    array([0.5])
    """
    X = np.asarray(X, dtype=np.float64)
    step = max(1, block_bytes // (16 * len(nodes.points)))
    w, mass, half = nodes.points, nodes.roots**2, block_bytes // 2
    parts = [
        last_step_attention(X[i : i + step], w, block_bytes=half, map=map) @ mass
        for i in range(0, max(len(X), 1), step)
    ]
    return np.concatenate(parts)
