"""Population gradient and descent against enumeration, sampling and finite differences."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skcurse.theory.icl_floors import loss_infimum
from skcurse.theory.icl_moments import SPACING, group_gradient, trapezoid_bound
from skcurse.theory.icl_population import population_descent, population_gradient


def compositions(total, parts):
    """All vectors of `parts` non-negative integers that sum to `total`."""
    for bars in itertools.combinations(range(total + parts - 1), parts - 1):
        ends = (-1, *bars, total + parts - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(ends))


def enumerated(logits, p, n_context, query):
    """Lemma 4.1 and Lemma A.6 summed over all counts, in digits enough for what cancels."""
    with mpmath.workdps(40 + int(np.ptp(logits))):
        p = [mpmath.mpf(float(x)) for x in p]
        p = [x / sum(p) for x in p]
        e = [mpmath.exp(float(x)) for x in logits]
        rates, attention, loss = [0] * len(p), [0] * len(p), mpmath.mpf(0)
        for counts in compositions(n_context, len(p)):
            weight = mpmath.factorial(n_context)
            for n, x in zip(counts, p, strict=True):
                weight *= x**n / mpmath.factorial(n)
            if weight == 0:
                continue
            z = sum(n * x for n, x in zip(counts, e, strict=True))
            attn = [n * x / z for n, x in zip(counts, e, strict=True)]
            a = attn[query]
            square = sum(x**2 for m, x in enumerate(attn) if m != query)
            loss += weight * (square + (1 - a) ** 2) / 2
            for n, x in enumerate(attn):
                attention[n] += weight * x
                if n == query:
                    rates[n] += p[query] * weight * a * (square + (1 - a) ** 2)
                else:
                    rates[n] += p[query] * weight * x * (square - x - a * (1 - a))
        return np.array(rates, float), float(loss), np.array(attention, float)


INSTANCES = {
    "one-feature": ([1.0], 3, [2.0], 0),
    "one-token": ([0.5, 0.3, 0.2], 1, [0.3, -1.0, 2.0], 1),
    "two-tokens": ([0.5, 0.3, 0.2], 2, [0.3, -1.0, 2.0], 0),
    "three-tokens": ([0.5, 0.3, 0.2], 3, [0.3, -1.0, 2.0], 2),
    "uniform": ([0.25] * 4, 8, [0.0] * 4, 1),
    "two-features": ([0.1, 0.9], 9, [1.5, 0.0], 0),
    "equal-logits-unequal-p": ([0.6, 0.3, 0.1], 8, [0.7] * 3, 1),
    "trained": ([0.4, 0.2, 0.2, 0.2], 7, [6.0, -1.0, -1.0, -1.0], 0),
    "cancelling-exchange": ([0.2, 0.5, 0.3], 6, [0.0, 0.0, np.log(5 / 3)], 0),
    "wide-up": ([0.5, 0.3, 0.2], 7, [50.0, -50.0, 0.0], 0),
    "wide-down": ([0.5, 0.3, 0.2], 7, [-50.0, 50.0, 0.0], 0),
    "wide-other": ([0.5, 0.3, 0.2], 7, [1.0, 50.0, -50.0], 0),
    "as-wide-as-allowed": ([0.5, 0.3, 0.2], 5, [0.0, 599.0, 300.0], 0),
    "nearly-equal": ([1e-10, 0.5 - 1e-13, 0.5 + 1e-13 - 1e-10], 7, [0.0, 1e-12, 0.0], 0),
    "rare-query": ([1e-9, 0.6, 0.4 - 1e-9], 6, [3.0, 0.0, 1.0], 0),
    "rare-other": ([0.6, 1e-9, 0.4 - 1e-9], 6, [3.0, 40.0, 1.0], 0),
    "absent-other": ([0.6, 0.0, 0.4], 6, [1.0, 90.0, 0.0], 0),
    "absent-query": ([0.0, 0.7, 0.3], 6, [90.0, 1.0, 0.0], 0),
    "never-another": ([1.0, 0.0], 4, [0.0, 1.0], 0),
}
GRID = [(10, 100), (50, 5000), (200, 100_000)]


def random_problem(n_features, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n_features)), scale * rng.normal(size=n_features)


def imbalanced(n_features, dominant=0.5):
    return np.append(dominant, np.full(n_features - 1, (1 - dominant) / (n_features - 1)))


@pytest.mark.parametrize("name", INSTANCES)
def test_gradient_is_the_sum_over_all_counts(name):
    p, n_context, logits, query = INSTANCES[name]
    rates, loss, attention = enumerated(logits, p, n_context, query)
    g = population_gradient(logits, p, n_context, query)
    assert np.all(np.abs(g.rates - rates) <= g.error)
    assert np.all(g.error <= 1e-13)
    np.testing.assert_allclose(g.rates[query], rates[query], rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(g.loss, loss, rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(g.attention, attention, rtol=1e-14, atol=1e-300)


def binomial_weights(n, p):
    """Weights of Binomial(n, p) in extended precision where they exceed 1e-22 of the largest."""
    spread = 11 * np.sqrt(n * p * (1 - p)) + 30
    counts = np.arange(max(0, int(n * p - spread)), min(n, int(n * p + spread)) + 1)
    p, steps = np.longdouble(p), counts[1:].astype(np.longdouble)
    logs = np.append(0, np.cumsum(np.log((n - steps + 1) / steps * (p / (1 - p)))))
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


@pytest.mark.parametrize("query", range(3))
@pytest.mark.parametrize(
    "logits", [[0, 0, 0], [1, 2, 9], [-1.5, 0.5, 14], [50, -50, 0], [0, 50, -50]]
)
def test_a_million_tokens_and_a_feature_of_probability_1e_9(query, logits):
    n_context, p = 10**6, np.array([0.9, 0.1 - 1e-9, 1e-9])
    rare, rare_weights = binomial_weights(n_context, p[2])
    e = np.exp(np.longdouble(logits))
    rates, loss, attention = np.zeros(3, np.longdouble), np.longdouble(0), 0
    for n3, w3 in zip(rare[:9], rare_weights[:9], strict=True):
        n2, weights = binomial_weights(n_context - n3, p[1] / (p[0] + p[1]))
        attn = np.stack([n_context - n3 - n2, n2, np.full(n2.size, n3)], axis=1) * e
        attn /= attn.sum(axis=1, keepdims=True)
        others = np.delete(attn, query, axis=1)
        square, rest, a = (others**2).sum(axis=1), others.sum(axis=1), attn[:, query]
        # The textbook form of beta, less what cancels in it when attention is all on one feature.
        gaps = (others[:, :, None] * (others[:, :, None] - attn[:, None, :])).sum(axis=1)
        terms = attn * (gaps - a[:, None] * (attn + rest[:, None]))
        terms[:, query] = a * (square + rest**2)
        rates += w3 * p[query] * (weights @ terms)
        loss += w3 * (weights @ (square + rest**2)) / 2
        attention = attention + w3 * (weights @ attn)
    g = population_gradient(logits, p, n_context, query)
    assert np.all(np.abs(g.rates - rates) <= g.error)
    np.testing.assert_allclose(g.loss, float(loss), rtol=2e-14)
    np.testing.assert_allclose(g.attention, attention.astype(float), rtol=2e-14)
    np.testing.assert_allclose(g.rates[query], float(rates[query]), rtol=2e-14)


@pytest.mark.parametrize(("n_features", "n_context"), GRID)
def test_gradient_is_the_mean_over_sampled_counts(n_features, n_context):
    p, logits = random_problem(n_features, seed=n_features)
    query = int(np.argmax(p))
    rng = np.random.default_rng(0)
    counts = rng.multinomial(n_context, p, size=3000)
    attn = counts * np.exp(logits)
    attn /= attn.sum(axis=1, keepdims=True)
    a = attn[:, query]
    square = (np.delete(attn, query, axis=1) ** 2).sum(axis=1)
    terms = attn * (square[:, None] - attn - (a * (1 - a))[:, None])
    terms[:, query] = a * (square + (1 - a) ** 2)
    losses = (square + (1 - a) ** 2) / 2
    g = population_gradient(logits, p, n_context, query)
    for exact, sample in [
        (g.rates, p[query] * terms),
        (g.attention, attn),
        (g.loss, losses[:, None]),
    ]:
        error = sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
        assert np.max(np.abs(sample.mean(axis=0) - exact) / error) < 4


@pytest.mark.parametrize("scale", [0.0, 1.0, 8.0])
@pytest.mark.parametrize(("n_features", "n_context"), GRID)
def test_doubling_the_nodes_changes_nothing(n_features, n_context, scale):
    p, logits = random_problem(n_features, scale=scale)
    g = population_gradient(logits, p, n_context, 0)
    twice = population_gradient(logits, p, n_context, 0, spacing=0.1)
    assert twice.loss == pytest.approx(g.loss, rel=1e-13)
    np.testing.assert_allclose(twice.attention, g.attention, rtol=1e-13)
    assert twice.rates[0] == pytest.approx(g.rates[0], rel=1e-13)
    np.testing.assert_allclose(twice.rates, g.rates, rtol=1e-8)
    assert np.all(np.abs(twice.rates - g.rates) <= g.error)


@pytest.mark.parametrize("spacing", [0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("name", ["two-tokens", "uniform", "wide-other", "trained"])
def test_quadrature_error_stays_below_its_bound(name, spacing):
    p, n_context, logits, query = INSTANCES[name]
    exact = population_gradient(logits, p, n_context, query)
    coarse = population_gradient(logits, p, n_context, query, spacing=spacing)
    bound = trapezoid_bound(spacing) + 1e-14
    assert abs(coarse.loss / exact.loss - 1) <= bound
    assert np.all(np.abs(coarse.attention / exact.attention - 1) <= bound)
    assert np.all(np.abs(coarse.rates - exact.rates) <= coarse.error)


@pytest.mark.parametrize("spacing", [0.1, SPACING, 0.5, 1.0])
def test_the_bound_is_the_smallest_over_the_width_of_the_strip(spacing):
    angle = np.linspace(0.01, np.pi / 2, 10_001, endpoint=False)
    bounds = 2 * np.cos(angle) ** -3 / np.expm1(2 * np.pi * angle / spacing)
    assert trapezoid_bound(spacing) == pytest.approx(bounds.min(), rel=0.05 * spacing)
    assert trapezoid_bound(SPACING) < 2e-17


@pytest.mark.parametrize(("n_features", "n_context"), [(3, 4), (6, 40), (20, 10_000)])
def test_rates_are_minus_p_query_times_the_derivative_of_the_loss(n_features, n_context):
    p, logits = random_problem(n_features, seed=1)
    query = 1
    step = 1e-3 * np.eye(n_features)

    def loss(x):
        return population_gradient(x, p, n_context, query).loss

    slopes = np.array(
        [
            (
                8 * (loss(logits + s) - loss(logits - s))
                - loss(logits + 2 * s)
                + loss(logits - 2 * s)
            )
            / 12e-3
            for s in step
        ]
    )
    rates = population_gradient(logits, p, n_context, query).rates
    np.testing.assert_allclose(rates, -p[query] * slopes, atol=1e-11)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 10**6),
    st.floats(0, 20),
    st.integers(0, 2**32 - 1),
)
def test_symmetries(n_features, n_context, scale, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_features, 0.5)) + 1e-9
    p /= p.sum()
    logits = scale * rng.normal(size=n_features)
    g = population_gradient(logits, p, n_context, 0)
    assert g.rates[0] >= 0
    assert g.attention.sum() == pytest.approx(1, rel=1e-13)
    # The loss does not change when every logit moves by the same amount.
    assert abs(g.rates.sum()) <= g.error.sum()
    moved = population_gradient(logits + 7.0, p, n_context, 0)
    np.testing.assert_allclose(moved.rates, g.rates, rtol=1e-10, atol=1e-13)
    order = rng.permutation(n_features)
    permuted = population_gradient(logits[order], p[order], n_context, int(np.argmin(order)))
    np.testing.assert_allclose(permuted.rates, g.rates[order], rtol=1e-10, atol=1e-13)
    assert g.loss >= loss_infimum(p, n_context, query=0) * (1 - 1e-9)


def test_equal_features_are_one_group_and_exchange_nothing():
    p, logits = np.full(40, 1 / 40), np.append(2.0, np.zeros(39))
    g = population_gradient(logits, p, 500, 0)
    apart = group_gradient(logits, p, np.ones(40), 500)
    np.testing.assert_allclose(g.rates, p[0] * apart.rates, rtol=1e-13)
    np.testing.assert_allclose(g.attention, apart.attention, rtol=1e-13)
    assert g.loss == pytest.approx(apart.loss, rel=1e-14)
    np.testing.assert_allclose(g.rates[1:], -g.rates[0] / 39, rtol=1e-14)


def test_probabilities_may_be_off_by_single_precision():
    p, logits = random_problem(5)
    exact = population_gradient(logits, p, 30, 2)
    rounded = population_gradient(logits, p * (1 + 3e-7), 30, 2)
    np.testing.assert_allclose(rounded.rates, exact.rates, rtol=1e-13)


def test_absent_features_are_as_if_left_out():
    p, logits = random_problem(5)
    here = population_gradient(logits, p, 30, 2)
    wider = population_gradient(np.insert(logits, 1, 400.0), np.insert(p, 1, 0.0), 30, 3)
    np.testing.assert_array_equal(np.delete(wider.rates, 1), here.rates)
    assert wider.rates[1] == wider.attention[1] == wider.error[1] == 0
    assert wider.loss == here.loss


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [0.5, 0.4]}, "sum to 1"),
        ({"p": [1.5, -0.5]}, "non-negative"),
        ({"p": [np.nan, 1.0]}, "finite"),
        ({"p": [[0.5, 0.5]]}, "vector"),
        ({"p": []}, "non-empty"),
        ({"n_context": 0}, "n_context"),
        ({"n_context": 2.5}, "n_context"),
        ({"n_context": True}, "n_context"),
        ({"query": 2}, r"\[0, 2\)"),
        ({"query": -1}, r"\[0, 2\)"),
        ({"query": 0.5}, r"\[0, 2\)"),
        ({"logits": [0.0]}, "shape"),
        ({"logits": [0.0, np.inf]}, "finite"),
        ({"logits": [0.0, 700.0]}, "span 700"),
        ({"spacing": 0.0}, "spacing"),
        ({"spacing": 2.0}, "spacing"),
    ],
)
def test_gradient_names_what_is_wrong(change, message):
    problem = {"logits": [0.0, 1.0], "p": [0.5, 0.5], "n_context": 4, "query": 0} | change
    with pytest.raises(ValueError, match=message):
        population_gradient(**problem)


@pytest.mark.parametrize(
    "p", [[0.5, 0.2, 0.2, 0.1], [0.25] * 4, [0.7, 0.15, 0.15, 0.0]], ids=["mixed", "even", "absent"]
)
def test_descent_repeats_the_gradient(p):
    eta, n_iter = 3.0, 40
    run = population_descent(p, 12, learning_rate=eta, n_iter=n_iter)
    assert run.steps.tolist() == list(range(n_iter + 1))
    assert run.queries.tolist() == [0, 1, 2, 3]
    for i, query in enumerate(run.queries):
        logits = np.zeros(4)
        for t in run.steps:
            g = population_gradient(logits, p, 12, int(query))
            np.testing.assert_allclose(run.logits[t, i], logits, rtol=1e-11, atol=1e-14)
            np.testing.assert_allclose(run.rates[t, i], g.rates, rtol=1e-11, atol=1e-15)
            np.testing.assert_allclose(run.attention[t, i], g.attention, rtol=1e-11)
            assert run.losses[t, i] == pytest.approx(g.loss, rel=1e-12)
            logits = logits + eta * g.rates


def test_small_steps_lower_the_loss_and_raise_the_own_weight():
    run = population_descent(imbalanced(8), 60, learning_rate=1.0, n_iter=400)
    assert np.all(np.diff(run.losses, axis=0) < 0)
    own = run.logits[:, np.arange(8), run.queries]
    assert np.all(np.diff(own, axis=0) > 0)


@pytest.mark.parametrize(
    ("record", "steps"),
    [
        (4, [0, 4, 8, 10]),
        ([3, 5], [0, 3, 5, 10]),
        (np.array([10]), [0, 10]),
        (None, list(range(11))),
    ],
)
def test_recorded_steps_do_not_change_the_run(record, steps):
    every = population_descent([0.6, 0.4], 9, learning_rate=2.0, n_iter=10, record=1)
    some = population_descent([0.6, 0.4], 9, learning_rate=2.0, n_iter=10, record=record)
    assert some.steps.tolist() == steps
    np.testing.assert_array_equal(some.logits, every.logits[steps])


def test_long_runs_record_log_spaced_steps():
    run = population_descent([0.6, 0.4], 9, learning_rate=2.0, n_iter=1500, queries=[1])
    assert run.steps[0] == 0
    assert run.steps[-1] == 1500
    assert 400 < run.steps.size <= 1001
    assert np.all(np.diff(run.steps) <= 1 + 0.01 * run.steps[1:])
    assert run.queries.tolist() == [1]


def test_descent_stops_at_the_first_step_within_epsilon_of_the_floor():
    p, n_context, epsilon = imbalanced(5), 30, [0.2, 0.01, 0.05]
    run = population_descent(
        p, n_context, learning_rate=1.0, n_iter=9999, record=1, epsilon=epsilon
    )
    assert run.steps[-1] == run.reached.max() < 9999
    for i, query in enumerate(run.queries):
        gaps = run.losses[:, i] - loss_infimum(p, n_context, query=int(query))
        for step, eps in zip(run.reached[i], epsilon, strict=True):
            assert gaps[step] <= eps
            assert np.all(gaps[:step] > eps)
    sparse = population_descent(
        p, n_context, learning_rate=1.0, n_iter=9999, record=9999, epsilon=epsilon
    )
    assert sparse.steps.tolist() == [0, run.reached.max()]
    np.testing.assert_array_equal(sparse.logits[-1], run.logits[-1])
    short = population_descent(p, n_context, learning_rate=1.0, n_iter=3, epsilon=0.01)
    assert short.steps[-1] == 3
    assert np.all(short.reached == -1)


def test_one_query_is_a_list_of_one():
    settings = {"learning_rate": 1.0, "n_iter": 3}
    alone = population_descent([0.5, 0.25, 0.25], 10, queries=1, **settings)
    listed = population_descent([0.5, 0.25, 0.25], 10, queries=[1], **settings)
    for one, other in zip(alone, listed, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": np.inf}, "learning_rate"),
        ({"learning_rate": 1e5}, "learning rate"),
        ({"n_iter": -1}, "n_iter"),
        ({"n_iter": 1.5}, "n_iter"),
        ({"queries": []}, "queries"),
        ({"queries": [5]}, "query"),
        ({"queries": 5}, "query"),
        ({"queries": 0.5}, "query"),
        ({"queries": [[0, 1]]}, "queries"),
        ({"record": 0}, "record"),
        ({"record": [11]}, "record"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_descent_names_what_is_wrong(change, message):
    settings = {"learning_rate": 1.0, "n_iter": 10} | change
    with pytest.raises(ValueError, match=message):
        population_descent([0.6, 0.4], 9, **settings)
