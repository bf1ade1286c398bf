"""Where the weights of the two signs went."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skcurse.displays._fitted import fitted_attributes, row_of_output
from skcurse.displays._style import COLORS, LABEL, LEGEND, make_axes


class AsymmetryDisplay:
    """Trained against initial weights of an attention network, by the sign of their output.

    Parameters
    ----------
    initial_weights, weights : array-like of shape (n_neurons,)
        Before and after training.
    signs : array-like of shape (n_neurons,)
        Second layer, +1 or -1.

    Attributes
    ----------
    ax_ : matplotlib axes
        Set by `plot`.
    figure_ : matplotlib figure
        Set by `plot`.

    Notes
    -----
    Asymmetric learning, Theorem 5.2 of [1]_: positive neurons move above the diagonal, negative
    ones below it.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061.

    Examples
    --------
    >>> from skcurse.displays import AsymmetryDisplay
    >>> display = AsymmetryDisplay([0.0, 1.0], [0.5, 0.2], [1, -1]).plot()
    >>> display.ax_.get_xlabel()
    'initial weight $w_r(0)$'
    """

    def __init__(self, initial_weights: ArrayLike, weights: ArrayLike, signs: ArrayLike) -> None:
        self.initial_weights = initial_weights
        self.weights = weights
        self.signs = signs

    @classmethod
    def from_estimator(cls, estimator: Any, *, output: int = 0, ax: Any = None) -> Self:
        """Plot the weights of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            With ``weights_``, ``initial_weights_`` and ``signs_``.
        output : int, default=0
            Which network, if y has several columns.
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        AsymmetryDisplay
            The display, plotted.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If it has no such attributes or no such output.
        ImportError
            If matplotlib is not installed.
        """
        initial, weights, signs = fitted_attributes(
            estimator, "initial_weights_", "weights_", "signs_"
        )
        return cls(initial, row_of_output(weights, output), signs).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure, one column of a paper wide.

        Returns
        -------
        self : AsymmetryDisplay
            With ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        start, end, signs = map(np.asarray, (self.initial_weights, self.weights, self.signs))
        self.ax_ = ax = make_axes(ax, height=3.0)
        for sign, color, marker in ((1, COLORS[5], "^"), (-1, COLORS[0], "v")):
            rows = signs == sign
            ax.plot(start[rows], end[rows], linestyle="none", marker=marker, markersize=3,
                    color=color, alpha=0.7, label=f"$a_r = {sign:+d}$")  # fmt: skip
        ax.axline((0, 0), slope=1, color="0.4", linewidth=0.8, zorder=0, label="not moved")
        ax.set_xlabel("initial weight $w_r(0)$", **LABEL)
        ax.set_ylabel("trained weight $w_r(t)$", **LABEL)
        ax.tick_params(labelsize=8)
        ax.legend(**LEGEND)
        self.figure_ = ax.figure
        return self
