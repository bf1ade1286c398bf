"""The network, its gradient, its training and its kernel, against brute force."""

import re
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest

from skcurse.theory import ntk
from skcurse.theory.attention_ntk import (
    descent_terms,
    forward,
    gradient_descent,
    initial_network,
    kernel_features,
    largest_stable_rate,
    linearised_features,
    linearised_forward,
    loss_gradient,
    neural_tangent_kernel,
    ntk_singular_values,
)
from skcurse.theory.ntk import feature_product


def naive_forward(X, w, a):
    """The definition, one big array; complex weights give derivatives by the complex step."""
    scores = w[:, None, None] * X[:, -1, None] * X
    e = np.exp(scores - scores.real.max(axis=2, keepdims=True))
    mean = np.sum(e * X, axis=2) / np.sum(e, axis=2)
    return a @ mean / np.sqrt(len(w))


def naive_loss(X, y, w, a, s=1.0, alpha=0.0, start=0.0):
    residual = naive_forward(X, w, a) - y
    return np.sum(s * residual**2) / 2 + alpha * np.sum((w - start) ** 2) / 2


def naive_gradient(X, y, w, *arguments):
    step = 1e-30j * np.eye(len(w))
    return np.array([naive_loss(X, y, w + h, *arguments).imag for h in step]) / 1e-30


def naive_features(X, w):
    step = 1e-30j * np.eye(len(w))
    ones = np.sqrt(len(w)) * np.ones(len(w))
    return np.array([naive_forward(X, w + h, ones).imag for h in step]).T / 1e-30


