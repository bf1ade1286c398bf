"""scikit-learn estimators: thin shells over :mod:`skcurse.theory`."""

from skcurse.estimators.attention_kernel import AttentionNTKKernel
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

__all__ = [
    "AttentionNTKKernel",
    "AttentionNTKRegressor",
    "ResidualLinearRegressor",
    "ResidualTargetRegressor",
    "SoftmaxICLRegressor",
]
