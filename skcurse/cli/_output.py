"""Files that a command leaves: whole, or not at all."""

import csv
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from skcurse.comparison import Comparison, describe
from skcurse.displays import ComparisonDisplay


def prepare_folder(path: str, data: str) -> Path:
    """Make the output folder, before anything expensive is done; `data` is not overwritten."""
    folder = Path(path)
    if not path:
        raise ValueError("--out must name a folder; '.' is this one.")
    table = folder / "table.csv"
    if os.path.exists(data) and table.exists() and os.path.samefile(data, table):
        raise ValueError(f"--out {path} would overwrite the data, {data}: name another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"Cannot write to --out {path}: {error.strerror}.") from error
    return folder


def write_table(comparison: Comparison, folder: Path) -> Path:
    """Write ``results_`` as table.csv, one line a row."""
    columns = {key: values for key, values in comparison.results_.items() if key != "params"}

    def save(path: Path) -> None:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))

    return _save_whole(folder / "table.csv", save)


def write_failures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the tracebacks of all scores that failed; none, and none left there, without any."""
    path = folder / "failures.txt"
    path.unlink(missing_ok=True)
    text = "\n\n".join(
        f"{f.score}, {f.estimator} on {describe(f.data_model, f.params)}, fold {f.fold}: "
        f"{f.traceback}"
        for f in comparison.failures_
    )
    if not text:
        return []
    return [_save_whole(path, lambda partial: partial.write_text(f"{text}\n", encoding="utf-8"))]


def write_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write one figure for each data model; without matplotlib none, and say what to install."""
    written = []
    for name in dict.fromkeys(comparison.results_["data_model"]):
        try:
            display = ComparisonDisplay.from_comparison(comparison, data_model=name)
        except ImportError as error:
            print(f"No figure: {error}", file=sys.stderr)
            break
        path = folder / (re.sub(r"[^\w.-]+", "-", name) + ".png")
        written.append(_save_whole(path, _png(display.figure_)))
    return written


def _png(figure: Any) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        import matplotlib.pyplot as plt

        figure.savefig(path, dpi=200)
        plt.close(figure)

    return save


def _save_whole(path: Path, save: Callable[[Path], Any]) -> Path:
    """Save under another name, then move the finished file to its place."""
    partial = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        save(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path
