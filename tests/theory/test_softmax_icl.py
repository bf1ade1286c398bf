"""The in-context layer against definitions written out, finite differences and autograd."""

from itertools import product

import numpy as np
import pytest

from skcurse.theory.softmax_icl import attention, loss_gradient, predict


def prompts(rng, n=7, n_context=5, d=3, outputs=()):
    """Contexts of their own for each query."""
    return {
        "tokens": rng.normal(size=(n, n_context, d)),
        "labels": 3.0 + rng.normal(size=(n, n_context, *outputs)),
        "query": rng.normal(size=(n, d)),
        "target": 3.0 + rng.normal(size=(n, *outputs)),
    }


def rows(rng, n=9, d=3, outputs=(), weighted=False):
    """Each row a query among the others."""
    X, y = rng.normal(size=(n, d)), rng.normal(size=(n, *outputs))
    problem = {"tokens": X[None], "labels": y[None], "query": X, "target": y, "leave_one_out": True}
    if weighted:
        weight = np.r_[0.0, 0.5, 2.0, 3.7, np.ones(n - 4)]
        with np.errstate(divide="ignore"):
            problem |= {"log_mass": np.log(weight)[None], "sample_weight": weight}
    return problem


def shared(rng, outputs=()):
    """Common tokens, with masses and labels of their own for each query."""
    problem = prompts(rng, n=11, n_context=5, d=4, outputs=outputs)
    counts = rng.integers(0, 4, size=(11, 5)) + np.eye(11, 5, -3)
    counts[:, 0] += 1
    with np.errstate(divide="ignore"):
        return problem | {"tokens": problem["tokens"][:1], "log_mass": np.log(counts)}


PROBLEMS = {
    "prompts": prompts,
    "prompts, two outputs": lambda rng: prompts(rng, outputs=(2,)),
    "prompts, weighted queries": lambda rng: prompts(rng) | {"sample_weight": np.arange(7.0)},
    "prompts, one token": lambda rng: prompts(rng, n_context=1),
    "one prompt": lambda rng: prompts(rng, n=1),
    "masses": shared,
    "masses, two outputs": lambda rng: shared(rng, outputs=(2,)),
    "rows": rows,
    "rows, two outputs": lambda rng: rows(rng, outputs=(2,)),
    "rows, multiplicities": lambda rng: rows(rng, weighted=True),
    "ridge": lambda rng: prompts(rng) | {"alpha": 0.3},
}


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param](np.random.default_rng(7))


@pytest.fixture
def query_key(problem):
    d = problem["query"].shape[1]
    return 0.7 * np.random.default_rng(8).normal(size=(d, d))


def brute_force(tokens, labels, query, query_key, log_mass=None, leave_one_out=False, **_):
    """Weights and predictions from the definition, one query and one token at a time."""
    n, n_context = len(query), tokens.shape[1]
    masses = np.ones((n, n_context))
    if log_mass is not None:
        masses = np.broadcast_to(np.exp(log_mass), (n, n_context)).copy()
    if leave_one_out:
        masses[np.diag_indices(n)] = np.maximum(masses[np.diag_indices(n)] - 1, 0)
    tokens = np.broadcast_to(tokens, (n, *tokens.shape[1:]))
    labels = np.broadcast_to(labels, (n, *labels.shape[1:]))
    weights = np.array(
        [
            [m * np.exp(x @ query_key @ q) for m, x in zip(masses[i], tokens[i], strict=True)]
            for i, q in enumerate(query)
        ]
    )
    weights /= weights.sum(axis=1, keepdims=True)
    return weights, np.array([w @ y for w, y in zip(weights, labels, strict=True)])


def layer(problem, *names):
    keep = ("tokens", "query", "log_mass", "leave_one_out", *names)
    return {name: problem[name] for name in keep if name in problem}


