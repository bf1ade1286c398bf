"""A diagnostic as a scorer that can cost no more than its own cell."""

import math
import numbers
import reprlib
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np


def _as_float(value: Any) -> float | None:
    """Convert a finite or nan scalar of any library; None for everything else."""
    with suppress(Exception):
        if isinstance(value, numbers.Real) or (
            np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"
        ):
            number = float(value)
            return None if math.isinf(number) else number
    return None


def _read_only(array: Any) -> Any:
    """View through which an array cannot be changed, so that the next scorer sees the same rows.

    A shallow copy protects a pandas object, which copies on write. Nothing else is protected.
    """
    if hasattr(array, "iloc"):
        return array.copy(deep=False)
    if type(array) is not np.ndarray:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def summarise(error: BaseException) -> str:
    """Give type and message in one line, even of an error whose message fails or has notes."""
    lines = traceback.format_exception_only(error)
    return " ".join(next(line for line in lines if not line.startswith(" ")).split())


def _describe(error: BaseException) -> str:
    """One line, then the traceback without the frame of this module."""
    tb = error.__traceback__.tb_next if error.__traceback__ else None
    lines = traceback.format_exception(type(error), error, tb)
    return f"raised {summarise(error)}\n{''.join(lines).rstrip()}"


def held_out(estimator: Any, X: Any, y: Any = None) -> tuple[Any, Any, Any]:
    """Replace a `DataModelStudy` by what it fitted, and its seeds by the sample they draw.

    Parameters
    ----------
    estimator : fitted estimator
        Any; a study, or a search over one, is recognised by its method ``test_sample``.
    X, y : array-like
        Held-out rows and targets; for a study, seeds and None.

    Returns
    -------
    estimator, X, y
        Unchanged, or those of the study.

    Examples
    --------
    >>> from skcurse.scorer import held_out
    >>> held_out("any model", "rows", "targets")
    ('any model', 'rows', 'targets')
    """
    study = getattr(estimator, "best_estimator_", estimator)
    if hasattr(study, "test_sample"):
        return study.estimator_, *study.test_sample(X)
    return estimator, X, y


@dataclass(frozen=True)
class DiagnosticScorer:
    """A diagnostic as a scorer that can cost no more than its own cell.

    Parameters
    ----------
    name : str
        Its name, for messages.
    function : callable (estimator, X, y) -> float
        The diagnostic. NumPy arrays reach it read-only, pandas objects as shallow copies; the
        estimator, lists and everything else it must leave as they are.

    Notes
    -----
    It pickles if the function does: by reference where that lives in an importable module; under
    loky and dask, which use cloudpickle, by value where it was defined in ``__main__``.

    Examples
    --------
    >>> import warnings
    >>> from skcurse.scorer import DiagnosticScorer
    >>> scorer = DiagnosticScorer("broken", lambda estimator, X, y: "high")
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     scorer(None, None, None)
    nan
    >>> print(caught[0].message)
    Diagnostic 'broken' returned 'high' (str), not a finite number; its value here is nan.
    """

    name: str
    function: Callable[..., Any]

    def evaluate(self, estimator: Any, X: Any, y: Any = None) -> tuple[float, str | None]:
        """Call the diagnostic.

        Parameters
        ----------
        estimator : fitted estimator
            A `DataModelStudy` is replaced by the estimator that it has fitted, and the seeds in X
            by the test sample that it draws with them.
        X : array-like
            Held-out rows.
        y : array-like, default=None
            Their targets.

        Returns
        -------
        value : float
            nan where the diagnostic does not apply, or gave no finite number.
        error : str or None
            Why it gave none; for an exception, with its traceback.
        """
        try:
            estimator, X, y = held_out(estimator, X, y)
            value = self.function(estimator, _read_only(X), _read_only(y))
        except (Exception, SystemExit) as error:  # exit() in a worker would end the parent
            return np.nan, _describe(error)
        number = _as_float(value)
        if number is None:
            kind = type(value).__qualname__
            return np.nan, f"returned {reprlib.repr(value)} ({kind}), not a finite number"
        return number, None

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Return the value; nan and one warning if there is none."""
        value, error = self.evaluate(estimator, X, y)
        if error is not None:
            summary, *details = error.split("\n", 1)
            message = f"Diagnostic {self.name!r} {summary}; its value here is nan."
            warnings.warn("\n".join([message, *details]), stacklevel=2)
        return value

    def _accept_sample_weight(self) -> bool:
        """Answer scikit-learn, which asks every scorer once `fit` gets sample weights."""
        return False
