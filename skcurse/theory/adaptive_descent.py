"""Full-batch gradient descent that can choose and shorten its own step size."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]

# Two evaluations of one loss, summed in different orders, may differ by this much of it.
ROUNDING = 2**-46


class DescentStep(NamedTuple):
    """An iterate of gradient descent, its loss, and the step size that led to it."""

    point: Array
    loss: float
    learning_rate: float


def gradient_descent(
    objective: Objective, start: Array, *, learning_rate: float | str = "auto"
) -> Iterator[DescentStep]:
    r"""Iterate full-batch gradient descent for as long as the caller asks.

    Parameters
    ----------
    objective : callable
        ``objective(point)`` returns the loss, non-negative and infinite where it overflows, and
        its gradient.
    start : ndarray
        The first point.
    learning_rate : float or "auto", default="auto"
        A fixed step size; or one step size, halved until the first step gains half of what its
        slope promises, and halved again, for good, whenever a step would raise the loss.

    Yields
    ------
    DescentStep
        First the start, then one iterate a step.

    Raises
    ------
    ValueError
        If the loss is not finite at the start, or a fixed step size takes it above its value there.

    Notes
    -----
    On a quadratic, a first step of size η passes the test of ``"auto"`` if and only if
    :math:`\eta \le \|g\|^2 / g^\top H g`, one over the curvature along the gradient g.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.adaptive_descent import gradient_descent
    >>> bowl = lambda point: (0.5 * float(point @ point), point)
    >>> steps = gradient_descent(bowl, np.array([1.0, 1.0]), learning_rate=0.5)
    >>> [next(steps).loss for _ in range(3)]
    [1.0, 0.25, 0.0625]
    """
    point = start
    loss, gradient = objective(point)
    if not np.isfinite(loss):
        raise ValueError("The loss is not finite at the start: rescale the features or the labels.")
    first_loss = loss
    automatic = isinstance(learning_rate, str)
    rate = _first_rate(objective, point, loss, gradient) if automatic else float(learning_rate)
    yield DescentStep(point, loss, rate)
    while True:
        moved = point - rate * gradient
        new_loss, new_gradient = objective(moved)
        while automatic and new_loss > loss * (1 + ROUNDING):
            rate /= 2
            moved = point - rate * gradient
            new_loss, new_gradient = objective(moved)
        if new_loss > first_loss * (1 + 1e6 * ROUNDING):
            raise ValueError(
                f"Gradient descent with learning_rate={rate:g} diverges: the loss rose from "
                f"{first_loss:.6g} to {new_loss:.6g}. Use a smaller one, or learning_rate='auto'."
            )
        point, loss, gradient = moved, new_loss, new_gradient
        yield DescentStep(point, loss, rate)


def _first_rate(objective: Objective, point: Array, loss: float, gradient: Array) -> float:
    """Halve the step size until the first step gains at least half of what its slope promises."""
    slope = float(np.vdot(gradient, gradient))
    if slope == 0.0:
        return 1.0
    # A step cannot gain more than the loss, so one that is twice as long could not pass.
    rate = loss / slope
    while objective(point - rate * gradient)[0] > loss - 0.5 * rate * slope:
        # Where rounding hides every gain, no step size is better than another.
        if rate * slope < ROUNDING * loss:
            break
        rate /= 2
    return rate
