"""The base class of everything that can be sampled."""

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state


class DataModel(BaseEstimator):
    """A law of (X, y) with parameters that a grid can vary.

    A data model is a parameter object, like a scikit-learn kernel: ``__init__`` only assigns, and
    one method draws. Subclasses implement ``_sample(n_samples, shift, rng)``; `sample` has by then
    checked its arguments.

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
            If `n_samples` is not a positive integer or `shift` is not one of `shifts`.
        """
        if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
            raise ValueError(f"n_samples must be an integer of at least 1, got {n_samples!r}.")
        if shift is not None and shift not in self.shifts:
            accepted = ", ".join(map(repr, (None, *self.shifts)))
            raise ValueError(
                f"{type(self).__name__} knows no shift {shift!r}; it accepts {accepted}."
            )
        return self._sample(int(n_samples), shift, check_random_state(random_state))

    def _sample(
        self, n_samples: int, shift: str | None, rng: np.random.RandomState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw `n_samples` rows under `shift` (already checked) with `rng`."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement _sample(n_samples, shift, rng)."
        )
