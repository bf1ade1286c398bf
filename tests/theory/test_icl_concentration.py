"""Probabilities of count events against enumeration, the binomial law and sampling."""

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from skcurse.theory.icl_concentration import box_probability, count_event, l1_tail


@pytest.mark.parametrize(
    ("p", "n", "lower", "upper"),
    [
        ([1.0], 3, 3, 3),
        ([0.5, 0.3, 0.2], 6, [1, 0, 1], [4, 3, 6]),
        ([0.5, 0.3, 0.2], 6, 2, 2),
        ([0.5, 0.25, 0.25], 7, 0.5, 3.5),
        ([0.7, 0.3, 0.0], 5, [2, 0, 0], [4, 5, 5]),
        ([0.7, 0.3, 0.0], 5, [0, 0, 1], [5, 5, 5]),
        ([0.25] * 4, 5, [0, 0, 1, 1], [2, 2, 5, 5]),
        ([0.5, 0.5], 4, 3, 4),
    ],
)
def test_box_probability_is_the_sum_of_the_multinomial_law(p, n, lower, upper):
    counts = np.indices((n + 1,) * len(p)).reshape(len(p), -1).T
    counts = counts[counts.sum(axis=1) == n]
    inside = np.all((counts >= lower) & (counts <= upper), axis=1)
    expected = multinomial(n, p).pmf(counts[inside]).sum()
    assert box_probability(p, n, lower, upper) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
@pytest.mark.parametrize("p", [1e-9, 1e-4, 0.03, 0.5])
def test_box_of_two_features_is_a_binomial_interval(n, p):
    law = binom(n, p)
    low, high = np.floor(n * p - law.std()), np.ceil(n * p + law.std())
    expected = law.cdf(high) - law.cdf(low - 1)
    found = box_probability([p, 1 - p], n, [low, 0], [high, n])
    assert found == pytest.approx(expected, abs=1e-11)
    assert box_probability([p, 1 - p], n, 0, n) == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize(("k", "n"), [(10, 100), (50, 5000), (200, 100_000)])
def test_box_probability_is_the_share_of_sampled_counts(k, n):
    rng = np.random.default_rng(k)
    p = rng.dirichlet(np.ones(k))
    width = np.sqrt(2 * np.log(k) * n * p)
    lower, upper = n * p - width, n * p + width
    counts = rng.multinomial(n, p, size=4000)
    share = np.mean(np.all((counts >= lower) & (counts <= upper), axis=1))
    exact = box_probability(p, n, lower, upper)
    assert 0.05 < exact < 0.95
    assert abs(share - exact) < 4 * np.sqrt(exact * (1 - exact) / len(counts))


def test_an_impossible_box_is_empty():
    assert box_probability([0.5, 0.5], 10, 0, 4) == pytest.approx(0, abs=1e-15)
    assert box_probability([0.5, 0.5], 10, 4, 3) == 0
    assert box_probability([0.5, 0.5], 10**6, 0, 10) == 0


@pytest.mark.parametrize("p", [np.full(5, 0.2), np.array([0.6, 0.1, 0.1, 0.1, 0.1])], ids=str)
@pytest.mark.parametrize("width", [0.6, 1.0, 2.0])
def test_the_event_is_at_least_as_likely_as_its_bound(p, width):
    event = count_event(p, 20_000, width)
    np.testing.assert_allclose(event.upper - 20_000 * p, 20_000 * width / 5)
    np.testing.assert_allclose(20_000 * p - event.lower, 20_000 * width / 5)
    assert event.bound == pytest.approx(1 - 3 * np.exp(-(width**2) * 20_000 / 625))
    assert event.bound <= event.probability <= 1


def test_the_bound_is_nan_where_its_premise_fails():
    assert np.isnan(count_event(np.full(5, 0.2), 20_000, 0.3).bound)
    assert np.isnan(count_event(np.full(5, 0.2), 20_000, 5.1).bound)
    assert np.isnan(l1_tail([0.5, 0.5], 10, 0.5, rng=np.random.default_rng(0)).bound)


def test_l1_tail_is_the_exact_one_within_its_error():
    p, n, delta = np.array([0.5, 0.3, 0.2]), 12, 0.35
    counts = np.indices((n + 1,) * 3).reshape(3, -1).T
    counts = counts[counts.sum(axis=1) == n]
    far = np.abs(counts - n * p).sum(axis=1) > n * delta
    exact = multinomial(n, p).pmf(counts[far]).sum()
    tail = l1_tail(p, n, delta, rng=np.random.RandomState(0), n_draws=20_000)
    assert tail.standard_error == pytest.approx(np.sqrt(exact * (1 - exact) / 20_000), rel=0.05)
    assert abs(tail.share - exact) < 4 * tail.standard_error
    sure = l1_tail(p, 10_000, 0.9, rng=np.random.default_rng(0), n_draws=50)
    assert sure.share == 0
    assert sure.standard_error == 1 / 50
    assert sure.bound == pytest.approx(3 * np.exp(-10_000 * 0.81 / 25))


@pytest.mark.parametrize(
    "call",
    [
        lambda: box_probability([0.5, 0.5], 4, np.nan, 3),
        lambda: count_event([0.5, 0.5], 4, 0.0),
        lambda: l1_tail([0.5, 0.5], 4, -1.0, rng=np.random.default_rng(0)),
        lambda: l1_tail([0.5, 0.5], 4, 0.1, rng=np.random.default_rng(0), n_draws=0),
    ],
)
def test_bad_arguments_are_named(call):
    with pytest.raises(ValueError, match=r"must (not|be)"):
        call()
