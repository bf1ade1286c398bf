"""Tangent features of rows at many weights, from one expansion of every row.

The features φ_x(w) = x_d var(x; w) are made of the sums Σ_k g_k^p exp(-|w| s_k), p = 0, 1, 2, of
`skcurse.theory.tilted_moments`, with distances g_k and s_k = |x_d| range(x) g_k. On an interval
[0, S] of s = S (1 + t)/2,

    exp(-u s) = Σ_q c_q(u S/2) T_q(t),    c_q(z) = (2 - δ_q0) (-1)^q exp(-z) I_q(z),

where the modified Bessel functions I_q make the c_q vanish, to double precision, soon beyond
q = (74 z)^(1/2). Weights are taken in bands that start at u_0, with u = |w| - u_0. So the moments
Σ_k g_k^p exp(-u_0 s_k) T_q(t_k) of a row, made once, give its feature at every weight of a band by
a few multiplications, where the direct formula takes an exponential for each entry (derived).

The entry at distance 0 alone adds 1 to the first sum, and the rounding errors of all others are
damped by the factor exp(-u_0 s_k): bands short enough keep the error at that of the direct formula,
about 1e-15 of the largest that a feature of the row can be. A feature that is smaller than that has
digits by the direct formula only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ive

from skcurse.theory.panels import chebyshev_basis, chebyshev_rule
from skcurse.theory.tilted_moments import Array, sides, tilted_moments, tilts

__all__ = ["ExpandedFeatures"]

# Bands end where the largest score u S of the rows is this. Steeper rows would need so many
# polynomials that exponentials are cheaper.
_SCORES = (4.0, 16.0, 64.0, 256.0)
# A coefficient that no longer counts.
_NEGLIGIBLE = 4e-18
# Numbers in flight: they fit the second-level cache of one core.
_CELLS = 2**18


class _Band(NamedTuple):
    """Rows of about the same rate, as seen by weights in a band.

    Attributes
    ----------
    rows : ndarray of shape (n_rows,)
        Their indices.
    positive : bool
        The sign of the weights.
    start, stop : float
        Their absolute values.
    size : float
        S of the module's notes.
    moments : ndarray of shape (n_rows, 3, degree)
        Of every row, for p = 0, 1, 2.
    factor : ndarray of shape (n_rows, 1)
        The feature is this times the variance in units of the row's range.
    """

    rows: NDArray[np.intp]
    positive: bool
    start: float
    stop: float
    size: float
    moments: Array
    factor: Array


class ExpandedFeatures:
    """Features of rows, ready to be evaluated at any weights in an interval.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Windows; the last column is the query.
    interval : tuple of two floats
        Range of weights to cover; w = 0 is covered in any case.

    Examples
    --------
    >>> from skcurse.theory.ntk import kernel_features
    >>> X = np.random.default_rng(0).standard_normal((100, 8))
    >>> features = ExpandedFeatures(X, (-2.0, 3.0))
    >>> weights = np.array([1.5, -0.3])
    >>> bool(np.abs(features(weights) - kernel_features(X, weights)).max() < 1e-14)
    True
    """

    # What overflows is a rate, capped right after, or shows in the result; so below.
    @np.errstate(over="ignore", invalid="ignore")
    def __init__(self, X: Array, interval: tuple[float, float]) -> None:
        reach = float(np.abs(interval).max()) or 1.0
        group = np.searchsorted(_SCORES, np.abs(X[:, -1]) * np.ptp(X, axis=1) * reach)
        tilt = tilts(interval)
        self._n_samples = len(X)
        self._bands: list[_Band] = []
        for side in sides(X, tilt):
            positive = side.columns.start < tilt.n_positive
            factor = side.span * (X[:, -1:] * side.span)
            for k in np.unique(group[group < len(_SCORES)]):
                rows = np.flatnonzero(group == k)
                size = _SCORES[k] / reach
                ends = [0.0, *(score / size for score in _SCORES[:k]), math.inf]
                spans = list(pairwise(ends))
                parts = _moments(side.distance[rows], side.rate[rows], size, spans)
                self._bands += [
                    _Band(rows, positive, *span, size, moments, factor[rows])
                    for span, moments in zip(spans, parts, strict=True)
                ]
        self._steep = np.flatnonzero(group == len(_SCORES))
        self._steep_rows = X[self._steep]

    @np.errstate(over="ignore", invalid="ignore")
    def __call__(self, weights: ArrayLike) -> Array:
        """Evaluate the features.

        Parameters
        ----------
        weights : array-like of shape (n_neurons,)
            Inside the interval.

        Returns
        -------
        features : ndarray of shape (n_samples, n_neurons)
            Not finite where a feature overflows.
        """
        w = np.asarray(weights, dtype=np.float64)
        features = np.full((self._n_samples, w.size), np.nan)
        if self._steep.size:
            steep = self._steep_rows
            features[self._steep] = steep[:, -1:] * tilted_moments(steep, w).var
        sizes, positive = np.abs(w), w >= 0.0
        for band in self._bands:
            inside = (positive == band.positive) & (band.start <= sizes) & (sizes < band.stop)
            columns = np.flatnonzero(inside)
            if columns.size:
                for rows, part in _band_features(band, sizes[columns]):
                    features[rows[:, None], columns] = part
        return features


def _band_features(band: _Band, weights: Array) -> Iterator[tuple[NDArray[np.intp], Array]]:
    """Yield rows and their features at weights of a band."""
    degree = band.moments.shape[2]
    coefficients = _coefficients(degree, band.size, weights - band.start)
    height = max(1, _CELLS // (4 * weights.size))
    for first in range(0, len(band.rows), height):
        part = slice(first, first + height)
        sums = band.moments[part].reshape(-1, degree) @ coefficients
        sums = sums.reshape(-1, 3, weights.size)
        sums[:, 1:] /= sums[:, :1]
        var = sums[:, 2] - sums[:, 1] * sums[:, 1]
        yield band.rows[part], band.factor[part] * var


def _moments(
    distance: Array, rate: Array, size: float, bands: list[tuple[float, float]]
) -> list[Array]:
    """Moments of rows for bands of weights, each of shape (n_rows, 3, degree)."""
    n, d = distance.shape
    degrees = _degrees()[: len(bands)]
    moments = [np.empty((n, 3, degree)) for degree in degrees]
    height = max(1, _CELLS // (degrees[-1] * d))
    scratch = np.empty(min(n, height) * degrees[-1] * d)
    for first in range(0, n, height):
        rows = slice(first, first + height)
        g, s = distance[rows], rate[rows] * distance[rows]
        shape = (degrees[-1], s.size)
        out = scratch[: math.prod(shape)].reshape(shape)
        basis = chebyshev_basis((2.0 / size * s - 1.0).ravel(), degrees[-1], out)
        basis = basis.reshape(-1, *g.shape).transpose(1, 2, 0)
        for (start, _), degree, held in zip(bands, degrees, moments, strict=True):
            powers = np.empty((3, *g.shape))
            np.exp(-start * s, out=powers[0])
            np.multiply(powers[0], g, out=powers[1])
            np.multiply(powers[1], g, out=powers[2])
            np.matmul(powers.transpose(1, 0, 2), basis[:, :, :degree], out=held[rows])
    return moments


def _coefficients(degree: int, size: float, weights: Array) -> Array:
    """c_q(z) of the module's notes, shape (degree, n_neurons), by interpolation."""
    # (1 + t)/2 at the Chebyshev nodes without the rounding of t.
    shares = np.sin(np.pi / (4 * degree) * np.arange(1, 2 * degree, 2)) ** 2
    transform = chebyshev_rule(degree)[1]
    return np.asarray(transform @ np.exp(np.multiply.outer(-size * shares, weights)))


@cache
def _degrees() -> list[int]:
    """How many polynomials the bands take."""
    q = np.arange(200)
    z = np.diff(_SCORES, prepend=0.0) / 2.0
    return [int(np.argmax(ive(q, width) < _NEGLIGIBLE)) for width in z]
