"""Time of the exact population gradient against Monte Carlo of 1 % accuracy, and of full runs.

Run as ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python tests/benchmarks/icl_population_speed.py``;
the two sides are timed in turn, in one process.
"""

import time

import numpy as np

from skcurse.theory.icl_population import population_descent, population_gradient

ACCURACY = 0.01


def sampled_counts(p, n_context, n_draws, rng):
    """Counts of `n_draws` prompts, straight from the multinomial law."""
    return rng.multinomial(n_context, p, size=n_draws)


def tokenwise_counts(p, n_context, n_draws, rng):
    """Counts of `n_draws` prompts drawn token by token, as a simulation of prompts has them."""
    cumulative = np.cumsum(p)
    tokens = [np.searchsorted(cumulative, rng.random(n_context)) for _ in range(n_draws)]
    return np.stack([np.bincount(t, minlength=p.size)[: p.size] for t in tokens])


def rates_of_counts(logits, p, counts, query):
    """Rates of prompts with these counts whose query feature is `query`, one row a prompt."""
    attn = counts * np.exp(logits)
    attn /= attn.sum(axis=1, keepdims=True)
    a = attn[:, query]
    square = (attn**2).sum(axis=1) - a**2
    rates = attn * (square - a * (1 - a))[:, None] - attn**2
    rates[:, query] = a * (square + (1 - a) ** 2)
    return p[query] * rates


def seconds(function, repeats):
    """Median wall time of `function`."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def compare(name, logits, p, n_context, query=0):
    """Print one row: exact time, and times of two Monte Carlos at 1 % of the rates' norm."""
    rng = np.random.default_rng(0)
    pilot = rates_of_counts(logits, p, sampled_counts(p, n_context, 400, rng), query)
    exact = population_gradient(logits, p, n_context, query).rates
    draws = pilot.var(axis=0, ddof=1).sum() / (ACCURACY**2 * (exact @ exact))
    n_draws = max(int(np.ceil(draws)), 1)

    def sample(counts, timed):
        return rates_of_counts(logits, p, counts(p, n_context, timed, rng), query).mean(axis=0)

    # Long samples are timed on a part: their cost is proportional to the number of draws.
    sides = {
        "exact": (lambda: population_gradient(logits, p, n_context, query), 1.0),
        "counts": (lambda: sample(sampled_counts, min(n_draws, 2000)), max(1, n_draws / 2000)),
        "tokens": (lambda: sample(tokenwise_counts, min(n_draws, 20)), max(1, n_draws / 20)),
    }
    times = {side: [] for side in sides}
    for _ in range(5):
        for side, (function, scale) in sides.items():
            times[side].append(scale * seconds(function, 20 if side == "exact" else 2))
    t = {side: 1e3 * np.median(values) for side, values in times.items()}
    print(
        f"{name:26s} K={p.size:4d} N={n_context:7d} exact {t['exact']:6.3f} ms |"
        f" {n_draws:6d} draws:"
        f" counts {t['counts']:8.2f} ms ratio {t['counts'] / t['exact']:7.1f},"
        f" tokens {t['tokens']:9.1f} ms ratio {t['tokens'] / t['exact']:8.0f}"
    )


def main():
    """Print the gradient table and the time of 10,000 steps of the imbalanced problem."""
    print("Gradient for one query feature, and Monte Carlo to 1 % of the norm of its rates.")
    print("Prompts whose query is another feature are not counted; with them, divide by p[query].")
    for k, n in [(10, 100), (50, 5000), (200, 100_000)]:
        rng = np.random.default_rng(k)
        dirichlet = rng.dirichlet(np.ones(k))
        trained = np.append(np.log(k) + 3, np.full(k - 1, -0.1))
        compare("all p and logits distinct", rng.normal(size=k), dirichlet, n)
        compare("balanced, untrained", np.zeros(k), np.full(k, 1 / k), n)
        compare("balanced, trained", trained, np.full(k, 1 / k), n)
    p = np.append(0.5, np.full(49, 0.5 / 49))
    start = time.perf_counter()
    population_descent(p, 5000, learning_rate=1.0, n_iter=10_000)
    print(f"10,000 steps, K = 50 imbalanced, all queries: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
