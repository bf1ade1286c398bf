"""SoftmaxICLRegressor passes scikit-learn's checks and is what it claims to be."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcurse.datasets import ICLPrompts, make_icl_prompts, pack_prompts, unpack_prompts
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
from skcurse.theory.counted_prompts import CountedPrompts
from skcurse.theory.softmax_icl import loss_gradient

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ROWS = [
    SoftmaxICLRegressor(),
    SoftmaxICLRegressor(alpha=0.1),
    SoftmaxICLRegressor(max_iter=5),
    SoftmaxICLRegressor(early_stopping=True, validation_fraction=0.2, random_state=0),
    SoftmaxICLRegressor(early_stopping=True, max_iter=5, n_iter_no_change=2, random_state=1),
]


@parametrize_with_checks(ROWS)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ROWS, ids=repr)
def test_no_poor_score_is_claimed(estimator):
    assert not get_tags(estimator).regressor_tags.poor_score


def regression(n=60, d=3, seed=0, outputs=()):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=(d, *outputs)) + 0.1 * rng.normal(size=(n, *outputs))
    return X, 5.0 + y


def brute_force(X, y, query, query_key, without=None):
    """Attend from one query to all rows but one."""
    if without is not None:
        X, y = np.delete(X, without, axis=0), np.delete(y, without, axis=0)
    odds = np.exp([x @ query_key @ query for x in X])
    return odds @ y / odds.sum()


# ---- rows ----


@pytest.mark.parametrize("outputs", [(), (1,), (2,)])
def test_rows_attend_to_all_rows_and_loo_to_all_others(outputs):
    X, y = regression(outputs=outputs)
    model = SoftmaxICLRegressor(max_iter=20).fit(X, y)
    new = regression(7, seed=1)[0]
    Q = model.query_key_
    expected = np.array([brute_force(X, y, q, Q) for q in new])
    np.testing.assert_allclose(model.predict(new), expected, rtol=1e-10)
    expected = np.array([brute_force(X, y, q, Q, i) for i, q in enumerate(X)])
    np.testing.assert_allclose(model.loo_prediction_, expected, rtol=1e-10)
    assert model.predict(new).shape == (7, *outputs)
    weights = model.attention(new)
    np.testing.assert_allclose(np.tensordot(weights, y, axes=1), model.predict(new), rtol=1e-10)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-14)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_loss_curve_holds_leave_one_out_errors(alpha):
    X, y = regression()
    model = SoftmaxICLRegressor(max_iter=20, alpha=alpha).fit(X, y)
    others = (y.sum() - y) / (len(y) - 1)  # Q = 0 attends to all others alike
    assert model.loss_curve_[0] == pytest.approx(0.5 * np.mean((others - y) ** 2), rel=1e-12)
    last = 0.5 * np.mean((model.loo_prediction_ - y) ** 2)
    last += 0.5 * alpha * (model.query_key_**2).sum()
    assert model.loss_curve_[-1] == pytest.approx(last, rel=1e-12)
    assert len(model.loss_curve_) == model.n_iter_ + 1
    assert (np.diff(model.loss_curve_) <= 1e-13).all()


@pytest.mark.parametrize("early_stopping", [False, True])
def test_weights_are_multiplicities(early_stopping):
    X, y = regression(20)
    times = np.r_[0, 0, 2, 3, np.ones(16, dtype=int)]
    settings = {"max_iter": 15, "early_stopping": early_stopping, "random_state": 0}
    weighted = SoftmaxICLRegressor(**settings).fit(X, y, sample_weight=times)
    order = np.random.default_rng(1).permutation(times.sum())
    repeated = SoftmaxICLRegressor(**settings).fit(
        X.repeat(times, axis=0)[order], y.repeat(times)[order]
    )
    new = regression(7, seed=1)[0]
    np.testing.assert_allclose(weighted.query_key_, repeated.query_key_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(weighted.predict(new), repeated.predict(new), rtol=1e-9)
    np.testing.assert_allclose(
        weighted.loo_prediction_.repeat(times)[order], repeated.loo_prediction_, rtol=1e-9
    )


def test_a_row_twice_sees_its_twin():
    X, y = regression(12)
    model = SoftmaxICLRegressor(learning_rate=1e-9, max_iter=1).fit(
        X, y, sample_weight=np.r_[2.0, np.ones(11)]
    )
    assert model.loo_prediction_[0] == pytest.approx(y.mean(), rel=1e-6)
    assert model.loo_prediction_[1] == pytest.approx((y[0] + y.sum() - y[1]) / 12, rel=1e-6)


def test_one_row_of_weight_two_is_two_rows():
    model = SoftmaxICLRegressor(max_iter=1).fit([[1.0]], [3.0], sample_weight=[2.0])
    assert model.loo_prediction_ == pytest.approx([3.0])


def test_rows_generalise():
    X, y = make_regression(200, 10, n_informative=2, noise=5.0, random_state=0)
    train_X, test_X, train_y, test_y = train_test_split(X, y, random_state=0)
    assert SoftmaxICLRegressor().fit(train_X, train_y).score(test_X, test_y) > 0.7


def test_a_training_row_is_predicted_with_the_help_of_its_own_label():
    X, y = regression()
    model = SoftmaxICLRegressor(max_iter=50).fit(X, y)
    own = np.diag(model.attention(X))
    assert own.max() > 10 / len(X)  # far from the uniform attention of the start
    np.testing.assert_allclose(
        y - model.predict(X), (1 - own) * (y - model.loo_prediction_), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(
    ("X", "weight"), [(np.ones((1, 2)), None), (np.eye(3), [0.0, 1.0, 0.0])], ids=["1 row", "of 3"]
)
def test_one_row_has_no_context(X, weight):
    with pytest.raises(ValueError, match=r"n_samples=1\b"):
        SoftmaxICLRegressor().fit(X, np.arange(len(X)), sample_weight=weight)


@pytest.mark.parametrize("X", [np.zeros((6, 2)), np.ones((6, 2)), np.repeat(np.eye(2), 3, axis=0)])
def test_constant_zero_and_duplicate_rows_are_averages(X):
    y = np.array([1.0, 2.0, 3.0, 5.0, 6.0, 7.0])
    prediction = SoftmaxICLRegressor().fit(X, y).predict(X)
    assert np.isfinite(prediction).all()
    for row in np.unique(X, axis=0):
        alike = prediction[(row == X).all(axis=1)]
        np.testing.assert_allclose(alike, alike[0], rtol=1e-12)
    if len(np.unique(X, axis=0)) == 1:
        np.testing.assert_allclose(prediction, y.mean(), rtol=1e-12)


def test_constant_labels_are_learned_at_once():
    X, _ = regression()
    model = SoftmaxICLRegressor().fit(X, np.full(len(X), 0.1))
    np.testing.assert_allclose(model.predict(X), 0.1, rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-40, 1e-9, 1e9, 1e40])
@pytest.mark.parametrize("which", ["X", "y"])
def test_units_do_not_matter(which, scale):
    X, y = regression()
    x_scale, y_scale = (scale, 1.0) if which == "X" else (1.0, scale)
    model = SoftmaxICLRegressor(max_iter=20).fit(X, y)
    scaled = SoftmaxICLRegressor(max_iter=20).fit(x_scale * X, y_scale * y)
    np.testing.assert_allclose(scaled.predict(x_scale * X) / y_scale, model.predict(X), rtol=1e-9)


def test_an_offset_of_the_labels_is_an_offset_of_the_predictions():
    X, y = regression()
    model = SoftmaxICLRegressor(max_iter=20).fit(X, y)
    shifted = SoftmaxICLRegressor(max_iter=20).fit(X, y + 1e6)
    np.testing.assert_allclose(shifted.predict(X) - 1e6, model.predict(X), rtol=0, atol=1e-7)


@pytest.mark.parametrize("value", [1e300, 1e-300, 1e100])
@pytest.mark.parametrize("which", ["X", "y"])
def test_values_that_cannot_be_computed_with_are_named(which, value):
    X, y = regression()
    data = {"X": X, "y": y}
    data[which] = data[which] / np.abs(data[which]).max() * value
    with pytest.raises(ValueError, match=f"largest magnitude in {which}.*Rescale"):
        SoftmaxICLRegressor().fit(**data)


def test_a_query_too_large_to_score_is_an_error():
    model = SoftmaxICLRegressor(max_iter=5).fit(*regression())
    model.query_key_ = 10.0 * np.eye(3)
    for method in (model.predict, model.attention):
        assert np.isfinite(method(np.full((1, 3), 1e300))).all()
        with pytest.raises(ValueError, match="rescale the features"):
            method(np.full((1, 3), 1e308))


# ---- prompts ----


def test_gradient_descent_on_prompts_is_the_recursion_on_token_form():
    X, y = make_icl_prompts(40, 12, 4, dim=5, noise=0.1, random_state=0)
    model = SoftmaxICLRegressor(12, learning_rate=2.0, max_iter=8, tol=0.0).fit(X, y)
    tokens, labels, query = unpack_prompts(X, 12)
    Q = np.zeros((5, 5))
    for n_iter in range(9):
        loss, gradient = loss_gradient(tokens, labels, query, y, Q)
        assert model.loss_curve_[n_iter] == pytest.approx(loss, rel=1e-12)
        if n_iter < 8:
            Q = Q - 2.0 * gradient
    np.testing.assert_allclose(model.query_key_, Q, rtol=1e-10, atol=1e-13)
    assert model.n_iter_ == 8
    assert model.learning_rate_ == 2.0


def test_steps_on_repeated_tokens_are_taken_by_counts(monkeypatch):
    batches = []
    monkeypatch.setattr(
        "skcurse.estimators.softmax_icl.descend",
        lambda learner, training, *_: batches.append(training),
    )
    for n_context, vocabulary in ((10, 4), (1000, 4), (10, 50)):
        X, y = make_icl_prompts(30, n_context, vocabulary, random_state=0)
        SoftmaxICLRegressor(n_context).fit(X, y)
    assert [isinstance(batch, CountedPrompts) for batch in batches] == [True, True, False]
    assert batches[0].counts.shape == batches[1].counts.shape == (30, 4)


def test_prompts_are_learned_and_order_in_context_changes_nothing():
    X, y = make_icl_prompts(800, 20, 4, dim=6, random_state=0)
    new_X, new_y = make_icl_prompts(800, 20, 4, dim=6, random_state=1)
    model = SoftmaxICLRegressor(20, max_iter=500).fit(X, y)
    assert model.score(new_X, new_y) > 0.97
    tokens, labels, query = unpack_prompts(new_X, 20)
    order = np.random.default_rng(2).permutation(20)
    shuffled = pack_prompts(tokens[:, order], labels[:, order], query)
    np.testing.assert_allclose(model.predict(shuffled), model.predict(new_X), rtol=0, atol=1e-12)
    weights = model.attention(new_X)
    np.testing.assert_allclose((weights * labels).sum(axis=1), model.predict(new_X), atol=1e-12)


def test_two_labels_share_one_attention():
    rng = np.random.default_rng(0)
    keys = np.eye(4)
    which, asked = rng.integers(4, size=(200, 16)), rng.integers(4, size=200)
    tasks = rng.normal(size=(200, 4, 2))
    labels = np.take_along_axis(tasks, which[:, :, None], axis=1)
    y = tasks[np.arange(200), asked]
    X = pack_prompts(keys[which], labels, keys[asked])
    both = SoftmaxICLRegressor(16, learning_rate=2.0, max_iter=10).fit(X, y)
    assert both.predict(X).shape == (200, 2)
    # Twice as many prompts with one label each have half the loss, hence half the gradient.
    one_each = np.vstack([pack_prompts(keys[which], labels[:, :, j], keys[asked]) for j in (0, 1)])
    split = SoftmaxICLRegressor(16, learning_rate=4.0, max_iter=10).fit(one_each, y.T.ravel())
    np.testing.assert_allclose(both.query_key_, split.query_key_, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(both.predict(X).T.ravel(), split.predict(one_each), rtol=1e-9)


def test_prompt_weights_are_multiplicities():
    X, y = make_icl_prompts(50, 10, 4, random_state=0)
    times = np.random.default_rng(1).integers(0, 3, size=50)
    weighted = SoftmaxICLRegressor(10, max_iter=20).fit(X, y, sample_weight=times)
    repeated = SoftmaxICLRegressor(10, max_iter=20).fit(X.repeat(times, axis=0), y.repeat(times))
    np.testing.assert_allclose(weighted.query_key_, repeated.query_key_, rtol=1e-9, atol=1e-12)


def test_bilinear_weights_follow_definition_4_1():
    model = ICLPrompts(12, 4, "imbalanced", dim=6)
    V = model.features()
    estimator = SoftmaxICLRegressor(12, max_iter=20).fit(*model.sample(200, random_state=0))
    A, B = estimator.bilinear_weights(V)
    Q = estimator.query_key_
    for k in range(4):
        assert A[k] == pytest.approx(V[k] @ Q @ V[k], abs=1e-13)
        assert np.isnan(B[k, k])
        for n in set(range(4)) - {k}:
            assert B[k, n] == pytest.approx(V[n] @ Q @ V[k], abs=1e-13)
    assert abs(B[0, 1] - B[1, 0]) > 1e-3  # not symmetric, so an exchange would be seen
    with pytest.raises(ValueError, match="6 columns"):
        estimator.bilinear_weights(V[:, :5])


@pytest.mark.parametrize(("columns", "nearest"), [(30, "26 (d=2) and 35 (d=3)"), (5, "17 (d=1)")])
def test_columns_that_fit_no_prompt_are_explained(columns, nearest):
    with pytest.raises(ValueError, match="the tokens in order") as error:
        SoftmaxICLRegressor(8).fit(np.zeros((4, columns)), np.zeros(4))
    assert f"X has {columns} columns; the nearest valid counts are {nearest}" in str(error.value)


UNSEEN_LAWS = {
    "rademacher": np.sign,
    "uniform": lambda z: np.sqrt(12.0) * (norm.cdf(z) - 0.5),
}


@pytest.mark.parametrize("name", UNSEEN_LAWS)
def test_an_unseen_task_law_is_predicted_as_well(name):
    model = ICLPrompts(12, 4, dim=5)
    estimator = SoftmaxICLRegressor(12, max_iter=60).fit(*model.sample(1500, random_state=0))
    # The same contexts and queries; each unseen task is a function of a Gaussian one.
    unseen = clone(model).set_params(
        task_law=lambda rng, shape: UNSEEN_LAWS[name](rng.standard_normal(shape))
    )
    risks = np.array(
        [
            [
                0.5 * np.mean((estimator.predict(X) - y) ** 2)
                for X, y in (m.sample(8000, random_state=seed) for m in (model, unseen))
            ]
            for seed in range(1, 31)
        ]
    )
    gaps = risks[:, 1] - risks[:, 0]
    error = gaps.std(ddof=1) / np.sqrt(len(gaps))
    assert abs(gaps.mean()) < 4 * error
    assert 4 * error < 0.1 * risks.mean()  # a gap of a tenth would have been seen
    assert risks.mean() < 0.2 * 0.5  # and there was something to transfer: 0.5 is for predicting 0


def test_prompts_in_a_grid_search():
    X, y = make_icl_prompts(120, 10, 3, random_state=0)
    grid = {"learning_rate": [0.01, 4.0], "max_iter": [2, 40]}
    search = GridSearchCV(SoftmaxICLRegressor(10), grid, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_ == {"learning_rate": 4.0, "max_iter": 40}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_rows_in_a_pipeline_and_grid_search():
    X, y = regression()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SoftmaxICLRegressor()),
        {"softmaxiclregressor__max_iter": [1, 30]},
        cv=3,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_ == {"softmaxiclregressor__max_iter": 30}
