"""The kernel of the infinitely wide attention network, for kernel machines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel
from sklearn.utils import check_array, gen_batches

from skcurse.estimators._resources import block_bytes, check_number
from skcurse.theory.infinite_width import GaussianNodes, gaussian_nodes, infinite_width_features

Array = NDArray[np.float64]

_LARGEST_FEATURE = 1e150  # sums of products of two, over all nodes, stay finite


class AttentionNTKKernel(Kernel):
    r"""Neural tangent kernel of the infinitely wide attention network.

    Rows are windows whose last entry is the query. A Gaussian process with this kernel and
    ``alpha=a`` has the mean of
    ``AttentionNTKRegressor(regime="infinite", max_iter=np.inf, alpha=a)``, and error bars: the
    variance of the noise is the strength of the penalty.

    Parameters
    ----------
    weight_scale : float, default=1.0
        Standard deviation :math:`\sigma_w` of the network's weights at initialisation, 1 in [1]_.
        The larger, the more of the attention is all or nothing.
    weight_scale_bounds : pair of floats > 0 or "fixed", default="fixed"
        Where a Gaussian process looks for the `weight_scale` of largest marginal likelihood.

    See Also
    --------
    AttentionNTKRegressor : The network itself, by gradient descent.
    sklearn.gaussian_process.kernels.ConstantKernel : Multiply by it to learn the scale of the
        outputs.

    Notes
    -----
    With the derivative :math:`\varphi_x(w) = x_d \mathrm{var}(x; w)` of a neuron,

    .. math:: k(x, z) = E_{w \sim N(0, \sigma_w^2)}[\varphi_x(w)\, \varphi_z(w)],

    by a quadrature that resolves the windows to rounding. As
    :math:`\varphi_{cx}(w) = c^3 \varphi_x(c^2 w)`, the weight scale is also a length scale:
    windows in other units ask for another one. The derivative by :math:`\log \sigma_w` is
    :math:`E[(w^2/\sigma_w^2 - 1)\, \varphi_x(w)\, \varphi_z(w)]` (derived), from the same nodes.

    A window that is constant or ends in zero has the kernel 0 with all others: its mean stays at
    the prior's. The kernel has few eigenvalues above rounding, so a Gaussian process needs a
    noise: ``alpha``, or a `WhiteKernel` as a summand.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Definitions F.1 and F.2.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from skcurse.datasets import make_residual_ssm
    >>> from skcurse.estimators.attention_kernel import AttentionNTKKernel
    >>> X, y = make_residual_ssm(60, n_steps=8, random_state=0)
    >>> process = GaussianProcessRegressor(AttentionNTKKernel(), alpha=0.1).fit(X, y)
    >>> mean, std = process.predict(X[:2], return_std=True)
    >>> mean.shape, bool((std > 0).all())
    ((2,), True)
    """

    def __init__(
        self,
        weight_scale: float = 1.0,
        weight_scale_bounds: str | tuple[float, float] = "fixed",
    ) -> None:
        self.weight_scale = weight_scale
        self.weight_scale_bounds = weight_scale_bounds

    @property
    def hyperparameter_weight_scale(self) -> Hyperparameter:
        """The weight scale as something to optimise."""
        return Hyperparameter("weight_scale", "numeric", self.weight_scale_bounds)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Any:
        """Evaluate the kernel.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Windows.
        Y : array-like of shape (n_samples_Y, n_features), default=None
            The other windows; None means `X`.
        eval_gradient : bool, default=False
            Whether to return the derivative by the logarithm of the weight scale as well.

        Returns
        -------
        K : ndarray of shape (n_samples_X, n_samples_Y)
            The kernel, positive semi-definite to rounding if `Y` is None.
        K_gradient : ndarray of shape (n_samples_X, n_samples_X, n_dims)
            Only if `eval_gradient`; ``n_dims`` is 0 for a fixed weight scale.

        Raises
        ------
        ValueError
            If the windows' values are too large, `X` and `Y` differ in their number of columns,
            or the gradient is asked for with a `Y`.
        """
        if eval_gradient and Y is not None:
            raise ValueError("The gradient of the kernel exists only for Y=None.")
        windows = self._scaled(X)
        others = None if Y is None else self._scaled(Y)
        if others is not None and others.shape[1] != windows.shape[1]:
            raise ValueError(
                f"X has windows of {windows.shape[1]} steps, but Y has windows of "
                f"{others.shape[1]}."
            )
        nodes = gaussian_nodes(windows if others is None else np.vstack([windows, others]))
        left = self._features(windows, nodes)
        right = left if others is None else self._features(others, nodes)
        K = left @ right.T
        if not eval_gradient:
            return K
        if self.hyperparameter_weight_scale.fixed:
            return K, np.empty((*K.shape, 0))
        return K, ((left * (nodes.points**2 - 1.0)) @ left.T)[:, :, np.newaxis]

    def diag(self, X: ArrayLike) -> Array:
        """Evaluate the kernel of each window with itself.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.

        Returns
        -------
        ndarray of shape (n_samples,)
            The diagonal of the kernel.

        Raises
        ------
        ValueError
            If the windows' values are too large.
        """
        windows = self._scaled(X)
        nodes = gaussian_nodes(windows)
        n_rows = max(1, block_bytes() // (8 * len(nodes.points)))
        blocks = gen_batches(len(windows), n_rows)
        return np.concatenate(
            [np.sum(self._features(windows[rows], nodes) ** 2, axis=1) for rows in blocks]
        )

    def is_stationary(self) -> bool:
        """Tell that the kernel depends on more than the difference of its arguments.

        Returns
        -------
        bool
            False.
        """
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(weight_scale={self.weight_scale:.3g})"

    def _scaled(self, X: ArrayLike) -> Array:
        """Windows for which weights from N(0, 1) do what wider ones do for `X`."""
        # Beyond, its powers overflow or vanish.
        check_number(self.weight_scale, "weight_scale", min_val=1e-100, max_val=1e100)
        return np.sqrt(self.weight_scale) * check_array(X, dtype=np.float64)

    def _features(self, windows: Array, nodes: GaussianNodes) -> Array:
        """Factor of the kernel on scaled windows."""
        features = infinite_width_features(windows, nodes, block_bytes=block_bytes())
        features /= self.weight_scale**1.5
        if np.abs(features).max(initial=0.0) > _LARGEST_FEATURE:
            raise ValueError(
                "The kernel overflows: X holds values too large for it. Rescale the windows, for "
                "example to unit variance."
            )
        return features
