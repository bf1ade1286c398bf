"""The phases in which attention learns one feature in context."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from skcurse.displays._style import COLORS, LABEL, LEGEND, make_axes
from skcurse.theory.icl_phases import training_phases


class PhaseDisplay:
    r"""Bilinear weights and rates of one query feature during population gradient descent.

    Parameters
    ----------
    trajectory : Trajectory
        A run of `skcurse.theory.icl_population.population_descent`.
    query : int
        The query's feature k; the run must follow it.

    Attributes
    ----------
    ax_ : ndarray of two matplotlib axes
        Weights, and rates below them. Set by `plot`.
    figure_ : matplotlib figure
        Set by `plot`.

    Notes
    -----
    Above: :math:`A_k`, the weight on the query's own feature, :math:`B_{k,1}` on the most likely
    one, and the largest and smallest of the others. Below: the rates :math:`\alpha_k` and
    :math:`|\beta_{k,n}|` that move them. Shades are the phases of [1]_, Section 4; one that is
    narrower than its numeral goes without.

    References
    ----------
    .. [1] Huang, Cheng, Liang, "In-Context Convergence of Transformers", arXiv:2310.05249.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.displays import PhaseDisplay
    >>> from skcurse.theory.icl_population import population_descent
    >>> p = np.append(0.5, np.full(9, 0.5 / 9))
    >>> run = population_descent(p, 200, learning_rate=4.0, n_iter=300, queries=[3], record=1)
    >>> PhaseDisplay.from_trajectory(run, query=3).ax_.shape
    (2,)
    """

    def __init__(self, trajectory: Any, query: int) -> None:
        self.trajectory = trajectory
        self.query = query

    @classmethod
    def from_trajectory(cls, trajectory: Any, query: int, *, ax: Any = None) -> Self:
        """Plot one query feature of a run.

        Parameters
        ----------
        trajectory : Trajectory
            A run of `population_descent`.
        query : int
            The query's feature.
        ax : array of two matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        PhaseDisplay
            The display, plotted.

        Raises
        ------
        ValueError
            If the run does not follow `query`, or `ax` is not two axes.
        ImportError
            If matplotlib is not installed.
        """
        return cls(trajectory, query).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : array of two matplotlib axes, default=None
            Where to plot; None makes a new figure, one column of a paper wide.

        Returns
        -------
        self : PhaseDisplay
            With ``ax_`` and ``figure_``.

        Raises
        ------
        ValueError
            If the run does not follow `query`, or `ax` is not two axes.
        ImportError
            If matplotlib is not installed.
        """
        run, k = self.trajectory, self.query
        phases = training_phases(run, k)
        if ax is not None and np.shape(ax) != (2,):
            raise ValueError(f"ax must be an array or list of two axes, got {ax!r}.")
        own_figure = ax is None
        self.ax_ = axes = np.asarray(make_axes(ax, height=4.0, rows=2))
        column = int(np.flatnonzero(run.queries == k)[0])
        leader = int(np.argmax(run.p))
        others = [n for n in np.flatnonzero(run.p > 0) if n not in (k, leader)]
        for panel, values in zip(axes, (run.logits[:, column], run.rates[:, column]), strict=True):
            values = values if panel is axes[0] else np.abs(values)
            name = ("A", "B") if panel is axes[0] else (r"\alpha", r"\beta")
            bars = ("", "") if panel is axes[0] else ("|", "|")
            panel.plot(run.steps, values[:, k], color=COLORS[0], label=f"${name[0]}_k$")
            if leader != k:
                panel.plot(run.steps, values[:, leader], color=COLORS[5], linestyle="--",
                           label=f"${bars[0]}{name[1]}_{{k,1}}{bars[1]}$")  # fmt: skip
            if others:
                label = f"${bars[0]}{name[1]}_{{k,n}}{bars[1]}$"
                _band(panel, run.steps, values[:, others], label)
            self._shade(panel, phases)
            panel.tick_params(labelsize=8)
            panel.legend(**LEGEND)
        axes[0].set_ylabel("bilinear weight", **LABEL)
        axes[1].set_ylabel("rate", **LABEL)
        if np.any(run.rates[:, column]):
            axes[1].set_yscale("log")
        axes[1].set_xlabel("step of gradient descent", **LABEL)
        if own_figure:
            axes[0].set_title(f"{phases.kind} feature", fontsize=9, pad=14)
        self.figure_ = axes[0].figure
        return self

    def _shade(self, panel: Any, phases: Any) -> None:
        """Shade every other phase and number them above the panel."""
        steps = self.trajectory.steps
        if steps[-1] > steps[0]:
            panel.set_xlim(steps[0], steps[-1])
        edges = [*phases.starts, steps[-1]]
        for i, label in enumerate(("I", "II", "III", "IV")[-len(phases.starts) :]):
            start = edges[i]
            later = [edge for edge in edges[i + 1 :] if edge >= 0]
            if start < 0 or not later or later[0] == start:
                continue
            if i % 2:
                panel.axvspan(start, later[0], color="0.92", zorder=0)
            text = panel.annotate(label, ((start + later[0]) / 2, 1.02), ha="center", fontsize=8,
                                  xycoords=("data", "axes fraction"))  # fmt: skip
            left, right = panel.transData.transform([(start, 1), (later[0], 1)])[:, 0]
            if text.get_window_extent().width > right - left:
                text.remove()


def _band(panel: Any, steps: Any, values: Any, label: str) -> None:
    """Draw the range of several curves, or the one curve that they all are."""
    low, high = values.min(axis=1), values.max(axis=1)
    if np.allclose(low, high, rtol=0.01):
        panel.plot(steps, high, color=COLORS[2], linestyle="-.", label=label)
    else:
        panel.fill_between(steps, low, high, color=COLORS[2], linewidth=1, label=label)
