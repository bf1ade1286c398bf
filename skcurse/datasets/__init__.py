"""Data models (samplers), bundled series and windows."""

from skcurse.datasets._base import DataModel
from skcurse.datasets._ett import fetch_ett
from skcurse.datasets._icl_prompts import (
    ICLPrompts,
    make_icl_prompts,
    pack_prompts,
    unpack_prompts,
)
from skcurse.datasets._residual_ssm import ResidualSSM, make_residual_ssm
from skcurse.datasets._series import load_co2, load_sunspots
from skcurse.datasets._windows import SeriesWindows, WindowIndex, make_windows

__all__ = [
    "DataModel",
    "ICLPrompts",
    "ResidualSSM",
    "SeriesWindows",
    "WindowIndex",
    "fetch_ett",
    "load_co2",
    "load_sunspots",
    "make_icl_prompts",
    "make_residual_ssm",
    "make_windows",
    "pack_prompts",
    "unpack_prompts",
]
