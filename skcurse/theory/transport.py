"""Transport: a few hundred particles in place of any number of neurons.

Under gradient descent all neurons with the same sign and the same start follow one trajectory,
w_r(t) = T_t(w_r(0)), and the map T_t is smooth. So the initial neurons are scattered once onto
Chebyshev nodes, the nodes are moved, carrying the masses, and the map through the moved nodes
gives every neuron's weight at the end. A step's cost then depends on the number of nodes alone.
T_t steepens where trajectories part: there the panels are halved as the run goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.theory.panels import Panels
from skcurse.theory.tilted_moments import Array

__all__ = ["Particles", "neurons_as_particles", "scatter_neurons"]

# Displacements are interpolated to this accuracy; beyond the second, interpolating is too late.
_RESOLUTION = 1e-12
_LOST = 1e-9
# Neurons that are followed one by one, to see how well the others are interpolated.
_N_WITNESSES = 64
# On narrower panels trajectories part faster than double precision can tell.
_NARROWEST = 1e-5


@dataclass(frozen=True)
class Particles:
    """A network's neurons as a measure on w that is split over moving particles.

    Attributes
    ----------
    weights, signs : ndarray of shape (n_neurons,)
        The neurons at the start.
    starts : ndarray of shape (n_particles,)
        The particles at the start.
    directions : ndarray of shape (n_particles,)
        a/√m of the neurons a particle stands for: times the slope of the potential, its gradient.
    counts : ndarray of shape (n_particles,)
        The number of neurons it stands for; neither integer nor always positive.
    panels : dict of float to Panels
        For scattered neurons: where the particles of a sign start, the sign as key.
    witnesses : ndarray of shape (n_witnesses,)
        Indices of neurons that are particles without mass, the last ones.
    """

    weights: Array
    signs: Array
    starts: Array
    directions: Array
    counts: Array
    panels: dict[float, Panels]
    witnesses: NDArray[np.intp]

    @property
    def masses(self) -> Array:
        """The particles' shares of the network's output."""
        return self.directions * self.counts

    def carry(self, positions: Array, neurons: NDArray[np.intp] | None = None) -> Array:
        """Weights of all or some neurons when the particles are at `positions`."""
        if not self.panels:
            return positions if neurons is None else positions[neurons]
        moved = self.weights.copy() if neurons is None else self.weights[neurons]
        signs = self.signs if neurons is None else self.signs[neurons]
        for sign, (panels, coefficients) in self._displacements(positions).items():
            chosen = np.flatnonzero(signs == sign)
            moved[chosen] += panels.at(moved[chosen], block_bytes=0).evaluate(coefficients)
        return moved

    def error(self, positions: Array) -> float:
        """Largest distance between a witness and where `carry` puts it."""
        followed = positions[self.starts.size - self.witnesses.size :]
        return float(np.abs(self.carry(positions, self.witnesses) - followed).max(initial=0.0))

    def refined(self, positions: Array) -> tuple[Particles, Array]:
        """Halve the panels on which the displacement is no longer resolved.

        Parameters
        ----------
        positions : ndarray of shape (n_particles,)
            Where the particles are.

        Returns
        -------
        particles : Particles
            These, if all is resolved; else the same neurons scattered onto the new panels. Or the
            neurons themselves, at their starts, where that comes too late, or asks for panels
            narrower than 1e-5 or for half as many particles as neurons.
        positions : ndarray of shape (n_particles,)
            Where the new particles are.
        """
        finer, moved, changed = {}, [], False
        for sign, (panels, coefficients) in self._displacements(positions).items():
            tails = np.abs(coefficients.reshape(panels.n_panels, -1)[:, -2:]).max(axis=1)
            coarse = tails > _RESOLUTION
            finer[sign] = panels
            if coarse.any():
                changed = True
                breaks = np.sort(np.concatenate([panels.breaks, panels.centers[coarse]]))
                finer[sign] = Panels(breaks, panels.order)
                if panels.halves[coarse].min() < _NARROWEST or tails.max() > _LOST:
                    return self._given_up()
            nodes = finer[sign].nodes
            moved.append(nodes + panels.at(nodes).evaluate(coefficients))
        if not changed:
            return self, positions
        if sum(panels.nodes.size for panels in finer.values()) > self.weights.size / 2:
            return self._given_up()
        moved.append(positions[self.starts.size - self.witnesses.size :])
        return _scatter(self.weights, self.signs, finer), np.concatenate(moved)

    def _given_up(self) -> tuple[Particles, Array]:
        return neurons_as_particles(self.weights, self.signs), self.weights

    def _displacements(self, positions: Array) -> dict[float, tuple[Panels, Array]]:
        """Panels of every sign, and the coefficients of the displacement on them."""
        displacement, first, found = positions - self.starts, 0, {}
        for sign, panels in self.panels.items():
            last = first + panels.nodes.size
            found[sign] = panels, panels.coefficients(displacement[first:last])
            first = last
        return found


def neurons_as_particles(weights: ArrayLike, signs: ArrayLike) -> Particles:
    """Every neuron a particle of its own: no transport."""
    weights, signs = np.asarray(weights, dtype=np.float64), np.asarray(signs, dtype=np.float64)
    directions, counts = signs / np.sqrt(signs.size), np.ones(signs.size)
    return Particles(weights, signs, weights, directions, counts, {}, np.empty(0, dtype=np.intp))


def scatter_neurons(weights: ArrayLike, signs: ArrayLike, panels: Panels) -> Particles:
    """Particles that stand for neurons in every integral the panels resolve.

    Parameters
    ----------
    weights : array-like of shape (n_neurons,)
        Neurons' weights, inside the panels.
    signs : array-like of shape (n_neurons,)
        Their signs a_r, 1 or -1.
    panels : Panels
        Panels that resolve the features of the data.

    Returns
    -------
    particles : Particles
        For each sign the nodes of the panels, cut to the range of its neurons, then a few
        neurons without mass that tell how well the others are interpolated.

    Notes
    -----
    Derived. The masses are those of the interpolatory quadrature for the empirical measure of the
    neurons: Σ_s masses_s f(w_s) = Σ_r a_r f(w_r)/√m for every f the panels resolve. This holds at
    all times for f = F_x ∘ T_t, where F_x(w) = ⟨softmax(w x_d x), x⟩, as long as they resolve T_t.

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
        cut[float(sign)] = Panels([low, *inner, max(high, low + 1e-6)], panels.order)
    return _scatter(weights, signs, cut)


def _scatter(weights: Array, signs: Array, by_sign: dict[float, Panels]) -> Particles:
    """Scatter each sign's neurons onto its own panels, and add the witnesses."""
    starts, particle_signs, counts = [], [], []
    for sign, panels in by_sign.items():
        chosen = weights[signs == sign]
        moments = panels.at(chosen, block_bytes=0).moments(np.ones(chosen.size))
        starts.append(panels.nodes)
        counts.append(panels.node_masses(moments))
        particle_signs.append(np.full(panels.nodes.size, sign))
    ranks = np.linspace(0, weights.size - 1, min(_N_WITNESSES, weights.size)).astype(np.intp)
    witnesses = np.argsort(weights, kind="stable")[ranks]
    directions = np.concatenate([*particle_signs, signs[witnesses]]) / np.sqrt(weights.size)
    count = np.concatenate([*counts, np.zeros(witnesses.size)])
    start = np.concatenate([*starts, weights[witnesses]])
    return Particles(weights, signs, start, directions, count, by_sign, witnesses)
