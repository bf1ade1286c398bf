"""Errors in and out of distribution, beside the risks that are known in closed form."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from skcurse.displays._style import COLORS, LABEL, LEGEND, MARKERS, make_axes


class ComparisonDisplay:
    """Mean squared error of each estimator under each law of a data model.

    One point of a data grid is drawn as a row of markers for each estimator; several points that
    differ in one number as curves over that number. Bars are standard errors over the folds.

    Parameters
    ----------
    estimators : list of str
        Names.
    points : list of dict
        Parameters of the data model at each point of the grid.
    errors : dict of str to ndarray of shape (n_points, n_estimators, n_folds)
        Mean squared errors, for each law by its name.
    references : dict of str to dict of str to ndarray of shape (n_points,), default=None
        For each law the risks of named predictors.
    title : str, default=None
        Name of the data model.

    Attributes
    ----------
    ax_ : matplotlib axes
        Set by `plot`.
    figure_ : matplotlib figure
        Set by `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.displays import ComparisonDisplay
    >>> errors = {"in distribution": np.array([[[0.1, 0.2], [0.3, 0.4]]])}
    >>> display = ComparisonDisplay(["ridge", "forest"], [{}], errors).plot()
    >>> [text.get_text() for text in display.ax_.get_yticklabels()]
    ['ridge', 'forest']
    """

    def __init__(
        self,
        estimators: list[str],
        points: list[dict[str, Any]],
        errors: dict[str, NDArray[np.float64]],
        *,
        references: dict[str, dict[str, NDArray[np.float64]]] | None = None,
        title: str | None = None,
    ) -> None:
        self.estimators = estimators
        self.points = points
        self.errors = errors
        self.references = references
        self.title = title

    @classmethod
    def from_comparison(
        cls, comparison: Any, *, data_model: str | None = None, ax: Any = None
    ) -> Self:
        """Plot a `Comparison`.

        Parameters
        ----------
        comparison : Comparison
            What `compare` returned.
        data_model : str, default=None
            Name of one of its data models, by default the first.
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        ComparisonDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If the comparison has no such data model.
        ImportError
            If matplotlib is not installed.
        """
        results = comparison.results_
        names = list(dict.fromkeys(results["data_model"]))
        data_model = names[0] if data_model is None else data_model
        if data_model not in names:
            raise ValueError(f"No data model {data_model!r} in this comparison; it has {names}.")
        rows = np.flatnonzero(results["data_model"] == data_model)
        estimators = list(dict.fromkeys(results["estimator"][rows]))
        points = [results["params"][i] for i in rows[:: len(estimators)]]
        errors = {}
        for law in comparison.laws_:
            values = comparison.scores("mse", law)[rows]
            if not np.isnan(values).all():
                errors[_label(law)] = values.reshape(len(points), len(estimators), -1)
        references: dict[str, dict[str, Any]] = {}
        for reference in comparison.references_:
            if reference.data_model == data_model:
                by_name = references.setdefault(_label(reference.shift), {})
                by_name.setdefault(reference.name, []).append(reference.risk)
        references = {
            law: {name: np.array(risks) for name, risks in by_name.items()}
            for law, by_name in references.items()
        }
        display = cls(estimators, points, errors, references=references, title=data_model)
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure, one column of a paper wide.

        Returns
        -------
        self : ComparisonDisplay
            With ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        own_figure = ax is None
        parameter = self._curve_parameter()
        if parameter is None:
            self._plot_rows(ax)
        else:
            self._plot_curves(ax, parameter)
        self.figure_ = self.ax_.figure
        if self.title:
            self.ax_.set_title(self.title, **LABEL)
        if own_figure:
            self.figure_.legend(loc="outside upper center", ncols=2, **LEGEND)
        else:
            self.ax_.legend(ncols=2, **LEGEND)
        return self

    def _curve_parameter(self) -> str | None:
        """Name of the one numeric parameter in which several points differ."""
        names = list(self.points[0])
        varying = [p for p in names if len({repr(point[p]) for point in self.points}) > 1]
        if len(varying) != 1:
            return None
        numeric = all(isinstance(point[varying[0]], Real) for point in self.points)
        return varying[0] if numeric else None

    def _plot_rows(self, ax: Any) -> None:
        """One row of markers an estimator, then hollow ones for the references."""
        labels = [
            ", ".join([name, *(f"{k} = {v}" for k, v in point.items() if len(self.points) > 1)])
            for point in self.points
            for name in self.estimators
        ]
        known = dict.fromkeys(name for law in (self.references or {}).values() for name in law)
        n_lines = len(labels) + len(known) * len(self.points)
        self.ax_ = ax = make_axes(ax, height=1.0 + 0.24 * n_lines)
        for k, (law, values) in enumerate(self.errors.items()):
            style = {"color": COLORS[k], "marker": MARKERS[k], "linestyle": "none"}
            offset = 0.26 * ((k + 0.5) / len(self.errors) - 0.5)  # equal errors stay visible
            flat = values.reshape(len(labels), -1)
            ax.errorbar(flat.mean(axis=1), np.arange(len(labels)) + offset, markersize=5,
                        xerr=_standard_error(flat), label=law, **style)  # fmt: skip
            risks = (self.references or {}).get(law, {})
            for j, name in enumerate(known):
                rows = len(labels) + j * len(self.points) + np.arange(len(self.points))
                if name in risks:
                    ax.plot(
                        risks[name], rows + offset, markerfacecolor="none", markersize=5, **style
                    )
        labels += [f"({name})" for name in known for _ in self.points]
        ax.set_yticks(range(n_lines), labels)
        ax.set_ylim(n_lines - 0.5, -0.5)
        ax.axhline(n_lines - len(known) * len(self.points) - 0.5, color="0.7", linewidth=0.8)
        ax.set_xscale("log")
        ax.set_xlabel("mean squared error", **LABEL)
        ax.grid(axis="x", which="both", color="0.9", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(labelsize=8)

    def _plot_curves(self, ax: Any, parameter: str) -> None:
        """Draw one curve an estimator and law; references are black."""
        self.ax_ = ax = make_axes(ax, height=3.2)
        x = np.array([point[parameter] for point in self.points], dtype=float)
        order = np.argsort(x)
        for k, (law, values) in enumerate(self.errors.items()):
            line = ("--", "-", ":", "-.")[k % 4]
            for j, name in enumerate(self.estimators):
                ax.errorbar(x[order], values[order, j].mean(axis=1), linestyle=line,
                            yerr=_standard_error(values[order, j]), color=COLORS[j % len(COLORS)],
                            marker=MARKERS[j % len(MARKERS)], markersize=4, linewidth=1.2,
                            label=name if k == 0 else None)  # fmt: skip
            if "predict zero" in (risks := (self.references or {}).get(law, {})):
                # Crosses tell it from the law's own entry in the legend, a line alone.
                ax.plot(x[order], risks["predict zero"][order], color="black", linestyle=line,
                        linewidth=0.8, marker="x", markersize=4,
                        label="(predict zero)" if k == 0 else None)  # fmt: skip
            ax.plot([], [], color="0.4", linestyle=line, label=law)
        ax.set_yscale("log")
        ax.set_xlabel(parameter, **LABEL)
        ax.set_ylabel("mean squared error", **LABEL)
        ax.tick_params(labelsize=8)


def _label(law: str | None) -> str:
    return "in distribution" if law is None else law.replace("_", "-")


def _standard_error(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the standard error over the last axis; None for a single fold."""
    n_folds = values.shape[-1]
    return None if n_folds < 2 else values.std(axis=-1, ddof=1) / np.sqrt(n_folds)
