"""A comparison is the loop by hand, whatever the backend and however bad a diagnostic is."""

import html
import io
import re
import sys

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit

from skcurse.comparison import Comparison, compare
from skcurse.datasets import DataModel, ResidualSSM, SeriesWindows
from skcurse.plugins import get_diagnostics, hookimpl, isolated_plugins

LAW = ResidualSSM(n_steps=5)
SHIFT = "sign_inconsistent"


class Slope(DataModel):
    """y = slope * x + noise; two shifts."""

    shifts = ("louder", "flipped")

    def __init__(self, slope=1.0):
        self.slope = slope

    def _sample(self, n_samples, shift, rng):
        X = rng.normal(size=(n_samples, 2)) * (3.0 if shift == "louder" else 1.0)
        y = self.slope * X[:, -1] + 0.1 * rng.normal(size=n_samples)
        return X, -y if shift == "flipped" else y

    def reference_risks(self, shift=None):
        return {"zero": self.slope**2 * (9.0 if shift == "louder" else 1.0) + 0.01}


class Fragile(RegressorMixin, BaseEstimator):
    """Fails where it is told to."""

    def __init__(self, where="fit"):
        self.where = where

    def fit(self, X, y):
        if self.where == "fit":
            raise RuntimeError("no fit today")
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        if self.where == "louder" and np.std(X) > 2:
            raise RuntimeError("too loud")
        return np.full(len(X), np.nan if self.where == "predict" else 0.0)


# What compare() promises about the samples of one fold, written down a second time.
def samples(law, seed, n_samples, n_test):
    def draw(n, shift, stream):
        rng = np.random.RandomState([seed, stream])
        return law.sample(n, shift=shift, random_state=rng)

    laws = (None, *law.shifts)
    return draw(n_samples, None, 0), {s: draw(n_test, s, i) for i, s in enumerate(laws, start=1)}


def fold_seeds(random_state, n_folds):
    return np.random.RandomState(random_state).randint(2**31 - 1, size=n_folds)


def test_equals_a_loop_by_hand():
    estimators = {"ridge": Ridge(0.1), "forest": RandomForestRegressor(5)}
    comparison = compare(
        estimators,
        {"slope": Slope()},
        data_grid={"slope": [0.5, 2.0]},
        diagnostics={"mean": lambda e, X, y: float(np.mean(e.predict(X) * y))},
        cv=3,
        n_samples=40,
        n_test=60,
        random_state=5,
    )
    results = comparison.results_
    rows = zip(results["estimator"], results["param_slope"], strict=True)
    assert list(rows) == [(e, s) for s in (0.5, 2.0) for e in ("ridge", "forest")]
    for i, (name, slope) in enumerate(
        zip(results["estimator"], results["param_slope"], strict=True)
    ):
        for k, seed in enumerate(fold_seeds(5, 3)):
            (X, y), tests = samples(Slope(slope), seed, 40, 60)
            model = clone(estimators[name])
            if name == "forest":
                model.set_params(random_state=seed)
            model.fit(X, y)
            for shift, (X_test, y_test) in tests.items():
                end = "" if shift is None else f"_{shift}"
                predicted = model.predict(X_test)
                mse = results[f"split{k}_test_mse{end}"][i]
                assert mse == pytest.approx(mean_squared_error(y_test, predicted), rel=1e-12)
                mean = results[f"split{k}_test_mean{end}"][i]
                assert mean == pytest.approx(np.mean(predicted * y_test), rel=1e-9)


def test_result_keys_and_summaries():
    comparison = compare([Ridge(), DummyRegressor()], Slope(), diagnostics="sign_agreement", cv=3)
    results = comparison.results_
    scores = [f"{s}{end}" for end in ("", "_louder", "_flipped") for s in ("mse", "sign_agreement")]
    expected = {"estimator", "data_model", "params"}
    expected |= {f"{a}_{t}" for a in ("mean", "std") for t in ("fit_time", "score_time")}
    expected |= {f"split{k}_test_{s}" for k in range(3) for s in scores}
    expected |= {f"{a}_test_{s}" for a in ("mean", "std") for s in scores}
    assert set(results) == expected
    for score in scores:
        values = np.column_stack([results[f"split{k}_test_{score}"] for k in range(3)])
        np.testing.assert_allclose(results[f"mean_test_{score}"], values.mean(1))
        np.testing.assert_allclose(results[f"std_test_{score}"], values.std(1))
    np.testing.assert_array_equal(comparison.scores("mse", "louder")[:, 2], values_of(results, 2))
    assert comparison.laws_ == (None, "louder", "flipped")
    assert (results["mean_fit_time"] > 0).all()


