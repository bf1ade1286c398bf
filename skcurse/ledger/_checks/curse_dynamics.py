"""[Curse], Appendices G and H: what a step does to the loss, and the inductions."""

from functools import lru_cache

import numpy as np

from skcurse.ledger._checks._draws import Array, data_bound, network, output, softmax, windows
from skcurse.ledger._checks.curse_kernel import WIDTHS, smallest_value
from skcurse.ledger._finding import (
    UNDER,
    Finding,
    identity,
    judged,
    largest,
    slope,
    smallest,
    starts,
)
from skcurse.theory import attention_network, attention_ntk
from skcurse.theory.descent import Step

_DELTA = 0.05
_ALL_WIDTHS = (8, 16, 32, *WIDTHS)


def five_terms(X: Array, y: Array, w: Array, a: Array, eta: float) -> Array:
    """Split the change of the loss into C1 to C5 (derived).

    With z = -eta dw x_d x, g = exp(z) - 1 and q = g - z, the softmax changes by
    S g - S <S, g> - (S' - S) <S, g>: z makes C1, q makes C2 and C3, the last term C4.
    """
    delta = attention_network.loss_gradient(X, y, w, a).gradient
    S, after = softmax(X, w), softmax(X, w - eta * delta)
    x = X[:, None, :]
    z = -eta * delta[None, :, None] * X[:, -1:, None] * x
    g = np.expm1(z)
    q = g - z
    mean = np.sum(S * x, axis=2)
    changes = (
        np.sum(S * z * x, axis=2) - mean * np.sum(S * z, axis=2),
        -mean * np.sum(S * q, axis=2),
        np.sum(S * q * x, axis=2),
        -np.sum((after - S) * x, axis=2) * np.sum(S * g, axis=2),
    )
    F = output(X, w, a)
    shift = output(X, w - eta * delta, a) - F
    linear = [(F - y) @ change @ a / np.sqrt(len(a)) for change in changes]
    return np.array([*linear, 0.5 * shift @ shift])


def decomposition() -> Finding:
    """Lemma G.1: the five terms add up, and are the library's three parts."""
    error = 0.0
    for m, paired, steps in ((16, False, 0), (64, True, 30), (256, False, 30)):
        X, y = windows(8)
        w, a = network(m, paired=paired)
        if steps:
            w = attention_ntk.gradient_descent(X, y, w, a, max_iter=steps, tol=0.0).weights
        for eta in (0.01, 0.3):
            C = five_terms(X, y, w, a, eta)
            three = attention_ntk.descent_terms(X, y, w, a, learning_rate=eta)
            gaps = (
                C.sum() - three.change,
                C[0] - three.kernel,
                C[1:4].sum() - three.remainder,
                C[4] - three.quadratic,
            )
            error = largest(error, np.abs(gaps).max() / np.abs(C).max())
    tried = "8 windows, m 16 to 256, steps 0.01 and 0.3, at the start and after 30 steps"
    return identity(error, tried, tolerance=1e-10)


def _top(X: Array, w: Array) -> float:
    return 2.0 / attention_ntk.largest_stable_rate(X, w)


def kernel_term() -> Finding:
    """Lemma G.2: C1 <= -eta lambda L along a run."""
    ratio = np.inf
    for m in WIDTHS:
        X, y = windows(3)
        w, a = network(m)
        lam, eta = smallest_value(X, w), 0.5 / _top(X, w)
        for _ in range(5):
            three = attention_ntk.descent_terms(X, y, w, a, learning_rate=eta)
            value = attention_network.loss_gradient(X, y, w, a).loss
            ratio = smallest(ratio, -three.kernel / (eta * lam * value))
            w = attention_ntk.gradient_descent(
                X, y, w, a, learning_rate=eta, max_iter=100, tol=0.0
            ).weights
    tried = "n = 3, m 64 to 4096, every 100 of 500 steps"
    return judged(ratio >= 1, tried, {"smallest -C1 / (eta lambda L)": ratio})


