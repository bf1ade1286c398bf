"""Data and parameters that mean nothing: one clear error, whatever method they are given to."""

import numpy as np
import pytest
import scipy.sparse as sp

from skcurse.datasets import (
    ICLPrompts,
    ResidualSSM,
    make_icl_prompts,
    make_residual_ssm,
    make_windows,
    unpack_prompts,
)
from skcurse.estimators._icl_examples import held_out_rows
from skcurse.estimators.attention_kernel import AttentionNTKKernel
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
from skcurse.theory.counted_prompts import distinct_tokens

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ROWS = make_residual_ssm(20, 4, random_state=0)
PROMPTS = make_icl_prompts(20, n_context=3, vocabulary_size=2, random_state=0)
MODELS = {
    "finite": (AttentionNTKRegressor(8, max_iter=2, random_state=0), ROWS),
    "table": (AttentionNTKRegressor(8, max_iter=2, random_state=0, solver="collocation"), ROWS),
    "lazy": (AttentionNTKRegressor(8, regime="lazy", max_iter=9, random_state=0), ROWS),
    "infinite": (AttentionNTKRegressor(regime="infinite", max_iter=9), ROWS),
    "linear": (ResidualLinearRegressor(), ROWS),
    "target": (ResidualTargetRegressor(), ROWS),
    "rows": (SoftmaxICLRegressor(max_iter=2), ROWS),
    "prompts": (SoftmaxICLRegressor(3, max_iter=2), PROMPTS),
}
METHODS = ("predict", "attention", "neural_tangent_kernel", "ntk_eigenvalues", "staged_predict")
CALLS = [
    (name, method)
    for name, (model, _) in MODELS.items()
    for method in METHODS
    if hasattr(model, method)
]


@pytest.fixture(scope="module")
def fitted():
    return {name: model.fit(*data) for name, (model, data) in MODELS.items()}


def with_entry(X, value):
    X = X.astype(object if isinstance(value, str | list | None) else np.result_type(X, value))
    X[1, -1] = value
    return X


def spoiled(X):
    return {
        "nan": with_entry(X, np.nan),
        "inf": with_entry(X, -np.inf),
        "complex": with_entry(X, 1j),
        "word": with_entry(X, "word"),
        "none": with_entry(X, None),
        "nested": with_entry(X, [1.0]),
        "text": "a table",
        "nothing": None,
        "mapping": {"x": 1.0},
        "iterator": iter(X),
        "no rows": X[:0],
        "no columns": X[:, :0],
        "one row, 1-D": X[0],
        "scalar": 1.0,
        "3-D": X[None],
        "too wide": np.hstack([X, X]),
        "too narrow": X[:, :-1],
        "ragged": [[1.0] * X.shape[1], [1.0]],
        "record": np.zeros(3, dtype=[("a", float)]),
    }


@pytest.mark.parametrize("kind", spoiled(ROWS[0]))
@pytest.mark.parametrize(("name", "method"), CALLS)
def test_no_method_takes_spoiled_rows(fitted, name, method, kind):
    model, (X, _) = fitted[name], MODELS[name][1]
    with pytest.raises((ValueError, TypeError), match=r"\w{3}"):
        list(getattr(model, method)(spoiled(X)[kind]))


@pytest.mark.parametrize("kind", sorted(set(spoiled(ROWS[0])) - {"too wide", "too narrow"}))
def test_no_prompts_are_fitted_to_spoiled_rows(kind):
    """Rows are the business of scikit-learn's checks, which do not know prompts."""
    with pytest.raises((ValueError, TypeError), match=r"\w{3}"):
        SoftmaxICLRegressor(3).fit(spoiled(PROMPTS[0])[kind], PROMPTS[1])


@pytest.mark.parametrize("kind", sorted(set(spoiled(ROWS[0])) - {"too wide", "too narrow"}))
def test_the_kernel_takes_no_spoiled_rows(kind):
    kernel, bad = AttentionNTKKernel(), spoiled(ROWS[0])[kind]
    for call in (lambda: kernel(bad), lambda: kernel.diag(bad)):
        with pytest.raises((ValueError, TypeError), match=r"\w{3}"):
            call()
    if kind != "nothing":
        with pytest.raises((ValueError, TypeError), match=r"\w{3}"):
            kernel(ROWS[0], bad)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda y: sp.csr_matrix(y[:, None]),
        lambda y: y.astype("M8[s]"),
        lambda y: y.astype("m8[s]"),
        lambda y: np.full(len(y), "high"),
        lambda y: y + 1j,
        lambda y: y[:-1],
        lambda y: y.reshape(-1, 1, 1),
        lambda y: np.empty((len(y), 0)),
        lambda y: np.where(np.arange(len(y)) == 3, np.nan, y),
        lambda y: np.where(np.arange(len(y)) == 3, np.inf, y),
        lambda y: None,
        lambda y: 1.0,
    ],
)
@pytest.mark.parametrize("name", ["finite", "lazy", "infinite", "rows", "prompts"])
def test_targets_are_dense_real_numbers(name, spoil):
    model, (X, y) = MODELS[name]
    with pytest.raises((ValueError, TypeError), match=r"\w{3}"):
        type(model)(**model.get_params()).fit(X, spoil(y))


