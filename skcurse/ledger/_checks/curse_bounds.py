"""[Curse], Appendix K: the scales B and D, and the thirteen bounds on u, alpha, S and their drift.

With the constant sqrt(2) in ``|x| <= sqrt(2) B`` and ``|w| <= sqrt(2) D`` every exponent is at most
``2 sqrt(2) B^2 D``; the checks report the smallest constants that serve.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from skcurse.ledger._checks._draws import (
    Array,
    data_bound,
    network,
    softmax,
    weight_bound,
    windows,
)
from skcurse.ledger._finding import UNDER, Finding, identity, judged, largest
from skcurse.theory import attention_ntk, tilted_moments

_N, _D, _M, _NOISE, _DELTA = 32, 16, 256, 0.05, 0.05
_TRIED = "32 windows of 16 steps, m = 256, delta 0.05, 300 steps, five samples"


def data_scale() -> Finding:
    """Definition K.1."""
    grid = [(n, s, e) for n in (2, 64) for s in (0.0, 0.5) for e in (0.01, 0.1)]
    error = largest(
        abs(data_bound(n, 16, s, e) ** 2 - largest(1, (1 + s * s) * np.log(16 * n / e)))
        for n, s, e in grid
    )
    return identity(error, "n 2 and 64, noise 0 and 0.5, delta 0.01 and 0.1")


def weight_scale() -> Finding:
    """Definition K.2."""
    grid = [(m, e) for m in (1, 64, 4096) for e in (0.01, 0.1, 0.9)]
    error = largest(abs(weight_bound(m, e) ** 2 - largest(1, np.log(m / e))) for m, e in grid)
    return identity(error, "m 1 to 4096, delta 0.01 to 0.9")


def _share_beyond(values: Array, bound: float, tried: str) -> Finding:
    """Share of samples with a value beyond the bound, with constants 1 and sqrt(2)."""
    beyond = [float(np.mean(values > c * bound)) for c in (1.0, np.sqrt(2))]
    return judged(
        beyond[1] <= _DELTA < beyond[0],
        f"{tried}, delta 0.05: constant sqrt(2) serves, constant 1 does not",
        {"share of samples beyond": beyond[0], "with sqrt(2)": beyond[1]},
        yes=UNDER,
    )


def part_1() -> Finding:
    """|x_{i,k}| <= C B for all i, k."""
    X, _ = windows(2000 * _N, d=_D, noise=_NOISE)
    largest = np.abs(X).reshape(2000, -1).max(axis=1)
    bound = data_bound(_N, _D, _NOISE, _DELTA)
    return _share_beyond(largest, bound, "2,000 samples of 32 windows of 16 steps")


def _largest_weights() -> Array:
    w, _ = network(2000 * _M, paired=False)
    largest: Array = np.abs(w).reshape(2000, -1).max(axis=1)
    return largest


def part_2() -> Finding:
    """|w_r(0)| <= C D for all r."""
    return _share_beyond(
        _largest_weights(), weight_bound(_M, _DELTA), "2,000 networks of 256 neurons"
    )


def part_3() -> Finding:
    """|w_r(t)| <= C D + R: the triangle inequality, with the R of a run."""
    worst = -np.inf
    for _, _, w, trained, R in _runs():
        worst = largest(worst, float(np.max(np.abs(trained) - np.abs(w)) - R))
    shares = _share_beyond(
        _largest_weights(), weight_bound(_M, _DELTA), "as part 2, and five runs of 300 steps"
    )
    measured = {**shares.measured, "largest |w(t)| - |w(0)| - R": worst}
    return judged(worst <= 1e-12 and shares.verdict == UNDER, shares.tried, measured, yes=UNDER)


@lru_cache(maxsize=1)
def _runs() -> list[tuple[Array, Array, Array, Array, float]]:
    """Windows, signs, initial and trained weights and R, for five samples."""
    found = []
    for seed in range(5):
        X, y = windows(_N, d=_D, seed=seed, noise=_NOISE)
        w, a = network(_M, seed=seed)
        run = attention_ntk.gradient_descent(X, y, w, a, max_iter=300, tol=0.0)
        found.append((X, a, w, run.weights, float(np.abs(run.weights - w).max())))
    return found


def _u(X: Array, w: Array) -> Array:
    u: Array = np.exp((X[:, -1:] * w)[:, :, None] * X[:, None, :])
    return u


def _alpha(X: Array, w: Array) -> Array:
    """Return alpha / d."""
    total: Array = _u(X, w).mean(axis=2)
    return total


def _score(X: Array, w: Array) -> Array:
    """Return d times the softmax; its last entry is the library's."""
    S = softmax(X, w) * X.shape[1]
    S[:, :, -1] = tilted_moments.last_step_attention(X, w) * X.shape[1]
    return S


def _inverse(X: Array, w: Array) -> Array:
    inverse: Array = 1 / _alpha(X, w)
    return inverse


def _two_sided(quantity: Callable[[Array, Array], Array], *, trained: bool) -> Finding:
    """Smallest c with exp(-c E) <= quantity <= exp(c E), E = B^2 D or B^2 (D + R)."""
    low = high = 0.0
    for X, _, w, end, R in _runs():
        E = data_bound(_N, _D, _NOISE, _DELTA) ** 2 * (
            weight_bound(_M, _DELTA) + (R if trained else 0.0)
        )
        logs = np.log(quantity(X, end if trained else w)) / E
        low, high = largest(low, -float(logs.min())), largest(high, float(logs.max()))
    measured = {"c needed below": low, "above": high}
    return judged(largest(low, high) <= 2 * np.sqrt(2), _TRIED, measured)


def _drift(quantity: Callable[[Array, Array], Array]) -> Finding:
    """Smallest c >= 0 with |quantity(t) - quantity(0)| <= R B^2 exp(c B^2 D)."""
    c, ratio, largest_R = 0.0, 0.0, 0.0
    B, D = data_bound(_N, _D, _NOISE, _DELTA), weight_bound(_M, _DELTA)
    for X, _, w, end, R in _runs():
        bare = np.abs(quantity(X, end) - quantity(X, w)).max() / (R * B**2)
        ratio, largest_R = largest(ratio, float(bare)), largest(largest_R, R)
        c = largest(c, float(np.log(bare)) / (B**2 * D))
    measured = {"c needed": c, "largest drift over R B^2": ratio, "largest R": largest_R}
    return judged(c <= 2 * np.sqrt(2), _TRIED, measured)


def part_4() -> Finding:
    """Two-sided bound on u(0)."""
    return _two_sided(_u, trained=False)


def part_5() -> Finding:
    """Two-sided bound on u(t)."""
    return _two_sided(_u, trained=True)


def part_6() -> Finding:
    """Two-sided bound on alpha(0) / d."""
    return _two_sided(_alpha, trained=False)


def part_7() -> Finding:
    """Two-sided bound on alpha(t) / d."""
    return _two_sided(_alpha, trained=True)


def part_8() -> Finding:
    """Two-sided bound on d S(0)."""
    return _two_sided(_score, trained=False)


def part_9() -> Finding:
    """Two-sided bound on d S(t)."""
    return _two_sided(_score, trained=True)


def part_10() -> Finding:
    """Drift of u."""
    return _drift(_u)


def part_11() -> Finding:
    """Drift of alpha / d."""
    return _drift(_alpha)


def part_12() -> Finding:
    """Drift of d / alpha."""
    return _drift(_inverse)


def part_13() -> Finding:
    """Drift of d S."""
    return _drift(_score)
