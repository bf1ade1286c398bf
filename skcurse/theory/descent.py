"""The loop of gradient descent: step, stopping rule, and what a diverging step is told.

The loop knows nothing about networks. It takes an *objective*, any callable

    objective(weights) -> (loss, gradient, ...)

whose first two entries are a float and an array of the shape of `weights`; what follows is
ignored. The direct formula (`skcurse.theory.attention_ntk.loss_gradient` with its data bound by
`functools.partial`) is one, a table that replaces the sums over the data is another. Where not even
the weights are kept from step to step, `follow` takes the steps themselves: the stopping rule and
the check for divergence are the same for all.

The inverse of the largest eigenvalue of the kernel at initialisation is a safe step only as long as
the kernel stays near its start. So a step size that was not chosen by the user may be halved, for
good, when a step would lift the loss above its first value (`descent_steps`, ``shorten``).
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[Any, ...]]

# A long step may lift the loss for a while before it settles in a flatter place; what rises beyond
# the first factor at any time, or beyond the second at the end, has diverged.
_GROWTH_LIMIT = 10.0
_FINAL_LIMIT = 2.0
#: Two sums of the same n squares, by rows or from a table, differ by about √n eps of the loss: less
#: than this share of it up to 10^7 rows. Where softmax has become one-hot the loss is flat; a rise
#: by rounding there is no reason for a shorter step, and hardly any step would be short enough.
ROUNDING = 1e-12


class Descent(NamedTuple):
    """A run of gradient descent.

    Attributes
    ----------
    weights : ndarray
        The last weights, in the shape of the first.
    losses : ndarray of shape (n_iter + 1,)
        The loss before any step and after each.
    n_iter : int
        Steps taken.
    converged : bool
        Whether the run ended because the loss no longer changed, at a value not above the first but
        for rounding, or because `watch` ended it, rather than at `max_iter`.
    learning_rate : float
        The last step size.
    ending : {"still", "flat", "watch", "max_iter"}
        What ended the run: a zero gradient or a loss within `noise`, a loss that no longer changed,
        `watch`, or the number of steps.
    """

    weights: Array
    losses: Array
    n_iter: int
    converged: bool
    learning_rate: float
    ending: str


class Step(NamedTuple):
    """Where a run stands: weights after `n_iter` steps, their loss, its gradient, the step size.

    A run that moves something else in place of the weights works them out when they are asked for.
    """

    n_iter: int
    loss: float
    gradient: Array
    locate: Callable[[], Array]
    learning_rate: float = math.nan

    @property
    def weights(self) -> Array:
        """The weights after `n_iter` steps."""
        return self.locate()


def descent_steps(
    objective: Objective,
    weights: Array,
    learning_rate: float,
    *,
    shorten: bool = False,
    noise: float = 0.0,
) -> Iterator[Step]:
    """Take the steps ``w <- w - learning_rate * gradient`` without end.

    Parameters
    ----------
    objective : callable
        ``objective(weights)`` returns a tuple that starts with the loss and its gradient.
    weights : ndarray
        Where to start.
    learning_rate : float
        Step size.
    shorten : bool, default=False
        Halve the step size, for good, whenever a step would lift the loss above its first value by
        more than rounding.
    noise : float, default=0.0
        A loss that rounding errors alone would make; up to it no step is shortened.

    Yields
    ------
    Step
        The start first.

    Examples
    --------
    >>> from itertools import islice
    >>> from skcurse.theory.descent import descent_steps
    >>> steps = descent_steps(lambda w: (0.5 * w * w, w), np.array(1.0), 3.0, shorten=True)
    >>> [(float(step.weights), step.learning_rate) for step in islice(steps, 3)]
    [(1.0, 3.0), (-0.5, 1.5), (0.25, 1.5)]
    """
    loss, gradient, *_ = objective(weights)
    limit = max(loss * (1.0 + ROUNDING), noise)
    for n_iter in count():
        yield Step(n_iter, float(loss), gradient, partial(np.asarray, weights), learning_rate)
        while True:
            # A step that overflows shows in its loss.
            with np.errstate(over="ignore", invalid="ignore"):
                moved = weights - learning_rate * gradient
            loss, ahead, *_ = objective(moved)
            if loss <= limit or not shorten or learning_rate == 0.0:
                break
            learning_rate /= 2.0
        weights, gradient = moved, ahead


def descend(
    objective: Objective,
    weights: Array,
    *,
    learning_rate: float,
    largest_stable_rate: Callable[[], float],
    max_iter: int = 1000,
    tol: float = 1e-4,
    n_iter_no_change: int = 10,
    noise: float = 0.0,
    shorten: bool = False,
    watch: Callable[[Step], bool] | None = None,
) -> Descent:
    """Descend until the loss stands still.

    Parameters
    ----------
    objective : callable
        ``objective(weights)`` returns a tuple that starts with the loss and its gradient.
    weights : ndarray
        Where to start.
    learning_rate : float
        Step size.
    largest_stable_rate : callable
        Called without arguments when the run diverges: the step size to name in the error.
    max_iter : int, default=1000
        Most steps to take.
    tol : float, default=1e-4
        The run has converged when the loss differs from that of `n_iter_no_change` steps before by
        no more than `tol` times the latter, or when the gradient is exactly zero.
    n_iter_no_change : int, default=10
        See `tol`.
    noise : float, default=0.0
        A loss that rounding errors alone would make: not above it there is nothing left to learn.
    shorten : bool, default=False
        See `descent_steps`.
    watch : callable, default=None
        Called with the `Step` after every step; a true return value ends the run.

    Returns
    -------
    Descent
        The last weights, losses, number of steps and whether the run converged.

    Raises
    ------
    ValueError
        If the loss or its gradient at the start is not finite; or if the run diverges: a loss that
        is not finite, that exceeds ten times the first, or ends above twice the first.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.descent import descend
    >>> def objective(w):
    ...     return 0.5 * w @ w + 1.0, w
    >>> run = descend(
    ...     objective, np.ones(2), learning_rate=0.5, largest_stable_rate=lambda: 2.0
    ... )
    >>> run.converged, run.n_iter, run.losses[:3]
    (True, 17, array([2.    , 1.25  , 1.0625]))
    """
    return follow(
        descent_steps(objective, weights, learning_rate, shorten=shorten, noise=noise),
        learning_rate=learning_rate,
        largest_stable_rate=largest_stable_rate,
        max_iter=max_iter,
        tol=tol,
        n_iter_no_change=n_iter_no_change,
        noise=noise,
        watch=watch,
    )


def follow(
    steps: Iterable[Step],
    *,
    learning_rate: float,
    largest_stable_rate: Callable[[], float],
    max_iter: int = 1000,
    tol: float = 1e-4,
    n_iter_no_change: int = 10,
    noise: float = 0.0,
    watch: Callable[[Step], bool] | None = None,
) -> Descent:
    """Take steps until the run has converged, diverged or reached its last step.

    Parameters
    ----------
    steps : iterable of Step
        The run, the start first; more steps than are taken.
    learning_rate : float
        Step size, for the record where the steps do not tell theirs.
    largest_stable_rate, max_iter, tol, n_iter_no_change, noise, watch
        See `descend`.

    Returns
    -------
    Descent
        The last weights, losses, number of steps and whether the run converged.

    Raises
    ------
    ValueError
        See `descend`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.descent import descent_steps, follow
    >>> steps = descent_steps(lambda w: (0.5 * w @ w, w), np.ones(2), 0.5)
    >>> follow(steps, learning_rate=0.5, largest_stable_rate=lambda: 2.0, max_iter=3).weights
    array([0.125, 0.125])
    """
    recent: deque[float] = deque(maxlen=n_iter_no_change + 1)
    losses: list[float] = []
    for step in steps:
        losses.append(step.loss)
        recent.append(step.loss)
        scale = max(losses[0], noise)
        if _is_lost(step, _GROWTH_LIMIT * scale):
            break
        ended = watch is not None and step.n_iter > 0 and watch(step)
        still = step.loss <= noise or not step.gradient.any()
        flat = len(recent) > n_iter_no_change and abs(recent[0] - step.loss) <= tol * recent[0]
        if ended or still or flat or step.n_iter == max_iter:
            break
    if _is_lost(step, _FINAL_LIMIT * scale):
        evidence = f": the loss went from {losses[0]:.6g} to {step.loss:.6g} in {step.n_iter} steps"
        raise divergence(learning_rate, largest_stable_rate(), evidence)
    converged = ended or still or (flat and step.loss <= losses[0] * (1.0 + ROUNDING))
    ending = "still" if still else "flat" if flat else "watch" if ended else "max_iter"
    last_rate = learning_rate if math.isnan(step.learning_rate) else step.learning_rate
    return Descent(step.weights, np.array(losses), step.n_iter, converged, last_rate, ending)


def divergence(learning_rate: float, largest_stable_rate: float, evidence: str = "") -> ValueError:
    """Describe a run whose step is too long."""
    return ValueError(
        f"Gradient descent diverges with learning_rate={learning_rate:.6g}{evidence}. The largest "
        f"stable learning rate at initialisation is {largest_stable_rate:.6g}; use a smaller "
        "value, or 'auto'."
    )


def overflow() -> ValueError:
    """Describe data whose loss cannot be represented."""
    return ValueError(
        "The loss or its gradient overflows at the initial weights: X or y holds values too large "
        "for this model. Rescale them, for example to unit variance."
    )


def _is_lost(step: Step, limit: float) -> bool:
    """Whether the loss or its gradient is not finite, or the loss is above the limit."""
    if not (np.isfinite(step.loss) and np.isfinite(step.gradient).all()):
        if step.n_iter == 0:
            raise overflow()
        return True
    return step.loss > limit
