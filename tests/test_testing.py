"""Every fault that a plugin author can make is told, all in one call; nothing else is."""

import re
from functools import partial
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from skcurse import builtin
from skcurse.datasets import DataModel, ResidualSSM, SeriesWindows
from skcurse.plugins import hookimpl, isolated_plugins, register
from skcurse.testing import check_data_model, check_diagnostic, check_plugin


@pytest.fixture(autouse=True)
def only_built_ins():
    with isolated_plugins():
        yield


class Sound(DataModel):
    shifts = ("louder",)

    def __init__(self, scale=1.0):
        self.scale = scale

    def _sample(self, n_samples, shift, rng):
        u = self.scale * rng.normal(size=(n_samples, 4)) * (3.0 if shift else 1.0)
        return u[:, :-1], u[:, -1]


class GlobalState(Sound):
    def _sample(self, n_samples, shift, rng):
        return super()._sample(n_samples, shift, np.random)


class IgnoresItsSeed(Sound):
    def _sample(self, n_samples, shift, rng):
        return super()._sample(n_samples, shift, np.random.RandomState(0))


class CountsItsCalls(Sound):
    def _sample(self, n_samples, shift, rng):
        self.scale += 1.0
        return super()._sample(n_samples, shift, rng)


class ThreeDimensional(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X[:, :, None], y


class TooFewRows(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X, y[: n_samples // 2]


class NotFinite(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X / 0.0 if shift else X, y


class Integers(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X.astype(int), y


class WidthDependsOnShift(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X[:, 1:] if shift else X, y


class ForgetsAShift(Sound):
    def _sample(self, n_samples, shift, rng):
        if shift:
            raise KeyError(shift)
        return super()._sample(n_samples, shift, rng)


class ShiftsAreAString(Sound):
    shifts = "louder"


class AcceptsAnything(BaseEstimator):
    shifts = ()

    def sample(self, n_samples, *, shift=None, random_state=None):
        rng = np.random.RandomState(random_state)
        return rng.normal(size=(abs(n_samples), 2)), rng.normal(size=abs(n_samples))


class CannotBeCloned(Sound):
    def __init__(self, scale=1.0):
        self.scale = [scale]


class NeedsArguments(Sound):
    def __init__(self, scale):
        self.scale = scale


class RarelyNaN(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X, np.where(X[:, 0] > 3.0, np.nan, y)


class NoColumns(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X[:, :0], y


class ReusesABuffer(Sound):
    buffer = np.empty((2000, 3))

    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        self.buffer[:n_samples] = X
        return self.buffer[:n_samples], y


class IgnoresItsShift(Sound):
    def _sample(self, n_samples, shift, rng):
        return super()._sample(n_samples, None, rng)


class NamesShiftsBadly(Sound):
    shifts = ("louder", "", "study")


class WidthDependsOnSeed(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X[:, : rng.randint(1, 4)], y


class ReturnsRowsOnly(Sound):
    def _sample(self, n_samples, shift, rng):
        return super()._sample(n_samples, shift, rng)[0]


class ReturnsText(Sound):
    def _sample(self, n_samples, shift, rng):
        X, y = super()._sample(n_samples, shift, rng)
        return X, y.astype(str)


FAULTY = {
    GlobalState: ["global random state", "same random_state differ"],
    IgnoresItsSeed: ["different random_state are equal"],
    CountsItsCalls: ["changes its parameters", "same random_state differ"],
    ThreeDimensional: [r"shape \(1, n_features\) and y shape \(1,\).*got \(1, 3, 1\) and \(1,\)"],
    TooFewRows: [r"shape \(1,\) or \(1, n_outputs\), got \(1, 3\) and \(0,\)"],
    NotFinite: ["shift='louder'.*X must be finite, got NaN or infinite values"],
    RarelyNaN: ["n_samples=2000.*y must be finite, got NaN"],
    NoColumns: [r"got \(1, 0\) and \(1,\)"],
    ReusesABuffer: ["overwritten by the next one"],
    NamesShiftsBadly: ["distinct and neither '' nor 'study'"],
    WidthDependsOnSeed: ["number of features depends on the shift or the seed"],
    ReturnsRowsOnly: ["must return a pair \\(X, y\\), got ndarray"],
    ReturnsText: ["y must hold real numbers, got dtype <U"],
    Integers: ["X must hold floats, got dtype int64"],
    WidthDependsOnShift: ["number of features"],
    ForgetsAShift: ["shift='louder'.*KeyError"],
    ShiftsAreAString: ["shifts must be a tuple"],
    AcceptsAnything: ["sample\\(0, .* did not raise", "no such shift'\\) did not raise"],
    CannotBeCloned: ["cloning or pickling"],
    NeedsArguments: ["constructing"],
}


class CallsAParameterWindows(Sound):
    def __init__(self, scale=1.0, windows=3):
        self.scale = scale
        self.windows = windows


@pytest.mark.filterwarnings("ignore:ICLPrompts.*'rare_query' changes nothing")  # all are as rare
@pytest.mark.parametrize(
    "model",
    [
        Sound,
        Sound(2.0),
        CallsAParameterWindows,
        ResidualSSM(4),
        SeriesWindows(np.arange(60.0) ** 2, 4),
        *builtin.skcurse_data_models().values(),
    ],
)
def test_sound_data_models_pass(model):
    check_data_model(model)


def test_a_shift_that_changes_nothing_is_noticed():
    with pytest.warns(UserWarning, match="shift 'louder' changes nothing"):
        check_data_model(IgnoresItsShift)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("faulty", FAULTY, ids=lambda c: c.__name__)
def test_faulty_data_models_are_told_why(faulty):
    with pytest.raises(AssertionError) as error:
        check_data_model(faulty)
    for message in FAULTY[faulty]:
        assert re.search(message, str(error.value)), error.value


def mean_prediction(estimator, X, y):
    return np.mean(estimator.predict(X))


@pytest.mark.parametrize("diagnostic", builtin.skcurse_diagnostics().values())
def test_built_in_diagnostics_pass(diagnostic):
    check_diagnostic(diagnostic)


def test_on_an_estimator_of_ones_own():
    X = np.eye(4)
    check_diagnostic(alpha, Ridge().fit(X, X[0]), X, X[0])
    with pytest.raises(AssertionError, match="on LinearRegression it raised AttributeError"):
        check_diagnostic(alpha)


def alpha(estimator, X, y):
    return estimator.alpha


def raises(estimator, X, y):
    raise ValueError("not today")


def no_number(estimator, X, y):
    return estimator.predict(X)


def changes_rows(estimator, X, y):
    X *= 2.0
    return 1.0


def changes_targets(estimator, X, y):
    y -= 1.0
    return 1.0


def refits(estimator, X, y):
    estimator.fit(X, y + 1.0)
    return 1.0


def refits_to_what_it_is_given(estimator, X, y):
    estimator.fit(X, y)
    return 1.0


def random(estimator, X, y):
    return np.random.default_rng().normal()


@pytest.mark.parametrize(
    ("diagnostic", "message"),
    [
        (raises, "on Pipeline it raised ValueError: not today"),
        (no_number, r"on LinearRegression it returned array.*not a finite number"),
        (changes_rows, "on LinearRegression it changes X"),
        (changes_targets, "changes y"),
        (refits, "changes the estimator"),
        (refits_to_what_it_is_given, "changes the estimator"),
        (random, "two calls differ"),
        (lambda estimator, X, y: 1.0, "does not pickle"),
    ],
)
def test_faulty_diagnostics_are_told_why(diagnostic, message):
    with pytest.raises(AssertionError, match=message):
        check_diagnostic(diagnostic)


class Plugin:
    """A plugin with the given offers."""

    def __init__(self, data_models=(), diagnostics=(), estimators=()):
        self.offers = data_models, diagnostics, estimators

    @hookimpl
    def skcurse_data_models(self):
        return dict(self.offers[0])

    @hookimpl
    def skcurse_diagnostics(self):
        return dict(self.offers[1])

    @hookimpl
    def skcurse_estimators(self):
        return dict(self.offers[2])


class PoorlyMade(Ridge):
    """Forgets to check its input."""

    def predict(self, X):
        return np.zeros(len(X))


def test_a_sound_plugin_passes_before_and_after_it_is_registered():
    plugin = Plugin(
        {"sound": Sound}, {"mean_prediction": mean_prediction}, {"line": LinearRegression}
    )
    check_plugin(plugin)
    register(plugin)
    check_plugin(plugin)


class MakesNewObjects:
    @hookimpl
    def skcurse_diagnostics(self):
        return {"new": partial(mean_prediction)}


def test_a_registered_plugin_does_not_clash_with_itself():
    register(MakesNewObjects())
    check_plugin(MakesNewObjects())


def test_a_classifier_is_no_estimator_to_offer():
    with pytest.raises(AssertionError, match="'c': LogisticRegression is no regressor"):
        check_plugin(Plugin(estimators={"c": LogisticRegression}))


def test_everything_wrong_is_told_in_one_call():
    plugin = Plugin(
        {"rude": TooFewRows, "residual_ssm": Sound},
        {"raises": raises, "random": random},
        {"poor": PoorlyMade},
    )
    with pytest.raises(AssertionError) as error:
        check_plugin(plugin)
    text = str(error.value)
    for message in (
        "data model 'rude': sample(shift=None) raised ValueError: TooFewRows._sample(n_samples=1",
        "data model 'residual_ssm': the name is taken by plugin 'skcurse'",
        "diagnostic 'raises': on LinearRegression it raised ValueError: not today",
        "diagnostic 'random': on LinearRegression two calls differ",
        "estimator 'poor': check_",
    ):
        assert f"\n- {message}" in text
    n_problems = text.count("\n- ")
    assert text.startswith(f"plugin 'Plugin' has {n_problems} problem(s)")
    for line in text.splitlines():
        assert "'poor'" not in line or re.search(r"\(\w+\.py, line \d+: .+\)$", line)


def test_types_that_are_refused_are_told_as_problems():
    with pytest.raises(AssertionError, match="has 2 problem"):
        check_plugin(Plugin(diagnostics={"a": 1, "b": Ridge}))


def test_a_module_is_called_by_its_name():
    with pytest.raises(AssertionError, match="plugin 'my_module' has 1 problem"):
        check_plugin(ModuleType("my_module"))


def test_a_hook_that_raises_is_a_problem():
    class Raising:
        @hookimpl
        def skcurse_diagnostics(self):
            raise RuntimeError("no offer today")

    with pytest.raises(AssertionError, match=r"a hook raised RuntimeError.*no offer today"):
        check_plugin(Raising())


def test_expected_failures_of_estimators_are_allowed():
    plugin = Plugin(estimators={"poor": PoorlyMade})
    with pytest.raises(AssertionError) as error:
        check_plugin(plugin)
    lines = str(error.value).splitlines()[1:]
    failing = {line.split(": ")[1]: "made so" for line in lines}
    assert failing
    check_plugin(plugin, expected_failed_checks={"poor": failing})