def test_attention_and_prediction_are_their_definitions(problem, query_key):
    weights, prediction = brute_force(**problem, query_key=query_key)
    np.testing.assert_allclose(
        attention(**layer(problem), query_key=query_key), weights, rtol=1e-12, atol=1e-15
    )
    np.testing.assert_allclose(
        predict(**layer(problem, "labels"), query_key=query_key), prediction, rtol=1e-12
    )


def test_loss_is_half_the_weighted_mean_square(problem, query_key):
    _, prediction = brute_force(**problem, query_key=query_key)
    squares = ((prediction - problem["target"]) ** 2).reshape(len(prediction), -1).sum(axis=1)
    weight = problem.get("sample_weight", np.ones(len(squares)))
    expected = 0.5 * np.average(squares, weights=weight)
    expected += 0.5 * problem.get("alpha", 0.0) * (query_key**2).sum()
    assert loss_gradient(**problem, query_key=query_key).loss == pytest.approx(expected, rel=1e-12)


def test_gradient_is_that_of_finite_differences(problem, query_key):
    gradient = loss_gradient(**problem, query_key=query_key).gradient
    step = 1e-5
    for index in product(range(len(query_key)), repeat=2):
        shift = np.zeros_like(query_key)
        shift[index] = step
        plus = loss_gradient(**problem, query_key=query_key + shift).loss
        minus = loss_gradient(**problem, query_key=query_key - shift).loss
        assert gradient[index] == pytest.approx((plus - minus) / (2 * step), rel=1e-6, abs=1e-9)


@pytest.mark.extra
def test_gradient_is_that_of_autograd(problem, query_key):
    torch = pytest.importorskip("torch")
    n = len(problem["query"])
    q = torch.tensor(query_key, requires_grad=True)
    as_tensor = {
        name: torch.as_tensor(np.array(value))
        for name, value in problem.items()
        if name not in ("leave_one_out", "alpha")
    }
    scores = torch.einsum("bnd,de,be->bn", as_tensor["tokens"].expand(n, -1, -1), q,
                          as_tensor["query"])  # fmt: skip
    mass = as_tensor.get("log_mass", torch.zeros(scores.shape, dtype=torch.float64)).exp()
    mass = mass.expand(scores.shape).clone()
    if problem.get("leave_one_out"):
        mass[range(n), range(n)] = (mass[range(n), range(n)] - 1).clamp(min=0)
    odds = mass * scores.exp()
    weights = odds / odds.sum(dim=1, keepdim=True)
    labels, target = as_tensor["labels"], as_tensor["target"].reshape(n, -1)
    labels = labels.reshape(*labels.shape[:2], -1).expand(n, -1, -1)
    squares = ((weights[:, :, None] * labels).sum(dim=1) - target).square().sum(dim=1)
    sample_weight = as_tensor.get("sample_weight", torch.ones(n, dtype=torch.float64))
    loss = 0.5 * (sample_weight * squares).sum() / sample_weight.sum()
    loss = loss + 0.5 * problem.get("alpha", 0.0) * q.square().sum()
    loss.backward()
    ours = loss_gradient(**problem, query_key=query_key)
    assert ours.loss == pytest.approx(loss.item(), rel=1e-13)
    np.testing.assert_allclose(ours.gradient, q.grad.numpy(), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("block_bytes", [1, 2000, 5000])
def test_blocks_and_their_map_change_nothing_but_rounding(problem, query_key, block_bytes):
    def backwards(function, blocks):
        return [function(block) for block in list(blocks)[::-1]][::-1]

    whole = loss_gradient(**problem, query_key=query_key)
    parts = loss_gradient(**problem, query_key=query_key, block_bytes=block_bytes, map=backwards)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-13)
    np.testing.assert_allclose(parts.gradient, whole.gradient, rtol=1e-12, atol=1e-15)
    labels = layer(problem, "labels")
    np.testing.assert_allclose(
        predict(**labels, query_key=query_key, block_bytes=block_bytes),
        predict(**labels, query_key=query_key),
        rtol=1e-13,
    )


