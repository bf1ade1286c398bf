"""Gradient descent on a collocation table, with transported neurons where they are many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from skcurse.theory.collocation import CollocationTable
from skcurse.theory.compression import CompressedNetwork, compress
from skcurse.theory.descent import Step, descent_steps
from skcurse.theory.tilted_moments import Array, Map
from skcurse.theory.transport import Particles, neurons_as_particles, scatter_neurons

__all__ = ["TableDescent", "accurate_table", "collocation_pays"]

# What a table may deviate from the direct formula, relative to the size at the start.
_ACCURACY = 1e-9
_PROBES = 64
# Room for the weights to move in before the table has to grow.
_MARGIN = 1.0
# Particles start to part early, when the gradient is large; later a look now and then is enough.
_WATCHFUL_STEPS, _LOOK_EVERY = 32, 8
# A witness this far from where it is interpolated: the neurons are followed one by one.
_LARGEST_ERROR = 1e-9


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
    about 1,500 for each entry of its few hundred sampled rows and 300 for each entry of X, and a
    step the time of some 30,000, plus 40 for each of at most 1,500 particles.

    Examples
    --------
    >>> collocation_pays(20, 100, 8, 100), collocation_pays(500, 1000, 16, 100)
    (False, True)
    """
    direct = float(n_samples) * n_neurons * n_features * n_steps
    table = n_features * (1.5e3 * min(n_samples, 300) + 3e2 * n_samples) + 5e6
    steps = n_steps * (3e4 + 40.0 * min(n_neurons, 1500))
    return direct > table + steps


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
        error.slope <= _ACCURACY * error.slope_size < np.inf
        and error.output <= _ACCURACY * error.residual_size < np.inf
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
        self.table = table
        self._shape = np.shape(weights)
        self._alpha = alpha
        starts = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        origin = starts if initial_weights is None else np.asarray(initial_weights)
        self._origins = np.broadcast_to(origin, starts.shape)
        # Particles share the penalty of the neurons they stand for only if they start from w(0).
        may_scatter = alpha == 0 or np.array_equal(starts, self._origins)
        signs = np.asarray(signs, dtype=np.float64)
        self._particles = [self._particles_for(start, signs, may_scatter) for start in starts]
        self._positions = [particles.starts for particles in self._particles]
        self._rates: list[float] = []

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
                    if self._refined(n_iter):
                        break
                limit = max(limit, step.loss)
                yield Step(n_iter, step.loss, step.gradient, self.weights, rate)
                n_iter += 1

    def weights(self) -> Array:
        """Weights of all neurons now, in the shape of the first."""
        pairs = zip(self._particles, self._positions, strict=True)
        return np.concatenate([p.carry(at) for p, at in pairs]).reshape(self._shape)

    def network(self) -> CompressedNetwork:
        """Compress the network as it is now to the skeleton of the table."""
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
        particles = self._particles[output]
        self.table = self.table.covering(positions)
        loss, slope = self.table.loss_slope(positions, particles.masses, output)
        gradient = particles.directions * slope
        if self._alpha > 0:
            moved = positions - (particles.starts if particles.panels else self._origins[output])
            with np.errstate(over="ignore"):
                loss += 0.5 * self._alpha * float(particles.counts @ moved**2)
                gradient += self._alpha * moved
        return loss, gradient

    def _refined(self, n_iter: int) -> bool:
        """Keep displacements resolved, or follow the neurons; whether particles are new."""
        if n_iter > _WATCHFUL_STEPS and n_iter % _LOOK_EVERY:
            return False
        changed = False
        for output, (particles, at) in enumerate(
            zip(self._particles, self._positions, strict=True)
        ):
            if not (particles.panels and np.isfinite(at).all()):
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
