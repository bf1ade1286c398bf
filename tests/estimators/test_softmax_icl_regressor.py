"""SoftmaxICLRegressor: on prompts, on rows, and as a scikit-learn estimator."""

import pickle

import numpy as np
import pytest
import sklearn
from scipy.stats import norm
from sklearn.base import clone
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_diabetes, make_regression
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcurse.datasets import ICLPrompts, make_icl_prompts, pack_prompts, unpack_prompts
from skcurse.estimators import _icl_examples
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


# ---- stopping ----


def test_tol_stops_and_max_iter_warns(recwarn):
    X, y = regression()
    model = SoftmaxICLRegressor(max_iter=5000, tol=1e-3, n_iter_no_change=4).fit(X, y)
    assert not recwarn.list
    losses = np.array(model.loss_curve_)
    assert losses[-1] >= (1 - 1e-3) * losses[-5]
    assert (losses[4:-1] < (1 - 1e-3) * losses[:-5]).all()
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        model.set_params(max_iter=3).fit(X, y)
    assert model.n_iter_ == 3


@pytest.mark.parametrize("n_context", [None, 10])
def test_early_stopping_keeps_the_best_matrix_on_held_out_rows(n_context):
    if n_context is None:
        X, y = load_diabetes(return_X_y=True)
        X = StandardScaler().fit_transform(X)
    else:
        X, y = make_icl_prompts(60, n_context, 6, noise=0.5, random_state=0)
    model = SoftmaxICLRegressor(
        n_context, max_iter=300, early_stopping=True, validation_fraction=0.3, random_state=0
    ).fit(X, y)
    curve = model.validation_loss_curve_
    best = int(np.argmin(curve))
    assert 0 < best < model.n_iter_ < 300
    assert len(curve) == len(model.loss_curve_) == model.n_iter_ + 1
    # The same run, cut at the best step, ends at the same matrix.
    cut = clone(model).set_params(max_iter=best).fit(X, y)
    np.testing.assert_array_equal(cut.query_key_, model.query_key_)
    plain = SoftmaxICLRegressor(n_context, max_iter=300).fit(X, y)
    assert not hasattr(plain, "validation_loss_curve_")


def test_copies_of_a_row_are_held_out_together():
    X = np.repeat(np.random.default_rng(0).normal(size=(50, 2)), 4, axis=0)
    held = _icl_examples.held_out_rows(X, np.ones(200), 0.2, seed=3)
    assert held.sum() == 40
    assert (held.reshape(50, 4).min(axis=1) == held.reshape(50, 4).max(axis=1)).all()
    other = _icl_examples.held_out_rows(X, np.ones(200), 0.2, seed=4)
    assert (other != held).any()


def test_absent_rows_have_no_part_in_the_choice_of_held_out_rows():
    X = np.random.default_rng(0).normal(size=(50, 2))
    weight = np.repeat([0.0, 1.0], 25)
    held = _icl_examples.held_out_rows(X, weight, 0.4, seed=3)
    expected = _icl_examples.held_out_rows(X[25:], weight[25:], 0.4, seed=3)
    np.testing.assert_array_equal(held[25:], expected)
    assert expected.sum() == 10


def test_nothing_left_to_train_on_is_an_error():
    with pytest.raises(ValueError, match=r"n_samples=3 with 3 distinct rows"):
        SoftmaxICLRegressor(early_stopping=True, validation_fraction=0.9).fit(np.eye(3), range(3))


def test_warm_start_goes_on_where_the_last_fit_ended():
    X, y = regression()
    settings = {"learning_rate": 0.01, "tol": 0.0}
    whole = SoftmaxICLRegressor(max_iter=20, **settings).fit(X, y)
    half = SoftmaxICLRegressor(max_iter=8, warm_start=True, **settings).fit(X, y)
    half.set_params(max_iter=12).fit(X, y)
    np.testing.assert_array_equal(half.query_key_, whole.query_key_)
    assert half.loss_curve_ == whole.loss_curve_[8:]
    with pytest.raises(ValueError, match="warm_start=True goes on from a query_key_ for tokens"):
        half.fit(X[:, :2], y)


