"""What a check returns: a verdict, where it was tried, and the numbers it rests on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

EXACT = "holds exactly"
UNDER = "holds under preconditions"
FAILS = "does not hold as stated"


class Finding(NamedTuple):
    """Outcome of a check.

    Attributes
    ----------
    verdict : str
        "holds exactly" (an identity to rounding, an inequality in every case tried), "holds within
        ERROR", "holds under preconditions" or "does not hold as stated".
    tried : str
        Where: the cases, and the preconditions or the counter-example.
    measured : mapping of str to float
        The numbers.
    """

    verdict: str
    tried: str
    measured: Mapping[str, float]

    def evidence(self) -> str:
        """Return one line: where it was tried, then the numbers."""
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in self.measured.items())
        return f"{self.tried}: {numbers}" if numbers else self.tried


def within(error: float) -> str:
    """Name the verdict of a claim that holds up to `error`."""
    return f"holds within {error:g}"


def identity(error: float, tried: str, *, tolerance: float = 1e-12) -> Finding:
    """Judge an identity by its largest relative error; NaN is a failure."""
    return Finding(EXACT if error <= tolerance else FAILS, tried, {"largest error": float(error)})


def judged(
    holds: bool | np.bool, tried: str, measured: Mapping[str, Any], *, yes: str = EXACT
) -> Finding:
    """Return `yes` where the claim holds in the cases tried and no number is NaN, else FAILS."""
    numbers = {name: float(value) for name, value in measured.items()}
    verdict = yes if holds and not np.isnan(list(numbers.values())).any() else FAILS
    return Finding(verdict, tried, numbers)


def largest(*values: ArrayLike | Iterable[float]) -> float:
    """Largest of numbers, arrays and iterables; NaN if one is, which no comparison forgives."""
    return float(np.max(np.concatenate([_flat(v) for v in values])))


def smallest(*values: ArrayLike | Iterable[float]) -> float:
    """Smallest of numbers, arrays and iterables; NaN if one is."""
    return float(np.min(np.concatenate([_flat(v) for v in values])))


def _flat(value: Any) -> NDArray[np.float64]:
    return np.ravel(list(value) if isinstance(value, Iterable) else value).astype(np.float64)


def starts(scale: Sequence[float], holds: Sequence[bool]) -> float:
    """First point of an ascending `scale` from which on a claim holds; NaN if it never does."""
    last_failure = max((i for i, ok in enumerate(holds) if not ok), default=-1)
    return float(scale[last_failure + 1]) if last_failure + 1 < len(scale) else np.nan


def slope(x: ArrayLike, y: ArrayLike) -> float:
    """Exponent a of the power law ``y ~ x**a`` through the points, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