@lru_cache(maxsize=1)
def _shares() -> tuple[list[int], Array]:
    """Over widths: |C_j| / (eta lambda L / 8), worst of three seeds; shape (widths, 5)."""
    widths = [4**k for k in range(2, 10)]
    X, y = windows(3)
    share = np.zeros((len(widths), 5))
    for i, m in enumerate(widths):
        for seed in range(3):
            w, a = network(m, seed=seed, paired=False)
            lam, eta = smallest_value(X, w), 0.1 / _top(X, w)
            value = attention_network.loss_gradient(X, y, w, a).loss
            terms = 8 * np.abs(five_terms(X, y, w, a, eta)) / (eta * lam * value)
            share[i] = np.maximum(share[i], terms)
    return widths, share


def _term(index: int) -> Finding:
    """Width from which |C_j| <= eta lambda L / 8, a quarter of the half that C1 leaves."""
    widths, table = _shares()
    share = table[:, index - 1]
    first = starts(widths, [bool(s <= 1) for s in share])
    return judged(
        np.isfinite(first) and slope(widths, share) < -0.3,
        f"n = 3, independent signs, step 0.1 / lambda_max: |C{index}| <= eta lambda L / 8 from "
        "the width named on",
        {
            "width": first,
            "share at m 16": share[0],
            "at m 262144": share[-1],
            "its exponent in m": slope(widths, share),
        },
        yes=UNDER,
    )


def second_order_mean() -> Finding:
    """Lemma G.3: C2."""
    return _term(2)


def second_order() -> Finding:
    """Lemma G.4: C3."""
    return _term(3)


def product_term() -> Finding:
    """Lemma G.5: C4."""
    return _term(4)


def quadratic_term() -> Finding:
    """Lemma G.6: C5 <= eta lambda L / 8 for small steps."""
    X, y = windows(3)
    w, a = network(1024, paired=False)
    lam, top = smallest_value(X, w), _top(X, w)
    value = attention_network.loss_gradient(X, y, w, a).loss
    steps = np.geomspace(1e-6, 1.0, 25) / top
    share = [8 * five_terms(X, y, w, a, eta)[4] / (eta * lam * value) for eta in steps]
    last = steps[np.array(share) <= 1].max(initial=0.0)
    return judged(
        0 < last < steps[-1],
        "n = 3, m = 1024: holds up to the step named, not up to 1 / lambda_max",
        {
            "largest step times lambda_max": last * top,
            "times lambda_max^2 / lambda": last * top**2 / lam,
            "share at step 1 / lambda_max": share[-1],
        },
        yes=UNDER,
    )


@lru_cache(maxsize=1)
def _contraction() -> dict[str, list[float]]:
    """Over widths: largest L(t+1)/L(t) and L(t)/L(0) against 1 - eta lambda/2 and its power."""
    step, power, radius = [], [], []
    for m in _ALL_WIDTHS:
        X, y = windows(3)
        w, a = network(m)
        lam, eta = smallest_value(X, w), 1.0 / _top(X, w)
        run = attention_ntk.gradient_descent(X, y, w, a, learning_rate=eta, max_iter=3000, tol=0.0)
        rate = 1 - 0.5 * eta * lam
        t = np.arange(len(run.losses))
        step.append(float(np.max(run.losses[1:] / run.losses[:-1]) / rate))
        power.append(float(np.max(run.losses / (run.losses[0] * rate**t))))
        radius.append(float(np.abs(run.weights - w).max()))
    return {"step": step, "power": power, "radius": radius}


def _largest_ratio(factor: float) -> float:
    """Largest L(t+1) / ((1 - eta lambda/2) L(t)) of 50 steps of factor / lambda_max, m = 256."""
    X, y = windows(3)
    w, a = network(256)
    eta = factor / _top(X, w)
    rate, losses = 1 - 0.5 * eta * smallest_value(X, w), []
    for _ in range(51):
        value, gradient = attention_network.loss_gradient(X, y, w, a)
        losses.append(value)
        w = w - eta * gradient
    return float(np.max(np.divide(losses[1:], losses[:-1])) / rate)


