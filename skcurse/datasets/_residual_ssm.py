"""The residual state space model as a data model."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from skcurse.datasets._base import DataModel
from skcurse.theory.residual_risk import best_residual_weights, linear_risk
from skcurse.theory.residual_ssm import (
    ResidualSystem,
    build_system,
    residual_coefficients,
    sample_states,
    spread_angles,
)

__all__ = ["ResidualSSM", "make_residual_ssm"]


class ResidualSSM(DataModel):
    """Windows of a noisy stationary series and its next value.

    ``x_k = u_k + xi_k`` for k = 1 … n_steps and ``y = u_{d+1} + xi_{d+1}``: u is a linear read-out
    of a hidden Gaussian state, of unit variance and lag-one correlation `gamma`, and xi is
    independent noise.

    Parameters
    ----------
    n_steps : int, default=16
        Window length d, the number of features.
    n_states : int, default=None
        Dimension N of the hidden state; ``None`` means `n_steps`.
    gamma : float, default=0.8
        Correlation of consecutive values. It must lie inside an interval that depends on
        `n_states` and `unit_root` and is (-1, 1) when both eigenvalues 1 and -1 are there, so for
        `unit_root` and an even `n_states`.
    noise : float, default=0.05
        Standard deviation of the noise, on the inputs and on the target.
    unit_root : bool, default=True
        Whether the state has a component that never changes (eigenvalue 1). With
        ``n_states == n_steps`` it makes the centred residual linear predictor exact without noise.
    system_state : int or RandomState, default=0
        Seed of the system's matrices: same value, same system. A sample's own ``random_state``
        draws states and noise.

    Attributes
    ----------
    shifts : tuple of str
        ``("sign_inconsistent",)``: windows whose last and next noise-free values differ in sign,
        ``u_d u_{d+1} < 0``; the noise stays independent.

    See Also
    --------
    make_residual_ssm : The same as a function.
    skcurse.theory.residual_ssm : The mathematics.

    References
    ----------
    Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Definitions 4.1, 6.1, C.3.

    Examples
    --------
    >>> from skcurse.datasets import ResidualSSM
    >>> model = ResidualSSM(n_steps=8, gamma=0.8)
    >>> X, y = model.sample(100, shift="sign_inconsistent", random_state=0)
    >>> X.shape, y.shape
    ((100, 8), (100,))
    """

    shifts: ClassVar[tuple[str, ...]] = ("sign_inconsistent",)

    def __init__(
        self,
        n_steps: int = 16,
        n_states: int | None = None,
        gamma: float = 0.8,
        noise: float = 0.05,
        unit_root: bool = True,
        system_state: Any = 0,
    ) -> None:
        self.n_steps = n_steps
        self.n_states = n_states
        self.gamma = gamma
        self.noise = noise
        self.unit_root = unit_root
        self.system_state = system_state

    def system(self) -> ResidualSystem:
        """Matrices of the model.

        Returns
        -------
        system : ResidualSystem
            Named tuple of M, C, P, gamma, angles and noise_gain.

        Raises
        ------
        ValueError
            If a parameter is out of range. For `gamma` the message names the interval.
        """
        self._check_parameters()
        n_states = self.n_steps if self.n_states is None else self.n_states
        rng = check_random_state(self.system_state)
        angles = spread_angles(n_states, rng, unit_root=self.unit_root)
        return build_system(angles, self.gamma, self.n_steps, rng)

    def _check_parameters(self) -> None:
        """Raise for a parameter of the wrong kind; `build_system` checks gamma's interval."""
        n_states = self.n_steps if self.n_states is None else self.n_states
        for name, value in (("n_steps", self.n_steps), ("n_states", n_states)):
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        if not isinstance(self.noise, Real) or not 0.0 <= float(self.noise) < np.inf:
            raise ValueError(f"noise must be a finite number of at least 0, got {self.noise!r}.")
        if not isinstance(self.gamma, Real) or isinstance(self.gamma, bool):
            raise ValueError(f"gamma must be a number between -1 and 1, got {self.gamma!r}.")
        if not isinstance(self.unit_root, bool | np.bool_):
            raise ValueError(f"unit_root must be True or False, got {self.unit_root!r}.")

    def _sample(
        self, n_samples: int, shift: str | None, rng: np.random.RandomState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        system = self.system()
        states = sample_states(system, n_samples, rng, sign_inconsistent=shift is not None)
        series = states @ system.P.T
        series += self.noise * rng.normal(size=series.shape)
        return series[:, :-1], series[:, -1]

    def linear_risk(
        self, coef: ArrayLike, intercept: float = 0.0, *, shift: str | None = None
    ) -> float:
        """Exact risk of a linear predictor, noise included.

        Parameters
        ----------
        coef : array-like of shape (n_steps,)
            Coefficients of the window's columns, for instance a fitted ``coef_``.
        intercept : float, default=0.0
            Constant added to the prediction.
        shift : str, default=None
            One of `shifts`, or ``None`` for the training law.

        Returns
        -------
        risk : float
            ``E[(y - x @ coef - intercept)^2]``: what the mean squared error on a sample
            estimates, so the noise of the inputs and of the target is in it.
        """
        if shift is not None and shift not in self.shifts:
            raise ValueError(f"shift must be None or one of {self.shifts}, got {shift!r}.")
        return float(intercept) ** 2 + linear_risk(
            self.system(), coef, noise=self.noise, sign_inconsistent=shift is not None
        )

    def zero_risk(self, shift: str | None = None) -> float:
        """Exact risk of predicting zero, the target's noise included.

        Parameters
        ----------
        shift : str, default=None
            One of `shifts`, or ``None`` for the training law.

        Returns
        -------
        risk : float
            ``E[y^2]``: under the training law ``1 + noise ** 2``.
        """
        self._check_parameters()
        return self.linear_risk(np.zeros(self.n_steps), shift=shift)

    def persistence_risk(self, shift: str | None = None) -> float:
        """Exact risk of predicting the last value, both noises included.

        Parameters
        ----------
        shift : str, default=None
            One of `shifts`, or ``None`` for the training law.

        Returns
        -------
        risk : float
            ``E[(y - x_d)^2]``: under the training law ``2 - 2 gamma + 2 noise ** 2``.
        """
        self._check_parameters()
        return self.linear_risk(np.eye(self.n_steps)[-1], shift=shift)

    def best_residual_risk(self, shift: str | None = None, *, centered: bool = True) -> float:
        """Risk of the residual linear predictor that infinitely many training rows would give.

        Parameters
        ----------
        shift : str, default=None
            The law on which the risk is measured: one of `shifts`, or ``None`` for the training
            law. The predictor is always the one of least risk under the training law.
        centered : bool, default=True
            True for weights on ``x_{1:d-1} - x_d``, False for weights on ``x_{1:d-1}``.

        Returns
        -------
        risk : float
            ``E[(y - f(x))^2]``, the noise of the inputs and of the target included.

        Examples
        --------
        >>> from skcurse.datasets import ResidualSSM
        >>> model = ResidualSSM(gamma=0.8, noise=0.05)
        >>> risk = model.best_residual_risk("sign_inconsistent")
        >>> risk < model.zero_risk("sign_inconsistent") / 5
        True
        """
        weights = best_residual_weights(self.system(), self.noise, centered)
        coef = residual_coefficients(weights, centered=centered)
        return self.linear_risk(coef, shift=shift)

    def reference_risks(self, shift: str | None = None) -> dict[str, float]:
        """Risks of three predictors, for `skcurse.compare`.

        Parameters
        ----------
        shift : str, default=None
            One of `shifts`, or ``None`` for the training law.

        Returns
        -------
        dict of str to float
            `zero_risk`, `persistence_risk` and `best_residual_risk`, by names in words.
        """
        return {
            "predict zero": self.zero_risk(shift),
            "persistence": self.persistence_risk(shift),
            "best residual linear": self.best_residual_risk(shift),
        }


def make_residual_ssm(
    n_samples: int = 100,
    n_steps: int = 16,
    *,
    shift: str | None = None,
    n_states: int | None = None,
    gamma: float = 0.8,
    noise: float = 0.05,
    unit_root: bool = True,
    system_state: Any = 0,
    random_state: Any = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Generate windows of the residual state space model and their next values.

    Parameters
    ----------
    n_samples : int, default=100
        Number of windows.
    n_steps : int, default=16
        Window length.
    shift : {None, "sign_inconsistent"}, default=None
        None for the training law; "sign_inconsistent" for windows whose last and next noise-free
        values differ in sign.
    n_states, gamma, noise, unit_root, system_state
        The system, see `ResidualSSM`.
    random_state : int, RandomState instance or None, default=None
        Seed of the states and of the noise. The system depends on `system_state` alone, so that
        training and test samples can share it.

    Returns
    -------
    X : ndarray of shape (n_samples, n_steps)
        Windows, the newest value in the last column.
    y : ndarray of shape (n_samples,)
        Next values.

    See Also
    --------
    ResidualSSM : The same as an object, with its exact risks.

    References
    ----------
    Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061, Definitions 6.1 and C.3.

    Examples
    --------
    >>> from skcurse.datasets import make_residual_ssm
    >>> X, y = make_residual_ssm(50, n_steps=8, random_state=0)
    >>> X.shape, y.shape
    ((50, 8), (50,))
    """
    model = ResidualSSM(n_steps, n_states, gamma, noise, unit_root, system_state)
    return model.sample(n_samples, shift=shift, random_state=random_state)
