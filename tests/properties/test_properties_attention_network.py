"""Invariances of the attention network, its moments, its gradient and its kernel."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tables import LENGTHS, SMALL_SCALES, signs, tables, weights

from skcurse.theory.attention_network import forward, loss_gradient
from skcurse.theory.attention_ntk import descent_terms
from skcurse.theory.collocation import CollocationTable
from skcurse.theory.compression import compress, compressed_forward
from skcurse.theory.ntk import neural_tangent_kernel, ntk_singular_values
from skcurse.theory.tilted_moments import last_step_attention, tilted_moments

EPS = np.finfo(float).eps


@st.composite
def networks(draw, max_neurons=5):
    m = draw(st.integers(1, max_neurons))
    return draw(tables()), draw(weights(m)), draw(signs(m))


@st.composite
def problems(draw):
    X, w, a = draw(networks())
    y = draw(tables(n=len(X), d=1))[:, 0]
    return X, y, w, a


def size(X):
    """Largest magnitude in each window."""
    return np.abs(X).max(axis=1)


@given(networks(), st.randoms(use_true_random=False))
def test_order_of_the_past_does_not_matter(network, random):
    X, w, a = network
    order = random.sample(range(X.shape[1] - 1), X.shape[1] - 1)
    shuffled = X[:, [*order, X.shape[1] - 1]]
    scale = size(X)[:, None]
    here, there = tilted_moments(X, w), tilted_moments(shuffled, w)
    assert (np.abs(here.mean - there.mean) <= 1e-14 * scale).all()
    assert (np.abs(here.var - there.var) <= 1e-14 * scale**2).all()
    tolerance = {"rtol": 0, "atol": 1e-13 * scale.max()}
    np.testing.assert_allclose(forward(shuffled, w, a), forward(X, w, a), **tolerance)


@given(networks(), SMALL_SCALES)
def test_windows_times_c_are_weights_times_c_squared(network, c):
    """f(cx; w/c²) = c f(x; w), and bit by bit for a power of two."""
    X, w, a = network
    np.testing.assert_array_equal(forward(c * X, w / c**2, a), c * forward(X, w, a))
    mean, var = tilted_moments(X, w)
    scaled = tilted_moments(c * X, w / c**2)
    np.testing.assert_array_equal(scaled.mean, c * mean)
    np.testing.assert_array_equal(scaled.var, c**2 * var)
    np.testing.assert_array_equal(
        neural_tangent_kernel(c * X, None, w / c**2), c**6 * neural_tangent_kernel(X, None, w)
    )


@given(problems())
def test_signs_change_sides(problem):
    """The network is odd in its signs and in its window, and the loss even in all of them."""
    X, y, w, a = problem
    np.testing.assert_array_equal(forward(X, w, -a), -forward(X, w, a))
    tolerance = {"rtol": 0, "atol": 1e-13 * size(X).max()}
    np.testing.assert_allclose(forward(-X, w, a), -forward(X, w, a), **tolerance)
    here, there = loss_gradient(X, y, w, a), loss_gradient(-X, -y, w, a)
    assert there.loss == pytest.approx(here.loss, rel=1e-12)
    flipped = loss_gradient(X, -y, w, -a)
    assert flipped.loss == here.loss
    np.testing.assert_array_equal(flipped.gradient, here.gradient)


@given(networks())
def test_moments_are_those_of_a_distribution(network):
    X, w, _ = network
    low, high = X.min(axis=1)[:, None], X.max(axis=1)[:, None]
    slack = 8 * EPS * size(X)[:, None]
    mean, var = tilted_moments(X, w)
    assert ((low - slack <= mean) & (mean <= high + slack)).all()
    assert (var >= 0).all()
    assert (var <= (high - low) ** 2 / 4 * (1 + 1e-12)).all()  # Popoviciu
    share = last_step_attention(X, w)
    assert ((share >= 0) & (share <= 1)).all()
    if X.shape[1] == 1:
        np.testing.assert_array_equal(share, 1.0)


@given(networks(), st.integers(2, 4))
def test_entries_seen_twice_count_as_once(network, times):
    """Repeating every entry of the windows changes no average over them."""
    X, w, _ = network
    repeated = np.repeat(X, times, axis=1)
    scale = size(X)[:, None]
    once, often = tilted_moments(X, w), tilted_moments(repeated, w)
    assert (np.abs(once.mean - often.mean) <= 1e-13 * scale).all()
    assert (np.abs(once.var - often.var) <= 1e-13 * scale**2).all()
    share = last_step_attention(X, w)
    np.testing.assert_allclose(times * last_step_attention(repeated, w), share, rtol=1e-12)


@given(problems(), st.integers(1, 10**6))
def test_blocks_of_any_size(problem, block_bytes):
    X, y, w, a = problem
    whole, blocks = loss_gradient(X, y, w, a), loss_gradient(X, y, w, a, block_bytes=block_bytes)
    assert blocks.loss == pytest.approx(whole.loss, rel=1e-13)
    scale = np.abs(X).max() ** 3 * (np.abs(X).max() + np.abs(y).max())
    np.testing.assert_allclose(blocks.gradient, whole.gradient, atol=1e-12 * scale * len(X))
    np.testing.assert_array_equal(forward(X, w, a, block_bytes=block_bytes), forward(X, w, a))
    K = neural_tangent_kernel(X, None, w)
    np.testing.assert_allclose(
        neural_tangent_kernel(X, None, w, block_bytes=block_bytes), K, atol=1e-13 * np.abs(K).max()
    )


@given(problems(), st.data())
def test_multiplicities_are_repetitions(problem, data):
    X, y, w, a = problem
    times = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(X), max_size=len(X))))
    assume(times.any())
    weighted = loss_gradient(X, y, w, a, sample_weight=times)
    repeated = loss_gradient(X.repeat(times, axis=0), y.repeat(times), w, a)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-12)
    scale = np.abs(X).max() ** 3 * (np.abs(X).max() + np.abs(y).max())
    np.testing.assert_allclose(weighted.gradient, repeated.gradient, atol=1e-12 * scale * 20)


@given(problems())
def test_gradient_lies_within_its_bound_and_vanishes_where_nothing_can_move(problem):
    X, y, w, a = problem
    gradient = loss_gradient(X, y, w, a).gradient
    residual = np.abs(forward(X, w, a) - y)
    bound = (residual * np.abs(X[:, -1]) * np.ptp(X, axis=1) ** 2 / 4).sum() / np.sqrt(len(w))
    assert (np.abs(gradient) <= bound * (1 + 1e-9) + 1e-300).all()


@given(problems(), st.floats(1e-4, 1.0))
def test_the_three_parts_of_a_step_add_up(problem, eta):
    X, y, w, a = problem
    terms = descent_terms(X, y, w, a, learning_rate=eta)
    assert terms.kernel <= 0
    assert terms.quadratic >= 0
    before = loss_gradient(X, y, w, a)
    after = loss_gradient(X, y, w - eta * before.gradient, a).loss
    parts = terms.kernel + terms.remainder + terms.quadratic
    tolerance = 1e-11 * (before.loss + after + abs(terms.kernel) + terms.quadratic)
    # Loose by the size of outputs, whose rounding the loss of a near fit cannot see.
    tolerance += 1e-13 * (size(X).sum() * np.sqrt(len(w)) + np.abs(y).sum()) ** 2
    assert abs(parts - (after - before.loss)) <= tolerance


@given(networks(), LENGTHS, st.data())
def test_kernel_is_a_gram_matrix(network, n, data):
    X, w, _ = network
    Z = data.draw(tables(n=n, d=X.shape[1]))
    both = np.vstack([X, Z])
    K = neural_tangent_kernel(both, None, w)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(
        neural_tangent_kernel(X, Z, w),
        K[: len(X), len(X) :],
        rtol=1e-12,
        atol=1e-14 * np.abs(K).max(),
    )
    values = ntk_singular_values(both, w)
    assert (np.diff(values) <= 0).all()
    assert (values**2).sum() == pytest.approx(np.trace(K), rel=1e-12)
    assert (np.outer(np.diag(K), np.diag(K)) * (1 + 1e-12) >= K**2).all()  # Cauchy-Schwarz
    still = (both[:, -1] == 0) | (np.ptp(both, axis=1) == 0)
    assert (K[still] == 0).all()


@given(problems())
def test_table_and_compressed_network_are_the_direct_formula(problem):
    X, y, w, a = problem
    assume(np.abs(X).max() < 100)
    table = CollocationTable(X, y, interval=(-3.0, 3.0))
    loss, slope = table.loss_slope(w, a / np.sqrt(len(w)))
    direct = loss_gradient(X, y, w, a)
    reach = (np.abs(X).max() * np.sqrt(len(w)) + np.abs(y).max()) ** 2 * len(X)
    assert abs(loss - direct.loss) <= 1e-12 * reach + 1e-300
    span = np.abs(X).max()
    np.testing.assert_allclose(
        slope * a / np.sqrt(len(w)),
        direct.gradient,
        rtol=0,
        atol=1e-9 * (span + span**3) * np.sqrt(reach * len(X)) + 1e-300,
    )
    network = compress(table.skeleton, [(w, a / np.sqrt(len(w)))])
    output = compressed_forward(X, network)[:, 0]
    tolerance = {"rtol": 0, "atol": 1e-11 * np.abs(X).max() * len(w)}
    np.testing.assert_allclose(output, forward(X, w, a), **tolerance)
