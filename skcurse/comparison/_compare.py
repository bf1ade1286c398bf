"""Every estimator on every data model, in one flat pool of tasks."""

import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from numbers import Integral, Real
from time import perf_counter
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import ParameterGrid, TimeSeriesSplit, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from skcurse.comparison._report import Comparison, Failure, Reference, score_name
from skcurse.datasets import DataModel
from skcurse.datasets._base import is_series
from skcurse.plugins import PluginError, construct, get_data_models, get_diagnostics, get_estimators
from skcurse.scorer import DiagnosticScorer, summarise

Sample = tuple[NDArray[np.float64], NDArray[np.float64]]


class Fold(NamedTuple):
    """What every estimator sees in one fold of one data model."""

    data_model: Any
    n_samples: int
    n_test: int
    seed: int
    split: tuple[NDArray[np.intp], NDArray[np.intp]] | None

    def draw(self) -> tuple[Sample, dict[str | None, Sample]]:
        """Return the training sample and one test sample for each law."""
        model = self.data_model
        if self.split is not None:
            train, test = self.split
            X, y = model.windows(n_train=int(train.max()) + 1)  # later rows set no scale
            return (X[train], y[train]), {None: (X[test], y[test])}

        def sample(n: int, shift: str | None, stream: int) -> Sample:
            rng = np.random.RandomState([self.seed, stream])
            return model.sample(n, shift=shift, random_state=rng)

        tests = {law: sample(self.n_test, law, i) for i, law in enumerate(_laws(model), start=1)}
        return sample(self.n_samples, None, 0), tests


class Cell(NamedTuple):
    """One estimator on one fold."""

    scores: dict[str, float]
    fit_time: float
    score_time: float
    failures: list[tuple[str, str]]  # name of the score; reason, then its traceback


def compare(
    estimators: Any,
    data_models: Any,
    *,
    diagnostics: Any = None,
    data_grid: Any = None,
    cv: Any = 5,
    n_samples: int = 400,
    n_test: int = 2000,
    n_jobs: int | None = None,
    random_state: Any = None,
    error_score: Any = "raise",
) -> Comparison:
    """Fit every estimator on every data model and score it in and out of distribution.

    Parameters
    ----------
    estimators : dict, list, str or estimator
        What is compared: estimators, searches included, or names of registered ones; a dict gives
        them names of your own.
    data_models : dict, list, str or DataModel
        What they are compared on, likewise. A series, that is one with ``windows(n_train)``
        like `SeriesWindows`, is split in time order; every other one is sampled.
    diagnostics : dict, list or str, default=None
        Names of registered diagnostics, or a dict of functions ``(estimator, X, y) -> float``.
        Each is evaluated on the test sample of every law.
    data_grid : dict or list of dict, default=None
        Parameters of the data models to vary, as in `ParameterGrid`. A data model without one of
        these parameters is compared once, at its own.
    cv : int or splitter, default=5
        Sampled data models: the number of replicates, each with fresh training and test samples
        (of a splitter, only the number of splits counts). Series: an int n stands for
        ``TimeSeriesSplit(n, gap=horizon - 1)``; a splitter or an iterable of (train, test) indices
        of windows is used as it is.
    n_samples, n_test : int, default=400, 2000
        Rows of the training sample and of the test sample of each law (sampled data models).
    n_jobs : int, default=None
        Parallel tasks. One task is one estimator on one fold; joblib's backend is used. The
        numbers do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seeds the samples and every ``random_state=None`` inside the estimators.
    error_score : "raise" or float, default="raise"
        What a failing ``fit`` or ``predict`` does: raise, or give this mean squared error and keep
        the traceback. What else was computed is kept; diagnostics without a fit are nan.

    Returns
    -------
    Comparison
        ``results_``, in the format of ``cv_results_``, with `to_frame`, `plot` and tables.

    Raises
    ------
    ValueError
        For unknown names, two objects of one name, a parameter that no data model has, a data
        model that cannot be sampled, a diagnostic that is called like another score or that cannot
        be sent to a worker.

    Notes
    -----
    The comparison is paired: in one fold all estimators, and all points of `data_grid`, see samples
    drawn with the same seed. A diagnostic that raises or does not return a real number gets nan
    in its own cell, and its traceback is kept in ``failures_``; an infinite one counts as that.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from skcurse.comparison import compare
    >>> from skcurse.datasets import ResidualSSM
    >>> from skcurse.estimators import ResidualLinearRegressor
    >>> comparison = compare(
    ...     {"ridge": Ridge(), "residual": ResidualLinearRegressor()},
    ...     ResidualSSM(n_steps=8), cv=2, random_state=0,
    ... )
    >>> comparison.results_["estimator"].tolist()
    ['ridge', 'residual']
    >>> bool((comparison.results_["mean_test_mse_sign_inconsistent"] < 0.5).all())
    True
    """
    if error_score != "raise" and not isinstance(error_score, Real):
        raise ValueError(f'error_score must be "raise" or a number, got {error_score!r}.')
    named_estimators = _named(estimators, get_estimators, "estimator", ("fit", "predict"))
    named_models = _named(data_models, get_data_models, "data model", ("sample", "get_params"))
    scorers = _diagnostic_scorers(diagnostics)
    points = list(_grid_points(named_models, data_grid))
    laws = tuple(dict.fromkeys(law for _, model, _ in points for law in _laws(model)))
    _check_names(["mse", *(scorer.name for scorer in scorers)], laws)
    n_folds = check_cv(cv).get_n_splits()
    seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=n_folds)
    folds = [_folds(model, cv, n_samples, n_test, seeds) for _, model, _ in points]
    references = [risk for point in points for risk in _references(*point)]

    tasks = [
        delayed(_evaluate)(estimator, fold, scorers, error_score)
        for point_folds, estimator in product(folds, named_estimators.values())
        for fold in point_folds
    ]
    try:
        cells = _run(tasks, n_jobs)
    except pickle.PicklingError:
        _refuse_unpicklable(scorers)
        raise

    rows = [
        (estimator, model_name, params)
        for (model_name, _, params), estimator in product(points, named_estimators)
    ]
    grouped = [cells[i : i + n_folds] for i in range(0, len(cells), n_folds)]
    return Comparison(
        _results(rows, grouped),
        failures=_failures(rows, grouped),
        references=references,
        laws=laws,
        diagnostics=tuple(scorer.name for scorer in scorers),
    )


