"""NLinear on ETTh1 and ETTh2: least squares in one pass against training in PyTorch.

Look-back 336, all seven channels through the same weights, horizons 96 to 720, 12, 4 and 4 months
for training, validation and test, standardised by the training rows. The test error is counted
twice: over all windows, and as published, where batches of 32 lose the last incomplete one. The
published values are those of Zeng, Chen, Zhang, Xu, arXiv:2205.13504.

Run as ``python tests/benchmarks/nlinear_ett.py``; the files are looked for in the folder that
SKCURSE_ETT_DIR names, else in scikit-learn's data folder, and downloaded if they are not there.
"""

import argparse
import json
import os
import statistics
import time
from typing import NamedTuple

import numpy as np
import torch
from measure import ratio_row, surroundings

from skcurse.datasets import fetch_ett, make_windows
from skcurse.estimators.residual_linear import ResidualLinearRegressor

N_STEPS, BATCH = 336, 32
TRAIN, VALIDATION, TEST = (
    slice(0, 8640),
    slice(8640 - N_STEPS, 11520),
    slice(11520 - N_STEPS, 14400),
)
PUBLISHED = {
    "ETTh1": {96: 0.374, 192: 0.408, 336: 0.429, 720: 0.440},
    "ETTh2": {96: 0.277, 192: 0.344, 336: 0.357, 720: 0.394},
}
LEARNING_RATE = {"ETTh1": 0.005, "ETTh2": 0.05}


class Outcome(NamedTuple):
    """Wall time of fitting, and the squared error of every test window."""

    seconds: float
    errors: np.ndarray

    @property
    def whole_batches(self) -> float:
        """Error as published: without the last incomplete batch."""
        return float(self.errors[: len(self.errors) // BATCH * BATCH].mean())


def series(name: str) -> np.ndarray:
    """All channels, standardised by the training rows."""
    bunch = fetch_ett(name, data_home=os.environ.get("SKCURSE_ETT_DIR"))
    values = np.column_stack([bunch.data, bunch.target])
    return (values - values[TRAIN].mean(axis=0)) / values[TRAIN].std(axis=0)


def least_squares(values: np.ndarray, horizon: int) -> Outcome:
    """Our way: every channel's windows are a view, and continue the same factor."""
    start = time.perf_counter()
    model = ResidualLinearRegressor()
    for channel in values[TRAIN].T:
        model.partial_fit(*make_windows(channel, N_STEPS, horizon))
    seconds = time.perf_counter() - start
    errors = []
    for channel in values[TEST].T:
        X, y = make_windows(channel, N_STEPS, horizon)
        errors.append(((model.predict(X) - y) ** 2).mean(axis=1))
    return Outcome(seconds, np.mean(errors, axis=0))


def trained(values: np.ndarray, horizon: int, learning_rate: float, seed: int) -> Outcome:
    """The peer's way: Adam on batches of 32 time steps, early stopping on the validation months."""
    torch.manual_seed(seed)
    length = N_STEPS + horizon
    parts = (values[rows].astype(np.float32) for rows in (TRAIN, VALIDATION, TEST))
    train, validation, test = (torch.from_numpy(part).unfold(0, length, 1) for part in parts)
    start = time.perf_counter()
    model = torch.nn.Linear(N_STEPS, horizon)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    halving = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    best, since, kept = np.inf, 0, model.state_dict()
    for _ in range(10):
        for rows in torch.randperm(len(train))[: len(train) // BATCH * BATCH].split(BATCH):
            optimizer.zero_grad()
            squared_errors(model, train[rows]).mean().backward()
            optimizer.step()
        halving.step()
        error = float(whole(model, validation).mean())
        if error < best:
            best, since = error, 0
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        elif (since := since + 1) == 3:
            break
    seconds = time.perf_counter() - start
    model.load_state_dict(kept)
    return Outcome(seconds, whole(model, test).numpy())


def squared_errors(model: torch.nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """Squared errors of the NLinear forecast, of shape (windows, channels, horizon)."""
    past, future = windows[..., :N_STEPS], windows[..., N_STEPS:]
    newest = past[..., -1:]
    return (model(past - newest) + newest - future) ** 2


def whole(model: torch.nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """Mean squared error of every window."""
    with torch.no_grad():
        blocks = [squared_errors(model, block).mean(dim=(1, 2)) for block in windows.split(256)]
    return torch.cat(blocks)


def cell(name: str, values: np.ndarray, horizon: int, rounds: int, peer: bool) -> dict:
    """Measure one cell; both sides take turns."""
    least_squares(values, horizon)  # warm-up
    ours, theirs = [], []
    for seed in range(rounds):
        ours.append(least_squares(values, horizon))
        if peer:
            theirs.append(trained(values, horizon, LEARNING_RATE[name], seed))
    row = {
        "what": f"NLinear {name}, horizon {horizon}",
        "published": PUBLISHED[name][horizon],
        "mse": ours[0].whole_batches,
        "mse_all_windows": float(ours[0].errors.mean()),
        "seconds": [outcome.seconds for outcome in ours],
    }
    if peer:
        row["torch_mse"] = [outcome.whole_batches for outcome in theirs]
        row["torch_seconds"] = [outcome.seconds for outcome in theirs]
        pairs = zip(row["torch_seconds"], row["seconds"], strict=True)
        row["ratios"] = [peer_time / our_time for peer_time, our_time in pairs]
    return row


def rows(rounds: int = 5) -> list[dict]:
    """Rows of the common table: the shortest and the longest horizon of each file."""
    found = []
    for name in PUBLISHED:
        values = series(name)
        for horizon in (96, 720):
            row = cell(name, values, horizon, rounds, peer=True)
            times = {"skcurse": row["seconds"], "torch, Adam": row["torch_seconds"]}
            notes = {key: row[key] for key in ("published", "mse", "mse_all_windows")}
            line = ratio_row(row["what"], times, "skcurse", ["torch, Adam"])
            found.append(line | {"notes": notes | {"torch mse": min(row["torch_mse"])}})
    return found


def print_row(row: dict) -> None:
    """Print one line of the table."""
    line = (
        f"{row['what']:<28} {row['published']:>9.3f} {row['mse']:>9.4f} "
        f"{row['mse_all_windows']:>9.4f} {statistics.median(row['seconds']):>9.2f}"
    )
    if "ratios" in row:
        line += f" {min(row['torch_mse']):>9.4f} {statistics.median(row['torch_seconds']):>9.2f}"
        low, middle, high = (f(row["ratios"]) for f in (min, statistics.median, max))
        line += f" {low:>8.1f} {middle:>8.1f} {high:>8.1f}"
    print(line, flush=True)


def main() -> None:
    """Print the table and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true", help="leave PyTorch out")
    parser.add_argument("--json", metavar="FILE", help="write everything measured to FILE")
    options = parser.parse_args()
    heads = ["published", "mse", "all", "seconds", "torch mse", "torch s"]
    print(" " * 28, *(f"{head:>9}" for head in heads), f"{'ratio: min, median, max':>26}")
    rows = []
    for name, horizons in PUBLISHED.items():
        values = series(name)
        for horizon in horizons:
            rows.append(cell(name, values, horizon, options.rounds, not options.no_peer))
            print_row(rows[-1])
    total = sum(statistics.median(row["seconds"]) for row in rows)
    print(f"All cells fitted in {total:.2f} s (sum of medians).")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, **surroundings()}, file, indent=1)


if __name__ == "__main__":
    main()
