"""Steps of a gradient descent as tasks of scikit-learn's callbacks."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.callback import CallbackContext

from skcurse.theory.descent import Step


class StepTasks:
    """Watch a descent: one callback task a step, and a line on the console now and then.

    Parameters
    ----------
    root : CallbackContext
        Context of the fit.
    task : dict
        The estimator, its data and metadata, as the hooks take them.
    learner : estimator
        Has all fitted attributes but the weights.
    """

    def __init__(self, root: CallbackContext, task: dict[str, Any], learner: BaseEstimator) -> None:
        self._root = root
        self._task = task
        self._learner = learner
        self._current: Any = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *error: object) -> None:
        # The task of a step that is not taken, or not finished, ends with nothing to show.
        if self._current is not None:
            self._current.call_on_fit_task_end(estimator=self._task["estimator"])

    def __call__(self, step: Step) -> bool:
        """End the task of this step, begin the next; whether a callback wants to stop."""
        if self._learner.verbose and set(str(step.n_iter)[1:]) <= {"0"}:
            name = type(self._learner).__name__
            print(f"[{name}] step {step.n_iter}: loss {step.loss:.6g}")
        stop = self._current.call_on_fit_task_end(
            **self._task, reconstruction_attributes=lambda: self._fitted(step)
        )
        self._current = None
        if not stop and step.n_iter < self._learner.max_iter:
            self._begin()
        return bool(stop)

    def _begin(self) -> None:
        self._current = self._root.subcontext(task_name="step")
        self._current.call_on_fit_task_begin(**self._task)

    def _fitted(self, step: Step) -> dict[str, Any]:
        """Fitted attributes as if training had ended with this step."""
        ended = {"weights_": step.weights, "n_iter_": step.n_iter, "loss_curve_": [step.loss]}
        # A compressed network of the previous fit must not answer for these weights.
        return {**learned(self._learner), **ended, "compressed_": None}


def learned(estimator: BaseEstimator) -> dict[str, Any]:
    """Attributes that fit sets."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}