def _evaluate(
    estimator: Any,
    fold: Fold,
    diagnostics: list[DiagnosticScorer],
    error_score: Any,
) -> Cell:
    """Fit and score one estimator on one fold."""
    train, tests = fold.draw()
    failures: list[tuple[str, str]] = []
    scores = {
        score_name(name, law): np.nan
        for law, name in product(tests, ["mse", *(scorer.name for scorer in diagnostics)])
    }

    def fail(score: str, step: str, error: Exception) -> float:
        if error_score == "raise":
            error.add_note(f"{step} of {estimator!r} on {fold.data_model!r}")
            raise error
        what = "" if step == score else f"{step} "  # the score is printed before
        text = f"{what}raised {summarise(error)}\n{''.join(traceback.format_exception(error))}"
        failures.append((score, text))
        return float(error_score)

    start = perf_counter()
    try:
        model = _seeded(clone(estimator), fold.seed).fit(*train)
    except Exception as error:
        lost = fail("fit", "fit", error)
        scores |= {score_name("mse", law): lost for law in tests}
        return Cell(scores, np.nan, np.nan, failures)
    fitted = perf_counter()
    for law, (X, y) in tests.items():
        name = score_name("mse", law)
        try:
            scores[name] = float(mean_squared_error(y, model.predict(X)))
        except Exception as error:
            scores[name] = fail(name, "predict" if law is None else f"predict under {law}", error)
    scored = perf_counter()
    for (law, sample), scorer in product(tests.items(), diagnostics):
        name = score_name(scorer.name, law)
        scores[name], reason = scorer.evaluate(model, *sample)
        if reason is not None:
            failures.append((name, reason))
    return Cell(scores, fitted - start, scored - fitted, failures)


def _seeded(estimator: Any, seed: int) -> Any:
    """Fix every random state that was left to chance, so that a task has one result."""
    unset = {
        name: seed
        for name, value in estimator.get_params().items()
        if value is None and name.split("__")[-1] == "random_state"
    }
    return estimator.set_params(**unset)


