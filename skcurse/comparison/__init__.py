"""Compare estimators on data models: in one call, or inside scikit-learn's own searches."""

from skcurse.comparison._compare import compare
from skcurse.comparison._report import Comparison, Failure, Reference, describe, score_name
from skcurse.comparison._study import DataModelStudy, study_scorer

__all__ = [
    "Comparison",
    "DataModelStudy",
    "Failure",
    "Reference",
    "compare",
    "describe",
    "score_name",
    "study_scorer",
]
