"""Moments of the attention under multinomial counts, by one quadrature.

With counts n_j multinomial(N, p), weights e_j = exp(q_j) and attentions n_j e_j / Z, every cubic
moment is ∫ u² E[n_a e_a n_b e_b n_c e_c exp(-uZ)]/2 du, and the multinomial generating function
makes the expectation explicit. All integrands here are non-negative.
"""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Spacing of the trapezoid rule in s = log u: its relative error is below 2e-17 for every N, p, q.
SPACING = 0.2
# exp(-x) (1 + x + x²/2) at 46 and exp(3 (1 - 14)) are both below 1e-16: the two cut-off tails.
_LEFT_TAIL, _RIGHT_TAIL = 14.0, 46.0
ROUNDING = 64 * np.finfo(np.float64).eps  # of the sums of non-negative terms, in `error`
_MAX_LOGIT_RANGE = 600.0  # exp of it, cubed against exp(-x), stays inside double precision


class GroupGradient(NamedTuple):
    """Rates divided by p_query, for groups of equal features with the query as group 0."""

    rates: Array
    loss: float
    attention: Array
    mass: Array


class _Nodes(NamedTuple):
    """Integrand factors at the nodes: `v = u e`, `d = u p e exp(-u e)` and c_r below."""

    v: Array
    d: Array
    c1: Array
    c2: Array
    c3: Array


def check_population(p: ArrayLike, n_context: int) -> Array:
    """Validate a feature law and a context length; return the probabilities as a float array.

    Parameters
    ----------
    p : array-like of shape (K,)
        Probabilities of the features.
    n_context : int
        Number of context tokens N.

    Returns
    -------
    ndarray of shape (K,)
        The probabilities, divided by their sum.

    Raises
    ------
    ValueError
        If `p` is not a non-empty vector of non-negative numbers that sum to 1 within 1e-6, or
        `n_context` is not an integer of at least 1.

    Examples
    --------
    >>> from skcurse.theory.icl_moments import check_population
    >>> check_population([0.25, 0.75], 10)
    array([0.25, 0.75])
    """
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 1 or p.size == 0:
        raise ValueError(f"p must be a non-empty vector of probabilities, got shape {p.shape}.")
    if not np.all(np.isfinite(p)) or np.any(p < 0):
        raise ValueError("p must hold finite, non-negative probabilities.")
    total = p.sum()
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"p must sum to 1, got {total:.12g}; divide it by its sum.")
    if not isinstance(n_context, Integral) or isinstance(n_context, bool) or n_context < 1:
        raise ValueError(f"n_context must be an integer of at least 1, got {n_context!r}.")
    return p / total


def check_query(query: int, n_features: int) -> int:
    """Return the query feature as an int inside [0, K)."""
    if not isinstance(query, Integral) or not 0 <= query < n_features:
        raise ValueError(f"query must be a feature index in [0, {n_features}), got {query!r}.")
    return int(query)


def trapezoid_bound(spacing: float) -> float:
    """Relative quadrature error, 2 cos(t)^-3 / (exp(2 pi t / h) - 1) at its smallest over t."""
    t = np.arctan(2 * np.pi / (3 * spacing))
    return float(2 * np.cos(t) ** -3 / np.expm1(2 * np.pi * t / spacing))