def _named(
    objects: Any, registered: Callable[..., Mapping[str, Any]], kind: str, methods: Iterable[str]
) -> dict[str, Any]:
    """Return name -> instance, from a dict, a list, a name or an object."""
    if not isinstance(objects, Mapping | list | tuple):
        objects = [objects]
    if isinstance(objects, Mapping):
        pairs = list(objects.items())
    else:
        pairs = [(o if isinstance(o, str) else _type_name(o), o) for o in objects]
    named: dict[str, Any] = {}
    for name, value in pairs:
        if name in named:
            raise ValueError(f"Two {kind}s are called {name!r}: give them names with a dict.")
        if isinstance(value, type):
            raise ValueError(f"The {kind} {name!r} is a class: pass an instance of it.")
        instance = _construct(value, registered) if isinstance(value, str) else value
        if lacking := [m for m in methods if not hasattr(instance, m)]:
            raise ValueError(f"The {kind} {name!r} has no {lacking[0]}(): {value!r}.")
        named[name] = instance
    if not named:
        raise ValueError(f"compare needs at least one {kind}.")
    return named


def _type_name(instance: Any) -> str:
    return (instance if isinstance(instance, type) else type(instance)).__name__


def _construct(name: str, registered: Callable[..., Mapping[str, Any]]) -> Any:
    """Return an instance of the registered class of this name."""
    try:
        cls = registered([name])[name]
    except PluginError:
        raise
    except ValueError as error:
        raise ValueError(f"{error} What is not registered is passed as an object.") from None
    return construct(name, cls)


def _refuse_unpicklable(scorers: list[DiagnosticScorer]) -> None:
    """Name the diagnostic that no worker can have, if there is one."""
    for scorer in scorers:
        try:
            pickle.dumps(joblib.wrap_non_picklable_objects(scorer.function))
        except Exception as error:
            raise ValueError(
                f"The diagnostic {scorer.name!r} cannot be sent to a worker: {summarise(error)}. "
                "Use n_jobs=1, or let it hold nothing that does not pickle."
            ) from error


def _diagnostic_scorers(diagnostics: Any) -> list[DiagnosticScorer]:
    """Return scorers that keep an error in its cell; names are resolved here, in the parent."""
    if diagnostics is None:
        return []
    if not isinstance(diagnostics, Mapping):
        return list(get_diagnostics(diagnostics).values())
    for name, function in diagnostics.items():
        if not callable(function):
            raise ValueError(f"The diagnostic {name!r} is not callable: {function!r}.")
    return [  # under the name that it has here, whatever it was called before
        DiagnosticScorer(name, f.function if isinstance(f, DiagnosticScorer) else f)
        for name, f in diagnostics.items()
    ]


def _check_names(scores: list[str], laws: Iterable[str | None]) -> None:
    """Refuse a diagnostic whose column in the results is that of another score."""
    owners: dict[str, str] = {}
    for score, law in product(scores, laws):
        column = score_name(score, law)
        if column in owners:
            raise ValueError(
                f"The diagnostic {score!r} needs another name: {column!r} is already a score."
            )
        owners[column] = score


def _grid_points(
    models: Mapping[str, DataModel], data_grid: Any
) -> Iterator[tuple[str, DataModel, dict[str, Any]]]:
    """Yield (name, data model, parameters) for each distinct point of the grid."""
    grid = list(ParameterGrid(data_grid or {}))
    known = {name: set(model.get_params()) for name, model in models.items()}
    unknown = {p for point in grid for p in point} - set().union(*known.values())
    if unknown:
        raise ValueError(
            f"No data model has a parameter {sorted(unknown)[0]!r}; "
            f"there are {', '.join(sorted(set().union(*known.values())))}."
        )
    for name, model in models.items():
        seen = set()
        for point in grid:
            params = {p: value for p, value in point.items() if p in known[name]}
            if (key := joblib.hash(params)) not in seen:
                seen.add(key)
                yield name, clone(model).set_params(**params), params


