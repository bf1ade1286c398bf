"""[ICL], Theorems 3.1 and 3.2 and their restatements B.1, C.1 and D.1."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from skcurse.ledger._checks._icl_runs import Array, probabilities
from skcurse.ledger._finding import UNDER, Finding, judged, largest, smallest
from skcurse.theory import icl_phases, icl_population

_EPSILONS = (0.1, 0.01, 0.001)


@lru_cache(maxsize=8)
def _steps(kind: str, query: int, eta: str) -> dict[int, list[float]]:
    """Over K: steps to each epsilon over those predicted with constant 1."""
    ratio = {}
    for K in (10, 40, 160):
        rate = (1.0 if eta == "1" else float(K)) / (K if query == 0 and eta == "K" else 1)
        predicted = icl_phases.predicted_iterations(
            K, rate, _EPSILONS, dominant=kind == "imbalanced" and query == 0
        )
        most = int(predicted.max())
        run = icl_population.population_descent(
            probabilities(kind, K), K**3, learning_rate=rate, n_iter=most,
            queries=[query], record=most, epsilon=_EPSILONS,
        )  # fmt: skip
        reached = run.reached[0].astype(float)
        ratio[K] = [float(r) for r in np.where(reached < 0, np.inf, reached) / predicted]
    return ratio


def _convergence(kind: str, query: int, etas: Sequence[str], words: str) -> Finding:
    worst = 0.0
    by_size: dict[int, float] = {}
    for eta in etas:
        for K, ratio in _steps(kind, query, eta).items():
            by_size[K] = largest(*ratio, by_size.get(K, 0.0))
            worst = largest(worst, *ratio)
    return judged(
        worst <= 1,
        f"{words}, K 10 to 160, N = K^3, eta = {' and '.join(etas)}, eps 0.1, 0.01, 0.001: steps "
        "over those predicted with constant 1",
        {"largest ratio": worst, **{f"at K {K}": ratio for K, ratio in by_size.items()}},
        yes=UNDER,
    )


def balanced_convergence() -> Finding:
    """Theorem 3.1, part 1."""
    return _convergence("balanced", 1, ("K",), "balanced")


def dominant_convergence() -> Finding:
    """Theorem 3.2, part 1."""
    return _convergence("imbalanced", 0, ("1",), "query of the dominant feature")


def other_convergence() -> Finding:
    """Theorem 3.2, part 2: also later than the dominant feature."""
    found = _convergence("imbalanced", 1, ("K",), "query of an under-represented feature")
    later = []
    for K in (10, 40):
        run = icl_population.population_descent(
            probabilities("imbalanced", K), K**3, learning_rate=1.0, n_iter=30_000,
            queries=[0, 1], record=30_000, epsilon=[0.01],
        )  # fmt: skip
        later.append(float(run.reached[1, 0] / run.reached[0, 0]))
    measured = {
        **found.measured,
        "steps over the dominant feature's, K 10": later[0],
        "K 40": later[1],
    }
    return judged(found.verdict == UNDER and smallest(later) > 1, found.tried, measured, yes=UNDER)


def _concentrated(kind: str, query: int, K: int, N: int, rate: float) -> tuple[float, float]:
    """Share of prompts with (1 - Attn_k)^2 <= 4 eps at the end of training, and P(k is absent)."""
    eps = 0.01
    p = probabilities(kind, K)
    run = icl_population.population_descent(
        p, N, learning_rate=rate, n_iter=10_000, queries=[query], record=10_000, epsilon=[eps]
    )
    logits: Array = run.logits[-1, 0]
    counts = np.random.default_rng(0).multinomial(N, p, size=4000)
    mass = counts * np.exp(logits - logits.max())
    own = mass[:, query] / mass.sum(axis=1)
    return float(np.mean((1 - own) ** 2 <= 4 * eps)), float((1 - p[query]) ** N)


def _concentration(cases: Sequence[tuple[str, int]], words: str) -> Finding:
    K, measured, long_contexts = 40, {}, []
    for kind, query in cases:
        rate = 1.0 if (kind, query) == ("imbalanced", 0) else float(K)
        for power in (1, 2, 3):
            share, absent = _concentrated(kind, query, K, K**power, rate)
            measured[f"query {query}, N = K^{power}"] = share
            if power == 1:
                measured[f"query {query}, N = K, probability that k is absent"] = absent
        long_contexts.append(share)
    return judged(
        smallest(long_contexts) >= 0.99,
        f"{words}, K = 40, eps = 0.01: share of 4,000 prompts with (1 - Attn_k)^2 <= 4 eps; needs "
        "long contexts",
        measured,
        yes=UNDER,
    )


def balanced_concentration() -> Finding:
    """Theorem 3.1, part 2."""
    return _concentration([("balanced", 1)], "balanced")


def imbalanced_concentration() -> Finding:
    """Theorem 3.2, part 3."""
    return _concentration([("imbalanced", 0), ("imbalanced", 1)], "p_1 = 1/2")


def other_concentration() -> Finding:
    """Theorem C.1, part 2."""
    return _concentration([("imbalanced", 1)], "p_1 = 1/2, under-represented query")


def dominant_concentration() -> Finding:
    """Theorem D.1, part 2."""
    return _concentration([("imbalanced", 0)], "p_1 = 1/2, dominant query")