def values_of(results, fold):
    return results[f"split{fold}_test_mse_louder"]


@pytest.mark.parametrize("horizon", [1, 3])
def test_series_are_split_in_time_and_scaled_by_their_training_part(horizon):
    series = np.cumsum(np.random.default_rng(0).normal(size=120)) + np.linspace(0, 30, 120)
    model = SeriesWindows(series, n_steps=4, horizon=horizon)
    comparison = compare({"ridge": Ridge()}, {"walk": model}, cv=4)
    assert comparison.laws_ == (None,)
    n_windows = 120 - 4 - horizon + 1
    splits = TimeSeriesSplit(4, gap=horizon - 1).split(np.zeros(n_windows))
    for k, (train, test) in enumerate(splits):
        seen = series[: train[-1] + 4 + horizon]  # the rows that the training windows cover
        assert test[0] + 4 == len(seen)  # the first test target comes right after them
        z = (series - seen.mean()) / seen.std()
        X = np.array([z[i : i + 4] for i in range(n_windows)])
        y = np.array([z[i + 4 : i + 4 + horizon] for i in range(n_windows)]).squeeze()
        ridge = Ridge().fit(X[train], y[train])
        expected = np.mean((ridge.predict(X[test]) - y[test]) ** 2)
        assert comparison.results_[f"split{k}_test_mse"][0] == pytest.approx(expected, rel=1e-9)


def test_series_and_laws_together_and_explicit_splits():
    series = SeriesWindows(np.sin(np.arange(80.0)), n_steps=5)
    split = (np.arange(40), np.arange(50, 70))
    comparison = compare(Ridge(), {"sine": series, "law": Slope()}, cv=[split])
    assert comparison.n_folds_ == 1
    louder = comparison.results_["mean_test_mse_louder"]
    assert np.isnan(louder[0])
    assert louder[1] > 0
    X, y = series.windows(n_train=40)
    expected = np.mean((Ridge().fit(X[:40], y[:40]).predict(X[50:70]) - y[50:70]) ** 2)
    assert comparison.results_["mean_test_mse"][0] == pytest.approx(expected, rel=1e-12)


def test_all_estimators_and_grid_points_see_the_same_draws():
    twins = {"a": RandomForestRegressor(3), "b": RandomForestRegressor(3)}
    comparison = compare(twins, LAW, data_grid={"noise": [0.0, 1e-9]}, cv=4, random_state=1)
    errors = comparison.scores("mse", SHIFT)
    np.testing.assert_array_equal(errors[0], errors[1])
    assert len(set(errors[0])) == 4  # and folds do not
    linear = compare(LinearRegression(), LAW, data_grid={"noise": [0.1, 0.1001]}, cv=4)
    a, b = linear.scores("mse")
    np.testing.assert_allclose(a, b, rtol=0.01)  # independent draws would differ by 10 %


STOCHASTIC = {
    "forest": RandomForestRegressor(4),
    "search": GridSearchCV(RandomForestRegressor(2), {"max_depth": [1, 2]}, cv=KFold(2)),
    "pinned": RandomForestRegressor(4, random_state=np.random.RandomState(3)),
}


def run(**kwargs):
    comparison = compare(
        STOCHASTIC,
        [Slope(), LAW],
        diagnostics=["sign_agreement"],
        cv=2,
        n_samples=30,
        n_test=30,
        random_state=0,
        **kwargs,
    )
    return {k: v for k, v in comparison.results_.items() if "_test_" in k}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_allclose(a[key], b[key], rtol=1e-12, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_the_backend_changes_nothing(backend):
    with joblib.parallel_config(backend=backend):
        assert_same(run(), run(n_jobs=2))


@pytest.mark.extra
def test_dask_changes_nothing():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as pool,
        distributed.Client(pool),
        joblib.parallel_config(backend="dask"),
    ):
        assert_same(run(n_jobs=1), run(n_jobs=2))


def test_random_state_means_what_it_means_in_scikit_learn():
    def mse(random_state):
        return compare(Ridge(), Slope(), cv=3, random_state=random_state).scores()

    np.testing.assert_array_equal(mse(0), mse(np.random.RandomState(0)))
    assert not np.array_equal(mse(0), mse(1))
    assert not np.array_equal(mse(None), mse(None))


def overwrite(estimator, X, y):
    X[:] = 0.0
    return 1.0


