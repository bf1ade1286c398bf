"""The residual state space model: realisation, exact sampling, exact predictors.

A hidden state ``h ~ N(0, I_N)`` is seen through ``u_k = P_k h`` with ``P_k = C M^(k-1)``, unit rows
and ``<P_k, P_{k+1}> = gamma``. Everything here is linear algebra on the rows ``P_1 … P_{d+1}``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import spherical_jn

__all__ = [
    "ResidualSystem",
    "ResidualWeights",
    "build_system",
    "exact_weights",
    "persistence_risk",
    "residual_coefficients",
    "sample_states",
    "spread_angles",
    "zero_risk",
]

FloatArray = NDArray[np.float64]
Random = np.random.Generator | np.random.RandomState

_EXACT = 1e-9  # residual of the recurrence, in units of the state, below which it holds


class ResidualSystem(NamedTuple):
    """An orthogonal realisation of the residual state space model.

    Attributes
    ----------
    M : ndarray of shape (n_states, n_states)
        Closed-loop matrix ``A + B C``, orthogonal.
    C : ndarray of shape (n_states,)
        Read-out row, of unit length; equals ``P[0]``.
    P : ndarray of shape (n_steps + 1, n_states)
        Row ``k - 1`` is ``P_k = C M^(k-1)``; the last one is the target's.
    gamma : float
        The inner product of consecutive rows of `P`.
    angles : ndarray
        Angles of the eigenvalues of `M`, ascending in ``[0, pi]``: 0 and pi stand for the
        eigenvalues 1 and -1 (one dimension), the others for a rotation of a plane.
    noise_gain : float
        ``1 + ||w||^2 + (1 - sum(w))^2`` for the centred `exact_weights`: the factor by which
        their risk, the target's own noise included, multiplies ``noise ** 2``.
    """

    M: FloatArray
    C: FloatArray
    P: FloatArray
    gamma: float
    angles: FloatArray
    noise_gain: float


class ResidualWeights(NamedTuple):
    """Weights of the residual linear predictor without noise.

    Attributes
    ----------
    weights : ndarray of shape (n_steps - 1,)
        Weights ``w_1 … w_{d-1}``.
    bias : float
        Noise-free risk that these weights leave; rounding error (below 1e-20) where they are exact.
    unique : bool
        Whether no other weights do as well.
    """

    weights: FloatArray
    bias: float
    unique: bool


def spread_angles(n_states: int, rng: Random, *, unit_root: bool = True) -> FloatArray:
    """Spread the angles of the eigenvalues over ``[0, pi]``.

    Parameters
    ----------
    n_states : int
        Dimension N of the hidden state.
    rng : Generator or RandomState
        Source of the jitter.
    unit_root : bool, default=True
        Whether the eigenvalue 1 is one of them.

    Returns
    -------
    angles : ndarray
        Ascending angles, as in `ResidualSystem`.

    Notes
    -----
    J planes have angles ``pi (j - 1/2 + U_j / 4) / J`` with ``U_j ~ Uniform(-1, 1)``; a dimension
    left over gets the eigenvalue -1 (derived). Even spacing keeps the noise gain of the exact
    predictor small; the jitter keeps the series from being periodic.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_ssm import spread_angles
    >>> len(spread_angles(16, np.random.default_rng(0)))  # 1, seven planes, -1
    9
    """
    n_planes, left_over = divmod(n_states - int(unit_root), 2)
    jitter = rng.uniform(-0.25, 0.25, n_planes)
    planes = np.pi * (np.arange(n_planes) + 0.5 + jitter) / max(n_planes, 1)
    return np.concatenate([np.zeros(int(unit_root)), planes, np.full(left_over, np.pi)])


def build_system(angles: ArrayLike, gamma: float, n_steps: int, rng: Random) -> ResidualSystem:
    """Realise a residual state space model with given eigenvalues and `gamma`.

    Parameters
    ----------
    angles : array-like
        Angles of the eigenvalues of M, in ``[0, pi]``, see `ResidualSystem`.
    gamma : float
        Inner product of consecutive rows, strictly between the smallest and the largest cosine of
        the angles.
    n_steps : int
        Length d of a window; d + 1 rows are built.
    rng : Generator or RandomState
        Source of the random orthogonal basis of the state.

    Returns
    -------
    system : ResidualSystem
        The matrices, `gamma`, the angles and the noise gain.

    Raises
    ------
    ValueError
        If `gamma` is outside the interval that the angles allow, which the message names.

    Notes
    -----
    For an orthogonal M and a unit C, ``<P_k, P_{k+l}> = sum_j c_j^2 cos(l theta_j)`` for every k,
    so u is stationary with that autocovariance (derived). The squared weights of C are
    exponentially tilted, ``c_j^2 ∝ mult_j exp(b cos theta_j)``, with b solved for `gamma`. P is
    formed from the angles, not by repeated multiplication. Matrices of the model as published
    follow from any split of ``M = A + B C``, for instance ``B = C^T``, ``A = M - B C``.

    References
    ----------
    Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Definition 4.1 and
    Claim 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_ssm import build_system, spread_angles
    >>> rng = np.random.default_rng(0)
    >>> system = build_system(spread_angles(8, rng), gamma=0.8, n_steps=8, rng=rng)
    >>> system.P.shape
    (9, 8)
    >>> bool(np.allclose(np.sum(system.P[1:] * system.P[:-1], axis=1), 0.8, atol=1e-10))
    True
    """
    theta = np.sort(np.asarray(angles, dtype=np.float64).ravel())
    amplitudes = np.sqrt(_tilted_weights(theta, gamma))
    plane = _is_plane(theta)
    cos, sin = np.diag(np.cos(theta)), np.diag(np.sin(theta))
    rotation = np.block([[cos, -sin[:, plane]], [sin[plane], cos[plane][:, plane]]])
    basis, _ = np.linalg.qr(rng.normal(size=rotation.shape))
    scale = np.concatenate([amplitudes, amplitudes[plane]])
    P = (_modes(theta, n_steps).T * scale) @ basis.T
    M = basis @ rotation @ basis.T
    system = ResidualSystem(M, P[0].copy(), P, float(gamma), theta, np.nan)
    coef = residual_coefficients(exact_weights(system).weights)
    return system._replace(noise_gain=float(1.0 + coef @ coef))


def sample_states(
    system: ResidualSystem, n_samples: int, rng: Random, *, sign_inconsistent: bool = False
) -> FloatArray:
    """Draw initial states, from the training law or given the sign event.

    Parameters
    ----------
    system : ResidualSystem
        The model.
    n_samples : int
        Number of states.
    rng : Generator or RandomState
        Source of the ``n_samples * n_states`` normal draws, the same number in either law.
    sign_inconsistent : bool, default=False
        Whether to condition on ``u_d u_{d+1} < 0``.

    Returns
    -------
    states : ndarray of shape (n_samples, n_states)
        ``states @ system.P.T`` holds u_1 … u_{d+1} in its columns.

    Notes
    -----
    In the plane of P_d and P_{d+1} the state has polar coordinates (r, phi) with
    ``(u_d, u_{d+1}) = (r cos phi, r cos(phi - beta))``, ``beta = arccos gamma``, phi uniform and
    independent of r. The event restricts phi to two opposite arcs of length beta, so each half
    circle is contracted onto one of them (derived): nothing is rejected, and the cost does not
    depend on gamma. The outermost 1e-12 of an arc is cut off, for rounding not to change a sign.

    References
    ----------
    Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Definition 6.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_ssm import build_system, sample_states, spread_angles
    >>> rng = np.random.default_rng(0)
    >>> system = build_system(spread_angles(8, rng), gamma=0.999, n_steps=8, rng=rng)
    >>> u = sample_states(system, 1000, rng, sign_inconsistent=True) @ system.P.T
    >>> bool(np.all(u[:, -2] * u[:, -1] < 0))
    True
    """
    states = rng.normal(size=(n_samples, system.P.shape[1]))
    if not sign_inconsistent:
        return states
    basis, beta = _event_plane(system)
    z = states @ basis
    turn = np.arctan2(z[:, 1], z[:, 0]) / np.pi
    phi = np.pi / 2 + beta * np.clip(np.abs(turn), 1e-12, 1 - 1e-12)
    radius = np.copysign(np.hypot(z[:, 0], z[:, 1]), turn)  # the sign picks the arc
    drawn = np.column_stack([radius * np.cos(phi), radius * np.sin(phi)])
    return states + (drawn - z) @ basis.T


def zero_risk(gamma: ArrayLike) -> FloatArray | np.float64:
    """Noise-free risk of predicting zero, given the sign event.

    Parameters
    ----------
    gamma : float or array-like
        Inner product of consecutive rows, in [-1, 1].

    Returns
    -------
    risk : float or ndarray
        ``E[u_{d+1}^2 | u_d u_{d+1} < 0]``. Against a noisy target add ``noise ** 2``; under the
        training law the risk is ``1 + noise ** 2``.

    Notes
    -----
    With ``beta = arccos gamma`` it is ``1 - sin(2 beta) / (2 beta)`` (derived), evaluated through
    the spherical Bessel function j_1 so that no digit is lost as gamma goes to 1.

    Examples
    --------
    >>> from skcurse.theory.residual_ssm import zero_risk
    >>> round(float(zero_risk(0.8)), 3)
    0.254
    """
    beta, cross = _sign_event(gamma)
    return np.sin(beta) ** 2 + np.cos(beta) * cross


def persistence_risk(gamma: ArrayLike) -> FloatArray | np.float64:
    """Noise-free risk of predicting the last value, given the sign event.

    Parameters
    ----------
    gamma : float or array-like
        Inner product of consecutive rows, in [-1, 1].

    Returns
    -------
    risk : float or ndarray
        ``E[(u_{d+1} - u_d)^2 | u_d u_{d+1} < 0]``. On noisy data add ``2 * noise ** 2``, once for
        the input and once for the target; under the training law the risk is
        ``2 - 2 gamma + 2 noise ** 2``.

    Notes
    -----
    It is ``2 (1 - sin(2 beta) / (2 beta)) - 2 (cos beta - sin beta / beta)`` with
    ``beta = arccos gamma`` (derived).

    Examples
    --------
    >>> from skcurse.theory.residual_ssm import persistence_risk
    >>> round(float(persistence_risk(0.8)), 3)
    0.773
    """
    _, cross = _sign_event(gamma)
    return 2.0 * zero_risk(gamma) - 2.0 * cross


def residual_coefficients(weights: ArrayLike, *, centered: bool = True) -> FloatArray:
    """Turn residual weights into coefficients of the window's columns.

    Parameters
    ----------
    weights : array-like of shape (n_steps - 1,)
        Weights w of ``x_{1:d-1} - x_d`` (centred) or of ``x_{1:d-1}``.
    centered : bool, default=True
        Which of the two readings.

    Returns
    -------
    coef : ndarray of shape (n_steps,)
        The prediction is ``x @ coef``.

    Examples
    --------
    >>> from skcurse.theory.residual_ssm import residual_coefficients
    >>> residual_coefficients([0.5, 0.25])
    array([0.5 , 0.25, 0.25])
    """
    w = np.asarray(weights, dtype=np.float64)
    return np.append(w, 1.0 - w.sum() if centered else 1.0)


def exact_weights(system: ResidualSystem, centered: bool = True) -> ResidualWeights:
    """Weights with which the residual linear predictor is exact without noise.

    Parameters
    ----------
    system : ResidualSystem
        The model.
    centered : bool, default=True
        True for ``f(x) = <w, x_{1:d-1} - x_d> + x_d``, False for ``<w, x_{1:d-1}> + x_d``.

    Returns
    -------
    result : ResidualWeights
        The weights, the noise-free risk they leave and whether they are unique. Where no weights
        are exact, the best ones under the training law; where many are, those of least norm.

    Notes
    -----
    The recurrence ``P_{d+1} - P_d = sum_k w_k (P_k - P_d)`` (without ``- P_d`` uncentred) must hold
    in each eigenplane of M, so it is solved there with all planes weighted alike: the weights do
    not depend on gamma, and a plane that C hardly sees costs no accuracy. Cases (derived), N states
    and d steps: centred, exact and unique if N = d and M has the eigenvalue 1 or N = d - 1 and it
    has not, exact and not unique for fewer states; uncentred, exact and unique if N = d - 1, or
    N = d and trace M = 1.

    References
    ----------
    Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Proposition 6.3.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.residual_ssm import build_system, exact_weights, spread_angles
    >>> rng = np.random.default_rng(0)
    >>> system = build_system(spread_angles(8, rng), gamma=0.8, n_steps=8, rng=rng)
    >>> result = exact_weights(system)
    >>> result.unique, result.bias < 1e-20
    (True, True)
    """
    modes = _modes(system.angles, len(system.P) - 1)
    weights, rank = _residual_fit(modes, centered)
    gap = modes @ np.append(residual_coefficients(weights, centered=centered), -1.0)
    if np.abs(gap).max() > _EXACT:
        weights, _ = _residual_fit(system.P.T, centered)
    left = system.P.T @ np.append(residual_coefficients(weights, centered=centered), -1.0)
    return ResidualWeights(weights, float(left @ left), rank == len(weights))


def _is_plane(theta: FloatArray) -> NDArray[np.bool_]:
    """Angles of plane rotations, as opposed to the eigenvalues 1 and -1."""
    return (theta > 0.0) & (theta < np.pi)


def _modes(theta: FloatArray, n_steps: int) -> FloatArray:
    """Rows cos(k theta) and, for planes, -sin(k theta); columns k = 0 … n_steps."""
    phase = np.outer(theta, np.arange(n_steps + 1))
    return np.vstack([np.cos(phase), -np.sin(phase[_is_plane(theta)])])


def _tilted_weights(theta: FloatArray, gamma: float) -> FloatArray:
    """Squared weights of C, tilted exponentially so that their mean cosine is gamma."""
    cosines = np.cos(theta)
    low, high = cosines.min(), cosines.max()
    if low == high:
        raise ValueError(
            f"gamma={gamma!r}: a system with the single cosine {low:.6g} can have no other gamma; "
            "it needs more states (n_states)."
        )
    outside = ValueError(
        f"gamma={gamma!r} must lie strictly inside ({low:.6g}, {high:.6g}), the smallest and the "
        f"largest cosine of the {len(theta)} eigenvalue angles"
        + ("." if (low, high) == (-1.0, 1.0) else "; more states widen the interval.")
    )
    if not low < gamma < high:
        raise outside
    multiplicity = 1.0 + _is_plane(theta)

    def tilt(b: float) -> FloatArray:
        exponent = b * cosines
        weights = multiplicity * np.exp(exponent - exponent.max())
        return weights / weights.sum()

    def excess(b: float) -> float:
        return float(tilt(b) @ cosines - gamma)

    bound = 1.0
    while excess(bound) < 0.0 or excess(-bound) > 0.0:
        bound *= 2.0
        if bound > 1e20:  # within rounding of the interval's end
            raise outside
    return tilt(brentq(excess, -bound, bound, xtol=1e-15))


def _sign_event(gamma: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Angle beta = arccos(gamma) and E[u_d u_{d+1}] = cos(beta) - sin(beta)/beta on the event."""
    g = np.asarray(gamma, dtype=np.float64)
    if not np.all(np.abs(g) <= 1.0):
        raise ValueError(f"gamma must lie in [-1, 1], got {gamma!r}.")
    beta = 2.0 * np.arctan2(np.sqrt(1.0 - g), np.sqrt(1.0 + g))
    return beta, -beta * spherical_jn(1, beta)


def _event_plane(system: ResidualSystem) -> tuple[FloatArray, float]:
    """Orthonormal basis (N, 2) of the span of P_d, P_{d+1}, the first along P_d, and beta."""
    q, r = np.linalg.qr(system.P[-2:].T)
    sign = np.sign(np.diag(r))
    q, r = q * sign, r * sign[:, np.newaxis]
    return q, float(np.arctan2(r[1, 1], r[0, 1]))


def _residual_fit(series: FloatArray, centered: bool) -> tuple[FloatArray, int]:
    """Least-squares weights of the last column's residual on the earlier ones, and the rank."""
    past, last, target = series[:, :-2], series[:, -2], series[:, -1]
    design = past - last[:, np.newaxis] if centered else past
    weights, _, rank, _ = np.linalg.lstsq(design, target - last, rcond=None)
    return np.asarray(weights, dtype=np.float64), int(rank)
