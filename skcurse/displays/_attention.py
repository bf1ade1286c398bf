"""Where in a window the neurons of each sign look."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_array

from skcurse.displays._fitted import fitted_attributes, row_of_output
from skcurse.displays._style import COLORS, LABEL, LEGEND, make_axes

_BLOCK = 2**22  # softmax weights in memory at once


class AttentionDisplay:
    r"""Mean softmax weight on each step of a window, by the sign of the neurons' output.

    Parameters
    ----------
    attention : dict of int to array-like of shape (n_steps,)
        For each sign the mean weights, oldest step first.

    Attributes
    ----------
    ax_ : matplotlib axes
        Set by `plot`.
    figure_ : matplotlib figure
        Set by `plot`.

    Notes
    -----
    The mean of :math:`\mathrm{softmax}(w_r x_d x)` over windows and over neurons of one sign.
    Theorem 5.3 of [1]_ claims that neurons with :math:`a_r = -1` lose the last step; whether they
    do is measured by ``skcurse ledger``.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061.

    Examples
    --------
    >>> from skcurse.displays import AttentionDisplay
    >>> display = AttentionDisplay({1: [0.2, 0.8], -1: [0.7, 0.3]}).plot()
    >>> display.ax_.get_xlabel()
    'steps before the last one'
    """

    def __init__(self, attention: dict[int, ArrayLike]) -> None:
        self.attention = attention

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, *, output: int = 0, ax: Any = None
    ) -> Self:
        """Plot the attention of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            With ``weights_`` and ``signs_``.
        X : array-like of shape (n_samples, n_features)
            Windows.
        output : int, default=0
            Which network, if y has several columns.
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        AttentionDisplay
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
        weights, signs = fitted_attributes(estimator, "weights_", "signs_")
        windows = check_array(X, dtype=np.float64)
        weights, signs = row_of_output(weights, output), np.asarray(signs)
        means = {sign: _mean_attention(windows, weights[signs == sign]) for sign in (1, -1)}
        return cls({sign: mean for sign, mean in means.items() if mean is not None}).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure, one column of a paper wide.

        Returns
        -------
        self : AttentionDisplay
            With ``ax_`` and ``figure_``.

        Raises
        ------
        ValueError
            If there are no weights to show.
        ImportError
            If matplotlib is not installed.
        """
        if not any(map(np.size, self.attention.values())):
            raise ValueError(
                "attention holds no weights: give one a step of the window for a sign at least, "
                "such as {1: [0.2, 0.8]}."
            )
        self.ax_ = ax = make_axes(ax)
        n_steps = max(np.size(weights) for weights in self.attention.values())
        lags = np.arange(n_steps - 1, -1, -1)
        for sign, weights in self.attention.items():
            color, marker = (COLORS[5], "^") if sign > 0 else (COLORS[0], "v")
            ax.plot(lags, weights, color=color, marker=marker, markersize=4, linewidth=1,
                    label=f"$a_r = {sign:+d}$")  # fmt: skip
        ax.axhline(1 / n_steps, color="black", linestyle="--", linewidth=1, label="uniform")
        ax.set_xlim(n_steps - 0.5, -0.5)
        ax.set_ylim(0, 1.08 * max(1 / n_steps, *map(np.max, self.attention.values())))
        ax.set_xlabel("steps before the last one", **LABEL)
        ax.set_ylabel("mean softmax weight", **LABEL)
        ax.tick_params(labelsize=8)
        ax.legend(**LEGEND)
        self.figure_ = ax.figure
        return self


def _mean_attention(
    X: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Mean over windows and neurons of the softmax weights; None without a neuron."""
    if weights.size == 0:
        return None
    total = np.zeros(X.shape[1])
    for rows in gen_batches(len(X), max(1, _BLOCK // (weights.size * X.shape[1]))):
        scores = X[rows, -1:, None] * X[rows, None, :] * weights[:, None]  # (rows, m, d)
        total += softmax(scores, axis=-1).sum(axis=(0, 1))
    return total / (len(X) * weights.size)
