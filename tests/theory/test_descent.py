"""The loop of gradient descent, on objectives whose every iterate is known."""

import itertools

import numpy as np
import pytest

from skcurse.theory.descent import descend, descent_steps, follow


def bowl(curvature, floor=0.0):
    curvature = np.asarray(curvature, dtype=float)

    @np.errstate(over="ignore", invalid="ignore")
    def objective(w):
        return float(np.sum(curvature * w * w) / 2 + floor), curvature * w

    return objective


def stable():
    return 0.125


@pytest.mark.parametrize("rate", [0.05, 0.19])
def test_iterates_are_powers(rate):
    run = descend(
        bowl([1.0, 10.0]),
        np.array([3.0, -2.0]),
        learning_rate=rate,
        largest_stable_rate=stable,
        max_iter=20,
        tol=0.0,
    )
    factors = (1 - rate * np.array([1.0, 10.0])) ** np.arange(21)[:, None]
    np.testing.assert_allclose(run.weights, factors[-1] * [3.0, -2.0], rtol=1e-12)
    np.testing.assert_allclose(run.losses, (factors * [3.0, -2.0]) ** 2 @ [0.5, 5.0], rtol=1e-12)
    assert (run.n_iter, run.converged) == (20, False)


@pytest.mark.parametrize("n_iter_no_change", [1, 7])
@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_run_ends_at_the_first_step_that_meets_the_tolerance(tol, n_iter_no_change):
    run = descend(
        bowl(1.0, floor=1.0),
        np.ones(3),
        learning_rate=0.1,
        largest_stable_rate=stable,
        tol=tol,
        n_iter_no_change=n_iter_no_change,
    )
    change = np.abs(run.losses[n_iter_no_change:] / run.losses[:-n_iter_no_change] - 1)
    assert run.converged
    assert np.all(change[:-1] > tol)
    assert change[-1] <= tol
    assert len(run.losses) == run.n_iter + 1


def test_stationary_start_and_noise_end_the_run():
    options = {"learning_rate": 0.1, "largest_stable_rate": stable}
    assert descend(bowl(1.0, floor=1.0), np.zeros(2), **options).n_iter == 0
    run = descend(bowl(1.0), np.ones(2), noise=1e-3, tol=0.0, **options)
    assert run.losses[-1] <= 1e-3 < run.losses[-2]
    assert run.converged


@pytest.mark.parametrize("factor", [2.5, 20.0, 1e200])
def test_divergence_stops_at_once(factor):
    rate, seen = factor / 10.0, []
    with pytest.raises(ValueError, match=r"learning_rate=.*largest\s+stable .* is 0\.125") as error:
        descend(
            bowl(10.0),
            np.ones(1),
            learning_rate=rate,
            largest_stable_rate=stable,
            watch=lambda step: seen.append(step.loss),
        )
    assert f"{rate:.6g}" in str(error.value)
    # No step beyond the first whose loss is ten times the first one's.
    assert all(loss <= 10 * 5.0 for loss in seen)


def test_run_that_ends_above_twice_its_start_has_diverged():
    for max_iter, factor in ((1, 2.6), (3, 2.2)):
        with pytest.raises(ValueError, match="diverges"):
            descend(
                bowl(1.0),
                np.ones(1),
                learning_rate=factor,
                largest_stable_rate=stable,
                max_iter=max_iter,
            )
    run = descend(bowl(1.0), np.ones(1), learning_rate=2.1, largest_stable_rate=stable, max_iter=1)
    assert not run.converged


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_start_that_overflows_is_an_error_of_the_data(bad, where):
    pair = (bad, np.ones(2)) if where == "loss" else (1.0, np.array([1.0, bad]))
    with pytest.raises(ValueError, match="too large for this model"):
        descend(lambda w: pair, np.ones(2), learning_rate=0.1, largest_stable_rate=stable)


@pytest.mark.parametrize("last", [1, 4])
def test_watch_sees_every_step_after_the_start_and_may_end_the_run(last):
    seen = []

    def watch(step):
        seen.append((step.n_iter, step.weights.copy()))
        return step.n_iter == last

    run = descend(
        bowl(1.0),
        np.ones(1),
        learning_rate=0.5,
        largest_stable_rate=stable,
        tol=0.0,
        max_iter=10,
        watch=watch,
    )
    assert [n for n, _ in seen] == list(range(1, last + 1))
    np.testing.assert_allclose([w[0] for _, w in seen], 0.5 ** np.arange(1, last + 1))
    assert (run.n_iter, run.converged) == (last, True)


def test_step_is_halved_until_it_no_longer_lifts_the_loss_above_the_first():
    # Curvature 10 and step 1.6: |1 - 16| and |1 - 8| and |1 - 4| grow, |1 - 2| does not.
    steps = list(itertools.islice(descent_steps(bowl(10.0), np.ones(1), 1.6, shorten=True), 4))
    assert [step.learning_rate for step in steps] == [1.6, 0.2, 0.2, 0.2]
    np.testing.assert_allclose([step.weights[0] for step in steps], [1, -1, 1, -1], rtol=1e-12)
    plain = list(itertools.islice(descent_steps(bowl(10.0), np.ones(1), 0.15, shorten=True), 4))
    assert {step.learning_rate for step in plain} == {0.15}


def test_shortened_step_comes_to_an_end_where_no_step_helps():
    def cliff(w):
        return (1.0 if np.all(w == 1.0) else np.nan), np.ones(1)

    steps = descent_steps(cliff, np.ones(1), 1.0, shorten=True)
    assert [step.loss for step in itertools.islice(steps, 3)] == [1.0, 1.0, 1.0]


def test_follow_takes_steps_from_anywhere():
    steps = descent_steps(bowl(1.0), np.ones(2), 0.5)
    given = follow(steps, learning_rate=0.5, largest_stable_rate=stable, max_iter=6, tol=0.0)
    made = descend(
        bowl(1.0), np.ones(2), learning_rate=0.5, largest_stable_rate=stable, max_iter=6, tol=0.0
    )
    np.testing.assert_array_equal(given.weights, made.weights)
    np.testing.assert_array_equal(given.losses, made.losses)


@pytest.mark.parametrize(("rise", "shortens"), [(1e-15, False), (1e-9, True)])
def test_a_rise_by_rounding_is_no_reason_for_a_shorter_step(rise, shortens):
    def plateau(w):
        near = abs(float(w[0]) - 1.0) < 1e-3
        return (1.0 if near else 1.0 + rise), np.ones(1)

    steps = descent_steps(plateau, np.ones(1), 1.0, shorten=True)
    _, after = itertools.islice(steps, 2)
    assert (after.learning_rate < 1e-3) == shortens
    assert after.learning_rate == 1.0 or shortens
    flat = descend(plateau, np.ones(1), learning_rate=1.0, largest_stable_rate=stable)
    assert (flat.n_iter, flat.converged) == (10, not shortens)
