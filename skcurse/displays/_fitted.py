"""What a display needs of a fitted estimator, or why it cannot have it."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted


def fitted_attributes(estimator: Any, *names: str) -> tuple[Any, ...]:
    """Return attributes of a fitted estimator.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    ValueError
        If a fitted estimator has no such attribute.
    """
    check_is_fitted(estimator)
    missing = [name for name in names if not hasattr(estimator, name)]
    if missing:
        regime = getattr(estimator, "regime_", None)
        kind = "" if regime is None else f" in the {regime} regime"
        raise ValueError(
            f"{type(estimator).__name__}{kind} has no {', '.join(missing)}, which this display "
            "shows."
        )
    return tuple(getattr(estimator, name) for name in names)


def row_of_output(values: Any, output: int) -> Any:
    """Return what belongs to one output: a row, or the one vector of a single output.

    Raises
    ------
    ValueError
        If there is no such output.
    """
    rows = np.atleast_2d(values)
    if not isinstance(output, Integral) or not 0 <= output < len(rows):
        raise ValueError(f"output must be an integer in [0, {len(rows)}), got {output!r}.")
    return rows[output]
