"""Gram matrices of overlapping windows, straight from the series.

Windows that slide along a series share almost all their values, so the entries of AᵀB along a
diagonal differ by one product that enters and one that leaves. The matrix costs O(n (p + q) + p q)
instead of O(n p q), and the windows are never materialised.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, lapack, norm, solve_triangular

__all__ = ["window_gram", "window_rows", "window_series"]

Floats = NDArray[np.float64]

# Forming a Gram matrix squares the condition number: with ε cond² at most this, coefficients agree
# with those of an orthogonal decomposition to about ten digits.
_GRAM_LOSS = 1e-10


def window_series(windows: NDArray[np.floating]) -> NDArray[np.floating] | None:
    """Series along which a strided view slides, if it does.

    Parameters
    ----------
    windows : ndarray of shape (n, d)
        Any matrix.

    Returns
    -------
    series : ndarray of shape (n + d - 1,) or None
        With ``windows[i, j] == series[i + j]`` for all i and j, known from the strides alone;
        ``None`` where they do not tell, in particular for a matrix that owns its entries.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.window_gram import window_series
    >>> windows = np.lib.stride_tricks.sliding_window_view(np.arange(5.0), 3)
    >>> window_series(windows)
    array([0., 1., 2., 3., 4.])
    >>> window_series(windows.copy()) is None
    True
    """
    if min(windows.shape) < 2 or windows.strides[0] != windows.strides[1]:
        return None
    return np.concatenate([windows[:, 0], windows[-1, 1:]])


def window_gram(left: Floats, right: Floats, n_windows: int) -> Floats:
    """Sum over the windows of their outer products, AᵀB, from the two series.

    Parameters
    ----------
    left : ndarray of shape (n_windows + p - 1,)
        Series of the windows A[i, j] = left[i + j], j < p.
    right : ndarray of shape (n_windows + q - 1,)
        Series of the windows B[i, j] = right[i + j], j < q. A column of n_windows values is the
        case q = 1.
    n_windows : int
        Number of windows.

    Returns
    -------
    gram : ndarray of shape (p, q)
        AᵀB.

    Notes
    -----
    The first row and column are correlations of the series; then

        G[a + 1, b + 1] = G[a, b] + left[n + a] right[n + b] - left[a] right[b].

    The rounding error is that of a Gram matrix summed in any order, a small multiple of the
    machine precision times the largest entry.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.window_gram import window_gram
    >>> series = np.arange(6.0)
    >>> windows = np.lib.stride_tricks.sliding_window_view(series, 3)
    >>> np.array_equal(window_gram(series, series, 4), windows.T @ windows)
    True
    """
    n = n_windows
    p, q = len(left) - n + 1, len(right) - n + 1
    gram = np.empty((p, q))
    gram[:, 0] = np.correlate(left, right[:n], mode="valid")
    gram[0, 1:] = np.correlate(right[1:], left[:n], mode="valid") if q > 1 else ()
    for a in range(p - 1):
        entering, leaving = left[n + a] * right[n:], left[a] * right[: q - 1]
        gram[a + 1, 1:] = gram[a, :-1] + (entering - leaving)
    return gram


def window_rows(
    series: NDArray[np.floating],
    y: NDArray[np.floating],
    n_steps: int,
    last_step: int,
    centered: bool = True,
) -> tuple[Floats, Floats] | None:
    """Find a few rows that a residual regression cannot tell from all windows of a series.

    Parameters
    ----------
    series : ndarray of shape (n + n_steps - 1,)
        The series.
    y : ndarray of shape (n, k)
        Values to predict; a view that slides along a series itself is cheaper.
    n_steps : int
        Window length d.
    last_step : int
        Column of the newest value, 0 ≤ last_step < d.
    centered : bool, default=True
        Which reading, see `skcurse.theory.residual_regression.residual_problem`.

    Returns
    -------
    rows : ndarray of shape (r, d + k), r ≤ d + 1
        They stand for ``[1, Z - origin, targets - origin]``: sums of products of the first d
        columns, among themselves and with the targets, are the same.
    origin : ndarray of shape (d - 1 + k,)
        What is subtracted, close to the columns' means.
        Instead of both, ``None`` where the Gram matrix would lose digits or would not be cheaper:
        then decompose the windows themselves.

    Notes
    -----
    The centred columns are sums of first differences, x_k - x_l = -Σ_{j=k..l-1} (x_{j+1} - x_j),
    so the Gram matrix is taken of windows of the *differenced* series. Differences are far from
    collinear where the levels are not (a random walk), and large levels never enter.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.window_gram import window_rows
    >>> series = np.random.default_rng(0).normal(size=103)
    >>> rows, origin = window_rows(series[:-1], series[3:, None], n_steps=3, last_step=2)
    >>> rows.shape, origin.shape
    ((3, 4), (3,))
    """
    n = len(series) - n_steps + 1
    if n < 4 * n_steps:
        return None
    s = np.asarray(series, dtype=np.float64)
    newest = s[last_step : last_step + n]
    base = np.diff(s) if centered else s
    level = base.mean()
    base = base - level
    scale = float(norm(base, check_finite=False)) / np.sqrt(len(base))
    if not 0.0 < scale < np.inf:
        return None
    base /= scale
    triangle = _design_triangle(base, n)
    if triangle is None:
        return None
    products, target_origin = _target_products(base, newest, y)
    mix = _column_mix(n_steps, last_step, centered)
    rows = np.empty((len(triangle), n_steps + y.shape[1]))
    rows[:, 0] = triangle[:, 0]
    rows[:, 1:n_steps] = triangle[:, 1:] @ (scale * mix)
    rows[:, n_steps:] = solve_triangular(triangle, products, trans="T")
    return rows, np.append(level * mix.sum(axis=0), target_origin)


def _design_triangle(base: Floats, n: int) -> Floats | None:
    """Cholesky factor of the Gram matrix of [1, windows of base], if it keeps enough digits."""
    q = len(base) - n + 1
    gram = np.empty((1 + q, 1 + q))
    gram[0, 0] = n
    gram[1:, 0] = gram[0, 1:] = window_gram(base, np.ones(n), n)[:, 0]
    gram[1:, 1:] = window_gram(base, base, n)
    try:
        triangle = cholesky(gram, check_finite=False)
    except LinAlgError:
        return None
    reciprocal, _ = lapack.dtrcon(triangle)
    return triangle if np.finfo(np.float64).eps <= _GRAM_LOSS * reciprocal**2 else None


def _target_products(
    base: Floats, newest: Floats, y: NDArray[np.floating]
) -> tuple[Floats, Floats]:
    """[1, windows of base]ᵀ (targets - origin), and the origin, the targets' means."""
    n, center = len(newest), newest.mean()
    ones = np.ones(n)
    y_series = window_series(y)
    if y_series is not None:
        products = window_gram(base, y_series - center, n)
    else:
        columns = (np.correlate(base, column - center, mode="valid") for column in y.T)
        products = np.column_stack(list(columns))
    products = products - window_gram(base, newest - center, n)
    origin = (y - newest[:, None]).mean(axis=0)
    products -= window_gram(base, ones, n) * origin
    return np.vstack([np.zeros_like(origin), products]), origin


def _column_mix(n_steps: int, last_step: int, centered: bool) -> Floats:
    """Z as a linear map of windows of the differenced (centred) or the plain series."""
    if not centered:
        return np.delete(np.eye(n_steps), last_step, axis=1)
    cumulative = np.triu(np.ones((n_steps - 1, n_steps)), k=1)
    return np.delete(cumulative - cumulative[:, [last_step]], last_step, axis=1)
