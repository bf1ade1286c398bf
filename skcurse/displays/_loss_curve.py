"""Loss against steps of training, beside the rate that the tangent kernel promises."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.displays._fitted import fitted_attributes
from skcurse.displays._style import COLORS, LABEL, LEGEND, make_axes
from skcurse.estimators import AttentionNTKRegressor, SoftmaxICLRegressor

_LEAST_DECAY = 1e-3  # of a residual over the whole run, to be seen and to be worth a line


class LossCurveDisplay:
    r"""Training loss, and the rate of the slowest direction of the neural tangent kernel.

    Parameters
    ----------
    losses : array-like of shape (n_points,)
        Losses.
    steps : array-like of shape (n_points,), default=None
        Their steps; None means 0, 1, 2, ...
    contraction : float, default=None
        :math:`\eta\lambda`, step size times eigenvalue: the share of a residual that one step
        removes. Its line is drawn if all steps together come to 1e-3 or more.
    validation_losses : array-like of shape (n_points,), default=None
        Losses on held-out rows at the same steps.
    name : str, default="loss"
        Which loss it is, for the axis.

    Attributes
    ----------
    ax_ : matplotlib axes
        Set by `plot`.
    figure_ : matplotlib figure
        Set by `plot`.

    Notes
    -----
    The dashed line is :math:`L(0)\,(1 - \eta\lambda)^{2t}`: the loss of a residual that lies along
    the eigenvector of :math:`\lambda`, for the linearised network. [1]_ bounds the loss with the
    smallest eigenvalue. Where that is so small that :math:`\eta\lambda t < 10^{-3}` at the last
    step, the line would be flat and the bound says nothing: it is left out.

    References
    ----------
    .. [1] Ke et al., "Curse of Attention", arXiv:2412.06061, Theorem 5.2 (I.1).

    Examples
    --------
    >>> from skcurse.displays import LossCurveDisplay
    >>> display = LossCurveDisplay([1.0, 0.5, 0.3], contraction=0.1).plot()
    >>> display.ax_.get_yscale()
    'log'
    """

    def __init__(
        self,
        losses: ArrayLike,
        steps: ArrayLike | None = None,
        *,
        contraction: float | None = None,
        validation_losses: ArrayLike | None = None,
        name: str = "loss",
    ) -> None:
        self.losses = losses
        self.steps = steps
        self.contraction = contraction
        self.validation_losses = validation_losses
        self.name = name

    @classmethod
    def from_estimator(cls, estimator: Any, X: ArrayLike | None = None, *, ax: Any = None) -> Self:
        """Plot the training of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            With ``loss_curve_``; losses on held-out rows are drawn if it has
            ``validation_loss_curve_``, the rate if it has ``ntk_eigenvalues`` and
            ``learning_rate_``. The axis tells half the sum of squares from half their mean;
            both count a penalty in.
        X : array-like of shape (n_samples, n_features), default=None
            Training windows; None draws no rate.
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure.

        Returns
        -------
        LossCurveDisplay
            The display, plotted.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If it has no such attributes.
        ImportError
            If matplotlib is not installed.
        """
        (losses,) = fitted_attributes(estimator, "loss_curve_")
        contraction = None
        if X is not None and hasattr(estimator, "ntk_eigenvalues"):
            eigenvalues = np.ravel(estimator.ntk_eigenvalues(X, at="initial"))
            resolved = eigenvalues[eigenvalues > 0]  # unresolved ones are nan
            if resolved.size:
                contraction = float(estimator.learning_rate_ * resolved.min())
        steps = getattr(estimator, "loss_steps_", None)
        display = cls(
            losses,
            steps,
            contraction=contraction,
            validation_losses=getattr(estimator, "validation_loss_curve_", None),
            name=_loss_name(estimator),
        )
        return display.plot(ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            Where to plot; None makes a new figure, one column of a paper wide.

        Returns
        -------
        self : LossCurveDisplay
            With ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        own_figure = ax is None
        losses = np.asarray(self.losses, dtype=float)
        steps = np.arange(len(losses)) if self.steps is None else np.asarray(self.steps, float)
        shown = np.isfinite(steps)  # a closed form may go on to infinity
        self.ax_ = ax = make_axes(ax)
        ax.plot(steps[shown], losses[shown], color=COLORS[0], label="training loss")
        if not shown.all():
            ax.axhline(losses[~shown][-1], color=COLORS[0], linestyle=":", label="after ∞ steps")
        if self.validation_losses is not None:
            held_out = np.asarray(self.validation_losses, dtype=float)
            ax.plot(steps[shown], held_out[shown], color=COLORS[1], linestyle="-.",
                    label="validation loss")  # fmt: skip
        contraction = self.contraction or 0.0
        if contraction * steps[shown].max(initial=0.0) >= _LEAST_DECAY:
            floor, top = ax.get_ylim()
            rate = _predicted(losses[0], contraction, steps[shown])
            ax.plot(steps[shown], rate, color="black", linestyle="--", linewidth=1,
                    label=r"$L(0)\,(1-\eta\lambda_{\min})^{2t}$")  # fmt: skip
            ax.set_ylim(min(floor, losses[shown].min()), max(top, losses[0] * 1.1))
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xlim(0, max(1.0, steps[shown].max(initial=0.0)))
        ax.xaxis.get_major_locator().set_params(numticks=6)  # a closed form spans many decades
        if (losses > 0).all():
            ax.set_yscale("log")
        ax.set_xlabel("step of gradient descent", **LABEL)
        ax.set_ylabel(self.name, **LABEL)
        ax.tick_params(which="both", labelsize=8)
        self.figure_ = ax.figure
        if own_figure:
            self.figure_.legend(loc="outside upper center", ncols=2, **LEGEND)
        else:
            ax.legend(**LEGEND)
        return self


def _loss_name(estimator: Any) -> str:
    """Say which loss an estimator descends on."""
    if isinstance(estimator, AttentionNTKRegressor):
        return "half the sum of squares"
    return "half the mean of squares" if isinstance(estimator, SoftmaxICLRegressor) else "loss"


def _predicted(start: float, contraction: float, steps: NDArray[np.float64]) -> Any:
    """Loss of a residual along one eigenvector after `steps` steps."""
    return start * np.exp(2 * steps * np.log1p(-min(contraction, 1 - 1e-12)))
