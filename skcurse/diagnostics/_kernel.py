"""Drift and spectrum of the neural tangent kernel."""

from typing import Any

import numpy as np
import sklearn
from numpy.typing import ArrayLike
from sklearn.utils import gen_batches

from skcurse.diagnostics._innermost import innermost
from skcurse.scorer import held_out


def kernel_drift(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Relative change of the neural tangent kernel during training.

    Parameters
    ----------
    estimator : fitted estimator
        With ``neural_tangent_kernel(X, Y, at=...)``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Windows on which the kernel is evaluated.
    y : ignored

    Returns
    -------
    float
        :math:`\|H(t) - H(0)\|_F / \|H(0)\|_F`, nan where it does not apply
        or H(0) = 0. Of several outputs the root mean square.

    Notes
    -----
    The left side of [Curse], Lemma 5.1 (F.4), made relative. The kernel is formed in row blocks.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import kernel_drift
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, max_iter=5, tol=0, random_state=0)
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     drift = kernel_drift(model.fit(X, y), X)
    >>> 0 < drift < 1
    True
    """
    estimator, X = innermost(*held_out(estimator, X, y)[:2])
    if not (hasattr(estimator, "neural_tangent_kernel") and hasattr(estimator, "weights_")):
        return np.nan
    X = np.asarray(X, float)
    drift = norm = 0.0
    # As many rows at once as memory allows: every call has a set-up to pay.
    n_rows = int(sklearn.get_config()["working_memory"] * 2**20) // (24 * len(X))
    for rows in gen_batches(len(X), max(1, n_rows)):
        initial = estimator.neural_tangent_kernel(X[rows], X, at="initial")
        change = estimator.neural_tangent_kernel(X[rows], X, at="fitted") - initial
        drift += float(np.sum(change**2)) / max(1, change.size // initial.size)
        norm += float(np.sum(initial**2))
    return float(np.sqrt(drift / norm)) if norm > 0 else np.nan


def ntk_min_eigenvalue(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Smallest eigenvalue of the neural tangent kernel on X.

    Parameters
    ----------
    estimator : fitted estimator
        With ``ntk_eigenvalues(X)``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        :math:`\lambda_{\min}(H(t))`, from singular values of the feature matrix; nan below what
        double precision resolves, and where it does not apply.

    Notes
    -----
    [Curse], Definition F.2 and Lemma F.4 assume it positive; the convergence rate of
    Theorem 5.2 is proportional to it.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import ntk_min_eigenvalue
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> ntk_min_eigenvalue(model, X[:3]) > 0
    True
    """
    estimator, X = innermost(*held_out(estimator, X, y)[:2])
    if not hasattr(estimator, "ntk_eigenvalues"):
        return np.nan
    return float(np.min(estimator.ntk_eigenvalues(X)))  # nan, where one is unresolved, wins


def ntk_effective_rank(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Effective rank of the neural tangent kernel on X.

    Parameters
    ----------
    estimator : fitted estimator
        With ``ntk_eigenvalues(X)``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        :math:`(\sum \lambda)^2 / \sum \lambda^2`, between 1 and the number of rows; nan where it
        does not apply or H = 0.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import ntk_effective_rank
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> 1 <= ntk_effective_rank(model, X) <= 50
    True
    """
    estimator, X = innermost(*held_out(estimator, X, y)[:2])
    if not hasattr(estimator, "ntk_eigenvalues"):
        return np.nan
    eigenvalues = np.nan_to_num(np.asarray(estimator.ntk_eigenvalues(X)))  # unresolved: ~0
    if not eigenvalues.any():
        return np.nan
    scaled = eigenvalues / eigenvalues.max()
    return float(scaled.sum() ** 2 / (scaled**2).sum())
