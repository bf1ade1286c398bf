"""Exact training runs, shared by the checks of the in-context learner."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skcurse.ledger._finding import largest, smallest
from skcurse.theory import icl_phases, icl_population

Array = NDArray[np.float64]
SIZES = (20, 80, 320, 1280)
EPSILON = 0.01
_MOST_STEPS = 20_000  # four times what the largest K takes


class Run(NamedTuple):
    """One query feature on its way: own logit A, dominant B1, another Bn, and their rates."""

    K: int
    eta: float
    A: Array
    B1: Array
    Bn: Array
    alpha: Array
    beta1: Array
    beta: Array
    attention: Array  # (T, 3): mean attention to the own, the dominant and another feature
    loss: Array
    phases: icl_phases.Phases

    def during(self, phase: int) -> NDArray[np.bool_]:
        """Mark the steps of a phase."""
        return self.phases.labels == phase

    def gap(self) -> Array:
        """Return A less the largest B."""
        return self.A - np.maximum(self.B1, self.Bn)

    def up_to(self, gap: float) -> "Run":
        """Cut the run after the first step with such a gap."""
        stop = int(np.argmax(self.gap() >= gap)) + 1
        cut = {name: getattr(self, name)[:stop] for name in _PATHS}
        return self._replace(**cut, phases=self.phases._replace(labels=self.phases.labels[:stop]))


_PATHS = ("A", "B1", "Bn", "alpha", "beta1", "beta", "attention", "loss")


def probabilities(kind: str, K: int) -> Array:
    """Equal probabilities, or a dominant feature 0 of probability 1/2."""
    if kind == "balanced":
        return np.full(K, 1 / K)
    return np.append(0.5, np.full(K - 1, 0.5 / (K - 1)))


@lru_cache(maxsize=64)
def trained(kind: str, K: int, n_context: int | None = None, eta: float | None = None) -> Run:
    """Run until the loss is within EPSILON / 8 of its infimum; N = K^3 and eta = K by default.

    `kind` is "balanced", "under-represented" or "dominant". Rates carry the factor 1/K but for the
    dominant feature (eta = 1), so that a logit moves by less than 0.1 a step.
    """
    N = K**3 if n_context is None else n_context
    query, other = (0, 1) if kind == "dominant" else (1, 2)
    run = icl_population.population_descent(
        probabilities(kind, K),
        N,
        learning_rate=(1.0 if kind == "dominant" else float(K)) if eta is None else eta,
        n_iter=_MOST_STEPS,
        queries=[query],
        record=1,
        epsilon=[EPSILON / 8],
    )
    columns = [query, other if kind == "dominant" else 0, other]
    own, lead, rest = (run.logits[:, 0, c] for c in columns)
    alpha, beta1, beta = (run.rates[:, 0, c] for c in columns)
    phases = icl_phases.training_phases(run, query)
    attention = run.attention[:, 0, columns]
    losses, eta = run.losses[:, 0], run.learning_rate
    return Run(K, eta, own, lead, rest, alpha, beta1, beta, attention, losses, phases)


def over(numerator: Array, denominator: Array) -> Array:
    """Quotient, 0 where the denominator is: the start, where all logits are 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)


def converged(K: int, *, dominant: bool = False) -> float:
    """Gap of the logits that ends the last phase."""
    return float(np.log((1 if dominant else K) / np.sqrt(EPSILON)))


def no_growth(values: Sequence[float]) -> bool:
    """Whether the constants of an upper bound stay bounded as K grows."""
    return bool(values[-1] <= 1.25 * largest(values[:-1]))


def no_decline(values: Sequence[float]) -> bool:
    """Whether the constants of a lower bound stay away from 0 as K grows."""
    return bool(values[-1] >= smallest(values[:-1]) / 1.25 > 0)
