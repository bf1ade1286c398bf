"""Gradient descent against its closed form on quadratics, and its promises elsewhere."""

from itertools import islice

import numpy as np
import pytest

from skcurse.theory.adaptive_descent import gradient_descent

CURVATURES = np.array([0.3, 1.0, 7.0])


def bowl(point, curvatures=CURVATURES, floor=0.0):
    return floor + 0.5 * float(curvatures @ point**2), curvatures * point


def test_fixed_steps_are_powers_of_the_contraction():
    start, rate = np.array([1.0, -2.0, 0.5]), 0.2
    for n_iter, step in enumerate(islice(gradient_descent(bowl, start, learning_rate=rate), 30)):
        expected = (1 - rate * CURVATURES) ** n_iter * start
        np.testing.assert_allclose(step.point, expected, rtol=1e-12)
        assert step.loss == pytest.approx(bowl(expected)[0], rel=1e-12)
        assert step.learning_rate == rate


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("floor", [0.0, 3.0])
def test_auto_rate_is_the_largest_halving_below_one_over_the_curvature(scale, floor):
    start = np.array([1.0, -2.0, 0.5])
    loss, gradient = bowl(start, scale * CURVATURES, scale * floor)
    curvature = gradient @ (scale * CURVATURES * gradient) / (gradient @ gradient)
    steps = gradient_descent(lambda p: bowl(p, scale * CURVATURES, scale * floor), start)
    rate = next(steps).learning_rate
    assert rate <= 1 / curvature * (1 + 1e-12)
    assert 2 * rate > 1 / curvature or 2 * rate > loss / (gradient @ gradient)


def valley(point):
    """Straight slopes down to a narrow floor: a step that suits the start oscillates there."""
    height = np.sqrt(point**2 + 0.01)
    return float(height.sum()), point / height


def plateaus(point):
    value = 1.5 + np.cos(point) * np.exp(-((point / 6) ** 2))
    slope = (-np.sin(point) - np.cos(point) * point / 18) * np.exp(-((point / 6) ** 2))
    return float(value.sum()), slope


@pytest.mark.parametrize("objective", [valley, plateaus, lambda p: bowl(p, floor=1.0)])
def test_auto_never_raises_the_loss_and_reaches_a_stationary_point(objective):
    steps = list(islice(gradient_descent(objective, np.array([5.0, 2.0, -4.0])), 2000))
    losses = np.array([step.loss for step in steps])
    rates = np.array([step.learning_rate for step in steps])
    assert (np.diff(losses) <= 1e-13 * losses[:-1]).all()
    assert (np.diff(rates) <= 0).all()
    assert np.abs(objective(steps[-1].point)[1]).max() < 1e-5
    if objective is valley:
        assert rates[-1] < rates[0]


def test_auto_steps_back_from_where_the_loss_overflows():
    def wall(point):
        with np.errstate(over="ignore"):
            value = float(np.exp(point[0] ** 2)) - 1.0
        return value, 2 * point * (value + 1.0)

    losses = [step.loss for step in islice(gradient_descent(wall, np.array([20.0])), 800)]
    assert np.isfinite(losses).all()
    assert (np.diff(losses) <= 0).all()


def test_a_rate_that_is_too_large_is_named():
    steps = gradient_descent(bowl, np.ones(3), learning_rate=0.5)
    with pytest.raises(ValueError, match=r"learning_rate=0\.5 diverges.*'auto'"):
        list(islice(steps, 100))


def test_nothing_moves_where_the_gradient_is_zero():
    for rate in ("auto", 0.1):
        steps = list(islice(gradient_descent(bowl, np.zeros(3), learning_rate=rate), 5))
        assert all(not step.point.any() and step.loss == 0.0 for step in steps)


def test_a_start_where_the_loss_overflows_is_an_error():
    with pytest.raises(ValueError, match="not finite at the start"):
        next(gradient_descent(lambda point: (np.inf, point), np.zeros(2)))
