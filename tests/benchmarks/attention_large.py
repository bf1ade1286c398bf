"""A network of a million neurons on 100,000 windows: 10,000 steps, their time and their memory.

The largest memory is that of the process, so `run.py` starts this script as a process of its own.
It is read from Linux's VmHWM: ``ru_maxrss`` would carry over what the parent process had.
"""

import json
import time
from pathlib import Path

import numpy as np
from attention_step import problem
from measure import on_all_cores

from skcurse.theory.collocation_descent import TableDescent, accurate_table
from skcurse.theory.descent import follow


def peak_memory() -> float:
    """Gigabytes that this program has held at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) / 2**20


def run(
    n_samples: int = 100_000,
    n_neurons: int = 1_000_000,
    n_features: int = 32,
    n_steps: int = 10_000,
) -> dict[str, float]:
    """Seconds for set-up and steps, the largest memory, and the error of transport."""
    X, y, weights, signs = problem(n_samples, n_neurons, n_features)
    start = time.perf_counter()
    table = accurate_table(X, y, weights, signs, map=on_all_cores)
    rate = 0.5 * table.largest_stable_rate(weights)
    descent = TableDescent(table, weights, signs)
    ready = time.perf_counter()
    result = follow(
        descent.steps(rate),
        learning_rate=rate,
        largest_stable_rate=lambda: 2.0 * rate,
        max_iter=n_steps,
        tol=0.0,
    )
    done = time.perf_counter()
    return {
        "set-up, s": ready - start,
        "steps, s": done - ready,
        "peak memory, GB": peak_memory(),
        "moving particles": descent.n_particles,
        "transport error": descent.transport_error,
        "loss, first": result.losses[0],
        "loss, last": result.losses[-1],
        "largest movement": float(np.abs(result.weights - weights).max()),
    }


if __name__ == "__main__":
    print(json.dumps(run()))
