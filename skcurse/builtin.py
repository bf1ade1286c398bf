"""The built-in plugin: what skcurse itself offers, through the hooks that every plugin uses."""

import pkgutil
from typing import Any

from skcurse.hookspecs import hookimpl


def _resolved(paths: dict[str, str]) -> dict[str, Any]:
    """Import what the dotted names stand for."""
    found = {}
    for name, path in paths.items():
        try:
            found[name] = pkgutil.resolve_name(f"skcurse.{path}")
        except (ImportError, AttributeError):  # until every module exists
            continue
    return found


@hookimpl
def skcurse_data_models() -> dict[str, Any]:
    """Offer the residual state space model and in-context prompts."""
    return _resolved({"residual_ssm": "datasets:ResidualSSM", "icl_prompts": "datasets:ICLPrompts"})


@hookimpl
def skcurse_diagnostics() -> dict[str, Any]:
    """Offer the papers' quantities."""
    names = (
        "weight_sign_alignment", "update_alignment", "last_step_attention", "sign_agreement",
        "weight_movement", "kernel_drift", "ntk_min_eigenvalue", "ntk_effective_rank",
        "attention_concentration", "loss_floor_gap",
    )  # fmt: skip
    return _resolved({name: f"diagnostics:{name}" for name in names})


@hookimpl
def skcurse_estimators() -> dict[str, Any]:
    """Offer attention, its in-context learner, and the residual models it is compared with."""
    return _resolved(
        {
            "attention_ntk": "estimators.attention_ntk:AttentionNTKRegressor",
            "residual_linear": "estimators.residual_linear:ResidualLinearRegressor",
            "softmax_icl": "estimators.softmax_icl:SoftmaxICLRegressor",
            "residual_target": "estimators.residual_target:ResidualTargetRegressor",
        }
    )
