"""Gradient descent of SoftmaxICLRegressor: threads, held-out loss, callbacks and when to stop."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sklearn.callback import CallbackContext
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info, threadpool_limits

from skcurse.estimators._icl_examples import Batch
from skcurse.estimators._resources import block_bytes
from skcurse.estimators._step_tasks import learned
from skcurse.theory.adaptive_descent import gradient_descent


def descend(
    learner: Any,
    training: Batch,
    held_out: Batch | None,
    root: CallbackContext,
    task: dict[str, Any],
) -> None:
    """Run gradient descent from `query_key_` and leave its results on `learner`."""
    n_threads = _blas_threads()
    # Blocks are small: a thread for each is much faster than threads within their products.
    with ThreadPoolExecutor(n_threads) as pool, threadpool_limits(1, user_api="blas"):
        share = block_bytes() // n_threads
        run = pool.map if n_threads > 1 else map
        steps = gradient_descent(
            partial(training.loss_gradient, alpha=learner.alpha, block_bytes=share, map=run),
            learner.query_key_,
            learning_rate=learner.learning_rate,
        )
        step = next(steps)
        watched = learner.loss_curve_ = [step.loss]
        if held_out is not None:
            validate = partial(held_out.loss_gradient, alpha=0.0, block_bytes=share, map=run)
            watched = learner.validation_loss_curve_ = [validate(step.point).loss]
        for n_iter in range(1, learner.max_iter + 1):
            subtask = root.subcontext(task_name="step")
            subtask.call_on_fit_task_begin(**task)
            step = next(steps)
            learner.n_iter_, learner.learning_rate_ = n_iter, step.learning_rate
            learner.loss_curve_.append(step.loss)
            if held_out is not None:
                watched.append(validate(step.point).loss)
            if held_out is None or watched[-1] <= min(watched):
                learner.query_key_ = step.point
            if learner.verbose and set(str(n_iter)[1:]) <= {"0"}:
                print(f"[{type(learner).__name__}] step {n_iter}: loss {step.loss:.6g}")
            stop = subtask.call_on_fit_task_end(
                **task, reconstruction_attributes=lambda: learned(learner)
            )
            if stop or _stalled(watched, learner.tol, learner.n_iter_no_change):
                return
    warnings.warn(
        f"The loss had not settled to tol={learner.tol:g} when max_iter={learner.max_iter} was "
        "reached. Raise max_iter or tol, or set early_stopping=True.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _stalled(losses: list[float], tol: float, n_iter_no_change: int) -> bool:
    """Whether the last steps have not lowered the best loss by more than the factor 1 - tol."""
    if len(losses) <= n_iter_no_change:
        return False
    return min(losses[-n_iter_no_change:]) >= (1 - tol) * min(losses[:-n_iter_no_change])


def _blas_threads() -> int:
    """Return the number of threads that linear algebra is allowed here, also within workers."""
    libraries = [lib for lib in threadpool_info() if lib["user_api"] == "blas"]
    return min((lib["num_threads"] for lib in libraries), default=1)
