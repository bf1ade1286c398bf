"""Prompts of an in-context regression task over a finite set of orthonormal tokens."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state, check_scalar

from skcurse.datasets._base import DataModel
from skcurse.theory.prompts import pack_prompts, unpack_prompts

__all__ = ["ICLPrompts", "make_icl_prompts", "pack_prompts", "unpack_prompts"]

TaskLaw = str | Callable[[np.random.RandomState, tuple[int, int]], ArrayLike]

_TASK_LAWS: dict[str, Callable[[np.random.RandomState, tuple[int, int]], ArrayLike]] = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "rademacher": lambda rng, shape: rng.choice([-1.0, 1.0], size=shape),
    "uniform": lambda rng, shape: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=shape),
}


class ICLPrompts(DataModel):
    r"""Flattened prompts: a linear task shown through examples at a finite set of features.

    Each prompt has a task w of its own, with mean zero and identity covariance. Its context tokens
    and its query are drawn i.i.d. from K orthonormal features, and every label is
    :math:`\langle w, x \rangle` plus noise.

    Parameters
    ----------
    n_context : int, default=32
        Number N of context tokens.
    vocabulary_size : int, default=8
        Number K of distinct tokens.
    probabilities : {"balanced", "imbalanced"} or array-like of shape (K,), default="balanced"
        Law of a token: all equal; or 1/2 for the first feature and the other half shared equally
        by the rest; or any probabilities that add up to 1.
    dim : int, default=None
        Dimension of the tokens, at least K; ``None`` is K.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise on every label, the target's included.
    feature_state : int, RandomState instance or None, default=0
        Seed of the features. They belong to the model: samples of one model share them.
    task_law : {"gaussian", "rademacher", "uniform"} or callable, default="gaussian"
        Law of the K coordinates :math:`\langle w, v_k \rangle`: i.i.d. standard normal, signs, or
        uniform with variance 1. A callable ``task_law(rng, (n_prompts, K))`` returns any array
        of that shape whose rows have mean zero and identity covariance.

    Notes
    -----
    Shifts: ``"scaled_task"`` doubles every task; under ``"rare_query"`` the query is drawn
    uniformly from the features of lowest probability (no change where all are equally likely).

    A row holds the N tokens in order, each x then y, then the query's x: N(d + 1) + d columns.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, section 2.

    Examples
    --------
    >>> from skcurse.datasets import ICLPrompts
    >>> X, y = ICLPrompts(n_context=5, vocabulary_size=3).sample(10, random_state=0)
    >>> X.shape, y.shape
    ((10, 23), (10,))
    """

    shifts = ("scaled_task", "rare_query")

    def __init__(
        self,
        n_context: int = 32,
        vocabulary_size: int = 8,
        probabilities: str | ArrayLike = "balanced",
        dim: int | None = None,
        noise: float = 0.0,
        feature_state: Any = 0,
        task_law: TaskLaw = "gaussian",
    ):
        self.n_context = n_context
        self.vocabulary_size = vocabulary_size
        self.probabilities = probabilities
        self.dim = dim
        self.noise = noise
        self.feature_state = feature_state
        self.task_law = task_law

    def features(self) -> NDArray[np.float64]:
        """Orthonormal features as rows.

        Returns
        -------
        ndarray of shape (vocabulary_size, dim)
            Row k is v_k.

        Raises
        ------
        ValueError
            If `dim` is smaller than `vocabulary_size`.

        Examples
        --------
        >>> from skcurse.datasets import ICLPrompts
        >>> V = ICLPrompts(vocabulary_size=3, dim=5).features()
        >>> (V @ V.T).round(12) + 0.0
        array([[1., 0., 0.],
               [0., 1., 0.],
               [0., 0., 1.]])
        """
        check_scalar(self.vocabulary_size, "vocabulary_size", Integral, min_val=1)
        dim = self.vocabulary_size if self.dim is None else self.dim
        if dim < self.vocabulary_size:
            raise ValueError(
                f"dim={dim} leaves no room for vocabulary_size={self.vocabulary_size} orthonormal "
                "features: dim must be at least vocabulary_size."
            )
        rng = check_random_state(self.feature_state)
        q, r = np.linalg.qr(rng.standard_normal((dim, self.vocabulary_size)))
        return (q * np.sign(np.diag(r))).T

    def token_probabilities(self) -> NDArray[np.float64]:
        """Probability of each feature.

        Returns
        -------
        ndarray of shape (vocabulary_size,)
            Non-negative, adds up to 1.

        Raises
        ------
        ValueError
            If `probabilities` is not a law on `vocabulary_size` features.

        Examples
        --------
        >>> from skcurse.datasets import ICLPrompts
        >>> ICLPrompts(vocabulary_size=5, probabilities="imbalanced").token_probabilities()
        array([0.5  , 0.125, 0.125, 0.125, 0.125])
        """
        k = self.vocabulary_size
        if isinstance(self.probabilities, str):
            if self.probabilities == "balanced":
                return np.full(k, 1.0 / k)
            if self.probabilities == "imbalanced" and k >= 2:
                return np.r_[0.5, np.full(k - 1, 0.5 / (k - 1))]
            raise ValueError(
                "probabilities must be 'balanced', 'imbalanced' (for a vocabulary_size of at least "
                f"2) or an array, got {self.probabilities!r} with vocabulary_size={k}."
            )
        p = np.asarray(self.probabilities, dtype=np.float64)
        if p.shape != (k,) or not (p >= 0).all() or not abs(p.sum() - 1.0) <= 1e-8:
            raise ValueError(
                f"probabilities must be {k} non-negative numbers that add up to 1, got {p!r}."
            )
        return p / p.sum()

    def _sample(
        self, n_samples: int, shift: str | None, rng: np.random.RandomState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        check_scalar(self.n_context, "n_context", Integral, min_val=1)
        check_scalar(self.noise, "noise", Real, min_val=0)
        if not self.noise < np.inf:
            raise ValueError(f"noise must be a finite number, got {self.noise!r}.")
        features, p = self.features(), self.token_probabilities()
        query_p = p
        if shift == "rare_query":
            rare = p == p[p > 0].min()
            query_p = rare / rare.sum()
        tasks = self._draw_tasks(rng, (n_samples, len(p)))
        if shift == "scaled_task":
            tasks = 2.0 * tasks
        token = rng.choice(len(p), size=(n_samples, self.n_context), p=p)
        query = rng.choice(len(p), size=n_samples, p=query_p)
        labels = np.take_along_axis(tasks, np.column_stack([token, query]), axis=1)
        labels = labels + self.noise * rng.standard_normal(labels.shape)
        return pack_prompts(features[token], labels[:, :-1], features[query]), labels[:, -1]

    def _draw_tasks(
        self, rng: np.random.RandomState, shape: tuple[int, int]
    ) -> NDArray[np.float64]:
        """Coordinates of each prompt's task along the features."""
        law = _TASK_LAWS.get(self.task_law) if isinstance(self.task_law, str) else self.task_law
        if not callable(law):
            raise ValueError(
                f"task_law must be one of {sorted(_TASK_LAWS)} or a callable, got "
                f"{self.task_law!r}."
            )
        tasks = np.asarray(law(rng, shape), dtype=np.float64)
        if tasks.shape != shape:
            raise ValueError(f"task_law must return an array of shape {shape}, got {tasks.shape}.")
        return tasks


