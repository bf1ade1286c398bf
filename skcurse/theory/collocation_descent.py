"""Gradient descent on a collocation table, with transported neurons where they are many.

The table is held to the accuracy of the direct formula all along: it is compared with it when it
is made, when it has grown after the weights, and now and then on the way. Where there is no such
table the run goes on by the direct formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.attention_network import forward, loss_gradient
from skcurse.theory.collocation import CollocationTable, TableErrors
from skcurse.theory.compression import CompressedNetwork, compress
from skcurse.theory.descent import ROUNDING, Step, descent_steps
from skcurse.theory.table_audit import (
    Check,
    accurate_cover,
    accurate_table,
    probes,
)
from skcurse.theory.tilted_moments import Array
from skcurse.theory.transport import Particles, neurons_as_particles, scatter_neurons

__all__ = ["TableDescent", "accurate_table", "collocation_pays"]

# Particles start to part early, when the gradient is large; later a look now and then is enough.
_WATCHFUL_STEPS, _LOOK_EVERY = 32, 8
# A witness this far from where it is interpolated: the neurons are followed one by one.
_LARGEST_ERROR = 1e-9
# The steps so far cost this many times what it costs to compare the table with the formula.
_STEPS_PER_AUDIT = 16
# Weights that leap out of the table by so many of its widths have most likely run away. No table
# is made for them where nothing is gained by one: their loss has grown tenfold, which ends a run,
# or by so much that the step is shortened; or softmax is one-hot there, so that they rest.
_LEAP, _GROWTH = 1000.0, 10.0


def collocation_pays(n_samples: int, n_neurons: int, n_features: int, n_steps: int) -> bool:
    """Whether a table is predicted to save time over the direct formula.

    Parameters
    ----------
    n_samples, n_neurons, n_features, n_steps : int
        Sizes n, m, d of the problem, and the number of steps.

    Returns
    -------
    pays : bool

    Notes
    -----
    Both are counted in exponentials. The direct formula takes n m d of them a step. A table takes
    about 500 for each entry of its few hundred sampled rows, 200 for each entry of X and a million
    in any case, and a step the time of some 20,000, plus 20 for each of at most 1,500 particles.

    Examples
    --------
    >>> collocation_pays(20, 100, 8, 100), collocation_pays(500, 1000, 16, 100)
    (False, True)
    """
    direct = float(n_samples) * n_neurons * n_features * n_steps
    table = n_features * (5e2 * min(n_samples, 250) + 2e2 * n_samples) + 1e6
    return direct > table + n_steps * _step_cost(min(n_neurons, 1500))


def _step_cost(n_particles: int) -> float:
    """Time of a step on a table, in exponentials."""
    return 2e4 + 20.0 * n_particles


class TableDescent:
    """Gradient descent of the attention network, from a table in place of the data.

    Parameters
    ----------
    table : CollocationTable
        Of the training data, on an interval that contains the weights; it is replaced by a wider
        one when they leave it, and by a finer one should it turn out not to be accurate.
    weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons)
        Where to start; one network for each column of y.
    signs : array-like of shape (n_neurons,)
        Second layer.
    alpha : float, default=0.0
        Adds α/2 Σ_r (w_r - w_r(0))² to the loss.
    initial_weights : array-like of shape (n_neurons,) or (n_outputs, n_neurons), default=None
        w(0) of the penalty; default `weights`.

    Attributes
    ----------
    table : CollocationTable
        The last table in use.
    direct : bool
        Whether the direct formula has taken over, as no accurate table covers the weights.

    Raises
    ------
    ValueError
        If the weights are outside of the table and no accurate one covers them.

    Notes
    -----
    A table that has grown, and now and then the table in use, is compared with the direct formula
    as in `accurate_table`: slopes and outputs may differ by 1e-9 of their size at the start. What
    this costs is a small part of the cost of the steps. Weights that have run away, with a loss
    that ends any run or to where nothing moves any more, are not tabulated.

    Examples
    --------
    >>> from skcurse.theory.descent import follow
    >>> rng = np.random.default_rng(0)
    >>> X, w = rng.standard_normal((300, 8)), rng.standard_normal(5000)
    >>> a = np.where(np.arange(w.size) % 2, 1.0, -1.0)
    >>> table = CollocationTable(X, X[:, 0], interval=(-6.0, 6.0))
    >>> descent = TableDescent(table, w, a)
    >>> run = follow(
    ...     descent.steps(0.01), learning_rate=0.01, largest_stable_rate=lambda: 0.1, max_iter=50
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
        alpha: float = 0.0,
        initial_weights: ArrayLike | None = None,
    ) -> None:
        self.direct = False
        self._shape = np.shape(weights)
        self._alpha = alpha
        starts = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        origin = starts if initial_weights is None else np.asarray(initial_weights)
        self._origins = np.broadcast_to(origin, starts.shape)
        signs = np.asarray(signs, dtype=np.float64)
        self.table = table
        if not table.skeleton.panels.covers(starts):
            masses = signs / np.sqrt(signs.size)
            checks = [Check(start, masses, output) for output, start in enumerate(starts)]
            self.table = accurate_cover(table, [*checks, *probes(checks)])
        # Particles share the penalty of the neurons they stand for only if they start from w(0).
        may_scatter = alpha == 0 or np.array_equal(starts, self._origins)
        self._particles = [self._particles_for(start, signs, may_scatter) for start in starts]
        self._positions = [particles.starts for particles in self._particles]
        self._rates: list[float] = []
        self._last_audit = 0
        self._lost, self._leap = np.inf, _LEAP
        self._resting: dict[int, tuple[Array, float, Array]] = {}

    def steps(
        self, learning_rate: float, *, shorten: bool = False, noise: float = 0.0
    ) -> Iterator[Step]:
        """Yield the run without end, the start first; to be called once.

        Parameters
        ----------
        learning_rate : float
            Step size.
        shorten, noise
            See `skcurse.theory.descent.descent_steps`.

        Yields
        ------
        Step
            Its gradient is that of the particles, its weights are those of the neurons.
        """
        n_iter, rate, limit = 0, learning_rate, noise
        while True:
            run = descent_steps(
                self._loss_gradient,
                np.concatenate(self._positions),
                rate,
                shorten=shorten,
                noise=limit,
            )
            for step in run:
                rate = step.learning_rate
                self._positions = self._by_output(step.weights)
                if n_iter == len(self._rates) + 1:
                    self._rates.append(rate)
                    if self._renewed(n_iter, step.loss):
                        break
                if n_iter == 0:
                    limit = max(noise, (1.0 + ROUNDING) * step.loss)
                    self._lost = limit if shorten else _GROWTH * limit
                yield Step(n_iter, step.loss, step.gradient, self.weights, rate)
                n_iter += 1

    def weights(self) -> Array:
        """Weights of all neurons now, in the shape of the first."""
        pairs = zip(self._particles, self._positions, strict=True)
        return np.concatenate([p.carry(at) for p, at in pairs]).reshape(self._shape)

    def network(self) -> CompressedNetwork | None:
        """Compress the network as it is now to the skeleton of the table; None if it is outside."""
        if self.direct or not self._is_covered():
            return None
        pairs = zip(self._positions, self._particles, strict=True)
        network = compress(self.table.skeleton, [(at, p.masses) for at, p in pairs])
        masses = network.masses.reshape(-1, *self._shape[:-1])
        return network._replace(masses=masses, totals=network.totals.reshape(self._shape[:-1]))

    @property
    def n_particles(self) -> int:
        """How many particles a step moves."""
        return sum(at.size for at in self._positions)

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

    def _by_output(self, positions: Array) -> list[Array]:
        """Positions of the particles of every output, from all in a row."""
        if len(self._particles) == 1:
            return [positions]
        return np.split(positions, np.cumsum([p.starts.size for p in self._particles])[:-1])

    def _loss_gradient(self, positions: Array) -> tuple[float, Array]:
        """Loss and gradient, summed and joined over outputs."""
        parts = [self._one(output, at) for output, at in enumerate(self._by_output(positions))]
        if len(parts) == 1:
            return parts[0]
        return sum(loss for loss, _ in parts), np.concatenate([gradient for _, gradient in parts])

    def _one(self, output: int, positions: Array) -> tuple[float, Array]:
        """Loss of one output's network, and the gradient that its particles follow."""
        if not np.isfinite(positions).all():
            return np.inf, positions
        ridge, pull = self._ridge(output, positions)
        loss, gradient = self._data_part(output, positions, self._lost - ridge)
        with np.errstate(over="ignore", invalid="ignore"):
            return loss + ridge, gradient + pull

    def _ridge(self, output: int, positions: Array) -> tuple[float, Array | float]:
        """Penalty of one output's network, and its gradient."""
        if self._alpha == 0:
            return 0.0, 0.0
        particles = self._particles[output]
        moved = positions - (particles.starts if particles.panels else self._origins[output])
        with np.errstate(over="ignore", invalid="ignore"):
            penalty = 0.5 * self._alpha * float(particles.counts @ moved**2)
            # Counts that are not positive make NaN of what overflows.
            return penalty if np.isfinite(penalty) else np.inf, self._alpha * moved

    def _data_part(self, output: int, at: Array, lost: float) -> tuple[float, Array]:
        """Loss and gradient without the penalty; what is above `lost` is not worth a table."""
        if not (self.direct or self.table.skeleton.panels.covers(at)):
            low, high = self.table.interval
            if max(low - at.min(), at.max() - high) > self._leap * (high - low):
                loss, gradient = self._far_away(output, at)
                if not (loss <= lost and gradient.any()):
                    return loss, gradient
            # The other networks are where the last step has left them.
            others = [at if k == output else z for k, z in enumerate(self._positions)]
            if not self._audit(others):
                loss, gradient = self._far_away(output, at)
                # A step that is not taken leaves the table as it is; the next look is at the loss.
                self.direct, self._leap = loss <= lost, 0.0
                return loss, gradient
        if self.direct:
            return self._by_formula(output, at)
        particles = self._particles[output]
        loss, slope = self.table.loss_slope(at, particles.masses, output)
        return loss, particles.directions * slope

    def _far_away(self, output: int, at: Array) -> tuple[float, Array]:
        """Loss and gradient from the data; those of weights that rest are kept."""
        resting = self._resting.get(output)
        if resting is None or not np.array_equal(at, resting[0]):
            resting = self._resting[output] = (at, *self._by_formula(output, at))
        return resting[1:]

    def _by_formula(self, output: int, at: Array) -> tuple[float, Array]:
        """Loss and gradient from the data, of neurons or of the particles in their place."""
        table, particles = self.table, self._particles[output]
        target = table.y[:, output]
        # The formula knows neurons whose gradient is their mass times a slope. Those whose masses
        # are the particles' directions have the particles' gradient, if the residual is the same.
        signs = np.sqrt(at.size) * particles.directions
        if particles.panels:
            surplus = signs - np.sqrt(at.size) * particles.masses
            target = target + forward(table.X, at, surplus, map=table.map)
        found = loss_gradient(
            table.X, target, at, signs, sample_weight=table.sample_weight, map=table.map
        )
        return found.loss, found.gradient

    def _audit(self, positions: list[Array]) -> bool:
        """Whether the table, or a wider one where it has to be, agrees with the formula."""
        checks = [
            Check(at, particles.masses, output, self._sizes[output])
            for output, (particles, at) in enumerate(zip(self._particles, positions, strict=True))
        ]
        if not self._is_covered(positions):
            checks += probes(checks)
        try:
            self.table = accurate_cover(self.table, checks)
        except ValueError:
            return False
        return True

    @cached_property
    def _sizes(self) -> list[TableErrors]:
        """What errors are relative to, for every output: slopes and residual at the start."""
        return [
            self.table.errors(particles.starts, particles.masses, output)
            for output, particles in enumerate(self._particles)
        ]

    def _is_covered(self, positions: list[Array] | None = None) -> bool:
        """Whether the table holds all particles."""
        covers = self.table.skeleton.panels.covers
        return all(covers(at) for at in (self._positions if positions is None else positions))

    def _audit_is_due(self, n_iter: int) -> bool:
        """Whether the steps have doubled, and cost far more than an audit does."""
        if n_iter < 2 * self._last_audit:
            return False
        X = self.table.X
        # For every output a look at all rows, and outputs of sixteen rows from all particles: with
        # all that goes with them, four exponentials an entry.
        entries = len(self._particles) * X.size + 16 * X.shape[1] * self.n_particles
        return n_iter * _step_cost(self.n_particles) >= _STEPS_PER_AUDIT * 4.0 * entries

    def _renewed(self, n_iter: int, loss: float) -> bool:
        """Make table and particles fit for the next step; whether this one is to be told anew."""
        if self.direct:
            return loss <= self._lost and self._follows_neurons()
        if self._refined(n_iter):
            return True
        if not (self._audit_is_due(n_iter) and self._is_covered()):
            return False
        table, self._last_audit = self.table, n_iter
        self.direct = not self._audit(self._positions)
        if self.direct:
            self._follows_neurons()
        return self.direct or self.table is not table

    def _follows_neurons(self) -> bool:
        """Follow the neurons one by one; whether that is new."""
        if not any(particles.panels for particles in self._particles):
            return False
        self._refined(0)
        pairs = list(zip(self._particles, self._positions, strict=True))
        self._positions = [particles.carry(at) for particles, at in pairs]
        self._particles = [neurons_as_particles(p.weights, p.signs) for p, _ in pairs]
        return True

    def _refined(self, n_iter: int) -> bool:
        """Keep displacements resolved, or follow the neurons; whether particles are new."""
        if n_iter > _WATCHFUL_STEPS and n_iter % _LOOK_EVERY:
            return False
        changed = False
        for output, (particles, at) in enumerate(
            zip(self._particles, self._positions, strict=True)
        ):
            # What has run away from the table is lost anyway.
            if not (particles.panels and (self.direct or self._is_covered([at]))):
                continue
            if particles.error(at) > _LARGEST_ERROR:
                refined = neurons_as_particles(particles.weights, particles.signs)
            else:
                refined, at = particles.refined(at)
            if refined is particles:
                continue
            changed = True
            self._particles[output] = refined
            self._positions[output] = at if refined.panels else self._replayed(output)
        return changed

    def _replayed(self, output: int) -> Array:
        """Follow the neurons of one output from the start: their common path is lost."""
        at = self._particles[output].starts
        for rate in self._rates:
            at = at - rate * self._one(output, at)[1]
        return at