BAD = {
    "raises": (lambda e, X, y: 1 / 0, "ZeroDivisionError"),
    "exits": (lambda e, X, y: sys.exit(3), "SystemExit"),
    "none": (lambda e, X, y: None, "None"),
    "text": (lambda e, X, y: "high", "'high'"),
    "complex": (lambda e, X, y: 1j, "1j"),
    "array": (lambda e, X, y: np.ones(2), "array"),
    "infinite": (lambda e, X, y: np.inf, "inf"),
    "overwrites": (overwrite, "read-only"),
}


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_bad_diagnostic_costs_its_own_cell_only(n_jobs):
    good = {"good": lambda e, X, y: float(np.mean(X**2)), "silent": lambda e, X, y: np.nan}
    first, *rest = BAD.items()
    functions = {k: f for k, (f, _) in [first]} | good | {k: f for k, (f, _) in rest}
    models = {"ridge": Ridge(), "dummy": DummyRegressor()}
    alone = compare(models, Slope(), diagnostics=good, cv=2, random_state=0)
    comparison = compare(
        models, Slope(), diagnostics=functions, cv=2, random_state=0, n_jobs=n_jobs
    )
    for key, values in alone.results_.items():
        if "_test_" in key:
            np.testing.assert_array_equal(comparison.results_[key], values, err_msg=key)
    for name, (_, reason) in BAD.items():
        assert np.isnan(comparison.scores(name, "louder")).all()
        failures = [f for f in comparison.failures_ if f.score == f"{name}_louder"]
        assert {(f.estimator, f.fold) for f in failures} == {(m, k) for m in models for k in (0, 1)}
        assert all(reason in f.reason for f in failures)
        assert reason in str(comparison)
    assert {f.score.split("_")[0] for f in comparison.failures_} == set(BAD)  # nan is no failure
    traceback = next(f.traceback for f in comparison.failures_ if f.score == "raises")
    assert "in <lambda>\n" in traceback
    assert traceback in html.unescape(comparison._repr_html_())


def test_a_failing_estimator_raises_or_gets_the_error_score():
    models = {"broken": Fragile(), "nan": Fragile("predict"), "ridge": Ridge()}
    with pytest.raises(RuntimeError, match="no fit today"):
        compare(models, Slope(), cv=2)
    comparison = compare(models, Slope(), cv=2, error_score=99.0, diagnostics=["sign_agreement"])
    assert (comparison.scores()[:2] == 99.0).all()
    assert np.isnan(comparison.scores("sign_agreement")[0]).all()
    assert (comparison.scores()[2] < 0.1).all()
    assert {f.estimator for f in comparison.failures_} == {"broken", "nan"}
    assert "no fit today" in str(comparison)
    assert "NaN" in str(comparison)


def test_a_failing_predict_costs_its_own_law_only():
    models = {"fragile": Fragile("louder")}
    with pytest.raises(RuntimeError, match="too loud") as error:
        compare(models, Slope(), cv=2, random_state=0)
    assert error.value.__notes__ == ["predict under louder of Fragile(where='louder') on Slope()"]
    rows = {"rows": lambda estimator, X, y: len(X)}
    comparison = compare(models, Slope(), cv=2, error_score=np.nan, diagnostics=rows)
    assert np.isnan(comparison.scores("mse", "louder")).all()
    for law in (None, "flipped"):
        np.testing.assert_allclose(comparison.scores("mse", law), 1.01, rtol=0.2)
    for law in comparison.laws_:
        assert (comparison.scores("rows", law) == 2000).all()
    assert {(f.score, f.reason) for f in comparison.failures_} == {
        ("mse_louder", "predict under louder raised RuntimeError: too loud")
    }


def test_a_table_where_every_fit_fails():
    text = str(compare(Fragile(), Slope(), cv=2, error_score=np.nan))
    assert re.search(r"estimator +in distribution +louder +flipped", text)
    assert re.search(r"Fragile +- +- +- +-", text)
    assert "fit raised RuntimeError: no fit today" in text


def test_the_risks_that_a_data_model_knows_are_shown():
    comparison = compare(Ridge(), Slope(2.0), cv=2)
    risks = {r.shift: r.risk for r in comparison.references_}
    assert risks == pytest.approx({None: 4.01, "louder": 36.01, "flipped": 4.01})
    assert re.search(r"\(zero\) +4.01 +36.01 +4.01", str(comparison))


