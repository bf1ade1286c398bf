"""Prompts by counts are the prompts: same counts, same loss, same gradient."""

from collections import Counter

import numpy as np
import pytest

from skcurse.theory.counted_prompts import count_prompts, distinct_tokens
from skcurse.theory.softmax_icl import loss_gradient

# Few bits differ between one-hot or integer tokens: they are what a hash could mistake.
VOCABULARIES = {
    "one-hot": np.eye(40),
    "integers": np.arange(40.0)[:, None] * np.ones(3),
    "powers of two": 2.0 ** np.arange(-20, 20)[:, None],
    "signs": np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]),
    "gaussian": np.random.default_rng(0).normal(size=(40, 5)),
}


def prompts(n=120, n_context=30, vocabulary=6, d=4, outputs=(), queries="few", seed=1):
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(vocabulary, d))
    query = {
        "few": keys[rng.integers(vocabulary, size=n)],
        "one": np.tile(keys[:1], (n, 1)),
        "distinct": rng.normal(size=(n, d)),
    }[queries]
    return {
        "tokens": keys[rng.integers(vocabulary, size=(n, n_context))],
        "labels": 3.0 + rng.normal(size=(n, n_context, *outputs)),
        "query": query,
        "target": 3.0 + rng.normal(size=(n, *outputs)),
    }


BATCHES = {
    "few queries": prompts(),
    "one query": prompts(queries="one"),
    "distinct queries": prompts(queries="distinct"),
    "two outputs": prompts(outputs=(2,)),
    "two outputs, distinct queries": prompts(outputs=(2,), queries="distinct"),
    "one prompt": prompts(n=1),
    "one token": prompts(vocabulary=1, n_context=1),
    "weights": prompts() | {"sample_weight": np.arange(120) % 4},
    "weights, distinct queries": prompts(queries="distinct")
    | {"sample_weight": np.arange(120) % 4},
}


@pytest.fixture(params=BATCHES)
def batch(request):
    return BATCHES[request.param]


