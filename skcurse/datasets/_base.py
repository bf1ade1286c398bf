"""The base class of everything that can be sampled."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state


def is_series(model: Any) -> bool:
    """Whether a data model is one series, with a method ``windows(n_train)``."""
    return callable(getattr(model, "windows", None))


def sample_fault(X: NDArray[Any], y: NDArray[Any], n_samples: int) -> str | None:
    """Say what is wrong with a sample of `n_samples` rows, if anything is."""
    shape = X.shape == (n_samples, *X.shape[1:2]) and X.ndim == 2 and X.shape[1] > 0
    if not (shape and y.shape in [(n_samples,), (n_samples, *y.shape[1:2])]) or 0 in y.shape:
        n = n_samples
        return (
            f"X must have shape ({n}, n_features) and y shape ({n},) or ({n}, n_outputs), got "
            f"{X.shape} and {y.shape}"
        )
    for name, array in (("X", X), ("y", y)):
        if array.dtype.kind not in "fiub":
            return f"{name} must hold real numbers, got dtype {array.dtype}"
        if not np.isfinite(array).all():
            return f"{name} must be finite, got NaN or infinite values"
    return None


class DataModel(BaseEstimator):
    """A law of (X, y) with parameters that a grid can vary.

    A data model is a parameter object, like a scikit-learn kernel: ``__init__`` only assigns, and
    one method draws. Subclasses implement ``_sample(n_samples, shift, rng)``, which returns (X, y);
    `sample` has by then checked its arguments, and checks what is returned. `rng` is a
    `numpy.random.RandomState`: the only source of randomness. Subclasses may also implement
    `reference_risks`.

    Attributes
    ----------
    shifts : tuple of str
        Class attribute: the distribution shifts that `sample` accepts besides ``None``, the law
        of the training data.

    Examples
    --------
    >>> from skcurse.datasets import DataModel
    >>> class WhiteNoise(DataModel):
    ...     shifts = ("louder",)
    ...
    ...     def __init__(self, n_steps=4):
    ...         self.n_steps = n_steps
    ...
    ...     def _sample(self, n_samples, shift, rng):
    ...         u = rng.normal(size=(n_samples, self.n_steps + 1))
    ...         u *= 3.0 if shift == "louder" else 1.0
    ...         return u[:, :-1], u[:, -1]
    >>> X, y = WhiteNoise().sample(10, shift="louder", random_state=0)
    >>> X.shape, y.shape
    ((10, 4), (10,))
    """

    shifts: ClassVar[tuple[str, ...]] = ()

    def sample(
        self, n_samples: int, *, shift: str | None = None, random_state: Any = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw a sample.

        Parameters
        ----------
        n_samples : int
            Number of rows, at least 1.
        shift : str, default=None
            One of `shifts`, or ``None`` for the training law.
        random_state : int, RandomState instance or None, default=None
            Same value, same sample.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Inputs.
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer or `shift` is not one of `shifts`; or if a
            subclass has drawn anything but finite numbers of these shapes.
        """
        if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
        if shift is not None and shift not in self.shifts:
            accepted = ", ".join(map(repr, (None, *self.shifts)))
            raise ValueError(
                f"{type(self).__name__} knows no shift {shift!r}; it accepts {accepted}."
            )
        drawn = self._sample(int(n_samples), shift, check_random_state(random_state))
        where = f"{type(self).__name__}._sample(n_samples={n_samples}, shift={shift!r})"
        if not isinstance(drawn, tuple | list) or len(drawn) != 2:
            raise ValueError(f"{where} must return a pair (X, y), got {type(drawn).__name__}.")
        X, y = map(np.asarray, drawn)
        if fault := sample_fault(X, y, int(n_samples)):
            raise ValueError(f"{where}: {fault}.")
        return X, y

    def reference_risks(self, shift: str | None = None) -> dict[str, float]:
        """Risks that are known in closed form, for `skcurse.compare` to show beside the errors.

        Parameters
        ----------
        shift : str, default=None
            One of `shifts`, or ``None`` for the training law.

        Returns
        -------
        dict of str to float
            From the name of a predictor to its mean squared error under `shift`, the target's
            noise included. None here: a subclass fills in what it knows.
        """
        return {}

    def _sample(
        self, n_samples: int, shift: str | None, rng: np.random.RandomState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw `n_samples` rows under `shift` (already checked) with `rng`."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement _sample(n_samples, shift, rng)."
        )