@pytest.mark.parametrize(
    ("risks", "message"),
    [
        ([1.0], "is no mapping"),
        ({"zero": "1"}, "got '1' for 'zero'"),
        ({"zero": np.nan}, "got nan for 'zero'"),
        ({"zero": -1.0}, "got -1.0 for 'zero'"),
    ],
)
def test_reference_risks_are_checked(monkeypatch, risks, message):
    monkeypatch.setattr(Slope, "reference_risks", lambda self, shift: risks)
    with pytest.raises(ValueError, match=message):
        compare(Ridge(), Slope(), cv=2)


class Windowed(Slope):
    """A parameter that is called like the method of a series."""

    def __init__(self, windows=3):
        self.windows = windows
        self.slope = 1.0


def test_a_parameter_called_windows_makes_no_series():
    comparison = compare(Ridge(), Windowed(), cv=2)
    assert comparison.laws_ == (None, "louder", "flipped")


class Unsendable:
    def __call__(self, estimator, X, y):
        return 1.0

    def __reduce__(self):
        raise TypeError("not for travel")


def test_a_diagnostic_that_no_worker_can_have_is_named():
    diagnostics = {"fine": lambda e, X, y: 1.0, "stuck": Unsendable()}
    with pytest.raises(ValueError, match=r"'stuck' cannot be sent to a worker.*not for travel"):
        compare(Ridge(), Slope(), diagnostics=diagnostics, cv=2, n_jobs=2)
    assert (compare(Ridge(), Slope(), diagnostics=diagnostics, cv=2).scores("stuck") == 1.0).all()


class BadlyMade(Slope):
    def _sample(self, n_samples, shift, rng):
        return None + 1


def test_nothing_given_is_changed():
    forest, law = RandomForestRegressor(2), Slope()
    compare({"f": forest}, {"law": law}, data_grid={"slope": [3.0]}, cv=2)
    assert forest.random_state is None
    assert not hasattr(forest, "estimators_")
    assert law.slope == 1.0


def test_names_are_resolved_plugins_included():
    class Plugin:
        @hookimpl
        def skcurse_data_models(self):
            return {"slope": Slope}

        @hookimpl
        def skcurse_estimators(self):
            return {"least_squares": LinearRegression}

        @hookimpl
        def skcurse_diagnostics(self):
            return {"rows": lambda estimator, X, y: len(X)}

    with isolated_plugins(Plugin()):
        comparison = compare(
            ["least_squares", Ridge()], ["slope"], diagnostics=["rows"], cv=2, n_test=17
        )
        named = compare({"x": "least_squares"}, "slope", cv=2)
    assert comparison.results_["estimator"].tolist() == ["least_squares", "Ridge"]
    assert comparison.results_["data_model"].tolist() == ["slope"] * 2
    assert (comparison.scores("rows") == 17).all()
    assert named.results_["estimator"].tolist() == ["x"]


def test_a_dict_names_a_registered_diagnostic_anew():
    renamed = {"agreement": get_diagnostics("sign_agreement")["sign_agreement"]}
    comparison = compare(Ridge(), LAW, diagnostics=renamed, cv=2, random_state=0)
    named = compare(Ridge(), LAW, diagnostics="sign_agreement", cv=2, random_state=0)
    assert comparison.diagnostics_ == ("agreement",)
    np.testing.assert_array_equal(comparison.scores("agreement"), named.scores("sign_agreement"))


def test_a_comparison_can_be_kept(tmp_path):
    comparison = compare(Ridge(), LAW, diagnostics=["sign_agreement"], cv=2)
    joblib.dump(comparison, tmp_path / "c")
    assert str(joblib.load(tmp_path / "c")) == str(comparison)


