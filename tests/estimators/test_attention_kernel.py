"""The kernel of infinite width agrees with sampling, with the network and with scikit-learn."""

import pickle

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVR

from skcurse.datasets import make_residual_ssm
from skcurse.estimators.attention_kernel import AttentionNTKKernel
from skcurse.estimators.attention_ntk import AttentionNTKRegressor

SCALES = [0.05, 1.0, 20.0]
FREE = (1e-3, 1e3)


@pytest.fixture(scope="module")
def sample():
    return make_residual_ssm(40, n_steps=6, random_state=0)


def derivatives(X, w):
    """``d f / d w`` of single neurons, term by term as it is written."""
    out = np.empty((len(X), len(w)))
    for i, x in enumerate(X):
        S = softmax(np.outer(w, x[-1] * x), axis=1)
        out[i] = x[-1] * (S @ x**2 - (S @ x) ** 2)
    return out


@pytest.mark.parametrize("scale", SCALES)
def test_is_the_average_over_normal_weights(sample, scale):
    X, Z = sample[0][:4], sample[0][4:7]
    w = scale * np.random.default_rng(0).normal(size=200_000)
    products = derivatives(X, w)[:, None, :] * derivatives(Z, w)[None, :, :]
    error = products.std(axis=-1) / np.sqrt(len(w))
    exact = AttentionNTKKernel(scale)(X, Z)
    assert np.all(np.abs(products.mean(axis=-1) - exact) < 5 * error)
    assert np.all(error < 0.05 * np.abs(exact).max())


@pytest.mark.parametrize("scale", SCALES)
def test_gram_matrix_is_symmetric_and_positive_to_rounding(sample, scale):
    K = AttentionNTKKernel(scale)(sample[0])
    eigenvalues = np.linalg.eigvalsh(K)
    np.testing.assert_array_equal(K, K.T)
    assert eigenvalues[0] > -1e-14 * eigenvalues[-1]


@pytest.mark.parametrize("scale", SCALES)
def test_the_three_ways_to_an_entry_agree(sample, scale):
    X, kernel = sample[0], AttentionNTKKernel(scale)
    K = kernel(X)
    accuracy = 1e-13 * K.max()
    np.testing.assert_allclose(kernel.diag(X), np.diag(K), rtol=0, atol=accuracy)
    np.testing.assert_allclose(kernel(X[:9], X[9:]), K[:9, 9:], rtol=0, atol=accuracy)


@pytest.mark.parametrize("scale", SCALES)
def test_weight_scale_is_a_length_scale(sample, scale):
    X, c = sample[0], 1.7
    stretched = AttentionNTKKernel(scale)(c * X)
    np.testing.assert_allclose(
        stretched, c**6 * AttentionNTKKernel(c**2 * scale)(X), rtol=0, atol=1e-13 * stretched.max()
    )


@pytest.mark.parametrize("scale", SCALES)
def test_gradient_is_the_slope(sample, scale):
    X, h = sample[0], 1e-3
    _, gradient = AttentionNTKKernel(scale, FREE)(X, eval_gradient=True)
    at = [AttentionNTKKernel(scale * np.exp(k * h))(X) for k in (-2, -1, 1, 2)]
    slope = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)
    np.testing.assert_allclose(gradient[..., 0], slope, rtol=0, atol=1e-10 * np.abs(gradient).max())


def test_fixed_weight_scale_has_no_gradient(sample):
    kernel = AttentionNTKKernel()
    K, gradient = kernel(sample[0], eval_gradient=True)
    assert gradient.shape == (*K.shape, 0)
    assert kernel.theta.shape == kernel.bounds.shape[:1] == (0,)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
def test_gaussian_process_has_the_mean_of_the_infinite_network(sample, alpha):
    X, y = sample
    network = AttentionNTKRegressor(regime="infinite", max_iter=np.inf, alpha=alpha)
    process = GaussianProcessRegressor(AttentionNTKKernel(), alpha=alpha)
    ridge = KernelRidge(kernel=AttentionNTKKernel(), alpha=alpha)
    expected = network.fit(X[:30], y[:30]).predict(X)
    assert np.ptp(expected) > 0.5
    for model in (process, ridge):
        np.testing.assert_allclose(model.fit(X[:30], y[:30]).predict(X), expected, atol=1e-9)


