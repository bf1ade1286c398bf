"""Residual linear regression from a triangular factor that can be continued.

A residual linear model of a window x with newest value x_l (column l) is

    f(x) = x_l + ⟨w, z⟩ + b,    z = (x_k - x_l)_{k ≠ l}  (centred)  or  (x_k)_{k ≠ l},

so fitting it is least squares of the residual y - x_l on z. All that least squares needs to know
about any number of rows is the leading part of the R factor of ``[1, Z, targets]``, which further
rows update by another QR decomposition. Normal equations are never formed from `Z`: they would
square its condition number, and neighbouring steps of a series are nearly collinear.
"""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr_multiply, svd

from skcurse.theory.window_gram import window_rows, window_series

__all__ = [
    "ResidualFactor",
    "add_rows",
    "column_weights",
    "newest_column",
    "residual_problem",
    "solve_factor",
]

Floats = NDArray[np.float64]


class ResidualFactor(NamedTuple):
    """What least squares remembers of the rows seen.

    Attributes
    ----------
    triangle : ndarray of shape (1 + p, 1 + p + k)
        Leading rows of the R factor of ``[1, Z - origin, targets - origin]``, with p columns in
        Z and k targets; rows are scaled by the square root of their weight.
    origin : ndarray of shape (p + k,)
        What was subtracted from the columns, so that a high level costs no digits.
    resolution : float
        Rounding unit of the entries of the windows: their largest magnitude times the machine
        precision of their dtype.
    n_rows : int
        Rows of positive weight.
    """

    triangle: Floats
    origin: Floats
    resolution: float
    n_rows: int


def newest_column(last_step: int, n_features: int) -> int:
    """Return the index, counted from 0, of the column that holds the newest value.

    Parameters
    ----------
    last_step : int
        Index of the column, negative from the end.
    n_features : int
        Number of columns.

    Returns
    -------
    column : int
        The same, 0 ≤ column < n_features.

    Raises
    ------
    ValueError
        If there is no such column.

    Examples
    --------
    >>> from skcurse.theory.residual_regression import newest_column
    >>> newest_column(-1, 24)
    23
    """
    if (
        not isinstance(last_step, Integral)
        or isinstance(last_step, bool)
        or not -n_features <= last_step < n_features
    ):
        raise ValueError(
            f"last_step must be the index of one of the {n_features} columns of X, "
            f"got {last_step!r}."
        )
    return int(last_step) % n_features


def residual_problem(
    windows: NDArray[np.floating], y: NDArray[np.floating], last_step: int, centered: bool = True
) -> tuple[Floats, Floats]:
    """Design matrix and targets of the least-squares problem.

    Parameters
    ----------
    windows : ndarray of shape (n, d)
        Windows of a series.
    y : ndarray of shape (n, k)
        Values to predict.
    last_step : int
        Column that holds the newest value, 0 ≤ last_step < d.
    centered : bool, default=True
        Whether the newest value is subtracted from the other columns.

    Returns
    -------
    Z : ndarray of shape (n, d - 1)
        The other columns, less the newest value if `centered`.
    targets : ndarray of shape (n, k)
        `y` less the newest value.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_regression import residual_problem
    >>> Z, targets = residual_problem(np.array([[1.0, 2.0, 4.0]]), np.array([[7.0]]), last_step=2)
    >>> Z, targets
    (array([[-3., -2.]]), array([[3.]]))
    """
    newest = np.asarray(windows[:, [last_step]], dtype=np.float64)
    others = np.delete(windows, last_step, axis=1).astype(np.float64)
    if centered:
        others -= newest
    return others, np.asarray(y, dtype=np.float64) - newest


