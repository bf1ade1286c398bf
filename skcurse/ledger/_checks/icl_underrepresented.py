"""[ICL], Section 4.1, Appendix C: the four phases of an under-represented feature.

Each claim is an order in K. A check follows the exact run for several K, N = K^3, and reports the
constants at the smallest and the largest K.
"""

from collections.abc import Callable

import numpy as np

from skcurse.ledger._checks._icl_runs import (
    EPSILON,
    SIZES,
    Array,
    Run,
    converged,
    no_decline,
    no_growth,
    over,
    probabilities,
    trained,
)
from skcurse.ledger._finding import UNDER, Finding, judged, largest, slope
from skcurse.theory import icl_population

_TRIED = f"p_1 = 1/2, K {SIZES[0]} to {SIZES[-1]}, N = K^3, eta = K"


def _runs() -> list[Run]:
    return [trained("under-represented", K).up_to(converged(K)) for K in SIZES]


def _over_sizes(constant: Callable[[Run], float]) -> list[float]:
    return [float(constant(run)) for run in _runs()]


def _ends(name: str, values: list[float]) -> dict[str, float]:
    return {f"{name} at K {SIZES[0]}": values[0], f"{name} at K {SIZES[-1]}": values[-1]}


def _order(claims: list[tuple[str, list[float], bool]], signs: bool, words: str) -> Finding:
    """Judge constants of lower (True) and upper (False) bounds, and signs that must hold."""
    measured: dict[str, float] = {}
    holds = signs
    for name, values, lower in claims:
        holds = holds and (no_decline(values) if lower else no_growth(values))
        measured |= _ends(name, values)
    return judged(holds, f"{_TRIED}: {words}", measured, yes=UNDER)


def _least(quantity: Callable[[Run], Array], phase: int) -> list[float]:
    return _over_sizes(lambda run: float(quantity(run)[run.during(phase)].min()))


def _most(quantity: Callable[[Run], Array], phase: int) -> list[float]:
    return _over_sizes(lambda run: float(quantity(run)[run.during(phase)].max()))


def _others(run: Run) -> Array:
    """|beta_{k,n}| K over alpha + |beta_{k,1}|."""
    ratio: Array = np.abs(run.beta) * run.K / (run.alpha + np.abs(run.beta1))
    return ratio


def _lead_falls() -> bool:
    return all(np.all(run.beta1 < 0) for run in _runs())


def rate_1_lead() -> Finding:
    """Lemma C.3."""
    low = _least(lambda r: -r.beta1 * r.K**1.98, 0)
    high = _most(lambda r: -r.beta1 * r.K, 0)
    claims = [("min |beta_1| K^1.98", low, True), ("max |beta_1| K", high, False)]
    return _order(claims, _lead_falls(), "phase I, beta_{k,1} < 0")


def rate_1_own() -> Finding:
    """Lemma C.4."""
    claims = [
        ("min alpha K^2", _least(lambda r: r.alpha * r.K**2, 0), True),
        ("max alpha K^2", _most(lambda r: r.alpha * r.K**2, 0), False),
    ]
    return _order(claims, True, "phase I, alpha_k of order K^-2")


def _rate_others(phase: int, numeral: str) -> Finding:
    claims = [("max |beta_n| K / (alpha + |beta_1|)", _most(_others, phase), False)]
    return _order(claims, True, f"phase {numeral}")


def rate_1_others() -> Finding:
    """Lemma C.5."""
    return _rate_others(0, "I")


def end_1() -> Finding:
    """Lemma C.6."""
    time = _over_sizes(lambda r: r.phases.starts[1] * r.eta / (np.log(r.K) * r.K**1.98))
    own = _over_sizes(lambda r: r.attention[r.phases.starts[1], 0] * r.K)
    lead = _over_sizes(lambda r: r.attention[r.phases.starts[1], 1] * r.K**0.49)
    claims = [
        ("eta T_1 / (K^1.98 log K)", time, False),
        ("Attn_k K", own, True),
        ("Attn_1 K^0.49", lead, True),
    ]
    return _order(claims, True, "end of phase I")