NAN_PARAMETERS = [
    (model, parameter)
    for model, parameters in [
        (AttentionNTKRegressor(8), ["alpha", "tol", "learning_rate", "max_iter"]),
        (AttentionNTKRegressor(8, solver="collocation"), ["alpha", "n_jobs"]),
        (AttentionNTKRegressor(8, regime="lazy"), ["alpha", "learning_rate", "n_jobs", "max_iter"]),
        (SoftmaxICLRegressor(), ["alpha", "tol", "learning_rate", "validation_fraction"]),
        (ResidualLinearRegressor(), ["alpha", "centered", "fit_intercept", "last_step"]),
    ]
    for parameter in parameters
]


@pytest.mark.parametrize(("model", "parameter"), NAN_PARAMETERS, ids=str)
def test_parameters_are_not_nan(model, parameter):
    with pytest.raises((ValueError, TypeError), match=parameter):
        type(model)(**model.get_params() | {parameter: np.nan}).fit(*ROWS)


@pytest.mark.parametrize("n_jobs", [1.5, 1e300, np.inf, "all"])
def test_no_fraction_of_a_worker(n_jobs):
    """A pool of a number of threads that is none would wait for ever."""
    with pytest.raises((ValueError, TypeError), match="n_jobs must be an instance of int"):
        AttentionNTKRegressor(8, n_jobs=n_jobs).fit(*ROWS)


@pytest.mark.parametrize("scale", [np.nan, np.inf, 1e-300, 1e300, 0.0, -1.0, None, "1"])
def test_weight_scales_whose_powers_are_numbers(scale):
    with pytest.raises((ValueError, TypeError), match="weight_scale"):
        AttentionNTKKernel(scale)(ROWS[0])


@pytest.mark.parametrize("scale", [1e-100, 1e-9, 1e9])
def test_the_kernel_is_finite_for_every_weight_scale(scale):
    X = ROWS[0]
    assert np.isfinite(AttentionNTKKernel(scale)(X)).all()


@pytest.mark.parametrize("noise", [np.nan, np.inf, -1.0, "loud", None])
def test_noise_is_a_finite_number(noise):
    for model in (ResidualSSM(noise=noise), ICLPrompts(noise=noise)):
        with pytest.raises((ValueError, TypeError), match="noise"):
            model.sample(3, random_state=0)


def test_a_risk_that_overflows_is_refused():
    with pytest.raises(ValueError, match="risk overflows: noise=1e"):
        ResidualSSM(noise=1e300).best_residual_risk()
    with pytest.raises(ValueError, match="risk overflows"):
        ResidualSSM(n_steps=4).linear_risk(np.full(4, 1e200))


def test_masked_values_are_missing():
    series = np.ma.masked_array(np.arange(9.0), mask=np.arange(9) == 4)
    with pytest.raises(ValueError, match=r"missing value \(NaN\) at row 4.*; 1 of its 9"):
        make_windows(series, 2)
    np.testing.assert_array_equal(make_windows(np.ma.masked_array(np.arange(9.0)), 2)[1][0], 2.0)


@pytest.mark.parametrize(
    ("X", "n_context", "n_outputs"),
    [
        (None, 1, 1),
        (1.0, 1, 1),
        ([1.0, 2.0, 3.0], 1, 1),
        (np.ones((2, 3, 4)), 1, 1),
        (np.ones((2, 5)), 0, 1),
        (np.ones((2, 5)), -1, 1),
        (np.ones((2, 5)), 1, 0),
    ],
)
def test_prompts_have_two_axes_and_a_context(X, n_context, n_outputs):
    with pytest.raises(ValueError, match=r"two-dimensional, and n_context"):
        unpack_prompts(X, n_context, n_outputs)


def colliding_tokens():
    """Two tokens of two features that differ in both and share the sum of their hashes."""
    spread = 0x9E3779B97F4A7C15
    below = 2**64

    def shift_back(mixed, by):
        whole = mixed
        for _ in range(64 // by):
            whole = mixed ^ (whole >> by)
        return whole

    def mix(number):
        bits = int(np.float64(number).view(np.uint64))
        bits = (bits ^ bits >> 32) * spread % below
        return bits ^ bits >> 29

    odd = [spread, 3 * spread % below]
    total = sum(mix(number) * k for number, k in zip((1.0, 2.0), odd, strict=True))
    for first in range(3, 99):
        mixed = (total - mix(first) * odd[0]) * pow(odd[1], -1, below) % below
        bits = shift_back(shift_back(mixed, 29) * pow(spread, -1, below) % below, 32)
        second = float(np.uint64(bits).view(np.float64))
        if np.isfinite(second):
            return np.array([[1.0, 2.0], [first, second]])
    raise AssertionError("one in a thousand doubles is not finite")


def test_tokens_made_to_share_a_hash_are_not_taken_for_one_another():
    one, other = colliding_tokens()
    assert distinct_tokens(np.array([[one, one, other]]), 3) is None  # too rare to count them
    keys, which = distinct_tokens(np.array([[one, one, one + 1]]), 3)
    assert sorted(which[0]) == [0, 0, 1] or sorted(which[0]) == [0, 1, 1]
    np.testing.assert_array_equal(keys[which[0]], [one, one, one + 1])


def test_both_zeros_are_one_row():
    """Copies of a row are held out together, whatever the sign of their zeros."""
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [2.0, -0.0], [2.0, 0.0]])
    for seed in range(20):
        held = held_out_rows(X, np.ones(5), 0.4, seed)
        assert held[0] == held[1]
        assert held[3] == held[4]
        assert 0 < held.sum() < 5
