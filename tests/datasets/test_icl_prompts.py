"""Prompts have the law they claim."""

import numpy as np
import pytest
from sklearn.base import clone

from skcurse.datasets import ICLPrompts, make_icl_prompts, unpack_prompts
from skcurse.testing import check_data_model

P = np.array([0.5, 0.25, 0.2, 0.05])


def parts(model, n=4000, **settings):
    """Token indices, labels, query indices and targets of a sample."""
    X, y = model.sample(n, random_state=0, **settings)
    tokens, labels, query = unpack_prompts(X, model.n_context)
    V = model.features()
    return (tokens @ V.T).argmax(axis=2), labels, (query @ V.T).argmax(axis=1), y


def assert_frequencies(index, p):
    n = index.size
    frequency = np.bincount(index.ravel(), minlength=len(p)) / n
    assert (np.abs(frequency - p) <= 4 * np.sqrt(p * (1 - p) / n)).all()


@pytest.mark.parametrize(
    "model",
    [
        ICLPrompts(),
        ICLPrompts(4, 3, "imbalanced", dim=5, noise=0.1, task_law="rademacher"),
        ICLPrompts(4, 4, P, task_law="uniform"),
        ICLPrompts(1, 1),
    ],
    ids=repr,
)
def test_it_is_a_data_model(model):
    check_data_model(model)


@pytest.mark.parametrize(("k", "dim"), [(1, 1), (4, 4), (4, 9)])
def test_features_are_orthonormal_and_belong_to_the_model(k, dim):
    model = ICLPrompts(vocabulary_size=k, dim=dim)
    V = model.features()
    assert V.shape == (k, dim)
    np.testing.assert_allclose(V @ V.T, np.eye(k), atol=1e-14)
    np.testing.assert_array_equal(clone(model).features(), V)
    if dim > 1:
        assert not np.allclose(clone(model).set_params(feature_state=1).features(), V)


@pytest.mark.parametrize(
    ("probabilities", "p"),
    [("balanced", np.full(4, 0.25)), ("imbalanced", np.r_[0.5, np.full(3, 1 / 6)]), (P, P)],
    ids=str,
)
def test_context_and_query_follow_the_probabilities(probabilities, p):
    model = ICLPrompts(10, 4, probabilities, dim=6)
    np.testing.assert_allclose(model.token_probabilities(), p, rtol=1e-15)
    token, _, query, _ = parts(model)
    assert_frequencies(token, p)
    assert_frequencies(query, p)
    # Places are independent of each other and of the query.
    for left, right in ((token[:, 0], token[:, 1]), (token[:, 0], query)):
        assert_frequencies(4 * left + right, np.outer(p, p).ravel())


@pytest.mark.parametrize("law", ["gaussian", "rademacher", "uniform"])
def test_tasks_have_mean_zero_and_identity_covariance(law):
    token, labels, _, _ = parts(ICLPrompts(60, 3, task_law=law), n=3000)
    # Without noise the label of a token is the coordinate of the task along it.
    seen = [(token == k).any(axis=1) for k in range(3)]
    keep = np.logical_and.reduce(seen)
    assert keep.mean() > 0.99
    first = np.stack([(token == k).argmax(axis=1) for k in range(3)], axis=1)
    tasks = np.take_along_axis(labels, first, axis=1)[keep]
    n = len(tasks)
    assert (np.abs(tasks.mean(axis=0)) < 4 / np.sqrt(n)).all()
    products = tasks[:, :, None] * tasks[:, None, :]
    error = products.std(axis=0) / np.sqrt(n) + 1e-12
    assert (np.abs(products.mean(axis=0) - np.eye(3)) < 4 * error).all()
    fourth = {"gaussian": 3.0, "rademacher": 1.0, "uniform": 9 / 5}[law]
    spread = (tasks**4).std() / np.sqrt(tasks.size) + 1e-12
    assert abs((tasks**4).mean() - fourth) < 4 * spread


