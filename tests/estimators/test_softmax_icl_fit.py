"""SoftmaxICLRegressor: when fit stops, who watches it, what goes in and what comes out."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.preprocessing import StandardScaler

from skcurse.datasets import make_icl_prompts
from skcurse.estimators import _icl_examples
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def regression(n=60, d=3, seed=0, outputs=()):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=(d, *outputs)) + 0.1 * rng.normal(size=(n, *outputs))
    return X, 5.0 + y


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
