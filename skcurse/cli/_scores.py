"""Scores of the command line's own, as diagnostics.

A series has one split, so the error of its skill over persistence comes from blocks of time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

N_BLOCKS = 20


def skill(estimator: Any, X: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the share of persistence's squared error that the estimator saves."""
    gain, reference = _gains(estimator, X, y)
    return float(gain.mean() / reference.mean()) if reference.any() else np.nan


def skill_error(estimator: Any, X: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the standard error of `skill`, from means over consecutive blocks of test rows."""
    gain, reference = _gains(estimator, X, y)
    if len(gain) < 2 * N_BLOCKS or not reference.any():
        return np.nan
    # A ratio of means: linearise around its value, then the blocks are nearly independent.
    deviation = gain - gain.mean() / reference.mean() * reference
    blocks = [block.mean() for block in np.array_split(deviation, N_BLOCKS)]
    return float(np.std(blocks, ddof=1) / np.sqrt(N_BLOCKS) / reference.mean())


def n_iter(estimator: Any, X: Any, y: Any) -> float:
    """Return the number of iterations of an estimator that counts them; a closed form has none."""
    value = getattr(estimator, "n_iter_", None)  # None where a solver does not iterate
    return np.nan if value is None or np.isinf(value).any() else float(np.max(value))


def _gains(
    estimator: Any, X: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, for each row, persistence's squared error less the estimator's, and persistence's."""
    y = y.reshape(len(y), -1)
    errors = y - np.reshape(estimator.predict(X), y.shape)
    reference = ((y - X[:, [-1]]) ** 2).mean(axis=1)
    return reference - (errors**2).mean(axis=1), reference
