"""Autoregressive series with heavy tails and regime switches, as a data model for skcurse."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skcurse import DataModel, hookimpl


class HeavyTailedAR(DataModel):
    """Windows of an autoregressive series with Student-t innovations, and its next value.

    Parameters
    ----------
    n_steps : int, default=16
        Window length.
    gamma : float, default=0.8
        Correlation of consecutive values, in (-1, 1).
    degrees_of_freedom : float, default=3.0
        Tail index of the innovations, more than 2: the smaller, the heavier; ``np.inf`` is
        Gaussian.

    Attributes
    ----------
    shifts : tuple of str
        "regime_switch": just before the target the coefficient changes its sign.

    Notes
    -----
    ``u_{k+1} = gamma u_k + sqrt(1 - gamma^2) e_k`` with e of unit variance, hence u too. The best
    predictor is ``gamma x_d``, linear whatever the tails; its risk is ``1 - gamma^2``, and under
    the switch ``1 + 3 gamma^2``.

    Examples
    --------
    >>> from skcurse_heavy_tails import HeavyTailedAR
    >>> X, y = HeavyTailedAR(n_steps=8).sample(100, shift="regime_switch", random_state=0)
    >>> X.shape, y.shape
    ((100, 8), (100,))
    """

    shifts: ClassVar[tuple[str, ...]] = ("regime_switch",)

    def __init__(
        self, n_steps: int = 16, gamma: float = 0.8, degrees_of_freedom: float = 3.0
    ) -> None:
        self.n_steps = n_steps
        self.gamma = gamma
        self.degrees_of_freedom = degrees_of_freedom

    def _sample(
        self, n_samples: int, shift: str | None, rng: np.random.RandomState
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.n_steps < 1 or not -1 < self.gamma < 1 or not self.degrees_of_freedom > 2:
            raise ValueError(
                f"{self!r} needs n_steps >= 1, gamma in (-1, 1) and degrees_of_freedom > 2."
            )
        nu = self.degrees_of_freedom
        scale = np.sqrt(1 - self.gamma**2) * (np.sqrt((nu - 2) / nu) if np.isfinite(nu) else 1.0)
        # The start is forgotten to 1e-12, so that the first value in the window is stationary.
        burn_in = int(np.log(1e-12) / np.log(max(abs(self.gamma), 0.1)))
        u, series = np.zeros(n_samples), np.empty((n_samples, self.n_steps + 1))
        for k in range(-burn_in, self.n_steps + 1):
            e = rng.standard_t(nu, n_samples) if np.isfinite(nu) else rng.normal(size=n_samples)
            u = self.gamma * u + scale * e
            if k >= 0:
                series[:, k] = u
        X, y = series[:, :-1].copy(), series[:, -1].copy()
        if shift is not None:
            y -= 2 * self.gamma * X[:, -1]
        return X, y

    def reference_risks(self, shift: str | None = None) -> dict[str, float]:
        """Exact risk of the predictor that is best under the training law."""
        return {"best": 1 - self.gamma**2 if shift is None else 1 + 3 * self.gamma**2}


@hookimpl
def skcurse_data_models() -> dict[str, type[HeavyTailedAR]]:
    """Offer the model by name."""
    return {"heavy_tailed_ar": HeavyTailedAR}
