"""Mean attention on the last entry against the mean over every row and neuron."""

import numpy as np
import pytest
from window_kinds import KINDS, draw

from skcurse.theory import mean_attention
from skcurse.theory.mean_attention import mean_last_step_attention
from skcurse.theory.tilted_moments import last_step_attention


def softmax_mean(X, weights):
    """The definition, in exponentials of scores less the largest one."""
    scores = np.einsum("r,i,ik->irk", weights, X[:, -1], X)
    e = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.mean(e[:, :, -1] / e.sum(axis=2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_neurons", [1, 33, 400, 3000])
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1.0, 6.0), (30.0, 0.0), (1e-6, 0.0)])
def test_mean_is_that_of_all_rows_and_neurons(kind, n_neurons, scale, shift):
    X = draw(kind, 40)
    weights = scale * np.random.default_rng(1).standard_normal(n_neurons) + shift
    found = mean_last_step_attention(X, weights)
    assert found == pytest.approx(softmax_mean(X, weights), abs=1e-14)


@pytest.mark.parametrize("size", [1e-160, 1e-8, 1e8, 1e150])
def test_scores_of_any_size(size):
    X = draw("normal", 40)
    weights = size * np.random.default_rng(2).standard_normal(1000)
    expected = last_step_attention(X, weights).mean()
    assert mean_last_step_attention(X, weights) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_neurons_of_one_sign_where_attention_bends_near_zero(sign):
    X = 300.0 * draw("normal", 40)
    weights = sign * np.concatenate([np.geomspace(1e-7, 1e-5, 500), np.linspace(1.0, 10.0, 500)])
    found = mean_last_step_attention(X, weights)
    assert found == pytest.approx(softmax_mean(X, weights), abs=1e-14)


@pytest.mark.parametrize("size", [1e160, 1e300, 4e307])
def test_windows_whose_scores_overflow(size):
    X = size * draw("normal", 40)
    weights = np.random.default_rng(3).standard_normal(100)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = last_step_attention(X, weights).mean()
    assert mean_last_step_attention(X, weights) == pytest.approx(expected, abs=1e-14, nan_ok=True)


def test_neurons_that_coincide_and_several_networks():
    X = draw("heavy tails", 40)
    rng = np.random.default_rng(4)
    weights = np.concatenate([np.zeros(500), np.repeat(rng.standard_normal(100), 20)])
    expected = softmax_mean(X, weights)
    assert mean_last_step_attention(X, weights) == pytest.approx(expected, abs=1e-14)
    networks = weights.reshape(2, -1)
    assert mean_last_step_attention(X, networks) == pytest.approx(expected, abs=1e-14)
    assert mean_last_step_attention(X, np.full(100, 0.3)) == pytest.approx(
        softmax_mean(X, np.array([0.3])), abs=1e-14
    )


def test_nothing_has_no_mean():
    assert np.isnan(mean_last_step_attention(np.ones((3, 2)), []))
    assert np.isnan(mean_last_step_attention(np.ones((0, 2)), [1.0]))


def from_the_last(function, *columns):
    """A map that works in another order."""
    rows = list(zip(*columns, strict=True))
    return [function(*row) for row in reversed(rows)][::-1]


def test_blocks_and_workers_change_nothing_but_rounding():
    X = draw("normal", 200)
    weights = np.random.default_rng(5).standard_normal(2000)
    whole = mean_last_step_attention(X, weights)
    assert mean_last_step_attention(X, weights, block_bytes=1) == pytest.approx(whole, abs=1e-15)
    assert mean_last_step_attention(X, weights, map=from_the_last) == whole


@pytest.mark.parametrize(("kind", "share"), [("normal", 50), ("heavy tails", 20)])
def test_many_neurons_cost_few_exponentials(monkeypatch, kind, share):
    X = draw(kind, 100)
    weights = np.random.default_rng(6).standard_normal(30_000)
    cells = []

    def counted(X, w, **options):
        cells.append(len(X) * len(w))
        return last_step_attention(X, w, **options)

    monkeypatch.setattr(mean_attention, "last_step_attention", counted)
    mean_last_step_attention(X, weights)
    assert sum(cells) < len(X) * weights.size / share
