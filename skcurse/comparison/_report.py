"""What a comparison found: arrays, tables, a picture."""

import math
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import numpy as np


class Failure(NamedTuple):
    """A score that could not be computed, and why: in one line, and with the traceback."""

    estimator: str
    data_model: str
    params: dict[str, Any]
    fold: int
    score: str
    reason: str
    traceback: str


class Reference(NamedTuple):
    """The closed-form risk of a named predictor under one law of a data model."""

    data_model: str
    params: dict[str, Any]
    shift: str | None
    name: str
    risk: float


class _Table(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]


class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    results_ : dict of arrays
        One entry a row, in the format of ``cv_results_``: ``estimator``, ``data_model``,
        ``params`` and ``param_<name>`` (of the data model), ``mean_``, ``std_`` of ``fit_time``
        and ``score_time`` (seconds), and ``split<k>_test_<score>``, ``mean_test_<score>``,
        ``std_test_<score>``. The scores are ``mse`` and each diagnostic, on the training law, and
        ``mse_<shift>``, ``<diagnostic>_<shift>`` for every shift of a data model. nan where a
        data model has no such shift or a diagnostic does not apply.
    failures_ : list of Failure
        What raised or returned nonsense: names, fold and traceback.
    references_ : list of Reference
        Closed-form risks that the data models offer by ``reference_risks(shift)``.
    laws_ : tuple
        None, the training law, and the shifts.
    diagnostics_ : tuple of str
        Names of the diagnostics.
    """

    def __init__(
        self,
        results: dict[str, Any],
        *,
        failures: list[Failure],
        references: list[Reference],
        laws: tuple[str | None, ...],
        diagnostics: tuple[str, ...],
    ) -> None:
        self.results_ = results
        self.failures_ = failures
        self.references_ = references
        self.laws_ = laws
        self.diagnostics_ = diagnostics

    @property
    def n_folds_(self) -> int:
        """Number of folds."""
        return sum(key.startswith("split") and key.endswith("_test_mse") for key in self.results_)

    def scores(self, score: str = "mse", shift: str | None = None) -> Any:
        """Return the values of one score.

        Parameters
        ----------
        score : str, default="mse"
            "mse" or the name of a diagnostic.
        shift : str, default=None
            The law of the test samples.

        Returns
        -------
        ndarray of shape (n_rows, n_folds)
            One value for each row of `results_` and each fold.
        """
        name = score_name(score, shift)
        return np.column_stack(
            [self.results_[f"split{k}_test_{name}"] for k in range(self.n_folds_)]
        )

    def to_frame(self) -> Any:
        """Return `results_` as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame
            One row for each estimator, data model and point of the grid.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas: pip install 'skcurse[dataframe]'. "
                "The same values are in the dict results_."
            ) from error
        return pd.DataFrame(self.results_)

    def plot(self, ax: Any = None) -> Any:
        """Plot the errors in and out of distribution beside the reference risks.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        ComparisonDisplay
            The display, with ``ax_`` and ``figure_``.
        """
        from skcurse.displays import ComparisonDisplay

        return ComparisonDisplay.from_comparison(self, ax=ax)

    def __str__(self) -> str:
        parts = [_as_text(table) for table in self._tables()]
        if self.failures_:
            lines = [f"  {summary}" for summary, _ in self._grouped_failures()]
            parts.append("\n".join(["Scores that failed:", *lines]))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [_as_html(table) for table in self._tables()]
        parts += [
            f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"
            for summary, text in self._grouped_failures()
        ]
        return "\n".join(parts)

    def _grouped_failures(self) -> Iterator[tuple[str, str]]:
        """Yield one line and one traceback for all the cells in which a score failed alike."""
        groups: dict[tuple[str, str], list[Failure]] = {}
        for failure in self.failures_:
            groups.setdefault((failure.score, failure.reason), []).append(failure)
        for (score, reason), (first, *others) in groups.items():
            where = f"{first.estimator} on {describe(first.data_model, first.params)}"
            more = f" and {len(others)} more" if others else ""
            yield f"{score} {reason} ({where}, fold {first.fold}{more})", first.traceback

    def _tables(self) -> Iterator[_Table]:
        """Yield, for each point of the data grid, the errors and then the diagnostics."""
        results = self.results_
        n_estimators = len(set(results["estimator"]))
        for start in range(0, len(results["estimator"]), n_estimators):
            rows = list(range(start, start + n_estimators))  # a point has all the estimators
            where = describe(results["data_model"][start], results["params"][start])
            yield self._error_table(where, rows)
            diagnostics = self._diagnostic_table(where, rows)
            if diagnostics.rows:
                yield diagnostics

    def _error_table(self, where: str, rows: list[int]) -> _Table:
        results = self.results_
        laws = [law for law in self.laws_ if not np.isnan(self.scores("mse", law)[rows]).all()]
        laws = laws or list(self.laws_)  # every fit has failed
        names = [law or "in distribution" for law in laws]
        body = [
            [
                results["estimator"][i],
                *(_with_error(self.scores("mse", law)[i]) for law in laws),
                f"{time:.2g}" if (time := results["mean_fit_time"][i]) >= 0 else "-",
            ]
            for i in rows
        ]
        here = [r for r in self.references_ if describe(r.data_model, r.params) == where]
        for name in dict.fromkeys(r.name for r in here):
            risks = {r.shift: r.risk for r in here if r.name == name}
            cells = [f"{risks[law]:.4g}" if law in risks else "-" for law in laws]
            body.append([f"({name})", *cells, ""])
        folds = f"mean ± standard error over {self.n_folds_} folds"
        title = f"{where}: mean squared error" + (f", {folds}" if self.n_folds_ > 1 else "")
        return _Table(title, ["estimator", *names, "fit [s]"], body)

    def _diagnostic_table(self, where: str, rows: list[int]) -> _Table:
        estimators = [str(self.results_["estimator"][i]) for i in rows]
        body = []
        for name in self.diagnostics_:
            for law in self.laws_:
                values = self.scores(name, law)[rows]
                here = self.scores(name)[rows]
                repeats = law is not None and np.array_equal(values, here, equal_nan=True)
                if not (repeats or np.isnan(values).all()):
                    label = name if law is None else f"{name}, {law}"
                    body.append([label, *map(_with_error, values)])
        return _Table(f"{where}: diagnostics", ["", *estimators], body)


def score_name(score: str, shift: str | None) -> str:
    """Return the name that a score under a shift has in ``results_``."""
    return score if shift is None else f"{score}_{shift}"


def describe(data_model: str, params: dict[str, Any]) -> str:
    """Name a point of the data grid in words."""
    return ", ".join([data_model, *(f"{name} = {value}" for name, value in params.items())])


def _with_error(values: Any) -> str:
    """Mean and standard error of one value a fold; a dash where any of them is missing."""
    mean = np.mean(values)
    if np.isnan(mean):
        return "-"
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    if not 1e-3 * abs(mean) < error < 1e3 or error < 1e-5:
        return f"{mean:.4g}" + (f" ± {error:.1g}" if error else "")
    digits = max(0, 1 - math.floor(math.log10(error)))  # two digits of the error
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _as_text(table: _Table) -> str:
    """Lay a table out in columns: the first flush left, the others flush right."""
    lines = [table.header, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]).rstrip()
        for cells in lines
    ]
    return "\n".join([table.title, "-" * len(max(text, key=len)), *text])


def _as_html(table: _Table) -> str:
    """Lay a table out as HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f"<table><caption>{escape(table.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
