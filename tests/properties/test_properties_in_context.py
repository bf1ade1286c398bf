"""Invariances of the in-context learner, on prompts and on rows, and of its population loss."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tables import LENGTHS, SMALL_SCALES, UNIT, WHOLE, tables

from skcurse.estimators._icl_examples import leave_one_out_examples
from skcurse.theory.adaptive_descent import gradient_descent
from skcurse.theory.counted_prompts import count_prompts
from skcurse.theory.icl_floors import loss_infimum, loss_lower_bound
from skcurse.theory.icl_population import population_gradient
from skcurse.theory.softmax_icl import attention, loss_gradient, predict

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@st.composite
def layers(draw, shared=False, elements=WHOLE):
    """Tokens, labels, queries, targets and a query-key matrix; tokens often repeat."""
    n, n_context, d = draw(LENGTHS), draw(LENGTHS), draw(st.integers(1, 3))
    tokens = draw(arrays(np.float64, (1 if shared else n, n_context, d), elements=elements))
    labels = draw(arrays(np.float64, tokens.shape[:2], elements=UNIT))
    query = draw(arrays(np.float64, (n, d), elements=elements))
    target = draw(arrays(np.float64, n, elements=UNIT))
    query_key = draw(arrays(np.float64, (d, d), elements=UNIT.map(lambda x: x / 4)))
    return tokens, labels, query, target, query_key


@given(layers(), st.randoms(use_true_random=False))
def test_order_of_the_context_does_not_matter(layer, random):
    tokens, labels, query, target, Q = layer
    order = random.sample(range(tokens.shape[1]), tokens.shape[1])
    turned = tokens[:, order], labels[:, order]
    np.testing.assert_allclose(
        predict(*turned, query, Q), predict(tokens, labels, query, Q), **CLOSE
    )
    np.testing.assert_allclose(
        attention(turned[0], query, Q), attention(tokens, query, Q)[:, order], **CLOSE
    )
    here, there = (loss_gradient(*c, query, target, Q) for c in ((tokens, labels), turned))
    assert there.loss == pytest.approx(here.loss, rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(there.gradient, here.gradient, **CLOSE)


@given(layers(shared=True), st.data())
def test_a_shift_of_all_scores_changes_nothing(layer, data):
    """Softmax forgets what is added to all scores: here, one vector added to every token."""
    tokens, labels, query, _, Q = layer
    shift = data.draw(arrays(np.float64, tokens.shape[2], elements=WHOLE))
    here, there = (predict(t, labels, query, Q) for t in (tokens, tokens + shift))
    np.testing.assert_allclose(there, here, **CLOSE)


@given(layers(elements=UNIT), SMALL_SCALES)
def test_features_times_c_are_a_matrix_over_c_squared(layer, c):
    tokens, labels, query, target, Q = layer
    scaled = c * tokens, labels, c * query
    np.testing.assert_array_equal(predict(*scaled, Q / c**2), predict(tokens, labels, query, Q))
    here = loss_gradient(tokens, labels, query, target, Q)
    there = loss_gradient(*scaled, target, Q / c**2)
    assert there.loss == here.loss
    np.testing.assert_array_equal(there.gradient, c**2 * here.gradient)


@given(layers(elements=UNIT), st.floats(-100, 100), st.floats(-100, 100))
def test_prediction_is_affine_in_the_labels(layer, a, b):
    tokens, labels, query, target, Q = layer
    plain = predict(tokens, labels, query, Q)
    np.testing.assert_allclose(
        predict(tokens, a * labels + b, query, Q), a * plain + b, atol=1e-11 * (1 + abs(a) + abs(b))
    )
    here = loss_gradient(tokens, labels, query, target, Q)
    there = loss_gradient(tokens, a * labels + b, query, a * target + b, Q)
    assert there.loss == pytest.approx(a**2 * here.loss, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(there.gradient, a**2 * here.gradient, rtol=1e-8, atol=1e-7)


@given(layers(elements=UNIT), st.integers(0, 10**6))
def test_a_rotation_of_features_rotates_the_matrix(layer, seed):
    tokens, labels, query, target, Q = layer
    R = np.linalg.qr(np.random.default_rng(seed).normal(size=Q.shape))[0]
    here = loss_gradient(tokens, labels, query, target, Q)
    there = loss_gradient(tokens @ R.T, labels, query @ R.T, target, R @ Q @ R.T)
    assert there.loss == pytest.approx(here.loss, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(there.gradient, R @ here.gradient @ R.T, atol=1e-8)


@given(layers())
def test_attention_is_a_distribution_and_prediction_a_mean(layer):
    tokens, labels, query, _, Q = layer
    share = attention(tokens, query, Q)
    assert (share >= 0).all()
    np.testing.assert_allclose(share.sum(axis=1), 1.0, rtol=1e-13)
    prediction = predict(tokens, labels, query, Q)
    assert (prediction >= labels.min(axis=1) - 1e-13).all()
    assert (prediction <= labels.max(axis=1) + 1e-13).all()


@given(layers(), st.integers(1, 10**5), st.data())
def test_counts_stand_for_tokens(layer, block_bytes, data):
    tokens, labels, query, target, Q = layer
    weight = data.draw(arrays(np.float64, len(query), elements=st.sampled_from([0.0, 1.0, 2.5])))
    assume(weight.any())
    counted = count_prompts(tokens, labels, query, target, weight)
    present = (tokens + 0.0)[weight > 0].reshape(-1, tokens.shape[2])
    distinct = len({token.tobytes() for token in present})
    assert (counted is None) == (distinct > tokens.shape[1])
    assume(counted is not None)
    assert len(counted.tokens) == distinct
    here = loss_gradient(tokens, labels, query, target, Q, sample_weight=weight)
    there = counted.loss_gradient(Q, block_bytes=block_bytes)
    assert there.loss == pytest.approx(here.loss, rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(there.gradient, here.gradient, **CLOSE)


@given(layers(), st.integers(1, 10**5), st.data())
def test_blocks_of_any_size_and_prompts_as_often_as_their_weight(layer, block_bytes, data):
    tokens, labels, query, target, Q = layer
    n = len(query)
    times = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(times.any())
    weighted = loss_gradient(
        tokens, labels, query, target, Q, sample_weight=times, block_bytes=block_bytes
    )
    repeated = (array.repeat(times, axis=0) for array in (tokens, labels, query, target))
    whole = loss_gradient(*repeated, Q)
    assert weighted.loss == pytest.approx(whole.loss, rel=1e-11, abs=1e-13)
    np.testing.assert_allclose(weighted.gradient, whole.gradient, **CLOSE)
    np.testing.assert_allclose(
        predict(tokens, labels, query, Q, block_bytes=block_bytes),
        predict(tokens, labels, query, Q),
        **CLOSE,
    )


@given(tables(elements=WHOLE), st.data())
def test_left_out_is_removed(X, data):
    """On rows, every query attends to the others only; a row of weight k is k rows."""
    n, d = X.shape
    y = data.draw(arrays(np.float64, n, elements=UNIT))
    times = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    assume(times.sum() >= 2)
    X = X / np.maximum(1.0, np.abs(X).max() / 3)
    Q = data.draw(arrays(np.float64, (d, d), elements=UNIT.map(lambda x: x / 4)))
    examples = leave_one_out_examples(X, y, times.astype(float))
    got = predict(query=X[times > 0], query_key=Q, **_only(examples.context, times > 0))
    rows, labels = X.repeat(times, axis=0), y.repeat(times)
    for value, i in zip(got, np.flatnonzero(times), strict=True):
        first = int(times[:i].sum())
        others, others_labels = np.delete(rows, first, axis=0), np.delete(labels, first)
        odds = np.exp(others @ Q @ X[i] - np.max(others @ Q @ X[i]))
        assert value == pytest.approx(odds @ others_labels / odds.sum(), rel=1e-10, abs=1e-10)


def _only(context, kept):
    """The context without rows of no weight, which have no others to attend to when alone."""
    return {
        "tokens": context["tokens"][:, kept],
        "labels": context["labels"][:, kept],
        "log_mass": context["log_mass"][:, kept],
        "leave_one_out": True,
    }


@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=5),
    st.integers(1, 200),
    st.floats(0.0, 20.0),
    st.integers(0, 10**6),
)
def test_loss_stays_above_its_floors_and_the_own_weight_grows(p, n_context, spread, seed):
    """Above the infimum, that above the bound of the theorem; and alpha is never negative."""
    p = np.array(p) / np.sum(p)
    rng = np.random.default_rng(seed)
    logits = spread * rng.standard_normal(p.size)
    query = int(rng.integers(p.size))
    gradient = population_gradient(logits, p, n_context, query)
    floor = loss_infimum(p, n_context, query=query)
    assert floor >= loss_lower_bound(p, n_context, query=query) * (1 - 1e-12)
    assert gradient.loss >= floor * (1 - 1e-9)
    assert gradient.loss <= 1.0 + 1e-12
    assert gradient.rates[query] >= 0
    assert gradient.attention.sum() == pytest.approx(1.0, rel=1e-11)
    # Only differences of logits count.
    shifted = population_gradient(logits + 7.0, p, n_context, query)
    np.testing.assert_allclose(
        shifted.rates, gradient.rates, rtol=1e-9, atol=1e-300 + gradient.error.max()
    )
    np.testing.assert_allclose(
        gradient.rates.sum(),
        0.0,
        atol=1e-12 * np.abs(gradient.rates).max() + 10 * gradient.error.max(),
    )


@given(layers(), st.sampled_from(["auto", 1e-3, 1.0, 1e3, 1e6]), st.integers(1, 8))
def test_no_step_of_a_descent_is_worse_than_its_start(layer, learning_rate, n_steps):
    """Automatic steps never lift the loss; a chosen rate that lifts it above the first is told."""
    objective = partial(loss_gradient, *layer[:4])
    steps = gradient_descent(objective, np.zeros_like(layer[4]), learning_rate=learning_rate)
    losses = []
    try:
        for step in islice(steps, n_steps + 1):
            losses.append(step.loss)  # noqa: PERF401 (those before an error count)
    except ValueError as error:
        if learning_rate == "auto" or "diverges" not in str(error):
            raise
    if learning_rate == "auto":
        assert (np.diff(losses) <= 1e-12 * (1 + losses[0])).all()
    assert all(loss <= losses[0] * (1 + 1e-6) + 1e-12 for loss in losses)
