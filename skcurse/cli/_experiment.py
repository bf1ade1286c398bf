"""What the command line compares: data, estimators, diagnostics and folds."""

import argparse
import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skcurse.cli._estimators import FOR_PROMPTS, FOR_SERIES, FOR_WINDOWS, Rows, make_estimator
from skcurse.cli._names import plugins_that_offer, refuse_ambiguous
from skcurse.cli._scores import n_iter, skill, skill_error
from skcurse.datasets import SeriesWindows, load_co2, load_sunspots
from skcurse.datasets._csv import read_csv_series
from skcurse.plugins import (
    PluginError,
    construct,
    describe_unknown,
    get_data_models,
    get_diagnostics,
)

SERIES = {"co2": load_co2, "sunspots": load_sunspots}
WINDOW_DIAGNOSTICS = (
    "sign_agreement", "update_alignment", "weight_sign_alignment", "last_step_attention",
    "weight_movement", "ntk_effective_rank",
)  # fmt: skip
MIN_WINDOWS = 10  # fewer train nothing
PROMPT_DIAGNOSTICS = ("attention_concentration", "loss_floor_gap")


class Experiment(NamedTuple):
    """Arguments of `compare`, and what a reader should know about them."""

    data_models: dict[str, Any]
    data_grid: dict[str, list[Any]]
    estimators: dict[str, Any]
    diagnostics: dict[str, Callable[..., Any]]
    cv: Any
    notes: list[str]


def build_experiment(args: argparse.Namespace) -> Experiment:
    """Turn the arguments of the command line into those of `compare`.

    Raises
    ------
    ValueError
        If they do not fit together; the message is for the user.
    """
    grid, settings = _parse_settings(args.set)
    notes: list[str] = []
    own_scores: dict[str, Any] = {"n_iter": n_iter}
    defaults: tuple[str, ...] = FOR_WINDOWS
    measures: tuple[str, ...] = WINDOW_DIAGNOSTICS
    if _names_a_series(args.data):
        if grid:
            raise ValueError("--set data.*: a series has no parameters but --n-steps, --horizon.")
        name, model, split, notes = _series(args)
        rows, cv, defaults = Rows(horizon=args.horizon), [split], FOR_SERIES
        own_scores |= {"skill": skill, "skill_error": skill_error}
    else:
        name, model, cv = args.data, _data_model(args), args.folds
        if args.n_steps is not None and "n_steps" in grid:
            raise ValueError("--n-steps and --set data.n_steps say the same: leave one out.")
        rows = Rows(n_context=getattr(model, "n_context", None))
        if rows.n_context is not None:
            defaults, measures = FOR_PROMPTS, PROMPT_DIAGNOSTICS
    estimators = {name: make_estimator(name, rows) for name in args.estimator or defaults}
    for owner, params in settings.items():
        if owner not in estimators:
            raise ValueError(f"--set {owner}.*: compared are {', '.join(estimators)}, or data.*.")
        estimators[owner].set_params(**params)
    for name in set(own_scores).intersection(args.diagnostic or ()):
        owners = plugins_that_offer("diagnostics", name)
        refuse_ambiguous("Diagnostic", name, ["the command itself", *owners])
    diagnostics = {**get_diagnostics(args.diagnostic or measures), **own_scores}
    return Experiment({name: model}, grid, estimators, diagnostics, cv, notes)


def _names_a_series(data: str) -> bool:
    """Whether --data is a bundled series or a file, and not the name of a data model as well."""
    is_file = os.path.exists(data) and not os.path.isdir(data)  # a pipe is one too
    owners = plugins_that_offer("data_models", data)
    if not owners and data in get_data_models():
        owners.append("skcurse's data models")
    owners += ["the bundled series"] * (data in SERIES) + ["a file here"] * is_file
    refuse_ambiguous("--data", data, owners)
    return data in SERIES or data.endswith(".csv") or is_file


def _data_model(args: argparse.Namespace) -> Any:
    """Return the data model of a registered name."""
    if args.column is not None or args.fill is not None:
        raise ValueError(f"--column and --fill are for CSV files; {args.data} is a data model.")
    try:
        cls = get_data_models([args.data])[args.data]
    except PluginError:  # two plugins offer it, or strict mode
        raise
    except ValueError:
        unknown = describe_unknown("data_models", args.data, SERIES)
        raise ValueError(f"{unknown} A CSV file is given by its path.") from None
    model = construct(args.data, cls)
    known = model.get_params()
    if args.n_steps is not None:
        if "n_steps" not in known:
            raise ValueError(f"{args.data} has no parameter n_steps: leave out --n-steps.")
        model.set_params(n_steps=args.n_steps)
    if args.horizon != 1:
        raise ValueError(f"{args.data} forecasts one value: leave out --horizon.")
    return model


