"""[Curse], Section 5.1, Appendix F and I.5: stability of the kernel and of the outputs."""

from functools import lru_cache

import numpy as np

from skcurse.ledger._checks._draws import Array, data_bound, network, weight_bound, windows
from skcurse.ledger._finding import UNDER, Finding, judged, largest, slope, smallest
from skcurse.theory import attention_network, attention_ntk, ntk

WIDTHS = (64, 256, 1024, 4096)
_NOISE, _DELTA = 0.05, 0.05


def smallest_value(X: Array, w: Array) -> float:
    """Smallest eigenvalue of the kernel, by singular values; 0 below what they resolve."""
    values = ntk.ntk_singular_values(X, w)
    return float(values[-1] ** 2) if values[-1] > 1e-14 * values[0] else 0.0


@lru_cache(maxsize=1)
def _drifts() -> list[dict[str, float]]:
    """Movement R, drift of the kernel and of the outputs after 200 steps, for each width."""
    rows = []
    for m in WIDTHS:
        X, y = windows(8, noise=_NOISE)
        w, a = network(m, paired=False)
        run = attention_ntk.gradient_descent(X, y, w, a, max_iter=200, tol=0.0)
        H = [ntk.neural_tangent_kernel(X, None, v) for v in (w, run.weights)]
        F = [attention_network.forward(X, v, a) for v in (w, run.weights)]
        B, D = data_bound(8, 8, _NOISE, _DELTA), weight_bound(m, _DELTA)
        rows.append({
            "R": float(np.abs(run.weights - w).max()),
            "drift": float(np.linalg.norm(H[1] - H[0])),
            "output": float(np.abs(F[1] - F[0]).max()),
            "exponent": B**2 * D,
        })  # fmt: skip
    return rows


def drift() -> Finding:
    """Lemma F.4, part 1: ||H(t) - H(0)||_F <= n R exp(c B^2 D), with the smallest c >= 0."""
    rows = _drifts()
    ratio = [r["drift"] / (8 * r["R"]) for r in rows]
    c = largest(largest(0.0, np.log(q)) / r["exponent"] for q, r in zip(ratio, rows, strict=True))
    return judged(
        c <= 1,
        "8 windows, m 64 to 4096, 200 steps: constants 1 serve",
        {
            "largest drift over n R": largest(ratio),
            "c needed": c,
            "smallest exp(B^2 D)": np.exp(smallest(r["exponent"] for r in rows)),
            "exponent of R in m": slope(WIDTHS, [r["R"] for r in rows]),
        },
    )


def _largest_radius(X: Array, w: Array) -> float:
    """Largest of a geometric ladder of movements that keep lambda_min above half of its start."""
    half = 0.5 * smallest_value(X, w)
    directions = (1.0, -1.0, np.sign(w), -np.sign(w))
    for radius in np.geomspace(10.0, 1e-5, 25):
        if all(smallest_value(X, w + radius * v) >= half for v in directions):
            return float(radius)
    return 0.0


def eigenvalue() -> Finding:
    """Lemma F.4, part 2: movements that keep lambda_min(H) >= lambda/2."""
    radius, needed = {}, {}
    for n in (2, 3, 4, 6):
        X, _ = windows(n)
        w, _ = network(1024)
        radius[n] = _largest_radius(X, w)
        needed[n] = radius[n] * n / smallest_value(X, w)
    # Trained weights: the lemma needs R below the radius, which width buys.
    X, y = windows(3)
    kept, moved = [], []
    for m in WIDTHS:
        w, a = network(m)
        run = attention_ntk.gradient_descent(X, y, w, a, max_iter=2000, tol=0.0)
        kept.append(smallest_value(X, run.weights) / smallest_value(X, w))
        moved.append(float(np.abs(run.weights - w).max()))
    return judged(
        smallest(needed.values()) >= 1 and radius[2] < 10 and kept[-1] >= 0.5,
        "worst of four shifts of all weights, n 2 to 6, and runs of 2,000 steps with n = 3: holds "
        "for small R only",
        {
            "radius at n 2": radius[2],
            "n 3": radius[3],
            "n 4": radius[4],
            "n 6": radius[6],
            "smallest n radius / lambda": smallest(needed.values()),
            "lambda(T)/lambda at m 64": kept[0],
            "m 4096": kept[-1],
            "R at m 64": moved[0],
            "R at m 4096": moved[-1],
        },
        yes=UNDER,
    )


def positive_definite() -> Finding:
    """Assumption F.3: lambda_min(H(0)) > 0."""
    found = {}
    for n in (2, 4, 8, 16, 64):
        X, _ = windows(n)
        found[n] = smallest_value(X, network(1024)[0])
    X, _ = windows(4)
    twice = smallest_value(np.vstack([X, X[:1]]), network(1024)[0])
    X[0, -1] = 0.0
    silent = smallest_value(X, network(1024)[0])
    return judged(
        smallest(found[2], found[4], found[8]) > 0 == twice == silent,
        "m = 1024, n distinct windows; not for a window twice or a query of 0; 0 stands for "
        "below 1e-28 of the largest",
        {
            **{f"lambda at n {n}": value for n, value in found.items()},
            "a window twice": twice,
            "query 0": silent,
        },
        yes=UNDER,
    )


def outputs() -> Finding:
    """Lemma I.5: |F(t) - F(0)| <= R exp(c B^2 D), up to constants."""
    rows = _drifts()
    ratio = [r["output"] / (np.sqrt(m) * r["R"]) for m, r in zip(WIDTHS, rows, strict=True)]
    bare = [r["output"] / r["R"] for r in rows]
    c = largest(largest(0.0, np.log(q)) / r["exponent"] for q, r in zip(bare, rows, strict=True))
    return judged(
        c <= 1,
        "8 windows, m 64 to 4096, 200 steps, independent signs: constants 1 serve at these "
        "widths, but the ratio to R grows with m, for signs and movements are not independent",
        {
            "|F(t) - F(0)| / R at m 64": bare[0],
            "at m 4096": bare[-1],
            "its exponent in m": slope(WIDTHS, bare),
            "largest ratio to sqrt(m) R": largest(ratio),
            "c needed": c,
        },
    )