def problem(n=12, m=10, d=5, n_outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = rng.normal(size=n if n_outputs is None else (n, n_outputs))
    w, a = initial_network(m, rng, antisymmetric=False)
    return X, y, w, a


def ssm_like(n, d, seed=0):
    """Windows of a stationary series, and the next value."""
    rng = np.random.default_rng(seed)
    t = np.arange(d + 1) * np.array([0.4, 1.1, 2.0])[:, None]
    phase = rng.uniform(0, 2 * np.pi, size=(n, 3, 1))
    U = np.einsum("nk,nkt->nt", rng.rayleigh(size=(n, 3)), np.cos(t + phase))
    return U[:, :-1], U[:, -1]


@pytest.mark.parametrize("m", [1, 10])
def test_forward_is_the_definition(m):
    X, _, w, a = problem(m=m)
    np.testing.assert_allclose(forward(X, w, a), naive_forward(X, w, a), rtol=1e-12)
    many = np.stack([w, -2 * w, w + 1])
    expected = np.stack([naive_forward(X, v, a) for v in many], axis=1)
    np.testing.assert_allclose(forward(X, many, a), expected, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("n_outputs", [None, 1, 3])
def test_gradient_is_the_complex_step_derivative(n_outputs, alpha, weighted):
    X, y, w, a = problem(n_outputs=n_outputs)
    s = np.random.default_rng(3).uniform(0, 2, size=len(X)) if weighted else np.ones(len(X))
    W = w if n_outputs is None else w + 0.1 * np.arange(n_outputs)[:, None]
    start = w - 0.3
    loss, gradient = loss_gradient(
        X, y, W, a, sample_weight=s if weighted else None, alpha=alpha, initial_weights=start
    )
    columns = list(zip(np.atleast_2d(W), y.reshape(len(X), -1).T, strict=True))
    expected = np.array([naive_gradient(X, v, u, a, s, alpha, start) for u, v in columns])
    assert gradient.shape == W.shape
    np.testing.assert_allclose(np.atleast_2d(gradient), expected, rtol=1e-11, atol=1e-14)
    total = sum(naive_loss(X, v, u, a, s, alpha, start) for u, v in columns)
    assert loss == pytest.approx(total, rel=1e-12)


def test_gradient_is_a_central_difference():
    X, y, w, a = problem()
    h = 1e-5
    shifted = [
        [loss_gradient(X, y, w + e, a).loss for e in s * h * np.eye(len(w))] for s in (1, -1)
    ]
    slope = (np.array(shifted[0]) - np.array(shifted[1])) / (2 * h)
    np.testing.assert_allclose(loss_gradient(X, y, w, a).gradient, slope, atol=1e-9)


def test_weight_two_is_a_row_twice_and_weight_zero_none():
    X, y, w, a = problem()
    s = np.array([0, 1, 2] * 4)
    weighted = loss_gradient(X, y, w, a, sample_weight=s)
    repeated = loss_gradient(np.repeat(X, s, axis=0), np.repeat(y, s), w, a)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-13)
    np.testing.assert_allclose(weighted.gradient, repeated.gradient, rtol=1e-12)
    np.testing.assert_allclose(
        ntk_singular_values(X, w, sample_weight=s)[:8],
        ntk_singular_values(np.repeat(X, s, axis=0), w)[:8],
        rtol=1e-9,
    )
    assert largest_stable_rate(X, w, sample_weight=s) == pytest.approx(
        largest_stable_rate(np.repeat(X, s, axis=0), w), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_first_step_moves_every_neuron_along_its_sign(seed):
    # Exact under zero output: the residual is -y, so -dL/dw_r = a_r/√m Σ_i y_i x_id var_r(x_i).
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(30, 6)), rng.normal(size=30)
    w, a = initial_network(64, rng)
    pull = y @ naive_features(X, w)
    gradient = loss_gradient(X, y, w, a).gradient
    np.testing.assert_array_equal(np.sign(-gradient), a * np.sign(pull))
    # Targets that follow the last entry satisfy the condition for every neuron.
    y = X[:, -1] * rng.uniform(0.1, 2, size=30)
    run = gradient_descent(X, y, w, a, max_iter=1)
    np.testing.assert_array_equal(np.sign(run.weights - w), a)


def test_antisymmetric_network_starts_at_zero():
    X, _, _, _ = problem(n=50)
    w, a = initial_network(100, np.random.RandomState(0))
    assert np.abs(forward(X, w, a)).max() < 1e-14
    assert sorted(w[a > 0]) == sorted(w[a < 0])
    with pytest.raises(ValueError, match="even number of neurons, got 7"):
        initial_network(7, np.random.default_rng(0))
    w, a = initial_network(10_000, np.random.default_rng(0), antisymmetric=False)
    assert abs(a.mean()) < 5 / 100
    assert abs(np.mean(a * w)) < 5 / 100


def test_descent_is_the_iteration_of_the_definition():
    X, y, w, a = problem(m=8)
    run = gradient_descent(X, y, w, a, learning_rate=0.05, max_iter=15, tol=0.0)
    losses = []
    for _ in range(16):
        losses.append(naive_loss(X, y, w, a))
        last, w = w, w - 0.05 * naive_gradient(X, y, w, a)
    np.testing.assert_allclose(run.losses, losses, rtol=1e-12)
    np.testing.assert_allclose(run.weights, last, rtol=1e-11, atol=1e-13)
    assert (run.n_iter, run.learning_rate) == (15, 0.05)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_outputs", [None, 2])
def test_descent_identity_adds_up_along_a_run(n_outputs, weighted):
    X, y = ssm_like(40, 8)
    y = y if n_outputs is None else np.stack([y, -y + 1], axis=1)
    s = np.random.default_rng(0).uniform(0, 2, len(X)) if weighted else None
    w, a = initial_network(64, np.random.default_rng(1))
    w = w if n_outputs is None else np.tile(w, (2, 1))
    eta = 0.5 * largest_stable_rate(X, w if n_outputs is None else w[0], sample_weight=s)
    run = gradient_descent(X, y, w, a, learning_rate=eta, max_iter=30, tol=0.0, sample_weight=s)
    for t in range(30):
        terms = descent_terms(X, y, w, a, learning_rate=eta, sample_weight=s)
        step = loss_gradient(X, y, w, a, sample_weight=s)
        assert step.loss == pytest.approx(run.losses[t], rel=1e-9)
        assert terms.change == pytest.approx(run.losses[t + 1] - run.losses[t], abs=1e-10)
        parts = terms.kernel + terms.remainder + terms.quadratic
        assert abs(parts - terms.change) < 1e-10
        residual = forward(X, w, a) - y
        pulls = (residual.T * (1.0 if s is None else s)).reshape(-1, len(X))
        kernels = [neural_tangent_kernel(X, None, v) for v in np.atleast_2d(w)]
        promised = -eta * sum(p @ H @ p for p, H in zip(pulls, kernels, strict=True))
        assert terms.kernel == pytest.approx(promised, rel=1e-10)
        assert terms.quadratic > 0
        w = w - eta * step.gradient


@pytest.mark.parametrize("block_bytes", [2**9, 2**13, 2**16])
def test_blocks_change_rounding_only_and_maps_not_even_that(block_bytes):
    X, y, w, a = problem(n=40, m=130, n_outputs=2)
    W, s = np.stack([w, 2 * w]), np.linspace(0, 1, 40)

    def everything(**options):
        loss, gradient = loss_gradient(X, y, W, a, sample_weight=s, **options)
        run = gradient_descent(X, y, W, a, max_iter=3, **options)
        return [
            np.array(loss),
            gradient,
            forward(X, W, a, **options),
            kernel_features(X, w, **options),
            feature_product(X, w, W.T, **options),
            neural_tangent_kernel(X, X[:7], w, **options),
            run.losses,
            run.weights,
        ]

    whole, cut = everything(), everything(block_bytes=block_bytes)
    with ThreadPoolExecutor(3) as pool:
        parallel = everything(block_bytes=block_bytes, map=pool.map)
    for expected, value, same in zip(whole, cut, parallel, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())
        np.testing.assert_array_equal(same, value)


def test_kernel_is_the_gram_matrix_of_derivatives():
    X, _, w, a = problem()
    features = naive_features(X, w)
    np.testing.assert_allclose(kernel_features(X, w), features, rtol=1e-10)
    H = features @ features[:5].T / len(w)
    np.testing.assert_allclose(neural_tangent_kernel(X, X[:5], w), H, rtol=1e-10)
    np.testing.assert_allclose(neural_tangent_kernel(X, None, w)[:, :5], H, rtol=1e-10)
    np.testing.assert_allclose(
        feature_product(X, w, np.eye(10)[:, :3]), features[:, :3], rtol=1e-10
    )
    J = linearised_features(X, w, a)
    np.testing.assert_allclose(J, features * a / np.sqrt(len(w)), rtol=1e-10)
    moved = w + np.random.default_rng(0).normal(size=(2, len(w)))
    expected = naive_forward(X, w, a)[:, None] + J @ (moved - w).T
    np.testing.assert_allclose(linearised_forward(X, moved, w, a), expected, rtol=1e-10)
    np.testing.assert_allclose(linearised_forward(X, moved[0], w, a), expected[:, 0], rtol=1e-10)


@pytest.mark.parametrize("shape", [(5, 8, 4), (7, 4, 3)])
def test_singular_values_agree_with_fifty_digits(shape):
    n, m, d = shape
    X, _, w, _ = problem(n=n, m=m, d=d)
    with mpmath.workdps(50):
        Phi = mpmath.matrix(n, m)
        for i in range(n):
            x = [mpmath.mpf(float(v)) for v in X[i]]
            for r in range(m):
                e = [mpmath.exp(mpmath.mpf(float(w[r])) * x[-1] * v) for v in x]
                mean = mpmath.fdot(e, x) / mpmath.fsum(e)
                var = mpmath.fdot(e, [(v - mean) ** 2 for v in x]) / mpmath.fsum(e)
                Phi[i, r] = x[-1] * var / mpmath.sqrt(m)
        exact = np.array([float(v) for v in mpmath.svd_r(Phi, compute_uv=False)])
    values = ntk_singular_values(X, w)
    # The smallest are far below what the kernel's own eigenvalues resolve.
    assert exact[-1] < 1e-4 * exact[0]
    np.testing.assert_allclose(values, np.sort(exact)[::-1], rtol=0, atol=1e-14 * exact[0])


@pytest.mark.parametrize("shape", [(20, 90), (90, 20), (1, 5), (5, 1)])
def test_singular_values_by_blocks(shape):
    n, m = shape
    X, _, w, _ = problem(n=n, m=m)
    s = np.random.default_rng(0).uniform(size=n)
    expected = np.linalg.svd(np.sqrt(s)[:, None] * kernel_features(X, w) / np.sqrt(m))[1]
    for block_bytes in (1, 2**30):
        values = ntk_singular_values(X, w, sample_weight=s, block_bytes=block_bytes)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14 * expected[0])


