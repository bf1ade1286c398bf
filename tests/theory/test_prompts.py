"""The layout of prompts as rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skcurse.theory.prompts import pack_prompts, unpack_prompts

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