def add_rows(
    factor: ResidualFactor | None,
    windows: NDArray[np.floating],
    y: NDArray[np.floating],
    weights: Floats | None = None,
    *,
    last_step: int,
    centered: bool = True,
    block_bytes: int = 2**26,
) -> ResidualFactor:
    """Continue a factor with more rows.

    Parameters
    ----------
    factor : ResidualFactor or None
        Factor of the rows seen so far; ``None`` starts a new one.
    windows : ndarray of shape (n, d)
        Windows. A view that slides along a one-dimensional series (both strides equal) is
        recognised: its Gram matrix then comes from the series in O(n d) and is used if it is
        conditioned well enough, see `skcurse.theory.window_gram.window_rows`.
    y : ndarray of shape (n, k)
        Values to predict.
    weights : ndarray of shape (n,), default=None
        Non-negative weights; a weight of 0 is a row left out, 2 a row seen twice.
    last_step : int
        Column of the newest value, 0 ≤ last_step < d.
    centered : bool, default=True
        Which reading, see `residual_problem`.
    block_bytes : int, default=2**26
        Memory for temporary blocks of rows, of which there are four at a time.

    Returns
    -------
    factor : ResidualFactor
        Factor of all rows; the argument is left as it was.

    Raises
    ------
    ValueError
        If the values are so large that sums or differences of them overflow.

    Notes
    -----
    With Q R = [R_old; √ω (1, Z)] the new rows are R and Qᵀ [T_old; √ω T]. Rows of the R factor
    below the first 1 + p would hold the norm of what cannot be explained, which no coefficient
    depends on: they are dropped, and the targets are never decomposed among themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_regression import add_rows, solve_factor
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, [2]] + 0.5 * (X[:, [0]] - X[:, [2]]) + 1.0
    >>> factor = add_rows(None, X[:30], y[:30], last_step=2)
    >>> weights, intercept = solve_factor(add_rows(factor, X[30:], y[30:], last_step=2))
    >>> weights.round(12) + 0.0, intercept.round(12)
    (array([[0.5, 0. ]]), array([1.]))
    """
    if weights is not None and not weights.all():
        seen = weights > 0
        windows, y, weights = windows[seen], y[seen], weights[seen]
    n, d = windows.shape
    if n == 0:
        raise ValueError("Every row has weight zero: there is nothing to fit.")
    rows = max(4 * d, block_bytes // (32 * (d + y.shape[1])))
    with np.errstate(over="ignore", invalid="ignore"):
        if factor is None:
            first = residual_problem(windows[:rows], y[:rows], last_step, centered)
            origin = np.hstack(first).mean(axis=0)
            factor = ResidualFactor(np.zeros((d, d + y.shape[1])), origin, 0.0, 0)
        triangle = factor.triangle
        series = None if weights is not None else window_series(windows)
        gram = None if series is None else window_rows(series, y, d, last_step, centered)
        if gram is not None:
            part, origin = gram
            part[:, 1:] += part[:, :1] * (origin - factor.origin)
            triangle = _retriangulate(np.vstack([triangle, part]), d)
        else:
            for start in range(0, n, rows):
                block = slice(start, start + rows)
                parts = residual_problem(windows[block], y[block], last_step, centered)
                fresh = np.hstack([np.ones((len(parts[0]), 1)), *parts])
                fresh[:, 1:] -= factor.origin
                if weights is not None:
                    fresh *= np.sqrt(weights[block])[:, None]
                triangle = _retriangulate(np.vstack([triangle, fresh]), d)
    values = windows if series is None else series
    unit = float(np.finfo(values.dtype).eps) * float(max(values.max(), -values.min()))
    return ResidualFactor(triangle, factor.origin, max(factor.resolution, unit), factor.n_rows + n)


def _retriangulate(rows: Floats, n_columns: int) -> Floats:
    """First `n_columns` rows of the R factor of `rows`; the columns beyond are only rotated."""
    rotated, square = qr_multiply(
        _checked(rows[:, :n_columns]), _checked(rows[:, n_columns:]).T, mode="right"
    )
    return _checked(np.hstack([square, rotated.T]))


def _checked(rows: Floats) -> Floats:
    """Pass rows on, unless they overflowed."""
    if not np.isfinite(rows).all():
        raise ValueError(
            "Sums or differences of the values overflow: divide the series by a constant first."
        )
    return rows


def solve_factor(
    factor: ResidualFactor, alpha: float = 0.0, fit_intercept: bool = True
) -> tuple[Floats, Floats]:
    """Ridge or minimum-norm least-squares solution of the rows in a factor.

    Parameters
    ----------
    factor : ResidualFactor
        Rows seen.
    alpha : float, default=0.0
        Ridge penalty on the weights, not on the intercept.
    fit_intercept : bool, default=True
        Whether to fit the constant b.

    Returns
    -------
    weights : ndarray of shape (k, p)
        Weights on the columns of Z, one row a target.
    intercept : ndarray of shape (k,)
        Constants, zero without `fit_intercept`.

    Raises
    ------
    ValueError
        If the values are so large that their weighted sums overflow.

    Notes
    -----
    With R = U diag(s) Vᵀ and rotated targets T, w = V diag(1 / (s + alpha / s)) Uᵀ T over the
    singular values above two bounds: (p + 4 √n) ε s_max, which the rounding of n updates by a row
    each does not reach, and √(p n) u, the largest norm that rounding errors of size u, the
    resolution of the windows, can have. Directions below are rounding noise, and zero weight on
    them is the minimum-norm choice. Squares of s are never formed, so no scale of the series
    overflows or vanishes.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_regression import add_rows, solve_factor
    >>> X = np.array([[1.0, 1.0, 3.0], [0.0, 0.0, 4.0], [2.0, 2.0, 1.0]])
    >>> solve_factor(add_rows(None, X, X[:, :1], last_step=2))[0].round(12)
    array([[0.5, 0.5]])
    """
    p = factor.triangle.shape[0] - 1
    root_weight = factor.triangle[0, 0]
    shifted = factor.triangle[:, 1:].copy()
    with np.errstate(over="ignore"):
        shifted[0] += root_weight * factor.origin
    rows = _checked(shifted[1:] if fit_intercept else shifted)
    mean = shifted[0] / root_weight
    U, s, Vt = svd(rows[:, :p], full_matrices=False)
    rounding = (p + 4.0 * np.sqrt(factor.n_rows)) * np.finfo(np.float64).eps
    # A penalty that overflows beside tiny windows means no weight; a weight that overflows shows.
    with np.errstate(over="ignore", invalid="ignore"):
        unit = np.sqrt(p) * abs(root_weight) * factor.resolution
        kept = s > max(rounding * s.max(initial=0.0), unit)
        s = s[kept, None]
        weights = ((U[:, kept].T @ rows[:, p:]) / (s + alpha / s)).T @ Vt[kept]
        if not fit_intercept:
            return weights, np.zeros(len(weights))
        return weights, mean[p:] - weights @ mean[:p]


def column_weights(weights: Floats, last_step: int, centered: bool = True) -> Floats:
    """Coefficients on the columns of the windows themselves.

    Parameters
    ----------
    weights : ndarray of shape (k, d - 1)
        Weights on the columns of Z.
    last_step : int
        Column of the newest value, 0 ≤ last_step < d.
    centered : bool, default=True
        Which reading, see `residual_problem`.

    Returns
    -------
    coefficients : ndarray of shape (k, d)
        With them ``windows @ coefficients.T`` is x_l + ⟨w, z⟩.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_regression import column_weights
    >>> column_weights(np.array([[0.25, 0.5]]), last_step=2)
    array([[0.25, 0.5 , 0.25]])
    """
    newest = 1.0 - weights.sum(axis=1) if centered else 1.0
    return np.insert(weights, last_step, newest, axis=1)
