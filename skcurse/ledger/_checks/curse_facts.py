"""[Curse], Appendix B: probability tools and facts."""

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from skcurse.ledger._checks._draws import softmax, windows
from skcurse.ledger._finding import UNDER, Finding, identity, judged, largest, smallest
from skcurse.theory import ntk, tilted_moments


def hoeffding() -> Finding:
    """Lemma B.1: exact two-sided tails of Bernoulli sums against the bound."""
    worst = 0.0
    for n in (1, 2, 5, 20, 100, 500):
        for p in (0.5, 0.2, 0.02):
            t = np.linspace(0.02, 1.0, 50) * n
            tail = binom.sf(np.ceil(n * p + t - 1e-9) - 1, n, p)
            tail += binom.cdf(np.floor(n * p - t + 1e-9), n, p)
            bound = np.minimum(1.0, 2 * np.exp(-2 * t**2 / n))
            worst = largest(worst, float(np.max(tail[bound > 1e-280] / bound[bound > 1e-280])))
    tried = "sums of 1 to 500 Bernoulli variables, 50 thresholds each"
    return judged(worst <= 1 + 1e-12, tried, {"largest tail over bound": worst})


def gaussian_product() -> Finding:
    """Fact B.3: the characteristic function of <a, h> by quadrature."""
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    weight = weight / weight.sum()
    rng, error = np.random.default_rng(0), 0.0
    for n in (1, 3, 8):
        a = rng.normal(size=n)
        s = np.linspace(-2, 2, 21) / np.linalg.norm(a)
        factors = np.cos(s[:, None, None] * a[None, :, None] * node) @ weight
        error = largest(error, np.abs(factors.prod(1) - np.exp(-0.5 * s**2 * (a @ a))).max())
    return identity(error, "characteristic functions of 1, 3 and 8 terms, by quadrature")


def gaussian_sum() -> Finding:
    """Fact B.4: the characteristic function of a sum of two independent Gaussians."""
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    weight, error, s = weight / weight.sum(), 0.0, np.linspace(-2, 2, 21)
    for noise in (0.05, 0.5, 1.0):
        both = np.cos(s[:, None] * node) @ weight * (np.cos(noise * s[:, None] * node) @ weight)
        error = largest(error, np.abs(both - np.exp(-0.5 * s**2 * (1 + noise**2))).max())
    return identity(error, "variance 1 plus noise variance, noise 0.05 to 1, by quadrature")


def gaussian_tail() -> Finding:
    """Fact B.5: the constant C in |X| <= C sigma sqrt(log(1/delta))."""
    delta = np.geomspace(1e-14, 0.1, 200)
    constant = -ndtri(delta / 2) / np.sqrt(np.log(1 / delta))
    outside = 2 * ndtr(-np.sqrt(np.log(10.0)))
    return judged(
        bool(np.all(constant <= np.sqrt(2))) and constant[-1] > 1,
        "delta 1e-14 to 0.1: C = sqrt(2) always serves, C = 1 does not",
        {
            "C needed at delta 0.1": constant[-1],
            "C needed at delta 1e-14": constant[0],
            "probability outside at C = 1, delta 0.1": outside,
        },
        yes=UNDER,
    )


def exponential() -> Finding:
    """Fact B.6: (exp(x) - 1 - x) / x^2 near 0."""
    x = np.concatenate([-np.geomspace(1e-12, 0.01, 200), np.geomspace(1e-12, 0.01, 200)])
    # expm1(x) - x loses all digits for small x; the series does not.
    ratio = 0.5 + x / 6 + x**2 / 24 + x**3 / 120
    wide = np.abs(x) > 1e-3
    direct = (np.expm1(x[wide]) - x[wide]) / x[wide] ** 2
    low, high = smallest(ratio.min(), direct.min()), largest(ratio.max(), direct.max())
    measured = {"smallest factor of x^2": low, "largest": high}
    return judged(0.49 <= low <= high <= 0.51, "400 points of (-0.01, 0.01)", measured)


def smallest_eigenvalue() -> Finding:
    """Fact B.7: lambda_min(A) >= lambda_min(B) - ||A - B||_F."""
    rng, slack = np.random.default_rng(0), np.inf
    for n in (2, 5, 20):
        for size in (1e-6, 1e-2, 1.0):
            a = rng.normal(size=(n, n))
            b = a @ a.T
            e = rng.normal(size=(n, n))
            change = size * (e + e.T)
            low = np.linalg.eigvalsh(b + change)[0] - np.linalg.eigvalsh(b)[0]
            slack = smallest(slack, (low + np.linalg.norm(change)) / np.linalg.norm(change))
    X, _ = windows(6)
    w = rng.normal(size=64)
    before, after = (ntk.neural_tangent_kernel(X, None, v) for v in (w, w + 0.1))
    gap = np.linalg.norm(after - before)
    low = np.linalg.eigvalsh(after)[0] - np.linalg.eigvalsh(before)[0]
    slack = smallest(slack, (low + gap) / gap)
    measured = {"smallest slack over the norm": slack}
    return judged(slack >= 0, "random matrices of 2 to 20 rows and a tangent kernel", measured)


def tilted_variance() -> Finding:
    """Fact B.8: the variance under a softmax against the plain one."""
    X, _ = windows(200, d=16)
    w = np.linspace(-4, 4, 33)
    _, var = tilted_moments.tilted_moments(X, w)
    smallest = softmax(X, w).min(axis=2)
    ratio = var / X.var(axis=1)[:, None]
    share = (ratio / (X.shape[1] * smallest)).min()
    return judged(
        share >= 1 - 1e-9 and ratio.min() < 0.01,
        "c = d min_k S_k serves for 200 windows and w in [-4, 4]; no c > 0 serves for every S",
        {"smallest variance over c v": share, "smallest variance over v": ratio.min()},
        yes=UNDER,
    )


def geometric_sum() -> Finding:
    """Fact B.9: powers and geometric sums of 1 - x."""
    x = np.concatenate([np.geomspace(1e-6, 0.5, 40), 1 - np.geomspace(1e-6, 0.5, 40)])
    worst = -np.inf
    for t in (0, 1, 2, 10, 1000):
        total = np.sum((1 - x[:, None]) ** np.arange(t), axis=1)
        worst = largest(worst, np.max(x * total - 1), np.max((1 - x) ** t - np.exp(-x * t)))
    tried = "80 values of x in (0, 1), t from 0 to 1000: sum <= 1/x and power <= exp(-x t)"
    return judged(worst <= 1e-12, tried, {"largest excess": worst})