def make_icl_prompts(
    n_samples: int = 100,
    n_context: int = 32,
    vocabulary_size: int = 8,
    *,
    probabilities: str | ArrayLike = "balanced",
    dim: int | None = None,
    noise: float = 0.0,
    feature_state: Any = 0,
    task_law: TaskLaw = "gaussian",
    shift: str | None = None,
    random_state: Any = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw flattened in-context regression prompts.

    Parameters
    ----------
    n_samples : int, default=100
        Number of prompts.
    n_context, vocabulary_size, probabilities, dim, noise, feature_state, task_law
        As in `ICLPrompts`.
    shift : {"scaled_task", "rare_query"}, default=None
        As in `ICLPrompts`.
    random_state : int, RandomState instance or None, default=None
        Seed of the sample.

    Returns
    -------
    X : ndarray of shape (n_samples, n_context * (dim + 1) + dim)
        One prompt a row: the tokens in order, each x then y, then the query's x.
    y : ndarray of shape (n_samples,)
        Labels of the queries.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, section 2.

    Examples
    --------
    >>> from skcurse.datasets import make_icl_prompts
    >>> X, y = make_icl_prompts(10, n_context=5, vocabulary_size=3, random_state=0)
    >>> X.shape, y.shape
    ((10, 23), (10,))
    """
    model = ICLPrompts(
        n_context, vocabulary_size, probabilities, dim, noise, feature_state, task_law
    )
    return model.sample(n_samples, shift=shift, random_state=random_state)
