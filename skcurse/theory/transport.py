"""Transport: a few hundred particles in place of any number of neurons.

Under gradient descent all neurons with the same sign and the same start follow one trajectory,
w_r(t) = T_t(w_r(0)), and the map T_t is smooth. So the initial neurons are scattered once onto
Chebyshev nodes, the nodes are moved, carrying the masses, and the map through the moved nodes
gives every neuron's weight at the end. A step's cost then depends on the number of nodes alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.collocation import CollocationTable
from skcurse.theory.panels import Panels
from skcurse.theory.tilted_moments import Array

__all__ = ["Particles", "TableObjective", "neurons_as_particles", "scatter_neurons"]

_N_WITNESSES = 64


class Particles(NamedTuple):
    """A measure on w, split over moving particles.

    Attributes
    ----------
    starts : ndarray of shape (n_particles,)
        Weights at the start.
    directions : ndarray of shape (n_particles,)
        a/√m of the neurons a particle stands for: times the slope of the potential, its gradient.
    masses : ndarray of shape (n_particles,)
        The particle's share of the network's output.
    counts : ndarray of shape (n_particles,)
        The number of neurons it stands for; neither integer nor always positive.
    panels : dict of float to Panels
        For scattered neurons: where the particles of a sign start, the sign as key.
    witnesses : ndarray of shape (n_witnesses,)
        Indices of neurons that are followed one by one, as massless particles at the end.
    """

    starts: Array
    directions: Array
    masses: Array
    counts: Array
    panels: dict[float, Panels]
    witnesses: NDArray[np.intp]

    def carry(self, positions: Array, weights: ArrayLike, signs: ArrayLike) -> Array:
        """Move neurons along with the particles.

        Parameters
        ----------
        positions : ndarray of shape (n_particles,)
            Where the particles are.
        weights, signs : array-like of shape (n_neurons,)
            The neurons that were scattered.

        Returns
        -------
        weights : ndarray of shape (n_neurons,)
            T_t(w_r), by interpolation of the displacement.
        """
        if not self.panels:
            return positions
        moved = np.array(weights, dtype=np.float64)
        displacement, first = positions - self.starts, 0
        for sign, panels in self.panels.items():
            chosen = np.flatnonzero(np.asarray(signs) == sign)
            last = first + panels.nodes.size
            coefficients = panels.coefficients(displacement[first:last])
            moved[chosen] += panels.at(moved[chosen], block_bytes=0).evaluate(coefficients)
            first = last
        return moved

    def error(self, positions: Array, weights: ArrayLike, signs: ArrayLike) -> float:
        """Largest distance between a witness and where `carry` puts it."""
        if not self.witnesses.size:
            return 0.0
        weights, signs = (np.asarray(array)[self.witnesses] for array in (weights, signs))
        carried = self.carry(positions, weights, signs)
        return float(np.abs(carried - positions[-carried.size :]).max())

    def refined(self, weights: ArrayLike, signs: ArrayLike) -> Particles:
        """Scatter the same neurons onto panels of half the width."""
        return _scatter(weights, signs, {s: panels.split() for s, panels in self.panels.items()})


def neurons_as_particles(weights: ArrayLike, signs: ArrayLike) -> Particles:
    """Every neuron a particle of its own: no transport."""
    weights, signs = np.asarray(weights, dtype=np.float64), np.asarray(signs, dtype=np.float64)
    masses = signs / np.sqrt(signs.size)
    return Particles(weights, masses, masses, np.ones(masses.size), {}, np.empty(0, dtype=np.intp))


def scatter_neurons(weights: ArrayLike, signs: ArrayLike, panels: Panels) -> Particles:
    """Particles that stand for neurons in every integral the table resolves.

    Parameters
    ----------
    weights : array-like of shape (n_neurons,)
        Neurons' weights, inside the panels.
    signs : array-like of shape (n_neurons,)
        Their signs a_r, 1 or -1.
    panels : Panels
        Panels that resolve the curves of the data.

    Returns
    -------
    particles : Particles
        For each sign the nodes of the panels, cut to the range of its neurons, then a few
        neurons without mass that tell how well the others are interpolated.

    Notes
    -----
    Derived. The masses are those of the interpolatory quadrature for the empirical measure of the
    neurons: Σ_s masses_s f(w_s) = Σ_r a_r f(w_r)/√m for every f the panels resolve. This holds at
    all times for f = G_x ∘ T_t, as long as they resolve T_t.

    Examples
    --------
    >>> w = np.random.default_rng(0).standard_normal(100_000)
    >>> a = np.where(np.arange(w.size) % 2, 1.0, -1.0)
    >>> particles = scatter_neurons(w, a, Panels(np.arange(-6.0, 7.0)))
    >>> exact = np.sum(a * np.sin(w)) / np.sqrt(w.size)
    >>> bool(abs(particles.masses @ np.sin(particles.starts) - exact) < 1e-12)
    True
    """
    weights, signs = np.asarray(weights, dtype=np.float64), np.asarray(signs, dtype=np.float64)
    cut = {}
    for sign in np.unique(signs):
        low, high = np.min(weights[signs == sign]), np.max(weights[signs == sign])
        inner = panels.breaks[(panels.breaks > low) & (panels.breaks < high)]
        high = max(high, np.nextafter(low, np.inf) + 1e-6)
        cut[float(sign)] = Panels([low, *inner, high], panels.order)
    return _scatter(weights, signs, cut)


def _scatter(weights: ArrayLike, signs: ArrayLike, by_sign: dict[float, Panels]) -> Particles:
    """Scatter each sign's neurons onto its own panels, and add the witnesses."""
    weights, signs = np.asarray(weights, dtype=np.float64), np.asarray(signs, dtype=np.float64)
    starts, directions, counts = [], [], []
    for sign, panels in by_sign.items():
        chosen = weights[signs == sign]
        moments = panels.at(chosen, block_bytes=0).moments(np.ones(chosen.size))
        starts.append(panels.nodes)
        counts.append(panels.node_masses(moments))
        directions.append(np.full(panels.nodes.size, sign / np.sqrt(weights.size)))
    ranks = np.linspace(0, weights.size - 1, min(_N_WITNESSES, weights.size)).astype(np.intp)
    witnesses = np.argsort(weights, kind="stable")[ranks]
    starts.append(weights[witnesses])
    counts.append(np.zeros(witnesses.size))
    directions.append(signs[witnesses] / np.sqrt(weights.size))
    count, direction = np.concatenate(counts), np.concatenate(directions)
    masses = direction * count
    return Particles(np.concatenate(starts), direction, masses, count, by_sign, witnesses)


