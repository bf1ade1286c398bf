"""What callbacks, the console and an interrupted fit see of AttentionNTKRegressor."""

import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score

from skcurse.estimators.attention_ntk import AttentionNTKRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def series():
    rng = np.random.default_rng(0)
    U = rng.normal(size=(40, 8)).cumsum(axis=1)
    return U[:, :-1], U[:, -1]


def model(regime="finite", **parameters):
    defaults = {"n_neurons": 64, "max_iter": 15, "tol": 0.0, "random_state": 0}
    return AttentionNTKRegressor(regime=regime, **{**defaults, **parameters})


class Recorder:
    """A callback that records steps, and raises or stops at one."""

    def __init__(self, last=None, error=None):
        self.steps, self.last, self.error = [], last, error

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None, X=None):
        if context.task_name != "step" or fitted_estimator is None:
            return False
        self.steps.append(fitted_estimator.predict(X))
        reached = len(self.steps) == self.last
        if reached and self.error is not None:
            raise self.error
        return reached


@pytest.mark.parametrize("solver", ["direct", "collocation"])
def test_callbacks_see_every_step_and_may_stop(solver, capsys):
    X, y = series()
    monitor = ScoringMonitor(scoring="r2")
    # Enough neurons that the table answers for them with fewer nodes.
    fitted = model(solver=solver, n_neurons=500).set_callbacks(monitor, ProgressBar()).fit(X, y)
    scores = [row["r2"] for row in monitor.get_logs().data if row["task_name"] == "step"]
    expected = [r2_score(y, stage) for stage in fitted.staged_predict(X)]
    np.testing.assert_allclose(scores, expected, rtol=1e-8)
    stopper = Recorder(last=4)
    # A second fit of the same estimator: what callbacks see is of this run, not of the last one.
    fitted.set_params(random_state=1).set_callbacks(stopper)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        fitted.fit(X, y)
    assert (fitted.n_iter_, len(fitted.loss_curve_), len(stopper.steps)) == (4, 5, 4)
    stages = list(fitted.staged_predict(X))
    np.testing.assert_allclose(stopper.steps, stages, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_fit_leaves_the_estimator_as_it_was(error):
    X, y = series()
    fitted = model().fit(X, y)
    before = {k: pickle.dumps(v) for k, v in vars(fitted).items()}
    fitted.set_callbacks(Recorder(last=3, error=error()))
    with pytest.raises(error):
        fitted.fit(X[:, 1:], 2 * y)
    fitted.set_callbacks()
    assert {k: pickle.dumps(v) for k, v in vars(fitted).items()} == before
    fresh = model().set_callbacks(Recorder(last=1, error=error()))
    with pytest.raises(error):
        fresh.fit(X, y)
    assert vars(fresh.set_callbacks()) == vars(model())


def test_closed_forms_are_one_task():
    X, y = series()
    for regime in ("lazy", "infinite"):
        monitor = ScoringMonitor(scoring="r2")
        fitted = model(regime).set_callbacks(monitor).fit(X, y)
        assert [row["r2"] for row in monitor.get_logs().data] == [pytest.approx(fitted.score(X, y))]


def test_verbose_prints_fewer_lines_the_longer_it_takes(capsys):
    X, y = series()
    model(max_iter=33, verbose=1).fit(X, y)
    shown = re.findall(
        r"\[AttentionNTKRegressor\] step (\d+): loss [\d.]+", capsys.readouterr().out
    )
    assert list(map(int, shown)) == [*range(1, 11), 20, 30]
