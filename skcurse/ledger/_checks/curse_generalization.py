"""[Curse], Section 6, Appendix J: out-of-distribution risks of attention and residual linear."""

from functools import partial
from types import SimpleNamespace

import numpy as np

from skcurse import diagnostics
from skcurse.datasets import ResidualSSM
from skcurse.ledger._checks._draws import network
from skcurse.ledger._finding import UNDER, Finding, identity, judged, largest, smallest
from skcurse.theory import attention_network, attention_ntk, residual_risk, residual_ssm

_SHIFT = "sign_inconsistent"


def attention() -> Finding:
    """Proposition J.2: OOD risk of trained attention, against predicting zero, over gamma."""
    numbers: dict[str, float] = {}
    holds: dict[float, bool] = {}
    for gamma in (-0.5, 0.0, 0.2, 0.5, 0.8):
        model = ResidualSSM(n_steps=16, gamma=gamma, noise=0.05)
        X, y = model.sample(256, random_state=0)
        w, a = network(256)
        run = attention_ntk.gradient_descent(X, y, w, a, max_iter=300, tol=0.0)
        X, y = model.sample(5000, shift=_SHIFT, random_state=1)
        predict = partial(attention_network.forward, weights=run.weights, signs=a)
        risk = float(np.mean((predict(X) - y) ** 2)) / model.zero_risk(_SHIFT)
        agreement = diagnostics.sign_agreement(SimpleNamespace(predict=predict), X)
        numbers[f"gamma {gamma:g}: risk over zero's"] = risk
        numbers[f"gamma {gamma:g}: sign agreement"] = agreement
        holds[gamma] = risk > 1 and agreement > 0.9
    return judged(
        holds[0.8] and holds[0.5] and not holds[-0.5],
        "d = 16, noise 0.05, n = m = 256, 300 steps, 5,000 test windows: worse than predicting "
        "zero for gamma > 0; at gamma = -0.5 better",
        numbers,
        yes=UNDER,
    )


def _risk(gamma: float, n: int, m: int, steps: int) -> tuple[float, float]:
    """OOD risk of attention, and of predicting zero."""
    model = ResidualSSM(n_steps=16, gamma=gamma, noise=0.05)
    X, y = model.sample(n, random_state=0)
    w, a = network(m)
    run = attention_ntk.gradient_descent(X, y, w, a, max_iter=steps, tol=0.0)
    X, y = model.sample(5000, shift=_SHIFT, random_state=1)
    F = attention_network.forward(X, run.weights, a)
    return float(np.mean((F - y) ** 2)), model.zero_risk(_SHIFT)


def wider_attention() -> Finding:
    """Proposition 6.3, part 1: neither width nor rows nor steps bring the risk down."""
    numbers, least = {}, np.inf
    for n, m, steps in ((64, 64, 100), (64, 1024, 100), (1024, 64, 100), (64, 64, 3000)):
        risk, zero = _risk(0.8, n, m, steps)
        numbers[f"n {n}, m {m}, {steps} steps"] = risk
        least = smallest(least, risk / zero)
    other, other_zero = _risk(-0.5, 64, 64, 3000)
    numbers |= {
        "predicting zero": zero,
        "gamma -0.5, n 64, m 64, 3000 steps": other,
        "predicting zero, gamma -0.5": other_zero,
    }
    return judged(
        least > 1 and other < other_zero,
        "d = 16, noise 0.05, OOD risk at gamma 0.8: above that of predicting zero, whatever the "
        "rows, the width and the steps; not for gamma < 0",
        numbers,
        yes=UNDER,
    )


def _fit(n_states: int, d: int, unit_root: bool, centered: bool) -> residual_ssm.ResidualWeights:
    rng = np.random.default_rng(d)
    angles = residual_ssm.spread_angles(n_states, rng, unit_root=unit_root)
    system = residual_ssm.build_system(angles, 0.8, d, rng)
    return residual_ssm.exact_weights(system, centered)


def residual_linear() -> Finding:
    """Proposition J.3: existence, uniqueness and risk ~ noise^2 of the residual weights."""
    centred, plain = _fit(16, 16, True, True), _fit(16, 16, True, False)
    short = _fit(15, 16, True, False)
    ratios = []
    rng = np.random.default_rng(1)
    system = residual_ssm.build_system(residual_ssm.spread_angles(16, rng), 0.8, 16, rng)
    coef = residual_ssm.residual_coefficients(residual_ssm.exact_weights(system).weights)
    for noise in (1e-3, 1e-2, 1e-1):
        risk = residual_risk.linear_risk(system, coef, noise=noise, sign_inconsistent=True)
        ratios.append(risk / noise**2)
    spread = largest(ratios) / smallest(ratios) - 1
    return judged(
        centred.unique and short.unique and largest(centred.bias, short.bias) < 1e-18
        and plain.bias > 1e-6 and spread < 1e-6,
        "gamma 0.8, d = 16: exact and unique for N = d and an eigenvalue 1 with weights on "
        "x - x_d, or for N = d - 1 with weights on x; for N = d with weights on x, the equation "
        "printed, a bias is left; risk over noise^2 is the noise gain",
        {
            "bias, N = d, centred": centred.bias,
            "N = d - 1, printed": short.bias,
            "N = d, printed": plain.bias,
            "noise gain": system.noise_gain,
            "risk / noise^2 at noise 0.1": ratios[-1],
            "its spread over noise 1e-3 to 0.1": spread,
        },
        yes=UNDER,
    )  # fmt: skip


def residual_network() -> Finding:
    """Definition 6.2: subtract the last value, map linearly, add it back."""
    rng, error = np.random.default_rng(0), 0.0
    for d in (2, 5, 16):
        X, w = rng.normal(size=(20, d)), rng.normal(size=d - 1)
        for centered in (True, False):
            past = X[:, :-1] - X[:, -1:] if centered else X[:, :-1]
            f = past @ w + X[:, -1]
            coef = residual_ssm.residual_coefficients(w, centered=centered)
            error = largest(error, np.abs(X @ coef - f).max())
    return identity(error, "20 windows of 2, 5 and 16 steps, both readings")
