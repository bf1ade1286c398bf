"""The layout of prompts, and prompts as counts."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skcurse.theory.prompts import count_tokens, pack_prompts, unpack_prompts

SIZES = st.integers(1, 6)


@given(SIZES, SIZES, SIZES, SIZES)
def test_unpacking_undoes_packing(n, n_context, d, n_outputs):
    rng = np.random.default_rng(0)
    tokens, query = rng.normal(size=(n, n_context, d)), rng.normal(size=(n, d))
    labels = rng.normal(size=(n, n_context, n_outputs))
    labels = labels[:, :, 0] if n_outputs == 1 else labels
    X = pack_prompts(tokens, labels, query)
    assert X.shape == (n, n_context * (d + n_outputs) + d)
    for got, expected in zip(
        unpack_prompts(X, n_context, n_outputs), (tokens, labels, query), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_layout_is_x_then_y_of_each_token_then_the_query():
    X = pack_prompts([[[1, 2], [3, 4]]], [[10, 20]], [[5, 6]])
    assert X.tolist() == [[1, 2, 10, 3, 4, 20, 5, 6]]


def test_unpacking_copies_nothing():
    X = np.zeros((3, 11))
    assert all(np.shares_memory(part, X) for part in unpack_prompts(X, 3))


@given(st.integers(1, 7), st.integers(1, 40), st.integers(1, 3))
def test_column_counts_fit_or_the_error_names_the_nearest_that_do(n_context, n_columns, t):
    valid = [d * (n_context + 1) + n_context * t for d in range(1, 50)]
    X = np.zeros((2, n_columns))
    if n_columns in valid:
        assert unpack_prompts(X, n_context, t)[2].shape[1] == valid.index(n_columns) + 1
        return
    below = [v for v in valid if v < n_columns][-1:]
    above = [v for v in valid if v > n_columns][:1]
    with pytest.raises(ValueError, match="the tokens in order") as error:
        unpack_prompts(X, n_context, t)
    message = str(error.value)
    assert f"X has {n_columns} columns" in message
    assert all(f"{v} (d={valid.index(v) + 1})" in message for v in below + above)


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4), (2, 3), (2, 5)),
        ((2, 3, 4), (2, 4), (2, 4)),
        ((2, 3), (2, 3), (2, 3)),
        ((2, 3, 4), (2, 3), (1, 4)),
    ],
)
def test_shapes_that_do_not_belong_together_are_named(shapes):
    with pytest.raises(ValueError, match="must have shapes"):
        pack_prompts(*map(np.zeros, shapes))


# Few bits differ between one-hot or integer tokens: they are what a hash could mistake.
VOCABULARIES = {
    "one-hot": np.eye(40),
    "integers": np.arange(40.0)[:, None] * np.ones(3),
    "powers of two": 2.0 ** np.arange(-20, 20)[:, None],
    "signs": np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]),
    "gaussian": np.random.default_rng(0).normal(size=(40, 5)),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_counts_and_mean_labels_are_those_of_a_counter(name):
    keys = VOCABULARIES[name]
    rng = np.random.default_rng(1)
    which = rng.integers(len(keys), size=(12, 60))
    labels = rng.normal(size=which.shape)
    found, mean, log_mass = count_tokens(keys[which], labels)
    assert found.shape == (1, len(np.unique(which)), keys.shape[1])
    index = {tuple(key): k for k, key in enumerate(found[0])}
    assert len(index) == found.shape[1]
    for i, row in enumerate(which):
        expected = Counter(row.tolist())
        for k, key in enumerate(keys):
            if k not in which:
                continue
            got = np.exp(log_mass[i, index[tuple(key)]])
            assert got == pytest.approx(expected[k], rel=1e-14)
            if expected[k]:
                assert mean[i, index[tuple(key)]] == pytest.approx(labels[i, row == k].mean())


def test_both_zeros_are_one_token():
    tokens = np.array([[[0.0], [-0.0], [1.0]]])
    found, _, log_mass = count_tokens(tokens, np.zeros((1, 3)))
    assert sorted(found[0, :, 0]) == [0.0, 1.0]
    assert sorted(np.exp(log_mass[0]).round(12)) == [1.0, 2.0]


@pytest.mark.parametrize("n_distinct", [8, 9])
def test_counts_are_used_up_to_as_many_distinct_tokens_as_places(n_distinct):
    keys = np.arange(n_distinct, dtype=float)
    tokens = np.resize(keys, (9, 8, 1))
    counted = count_tokens(tokens, np.zeros((9, 8)))
    assert (counted is None) == (n_distinct > 8)


@pytest.mark.parametrize("n_distinct", [8, 9, 40])
def test_distinct_tokens_that_appear_late_are_seen(n_distinct):
    tokens = np.zeros((50, 8, 1))
    tokens[45:] = np.arange(40.0).reshape(5, 8, 1) % n_distinct
    counted = count_tokens(tokens, np.zeros((50, 8)))
    assert (counted is None) == (n_distinct > 8)
