"""Gradient descent on a collocation table, with transported neurons where they are many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.collocation import CollocationTable
from skcurse.theory.compression import CompressedNetwork, compress
from skcurse.theory.descent import Step
from skcurse.theory.tilted_moments import Array, Map
from skcurse.theory.transport import Particles, neurons_as_particles, scatter_neurons

__all__ = ["TableDescent", "accurate_table"]

# What a table may deviate from the direct formula, relative to the size at the start.
_ACCURACY = 1e-9
_PROBES = 64
# Room for the weights to move in before the table has to grow.
_MARGIN = 1.0
# Particles start to part early, when the gradient is large; later a look now and then is enough.
_WATCHFUL_STEPS, _LOOK_EVERY = 32, 4
# A witness this far from where it is interpolated: the neurons are followed one by one.
_LARGEST_ERROR = 1e-9


def accurate_table(
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    signs: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    map: Map = map,
) -> CollocationTable:
    """Tabulate data and compare the gradient with the direct formula.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Windows; the last column is the query.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Weights that the table covers, with a margin.
    signs : array-like of shape (n_neurons,)
        Second layer.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    map : callable, default=map
        Parallel map over blocks of rows.

    Returns
    -------
    table : CollocationTable
        With slopes and outputs within 1e-9 of the direct ones, in root mean square over a sample.

    Raises
    ------
    ValueError
        If no table is that accurate: the direct formula is the way then.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((40, 4))
    >>> accurate_table(X, X[:, 0], [0.5, -0.5], [1.0, 1.0]).interval
    (-1.5, 1.5)
    """
    starts = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    margin = max(_MARGIN, 0.25 * np.ptp(starts))
    interval = (float(starts.min() - margin), float(starts.max() + margin))
    for tol in (1e-13, 1e-14):
        table = CollocationTable(
            X, y, interval=interval, sample_weight=sample_weight, tol=tol, map=map
        )
        if all(_is_accurate(table, w, signs, output) for output, w in enumerate(starts)):
            return table
    raise ValueError(
        "The windows cannot be tabulated to the accuracy of the direct formula: scale X down, or "
        "use solver='direct'."
    )


def _is_accurate(table: CollocationTable, weights: Array, signs: ArrayLike, output: int) -> bool:
    """Whether the network, and a part of it, agree with the direct formula."""
    masses = np.asarray(signs, dtype=np.float64) / np.sqrt(weights.size)
    # A network that starts at zero hides errors of its outputs; a few of its neurons do not.
    part = np.argsort(weights, kind="stable")[:: -(-weights.size // _PROBES)]
    probe = np.where(np.arange(part.size) % 3, 1.0, -1.0) / np.sqrt(part.size)
    errors = (
        table.errors(weights, masses, output),
        table.errors(weights[part], probe, output),
    )
    return all(
        error.slope <= _ACCURACY * error.slope_size
        and error.output <= _ACCURACY * error.residual_size
        for error in errors
    )


class TableDescent:
    """Gradient descent of the attention network, from a table in place of the data.

    Parameters
    ----------
    table : CollocationTable
        Of the training data, on an interval that contains the weights; it is replaced by a wider
        one when they leave it.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Where to start; one network for each column of y.
    signs : array-like of shape (n_neurons,)
        Second layer.
    learning_rate : float
        Step size.
    alpha : float, default=0.0
        Adds α/2 Σ_r (w_r - w_r(0))² to the loss.
    initial_weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons), default=None
        w(0) of the penalty; default `weights`.

    Attributes
    ----------
    table : CollocationTable
        The table in use.

    Raises
    ------
    ValueError
        While stepping, if the weights run so far that no table covers them.

    Examples
    --------
    >>> from skcurse.theory.descent import follow
    >>> rng = np.random.default_rng(0)
    >>> X, w = rng.standard_normal((300, 8)), rng.standard_normal(5000)
    >>> a = np.where(np.arange(w.size) % 2, 1.0, -1.0)
    >>> table = CollocationTable(X, X[:, 0], interval=(-6.0, 6.0))
    >>> descent = TableDescent(table, w, a, learning_rate=0.01)
    >>> run = follow(
    ...     descent.steps(), learning_rate=0.01, largest_stable_rate=lambda: 0.1, max_iter=50
    ... )
    >>> run.weights.shape, bool(run.losses[-1] < run.losses[0])
    ((5000,), True)
    """

    def __init__(
        self,
        table: CollocationTable,
        weights: ArrayLike,
        signs: ArrayLike,
        *,
        learning_rate: float,
        alpha: float = 0.0,
        initial_weights: ArrayLike | None = None,
    ) -> None:
        self.table = table
        self._shape = np.shape(weights)
        self._learning_rate = learning_rate
        self._alpha = alpha
        starts = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        origin = starts if initial_weights is None else np.asarray(initial_weights)
        self._origins = np.broadcast_to(origin, starts.shape)
        # Particles share the penalty of the neurons they stand for only if they start from w(0).
        may_scatter = alpha == 0 or np.array_equal(starts, self._origins)
        signs = np.asarray(signs, dtype=np.float64)
        self._particles = [self._particles_for(start, signs, may_scatter) for start in starts]
        self._positions = [particles.starts for particles in self._particles]

    def steps(self) -> Iterator[Step]:
        """Yield the run without end, the start first."""
        n_iter = 0
        while True:
            losses, gradients = zip(
                *map(self._loss_gradient, range(len(self._positions))), strict=True
            )
            gradient = gradients[0] if len(gradients) == 1 else np.concatenate(gradients)
            yield Step(n_iter, float(sum(losses)), gradient, self.weights)
            # A step that overflows is caught by its loss.
            with np.errstate(over="ignore", invalid="ignore"):
                for output, direction in enumerate(gradients):
                    self._positions[output] = (
                        self._positions[output] - self._learning_rate * direction
                    )
            n_iter += 1
            if n_iter <= _WATCHFUL_STEPS or n_iter % _LOOK_EVERY == 0:
                for output in range(len(self._positions)):
                    self._refine(output, n_iter)

    def weights(self) -> Array:
        """Weights of all neurons now, in the shape of the first."""
        pairs = zip(self._particles, self._positions, strict=True)
        return np.concatenate([p.carry(at) for p, at in pairs]).reshape(self._shape)

    def network(self) -> CompressedNetwork:
        """Compress the network as it is now to the skeleton of the table."""
        pairs = zip(self._positions, self._particles, strict=True)
        return compress(self.table.skeleton, [(at, p.masses) for at, p in pairs])

    @property
    def transport_error(self) -> float:
        """Largest error of an interpolated weight among the neurons that are also followed."""
        return max(p.error(at) for p, at in zip(self._particles, self._positions, strict=True))

    def _particles_for(self, weights: Array, signs: Array, may_scatter: bool) -> Particles:
        if may_scatter:
            scattered = scatter_neurons(weights, signs, self.table.skeleton.panels)
            if scattered.starts.size < weights.size:
                return scattered
        return neurons_as_particles(weights, signs)

    def _loss_gradient(self, output: int) -> tuple[float, Array]:
        """Loss of one output's network, and the gradient that its particles follow."""
        particles, positions = self._particles[output], self._positions[output]
        if not np.isfinite(positions).all():
            return np.inf, positions
        self.table = self.table.covering(positions)
        loss, slope = self.table.loss_slope(positions, particles.masses, output)
        gradient = particles.directions * slope
        if self._alpha > 0:
            moved = positions - (particles.starts if particles.panels else self._origins[output])
            with np.errstate(over="ignore"):
                loss += 0.5 * self._alpha * float(particles.counts @ moved**2)
                gradient += self._alpha * moved
        return loss, gradient

    def _refine(self, output: int, n_iter: int) -> None:
        """Keep the displacement of one output's neurons resolved, or follow them one by one."""
        particles, positions = self._particles[output], self._positions[output]
        if not (particles.panels and np.isfinite(positions).all()):
            return
        if particles.error(positions) > _LARGEST_ERROR:
            refined, moved = neurons_as_particles(particles.weights, particles.signs), None
        else:
            refined, moved = particles.refined(positions)
        self._particles[output] = refined
        self._positions[output] = refined.starts if moved is None else moved
        if not refined.panels:
            # Their common path is lost: from the start again, this output alone.
            self._positions[output] = refined.starts
            for _ in range(n_iter):
                _, gradient = self._loss_gradient(output)
                self._positions[output] = self._positions[output] - self._learning_rate * gradient
