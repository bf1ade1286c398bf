"""Pictures in scikit-learn's Display style; matplotlib is imported when one is plotted."""

from skcurse.displays._asymmetry import AsymmetryDisplay
from skcurse.displays._attention import AttentionDisplay
from skcurse.displays._comparison import ComparisonDisplay
from skcurse.displays._forecast import ForecastDisplay
from skcurse.displays._loss_curve import LossCurveDisplay
from skcurse.displays._ntk_spectrum import NTKSpectrumDisplay
from skcurse.displays._phases import PhaseDisplay

__all__ = [
    "AsymmetryDisplay",
    "AttentionDisplay",
    "ComparisonDisplay",
    "ForecastDisplay",
    "LossCurveDisplay",
    "NTKSpectrumDisplay",
    "PhaseDisplay",
]