def _series(
    args: argparse.Namespace,
) -> tuple[str, SeriesWindows, tuple[NDArray[np.intp], NDArray[np.intp]], list[str]]:
    """Return a series as a data model, its one split in time, and what was done to it."""
    if args.data in SERIES:
        name, values, notes = args.data, SERIES[args.data]().target, []
    else:
        table = read_csv_series(args.data, args.column, fill=args.fill)
        name, values, notes = f"{Path(args.data).stem}:{table.column}", table.values, table.notes
    n_all = len(values)
    n_rows = n_all if args.rows == "all" else min(_n_rows("--rows", args.rows, n_all), n_all)
    n_train = _n_rows("--train-rows", args.train_rows, n_rows)
    n_test = _n_rows("--test-rows", args.test_rows, n_rows)
    if n_train + n_test > n_rows:
        raise ValueError(f"{n_train} rows to train on and {n_test} to test on: there are {n_rows}.")
    n_steps = max(1, min(96, n_train // 10)) if args.n_steps is None else args.n_steps
    if min(n_steps, args.horizon) < 1:
        raise ValueError("--n-steps and --horizon must be at least 1.")
    n_windows = n_train - n_steps - args.horizon + 1
    if n_windows < MIN_WINDOWS:
        longest = n_train - args.horizon + 1 - MIN_WINDOWS
        advice = f"choose --n-steps of at most {longest}" if longest > 0 else "use a longer series"
        raise ValueError(
            f"{name}: {n_train} training rows are too few for {MIN_WINDOWS} windows of {n_steps} "
            f"values and a horizon of {args.horizon}: {advice}."
        )
    if np.ptp(values[:n_train]) == 0:
        raise ValueError(f"{name} is constant over its {n_train} training rows.")
    first_test = n_rows - n_test - n_steps
    test = np.arange(max(first_test, 0), n_rows - n_steps - args.horizon + 1)
    if test.size == 0:
        raise ValueError(f"{name}: {n_test} test rows are too few for this window and horizon.")
    notes.append(
        f"{name}: rows 1-{n_train} train, rows {n_rows - n_test + 1}-{n_rows} test ({n_all} in "
        f"all), {n_steps} values in, {args.horizon} out, standardised by the training rows"
    )
    model = SeriesWindows(values[:n_rows], n_steps, args.horizon)
    return name, model, (np.arange(n_windows), test), notes


def _n_rows(option: str, text: str, n_rows: int) -> int:
    """Read a number of rows, or a share of them."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    is_share = 0 < value < 1
    if not is_share and not (value >= 1 and text.isdecimal()):
        raise ValueError(f"{option} must be a number of rows or a share below 1, got {text}.")
    count = int(value * n_rows) if is_share else int(value)
    if count < 1:
        raise ValueError(f"{option} {text}: of {n_rows} rows that is none; use a longer series.")
    return count


def _parse_settings(settings: list[str]) -> tuple[dict[str, list[Any]], dict[str, dict[str, Any]]]:
    """Split ``data.P=V,V`` into a grid, ``ESTIMATOR.P=V`` into parameters."""
    grid: dict[str, list[Any]] = {}
    params: dict[str, dict[str, Any]] = {}
    seen: list[str] = []
    for setting in settings:
        key, equals, text = setting.partition("=")
        owner, dot, name = key.rpartition(".")
        if not (equals and dot and owner and name and text):
            raise ValueError(f"--set takes data.PARAMETER=VALUE[,VALUE...], got {setting!r}.")
        if key in seen:
            raise ValueError(f"--set {key} is given twice.")
        seen.append(key)
        values = _values(text)
        if owner == "data":
            grid[name] = values
        elif len(values) == 1:
            params.setdefault(owner, {})[name] = values[0]
        else:
            raise ValueError(f"--set {key} takes one value; only data.* makes a grid.")
    return grid, params


def _values(text: str) -> list[Any]:
    """Read values separated by commas: numbers, None, True, lists, or words."""
    try:
        return list(ast.literal_eval(f"({text},)"))
    except (ValueError, SyntaxError):
        return [np.inf if word == "inf" else word for word in text.split(",")]
