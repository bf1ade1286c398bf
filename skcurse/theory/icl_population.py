"""Exact population gradient descent for the one-layer softmax in-context learner.

A prompt holds `N` context tokens and a query, all drawn from `K` orthonormal features with
probabilities `p`; the attention of a query on feature `k` to feature `n` depends on the logit
``q[n] = v_n^T Q v_k`` and on how often `n` occurs. The gradient is an expectation over the
multinomial counts, computed to rounding error without sampling.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.icl_floors import loss_infimum, loss_lower_bound
from skcurse.theory.icl_moments import (
    ROUNDING,
    SPACING,
    Array,
    GroupGradient,
    check_population,
    check_query,
    group_gradient,
    trapezoid_bound,
)

__all__ = [
    "PopulationGradient",
    "Trajectory",
    "loss_infimum",
    "loss_lower_bound",
    "population_descent",
    "population_gradient",
]


class PopulationGradient(NamedTuple):
    """Gradient, loss and mean attention for one query feature; see `population_gradient`."""

    rates: Array
    loss: float
    attention: Array
    error: Array


class Trajectory(NamedTuple):
    """A run of `population_descent`: `T` recorded steps, `q` query features, `K` features."""

    steps: NDArray[np.intp]
    queries: NDArray[np.intp]
    logits: Array
    losses: Array
    attention: Array
    rates: Array
    reached: NDArray[np.intp]
    p: Array
    n_context: int
    learning_rate: float


def population_gradient(
    logits: ArrayLike, p: ArrayLike, n_context: int, query: int, *, spacing: float = SPACING
) -> PopulationGradient:
    r"""Exact population gradient of the in-context loss for one query feature.

    Parameters
    ----------
    logits : array-like of shape (K,)
        ``logits[n] = v_n^T Q v_query``: A_query at `query`, B_{query,n} elsewhere.
    p : array-like of shape (K,)
        Probabilities of the features. A feature with p = 0 never occurs: its attention and its
        rate are 0 and its logit is ignored.
    n_context : int
        Number of context tokens N.
    query : int
        The query's feature, in [0, K). With ``p[query] = 0`` the rates are 0, since such queries
        never occur; loss and attention still hold for one.
    spacing : float, default=0.2
        Spacing of the quadrature nodes in the logarithm of the integration variable.

    Returns
    -------
    rates : ndarray of shape (K,)
        Minus the derivative of the population loss with respect to `logits`: alpha_query at
        `query`, beta_{query,n} elsewhere. They contain the factor ``p[query]``:
        ``rates = -p[query] * d loss / d logits``.
    loss : float
        Half the mean squared error given this query feature, with a relative error of a few 1e-15.
    attention : ndarray of shape (K,)
        Expected attention E[Attn_n] given this query feature, with the same relative error.
    error : ndarray of shape (K,)
        Bound on the absolute error of `rates`; relative to `rates` it is large only where the
        beta's positive and negative parts cancel.

    Raises
    ------
    ValueError
        If `p`, `n_context` or `query` is invalid, shapes differ, a logit is not finite, or the
        logits span more than 600.

    Notes
    -----
    With counts n_j multinomial(N, p), weights e_j = exp(q_j) and Attn_j = n_j e_j / Z,

    .. math::

        \alpha_k &= E[1\{x_q = v_k\} Attn_k (\sum_{m \ne k} Attn_m^2 + (1 - Attn_k)^2)] \\
        \beta_{k,n} &= E[1\{x_q = v_k\} Attn_n (\sum_{m \ne k} Attn_m^2 - Attn_n
                       - Attn_k (1 - Attn_k))] \\
        L_k &= \tfrac12 E[\sum_{m \ne k} Attn_m^2 + (1 - Attn_k)^2]

    Derived: 1/Z³ = ∫ u² exp(-uZ)/2 du and the multinomial generating function turn each into one
    integral of non-negative terms in u, and the trapezoid rule in s = log u with spacing h has
    relative error at most 2 cos(θ)^-3 / (exp(2πθ/h) - 1) for every θ < π/2, whatever N, p and q
    are: 2e-17 at h = 0.2. Features with equal p and logit are computed once. The cost is
    O(K (80 + 5 log-range of the weights)) exponentials, independent of N.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, Lemmas 4.1
    and A.6.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.icl_population import population_gradient
    >>> g = population_gradient(np.zeros(4), np.full(4, 0.25), 100, query=0)
    >>> g.rates.round(4)
    array([ 0.0464, -0.0155, -0.0155, -0.0155])
    >>> round(g.loss, 6), g.attention.round(6)
    (0.37875, array([0.25, 0.25, 0.25, 0.25]))
    """
    p = check_population(p, n_context)
    logits = np.asarray(logits, dtype=np.float64)
    query = check_query(query, p.size)
    if logits.shape != p.shape:
        raise ValueError(f"logits has shape {logits.shape}, but p has shape {p.shape}.")
    if not np.all(np.isfinite(logits)):
        raise ValueError("logits must be finite.")
    if not 0 < spacing <= 1:
        raise ValueError(f"spacing must lie in (0, 1], got {spacing!r}.")
    rates, attention, error = np.zeros((3, p.size))
    others = p > 0
    others[query] = False
    key = p[others] + 1j * logits[others]  # one number a feature: equal keys are one group
    groups, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    group = group_gradient(
        np.append(logits[query], groups.imag),
        np.append(p[query], groups.real),
        np.append(1.0, counts),
        int(n_context),
        spacing,
    )
    for full, part in zip(
        (rates, attention, error), (group.rates, group.attention, group.mass), strict=True
    ):
        full[query], full[others] = part[0], part[1:][inverse]
    bound = ROUNDING + trapezoid_bound(spacing)
    return PopulationGradient(p[query] * rates, group.loss, attention, p[query] * bound * error)


class _Column:
    """One column of Q on its way: a logit for each group of equal features, and its history."""

    def __init__(self, p: Array, query: int, n_context: int, goals: Array) -> None:
        others = p > 0
        others[query] = False
        values, inverse, counts = np.unique(p[others], return_inverse=True, return_counts=True)
        self.p, self.sizes = np.append(p[query], values), np.append(1.0, counts)
        self.query, self.n_context = query, n_context
        self.group = np.full(p.size, -1)  # features that never occur stay at logit 0
        self.group[query], self.group[others] = 0, inverse + 1
        self.goals, self.reached = goals, np.full(goals.size, -1, dtype=np.intp)
        self.history: list[tuple[Array, GroupGradient]] = []
        self.move(np.zeros(self.p.size))

    def move(self, logits: Array) -> None:
        """Go to `logits` and evaluate the gradient there."""
        self.logits = logits
        self.gradient = group_gradient(logits, self.p, self.sizes, self.n_context)

    def meets_goals(self, step: int) -> bool:
        """Note which goals the loss meets at `step`; whether all are met by now."""
        self.reached[(self.gradient.loss <= self.goals) & (self.reached < 0)] = step
        return self.goals.size > 0 and bool(np.all(self.reached >= 0))

    def paths(self, query: int) -> tuple[Array, Array, Array, Array]:
        """Logits, losses, attention and rates by feature, for a query of the same probability."""
        logits, gradients = zip(*self.history, strict=True)
        losses = np.array([g.loss for g in gradients])
        full = []
        for groups in (logits, [g.attention for g in gradients], [g.rates for g in gradients]):
            path = np.pad(np.array(groups), ((0, 0), (0, 1)))[:, self.group]
            path[:, [query, self.query]] = path[:, [self.query, query]]
            full.append(path)
        return full[0], losses, full[1], self.p[0] * full[2]


def _record_steps(n_iter: int, record: int | Sequence[int] | None) -> NDArray[np.intp]:
    """Return the steps to record, sorted, always with 0 and n_iter."""
    if not isinstance(n_iter, Integral) or isinstance(n_iter, bool) or n_iter < 0:
        raise ValueError(f"n_iter must be a non-negative integer, got {n_iter!r}.")
    chosen: NDArray[np.intp] = np.arange(n_iter + 1)
    if record is None and n_iter >= 1000:
        chosen = np.geomspace(1, n_iter, 1000).round().astype(np.intp)
    elif isinstance(record, Integral):
        if record < 1:
            raise ValueError(f"record must be a stride of at least 1 or steps, got {record!r}.")
        chosen = chosen[::record]
    elif record is not None:
        chosen = np.asarray(record)
        if chosen.ndim != 1 or not np.isin(chosen, np.arange(n_iter + 1)).all():
            raise ValueError(f"record must be a stride or a vector of steps in [0, {n_iter}].")
    return np.union1d(chosen, [0, n_iter]).astype(np.intp)


def population_descent(
    p: ArrayLike,
    n_context: int,
    *,
    learning_rate: float,
    n_iter: int,
    queries: int | Sequence[int] | None = None,
    record: int | Sequence[int] | None = None,
    epsilon: float | Sequence[float] | None = None,
) -> Trajectory:
    """Gradient descent on the population loss from Q = 0, exactly.

    Parameters
    ----------
    p : array-like of shape (K,)
        Probabilities of the features.
    n_context : int
        Number of context tokens N.
    learning_rate : float
        Step size η; ``logits += learning_rate * rates``.
    n_iter : int
        Largest number of steps.
    queries : int or sequence of int, default=None
        Query features to follow; None is all K. Those with equal p share one computation.
    record : int or sequence of int, default=None
        Stride, or the steps to record; the first and the last step always are. None is every
        step of a run of under 1,000, else at most 1,000 log-spaced ones.
    epsilon : float or sequence of float, default=None
        Stop once the loss of each of `queries` is within the smallest epsilon of its
        `loss_infimum`; the step at which each epsilon is first met is returned, to one step.

    Returns
    -------
    Trajectory
        ``steps`` (T,), ``queries`` (q,), ``logits`` (T, q, K), ``losses`` (T, q) given the query
        feature, ``attention`` (T, q, K), ``rates`` (T, q, K) with the factor p[query] and
        ``reached`` (q, number of epsilons), -1 where an epsilon was not met; then the problem
        itself, ``p``, ``n_context`` and ``learning_rate``.

    Raises
    ------
    ValueError
        If a parameter is invalid, or the learning rate drives the logits apart by more than 600.

    Notes
    -----
    The columns of Q for different query features do not interact. Within one of them features
    with equal p keep equal logits, so a run costs one integral over as many groups as there are
    distinct probabilities, for each distinct p among the queries.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, Section 2.3.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.icl_population import population_descent
    >>> p = np.array([0.5, 0.25, 0.25])
    >>> run = population_descent(p, 50, learning_rate=1.0, n_iter=500, record=250)
    >>> run.steps, run.logits.shape
    (array([  0, 250, 500]), (3, 3, 3))
    >>> run.losses.round(3)
    array([[0.194, 0.444, 0.444],
           [0.002, 0.004, 0.004],
           [0.001, 0.002, 0.002]])
    """
    p = check_population(p, n_context)
    steps = _record_steps(n_iter, record)
    named = np.atleast_1d(np.arange(p.size) if queries is None else queries)
    if named.ndim != 1 or not named.size:
        raise ValueError(f"queries must name at least one feature, got {queries!r}.")
    chosen = [check_query(k, p.size) for k in named]
    if not (np.isfinite(learning_rate) and learning_rate > 0):
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate!r}.")
    targets = np.atleast_1d(np.asarray([] if epsilon is None else epsilon, dtype=np.float64))
    if targets.ndim != 1 or np.any(~(targets > 0)):
        raise ValueError(f"epsilon must be positive, got {epsilon!r}.")

    columns: dict[float, _Column] = {}
    for k in chosen:
        if p[k] not in columns:
            floor = loss_infimum(p, n_context, query=k) if targets.size else 0.0
            columns[p[k]] = _Column(p, k, int(n_context), floor + targets)
    recorded = _descend(list(columns.values()), learning_rate, n_iter, steps)
    logits, losses, attention, rates = (
        np.stack(path, axis=1)
        for path in zip(*(columns[p[k]].paths(k) for k in chosen), strict=True)
    )
    reached = np.stack([columns[p[k]].reached for k in chosen])
    return Trajectory(
        recorded,
        np.array(chosen),
        logits,
        losses,
        attention,
        rates,
        reached,
        p,
        int(n_context),
        float(learning_rate),
    )


def _descend(
    columns: list[_Column], learning_rate: float, n_iter: int, steps: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Step all columns together until each has met its goals; return the recorded steps."""
    wanted, recorded = set(steps.tolist()), []
    for t in range(n_iter + 1):
        done = np.all([column.meets_goals(t) for column in columns])
        if t in wanted or done:
            recorded.append(t)
            for column in columns:
                column.history.append((column.logits, column.gradient))
        if done:
            break
        if t < n_iter:
            for column in columns:
                column.move(column.logits + learning_rate * column.p[0] * column.gradient.rates)
    return np.array(recorded)
