"""Phases of exact runs, stage-wise convergence and the predicted iteration counts."""

import numpy as np
import pytest

from skcurse.theory.icl_phases import predicted_iterations, training_phases
from skcurse.theory.icl_population import Trajectory, population_descent


def imbalanced(n_features, dominant=0.5):
    return np.append(dominant, np.full(n_features - 1, (1 - dominant) / (n_features - 1)))


def made_up(p, own, lead, own_rate, lead_rate, query=1):
    """A trajectory of one query with chosen paths of A, B_1 and their rates, others at 0."""
    n_steps, k = len(own), len(p)
    logits, rates = np.zeros((2, n_steps, 1, k))
    logits[:, 0, query], rates[:, 0, query] = own, own_rate
    if query:
        logits[:, 0, 0], rates[:, 0, 0] = lead, lead_rate
    steps = 10 * np.arange(n_steps)
    empty = np.empty((n_steps, 1))
    reached = np.empty((1, 0), dtype=np.intp)
    return Trajectory(
        steps, np.array([query]), logits, empty, logits, rates, reached, np.array(p), 10, 1.0
    )


def test_phases_begin_where_the_thresholds_are_met():
    log_k = np.log(4)
    run = made_up(
        [0.7, 0.1, 0.1, 0.1],
        own=log_k * np.array([0, 0.1, 0.2, 0.4, 0.6, 0.9, 1.0, 1.2]),
        lead=log_k * np.array([0, -0.4, -0.5, -0.5, -0.5, -0.5, -0.5, -0.4]),
        own_rate=[1, 1, 1, 2, 2, 2, 2, 2],
        lead_rate=[-3, -2, -1.5, -2, -1, 0, 0, 0],
    )
    phases = training_phases(run, 1)
    assert phases.kind == "under-represented"
    assert phases.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert phases.starts.tolist() == [0, 20, 40, 60]
    assert phases.lead_switch == 30
    strict = training_phases(run, 1, fall=0.51)
    assert strict.starts.tolist() == [0, -1, -1, -1]
    assert training_phases(run, 1, gap=1.45).starts.tolist() == [0, 20, 60, 60]
    assert training_phases(run, 1, growth=1.1).starts.tolist() == [0, 20, 40, 70]
    # Only the dominant feature is a rival, even when another one moves faster.
    run.rates[:, 0, 2] = 9.0
    assert training_phases(run, 1).lead_switch == 30
    # With a looser notion of dominance the same run has no dominant feature, and two phases.
    loose = training_phases(run, 1, dominance=8.0)
    assert loose.kind == "balanced"
    assert loose.lead_switch == -1
    assert loose.starts.tolist() == [0, 60]


def test_the_dominant_feature_converges_at_once():
    run = made_up([0.7, 0.1, 0.1, 0.1], [0.0, 0.1], None, [1, 1], None, query=0)
    phases = training_phases(run, 0)
    assert phases.kind == "dominant"
    assert phases.names == ("convergence",)
    assert phases.starts.tolist() == [0]
    assert phases.labels.tolist() == [0, 0]
    assert phases.lead_switch == 0


def test_a_query_that_was_not_followed_is_named():
    run = population_descent(imbalanced(4), 10, learning_rate=1.0, n_iter=2, queries=[1, 2])
    with pytest.raises(ValueError, match=r"query 3, only \[1, 2\]"):
        training_phases(run, 3)


@pytest.mark.parametrize("n_context", [5000, 100_000])
def test_an_under_represented_feature_passes_four_phases_in_order(n_context):
    k = 50
    run = population_descent(
        imbalanced(k), n_context, learning_rate=5.0, n_iter=2000, queries=[7], record=1
    )
    phases = training_phases(run, 7)
    assert phases.kind == "under-represented"
    assert np.all(np.diff(phases.starts) > 0)
    assert phases.starts[0] == 0
    own, lead = run.logits[:, 0, 7], run.logits[:, 0, 0]
    others = np.delete(run.logits[:, 0], [0, 7], axis=1)
    first, second, third, fourth = phases.starts
    # Phase I: the dominant logit falls further than the own one grows, the others stay near 0.
    assert -lead[second] > own[second] > 0
    # Phase II: the lead switches, so over it the own logit moves further.
    assert own[third] - own[second] > lead[second] - lead[third]
    # Phase III: the own logit grows while the dominant one hardly moves.
    assert own[fourth] - own[third] > 5 * (lead[third] - lead[fourth])
    assert np.all(np.abs(others[: fourth + 1]) < 0.1)
    # The rates switch once: the own rate trails before and leads ever after.
    rates = run.rates[:, 0]
    leads = rates[:, 7] >= np.abs(rates[:, 0])
    assert np.all(leads == (run.steps >= phases.lead_switch))
    assert first < phases.lead_switch < second


