"""Risks of linear predictors on the residual state space model, in closed form and with noise."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.residual_ssm import ResidualSystem, _event_plane, _residual_fit

__all__ = ["best_residual_weights", "linear_risk"]


def best_residual_weights(
    system: ResidualSystem, noise: float, centered: bool = True
) -> NDArray[np.float64]:
    """Weights of the residual linear predictor of least risk under the training law.

    Parameters
    ----------
    system : ResidualSystem
        The model.
    noise : float
        Standard deviation of the noise on inputs and target.
    centered : bool, default=True
        As in `exact_weights`.

    Returns
    -------
    weights : ndarray of shape (n_steps - 1,)
        The limit of the least-squares fit on infinitely many samples (its intercept is 0).

    Notes
    -----
    The risk ``||P_{d+1} - sum_k v_k P_k||^2 + noise^2 (1 + ||v||^2)``, with v the coefficients of
    the window's columns, is a sum of squares linear in the weights, and solved as one (derived).

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_risk import best_residual_weights
    >>> from skcurse.theory.residual_ssm import build_system, spread_angles
    >>> rng = np.random.default_rng(0)
    >>> system = build_system(spread_angles(8, rng), gamma=0.8, n_steps=8, rng=rng)
    >>> best_residual_weights(system, noise=0.05).shape
    (7,)
    """
    n_steps = len(system.P) - 1
    noisy_rows = np.vstack([system.P.T, noise * np.eye(n_steps, n_steps + 1)])
    weights, _ = _residual_fit(noisy_rows, centered)
    return weights


def linear_risk(
    system: ResidualSystem,
    coef: ArrayLike,
    *,
    noise: float = 0.0,
    sign_inconsistent: bool = False,
) -> float:
    """Risk of the linear predictor ``x @ coef``, under either law.

    Parameters
    ----------
    system : ResidualSystem
        The model.
    coef : array-like of shape (n_steps,)
        Coefficients of the window's columns.
    noise : float, default=0.0
        Standard deviation of the noise on the inputs and on the target; both are counted.
    sign_inconsistent : bool, default=False
        Whether the state is conditioned on ``u_d u_{d+1} < 0``.

    Returns
    -------
    risk : float
        ``E[(y - x @ coef)^2]``.

    Raises
    ------
    ValueError
        If `coef` has another shape, or the risk overflows.

    Notes
    -----
    With ``g = P_{d+1} - sum_k coef_k P_k`` it is ``g S g^T + noise^2 (1 + ||coef||^2)``. S is the
    second moment of the state: the identity under the training law, and given the sign event
    changed on the span of P_d and P_{d+1} only, where in orthonormal coordinates starting with P_d
    it is ``[[1 - s, -t], [-t, 1 + s]]``, ``s = sin(2 beta) / (2 beta)``,
    ``t = sin(beta)^2 / beta`` (derived).

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_risk import linear_risk
    >>> from skcurse.theory.residual_ssm import build_system, spread_angles
    >>> rng = np.random.default_rng(0)
    >>> system = build_system(spread_angles(4, rng), gamma=0.8, n_steps=4, rng=rng)
    >>> round(linear_risk(system, [0, 0, 0, 1]), 10)  # persistence: 2 - 2 gamma
    0.4
    """
    v = np.asarray(coef, dtype=np.float64)
    if v.shape != (len(system.P) - 1,):
        raise ValueError(f"coef must have shape ({len(system.P) - 1},), got {v.shape}.")
    g = system.P[-1] - v @ system.P[:-1]
    with np.errstate(over="ignore"):
        noise_part = np.square(noise) * (1.0 + v @ v)
    if not np.isfinite(noise_part):
        raise ValueError(f"The risk overflows: noise={noise:g} or coef is too large.")
    if not sign_inconsistent:
        return float(g @ g + noise_part)
    basis, beta = _event_plane(system)
    inside = g @ basis
    outside = g - basis @ inside
    s, t = np.sinc(2.0 * beta / np.pi), np.sin(beta) ** 2 / beta
    moment = np.array([[1.0 - s, -t], [-t, 1.0 + s]])
    return float(outside @ outside + inside @ moment @ inside + noise_part)
