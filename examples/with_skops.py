"""
=============================
Our estimators saved by skops
=============================

skops saves an estimator without pickle, and loads types of other packages than scikit-learn only if
they are named. What our estimators need are types of this package alone.
"""

import tempfile
from pathlib import Path

import numpy as np
import skops.io

from skcurse import ResidualLinearRegressor, load_sunspots, make_windows

TRUSTED = [
    "skcurse.estimators.attention_kernel.AttentionNTKKernel",
    "skcurse.estimators.attention_ntk.AttentionNTKRegressor",
    "skcurse.estimators.residual_linear.ResidualLinearRegressor",
    "skcurse.estimators.residual_target.ResidualTargetRegressor",
    "skcurse.estimators.softmax_icl.SoftmaxICLRegressor",
    "skcurse.theory.compression.CompressedNetwork",
    "skcurse.theory.residual_regression.ResidualFactor",
]

X, y = make_windows(load_sunspots().target, n_steps=24)
model = ResidualLinearRegressor().fit(X, y)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "model.skops")
    skops.io.dump(model, path)
    print("to be trusted:", skops.io.get_untrusted_types(file=path))
    loaded = skops.io.load(path, trusted=TRUSTED)
print("same predictions:", np.array_equal(loaded.predict(X), model.predict(X)))
