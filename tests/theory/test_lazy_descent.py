"""The closed form of linear descent, against the steps themselves and 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from skcurse.theory.attention_ntk import (
    forward,
    initial_network,
    largest_stable_rate,
    linearised_features,
)
from skcurse.theory.lazy_descent import (
    descent_filter,
    lazy_losses,
    lazy_model,
    lazy_stable_rate,
    lazy_steps,
    lazy_weights,
)


def network(n=12, m=30, n_outputs=2, antisymmetric=False):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 5)), rng.normal(size=(n, n_outputs))
    w, a = initial_network(m, rng, antisymmetric=antisymmetric)
    return X, y, w, a


def linear_problem(n, p, alpha):
    rng = np.random.default_rng(1)
    J, r = rng.normal(size=(n, p)), rng.normal(size=(n, 2))
    s = rng.uniform(0.5, 2, size=n)
    model = lazy_model(np.arange(n)[:, None], r, lambda i: J[i[:, 0].astype(int)], sample_weight=s)
    top = np.linalg.norm(np.sqrt(s)[:, None] * J, 2) ** 2
    return J, r, s, model, 1 / (top + alpha)


def descend(J, r, s, eta, alpha, n_steps):
    """The steps themselves; yields displacement and loss."""
    delta = np.zeros((J.shape[1], r.shape[1]))
    for _ in range(n_steps + 1):
        residual = J @ delta - r
        loss = np.sum(s[:, None] * residual**2) / 2 + alpha * np.sum(delta**2) / 2
        yield delta, loss
        delta = delta - eta * (J.T @ (s[:, None] * residual) + alpha * delta)


@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("antisymmetric", [False, True])
def test_ten_thousand_steps_of_the_linearised_network(antisymmetric, alpha):
    X, y, w, a = network(antisymmetric=antisymmetric)
    s = np.random.default_rng(2).uniform(0, 2, size=len(X))
    eta = 0.5 * largest_stable_rate(X, w, sample_weight=s, alpha=alpha)
    J = linearised_features(X, w, a)
    r = y - forward(X, w, a)[:, None]
    model = lazy_model(X, r, lambda X: linearised_features(X, w, a), sample_weight=s)
    steps = [0, 1, 2, 100, 10_000]
    closed = lazy_losses(model, steps, learning_rate=eta, alpha=alpha)
    for t, (delta, loss) in enumerate(descend(J, r, s, eta, alpha, 10_000)):
        if t in steps:
            form = lazy_weights(model, t, learning_rate=eta, alpha=alpha)
            np.testing.assert_allclose(form, delta, atol=1e-10 * max(1e-3, np.abs(delta).max()))
            assert closed[steps.index(t)] == pytest.approx(loss, rel=1e-10)


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.7, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_short_and_long_steps(shape, alpha, factor):
    J, r, s, model, eta = linear_problem(*shape, alpha)
    eta *= factor * (1 - 1e-12)
    closed = lazy_losses(model, range(8), learning_rate=eta, alpha=alpha)
    for t, (delta, loss) in enumerate(descend(J, r, s, eta, alpha, 7)):
        form = lazy_weights(model, t, learning_rate=eta, alpha=alpha)
        np.testing.assert_allclose(form, delta, atol=1e-12)
        assert closed[t] == pytest.approx(loss, rel=1e-11)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_limit_is_ridge_or_the_minimum_norm_solution(shape):
    J, r, s, model, eta = linear_problem(*shape, 0.0)
    root = np.sqrt(s)[:, None]
    expected = np.linalg.lstsq(root * J, root * r)[0]
    form = lazy_weights(model, np.inf, learning_rate=eta)
    np.testing.assert_allclose(form, expected, atol=1e-12)
    residual = root * (J @ expected - r)
    loss = lazy_losses(model, [np.inf], learning_rate=eta)[0]
    assert loss == pytest.approx(np.sum(residual**2) / 2, abs=1e-12)
    ridge = Ridge(alpha=0.7, fit_intercept=False).fit(J, r, sample_weight=s)
    form = lazy_weights(model, np.inf, learning_rate=eta / 2, alpha=0.7)
    np.testing.assert_allclose(form, ridge.coef_.T, atol=1e-10)


def test_directions_without_features_are_left_out_of_the_limit():
    J = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    model = lazy_model(np.arange(3)[:, None], [1.0, 3.0, 5.0], lambda i: J[i[:, 0].astype(int)])
    np.testing.assert_allclose(
        lazy_weights(model, np.inf, learning_rate=0.1), [[1.0], [1.0]], rtol=1e-12
    )
    assert lazy_losses(model, [np.inf], learning_rate=0.1)[0] == pytest.approx((1 + 1 + 25) / 2)
    still = lazy_model(np.ones((2, 1)), [1.0, 2.0], np.zeros_like)
    assert lazy_stable_rate(still) == np.inf
    np.testing.assert_array_equal(lazy_weights(still, np.inf, learning_rate=1.0), 0.0)
    np.testing.assert_allclose(lazy_losses(still, [0, np.inf], learning_rate=1.0), 2.5)


@pytest.mark.parametrize("alpha", [0.0, 1e-3])
@pytest.mark.parametrize("n_steps", [1, 3, 1000, 10**9])
def test_filter_agrees_with_fifty_digits(n_steps, alpha):
    values = np.array([0.0, 1e-30, 1e-16, 1e-8, 1e-3, 0.5, 1.0, 1.5, 1.99])
    with mpmath.workdps(60):
        exact = []
        for value in values:
            lam = mpmath.mpf(float(value)) + mpmath.mpf(alpha)
            power = (1 - lam) ** n_steps
            exact.append(float((1 - power) / lam if lam else n_steps))
    filtered = descent_filter(values, n_steps, learning_rate=1.0, alpha=alpha)
    np.testing.assert_allclose(filtered, exact, rtol=1e-11)


def test_infinite_descent_inverts():
    np.testing.assert_allclose(descent_filter([1e-20, 2.0], np.inf, learning_rate=0.5), [1e20, 0.5])


@pytest.mark.parametrize("block_bytes", [1, 10_000])
@pytest.mark.parametrize("n", [7, 23, 64])
def test_row_blocks_give_the_same_model(n, block_bytes):
    J, r, s, model, eta = linear_problem(n, 7, 0.0)
    blocked = lazy_model(
        np.arange(n)[:, None],
        r,
        lambda i: J[i[:, 0].astype(int)],
        sample_weight=s,
        block_bytes=block_bytes,
    )
    np.testing.assert_allclose(blocked.values, model.values, rtol=1e-13)
    for t in (1, 50, np.inf):
        np.testing.assert_allclose(
            lazy_weights(blocked, t, learning_rate=eta),
            lazy_weights(model, t, learning_rate=eta),
            rtol=1e-11,
        )
        assert lazy_losses(blocked, [t], learning_rate=eta) == pytest.approx(
            lazy_losses(model, [t], learning_rate=eta), rel=1e-11, abs=1e-13
        )


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_unstable_step_is_named_with_the_largest_stable_one(alpha):
    *_, model, eta = linear_problem(6, 9, alpha)
    assert lazy_stable_rate(model, alpha) == pytest.approx(2 * eta)
    for function in (lazy_weights, lazy_losses):
        argument = 3 if function is lazy_weights else [1, 2]
        with pytest.raises(ValueError, match=f"{3 * eta:.6g}.*{2 * eta:.6g}"):
            function(model, argument, learning_rate=3 * eta, alpha=alpha)


@pytest.mark.parametrize("n_steps", [1, 7, 999, 123_456, 10**12, np.inf])
def test_steps_reported_are_at_most_a_thousand_from_zero_to_the_last(n_steps):
    *_, model, eta = linear_problem(6, 9, 0.0)
    steps = lazy_steps(model, n_steps, learning_rate=eta)
    assert len(steps) <= 1000
    assert (steps[0], steps[1], steps[-1]) == (0, 1, n_steps)
    assert np.all(np.diff(steps[:-1]) > 0)
    losses = lazy_losses(model, steps, learning_rate=eta)
    assert np.all(np.diff(losses) <= 1e-12 * losses[0])
    if n_steps == np.inf:
        assert losses[-2] == pytest.approx(losses[-1], rel=1e-12, abs=1e-14)