# The largest scores differ by 600 and more between tokens, the smallest are near uniform.
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 1e3])
def test_loss_and_gradient_are_those_of_the_tokens(batch, scale):
    query_key = scale * np.random.default_rng(2).normal(size=(4, 4))
    expected = loss_gradient(**batch, query_key=query_key, alpha=0.1)
    got = count_prompts(**batch).loss_gradient(query_key, alpha=0.1)
    assert got.loss == pytest.approx(expected.loss, rel=1e-12)
    size = np.abs(expected.gradient).max()
    np.testing.assert_allclose(got.gradient, expected.gradient, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("queries", [1, 2, 20])
@pytest.mark.parametrize("outputs", [1, 2])
def test_contexts_without_the_best_token_are_computed_too(queries, outputs):
    # Scores are 0, 1, 2 and 1000: where the last token is absent, its score must not be the
    # reference; the gradient there is not small.
    rng = np.random.default_rng(3)
    keys = np.array([[0.0], [0.001], [0.002], [1.0]])
    tokens = keys[rng.integers(4, size=(20, 5))]
    assert 0 < (tokens < 1).all(axis=(1, 2)).sum() < 20
    labels, target = rng.normal(size=(20, 5, outputs)), rng.normal(size=(20, outputs))
    query = np.repeat(1.0 + 1e-6 * np.arange(queries), 20 // queries)[:, None]
    batch = {"tokens": tokens, "labels": labels, "query": query, "target": target}
    expected = loss_gradient(**batch, query_key=[[1000.0]])
    got = count_prompts(**batch).loss_gradient(np.array([[1000.0]]))
    assert got.loss == pytest.approx(expected.loss, rel=1e-12)
    assert abs(expected.gradient) > 1e-6
    np.testing.assert_allclose(got.gradient, expected.gradient, rtol=1e-9)


def test_absent_prompts_do_not_matter():
    batch, query_key = prompts(), np.random.default_rng(2).normal(size=(4, 4))
    odd = prompts(vocabulary=50, seed=5)  # more tokens than places, so counts would not pay
    assert count_prompts(**odd) is None
    both = {name: np.concatenate([odd[name], batch[name]]) for name in batch}
    counted = count_prompts(**both, sample_weight=np.repeat([0.0, 2.0], 120))
    expected = count_prompts(**batch)
    np.testing.assert_array_equal(counted.counts, expected.counts)
    assert counted.loss_gradient(query_key).loss == expected.loss_gradient(query_key).loss


@pytest.mark.parametrize("block_bytes", [1, 1000, 5000])
def test_blocks_and_their_map_change_nothing_but_rounding(batch, block_bytes, monkeypatch):
    monkeypatch.setattr("skcurse.theory.counted_prompts._THREAD_BYTES", 0)

    calls = []

    def backwards(function, blocks):
        calls.append(len(blocks))
        return [function(block) for block in blocks[::-1]][::-1]

    query_key = np.random.default_rng(2).normal(size=(4, 4))
    counted = count_prompts(**batch)
    whole = counted.loss_gradient(query_key)
    parts = counted.loss_gradient(query_key, block_bytes=block_bytes, map=backwards)
    assert calls[0] >= len(counted.groups)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-13)
    np.testing.assert_allclose(parts.gradient, whole.gradient, rtol=1e-11, atol=1e-14)


def test_an_offset_of_the_labels_does_not_lose_the_gradient():
    batch, query_key = prompts(), np.random.default_rng(2).normal(size=(4, 4))
    far = batch | {"labels": batch["labels"] + 1e8, "target": batch["target"] + 1e8}
    expected = count_prompts(**batch).loss_gradient(query_key).gradient
    got = count_prompts(**far).loss_gradient(query_key).gradient
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


def test_nothing_in_a_batch_grows_with_the_context():
    sizes = []
    for n_context in (10, 1000):
        counted = count_prompts(**prompts(n_context=n_context))
        arrays = (counted.tokens, counted.counts, counted.totals, counted.targets, counted.weight)
        sizes.append([array.shape for array in arrays])
        assert len(counted.groups) == 6
    assert sizes[0] == sizes[1]


def test_scores_that_overflow_are_an_infinite_loss():
    counted = count_prompts(**prompts())
    assert counted.loss_gradient(1e308 * np.ones((4, 4))).loss == np.inf


@pytest.mark.parametrize("name", VOCABULARIES)
def test_counts_and_totals_are_those_of_a_counter(name):
    keys = VOCABULARIES[name]
    rng = np.random.default_rng(1)
    which = rng.integers(len(keys), size=(12, 60))
    labels = rng.normal(size=which.shape)
    # Distinct queries, so that the prompts keep their order.
    query = rng.normal(size=(12, keys.shape[1]))
    counted = count_prompts(keys[which], labels, query, np.zeros(12))
    assert len(counted.tokens) == len(np.unique(which))
    index = {tuple(key): k for k, key in enumerate(counted.tokens)}
    assert len(index) == len(counted.tokens)
    for i, row in enumerate(which):
        expected = Counter(row.tolist())
        for k in np.unique(which):
            column = index[tuple(keys[k])]
            assert counted.counts[i, column] == expected[k]
            total = (labels[i, row == k] - labels[i].mean()).sum()
            assert counted.totals[0, i, column] == pytest.approx(total, abs=1e-13)


def test_both_zeros_are_one_token():
    keys, which = distinct_tokens(np.array([[[0.0], [-0.0], [1.0]]]), 3)
    assert sorted(keys[:, 0]) == [0.0, 1.0]
    assert which[0, 0] == which[0, 1] != which[0, 2]


@pytest.mark.parametrize("n_distinct", [8, 9, 40])
def test_counts_are_used_up_to_as_many_distinct_tokens_as_places(n_distinct):
    tokens = np.zeros((50, 8, 1))
    tokens[45:] = np.arange(40.0).reshape(5, 8, 1) % n_distinct  # late, where a glance misses them
    for context in (tokens, tokens[::-1]):
        counted = count_prompts(context, np.zeros((50, 8)), np.zeros((50, 1)), np.zeros(50))
        assert (counted is None) == (n_distinct > 8)