def hypothesis_1() -> Finding:
    """Induction hypothesis C.1."""
    monotone = all(np.all(r.alpha >= 0) and np.all(r.beta1 < 0) for r in _runs())
    own = _most(lambda r: r.A * r.K**0.02 / np.log(r.K), 0)
    others = _most(lambda r: over(np.abs(r.Bn) * r.K, r.A - r.B1), 0)
    claims = [("max A K^0.02 / log K", own, False), ("|B_n| K / (A + |B_1|)", others, False)]
    return _order(claims, monotone, "phase I, A_k rises, B_{k,1} falls to -0.49 log K")


def phase_1() -> Finding:
    """Lemma 4.2."""
    fall = _over_sizes(lambda r: r.B1[r.phases.starts[1]] / np.log(r.K))
    own = _over_sizes(lambda r: r.A[r.phases.starts[1]] / np.log(r.K))
    other = _over_sizes(lambda r: np.abs(r.Bn[r.during(0)]).max())
    reached = largest(fall) <= -0.49
    exponent = slope(SIZES, [r.phases.starts[1] * r.eta for r in _runs()])
    measured = {
        **_ends("A_k / log K", own),
        **_ends("largest |B_n|", other),
        "exponent of eta T_1 in K": exponent,
    }
    holds = reached and exponent <= 1.98 and own[-1] < own[0] and other[-1] < other[0]
    return judged(holds, f"{_TRIED}: B_{{k,1}} falls to -0.49 log K", measured, yes=UNDER)


def rate_2_own() -> Finding:
    """Lemma C.9."""
    claims = [("min alpha K^2", _least(lambda r: r.alpha * r.K**2, 1), True)]
    return _order(claims, True, "phase II")


def rate_2_lead() -> Finding:
    """Lemma C.10."""
    high = _most(lambda r: -r.beta1 / r.alpha, 1)
    low = _least(lambda r: -r.beta1 * r.K**2.02, 1)
    claims = [("max |beta_1| / alpha", high, False), ("min |beta_1| K^2.02", low, True)]
    return _order(claims, _lead_falls(), "phase II")


def rate_2_others() -> Finding:
    """Lemma C.11."""
    return _rate_others(1, "II")


def _over_phase_2(run: Run) -> tuple[int, int]:
    return int(run.phases.starts[1]), int(run.phases.starts[2])


def phase_2() -> Finding:
    """Lemmas 4.3 and C.12: the lead switches."""

    def moves(run: Run) -> float:
        first, last = _over_phase_2(run)
        return float((run.B1[first] - run.B1[last]) / (run.A[last] - run.A[first]))

    ratio = _over_sizes(moves)
    lead = _over_sizes(lambda r: r.B1[r.phases.starts[2]] / np.log(r.K))
    own = _over_sizes(lambda r: r.A[r.phases.starts[2]] / np.log(r.K))
    time = _over_sizes(lambda r: (r.phases.starts[2]) * r.eta / (np.log(r.K) * r.K**2))
    switch = all(r.phases.lead_switch <= r.phases.starts[2] for r in _runs())
    short = trained("under-represented", 10)
    claims = [("fall of B_1 over rise of A", ratio, False), ("eta T_2 / (K^2 log K)", time, False)]
    found = _order(claims, switch and largest(ratio) < 1, "phase II; at K = 10 it has no step")
    measured = {
        **found.measured,
        **_ends("A_k / log K", own),
        **_ends("B_1 / log K", lead),
        "steps of phase II at K 10": short.phases.starts[2] - short.phases.starts[1],
    }
    return found._replace(measured=measured)


def hypothesis_2() -> Finding:
    """Induction hypothesis C.2."""
    monotone = all(np.all(r.alpha >= 0) and np.all(r.beta1 < 0) for r in _runs())
    own = _most(lambda r: r.A / np.log(r.K), 1)
    lead = _most(lambda r: -r.B1 / np.log(r.K), 1)
    others = _most(lambda r: over(np.abs(r.Bn) * r.K, r.A - r.B1), 1)
    claims = [
        ("A / log K", own, False),
        ("largest |B_1| / log K", lead, False),
        ("|B_n| K / (A + |B_1|)", others, False),
    ]
    return _order(claims, monotone, "phase II, A_k rises, B_{k,1} falls little further")


def rate_3_own() -> Finding:
    """Lemma C.15."""
    claims = [("min alpha K^1.5", _least(lambda r: r.alpha * r.K**1.5, 2), True)]
    return _order(claims, True, "phase III")


def rate_3_lead() -> Finding:
    """Lemma C.16."""
    claims = [("max |beta_1| / alpha", _most(lambda r: -r.beta1 / r.alpha, 2), False)]
    return _order(claims, _lead_falls(), "phase III")