def _nodes(e: Array, p: Array, sizes: Array, n: int, spacing: float) -> _Nodes:
    """Nodes of the trapezoid rule in s = log u, from the two ends of the integrand's decay."""
    # Jensen: phi(u)^(N-r) >= exp(-(N - r) u mean), so mass sits near u = 3 / (N mean + 3) at least.
    mean = (sizes * p) @ e
    left = np.log(3.0 / (n * mean + 3.0)) - _LEFT_TAIL
    # Every prompt has Z >= N min(e), so exp(-u Z) is gone beyond this point.
    right = np.log(_RIGHT_TAIL / n) - np.log(e[p > 0].min())
    u = np.exp(left + spacing * np.arange(np.ceil((right - left) / spacing) + 1))
    v = np.multiply.outer(e, u)
    decay = np.exp(-v)
    w = sizes * p
    below_one = w @ np.expm1(-v)
    # log1p keeps N log(phi) exact where phi is near 1, log where phi is small.
    near_one = below_one > -0.5
    log_phi = np.log(np.where(near_one, 1.0, w @ decay))
    log_phi[near_one] = np.log1p(below_one[near_one])
    zero = np.zeros_like(u)
    half = 0.5 * spacing
    c1 = half * n * np.exp((n - 1.0) * log_phi)
    c2 = half * n * (n - 1.0) * np.exp((n - 2.0) * log_phi) if n > 1 else zero
    c3 = half * n * (n - 1.0) * (n - 2.0) * np.exp((n - 3.0) * log_phi) if n > 2 else zero
    return _Nodes(v, p[:, None] * v * decay, c1, c2, c3)


def group_gradient(
    logits: Array, p: Array, sizes: Array, n: int, spacing: float = SPACING
) -> GroupGradient:
    """Conditional gradient for groups of `sizes` features with equal (p, logit); 0 is the query.

    Only group 0 may have p = 0, and then it takes no attention. Every moment is written as a cubic
    form in the attentions (multiply by their sum, which is 1), so that one set of nodes serves all.
    """
    top = logits[p > 0].max()
    span = top - logits[p > 0].min()
    if not span <= _MAX_LOGIT_RANGE:
        raise ValueError(
            f"the logits span {span:.3g}, more than {_MAX_LOGIT_RANGE:g}: attention weights "
            "underflow. Use a smaller learning rate or fewer steps."
        )
    e = np.where(p > 0, np.exp(np.minimum(logits - top, 0.0)), 0.0)
    v, d, c1, c2, c3 = _nodes(e, p, sizes, n, spacing)
    others = sizes.copy()
    others[0] = 0.0
    dd, dv = d * d, d * v
    dvv = dv * v
    s_d, s_dd, s_dv, s_dvv = others @ d, others @ dd, others @ dv, others @ dvv
    k = d[0]

    # E[a (sum x² + (1 - a)²)], the same for 1 - a in front, both with 1 - a as a sum.
    alpha = k * (c3 * (s_dd + s_d**2) + 2 * c2 * s_dv)
    rest = c3 * (s_dd + s_d**2) * s_d + c2 * (4 * s_dv * s_d + 2 * (others @ (dd * v)))
    loss = 0.5 * float((alpha + rest + 2 * c1 * s_dvv).sum())

    total, total_dv = s_d + k, s_dv + dv[0]
    attention = d @ (c3 * total**2 + c2 * total_dv) + dv @ (2 * c2 * total) + dvv @ c1

    # -E[a x_n² + a x_n (1 - a)]: what the query feature takes from n.
    taken = dd @ (k * c3) + d @ (k * c3 * s_d) + dv @ (2 * k * c2)
    # E[x_n x_m (x_m - x_n)] summed over m: exchange among the others. Differences from the group
    # with most weight at each node, so that equal features exchange exactly nothing.
    lead = np.argmax(others[:, None] * d, axis=0)[None]
    lead_d, lead_v = np.take_along_axis(d, lead, axis=0), np.take_along_axis(v, lead, axis=0)
    gap_d, gap_v = d * (d - lead_d), d * (v - lead_v)
    exchange = d @ (c3 * (others @ gap_d) + c2 * (others @ gap_v))
    exchange -= gap_d @ (c3 * s_d) + gap_v @ (c2 * s_d)
    # A gap carries the rounding of both its terms, unless it is exactly zero.
    gap_d, gap_v = d * (d + lead_d) * (gap_d != 0), d * (v + lead_v) * (gap_v != 0)
    volume = d @ (c3 * (others @ gap_d) + c2 * (others @ gap_v))
    volume += gap_d @ (c3 * s_d) + gap_v @ (c2 * s_d)
    rates, mass = exchange - taken, volume + taken
    rates[0] = mass[0] = alpha.sum()
    return GroupGradient(rates, loss, attention, mass)
