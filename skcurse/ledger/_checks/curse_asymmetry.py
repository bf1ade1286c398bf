"""[Curse], Section 5.2, Appendix I: convergence and asymmetric learning."""

from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from skcurse import diagnostics
from skcurse.ledger._checks._draws import (
    Array,
    data_bound,
    moments,
    network,
    softmax,
    weight_bound,
    windows,
)
from skcurse.ledger._checks.curse_kernel import smallest_value
from skcurse.ledger._finding import FAILS, UNDER, Finding, judged, largest
from skcurse.theory import attention_network, attention_ntk, tilted_moments

_DELTA = 0.05


def _network(w: Array, start: Array, a: Array) -> SimpleNamespace:
    """Make what a diagnostic asks of a fitted network."""
    return SimpleNamespace(weights_=w, initial_weights_=start, signs_=a)


def convergence() -> Finding:
    """Theorem 5.2, convergence: L(T) <= eps at T = log(n B^2 / eps) / (eta lambda)."""
    worst, longest = 0.0, 0.0
    for n in (2, 3):
        for m in (64, 512):
            X, y = windows(n)
            w, a = network(m)
            lam = smallest_value(X, w)
            eta = 0.5 * attention_ntk.largest_stable_rate(X, w)
            for eps in (1e-2, 1e-4):
                T = int(np.log(n * data_bound(n, 8, 0.05, _DELTA) ** 2 / eps) / (eta * lam)) + 1
                run = attention_ntk.gradient_descent(
                    X, y, w, a, learning_rate=eta, max_iter=T, tol=0.0
                )
                worst = largest(worst, float(run.losses[-1] / eps))
                longest = largest(longest, T)
    X, y = windows(16)
    w, a = network(512)
    eta = 0.5 * attention_ntk.largest_stable_rate(X, w)
    slow = attention_ntk.gradient_descent(X, y, w, a, max_iter=3000, tol=0.0)
    needed = np.log(16 * data_bound(16, 8, 0.05, _DELTA) ** 2 / 1e-4) / (eta * smallest_value(X, w))
    return judged(
        worst <= 1,
        "n = 2 and 3, m 64 and 512, eps 1e-2 and 1e-4: constant 1 serves; for n = 16 the number "
        "of steps named is out of reach",
        {"largest L(T) / eps": worst, "longest T": longest, "T for n 16, eps 1e-4": needed,
         "loss for n 16 after 3000 steps": slow.losses[-1]},
        yes=UNDER,
    )  # fmt: skip


def _trained(n: int, m: int, steps: int, scale: float = 1.0) -> dict[str, float]:
    """Share of weights with the sign of a_r, and the largest movement."""
    X, y = windows(n, d=16 if n > 8 else 8)
    w, a = network(m)
    run = attention_ntk.gradient_descent(X, y, scale * w, a, max_iter=steps, tol=0.0)
    model = _network(run.weights, scale * w, a)
    return {
        "share": diagnostics.weight_sign_alignment(model, X),
        "movement": diagnostics.weight_movement(model, X),
    }


def weight_signs() -> Finding:
    """Theorem 5.2, asymmetric learning: signs of the weights after long training."""
    X, _ = windows(2)
    w, _ = network(1024)
    rate = 0.5 * attention_ntk.largest_stable_rate(X, w) * smallest_value(X, w)
    T = int(1024 / (rate * X.var(axis=1).min())) + 1
    # A run that stops before T has a loss of rounding errors: its weights have come to rest.
    rest = _trained(2, 1024, T)
    wide = {m: _trained(64, m, 1000) for m in (64, 256, 1024)}
    scaled = {s: _trained(64, 256, 1, scale=s)["share"] for s in (0.1, 0.01, 0.001)}
    best = largest(rest["share"], *(found["share"] for found in wide.values()))
    return Finding(
        UNDER if best >= 1 - _DELTA else FAILS,
        "gamma 0.8: n = 2 to rest or T = m / (eta lambda v_min), and n = 64, 1,000 steps: shares "
        "with the sign of a_r. Weights move less than the |w_r(0)| ~ 1 they start from; for w(0) "
        "scaled down it starts to hold (n = 64, one step)",
        {
            "n 2, m 1024": rest["share"],
            "T": T,
            **{f"n 64, m {m}": found["share"] for m, found in wide.items()},
            "largest movement at m 64": wide[64]["movement"],
            "at m 1024": wide[1024]["movement"],
            **{f"w(0) times {s:g}": share for s, share in scaled.items()},
        },
    )