def test_gaussian_process_knows_what_it_has_seen(sample):
    X, y = sample
    process = GaussianProcessRegressor(AttentionNTKKernel(), alpha=0.01).fit(X[:30], y[:30])
    K = AttentionNTKKernel()(X)
    within, beside = K[:30, :30] + 0.01 * np.eye(30), K[30:, :30]
    variance = np.diag(K[30:, 30:]) - np.sum(beside * np.linalg.solve(within, beside.T).T, axis=1)
    _, std = process.predict(X[30:], return_std=True)
    np.testing.assert_allclose(std**2, variance, atol=1e-9)


def test_gaussian_process_learns_the_scales(sample):
    X, y = sample
    start = ConstantKernel(1.0) * AttentionNTKKernel(1.0, FREE) + WhiteKernel()
    learned = GaussianProcessRegressor(start).fit(X, y)
    fixed = GaussianProcessRegressor(start, optimizer=None).fit(X, y)
    assert learned.kernel_.k1.k2.weight_scale != 1.0
    assert learned.log_marginal_likelihood_value_ > fixed.log_marginal_likelihood_value_ + 1.0
    gradient = learned.log_marginal_likelihood(learned.kernel_.theta, eval_gradient=True)[1]
    inside = (learned.kernel_.bounds[:, 0] + 0.1 < learned.kernel_.theta) & (
        learned.kernel_.theta < learned.kernel_.bounds[:, 1] - 0.1
    )
    assert inside.any()
    np.testing.assert_allclose(gradient[inside], 0.0, atol=0.01)


def test_support_vectors_see_the_same_kernel(sample):
    X, y = sample
    K = AttentionNTKKernel()(X)
    direct = SVR(kernel=AttentionNTKKernel(), C=10.0).fit(X, y).predict(X)
    given = SVR(kernel="precomputed", C=10.0).fit(K, y).predict(K)
    np.testing.assert_allclose(direct, given, atol=1e-6)


def test_windows_that_say_nothing_have_kernel_zero(sample):
    silent = np.array([[2.0] * 6, [1.0, -3.0, 2.0, 0.5, 1.0, 0.0]])
    np.testing.assert_array_equal(AttentionNTKKernel()(silent, sample[0]), 0.0)
    np.testing.assert_array_equal(AttentionNTKKernel().diag(silent), 0.0)


def test_is_a_kernel_of_scikit_learn(sample):
    X = sample[0]
    kernel = AttentionNTKKernel(2.0, FREE)
    assert not kernel.is_stationary()
    for twin in (clone(kernel), pickle.loads(pickle.dumps(kernel)), eval(repr(kernel))):
        np.testing.assert_array_equal(twin(X), kernel(X))
    assert clone(kernel) == kernel
    np.testing.assert_allclose(kernel.theta, [np.log(2.0)])
    np.testing.assert_allclose(kernel.clone_with_theta([0.0])(X), AttentionNTKKernel()(X))
    np.testing.assert_allclose((3.0 * kernel)(X), 3.0 * kernel(X))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: AttentionNTKKernel(-1.0)(X), "weight_scale"),
        (lambda X: AttentionNTKKernel()(1e200 * X), "Rescale"),
        (lambda X: AttentionNTKKernel()(1e100 * X), "Rescale"),
        (lambda X: AttentionNTKKernel(FREE[0], FREE)(1e100 * X, None, True), "Rescale"),
        (lambda X: AttentionNTKKernel()(X, 1e100 * X), "Rescale"),
        (lambda X: AttentionNTKKernel().diag(1e100 * X), "Rescale"),
        (lambda X: AttentionNTKKernel()(X, X[:, :4]), "6 steps, but Y has windows of 4"),
        (lambda X: AttentionNTKKernel()(X, X, eval_gradient=True), "only for Y=None"),
        (lambda X: AttentionNTKKernel()(np.full((1, 3), np.nan)), "NaN"),
    ],
)
def test_trouble_has_one_clear_error(sample, call, message):
    with pytest.raises(ValueError, match=message):
        call(sample[0][:8])