@pytest.mark.parametrize("dense", [0, 512])
@pytest.mark.parametrize("block_bytes", [1, 2**27])
@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (1, 40), (40, 1)])
def test_largest_stable_rate_is_two_over_the_top_eigenvalue(shape, block_bytes, dense, monkeypatch):
    monkeypatch.setattr(ntk, "_DENSE", dense or (1 if min(shape) == 1 else 0))
    n, m = shape
    X, _, w, _ = problem(n=n, m=m)
    s = np.random.default_rng(0).uniform(size=n)
    H = np.sqrt(np.outer(s, s)) * neural_tangent_kernel(X, None, w)
    rate = largest_stable_rate(X, w, sample_weight=s, alpha=0.3, block_bytes=block_bytes)
    assert rate == pytest.approx(2 / (np.linalg.eigvalsh(H)[-1] + 0.3), rel=1e-9)


@pytest.mark.parametrize(("shape", "dense"), [((20, 2), 512), ((2, 20), 512), ((20, 20), 0)])
def test_windows_that_cannot_move_weights_are_left_alone(shape, dense, monkeypatch):
    monkeypatch.setattr(ntk, "_DENSE", dense)
    n, m = shape
    w, a = initial_network(m, np.random.default_rng(0))
    flat = np.full((n, 4), 3.0)
    last_zero = np.random.default_rng(0).normal(size=(n, 4)) * [1, 1, 1, 0]
    for X in (flat, last_zero, flat[:, :1]):
        assert largest_stable_rate(X, w) == np.inf
        assert largest_stable_rate(X, w, alpha=0.5) == pytest.approx(4.0)
        run = gradient_descent(X, np.ones(n), w, a)
        np.testing.assert_array_equal(run.weights, w)
        assert (run.learning_rate, run.converged) == (1.0, True)
        np.testing.assert_array_equal(ntk_singular_values(X, w), 0.0)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_diverging_step_is_named_with_the_largest_stable_one(n_outputs):
    X, y = ssm_like(40, 8)
    y = y if n_outputs is None else np.stack([y, y], axis=1)
    w, a = initial_network(128, np.random.default_rng(1))
    start = w if n_outputs is None else np.tile(w, (n_outputs, 1))
    top = np.linalg.eigvalsh(neural_tangent_kernel(X, None, w))[-1]
    with pytest.raises(ValueError, match="diverges with learning_rate=") as error:
        gradient_descent(X, y, start, a, learning_rate=30 / top)
    given, stable = re.findall(r"=([\d.e+-]+): .* is ([\d.e+-]+);", str(error.value))[0]
    assert float(given) == pytest.approx(30 / top, rel=1e-5)
    assert float(stable) == pytest.approx(2 / top, rel=1e-5)


