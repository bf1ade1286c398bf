"""Eigenvalues of the neural tangent kernel, down to what double precision resolves."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skcurse.displays._fitted import fitted_attributes, row_of_output
from skcurse.displays._style import COLORS, LABEL, LEGEND, MARKERS, make_axes

RESOLUTION = 1e-30  # of the largest: the square of what singular values resolve


class NTKSpectrumDisplay:
    """Eigenvalues of the neural tangent kernel in descending order.

    Parameters
    ----------
    eigenvalues : dict of str to array-like of shape (n_samples,)
        Spectra by name; nan stands for an eigenvalue below what is resolved.

    Attributes
    ----------
    ax_ : matplotlib axes
        Set by `plot`.
    figure_ : matplotlib figure
        Set by `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.displays import NTKSpectrumDisplay
    >>> display = NTKSpectrumDisplay({"initial": [1.0, 1e-8, np.nan]}).plot()
    >>> display.ax_.get_yscale()
    'log'
    """

    def __init__(self, eigenvalues: dict[str, ArrayLike]) -> None:
        self.eigenvalues = eigenvalues

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, *, output: int = 0, ax: Any = None
    ) -> Self:
        """Plot the spectra of a fitted estimator at initialisation and after training.

        Parameters
        ----------
        estimator : fitted estimator
            With ``ntk_eigenvalues``.
        X : array-like of shape (n_samples, n_features)
            Windows.
        output : int, default=0
            Which network, if y has several columns.
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        NTKSpectrumDisplay
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
        (spectrum,) = fitted_attributes(estimator, "ntk_eigenvalues")
        initial, fitted = spectrum(X, at="initial"), spectrum(X, at="fitted")
        # All outputs have one kernel where training leaves it as it was.
        n_outputs = np.size(estimator.predict(X)) // len(initial)
        fitted = row_of_output(np.broadcast_to(fitted, (n_outputs, len(initial))), output)
        spectra: dict[str, ArrayLike] = {"at initialisation": initial}
        if not np.array_equal(initial, fitted, equal_nan=True):
            spectra["after training"] = fitted
        return cls(spectra).plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure, one column of a paper wide.

        Returns
        -------
        self : NTKSpectrumDisplay
            With ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        self.ax_ = ax = make_axes(ax)
        largest, last = 0.0, 1
        for k, (name, values) in enumerate(self.eigenvalues.items()):
            spectrum = np.asarray(values, dtype=float)
            shown = spectrum > 0
            index = np.flatnonzero(shown) + 1
            largest = max(largest, spectrum[shown].max(initial=0.0))
            last = max(last, index.max(initial=1))
            ax.plot(index, spectrum[shown], linestyle="none", markersize=3,
                    marker=MARKERS[k % len(MARKERS)], color=COLORS[k % len(COLORS)],
                    label=name)  # fmt: skip
        if largest > 0:
            ax.axhline(RESOLUTION * largest, color="black", linestyle="--", linewidth=1,
                       label="resolution")  # fmt: skip
            ax.set_yscale("log")
        ax.set_xlim(0, last + 1)
        ax.set_xlabel("index", **LABEL)
        ax.set_ylabel("eigenvalue of the kernel", **LABEL)
        ax.tick_params(labelsize=8)
        ax.legend(**LEGEND)
        self.figure_ = ax.figure
        return self
