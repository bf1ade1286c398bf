"""Data models (samplers), bundled series and windows."""

from skcurse.datasets._base import DataModel
from skcurse.datasets._residual_ssm import ResidualSSM, make_residual_ssm
from skcurse.datasets._series import fetch_ett, load_co2, load_sunspots
from skcurse.datasets._windows import SeriesWindows, WindowIndex, make_windows

__all__ = [
    "DataModel",
    "ResidualSSM",
    "SeriesWindows",
    "WindowIndex",
    "fetch_ett",
    "load_co2",
    "load_sunspots",
    "make_residual_ssm",
    "make_windows",
]
