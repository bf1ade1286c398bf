"""The command line: ``skcurse compare``, ``skcurse plugins`` and ``skcurse ledger``."""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skcurse.cli._experiment import build_experiment
from skcurse.cli._ledger import add_ledger
from skcurse.cli._options import COMPARE
from skcurse.cli._output import prepare_folder, write_failures, write_figures, write_table
from skcurse.cli._verdict import verdict
from skcurse.comparison import compare, score_name
from skcurse.plugins import get_diagnostics, report

__all__ = ["build_parser", "main"]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Returns
    -------
    argparse.ArgumentParser
        With the sub-commands as functions in ``run``.
    """
    parser = argparse.ArgumentParser(
        prog="skcurse",
        description="Two theories of attention as scikit-learn estimators.",
        epilog="exit codes: 0 all went well; 1 an estimator failed (compare) or a verdict differs "
        "(ledger --check); 2 bad usage or input, or a broken plugin in strict mode; 130 "
        "interrupted",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    comparing = commands.add_parser(
        "compare",
        help="compare attention with a residual linear network",
        description="Compare forecasters in and out of distribution, on a data model or on a "
        "series of your own; print a table and a verdict, write table.csv and figures.",
    )
    for flag, settings in COMPARE.items():
        comparing.add_argument(flag, **settings)
    comparing.set_defaults(run=_compare)
    plugins = commands.add_parser("plugins", help="list every plugin, what it offers, its state")
    plugins.add_argument("--json", action="store_true", help="as JSON")
    plugins.set_defaults(run=_plugins)
    add_ledger(commands)
    return parser


def _compare(args: argparse.Namespace) -> int:
    """Run ``skcurse compare``."""
    experiment = build_experiment(args)
    folder = prepare_folder(args.out, args.data)
    for note in experiment.notes:
        print(note)
    with threadpool_limits(1):  # the tasks are small: more threads would wait for each other
        comparison = compare(
            experiment.estimators,
            experiment.data_models,
            diagnostics=experiment.diagnostics,
            data_grid=experiment.data_grid,
            cv=experiment.cv,
            n_samples=args.n_samples,
            n_jobs=args.n_jobs,
            random_state=args.seed,
            error_score=np.nan,
        )
    print(f"\n{comparison}\n")
    for line in verdict(comparison):
        print(line)
    written = [
        write_table(comparison, folder),
        *write_failures(comparison, folder),
        *write_figures(comparison, folder),
    ]
    print(f"\nWritten: {', '.join(map(str, written))}")
    steps = {"fit", *(score_name("mse", law) for law in comparison.laws_)}
    return int(any(failure.score in steps for failure in comparison.failures_))


def _plugins(args: argparse.Namespace) -> int:
    """Run ``skcurse plugins``."""
    with redirect_stdout(sys.stderr):  # what plugins print while they are imported
        rows = report()
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            origin = " ".join(filter(None, [row["distribution"], row["version"]]))
            origin = origin or ("not installed" if row["state"] == "absent" else "run time")
            print(f"{row['name']} ({origin}): {row['state']}")
            if row["error"]:
                print(f"  {row['error']}")
            for kind in ("data_models", "diagnostics", "estimators"):
                if row[kind]:
                    print(f"  {kind.replace('_', ' ')}: {', '.join(row[kind])}")
    get_diagnostics(())  # after the list: in strict mode a broken plugin is an error
    return 0


class _Notes:
    """Show a warning as one line without its place in the code, and those that start alike once."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if (start := text[:60]) not in self.seen:
            self.seen.add(start)
            print(f"skcurse: note: {text}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        Arguments, by default those of the process.

    Returns
    -------
    int
        Exit code: 0 if all went well, 1 if an estimator failed (the others are reported), 2 for
        bad usage or bad input (one line on stderr), 130 if interrupted.

    Raises
    ------
    SystemExit
        By argparse, for ``--help`` (0) and for bad usage (2).

    Examples
    --------
    >>> from skcurse.cli import main
    >>> main(["plugins"])  # doctest: +ELLIPSIS
    skcurse ...: loaded
    ...
    0
    """
    args = build_parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the table shows n_iter
            warnings.showwarning = _Notes()
            code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, say `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        print(f"skcurse: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("skcurse: interrupted", file=sys.stderr)
        return 130
    else:
        return code
    return 0