def contraction() -> Finding:
    """Lemma H.1, part 1: L(t+1) <= (1 - eta lambda/2) L(t)."""
    step, long_steps = _contraction()["step"], _largest_ratio(3.0)
    return judged(
        largest(step) <= 1 + 1e-12 and long_steps > 1,
        "n = 3, m 8 to 4096: holds at each of 3,000 steps of 1 / lambda_max, not at steps of "
        "3 / lambda_max",
        {"largest ratio": largest(step), "at m 4096": step[-1], "with steps too long": long_steps},
        yes=UNDER,
    )


def decay() -> Finding:
    """Lemma H.1, part 2: L(t) <= (1 - eta lambda/2)^t L(0)."""
    power = _contraction()["power"]
    tried = "n = 3, m 8 to 4096: holds at each of 3,000 steps of 1 / lambda_max"
    measured = {"largest ratio": largest(power)}
    return judged(largest(power) <= 1 + 1e-12, tried, measured, yes=UNDER)


def initial_loss() -> Finding:
    """Lemma H.2, part 1: |y_i| <= B and L(0) = O(n B^2)."""
    _, y = windows(64_000, d=16, noise=0.05)
    samples = y.reshape(2000, 32)
    B = data_bound(32, 16, 0.05, _DELTA)
    outside = np.mean(np.abs(samples).max(axis=1) > B)
    worst = 0.5 * np.max(np.sum(samples**2, axis=1)) / (32 * B**2)
    return judged(
        worst <= 0.5,
        "2,000 samples of 32 windows of 16 steps, delta 0.05: L(0) <= n B^2 / 2 in each, though "
        "|y_i| <= B with constant 1 fails more often than delta",
        {"share of samples with a target beyond B": outside, "largest L(0) / (n B^2)": worst},
    )


def residual_norm() -> Finding:
    """Lemma H.2, part 2: ||F(t) - y|| = O(sqrt(n) B) along runs."""
    worst = 0.0
    for m in WIDTHS[:3]:
        X, y = windows(16)
        w, a = network(m)
        run = attention_ntk.gradient_descent(X, y, w, a, max_iter=300, tol=0.0)
        norms = np.sqrt(2 * run.losses) / (4 * data_bound(16, 8, 0.05, _DELTA))
        worst = largest(worst, float(norms.max()))
    measured = {"largest ||F - y|| / (sqrt(n) B)": worst}
    return judged(worst <= 1, "n = 16, m 64 to 1024, 300 steps: constant 1 serves", measured)


def gradient_size() -> Finding:
    """Lemma H.3: |dw_r| <= sqrt(n/m) exp(c B^2) ||F - y||."""
    worst = 0.0
    for m in WIDTHS:
        X, y = windows(16)
        w, a = network(m)

        def ratio(step: Step, y: Array = y, m: int = m) -> bool:
            nonlocal worst
            bound = np.sqrt(len(y) / m) * np.sqrt(2 * step.loss)
            worst = largest(worst, float(np.abs(step.gradient).max() / bound))
            return False

        attention_ntk.gradient_descent(X, y, w, a, max_iter=50, tol=0.0, watch=ratio)
    B = data_bound(16, 8, 0.05, _DELTA)
    c = largest(0.0, np.log(worst)) / B**2
    return judged(
        c <= 1,
        "n = 16, m 64 to 4096, 50 steps: constants 1 serve",
        {"largest ratio": worst, "c needed": c, "B^3, the bound without c": B**3},
    )


def weights_stay() -> Finding:
    """Lemma H.4: R <= lambda / n, which width buys: R ~ m^(-1/2)."""
    X, _ = windows(3)
    radius = _contraction()["radius"][-len(WIDTHS) :]
    lam = smallest_value(X, network(4096)[0])
    exponent = slope(WIDTHS, radius)
    needed = WIDTHS[-1] * (radius[-1] * 3 / lam) ** 2
    return judged(
        -0.7 < exponent < -0.3 and radius[-1] > lam / 3,
        "n = 3, 3,000 steps: R falls with m as claimed; lambda / n is reached at the width "
        "extrapolated, far above those tried",
        {"R at m 64": radius[0], "at m 4096": radius[-1], "exponent in m": exponent,
         "lambda / n": lam / 3, "width extrapolated": needed},
        yes=UNDER,
    )  # fmt: skip
