"""How the time and the memory of a step grow with n, m and d: a log-log figure.

Run as ``python tests/benchmarks/attention_scaling.py [figure.png]``.
"""

import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import matplotlib as mpl
import numpy as np
from attention_step import problem

from skcurse.theory.attention_network import loss_gradient
from skcurse.theory.collocation_descent import TableDescent, accurate_table

mpl.use("Agg")
import matplotlib.pyplot as plt

AXES = {
    "n": [(n, 2000, 32) for n in (128, 512, 2048, 8192, 32_768)],
    "m": [(512, m, 32) for m in (500, 2000, 8000, 32_000, 128_000, 512_000)],
    "d": [(512, 2000, d) for d in (8, 16, 32, 64, 128)],
}
# The direct formula is timed up to this many exponentials a step.
LARGEST_DIRECT = 3e8


def cost(run: Callable[[], Any], repeats: int = 5) -> tuple[float, float]:
    """Median seconds and peak bytes of one call."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(np.median(times)), float(peak)


def costs(shape: tuple[int, int, int]) -> dict[str, tuple[float, float]]:
    """Time and memory of a step of the table and of the direct formula."""
    X, y, weights, signs = problem(*shape)
    table = accurate_table(X, y, weights, signs)
    steps = TableDescent(table, weights, signs).steps(1e-6)
    deque(islice(steps, 40), maxlen=0)  # the first steps look after the particles more often
    found = {"table": cost(partial(next, steps), 50)}
    if np.prod(shape, dtype=float) <= LARGEST_DIRECT:
        found["direct"] = cost(partial(loss_gradient, X, y, weights, signs))
    return found


def main(path: str = "attention_scaling.png") -> None:
    """Measure, print and draw."""
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), sharey="row", layout="constrained")
    for column, (name, shapes) in enumerate(AXES.items()):
        sizes = [shape["nmd".index(name)] for shape in shapes]
        found = [costs(shape) for shape in shapes]
        for size, one in zip(sizes, found, strict=True):
            text = ", ".join(
                f"{k} {1e3 * t:.3g} ms {b / 2**20:.3g} MB" for k, (t, b) in one.items()
            )
            print(f"{name} = {size:>8}: {text}", flush=True)
        for solver in ("direct", "table"):
            known = [(s, one[solver]) for s, one in zip(sizes, found, strict=True) if solver in one]
            for row, unit in ((0, 1e3), (1, 2.0**-20)):
                values = [pair[row] * unit for _, pair in known]
                axes[row, column].loglog([s for s, _ in known], values, "o-", label=solver)
        axes[0, column].set_title(f"another {name}")
        axes[1, column].set_xlabel(name)
    axes[0, 0].set_ylabel("time of a step, ms")
    axes[1, 0].set_ylabel("memory of a step, MB")
    axes[0, 0].legend()
    figure.suptitle("A step of gradient descent at (n, m, d) = (512, 2000, 32)")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
