"""A fit that fails or is interrupted leaves its estimator as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.base import BaseEstimator


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Put all attributes back if the body raises, be it a KeyboardInterrupt."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
