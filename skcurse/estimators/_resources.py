"""What estimators check alike: memory and workers they are allowed, numbers, targets, weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from numbers import Integral, Real
from typing import Any

import numpy as np
import sklearn
from joblib import effective_n_jobs
from joblib.parallel import ThreadingBackend, get_active_backend
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_scalar
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

Map = Callable[..., Iterable[Any]]


def block_bytes() -> int:
    """Bytes of temporaries that scikit-learn's ``working_memory`` allows."""
    return int(sklearn.get_config()["working_memory"] * 2**20)


def check_number(value: Any, name: str, **bounds: Any) -> None:
    """Raise for what is no finite number within the bounds of scikit-learn's `check_scalar`."""
    check_scalar(value, name, Real, **bounds)
    if not np.isfinite(value):
        least = "above" if bounds.get("include_boundaries") == "neither" else "of at least"
        raise ValueError(f"{name} must be a finite number {least} 0, got {value}.")


@cache
def _blas() -> ThreadpoolController:
    """Find the libraries of linear algebra; they are all there by now, and looking takes long."""
    return ThreadpoolController().select(user_api="blas")


class _ThreadMap:
    """A map on threads of our own, with linear algebra on one thread in each of them.

    Threads that it would start in every worker are more than there are processors. The limit is
    that of the process, so it holds while a map is at work, and no longer.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self.limit = ExitStack()

    def __call__(self, function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        rows = list(zip(*columns, strict=True))
        if len(rows) == 1:
            yield function(*rows[0])
            return
        self.limit.enter_context(_blas().limit(limits=1))
        try:
            yield from self._threads.map(lambda row: function(*row), rows)
        finally:
            # Of two maps at once the first to end lifts the limits of both, in the right order.
            self.limit.close()


@contextmanager
def parallel_map(n_jobs: int | None) -> Iterator[Map]:
    """Yield a map with the signature of the built-in one that runs on joblib's workers."""
    if n_jobs is not None:
        check_scalar(n_jobs, "n_jobs", Integral)
    n_workers = effective_n_jobs(n_jobs)
    backend, _ = get_active_backend(prefer="threads")
    if n_workers == 1:
        yield map
    elif isinstance(backend, ThreadingBackend):
        # NumPy releases the interpreter lock in all that costs time here, and a plain pool answers
        # in microseconds where joblib looks at its results every ten milliseconds.
        with ThreadPoolExecutor(n_workers) as threads:
            blocks = _ThreadMap(threads)
            # An error may hold on to a map that has not come to its end.
            with blocks.limit:
                yield blocks
    else:
        with Parallel(n_jobs=n_jobs, return_as="generator") as pool:
            yield lambda function, *columns: pool(
                delayed(function)(*row) for row in zip(*columns, strict=True)
            )


def checked_target(y: Any) -> NDArray[Any]:
    """Validate targets: a dense array of real numbers, as floats."""
    if np.asarray(y).dtype.kind in "mM":
        raise ValueError("y holds dates or durations, not numbers.")
    return check_array(y, ensure_2d=False, dtype=[np.float64, np.float32], input_name="y")


def checked_sample_weight(
    sample_weight: ArrayLike | None, n_samples: int
) -> NDArray[np.float64] | None:
    """Validate weights of rows: one for each row, none negative, not all zero."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_samples, sample_weight)
    weight: NDArray[np.float64] = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must hold {n_samples} non-negative numbers that are not all zero, one "
            f"for each row; its shape is {weight.shape}."
        )
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise ValueError(f"sample_weight must not be negative, but is {weight[row]} in row {row}.")
    if not weight.any():
        raise ValueError("sample_weight must not be zero in all rows.")
    return weight
