"""Prediction from the compressed measure of the neurons against the direct sum over them."""

from collections.abc import Callable
from functools import partial

import numpy as np
from attention_step import problem
from measure import on_all_cores, print_header, print_row, ratio_row, take_turns

from skcurse.theory.attention_network import forward
from skcurse.theory.attention_ntk import linearised_forward
from skcurse.theory.collocation import CollocationTable
from skcurse.theory.collocation_descent import TableDescent, accurate_table
from skcurse.theory.compression import CompressedNetwork, compressed_forward
from skcurse.theory.infinite_width import infinite_width_forward
from skcurse.theory.kernel_table import GAUSSIAN_INTERVAL
from skcurse.theory.lazy_descent import lazy_stable_rate, lazy_weights
from skcurse.theory.tabulated_lazy import CompressedLazyModel, tabulated_lazy_model

TRAIN, UNSEEN = slice(0, 1024), slice(1024, 1088)


def compare(
    label: str, X: np.ndarray, network: CompressedNetwork, direct: Callable, rounds: int
) -> list[dict]:
    """Rows of the table: many unseen rows, some of which may not be covered, and one."""
    found = []
    for size, windows in (("64 rows", X[UNSEEN]), ("1 row", X[UNSEEN][:1])):
        compressed = partial(compressed_forward, windows, network, direct, map=on_all_cores)
        summed = partial(direct, windows, map=on_all_cores)
        error = np.abs(compressed() - summed()).max()
        times = take_turns({"compressed": compressed, "direct sum": summed}, rounds)
        row = ratio_row(f"predict, {label}, {size}", times, "compressed", ["direct sum"])
        row["notes"] = {"largest difference": error, "nodes": network.weights.size}
        found.append(row)
    return found


def finite(rounds: int, n_neurons: int = 1_000_000) -> list[dict]:
    """Rows for a network after 50 steps of gradient descent."""
    X, y, weights, signs = problem(2048, n_neurons, 32)
    table = accurate_table(X[TRAIN], y[TRAIN], weights, signs)
    descent = TableDescent(table, weights, signs)
    steps = descent.steps(0.5 * table.largest_stable_rate(weights))
    for _ in range(50):
        next(steps)
    direct = partial(forward, weights=descent.weights(), signs=signs)
    return compare(f"m = {n_neurons:,}", X, descent.network(), direct, rounds)


def trained(
    table: CollocationTable, X: np.ndarray, measure: tuple[np.ndarray, ...]
) -> tuple[CompressedNetwork, np.ndarray]:
    """Nodes and displacement of a linear model after 1,000 steps."""
    model = tabulated_lazy_model(table, *measure)
    steps = {"n_steps": 1000, "learning_rate": 0.5 * lazy_stable_rate(model)}
    network = CompressedLazyModel(table.skeleton, X[TRAIN], model, *measure).network(**steps)
    return network, lazy_weights(model, **steps).T


def lazy(rounds: int, n_neurons: int = 100_000) -> list[dict]:
    """Rows for a linearised network."""
    X, y, weights, signs = problem(2048, n_neurons, 32)
    table = accurate_table(X[TRAIN], y[TRAIN], weights, signs)
    masses = signs / np.sqrt(n_neurons)
    network, moved = trained(table, X, (weights, masses, masses))
    direct = partial(
        linearised_forward, weights=weights + moved, initial_weights=weights, signs=signs
    )
    return compare(f"lazy, m = {n_neurons:,}", X, network, direct, rounds)


def infinite(rounds: int) -> list[dict]:
    """Rows for the infinitely wide network, whose direct sum has about a thousand terms."""
    X, y, *_ = problem(2048, 2, 32)
    table = CollocationTable(X[TRAIN], y[TRAIN], interval=GAUSSIAN_INTERVAL)
    nodes = table.gaussian_nodes()
    measure = (nodes.points, nodes.roots, np.zeros_like(nodes.roots))
    network, moved = trained(table, X, measure)
    direct = partial(infinite_width_forward, weights=moved, breaks=nodes.breaks)
    return compare(f"m = inf, {nodes.points.size:,} terms", X, network, direct, rounds)


def rows(rounds: int = 3) -> list[dict]:
    """All rows of this part of the table."""
    return [*finite(rounds), *lazy(rounds), *infinite(rounds)]


if __name__ == "__main__":
    print_header()
    for row in rows():
        print_row(row)