def test_order_of_the_context_changes_nothing():
    rng = np.random.default_rng(0)
    problem, query_key = prompts(rng), rng.normal(size=(3, 3))
    order = rng.permuted(np.tile(np.arange(5), (7, 1)), axis=1)
    shuffled = problem | {
        "tokens": np.take_along_axis(problem["tokens"], order[:, :, None], axis=1),
        "labels": np.take_along_axis(problem["labels"], order, axis=1),
    }
    expected, got = (loss_gradient(**p, query_key=query_key) for p in (problem, shuffled))
    assert got.loss == pytest.approx(expected.loss, rel=1e-13)
    np.testing.assert_allclose(got.gradient, expected.gradient, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_a_multiplicity_is_as_many_rows(leave_one_out):
    rng = np.random.default_rng(2)
    X, y, query_key = rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=(2, 2))
    times = np.array([1, 0, 3, 2, 1, 1])
    with np.errstate(divide="ignore"):
        log_mass = np.log(times)[None]
    weighted = loss_gradient(
        X[None], y[None], X, y, query_key,
        log_mass=log_mass, sample_weight=times, leave_one_out=leave_one_out,
    )  # fmt: skip
    X, y = X.repeat(times, axis=0), y.repeat(times)
    repeated = loss_gradient(X[None], y[None], X, y, query_key, leave_one_out=leave_one_out)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-13)
    np.testing.assert_allclose(weighted.gradient, repeated.gradient, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e150])
def test_sharp_attention_is_the_best_match(scale):
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]])
    y = np.array([1.0, 2.0, 3.0, 4.0])
    # With itself every row has the largest score, by far; without, its nearest neighbour has.
    prediction = predict(X[None], y[None], X, scale * np.eye(2), leave_one_out=True)
    np.testing.assert_allclose(prediction, [4.0, 3.0, 4.0, 3.0], atol=1e-6)


def test_labels_far_from_zero_do_not_lose_the_gradient():
    rng = np.random.default_rng(3)
    problem, query_key = prompts(rng), rng.normal(size=(3, 3))
    far = problem | {"labels": problem["labels"] + 1e6, "target": problem["target"] + 1e6}
    expected, got = (loss_gradient(**p, query_key=query_key).gradient for p in (problem, far))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)


def test_inputs_are_not_written_to(problem, query_key):
    before = {name: np.copy(value) for name, value in problem.items()}
    for value in problem.values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    loss_gradient(**problem, query_key=query_key)
    predict(**layer(problem, "labels"), query_key=query_key)
    attention(**layer(problem), query_key=query_key)
    for name, value in before.items():
        np.testing.assert_array_equal(problem[name], value)


def test_scores_that_overflow_are_an_error_and_an_infinite_loss():
    problem = prompts(np.random.default_rng(4))
    query_key = 1e308 * np.ones((3, 3))
    with pytest.raises(ValueError, match="rescale the features"):
        predict(**layer(problem, "labels"), query_key=query_key)
    with pytest.raises(ValueError, match="rescale the features"):
        attention(**layer(problem), query_key=query_key)
    assert loss_gradient(**problem, query_key=query_key).loss == np.inf


def test_a_query_without_context_is_an_error():
    with pytest.raises(ValueError, match="no context token of positive mass"):
        attention([[[1.0]]], [[1.0]], [[1.0]], leave_one_out=True)


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": np.zeros((5, 3))},
        {"tokens": np.zeros((6, 5, 3))},
        {"query": np.zeros((7, 2))},
        {"query": np.zeros(3)},
        {"query_key": np.zeros((3, 2))},
        {"log_mass": np.zeros((7, 4))},
        {"leave_one_out": True},
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_named(change):
    arguments = layer(prompts(np.random.default_rng(5))) | {"query_key": np.eye(3)} | change
    with pytest.raises(ValueError, match="Shapes do not fit"):
        attention(**arguments)
