"""[ICL], Appendix A.2: concentration of the counts of a prompt."""

import numpy as np

from skcurse.ledger._checks._icl_runs import Array, probabilities
from skcurse.ledger._finding import UNDER, Finding, judged, largest, smallest, starts
from skcurse.theory import icl_concentration


def l1_tail() -> Finding:
    """Lemma A.3: the L1 tail of multinomial counts, and that its premise K/N <= d^2/20 matters."""
    worst, cases = 0.0, 0
    for K in (2, 5, 20, 50):
        for delta in (0.2, 0.5, 1.0):
            N = int(np.ceil(20 * K / delta**2))
            for p in (np.full(K, 1 / K), probabilities("imbalanced", K)):
                rng = np.random.default_rng(cases)
                tail = icl_concentration.l1_tail(p, N, delta, rng=rng, n_draws=4000)
                worst, cases = largest(worst, tail.share / tail.bound), cases + 1
    rng = np.random.default_rng(0)
    beyond = icl_concentration.l1_tail(np.full(1000, 1e-3), 50, 1.0, rng=rng, n_draws=1000)
    formula = 3 * np.exp(-50 / 25)
    return judged(
        worst <= 1 and beyond.share > formula and np.isnan(beyond.bound),
        "K 2 to 50, delta 0.2 to 1, the smallest N of the premise N >= 20 K / delta^2, 4,000 "
        "draws; it fails at K = 1000, N = 50, delta = 1",
        {
            "largest share over bound": worst,
            "share where the premise fails": beyond.share,
            "formula there": formula,
        },
        yes=UNDER,
    )


def _event(kind: str, K: int, width: float) -> Finding:
    """Sweep N: from where the premise holds, and the exact probability against the bound."""
    p = probabilities(kind, K)
    sizes = [K**2, 10 * K**2, K**3, 20 * K**3, int(np.ceil(20 * K**3 / width**2)) + 1, 10 * K**5]
    sizes = sorted(set(sizes))
    events = [icl_concentration.count_event(p, N, width) for N in sizes]
    bound: Array = np.array([e.bound for e in events])
    exact = np.array([e.probability for e in events])
    valid = np.isfinite(bound)
    holds = bool(np.all(exact[valid] >= bound[valid])) and valid.any()
    lowest = smallest(float(e.lower.min()) for e in events)
    return judged(
        holds and lowest > 0,
        f"K = {K}, counts within {width:g} N / K of their means, N from K^2 to 10 K^5: the bound "
        "is stated where N >= 20 K^3 / c^2; the event is likely long before",
        {
            "N of the premise / K^3": starts(sizes, list(valid)) / K**3,
            "bound there": bound[valid][0],
            "exact probability there": exact[valid][0],
            "exact probability at N = K^2": exact[0],
            "at N = K^3": exact[sizes.index(K**3)],
        },
        yes=UNDER,
    )


def balanced_event() -> Finding:
    """Lemma A.4."""
    return _event("balanced", 10, 0.5)


def imbalanced_event() -> Finding:
    """Lemma A.5."""
    return _event("imbalanced", 10, 0.5)