def test_a_grid_varies_what_a_model_has_and_each_point_once():
    models = {"slope": Slope(), "ssm": LAW}
    grid = [{"slope": [1.0, 2.0], "gamma": [0.3]}, {"slope": [2.0], "gamma": [0.8]}]
    results = compare(Ridge(), models, data_grid=grid, cv=2).results_
    assert results["params"] == [{"slope": 1.0}, {"slope": 2.0}, {"gamma": 0.3}, {"gamma": 0.8}]
    assert results["param_gamma"].mask.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"estimators": [Ridge(), Ridge()]}, "Two estimators are called 'Ridge'"),
        ({"estimators": {}}, "at least one estimator"),
        ({"estimators": {"r": Ridge}}, "'r' is a class: pass an instance"),
        ({"estimators": Ridge}, "The estimator 'Ridge' is a class"),
        ({"estimators": "Ridge"}, "What is not registered is passed as an object"),
        ({"data_models": BadlyMade()}, "raised TypeError: unsupported operand"),
        ({"error_score": "nan"}, "error_score must be"),
        ({"error_score": None}, "error_score must be"),
        ({"estimators": {"r": 3}}, r"'r' has no fit\(\)"),
        ({"estimators": "ridgee"}, "Unknown estimator 'ridgee'"),
        ({"data_models": "residual_smm"}, "residual_ssm"),
        ({"data_models": {"d": Ridge()}}, r"data model 'd' has no sample\(\)"),
        ({"data_grid": {"gama": [0.1]}}, "No data model has a parameter 'gama'"),
        ({"data_grid": {"gamma": [2.0]}, "data_models": LAW}, "gamma"),
        ({"diagnostics": ["sign_agreemant"]}, "sign_agreement"),
        ({"diagnostics": {"mse": np.mean}}, "'mse' needs another name"),
        ({"diagnostics": {"mse_louder": np.mean}}, "The diagnostic 'mse_louder' needs another"),
        ({"diagnostics": {"d": 3}}, "'d' is not callable"),
        ({"cv": 1}, "n_splits"),
        ({"n_test": 0}, "n_samples must be"),
    ],
)
def test_misuse_is_told_before_anything_runs(kwargs, message):
    arguments = {"estimators": Fragile(), "data_models": Slope(), "cv": 2} | kwargs
    with pytest.raises(ValueError, match=message):
        compare(**arguments)


def test_text_shows_errors_references_and_diagnostics():
    comparison = compare(
        {"ridge": Ridge(), "zero": DummyRegressor(strategy="constant", constant=0.0)},
        {"law": LAW},
        data_grid={"gamma": [-0.5, 0.8]},
        diagnostics=["sign_agreement", "update_alignment"],
        n_test=20_000,
        random_state=0,
    )
    text = str(comparison)
    for gamma in (-0.5, 0.8):
        assert f"law, gamma = {gamma}: mean squared error" in text
    assert "sign_agreement, sign_inconsistent" in text
    assert "update_alignment" not in text  # applies to neither
    references = {(r.params["gamma"], r.shift, r.name): r.risk for r in comparison.references_}
    zero = comparison.results_["estimator"] == "zero"
    for row in np.flatnonzero(zero):
        for shift in (None, SHIFT):
            gamma = comparison.results_["params"][row]["gamma"]
            errors = comparison.scores("mse", shift)[row]
            risk = references[gamma, shift, "predict zero"]
            assert f"{risk:.4g}" in text
            shown = [(float(a), float(b)) for a, b in re.findall(r"([\d.]+) ± ([\d.]+)", text)]
            exact = (errors.mean(), errors.std(ddof=1) / np.sqrt(5))
            assert min(np.abs(np.divide(pair, exact) - 1).max() for pair in shown) < 0.06
            assert abs(errors.mean() - risk) < 4 * errors.std(ddof=1) / np.sqrt(5)
    widths = {len(line) for line in text.split("\n\n")[0].splitlines()[2:] if "(" not in line}
    assert len(widths) == 1  # columns are flush
    page = comparison._repr_html_()
    assert page.count("<table>") == text.count("\n---") == 4
    assert "<td>ridge</td>" in page


def test_markup_in_names_is_escaped():
    page = compare({"<b>": Ridge()}, {"a&b": Slope()}, cv=2)._repr_html_()
    assert "<b>" not in page
    assert "a&amp;b" in page


def test_to_frame_is_the_results_and_needs_pandas_only_when_called(monkeypatch):
    comparison = compare(Ridge(), Slope(), data_grid={"slope": [1.0, 2.0]}, cv=2)
    frame = comparison.to_frame()
    assert list(frame.columns) == list(comparison.results_)
    assert frame["param_slope"].tolist() == [1.0, 2.0]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"skcurse\[dataframe\]"):
        comparison.to_frame()
    assert "Ridge" in str(comparison)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("rich", [True, False])
def test_progress_on_a_terminal_and_silence_in_a_pipe(monkeypatch, capfd, rich):
    quiet = compare(Ridge(), Slope(), cv=3, random_state=0)
    assert capfd.readouterr() == ("", "")
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    shown = compare(Ridge(), Slope(), cv=3, random_state=0)
    assert "Comparing" in terminal.getvalue()
    assert ("3/3" in terminal.getvalue()) is not rich
    np.testing.assert_array_equal(quiet.scores(), shown.scores())
    assert isinstance(shown, Comparison)
