"""Particles against the neurons they stand for."""

import numpy as np
import pytest

from skcurse.theory.panels import Panels
from skcurse.theory.transport import neurons_as_particles, scatter_neurons

PANELS = Panels(np.linspace(-6.0, 6.0, 13))


def neurons(n_neurons=5000, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n_neurons), rng.choice([-1.0, 1.0], n_neurons)


def flow(starts, signs, time=1.0):
    """A smooth map, different for either sign, that neighbours leave at different speeds."""
    return starts + time * (0.3 * signs * np.sin(starts) + 0.1 * np.cos(2.0 * starts))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("f", [np.cos, np.exp, np.ones_like])
def test_masses_and_counts_integrate_like_the_neurons(f, seed):
    weights, signs = neurons(seed=seed)
    particles = scatter_neurons(weights, signs, PANELS)
    exact = signs @ f(weights) / np.sqrt(weights.size)
    scale = np.abs(f(weights)).sum()
    assert particles.masses @ f(particles.starts) == pytest.approx(exact, abs=1e-13 * scale)
    counted = particles.counts @ f(particles.starts)
    assert counted == pytest.approx(f(weights).sum(), rel=1e-12)
    assert particles.starts.min() >= weights.min()
    assert particles.starts.max() <= weights.max()


def test_neurons_are_carried_by_the_flow_of_the_particles():
    weights, signs = neurons()
    particles = scatter_neurons(weights, signs, PANELS)
    at = flow(particles.starts, np.sign(particles.directions))
    np.testing.assert_allclose(particles.carry(at), flow(weights, signs), atol=1e-12)
    some = np.array([3, 77, 4321])
    np.testing.assert_allclose(
        particles.carry(at, some), flow(weights[some], signs[some]), atol=1e-12
    )
    assert particles.error(at) < 1e-12
    exact = signs @ np.cos(flow(weights, signs)) / np.sqrt(weights.size)
    assert particles.masses @ np.cos(at) == pytest.approx(exact, abs=1e-11)


def test_a_witness_that_is_elsewhere_is_noticed():
    weights, signs = neurons()
    particles = scatter_neurons(weights, signs, PANELS)
    at = flow(particles.starts, np.sign(particles.directions))
    at[-7] += 1e-3
    assert particles.error(at) == pytest.approx(1e-3, rel=1e-6)


def test_refinement_keeps_a_steepening_flow_resolved():
    weights, signs = neurons(20_000)
    particles = scatter_neurons(weights, signs, Panels(np.linspace(-6.0, 6.0, 97)))
    first = particles
    steepness = 1.0
    for _ in range(80):
        # The exact flow of w' = tanh(20 w)/20, whose trajectories part at w = 0.
        steepness *= np.exp(0.02)
        position = np.arcsinh(steepness * np.sinh(20.0 * particles.starts)) / 20.0
        particles, refined = particles.refined(position)
        if refined.size != position.size:
            expected = np.arcsinh(steepness * np.sinh(20.0 * particles.starts)) / 20.0
            np.testing.assert_allclose(refined, expected, atol=3e-12)
        position = refined
    assert particles.panels
    assert particles.starts.size > first.starts.size
    exact = np.arcsinh(steepness * np.sinh(20.0 * weights)) / 20.0
    np.testing.assert_allclose(particles.carry(position), exact, atol=1e-11)
    assert particles.counts.sum() == pytest.approx(weights.size, rel=1e-12)


def test_what_is_resolved_is_left_alone():
    weights, signs = neurons()
    particles = scatter_neurons(weights, signs, PANELS)
    at = flow(particles.starts, np.sign(particles.directions), time=0.1)
    same, there = particles.refined(at)
    assert same is particles
    assert there is at


@pytest.mark.parametrize("n_neurons", [900, 50_000])
def test_a_jump_is_too_late_to_refine(n_neurons):
    weights, signs = neurons(n_neurons)
    particles = scatter_neurons(weights, signs, PANELS)
    at = particles.starts + np.where(particles.starts > 0.1234, 1e-6, 0.0)
    particles, at = particles.refined(at)
    np.testing.assert_array_equal(particles.starts, weights)
    np.testing.assert_array_equal(at, weights)


@pytest.mark.parametrize(("n_neurons", "edge"), [(600, 0.01), (50_000, 2e-7)])
def test_too_many_particles_or_too_narrow_panels_hand_over_to_the_neurons(n_neurons, edge):
    weights, signs = neurons(n_neurons)
    particles = scatter_neurons(weights, signs, PANELS)
    for _ in range(60):
        at = particles.starts + 5e-10 * np.tanh((particles.starts - 0.1234) / edge)
        particles, at = particles.refined(at)
        if not particles.panels:
            break
    np.testing.assert_array_equal(particles.starts, weights)
    np.testing.assert_array_equal(at, weights)


def test_neurons_as_particles_are_themselves():
    weights, signs = neurons(7)
    particles = neurons_as_particles(weights, signs)
    np.testing.assert_array_equal(particles.masses, signs / np.sqrt(7))
    np.testing.assert_array_equal(particles.carry(2.0 * weights), 2.0 * weights)
    assert particles.error(2.0 * weights) == 0.0


@pytest.mark.parametrize("weights", [[0.3, 0.3, 0.3], [0.3, 0.3 + 1e-9, 0.3]])
def test_neurons_that_coincide(weights):
    particles = scatter_neurons(weights, [1.0, 1.0, -1.0], PANELS)
    assert particles.masses @ np.exp(particles.starts) == pytest.approx(
        np.exp(0.3) / np.sqrt(3), rel=1e-6
    )
