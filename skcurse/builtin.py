"""The built-in plugin: what skcurse itself offers, through the hooks that every plugin uses.

The host imports this module, by name, at the first look-up: not before, and from nowhere else.
"""

from collections.abc import Callable

from sklearn.base import BaseEstimator

from skcurse import diagnostics
from skcurse.datasets import DataModel, ICLPrompts, ResidualSSM
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
from skcurse.hookspecs import hookimpl


@hookimpl
def skcurse_data_models() -> dict[str, type[DataModel]]:
    """Offer the papers' data."""
    return {"residual_ssm": ResidualSSM, "icl_prompts": ICLPrompts}


@hookimpl
def skcurse_diagnostics() -> dict[str, Callable[..., float]]:
    """Offer the papers' quantities."""
    return {
        "weight_sign_alignment": diagnostics.weight_sign_alignment,
        "update_alignment": diagnostics.update_alignment,
        "last_step_attention": diagnostics.last_step_attention,
        "sign_agreement": diagnostics.sign_agreement,
        "weight_movement": diagnostics.weight_movement,
        "kernel_drift": diagnostics.kernel_drift,
        "ntk_min_eigenvalue": diagnostics.ntk_min_eigenvalue,
        "ntk_effective_rank": diagnostics.ntk_effective_rank,
        "attention_concentration": diagnostics.attention_concentration,
        "loss_floor_gap": diagnostics.loss_floor_gap,
    }


@hookimpl
def skcurse_estimators() -> dict[str, type[BaseEstimator]]:
    """Offer attention, the in-context learner, and what they are compared with."""
    return {
        "attention_ntk": AttentionNTKRegressor,
        "residual_linear": ResidualLinearRegressor,
        "softmax_icl": SoftmaxICLRegressor,
        "residual_target": ResidualTargetRegressor,
    }
