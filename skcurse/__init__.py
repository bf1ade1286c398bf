"""Two theories of attention as scikit-learn estimators."""

__version__ = "0.1.0"
