"""The estimator trained on simulated prompts follows the exact population dynamics."""

import numpy as np
import pytest

from skcurse.datasets import ICLPrompts
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
from skcurse.theory.icl_floors import loss_infimum, loss_lower_bound
from skcurse.theory.icl_population import population_descent, population_gradient

N_CONTEXT, ETA, N_ITER = 16, 4.0, 60
P = np.array([0.4, 0.3, 0.2, 0.1])
SEEDS = range(16)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def prompts(task_law="gaussian"):
    return ICLPrompts(N_CONTEXT, len(P), P, dim=6, task_law=task_law)


def logits_of(estimator, features):
    """Row k holds the logits of query feature k: A_k at k, B_{k,n} at n."""
    own, other = estimator.bilinear_weights(features)
    return np.where(np.eye(len(own), dtype=bool), np.diag(own), other)


def train(n_prompts, seed, model=None, **settings):
    """Logits and loss curve of an estimator trained on a sample of `model`."""
    model = model or prompts()
    settings = {"learning_rate": ETA, "max_iter": N_ITER, "tol": 0.0} | settings
    estimator = SoftmaxICLRegressor(model.n_context, **settings)
    estimator.fit(*model.sample(n_prompts, random_state=seed))
    return estimator, logits_of(estimator, model.features())


def exact_loss(logits, p, n_context):
    """Population loss of any Q."""
    losses = [population_gradient(row, p, n_context, k).loss for k, row in enumerate(logits)]
    return float(p @ losses)


@pytest.fixture(scope="module")
def population():
    return population_descent(P, N_CONTEXT, learning_rate=ETA, n_iter=N_ITER, record=1)


@pytest.fixture(scope="module")
def deviations(population):
    """Logits of 16 trained estimators less those of the population, for three sample sizes."""
    return {
        n_prompts: np.array([train(n_prompts, seed)[1] - population.logits[-1] for seed in SEEDS])
        for n_prompts in (500, 2000, 8000)
    }


@pytest.mark.parametrize("n_prompts", [2000, 8000])
def test_query_key_of_the_estimator_is_that_of_the_population(deviations, n_prompts):
    sample = deviations[n_prompts]
    error = sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
    assert np.all(np.abs(sample.mean(axis=0)) < 4 * error)


def test_deviation_from_the_population_shrinks_as_prompts_grow(deviations):
    rms = {n: np.sqrt(np.mean(sample**2)) for n, sample in deviations.items()}
    # 16 runs of 16 weights tell an rms to about 10 %, so a slope over a factor 16 to about 0.05.
    slope = np.log(rms[8000] / rms[500]) / np.log(16)
    assert slope == pytest.approx(-0.5, abs=0.2)
    assert rms[8000] < 0.06


def test_loss_curve_of_the_estimator_is_that_of_the_population(population):
    curves = np.array([train(8000, 100 + seed)[0].loss_curve_ for seed in SEEDS])
    exact = population.losses @ P
    assert curves.shape[1] == len(exact)
    error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
    assert np.all(np.abs(curves.mean(axis=0) - exact) < 4 * error)


@pytest.mark.parametrize("task_law", ["gaussian", "rademacher", "uniform"])
def test_the_exact_loss_of_a_trained_q_holds_for_unseen_task_laws(task_law):
    estimator, logits = train(2000, 0)
    X, y = prompts(task_law).sample(40_000, random_state=1)
    half_squares = (estimator.predict(X) - y) ** 2 / 2
    error = half_squares.std(ddof=1) / np.sqrt(len(y))
    assert abs(half_squares.mean() - exact_loss(logits, P, N_CONTEXT)) < 4 * error


def test_attention_of_a_trained_q_is_the_exact_one():
    estimator, logits = train(2000, 0)
    features = prompts().features()
    X, _ = prompts().sample(20_000, random_state=1)
    tokens = X[:, :-6].reshape(len(X), N_CONTEXT, 7)[..., :6]
    token = np.argmax(tokens @ features.T, axis=2)
    query = np.argmax(X[:, -6:] @ features.T, axis=1)
    weights = estimator.attention(X)
    for k in range(len(P)):
        mine = query == k
        shares = np.stack([(weights * (token == n))[mine].sum(axis=1) for n in range(len(P))])
        error = shares.std(axis=1, ddof=1) / np.sqrt(mine.sum())
        exact = population_gradient(logits[k], P, N_CONTEXT, k).attention
        assert np.all(np.abs(shares.mean(axis=1) - exact) < 4 * error)


@pytest.mark.parametrize("p", [np.full(3, 1 / 3), np.array([0.5, 0.3, 0.2])], ids=["even", "mixed"])
def test_the_floor_that_training_reaches_is_the_infimum(p):
    n_context = 4
    model = ICLPrompts(n_context, 3, p)
    _, logits = train(10_000, 0, model, learning_rate=20.0, max_iter=400)
    reached = exact_loss(logits, p, n_context)
    floor, bound = loss_infimum(p, n_context), loss_lower_bound(p, n_context)
    assert floor <= reached < floor + 0.2 * (floor - bound)