def test_a_rate_that_diverges_is_named():
    X, y = regression()
    with pytest.raises(ValueError, match=r"learning_rate=1000 diverges.*'auto'"):
        SoftmaxICLRegressor(learning_rate=1000.0).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"n_context": 0}, ValueError),
        ({"n_context": 2.5}, TypeError),
        ({"learning_rate": "fast"}, ValueError),
        ({"learning_rate": 0.0}, ValueError),
        ({"learning_rate": -1.0}, ValueError),
        ({"max_iter": 0}, ValueError),
        ({"tol": -1.0}, ValueError),
        ({"n_iter_no_change": 0}, ValueError),
        ({"alpha": -1.0}, ValueError),
        ({"early_stopping": True, "validation_fraction": 1.0}, ValueError),
    ],
    ids=str,
)
def test_parameters_out_of_range_are_named(settings, error):
    with pytest.raises(error, match=list(settings)[-1]):
        SoftmaxICLRegressor(**settings).fit(*regression())


@pytest.mark.parametrize("weight", [np.full(60, -1.0), np.zeros(60), np.ones(59), np.ones((60, 1))])
def test_weights_that_make_no_sense_are_an_error(weight):
    with pytest.raises(ValueError, match="sample_weight"):
        SoftmaxICLRegressor().fit(*regression(), sample_weight=weight)


# ---- callbacks and interruption ----


class Watch:
    """Record every call; at a given step, return True or raise."""

    def __init__(self, stop_at=None, raises=None):
        self.stop_at, self.raises = stop_at, raises
        self.calls, self.scores = [], []

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, fitted_estimator=None):
        self.calls.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None
    ):
        self.calls.append(("end", context.task_name, context.task_id))
        if context.parent is None:
            return None
        self.scores.append(fitted_estimator.score(X, y, **(metadata or {})))
        if context.task_id + 1 == self.stop_at:
            if self.raises is not None:
                raise self.raises
            return True
        return None


def test_callbacks_see_every_step_as_if_fit_had_ended_there():
    X, y = regression()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    watch = Watch()
    model = SoftmaxICLRegressor(max_iter=6).set_callbacks(watch).fit(X, y, sample_weight=weight)
    tasks = [("begin", "fit", 0)]
    for i in range(6):
        tasks += [("begin", "step", i), ("end", "step", i)]
    assert watch.calls == ["setup", *tasks, ("end", "fit", 0), "teardown"]
    for n_iter in range(1, 7):
        cut = SoftmaxICLRegressor(max_iter=n_iter).fit(X, y, sample_weight=weight)
        assert watch.scores[n_iter - 1] == cut.score(X, y, sample_weight=weight)
    assert watch.scores[-1] == model.score(X, y, sample_weight=weight)


def test_a_callback_can_stop_the_fit(recwarn):
    X, y = make_icl_prompts(40, 10, 3, random_state=0)
    model = SoftmaxICLRegressor(10).set_callbacks(Watch(stop_at=4)).fit(X, y)
    assert not recwarn.list
    assert model.n_iter_ == 4
    cut = SoftmaxICLRegressor(10, max_iter=4).fit(X, y)
    np.testing.assert_array_equal(model.query_key_, cut.query_key_)


@pytest.mark.parametrize("fitted_before", [False, True])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(fitted_before, early_stopping):
    pd = pytest.importorskip("pandas")
    X, y = regression()
    watch = Watch(stop_at=3, raises=KeyboardInterrupt)
    model = SoftmaxICLRegressor(max_iter=10, early_stopping=early_stopping, random_state=0)
    if fitted_before:
        model.fit(X, y)
    before = dict(vars(model))
    prediction = model.predict(X) if fitted_before else None
    model.set_callbacks(watch)
    with pytest.raises(KeyboardInterrupt):
        model.fit(pd.DataFrame(X[:, :2], columns=["a", "b"]), y)
    assert watch.calls[-1] == "teardown"
    model.set_callbacks()
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    if fitted_before:
        np.testing.assert_array_equal(model.predict(X), prediction)
    else:
        with pytest.raises(NotFittedError):
            model.predict(X)