def rate_3_others() -> Finding:
    """Lemma C.17."""
    claims = [("max |beta_n| K / alpha", _most(lambda r: np.abs(r.beta) * r.K / r.alpha, 2), False)]
    return _order(claims, True, "phase III")


def phase_3() -> Finding:
    """Lemmas 4.4 and C.18: the target feature grows."""
    time = _over_sizes(
        lambda r: (r.phases.starts[3] - r.phases.starts[2]) * r.eta / (np.log(r.K) * r.K**1.5)
    )
    lead = _over_sizes(
        lambda r: (r.B1[r.phases.starts[2]] - r.B1[r.phases.starts[3]]) / np.log(r.K)
    )
    attention = _over_sizes(lambda r: r.attention[r.phases.starts[3], 0])
    grown = all(r.A[r.phases.starts[3]] >= np.log(r.K) for r in _runs())
    claims = [
        ("eta (T_3 - T_2) / (K^1.5 log K)", time, False),
        ("fall of B_1 / log K", lead, False),
        ("Attn_k", attention, True),
    ]
    return _order(claims, grown, "phase III ends with A_k >= log K")


def hypothesis_3() -> Finding:
    """Induction hypothesis C.3."""
    monotone = all(np.all(r.alpha >= 0) and np.all(r.beta1 < 0) for r in _runs())
    others = _most(lambda r: over(np.abs(r.Bn) * r.K, r.A), 2)
    lead = _most(lambda r: -r.B1 / np.log(r.K), 2)
    claims = [("largest |B_1| / log K", lead, False), ("|B_n| K / A", others, False)]
    return _order(claims, monotone, "phase III, A_k rises to log K")


def rate_4_own() -> Finding:
    """Lemma C.21."""
    claims = [("min alpha K / eps", _least(lambda r: r.alpha * r.K / EPSILON, 3), True)]
    return _order(claims, True, "phase IV, eps = 0.01")


def rate_4_lead() -> Finding:
    """Lemma C.22."""
    high = _most(lambda r: -r.beta1 / r.alpha * r.K**0.5, 3)
    return _order([("max |beta_1| K^0.5 / alpha", high, False)], _lead_falls(), "phase IV")


def rate_4_others() -> Finding:
    """Lemma C.23."""
    falls = all(np.all(r.beta[r.during(3)] < 0) for r in _runs())
    high = _most(lambda r: np.abs(r.beta) * r.K / r.alpha, 3)
    return _order([("max |beta_n| K / alpha", high, False)], falls, "phase IV, beta_{k,n} < 0")


def phase_4() -> Finding:
    """Lemmas 4.5 and C.24: convergence."""

    def steps(run: Run) -> float:
        wait = (len(run.loss) - 1 - run.phases.starts[3]) * run.eta * EPSILON
        return float(wait / (run.K * np.log(run.K / np.sqrt(EPSILON))))

    def gap(run: Run) -> float:
        p = probabilities("under-represented", run.K)
        floor = icl_population.loss_infimum(p, run.K**3, query=1)
        return float(run.loss[-1] - floor) / EPSILON

    rest = _over_sizes(lambda r: (1 - r.attention[-1, 0]) ** 2 / EPSILON)
    claims = [
        ("eta eps (T_4 - T_3) / (K log(K / sqrt(eps)))", _over_sizes(steps), False),
        ("(L - L*) / eps", _over_sizes(gap), False),
        ("(1 - Attn_k)^2 / eps", rest, False),
    ]
    near = all(value <= 1 for value in claims[1][1])
    return _order(claims, near, "phase IV ends with A_k - max B = log(K / sqrt(eps)), eps = 0.01")


def hypothesis_4() -> Finding:
    """Induction hypothesis C.4."""
    monotone = all(
        np.all(r.alpha >= 0) and np.all(r.beta1 < 0) and np.all(r.beta[r.during(3)] < 0)
        for r in _runs()
    )
    own = _most(lambda r: r.A / np.log(r.K / np.sqrt(EPSILON)), 3)
    others = _most(lambda r: over(np.abs(r.Bn) * r.K, r.A), 3)
    claims = [("A / log(K / sqrt(eps))", own, False), ("|B_n| K / A", others, False)]
    return _order(claims, monotone, "phase IV, A_k rises, every B_{k,n} falls")
