"""The infimum against enumeration and training, and the lower bound against its formula."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multinomial

from skcurse.theory.icl_floors import loss_infimum, loss_lower_bound
from skcurse.theory.icl_population import population_descent, population_gradient


def imbalanced(n_features, dominant=0.5):
    return np.append(dominant, np.full(n_features - 1, (1 - dominant) / (n_features - 1)))


@pytest.mark.parametrize(
    ("p", "n_context"),
    [
        ([0.5, 0.3, 0.2], 4),
        ([0.25] * 4, 5),
        ([0.7, 0.2, 0.06, 0.04], 6),
        ([0.5, 0.5], 3),
        ([0.4, 0.15, 0.15, 0.3], 4),
    ],
)
def test_infimum_is_the_smallest_enumerated_loss(p, n_context):
    """With an own logit that takes everything, search the other logits by enumeration."""
    p = np.array(p)
    counts = np.indices((n_context + 1,) * p.size).reshape(p.size, -1).T
    counts = counts[counts.sum(axis=1) == n_context]
    weights = multinomial(n_context, p).pmf(counts)
    total = 0.0
    for k in range(p.size):

        def loss(b, k=k):
            attn = counts * np.exp(np.insert(b, k, 40.0))
            attn /= attn.sum(axis=1, keepdims=True)
            square = (np.delete(attn, k, axis=1) ** 2).sum(axis=1)
            return weights @ (square + (1 - attn[:, k]) ** 2) / 2

        fits = [
            minimize(loss, b, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-13})
            for b in (np.zeros(p.size - 1), -np.log(np.delete(p, k)))
        ]
        smallest = min(fit.fun for fit in fits)
        assert loss_infimum(p, n_context, query=k) == pytest.approx(smallest, rel=1e-9)
        total += p[k] * smallest
    assert loss_infimum(p, n_context) == pytest.approx(total, rel=1e-9)


def test_numerical_infimum_continues_the_closed_form():
    p = np.full(6, 1 / 6) + 1e-7 * np.arange(-2.5, 3)
    closed = 0.5 * (5 / 6) ** 20 * (1 + 1 / 20 + (1 - 1 / 20) / 5)
    assert loss_infimum(np.full(6, 1 / 6), 20) == pytest.approx(closed, rel=1e-14)
    assert loss_infimum(p, 20) == pytest.approx(closed, rel=1e-7)


@pytest.mark.parametrize("n_context", [1, 2, 20, 1000])
@pytest.mark.parametrize(
    "p", [imbalanced(6), np.full(5, 0.2), np.array([0.1, 0.2, 0.3, 0.4])], ids=len
)
def test_lower_bound_is_below_the_infimum_and_met_by_many_tokens(p, n_context):
    bound, floor = loss_lower_bound(p, n_context), loss_infimum(p, n_context)
    assert bound <= floor * (1 + 1e-14)
    unseen = (1 - p) ** n_context
    assert bound == pytest.approx(0.5 * (p * unseen).sum() * (1 + 1 / (p.size - 1)), rel=1e-12)
    # The infimum is strictly larger as long as attention cannot be equal over the other features.
    assert floor > bound * (1 + 0.1 / n_context)


@pytest.mark.parametrize(("p", "n_context"), [(imbalanced(4), 5), (np.full(3, 1 / 3), 4)])
def test_training_approaches_the_infimum_and_not_the_lower_bound(p, n_context):
    run = population_descent(p, n_context, learning_rate=20.0, n_iter=4_000, record=2_000)
    for i, query in enumerate(run.queries):
        floor = loss_infimum(p, n_context, query=int(query))
        bound = loss_lower_bound(p, n_context, query=int(query))
        gaps = run.losses[:, i] - floor
        assert 0 < gaps[2] < 0.7 * gaps[1] < 1e-3
        assert gaps[2] < 0.1 * (floor - bound)


def test_one_feature_has_no_loss():
    assert loss_infimum([1.0], 5) == loss_lower_bound([1.0], 5) == 0.0
    assert population_gradient([0.0], [1.0], 5, 0).loss == 0.0


@pytest.mark.parametrize("function", [loss_infimum, loss_lower_bound])
def test_floors_name_what_is_wrong(function):
    with pytest.raises(ValueError, match="sum to 1"):
        function([0.5, 0.4], 3)
    with pytest.raises(ValueError, match="n_context"):
        function([0.5, 0.5], 0)
    with pytest.raises(ValueError, match="query"):
        function([0.5, 0.5], 3, query=2)


@pytest.mark.parametrize("function", [loss_infimum, loss_lower_bound])
def test_a_query_that_never_occurs_has_a_floor_and_no_weight(function):
    assert function([0.0, 0.6, 0.4], 3, query=0) >= 0.75
    assert function([0.0, 0.6, 0.4], 3) == pytest.approx(function([0.6, 0.4], 3), rel=1e-12)
