"""Two theories of attention as scikit-learn estimators."""

from skcurse.comparison import Comparison, DataModelStudy, compare, study_scorer
from skcurse.datasets import (
    DataModel,
    ICLPrompts,
    ResidualSSM,
    SeriesWindows,
    fetch_ett,
    load_co2,
    load_sunspots,
    make_icl_prompts,
    make_residual_ssm,
    make_windows,
    pack_prompts,
    unpack_prompts,
)
from skcurse.diagnostics import ood_scorer
from skcurse.displays import (
    AsymmetryDisplay,
    AttentionDisplay,
    ComparisonDisplay,
    ForecastDisplay,
    LossCurveDisplay,
    NTKSpectrumDisplay,
    PhaseDisplay,
)
from skcurse.estimators import (
    AttentionNTKKernel,
    AttentionNTKRegressor,
    ResidualLinearRegressor,
    ResidualTargetRegressor,
    SoftmaxICLRegressor,
)
from skcurse.plugins import (
    get_data_models,
    get_diagnostics,
    get_estimators,
    hookimpl,
    register,
    unregister,
)

__version__ = "0.1.0"

__all__ = [
    "AsymmetryDisplay",
    "AttentionDisplay",
    "AttentionNTKKernel",
    "AttentionNTKRegressor",
    "Comparison",
    "ComparisonDisplay",
    "DataModel",
    "DataModelStudy",
    "ForecastDisplay",
    "ICLPrompts",
    "LossCurveDisplay",
    "NTKSpectrumDisplay",
    "PhaseDisplay",
    "ResidualLinearRegressor",
    "ResidualSSM",
    "ResidualTargetRegressor",
    "SeriesWindows",
    "SoftmaxICLRegressor",
    "compare",
    "fetch_ett",
    "get_data_models",
    "get_diagnostics",
    "get_estimators",
    "hookimpl",
    "load_co2",
    "load_sunspots",
    "make_icl_prompts",
    "make_residual_ssm",
    "make_windows",
    "ood_scorer",
    "pack_prompts",
    "register",
    "study_scorer",
    "unpack_prompts",
    "unregister",
]
