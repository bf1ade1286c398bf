"""A step of gradient descent from the collocation table against PyTorch and JAX.

Every peer is tuned first: chunk sizes and variants run a short race on part of the rows, and the
best variant of each goes into the measurement. The direct formula of this package takes part too.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import numpy as np
from attention_peers import VARIANTS, chunk_sizes
from measure import on_all_cores, print_header, print_row, ratio_row, take_turns

from skcurse.datasets import make_residual_ssm
from skcurse.theory.attention_network import initial_network, loss_gradient
from skcurse.theory.collocation_descent import TableDescent, accurate_table
from skcurse.theory.descent import Step

SHAPES = [(512, 1024, 32), (4096, 4096, 64)]


def problem(n_samples: int, n_neurons: int, n_features: int) -> tuple[np.ndarray, ...]:
    """Windows of a residual state space model, and an antisymmetric network."""
    X, y = make_residual_ssm(n_samples, n_features, random_state=0)
    return X, y, *initial_network(n_neurons, np.random.default_rng(0))


def tuned(data: tuple[np.ndarray, ...], n_rows: int = 128) -> dict[str, Callable[[], np.ndarray]]:
    """Steps of the peers on all rows, with the chunk sizes that win a race on the first ones."""
    X, y, weights, signs = data
    part = (X[:n_rows], y[:n_rows], weights, signs)
    exact = loss_gradient(*part).gradient
    steps = {}
    for name, make in VARIANTS.items():
        race = {
            chunk: partial(make(*part, chunk), weights)
            for chunk in chunk_sizes(n_rows, weights.size, X.shape[1])
        }
        for step in race.values():
            np.testing.assert_allclose(step(), exact, atol=1e-10, err_msg=name)
        times = take_turns(race, 3, 0.05)
        best = min(race, key=lambda chunk: np.median(times[chunk]))
        steps[f"{name}, {best} rows a chunk"] = partial(make(*data, best), weights)
    return steps


def settled(descent: TableDescent, rate: float) -> Iterator[Step]:
    """Leave behind the first steps, which look after the particles more often."""
    steps = descent.steps(rate)
    deque(islice(steps, 40), maxlen=0)
    return steps


def measure(shape: tuple[int, int, int], rounds: int = 5) -> list[dict]:
    """Rows of the table for one shape."""
    data = X, y, weights, signs = problem(*shape)
    peers = tuned(data)
    start = time.perf_counter()
    table = accurate_table(X, y, weights, signs, map=on_all_cores)
    descent = TableDescent(table, weights, signs)
    set_up = time.perf_counter() - start
    run = settled(descent, 0.5 * table.largest_stable_rate(weights))
    direct = partial(loss_gradient, X, y, weights, signs, map=on_all_cores)
    times = take_turns({"table": partial(next, run), "direct": direct, **peers}, rounds)
    label = f"(n, m, d) = {shape}"
    step = ratio_row(f"GD step, {label}", times, "table", list(peers))
    step["notes"] = {
        "set-up, ms": 1e3 * set_up,
        "steps until it has paid for itself": 1e3 * set_up / (step["peer_ms"] - step["ours_ms"]),
        "moving particles": descent.n_particles,
    }
    return [step, ratio_row(f"direct formula, {label}", times, "direct", list(peers))]


def flatness(rounds: int = 5) -> list[dict]:
    """Step times as one size grows and the others stay: within a factor of two of each other."""
    rows = []
    for label, first, last in [
        ("n = 512 -> 50,000", (512, 2000, 32), (50_000, 2000, 32)),
        ("d = 16 -> 128", (512, 2000, 16), (512, 2000, 128)),
        ("m = 2,000 -> 1,000,000", (512, 2000, 32), (512, 1_000_000, 32)),
    ]:
        runs = {}
        for name, shape in (("small", first), ("large", last)):
            X, y, weights, signs = problem(*shape)
            table = accurate_table(X, y, weights, signs, map=on_all_cores)
            rate = 0.5 * table.largest_stable_rate(weights)
            runs[name] = partial(next, settled(TableDescent(table, weights, signs), rate))
        times = take_turns(runs, rounds)
        rows.append(ratio_row(f"GD step grows, {label}", times, "small", ["large"]))
    return rows


def rows(rounds: int = 5) -> list[dict]:
    """All rows of this part of the table."""
    found = []
    for shape in SHAPES:
        found += measure(shape, rounds)
    return found + flatness(rounds)


if __name__ == "__main__":
    print_header()
    for row in rows():
        print_row(row)
