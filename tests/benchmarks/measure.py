"""Times of contenders that take turns, and what they were taken on."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from threadpoolctl import ThreadpoolController

PACKAGES = ["skcurse", "numpy", "scipy", "scikit-learn", "torch", "jax"]

Times = dict[str, list[float]]

#: Both cores for our contenders, as estimators with ``n_jobs=-1`` use them.
on_all_cores = ThreadPoolExecutor(os.cpu_count()).map


def on_one_blas_thread(run: Callable[[], Any]) -> Callable[[], Any]:
    """Leave the cores to our own workers: small factorisations gain nothing from both."""
    controller = ThreadpoolController()

    def limited() -> Any:
        with controller.limit(limits=1, user_api="blas"):
            return run()

    return limited


def take_turns(
    contenders: dict[str, Callable[[], Any]], rounds: int = 5, seconds: float = 0.2
) -> Times:
    """Seconds a call of every contender, once a round, after a round of warm-up.

    A contender that is quicker than `seconds` is called again and again for that long, and the
    mean is its time in this round.
    """
    times: Times = {name: [] for name in contenders}
    calls = {}
    for name, run in contenders.items():
        run()
        start = time.perf_counter()
        run()
        calls[name] = max(1, int(seconds / (time.perf_counter() - start)))
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                run()
            times[name].append((time.perf_counter() - start) / calls[name])
    return times


def ratio_row(label: str, times: Times, ours: str, peers: list[str]) -> dict[str, Any]:
    """One line of the table: ours against the best peer, round by round."""
    best = min(peers, key=lambda peer: statistics.median(times[peer]))
    ratios = [theirs / mine for theirs, mine in zip(times[best], times[ours], strict=True)]
    return {
        "what": label,
        "best_peer": best,
        "ours_ms": 1e3 * statistics.median(times[ours]),
        "peer_ms": 1e3 * statistics.median(times[best]),
        "ratio_min": min(ratios),
        "ratio_median": statistics.median(ratios),
        "ratio_max": max(ratios),
        "all_ms": {name: [1e3 * value for value in values] for name, values in times.items()},
    }


def print_row(row: dict[str, Any]) -> None:
    """Print one line of the table, and what else was noted about it."""
    print(
        f"{row['what']:<44} {row['ours_ms']:>11.4f} {row['peer_ms']:>11.2f} "
        f"{row['ratio_min']:>9.4g} {row['ratio_median']:>9.4g} {row['ratio_max']:>9.4g}  "
        f"{row['best_peer']}",
        flush=True,
    )
    for name, value in row.get("notes", {}).items():
        print(f"    {name}: {value:.4g}", flush=True)


def print_header() -> None:
    """Print the head of the table."""
    print(
        f"{'':<44} {'ours, ms':>11} {'peer, ms':>11} {'min':>9} {'median':>9} {'max':>9}  best peer"
    )


def surroundings() -> dict[str, Any]:
    """Versions, threads and the machine."""
    return {
        "versions": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "machine": platform.machine(),
        "threads": {
            name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        },
    }