class TableObjective:
    """Loss of particles and the gradient that moves them, from a table that grows with them.

    Parameters
    ----------
    table : CollocationTable
        Replaced by a wider one, as the attribute `table`, when a particle leaves its interval.
    particles : Particles
        What moves.
    output : int, default=0
        Column of the targets.
    alpha : float, default=0.0
        Adds α/2 Σ_r (w_r - w_r(0))² to the loss.
    anchors : ndarray of shape (n_particles,), default=None
        w(0) of the penalty; None is the particles' starts.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, w = rng.standard_normal((300, 8)), np.linspace(-2.0, 2.0, 1000)
    >>> a = np.where(np.arange(1000) % 2, 1.0, -1.0)
    >>> table = CollocationTable(X, X[:, -1], interval=(-2.5, 2.5))
    >>> neurons = TableObjective(table, neurons_as_particles(w, a))
    >>> particles = scatter_neurons(w, a, table.skeleton.panels)
    >>> loss, _ = TableObjective(table, particles)(particles.starts)
    >>> bool(np.isclose(loss, neurons(w)[0], rtol=1e-12))
    True
    """

    def __init__(
        self,
        table: CollocationTable,
        particles: Particles,
        *,
        output: int = 0,
        alpha: float = 0.0,
        anchors: Array | None = None,
    ) -> None:
        self.table = table
        self.particles = particles
        self.output = output
        self.alpha = alpha
        self.anchors = particles.starts if anchors is None else anchors

    def __call__(self, positions: Array) -> tuple[float, Array]:
        """Loss and the gradient that every particle follows."""
        if not np.isfinite(positions).all():
            return np.inf, positions
        self.table = self.table.covering(positions)
        loss, slope = self.table.loss_slope(positions, self.particles.masses, self.output)
        gradient = self.particles.directions * slope
        if self.alpha > 0:
            moved = positions - self.anchors
            loss += 0.5 * self.alpha * float(self.particles.counts @ moved**2)
            gradient += self.alpha * moved
        return loss, gradient