def test_automatic_step_is_one_over_the_top_eigenvalue_and_shortened_only_to_stay_stable():
    X, y = ssm_like(60, 8)
    w, a = initial_network(256, np.random.default_rng(1))
    top = np.linalg.eigvalsh(neural_tangent_kernel(X, None, w))[-1]
    run = gradient_descent(X, y, w, a, max_iter=50)
    assert run.learning_rate == pytest.approx(1 / top, rel=1e-10)
    # Windows this wide move few neurons at the start, and many once the weights have moved.
    X = 30 * np.random.default_rng(0).standard_t(5, size=(40, 5))
    y = X[:, 0] * X[:, 1] / 30
    shortened = 0
    for seed in range(12):
        w, a = initial_network(64, np.random.default_rng(seed))
        bound = largest_stable_rate(X, w)
        run = gradient_descent(X, y, w, a, max_iter=100)
        assert run.losses.max() <= run.losses[0]
        halvings = np.log2(0.5 * bound / run.learning_rate)
        assert halvings == pytest.approx(round(halvings), abs=1e-9)
        shortened += halvings > 0.5
    assert shortened > 0


@pytest.mark.parametrize(
    ("X", "y"),
    [([[1e200, 1.0, 1e-200]], [1.0]), ([[1.0, 2.0]], [1e300]), ([[1.0, 1.0]], [1e155])],
)
def test_what_overflows_gets_one_clear_error_or_the_right_answer(X, y):
    w, a = np.array([0.5, 0.2, 0.5, 0.2]), np.array([1.0, 1, -1, -1])
    with pytest.raises(ValueError, match=r"too large for this model\. Rescale"):
        gradient_descent(X, y, w, a)


def test_huge_windows_whose_softmax_is_one_hot_do_not_move():
    w, a = initial_network(8, np.random.default_rng(0))
    X = 1e100 * np.random.default_rng(1).normal(size=(5, 4))
    run = gradient_descent(X, X[:, 0], w, a)
    np.testing.assert_array_equal(run.weights, w)
    np.testing.assert_allclose(forward(X, w, a), 0.0, atol=1e-14 * 1e100)


def test_target_that_is_the_output_needs_no_step():
    X, _, w, a = problem()
    run = gradient_descent(X, forward(X, w, a) * (1 + 1e-16), w, a)
    assert (run.n_iter, run.converged) == (0, True)