def _folds(model: Any, cv: Any, n_samples: int, n_test: int, seeds: NDArray[Any]) -> list[Fold]:
    """Return the folds of one data model: splits in time, or seeds of samples."""
    splits: Iterable[Any] = [None] * len(seeds)
    if is_series(model):
        if isinstance(cv, Integral):
            cv = TimeSeriesSplit(int(cv), gap=model.horizon - 1)
        splits = check_cv(cv).split(model.windows()[0])
    else:
        for shift in _laws(model):  # bad parameters are told here, not in a worker
            try:
                model.sample(1, shift=shift, random_state=0)
            except ValueError:
                raise
            except Exception as error:
                what = f"{model!r}.sample(1, shift={shift!r})"
                raise ValueError(f"{what} raised {summarise(error)}.") from error
    return [
        Fold(model, n_samples, n_test, int(seed), split)
        for seed, split in zip(seeds, splits, strict=True)
    ]


def _laws(model: Any) -> tuple[str | None, ...]:
    """Return the training law and the shifts; a series has its one realisation."""
    return (None,) if is_series(model) else (None, *getattr(model, "shifts", ()))


def _references(name: str, model: DataModel, params: dict[str, Any]) -> Iterator[Reference]:
    """Yield the closed-form risks that a data model offers, for each law."""
    if not callable(getattr(model, "reference_risks", None)):
        return
    for law in _laws(model):
        risks = model.reference_risks(law)
        if not isinstance(risks, Mapping):
            raise ValueError(f"{model!r}.reference_risks({law!r}) is no mapping, but {risks!r}.")
        for label, risk in risks.items():
            if not isinstance(risk, Real) or not 0.0 <= float(risk) < np.inf:
                raise ValueError(
                    f"{model!r}.reference_risks({law!r}) must hold finite numbers of at least 0, "
                    f"got {risk!r} for {label!r}."
                )
            yield Reference(name, params, law, str(label), float(risk))


def _run(tasks: list[Any], n_jobs: int | None) -> list[Cell]:
    """Run the tasks, with a progress bar on a terminal and without a word in a pipe."""
    if not sys.stderr.isatty():
        return Parallel(n_jobs=n_jobs)(tasks)
    cells = Parallel(n_jobs=n_jobs, return_as="generator")(tasks)
    return list(_with_progress(cells, len(tasks)))


def _with_progress(results: Iterable[Cell], total: int) -> Iterator[Cell]:
    """Yield the results as they come, counting them on the terminal."""
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        for done, result in enumerate(results, start=1):
            print(f"\rComparing {done}/{total}", end="", file=sys.stderr, flush=True)
            yield result
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    else:
        terminal = Console(stderr=True)
        yield from track(results, "Comparing", total=total, console=terminal, transient=True)


def _results(
    rows: list[tuple[str, str, dict[str, Any]]], cells: list[list[Cell]]
) -> dict[str, Any]:
    """Collect the cells into arrays with one entry a row, like ``cv_results_``."""
    results: dict[str, Any] = {
        "estimator": np.array([row[0] for row in rows], dtype=object),
        "data_model": np.array([row[1] for row in rows], dtype=object),
        "params": [row[2] for row in rows],
    }
    for name in dict.fromkeys(p for row in rows for p in row[2]):
        column = np.ma.MaskedArray(np.empty(len(rows), dtype=object), mask=True)
        for i, row in enumerate(rows):
            if name in row[2]:
                column[i] = row[2][name]
        results[f"param_{name}"] = column
    for time in ("fit_time", "score_time"):
        values = np.array([[getattr(cell, time) for cell in row] for row in cells])
        results[f"mean_{time}"], results[f"std_{time}"] = values.mean(1), values.std(1)
    for name in dict.fromkeys(name for row in cells for cell in row for name in cell.scores):
        values = np.array([[cell.scores.get(name, np.nan) for cell in row] for row in cells])
        for k, column in enumerate(values.T):
            results[f"split{k}_test_{name}"] = column
        results[f"mean_test_{name}"] = values.mean(1)
        results[f"std_test_{name}"] = values.std(1)
    return results


def _failures(
    rows: list[tuple[str, str, dict[str, Any]]], cells: list[list[Cell]]
) -> list[Failure]:
    return [
        Failure(*row, fold, score, text.split("\n", 1)[0], text)
        for row, row_cells in zip(rows, cells, strict=True)
        for fold, cell in enumerate(row_cells)
        for score, text in cell.failures
    ]
