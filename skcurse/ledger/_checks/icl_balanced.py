"""[ICL], Appendix B: the two phases of balanced features, and Appendix D: the dominant feature."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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
)
from skcurse.ledger._checks._icl_runs import trained as whole_run
from skcurse.ledger._finding import UNDER, Finding, judged, largest
from skcurse.theory import icl_population

_BALANCED = f"p = 1/K, K {SIZES[0]} to {SIZES[-1]}, N = K^3, eta = K"
_DOMINANT = f"p_1 = 1/2, K {SIZES[0]} to {SIZES[-1]}, N = K^3, eta = 1"


def trained(kind: str, K: int) -> Run:
    """Return a run; that of the dominant feature ends where its one phase does."""
    run = whole_run(kind, K)
    return run.up_to(converged(K, dominant=True)) if kind == "dominant" else run


def _stage(run: Run, stage: int) -> NDArray[np.bool_]:
    """Mark growth (0), stage I (1) or stage II (2), whose gap is above log(K / sqrt(eps))."""
    if stage == 0:
        return run.during(0)
    far = run.gap() >= converged(run.K)
    marked: NDArray[np.bool_] = run.during(1) & (far if stage == 2 else ~far)
    return marked


def _constants(kind: str, stage: int, quantity: Callable[[Run], Array], most: bool) -> list[float]:
    found = []
    for K in SIZES:
        run = trained(kind, K)
        values = quantity(run)
        if kind == "balanced":
            values = values[_stage(run, stage)]
        found.append(float(values.max() if most else values.min()))
    return found


def _verdict(
    tried: str, lower: dict[str, list[float]], upper: dict[str, list[float]], also: bool = True
) -> Finding:
    holds = also and all(map(no_decline, lower.values())) and all(map(no_growth, upper.values()))
    measured = {}
    for name, values in {**lower, **upper}.items():
        measured[f"{name} at K {SIZES[0]}"] = values[0]
        measured[f"{name} at K {SIZES[-1]}"] = values[-1]
    return judged(holds, tried, measured, yes=UNDER)


def _ratio(run: Run) -> Array:
    ratio: Array = np.abs(run.beta) * run.K / run.alpha
    return ratio


def _falls(kind: str, stage: int) -> bool:
    if kind == "dominant":
        return all(bool(np.all(trained(kind, K).beta < 0)) for K in SIZES)
    runs = [trained(kind, K) for K in SIZES]
    return all(bool(np.all(run.beta[_stage(run, stage)] < 0)) for run in runs)


def _rises(kind: str) -> bool:
    return all(bool(np.all(trained(kind, K).alpha >= 0)) for K in SIZES)


def growth_own() -> Finding:
    """Lemma B.3."""
    least = _constants("balanced", 0, lambda r: r.alpha * r.K**2, most=False)
    return _verdict(f"{_BALANCED}, phase I", {"min alpha K^2": least}, {}, _rises("balanced"))


def growth_others() -> Finding:
    """Lemma B.4."""
    most = _constants("balanced", 0, _ratio, most=True)
    return _verdict(f"{_BALANCED}, phase I", {}, {"max |beta_n| K / alpha": most})


def growth_end() -> Finding:
    """Lemma B.5."""
    runs = [trained("balanced", K) for K in SIZES]
    time = [float(r.phases.starts[1] * r.eta / (np.log(r.K) * r.K**2)) for r in runs]
    attention = [float(r.attention[r.phases.starts[1], 0]) for r in runs]
    tried = f"{_BALANCED}, end of phase I"
    return _verdict(tried, {"Attn_k": attention}, {"eta T_1 / (K^2 log K)": time})


def _hypothesis(stage: int, words: str) -> Finding:
    others = _constants("balanced", stage, lambda r: over(np.abs(r.Bn) * r.K, r.A), True)
    reach = _constants("balanced", stage, lambda r: r.A / converged(r.K), True)
    signs = _rises("balanced") and (stage == 0 or _falls("balanced", stage))
    upper = {"max |B_n| K / A": others, "max A / log(K / sqrt(eps))": reach}
    return _verdict(f"{_BALANCED}, {words}", {}, upper, signs)


def growth_hypothesis() -> Finding:
    """Induction hypothesis B.1."""
    return _hypothesis(0, "phase I, A_k rises to log K")


def stage_1_hypothesis() -> Finding:
    """Induction hypothesis B.2."""
    return _hypothesis(1, "phase II, stage I, eps = 0.01, A_k rises, B_{k,n} falls")


def stage_2_hypothesis() -> Finding:
    """Induction hypothesis B.3."""
    return _hypothesis(2, "phase II, stage II, eps = 0.01, A_k rises, B_{k,n} falls")


def _stage_own(stage: int, words: str) -> Finding:
    least = _constants("balanced", stage, lambda r: r.alpha * r.K / EPSILON, most=False)
    tried = f"{_BALANCED}, {words}, eps = 0.01"
    return _verdict(tried, {"min alpha K / eps": least}, {}, _rises("balanced"))


def _stage_others(stage: int, words: str) -> Finding:
    most = _constants("balanced", stage, _ratio, most=True)
    tried = f"{_BALANCED}, {words}, beta_{{k,n}} < 0"
    return _verdict(tried, {}, {"max |beta_n| K / alpha": most}, _falls("balanced", stage))


def stage_1_own() -> Finding:
    """Lemma B.8."""
    return _stage_own(1, "phase II, stage I")


def stage_1_others() -> Finding:
    """Lemma B.9."""
    return _stage_others(1, "phase II, stage I")


def stage_1_end() -> Finding:
    """Lemma B.10."""
    time, gap = [], []
    for K in SIZES:
        run = trained("balanced", K)
        inside = _stage(run, 1)
        steps = float(np.count_nonzero(inside))
        time.append(steps * run.eta * EPSILON / (K * converged(K)))
        gap.append(float(run.gap()[_stage(run, 2)].min() / converged(K)))
    upper = {"eta eps (T_2 - T_1) / (K log(K / sqrt(eps)))": time}
    return _verdict(f"{_BALANCED}, stage I ends", {"gap / log(K / sqrt(eps))": gap}, upper)


def stage_2_own() -> Finding:
    """Lemma B.13."""
    return _stage_own(2, "phase II, stage II")


def stage_2_others() -> Finding:
    """Lemma B.14."""
    return _stage_others(2, "phase II, stage II")


def stage_2_loss() -> Finding:
    """Lemma B.15."""
    gap = []
    for K in SIZES:
        run = trained("balanced", K)
        floor = icl_population.loss_infimum(probabilities("balanced", K), K**3)
        gap.append(float((run.loss[_stage(run, 2)] - floor).max() / EPSILON))
    tried = f"{_BALANCED}, stage II, eps = 0.01"
    return _verdict(tried, {}, {"max (L - L*) / eps": gap}, largest(gap) <= 1)


def dominant_start() -> Finding:
    """Lemma D.1."""
    own = [float(trained("dominant", K).attention[0, 0]) for K in SIZES]
    other = [float(trained("dominant", K).attention[0, 2] * K) for K in SIZES]
    steady = no_growth(other)
    return _verdict(f"{_DOMINANT}, at the start", {"Attn_1": own, "Attn_n K": other}, {}, steady)


def dominant_hypothesis() -> Finding:
    """Induction hypothesis D.1."""
    reach = _constants("dominant", 0, lambda r: r.A, most=True)
    others = _constants("dominant", 0, lambda r: over(np.abs(r.Bn) * r.K, r.A), most=True)
    signs = _rises("dominant") and _falls("dominant", 0)
    upper = {"max A": reach, "max |B_n| K / A": others}
    return _verdict(f"{_DOMINANT}, eps = 0.01, A_1 rises, B_{{1,n}} falls", {}, upper, signs)


def dominant_own() -> Finding:
    """Lemma D.4."""
    least = _constants("dominant", 0, lambda r: r.alpha / EPSILON, most=False)
    return _verdict(f"{_DOMINANT}, eps = 0.01", {"min alpha / eps": least}, {}, _rises("dominant"))


def dominant_others() -> Finding:
    """Lemma D.5."""
    most = _constants("dominant", 0, _ratio, most=True)
    upper = {"max |beta_n| K / alpha": most}
    return _verdict(f"{_DOMINANT}, beta_{{1,n}} < 0", {}, upper, _falls("dominant", 0))


def dominant_end() -> Finding:
    """Lemmas 4.6 and D.6."""
    runs = [trained("dominant", K) for K in SIZES]
    time = [float((len(r.loss) - 1) * r.eta * EPSILON / converged(1)) for r in runs]
    rest = [float((1 - r.attention[-1, 0]) ** 2 / EPSILON) for r in runs]
    gap = []
    for run in runs:
        p = probabilities("dominant", run.K)
        floor = icl_population.loss_infimum(p, run.K**3, query=0)
        gap.append(float(run.loss[-1] - floor) / EPSILON)
    upper = {
        "eta eps T / log(1 / sqrt(eps))": time,
        "(L - L*) / eps": gap,
        "(1 - Attn_1)^2 / eps": rest,
    }
    tried = f"{_DOMINANT}, ends with A_1 - max B = log(1 / sqrt(eps)), eps = 0.01"
    return _verdict(tried, {}, upper, largest(gap) <= 1)
