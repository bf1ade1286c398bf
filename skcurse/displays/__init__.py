"""Pictures in scikit-learn's Display style; matplotlib is imported when one is plotted."""

from skcurse.displays._comparison import ComparisonDisplay

__all__ = ["ComparisonDisplay"]
