"""scikit-learn estimators: thin shells over :mod:`skcurse.theory`."""
