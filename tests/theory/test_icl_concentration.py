"""Probabilities of count events against enumeration, the binomial law and sampling."""

from itertools import product

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


def counts_of(k, n):
    """Give all counts of n tokens on k equally likely features, and how likely each is."""
    counts = np.array([c for c in product(range(n + 1), repeat=k) if sum(c) == n])
    return counts, multinomial(n, np.full(k, 1 / k)).pmf(counts)


@pytest.mark.parametrize("k", [3, 5, 7, 10, 49])
@pytest.mark.parametrize("c", [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
def test_an_event_with_whole_ends_contains_them(k, c):
    tenths = round(10 * c)
    for n in (10 * k, 30 * k, 70 * k, 1000 * k):
        event = count_event(np.full(k, 1 / k), n, c)
        low, high = n // k * (10 - tenths) // 10, n // k * (10 + tenths) // 10
        assert event.lower.tolist() == [low] * k
        assert event.upper.tolist() == [high] * k
        law = binom(n, 1 / k)
        inside = law.cdf(high) - law.cdf(low - 1)
        # One count alone is at least as likely to be inside, all are by a union bound at least so.
        assert 1 - k * (1 - inside) - 1e-10 <= event.probability <= inside + 1e-10


@pytest.mark.parametrize(("k", "n", "c"), [(3, 9, 1 / 3), (3, 30, 0.3), (3, 30, 0.7), (5, 10, 0.5)])
def test_an_event_with_whole_ends_is_as_likely_as_all_counts_inside(k, n, c):
    counts, law = counts_of(k, n)
    inside = (np.abs(k * counts - n) <= round(c * n)).all(axis=1)  # in integers
    assert count_event(np.full(k, 1 / k), n, c).probability == pytest.approx(law[inside].sum())


def test_the_ends_of_ten_equal_features():
    event = count_event(np.full(10, 0.1), 100, 0.3)
    assert (event.lower == 7).all()
    assert event.probability == pytest.approx(box_probability(np.full(10, 0.1), 100, 7, 13))
    fractional = count_event(np.full(10, 0.1), 100, 0.35)
    np.testing.assert_allclose(fractional.lower, 6.5)


@pytest.mark.parametrize(("k", "n", "tenths"), [(3, 30, 2), (3, 30, 4), (5, 10, 4)])
def test_counts_at_the_very_distance_are_not_further(k, n, tenths):
    counts, law = counts_of(k, n)
    further = np.abs(10 * (k * counts - n)).sum(axis=1) > tenths * n * k  # in integers
    rng = np.random.default_rng(0)
    tail = l1_tail(np.full(k, 1 / k), n, tenths / 10, rng=rng, n_draws=20_000)
    assert abs(tail.share - law[further].sum()) < 4 * tail.standard_error


def test_the_very_distance_of_seventy_tokens():
    rng = np.random.default_rng(0)
    draws = np.random.default_rng(1).multinomial(70, np.full(7, 1 / 7), size=100_000)
    exact = np.mean(np.abs(draws - 10).sum(axis=1) > 14)
    tail = l1_tail(np.full(7, 1 / 7), 70, 0.2, rng=rng, n_draws=20_000)
    assert abs(tail.share - exact) < 4 * tail.standard_error


@pytest.mark.parametrize(
    "call",
    [
        lambda: box_probability([0.5, 0.5], 4, [0, 0, 0], 3),
        lambda: box_probability([0.5, 0.5], 4, 0, [[3, 3]]),
        lambda: count_event([0.5, 0.5], 4, np.inf),
        lambda: l1_tail([0.5, 0.5], 4, 0.1, rng=0),
        lambda: l1_tail([0.5, 0.5], 4, 0.1, rng=np.random.default_rng(0), n_draws=1.5),
        lambda: box_probability([0.5, 0.5], 4, np.nan, 3),
        lambda: count_event([0.5, 0.5], 4, 0.0),
        lambda: l1_tail([0.5, 0.5], 4, -1.0, rng=np.random.default_rng(0)),
        lambda: l1_tail([0.5, 0.5], 4, 0.1, rng=np.random.default_rng(0), n_draws=0),
    ],
)
def test_bad_arguments_are_named(call):
    with pytest.raises(ValueError, match=r"must (not|be)"):
        call()
