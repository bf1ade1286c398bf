"""Phases of a population run and the iteration counts the convergence theorems predict."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.icl_moments import Array
from skcurse.theory.icl_population import Trajectory

_NAMES = {
    "dominant": ("convergence",),
    "balanced": ("growth of target feature", "convergence"),
    "under-represented": (
        "decrease of dominant feature",
        "switching of leading influence",
        "growth of target feature",
        "convergence",
    ),
}


class Phases(NamedTuple):
    """Training phases of one query feature; see `training_phases`."""

    kind: str
    names: tuple[str, ...]
    starts: NDArray[np.intp]
    labels: NDArray[np.intp]
    lead_switch: int


def _first(steps: NDArray[np.intp], condition: NDArray[np.bool_]) -> int:
    """First of `steps` at which `condition` holds, or -1."""
    return int(steps[np.argmax(condition)]) if condition.any() else -1


def training_phases(
    trajectory: Trajectory,
    query: int,
    *,
    fall: float = 0.49,
    gap: float = 1.01,
    growth: float = 1.0,
    dominance: float = 2.0,
) -> Phases:
    """Divide the training of one query feature into the phases of the analysis.

    Parameters
    ----------
    trajectory : Trajectory
        A run of `population_descent` that follows `query`. Phases start at recorded steps, so
        record every step (``record=1``) for starts that are exact.
    query : int
        The query's feature k.
    fall, gap, growth : float, default=0.49, 1.01, 1.0
        Thresholds in units of log K: phase I lasts until ``B_{k,1} <= -fall log K``, phase II
        until ``A_k - B_{k,1} >= gap log K``, phase III until ``A_k >= growth log K``.
    dominance : float, default=2.0
        The most likely feature is dominant when it is more than this many times as likely as the
        next one; with no dominant feature every query counts as balanced.

    Returns
    -------
    kind : str
        ``"dominant"`` (one phase, convergence), ``"balanced"`` (two, III and IV) or
        ``"under-represented"`` (four).
    names : tuple of str
        The phases in order.
    starts : ndarray of shape (n_phases,)
        The recorded step at which each phase begins, -1 if it was not reached. Where a later
        threshold is met before an earlier one, phases begin together and the first of them is
        empty.
    labels : ndarray of shape (T,)
        Index into `names` for each recorded step.
    lead_switch : int
        The reading that needs no threshold: the first recorded step at which the query's own rate
        leads, ``alpha_k >= abs(beta_{k,1})`` (the largest abs(beta_{k,n}) where k has no
        dominant rival); -1 if none.

    Raises
    ------
    ValueError
        If the trajectory does not follow `query`, a threshold is not positive and finite, or
        `dominance` is below 1.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, Section 4
    and Appendices B, C, D.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.icl_phases import training_phases
    >>> from skcurse.theory.icl_population import population_descent
    >>> p = np.append(0.5, np.full(19, 0.5 / 19))
    >>> run = population_descent(p, 1000, learning_rate=4.0, n_iter=500, queries=[3], record=1)
    >>> phases = training_phases(run, query=3)
    >>> phases.kind, phases.starts, phases.lead_switch
    ('under-represented', array([  0, 205, 219, 317]), 106)
    """
    for name, value in {"fall": fall, "gap": gap, "growth": growth}.items():
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be positive and finite, got {value!r}.")
    if not 1 <= dominance < np.inf:
        raise ValueError(f"dominance must be finite and at least 1, got {dominance!r}.")
    at = np.flatnonzero(trajectory.queries == query)
    if at.size == 0:
        raise ValueError(
            f"the trajectory does not follow query {query!r}, only {trajectory.queries.tolist()}."
        )
    p, steps = trajectory.p, trajectory.steps
    logits, rates = trajectory.logits[:, at[0]], trajectory.rates[:, at[0]]
    order = np.argsort(-p, kind="stable")
    has_dominant = p.size > 1 and p[order[0]] > dominance * p[order[1]]
    log_k = np.log(np.count_nonzero(p))
    own, converging = logits[:, query], logits[:, query] >= growth * log_k
    rivals = np.delete(rates, query, axis=1)
    if not has_dominant:
        kind, ends = "balanced", [converging]
    elif order[0] == query:
        kind, ends = "dominant", []
    else:
        kind, lead = "under-represented", logits[:, order[0]]
        ends = [lead <= -fall * log_k, own - lead >= gap * log_k, converging]
        rivals = rates[:, order[:1]]
    labels = np.zeros(steps.size, dtype=np.intp)
    reached = np.ones(steps.size, dtype=np.bool_)
    for end in ends:
        reached = reached & np.logical_or.accumulate(end)
        labels += reached
    starts = [_first(steps, labels >= phase) for phase in range(len(ends) + 1)]
    leads = rates[:, query] >= np.max(np.abs(rivals), axis=1, initial=0.0)
    return Phases(kind, _NAMES[kind], np.array(starts), labels, _first(steps, leads))


def predicted_iterations(
    n_features: ArrayLike,
    learning_rate: ArrayLike,
    epsilon: ArrayLike,
    *,
    dominant: bool = False,
) -> Array:
    """Predict the iterations to an epsilon-optimal loss from the theorems, up to their constants.

    Parameters
    ----------
    n_features : array-like of int
        Number of features K, at least 2.
    learning_rate : array-like
        Step size η.
    epsilon : array-like
        Distance to the loss floor, in (0, 1).
    dominant : bool, default=False
        The rate of the dominant feature rather than that of balanced and of under-represented
        ones.

    Returns
    -------
    ndarray
        ``log(K) K² / η + K log(K / √ε) / (ε η)``, or ``log(1 / √ε) / (ε η)`` with `dominant`,
        broadcast over the arguments. The theorems state upper bounds of this order.

    Raises
    ------
    ValueError
        If an argument is out of range, `n_features` is not whole or `dominant` is not a bool.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, Theorems 3.1
    and 3.2.

    Examples
    --------
    >>> from skcurse.theory.icl_phases import predicted_iterations
    >>> predicted_iterations(50, 1.0, [0.1, 0.01]).round()
    array([12312., 40853.])
    """
    k, eta, eps = np.broadcast_arrays(n_features, learning_rate, epsilon)
    if not isinstance(dominant, bool | np.bool):
        raise ValueError(f"dominant must be True or False, got {dominant!r}.")
    numeric = all(values.dtype.kind in "iuf" for values in (k, eta, eps))
    if not numeric or not (
        np.all((k >= 2) & (k == np.round(k)) & (k < np.inf))
        and np.all((eta > 0) & np.isfinite(eta))
        and np.all((eps > 0) & (eps < 1))
    ):
        raise ValueError(
            "n_features must be whole numbers of at least 2, learning_rate positive and finite "
            "and epsilon in (0, 1)."
        )
    if dominant:
        return -0.5 * np.log(eps) / (eta * eps)
    return np.log(k) * k**2.0 / eta + k * (np.log(k) - 0.5 * np.log(eps)) / (eta * eps)
