"""Gradient and loss from the table against the direct formula along whole training runs.

Run as ``python tests/benchmarks/attention_accuracy.py``; the folder that holds ETTh1.csv is taken
from the environment variable SKCURSE_ETT_DIR, and left out without it. The last line compares
transported neurons with those followed one by one.
"""

import os
from pathlib import Path

import numpy as np

from skcurse.datasets import make_residual_ssm, make_windows
from skcurse.theory.attention_network import initial_network, loss_gradient
from skcurse.theory.collocation_descent import TableDescent, accurate_table
from skcurse.theory.descent import follow
from skcurse.theory.transport import neurons_as_particles

N_NEURONS, N_STEPS, EVERY = 256, 2000, 20


def data() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Windows and targets by name."""
    rng = np.random.default_rng(0)
    heavy = rng.standard_t(3, (500, 32))
    found = {
        "state space model": make_residual_ssm(500, 32, random_state=0),
        "Student t, 3 degrees of freedom": (heavy, heavy[:, -1] + rng.standard_t(3, 500)),
    }
    if folder := os.environ.get("SKCURSE_ETT_DIR"):
        path = Path(folder) / "ETTh1.csv"
        series = np.loadtxt(path, delimiter=",", skiprows=1, usecols=7)[:8640]
        X, y = make_windows((series - series.mean()) / series.std(), 32)
        found["ETTh1"] = np.array(X[::17]), np.array(y[::17])
    return found


def along_a_run(X: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Largest relative errors of gradient and loss, and the share of the loss that is left."""
    weights, signs = initial_network(N_NEURONS, np.random.default_rng(1))
    table = accurate_table(X, y, weights, signs)
    steps = TableDescent(table, weights, signs).steps(0.5 * table.largest_stable_rate(weights))
    gradient_error = loss_error = 0.0
    for step in steps:
        if step.n_iter % EVERY == 0:
            exact = loss_gradient(X, y, step.weights, signs)
            if step.n_iter == 0:
                first = exact
            gap = np.linalg.norm(step.gradient - exact.gradient)
            gradient_error = max(gradient_error, gap / np.linalg.norm(first.gradient))
            loss_error = max(loss_error, abs(step.loss / exact.loss - 1.0))
        if step.n_iter == N_STEPS:
            return gradient_error, loss_error, step.loss / first.loss
    raise AssertionError


def transport(n_neurons: int = 20_000, n_steps: int = 10_000) -> tuple[float, float, int]:
    """Largest errors of weights and losses of transported neurons, and how many particles moved."""
    X, y = make_residual_ssm(512, 16, random_state=0)
    weights, signs = initial_network(n_neurons, np.random.default_rng(1))
    table = accurate_table(X, y, weights, signs)
    rate = 0.5 * table.largest_stable_rate(weights)
    runs = []
    for alone in (False, True):
        descent = TableDescent(table, weights, signs)
        if alone:
            descent._particles = [neurons_as_particles(weights, signs)]
            descent._positions = [weights]
        else:
            transported = descent
        runs.append(
            follow(
                descent.steps(rate),
                learning_rate=rate,
                largest_stable_rate=lambda: 2.0 * rate,
                max_iter=n_steps,
                tol=0.0,
            )
        )
    moved = np.abs(runs[0].weights - runs[1].weights).max()
    losses = np.abs(runs[0].losses / runs[1].losses - 1.0).max()
    return float(moved), float(losses), transported.n_particles


def main() -> None:
    """Print the errors."""
    for name, (X, y) in data().items():
        gradient, loss, left = along_a_run(X, y)
        print(
            f"{name:<32} {X.shape}: gradient {gradient:.1e}, loss {loss:.1e} "
            f"(loss falls to {left:.3g} of the first in {N_STEPS} steps)"
        )
    moved, losses, particles = transport()
    print(f"transport, m = 20,000 by {particles} particles: weights {moved:.1e}, loss {losses:.1e}")


if __name__ == "__main__":
    main()
