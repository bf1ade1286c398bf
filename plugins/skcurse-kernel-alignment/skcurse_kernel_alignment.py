"""Kernel-target alignment of a trained network, as a diagnostic for skcurse."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from skcurse import hookimpl


def kernel_target_alignment(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    r"""How far the estimator's tangent kernel agrees with the targets.

    Parameters
    ----------
    estimator : fitted estimator
        With ``neural_tangent_kernel(X)``, alone or at the end of a `Pipeline`.
    X : array-like of shape (n_samples, n_features)
        Rows on which the kernel is evaluated.
    y : array-like of shape (n_samples,)
        Targets.

    Returns
    -------
    float
        In [0, 1] for a positive semi-definite kernel: 1 if the centred kernel is proportional to
        the targets' outer product, so that one step of gradient descent can fit them. nan if the
        estimator has no such kernel, y has more than one output, or either is constant.

    Notes
    -----
    :math:`\langle K_c, y_c y_c^\top \rangle_F / (\|K_c\|_F \, \|y_c\|^2)` with
    :math:`K_c = C K C`, :math:`y_c = C y`, :math:`C = I - \mathbf 1 \mathbf 1^\top / n`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh, "Algorithms for Learning Kernels Based on Centered Alignment",
    Journal of Machine Learning Research 13, 2012.
    """
    if isinstance(estimator, Pipeline):
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    if not hasattr(estimator, "neural_tangent_kernel") or np.ndim(y) != 1:
        return np.nan
    kernel = np.asarray(estimator.neural_tangent_kernel(X))
    kernel = kernel - kernel.mean(axis=0)
    kernel -= kernel.mean(axis=1, keepdims=True)
    target = np.asarray(y) - np.mean(y)
    scale = np.linalg.norm(kernel) * (target @ target)
    return float(target @ kernel @ target / scale) if scale > 0 else np.nan


@hookimpl
def skcurse_diagnostics() -> dict[str, Callable[..., float]]:
    """Offer the diagnostic by name."""
    return {"kernel_target_alignment": kernel_target_alignment}