@lru_cache(maxsize=1)
def _first_steps() -> dict[tuple[float, int], float]:
    """Mean update alignment after the first step, over gamma and n, ten samples each."""
    shares = {}
    for gamma in (-0.5, 0.0, 0.2, 0.5, 0.8):
        for n in (4, 16, 64, 256):
            found = []
            for seed in range(10):
                X, y = windows(n, d=16, seed=seed, gamma=gamma)
                w, a = network(64, seed=seed)
                g = attention_network.loss_gradient(X, y, w, a).gradient
                found.append(diagnostics.update_alignment(_network(w - g, w, a), X))
            shares[gamma, n] = float(np.mean(found))
    return shares


def gradient_direction() -> Finding:
    """Lemma I.3: -dw_r has the sign of a_r, for gamma > 0, n >= N / gamma and R small."""
    shares = _first_steps()
    X, y = windows(256, d=16)
    w, a = network(64)
    run = attention_ntk.gradient_descent(X, y, w, a, max_iter=1000, tol=0.0)
    late = attention_network.loss_gradient(X, y, run.weights, a).gradient
    return judged(
        shares[0.8, 256] == 1.0 and shares[-0.5, 256] < 0.5,
        "d = N = 16, m = 64, ten samples, before the first step: share of steps along a_r; needs "
        "gamma > 0 and many windows, and does not last",
        {
            **{f"gamma {g:g} n {n}": s for (g, n), s in shares.items() if n in (4, 64, 256)},
            "gamma 0.8 after 1000 steps": np.mean(np.sign(-late) == a),
        },
        yes=UNDER,
    )


def residual_feature() -> Finding:
    """Theorem 5.3: S_{r,d}(x) of Gaussian windows for a_r = -1, after training."""
    X, y = windows(256, d=16)
    w, a = network(256)
    run = attention_ntk.gradient_descent(X, y, w, a, max_iter=500, tol=0.0)
    G = np.random.default_rng(0).normal(size=(2000, 16))
    share = tilted_moments.last_step_attention(G, run.weights).mean(axis=0) * 16
    down, negative = a < 0, run.weights < 0
    small = float(np.mean(share[down] < 1))
    conditional = float(np.mean(share[down & negative] < 1))
    trained = tilted_moments.last_step_attention(X, run.weights)[:, down].mean() * 16
    return Finding(
        UNDER if small >= 1 - _DELTA else FAILS,
        "gamma 0.8, n = 256, m = 256, 500 steps: d S_{r,d} of 2,000 Gaussian windows below 1 for "
        "every w_r < 0, but half of the neurons of a_r = -1 keep w_r > 0",
        {
            "share of a_r = -1 below 1": small,
            "share given w_r < 0": conditional,
            "mean d S_{r,d} over a_r = -1": share[down].mean(),
            "over a_r = +1": share[~down].mean(),
            "on the training windows, a_r = -1": trained,
        },
    )


def lower_bound() -> Finding:
    """Lemma I.4: var_r(x_i) >= exp(-c B^2 (D + R)) v_min, with the smallest c."""
    c = 0.0
    for n, d in ((16, 8), (128, 16)):
        X, y = windows(n, d=d)
        w, a = network(256)
        run = attention_ntk.gradient_descent(X, y, w, a, max_iter=300, tol=0.0)
        R = float(np.abs(run.weights - w).max())
        scale = data_bound(n, d, 0.05, _DELTA) ** 2 * (weight_bound(256, _DELTA) + R)
        var = moments(X, run.weights)[1]
        smallest = d * softmax(X, run.weights).min(axis=2)
        gap = np.min(var / (smallest * X.var(axis=1)[:, None]))
        c = largest(c, float(np.max(-np.log(var / X.var(axis=1).min())) / scale))
    return judged(
        0 <= c <= 2 and gap >= 1 - 1e-9,
        "n = 16 and 128, d = 8 and 16, m = 256, 300 steps: constant 2 serves",
        {"c needed": c, "smallest var / (d min_k S_k v)": gap},
    )
