"""skops writes and reads every estimator, trusting the types of this package alone."""

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcurse.datasets import make_icl_prompts, make_residual_ssm
from skcurse.estimators.attention_kernel import AttentionNTKKernel
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pytestmark = pytest.mark.extra
io = pytest.importorskip("skops.io")

# All that `trusted=` ever needs for this package's estimators.
TRUSTED = [
    "skcurse.estimators.attention_kernel.AttentionNTKKernel",
    "skcurse.estimators.attention_ntk.AttentionNTKRegressor",
    "skcurse.estimators.residual_linear.ResidualLinearRegressor",
    "skcurse.estimators.residual_target.ResidualTargetRegressor",
    "skcurse.estimators.softmax_icl.SoftmaxICLRegressor",
    "skcurse.theory.compression.CompressedNetwork",
    "skcurse.theory.residual_regression.ResidualFactor",
]
WINDOWS = make_residual_ssm(40, n_steps=6, random_state=0)
PROMPTS = make_icl_prompts(40, n_context=6, vocabulary_size=3, random_state=0)
SMALL = {"n_neurons": 16, "max_iter": 10, "random_state": 0}
MODELS = {
    "finite": AttentionNTKRegressor(**SMALL, solver="direct"),
    "collocation": AttentionNTKRegressor(**SMALL, solver="collocation"),
    "lazy": AttentionNTKRegressor(**SMALL, regime="lazy"),
    "infinite": AttentionNTKRegressor(regime="infinite", max_iter=np.inf, alpha=0.1),
    "residual linear": ResidualLinearRegressor(),
    "residual target": ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge())),
    "rows in context": SoftmaxICLRegressor(max_iter=4),
    "prompts": SoftmaxICLRegressor(n_context=6, max_iter=4),
    "gaussian process": GaussianProcessRegressor(AttentionNTKKernel(), alpha=0.1),
}


def fitted(name):
    data = PROMPTS if name == "prompts" else WINDOWS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten steps are too few to converge
        return MODELS[name].fit(*data), data


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name):
    model, (X, _) = fitted(name)
    data = io.dumps(model)
    assert set(io.get_untrusted_types(data=data)) <= set(TRUSTED)
    twin = io.loads(data, trusted=TRUSTED)
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    assert twin.get_params().keys() == model.get_params().keys()


def test_a_twin_goes_on_learning():
    X, y = WINDOWS
    half = ResidualLinearRegressor().partial_fit(X[:20], y[:20])
    twin = io.loads(io.dumps(half), trusted=TRUSTED)
    whole = half.partial_fit(X[20:], y[20:])
    np.testing.assert_array_equal(twin.partial_fit(X[20:], y[20:]).coef_, whole.coef_)


def test_every_trusted_type_is_needed():
    needed = set()
    for name in MODELS:
        needed.update(io.get_untrusted_types(data=io.dumps(fitted(name)[0])))
    assert needed == set(TRUSTED)