def test_a_balanced_feature_passes_two_phases():
    run = population_descent(
        np.full(20, 0.05), 2000, learning_rate=10.0, n_iter=600, queries=[3], record=1
    )
    phases = training_phases(run, 3)
    assert phases.kind == "balanced"
    assert phases.names == ("growth of target feature", "convergence")
    assert 0 < phases.starts[1] < 600
    assert run.logits[phases.starts[1], 0, 3] >= np.log(20) > run.logits[phases.starts[1] - 1, 0, 3]
    assert phases.lead_switch == 0


@pytest.mark.parametrize("eta", [1.0, 5.0])
@pytest.mark.parametrize(("n_features", "n_context"), [(10, 1000), (20, 1000)])
def test_the_dominant_feature_is_learnt_first(n_features, n_context, eta):
    epsilon = [0.1, 0.03, 0.01]
    run = population_descent(
        imbalanced(n_features),
        n_context,
        learning_rate=eta,
        n_iter=10_000,
        queries=[0, 1],
        epsilon=epsilon,
        record=10_000,
    )
    dominant, other = run.reached
    assert np.all(dominant >= 0)
    assert np.all(dominant < other)
    # Stage-wise: even the loosest goal of the others comes after the tightest of the dominant one.
    assert dominant.max() < other.min()


def test_predicted_iterations_are_the_rates_of_the_theorems():
    k, eta, eps = 8.0, 0.5, 0.04
    expected = np.log(k) * 64 / eta + k * np.log(k / 0.2) / (eta * eps)
    assert predicted_iterations(8, eta, eps) == pytest.approx(expected, rel=1e-14)
    expected = np.log(1 / 0.2) / (eta * eps)
    assert predicted_iterations(8, eta, eps, dominant=True) == pytest.approx(expected, rel=1e-14)
    grid = predicted_iterations(np.array([[8], [9]]), eta, [0.1, 0.2, 0.3])
    assert grid.shape == (2, 3)


BAD_ARGUMENTS = [
    (1, 1.0, 0.1),
    (2.5, 1.0, 0.1),
    ([4, np.nan], 1.0, 0.1),
    (np.inf, 1.0, 0.1),
    ("5", 1.0, 0.1),
    (5, 0.0, 0.1),
    (5, np.inf, 0.1),
    (5, 1.0, 1.0),
    (5, 1.0, np.nan),
]


@pytest.mark.parametrize("args", BAD_ARGUMENTS)
def test_predicted_iterations_name_what_is_wrong(args):
    with pytest.raises(ValueError, match="epsilon in"):
        predicted_iterations(*args)


@pytest.mark.parametrize("dominant", ["no", 1, None])
def test_dominant_is_yes_or_no(dominant):
    with pytest.raises(ValueError, match="dominant must be True or False"):
        predicted_iterations(5, 1.0, 0.1, dominant=dominant)
    assert predicted_iterations(5, 1.0, 0.1, dominant=np.True_) > 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, [np.nan, np.inf, 0.0, -5.0]) for name in ("fall", "gap", "growth")),
        ("dominance", [np.nan, np.inf, -1.0, 0.5]),
    ],
)
def test_thresholds_out_of_range_are_named(name, values):
    run = population_descent([0.5, 0.25, 0.25], 10, learning_rate=1.0, n_iter=2)
    for value in values:
        with pytest.raises(ValueError, match=f"{name} must be"):
            training_phases(run, 1, **{name: value})