def test_scoring_monitor_and_progress_bar(capsys, recwarn):
    pytest.importorskip("rich")
    pd = pytest.importorskip("pandas")
    X, y = make_icl_prompts(40, 10, 3, random_state=0)
    X = pd.DataFrame(X).add_prefix("x")
    monitor = ScoringMonitor(scoring="neg_mean_squared_error")
    model = SoftmaxICLRegressor(10, max_iter=5).set_callbacks(monitor, ProgressBar()).fit(X, y)
    assert "SoftmaxICLRegressor - fit" in capsys.readouterr().out
    assert not [w for w in recwarn if "feature names" in str(w.message)]  # X comes as it was given
    log = monitor.get_logs().data
    scores = [row["neg_mean_squared_error"] for row in log if row["task_name"] == "step"]
    np.testing.assert_allclose(-0.5 * np.array(scores), model.loss_curve_[1:], rtol=1e-12)


def test_verbose_prints_the_loss(capsys):
    X, y = regression()
    model = SoftmaxICLRegressor(max_iter=12, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10  # steps 1 to 10, then every tenth
    assert f"step 10: loss {model.loss_curve_[10]:.6g}" in lines[-1]


# ---- input and output ----


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


def strided(array):
    return np.repeat(array, 2, axis=0)[::2]


CONTAINERS = {
    "read-only": read_only,
    "strided": strided,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "Fortran": np.asfortranarray,
    "list": np.ndarray.tolist,
    "pandas": lambda array: pytest.importorskip("pandas").DataFrame(array).add_prefix("x"),
    "polars": lambda array: pytest.importorskip("polars").DataFrame(
        {f"x{j}": column for j, column in enumerate(array.T)}
    ),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("n_context", [None, 10])
def test_containers_and_memory_layouts(n_context, container):
    X, y = regression() if n_context is None else make_icl_prompts(30, 10, 3, random_state=0)
    reference = SoftmaxICLRegressor(n_context, max_iter=5).fit(X, y)
    converted = CONTAINERS[container](X)
    model = SoftmaxICLRegressor(n_context, max_iter=5).fit(converted, read_only(y))
    np.testing.assert_array_equal(model.predict(converted), reference.predict(X))
    np.testing.assert_array_equal(np.asarray(converted), X)
    has_names = container in ("pandas", "polars")
    assert hasattr(model, "feature_names_in_") == has_names


@pytest.mark.parametrize("n_context", [None, 10])
def test_single_precision_in_and_out(n_context):
    X, y = regression() if n_context is None else make_icl_prompts(30, 10, 3, random_state=0)
    X32, y32 = X.astype(np.float32), y.astype(np.float32)
    model = SoftmaxICLRegressor(n_context, max_iter=5).fit(X32, y32)
    double = SoftmaxICLRegressor(n_context, max_iter=5).fit(X, y)
    assert model.predict(X32).dtype == np.float32
    assert model.attention(X32).dtype == np.float32
    assert model.query_key_.dtype == np.float32
    np.testing.assert_allclose(model.predict(X32), double.predict(X), rtol=0, atol=1e-4)
    if n_context is None:
        assert model.loo_prediction_.dtype == np.float32


def test_later_changes_to_the_data_do_not_change_the_model():
    X, y = regression()
    model = SoftmaxICLRegressor(max_iter=5).fit(X, y)
    new = regression(5, seed=1)[0]
    before = model.predict(new)
    X[:], y[:] = 0.0, 0.0
    np.testing.assert_array_equal(model.predict(new), before)


@pytest.mark.parametrize("n_context", [None, 10])
def test_memory_limit_changes_nothing_but_rounding(n_context):
    X, y = regression() if n_context is None else make_icl_prompts(30, 10, 50, random_state=0)
    model = SoftmaxICLRegressor(n_context, max_iter=5)
    expected = clone(model).fit(X, y)
    with sklearn.config_context(working_memory=1e-3):
        model.fit(X, y)
        np.testing.assert_allclose(model.predict(X), expected.predict(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.query_key_, expected.query_key_, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("n_context", [None, 10])
def test_pickling_keeps_predictions(n_context):
    X, y = regression() if n_context is None else make_icl_prompts(30, 10, 3, random_state=0)
    model = SoftmaxICLRegressor(n_context, max_iter=5).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_refitting_forgets_the_other_mode():
    X, y = make_icl_prompts(30, 10, 3, random_state=0)
    model = SoftmaxICLRegressor(max_iter=5).fit(X, y)
    model.set_params(n_context=10).fit(X, y)
    assert not hasattr(model, "loo_prediction_")
    assert not hasattr(model, "X_fit_")
