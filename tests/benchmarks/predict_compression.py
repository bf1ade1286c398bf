"""Prediction with a million neurons from their compressed measure against the direct sum."""

from functools import partial

import numpy as np
from attention_step import problem
from measure import print_header, print_row, ratio_row, take_turns

from skcurse.theory.attention_network import forward
from skcurse.theory.collocation_descent import TableDescent, accurate_table
from skcurse.theory.compression import compressed_forward


def rows(rounds: int = 3, n_neurons: int = 1_000_000) -> list[dict]:
    """Rows of the table: many unseen rows, some of which may not be covered, and one."""
    X, y, weights, signs = problem(2048, n_neurons, 32)
    train, unseen = slice(0, 1024), slice(1024, 1088)
    table = accurate_table(X[train], y[train], weights, signs)
    descent = TableDescent(table, weights, signs)
    steps = descent.steps(0.5 * table.largest_stable_rate(weights))
    for _ in range(50):
        next(steps)
    network, trained = descent.network(), descent.weights()
    found = []
    for label, windows in (("64 rows", X[unseen]), ("1 row", X[unseen][:1])):
        direct = partial(forward, windows, trained, signs)
        compressed = partial(
            compressed_forward, windows, network, partial(forward, weights=trained, signs=signs)
        )
        error = np.abs(compressed() - direct()).max()
        times = take_turns({"compressed": compressed, "direct sum": direct}, rounds)
        row = ratio_row(f"predict, m = {n_neurons:,}, {label}", times, "compressed", ["direct sum"])
        row["notes"] = {"largest difference": error, "nodes": network.weights.size}
        found.append(row)
    return found


if __name__ == "__main__":
    print_header()
    for row in rows():
        print_row(row)
