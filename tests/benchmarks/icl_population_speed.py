"""Time of the exact population gradient against Monte Carlo of 1 % accuracy, and of full runs.

Run as ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python tests/benchmarks/icl_population_speed.py``;
the two sides are timed in turn, in one process.
"""

import time

import numpy as np
from measure import print_header, print_row, ratio_row, take_turns

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


def race(logits, p, n_context, rounds, query=0):
    """Times of the exact gradient and of two Monte Carlos at 1 % of the rates' norm."""
    rng = np.random.default_rng(0)
    pilot = rates_of_counts(logits, p, sampled_counts(p, n_context, 400, rng), query)
    exact = population_gradient(logits, p, n_context, query).rates
    draws = pilot.var(axis=0, ddof=1).sum() / (ACCURACY**2 * (exact @ exact))
    n_draws = max(int(np.ceil(draws)), 1)

    def sample(counts, timed):
        return rates_of_counts(logits, p, counts(p, n_context, timed, rng), query).mean(axis=0)

    # Long samples are timed on a part: their cost is proportional to the number of draws.
    parts = {"counts": min(n_draws, 2000), "tokens": min(n_draws, 20)}
    contenders = {
        "exact": lambda: population_gradient(logits, p, n_context, query),
        "counts": lambda: sample(sampled_counts, parts["counts"]),
        "tokens": lambda: sample(tokenwise_counts, parts["tokens"]),
    }
    times = take_turns(contenders, rounds, seconds=0.05)
    for side, part in parts.items():
        times[side] = [n_draws / part * t for t in times[side]]
    return times


def rows(rounds=5):
    """Rows of the table: Monte Carlo from drawn counts, and token by token."""
    found = []
    for k, n in [(10, 100), (50, 5000), (200, 100_000)]:
        rng = np.random.default_rng(k)
        trained = np.append(np.log(k) + 3, np.full(k - 1, -0.1))
        cases = {
            "distinct": (rng.normal(size=k), rng.dirichlet(np.ones(k))),
            "untrained": (np.zeros(k), np.full(k, 1 / k)),
            "trained": (trained, np.full(k, 1 / k)),
        }
        for case, (logits, p) in cases.items():
            times = race(logits, p, n, rounds)
            for peer in ("counts", "tokens"):
                label = f"ICL rates, K = {k}, N = {n}, {case}"
                found.append(ratio_row(label, times, "exact", [peer]))
    return found


def main():
    """Print the table of gradients and the time of 10,000 steps of the imbalanced problem."""
    print_header()
    for row in rows():
        print_row(row)
    p = np.append(0.5, np.full(49, 0.5 / 49))
    start = time.perf_counter()
    population_descent(p, 5000, learning_rate=1.0, n_iter=10_000)
    print(f"10,000 steps, K = 50 imbalanced, all queries: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
