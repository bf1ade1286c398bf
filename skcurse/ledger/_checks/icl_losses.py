"""[ICL], Remark 1, Appendix A.3: floors of the loss and its restriction to the likely event."""

import numpy as np
from scipy.stats import multinomial

from skcurse.ledger._checks._icl_runs import Array, probabilities
from skcurse.ledger._finding import UNDER, Finding, judged, largest, smallest
from skcurse.theory import icl_concentration, icl_population


def restriction_costs_little() -> Finding:
    """Remark 1: the restricted form of the weights costs at most its floor, exponentially small."""
    p, sizes = np.full(10, 0.1), (20, 40, 80, 160)
    floor = [icl_population.loss_infimum(p, N) for N in sizes]
    decay = float(np.polyfit(sizes, np.log(floor), 1)[0])
    measured = {
        "floor at N 20": floor[0],
        "at N 160": floor[-1],
        "decay rate": -decay,
        "-log(1 - 1/K)": -np.log(0.9),
    }
    tried = "balanced, K = 10, N 20 to 160: the floor decays as (1 - 1/K)^N"
    return judged(abs(decay / np.log(0.9) - 1) < 0.02, tried, measured)


def _floors(kind: str, query: int | None) -> Finding:
    """L_low <= L* <= (1 + 1/N) L_low, and both decay exponentially in N."""
    low_ratio, high_ratio, decay = np.inf, 0.0, 0.0
    for K in (3, 10, 30):
        p = probabilities(kind, K)
        sizes = (K, 3 * K, 10 * K)
        values = []
        for N in sizes:
            star = icl_population.loss_infimum(p, N, query=query)
            low = icl_population.loss_lower_bound(p, N, query=query)
            low_ratio, high_ratio = smallest(low_ratio, star / low), largest(high_ratio, star / low)
            values.append(star)
        rate = np.log(values[0] / values[-1]) / (sizes[-1] - sizes[0])
        decay = largest(decay, abs(rate / -np.log1p(-p[1]) - 1))
    return judged(
        low_ratio >= 1 - 1e-12 and high_ratio <= 2 and decay < 0.1,
        f"{kind}, K 3 to 30, N from K to 10 K: the bound is below the infimum by a bounded factor "
        "and both decay as (1 - p_k)^N",
        {
            "smallest infimum over bound": low_ratio,
            "largest": high_ratio,
            "largest deviation of the decay rate": decay,
        },
    )


def balanced_floors() -> Finding:
    """Lemma A.7."""
    return _floors("balanced", None)


def imbalanced_floors() -> Finding:
    """Lemma A.9."""
    return _floors("imbalanced", 1)


def _by_counts(p: Array, N: int, logits: Array, query: int, width: float) -> tuple[float, ...]:
    """Loss on and off the event, and the event's probability, over all counts."""
    K = len(p)
    counts = np.indices((N + 1,) * (K - 1)).reshape(K - 1, -1).T
    counts = counts[counts.sum(axis=1) <= N]
    counts = np.column_stack([counts, N - counts.sum(axis=1)])
    chance = multinomial(N, p).pmf(counts)
    event = icl_concentration.count_event(p, N, width)
    inside = np.all((counts >= event.lower) & (counts <= event.upper), axis=1)
    mass = counts * np.exp(logits)
    attention = mass / mass.sum(axis=1, keepdims=True)
    own = attention[:, query]
    error = 0.5 * (np.sum(attention**2, axis=1) - own**2 + (1 - own) ** 2)
    return (
        float(chance[inside] @ error[inside]),
        float(chance[~inside] @ error[~inside]),
        float(chance[inside].sum()),
    )


def _event_loss(kind: str) -> Finding:
    """L~ <= L - L_low <= L~ + P(not event), where the event has no unseen feature."""
    below = above = np.inf
    error, outside = 0.0, 0.0
    for N in (30, 60):
        p = probabilities(kind, 3)
        for seed in range(10):
            logits = np.random.default_rng(seed).normal(size=3) + np.array([0.0, 3.0, 0.0])
            on, off, inside = _by_counts(p, N, logits, 1, 0.5)
            total = icl_population.population_gradient(logits, p, N, 1).loss
            gap = total - icl_population.loss_lower_bound(p, N, query=1)
            error = largest(error, abs(on + off - total))
            below, above = smallest(below, gap - on), smallest(above, on + 1 - inside - gap)
            outside = largest(outside, 1 - inside)
    return judged(
        error < 1e-12 and below >= -1e-15 and above >= 0,
        f"{kind}, K = 3, N = 30 and 60, every count, ten logits, event of width N / 6",
        {
            "smallest (L - L_low) - L~": below,
            "smallest slack above": above,
            "largest probability off the event": outside,
        },
        yes=UNDER,
    )


def balanced_event_loss() -> Finding:
    """Lemma A.8."""
    return _event_loss("balanced")


def imbalanced_event_loss() -> Finding:
    """Lemma A.10."""
    return _event_loss("imbalanced")