def test_labels_are_the_task_at_the_token_and_so_is_the_target():
    token, labels, query, y = parts(ICLPrompts(30, 4, dim=7))
    for k in range(4):
        label = np.where(token == k, labels, np.nan)
        known = (token == k).any(axis=1)
        assert np.nanmax(np.nanmax(label[known], axis=1) - np.nanmin(label[known], axis=1)) == 0.0
        asked = known & (query == k)
        np.testing.assert_array_equal(np.nanmax(label[asked], axis=1), y[asked])


def test_noise_is_on_every_label():
    noise = 0.5
    model = ICLPrompts(30, 4, noise=noise)
    token, labels, query, y = parts(model)
    clean = parts(clone(model).set_params(noise=0.0))
    errors = np.r_[(labels - clean[1]).ravel()], y - clean[3]
    np.testing.assert_array_equal(token, clean[0])
    np.testing.assert_array_equal(query, clean[2])
    for error in errors:
        assert abs(error.std() / noise - 1) < 4 / np.sqrt(2 * error.size)
        assert abs(error.mean()) < 4 * noise / np.sqrt(error.size)


def test_scaled_task_doubles_the_labels_and_nothing_else():
    model = ICLPrompts(6, 3)
    plain, scaled = parts(model), parts(model, shift="scaled_task")
    np.testing.assert_array_equal(scaled[0], plain[0])
    np.testing.assert_array_equal(scaled[1], 2 * plain[1])
    np.testing.assert_array_equal(scaled[3], 2 * plain[3])


@pytest.mark.parametrize(
    ("probabilities", "query_law"),
    [
        ("imbalanced", np.r_[0, np.full(3, 1 / 3)]),
        (P, [0, 0, 0, 1]),
        ([0.6, 0.2, 0.2, 0.0], [0, 0.5, 0.5, 0]),
        ("balanced", np.full(4, 0.25)),
    ],
    ids=str,
)
def test_rare_query_asks_for_the_least_likely_features(probabilities, query_law):
    model = ICLPrompts(10, 4, probabilities)
    token, _, query, _ = parts(model, shift="rare_query")
    assert_frequencies(token, model.token_probabilities())
    assert_frequencies(query, np.asarray(query_law))


def test_a_task_law_of_ones_own():
    def rotated(rng, shape):
        turn = np.array([[0.6, -0.8], [0.8, 0.6]])
        return rng.choice([-1.0, 1.0], size=shape) @ turn

    _, labels, _, _ = parts(ICLPrompts(5, 2, task_law=rotated))
    assert set(np.abs(labels).ravel().round(12)) == {0.2, 1.4}


def test_the_function_is_the_model():
    settings = {"n_context": 5, "vocabulary_size": 3, "dim": 4, "noise": 0.1, "feature_state": 2}
    X, y = make_icl_prompts(20, **settings, shift="scaled_task", random_state=3)
    expected = ICLPrompts(**settings).sample(20, shift="scaled_task", random_state=3)
    np.testing.assert_array_equal(X, expected[0])
    np.testing.assert_array_equal(y, expected[1])
    assert X.shape == (20, 5 * (4 + 1) + 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "at least vocabulary_size"),
        ({"probabilities": "equal"}, "'balanced', 'imbalanced'"),
        ({"probabilities": "imbalanced", "vocabulary_size": 1}, "vocabulary_size=1"),
        ({"probabilities": [0.5, 0.5]}, "4 non-negative numbers"),
        ({"probabilities": [0.5, 0.5, 0.5, -0.5]}, "4 non-negative numbers"),
        ({"probabilities": [0.5, 0.2, 0.2, 0.2]}, "4 non-negative numbers"),
        ({"probabilities": [0.5, 0.5, 0.0, np.nan]}, "4 non-negative numbers"),
        ({"task_law": "cauchy"}, "'gaussian', 'rademacher', 'uniform'.*got 'cauchy'"),
        ({"task_law": lambda rng, shape: np.zeros(shape[0])}, "must return an array of shape"),
        ({"noise": -1.0}, "noise"),
        ({"n_context": 0}, "n_context"),
        ({"vocabulary_size": 0}, "vocabulary_size"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_what_makes_no_sense_is_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        ICLPrompts(**{"vocabulary_size": 4, **settings}).sample(3, random_state=0)
