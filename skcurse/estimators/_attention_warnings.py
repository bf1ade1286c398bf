"""What a fit of AttentionNTKRegressor warns of when it has ended.

`learner` is the estimator with its fitted attributes.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcurse.estimators._attention_training import noise
from skcurse.theory.descent import ROUNDING, Descent

# A loss that has fallen by no more than this share of itself shows nothing learnt.
_NOTHING = 1e-4


def warn_of_fit(learner: Any, run: Descent | None) -> None:
    """Warn where numbers would mislead, or a descent did not end well."""
    worse = _warn_if_worse_than_mean(learner)
    if run is not None:
        _warn_of_ending(learner, run, worse)


def _warn_if_worse_than_mean(learner: Any) -> bool:
    """Warn where the trained model fits its rows worse than one number would; whether it does."""
    y, weight = learner.y_fit_, learner.sample_weight_fit_
    weight = np.ones(len(y)) if weight is None else weight
    mean = np.average(y, axis=0, weights=weight / weight.max())
    # Roots first: squares of their own could overflow.
    constant = 0.5 * float(np.sum((np.sqrt(weight) * (y - mean).T) ** 2))
    if learner.regime_ == "infinite":
        moved = learner.node_weights_
    else:
        moved = learner.weights_ - learner.initial_weights_
    ridge = float(np.sum((math.sqrt(0.5 * learner.alpha) * moved) ** 2))
    trained = learner.loss_curve_[-1] - ridge
    # A tenth more is what y off centre may cost; the last term is rounding.
    worse = constant > 0 and trained > 1.1 * constant + 1e-12 * learner.loss_curve_[0]
    if worse:
        warnings.warn(
            f"The loss on the training rows, {trained:.3g}, is above the {constant:.3g} of "
            "predicting the mean of y. The query multiplies the attention scores and the output is "
            "a tilted mean of the window: standardise the series before it is cut into windows.",
            UserWarning,
            stacklevel=5,
        )
    return bool(worse)


def _warn_of_ending(learner: Any, run: Descent, worse: bool) -> None:
    """Say why a descent that did not converge ended, or, if no one has, that nothing was learnt."""
    first, last = run.losses[0], run.losses[-1]
    if run.converged:
        if worse or not _learnt_nothing(learner, run):
            return
        longer = "" if learner.learning_rate == "auto" else ", or raise learning_rate"
        said = (
            f"nothing has been learnt: the loss went from {first:.6g} to {last:.6g}. Outputs stay "
            "within the range of the windows, times at most the root of n_neurons, and a softmax "
            f"of large scores hardly moves: scale X and y to unit variance{longer}."
        )
    elif last > first * (1.0 + ROUNDING):
        said = (
            f"the loss, {last:.6g}, is above the {first:.6g} of the start. Use a smaller "
            "learning_rate, or 'auto', or scale X and y to unit variance."
        )
    else:
        said = (
            f"max_iter={learner.max_iter} ended the fit before the loss stood still to "
            f"tol={learner.tol:g}. Raise max_iter or tol."
        )
    steps = "1 step" if run.n_iter == 1 else f"{run.n_iter} steps"
    warnings.warn(f"After {steps} {said}", ConvergenceWarning, stacklevel=5)


def _learnt_nothing(learner: Any, run: Descent) -> bool:
    """Whether a descent came to rest where it began, though there was something to learn."""
    X, first, last = learner.X_fit_, run.losses[0], run.losses[-1]
    # Steps that a callback has cut short, or that go on with an earlier fit, may gain little; so
    # may those of a constant window or a query of zero, whose output does not depend on weights.
    return bool(
        run.ending != "watch"
        and np.all(learner.start_weights_ == learner.initial_weights_)
        and last >= first * (1.0 - min(learner.tol, _NOTHING))
        and last > noise(learner)
        and np.any((X[:, -1] != 0) & (X.max(axis=1) > X.min(axis=1)))
    )
