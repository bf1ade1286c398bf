"""The plugin host in one process: what is offered, what is refused, what a broken plugin costs."""

import json
import pickle
import sys
import threading
import warnings
from decimal import Decimal
from fractions import Fraction
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.ensemble import VotingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_validate

from skcurse import plugins
from skcurse.comparison import DataModelStudy
from skcurse.datasets import DataModel
from skcurse.offers import PluginError, read_offers
from skcurse.plugins import (
    get_data_models,
    get_diagnostics,
    get_estimators,
    hookimpl,
    isolated_plugins,
    register,
    report,
    unregister,
)
from skcurse.scorer import DiagnosticScorer

X, y = make_regression(60, 4, noise=1.0, random_state=0)


def mean_prediction(estimator, X, y):
    return np.mean(estimator.predict(X))


def alpha(estimator, X, y):
    return estimator.alpha


class WhiteNoise(DataModel):
    def __init__(self, scale=1.0):
        self.scale = scale

    def _sample(self, n_samples, shift, rng):
        return self.scale * rng.normal(size=(n_samples, 3)), rng.normal(size=n_samples)


def plugin(**offers):
    """Make a plugin object that implements the named hooks with the given return values."""
    return SimpleNamespace(**{f"skcurse_{kind}": hook(value) for kind, value in offers.items()})


def hook(value):
    @hookimpl
    def function():
        return value

    return function


@pytest.fixture(autouse=True)
def only_built_ins():
    with isolated_plugins():
        yield


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that a worker or an entry point can import; forget it afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(f"import skcurse.plugins as host\n{source}")
        names.append(name)
        return EntryPoint(name, name, "skcurse")

    yield write
    for name in names:
        sys.modules.pop(name, None)


DIAGNOSTIC = """
def {0}(estimator, X, y):
    return 1.0
@host.hookimpl
def skcurse_diagnostics():
    return {{"{0}": {0}}}
"""


# ------------------------------------------------------------------------------ what is offered
def test_all_kinds_are_registered_by_name_and_forgotten():
    mine = plugin(
        data_models={"white_noise": WhiteNoise},
        diagnostics={"mean_prediction": mean_prediction},
        estimators={"ridge": Ridge},
    )
    name = register(mine, name="mine")
    assert name == "mine"
    assert get_data_models(["white_noise"]) == {"white_noise": WhiteNoise}
    assert get_estimators("ridge") == {"ridge": Ridge}
    assert get_diagnostics(["mean_prediction"])["mean_prediction"].function is mean_prediction
    for get, key in ((get_data_models, "white_noise"), (get_estimators, "ridge")):
        assert key in get()
    unregister(mine)
    for get, key in ((get_data_models, "white_noise"), (get_diagnostics, "mean_prediction")):
        assert key not in get()
        with pytest.raises(ValueError, match="Unknown"):
            get([key])


def test_names_keep_the_order_asked_for():
    register(plugin(diagnostics={"a": alpha, "b": mean_prediction, "c": alpha}))
    assert list(get_diagnostics(["c", "a", "b"])) == ["c", "a", "b"]


def test_built_ins_come_through_the_same_hooks():
    row = report()[0]
    assert (row["name"], row["distribution"], row["state"]) == ("skcurse", "skcurse", "loaded")
    assert row["data_models"] == list(get_data_models())
    assert row["diagnostics"] == list(get_diagnostics())
    assert row["estimators"] == list(get_estimators())
    assert {"residual_ssm", "icl_prompts"} <= set(row["data_models"])
    assert {"update_alignment", "loss_floor_gap"} <= set(row["diagnostics"])
    assert {"attention_ntk", "residual_linear", "softmax_icl"} <= set(row["estimators"])
    from skcurse import builtin

    assert read_offers(builtin)["data_models"] == get_data_models()


def test_mutating_the_answer_changes_nothing():
    get_diagnostics().clear()
    get_data_models().clear()
    assert get_diagnostics()
    assert get_data_models()


def test_a_module_is_a_plugin_and_gives_its_name():
    module = ModuleType("my_module")
    module.skcurse_diagnostics = hook({"alpha": alpha})
    assert register(module) == "my_module"
    unregister("my_module")


# ------------------------------------------------------------------------------ what is refused
class Unmarked:
    def skcurse_diagnostics(self):
        return {"alpha": alpha}


class Misspelt:
    @hookimpl
    def skcurse_diagnostic(self):
        return {"alpha": alpha}


class WrongSignature:
    @hookimpl
    def skcurse_diagnostics(self, config):
        return {"alpha": alpha}


class NeedsArguments(WhiteNoise):
    def __init__(self, scale):
        self.scale = scale


REFUSED = {
    "class instead of instance": (Misspelt, "Misspelt is a class"),
    "nothing marked": (Unmarked(), "hookimpl"),
    "None": (None, "hookimpl"),
    "misspelt hook": (Misspelt(), "did you mean 'skcurse_diagnostics'"),
    "wrong signature": (WrongSignature(), "config"),
    "no mapping": (plugin(diagnostics=[alpha]), "not a mapping"),
    "name is no str": (plugin(diagnostics={3: alpha}), "non-empty str, got 3"),
    "empty name": (plugin(data_models={"": WhiteNoise}), "non-empty str"),
    "diagnostic is no callable": (plugin(diagnostics={"a": 3}), "'a' is 3, which is not callable"),
    "diagnostic is a class": (plugin(diagnostics={"a": Ridge}), "'a' is the class Ridge"),
    "two arguments": (plugin(diagnostics={"a": lambda e, X: 1.0}), "three arguments"),
    "data model is an instance": (plugin(data_models={"a": WhiteNoise()}), "offer a class"),
    "data model is another class": (plugin(data_models={"a": Ridge}), "Ridge has no sample"),
    "estimator is an instance": (plugin(estimators={"a": Ridge()}), "offer a class"),
    "forgets to return": (plugin(diagnostics=None), "skcurse_diagnostics returned None"),
    "data model needs arguments": (
        plugin(data_models={"a": NeedsArguments}), r"NeedsArguments\(\) without .*'scale'"
    ),
    "estimator needs arguments": (plugin(estimators={"a": VotingRegressor}), "'estimators'"),
    "estimator cannot predict": (plugin(estimators={"a": WhiteNoise}), "no fit, predict"),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_at_registration_and_nothing_is_kept(bad, message):
    before = report()
    with pytest.raises(PluginError, match=message):
        register(bad)
    assert report() == before


def test_one_name_from_two_functions_of_a_plugin():
    first, second = (
        hook({"alpha": alpha}),
        hookimpl(specname="skcurse_diagnostics")(lambda: {"alpha": alpha}),
    )
    with pytest.raises(PluginError, match="diagnostic 'alpha' is offered twice"):
        register(SimpleNamespace(skcurse_diagnostics=first, more=second))


def test_everything_of_the_wrong_type_is_named_at_once():
    bad = plugin(diagnostics={"a": 3, "b": Ridge, "fine": alpha}, estimators={"c": 1})
    with pytest.raises(PluginError) as error:
        register(bad)
    assert all(f"{name!r}" in str(error.value) for name in "abc")
    assert "fine" not in str(error.value)


def test_builtin_callables_without_a_signature_pass():
    read_offers(plugin(diagnostics={"max": max}))


def test_a_clash_names_both_owners_and_keeps_the_first():
    register(plugin(diagnostics={"alpha": alpha}), name="first")
    with pytest.raises(PluginError, match=r"'alpha' of plugin 'second'.*by plugin 'first'"):
        register(plugin(diagnostics={"fine": alpha, "alpha": mean_prediction}), name="second")
    assert get_diagnostics(["alpha"])["alpha"].function is alpha
    assert "fine" not in get_diagnostics()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("diagnostics", "update_alignment", alpha),
        ("data_models", "residual_ssm", WhiteNoise),
        ("estimators", "residual_linear", Ridge),
    ],
)
def test_a_clash_with_a_built_in(kind, name, value):
    with pytest.raises(PluginError, match=rf"{name}.*'mine'.*plugin 'skcurse' \(skcurse 0"):
        register(plugin(**{kind: {name: value}}), name="mine")


def test_the_same_plugin_twice():
    mine = plugin(data_models={})
    register(mine, name="mine")
    with pytest.raises(PluginError, match=r"'mine'.*unregister\('mine'\) first, or .* name="):
        register(mine, name="mine")


def test_the_built_ins_stay():
    from skcurse import builtin

    for ours in ("skcurse", builtin):
        with pytest.raises(ValueError, match="cannot be unregistered"):
            unregister(ours)
    assert "residual_ssm" in get_data_models()


@pytest.mark.parametrize("stranger", ["nobody", None, object()])
def test_unregister_of_a_stranger(module, stranger):
    with (
        isolated_plugins(entry_points=[module("broken", "1 / 0")]),
        warnings.catch_warnings(action="ignore"),
    ):
        with pytest.raises(ValueError, match=r"is registered.*'skcurse', 'broken'"):
            unregister(stranger)
        assert len(report()) == 2


# ------------------------------------------------------------------------------ unknown names
@pytest.mark.parametrize(
    ("get", "name", "message"),
    [
        (get_diagnostics, "update_alignement", "Did you mean 'update_alignment'"),
        (get_data_models, "residual_sm", "Did you mean 'residual_ssm'"),
        (get_estimators, "attention", "attention_ntk"),
        (get_diagnostics, "zzz", "There are .*'kernel_drift'"),
        (get_diagnostics, "residual_ssm", r"one of get_data_models\(\)"),
        (get_diagnostics, 3, "Unknown diagnostic 3"),
    ],
)
def test_unknown_names_say_what_is_near_and_where_to_look(get, name, message):
    with pytest.raises(ValueError, match=message) as error:
        get([name])
    assert "`skcurse plugins`" in str(error.value)


# ------------------------------------------------------------------------------ entry points
def test_nothing_is_imported_before_the_first_look_up(module):
    with isolated_plugins(entry_points=[module("lazy", DIAGNOSTIC.format("lazy"))]):
        assert "lazy" not in sys.modules
        assert "lazy" in get_diagnostics()


BROKEN = {
    "import raises": ("1 / 0", r"ZeroDivisionError: division by zero \(.*broken.py, line 2\)"),
    "import exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "imports what is missing": ("import no_such_thing", "No module named 'no_such_thing'"),
    "does not parse": ("\ndef", r"SyntaxError: .* \(.*broken.py, line 3\)"),
    "raises an error without words": (
        "class E(Exception):\n    __str__ = None\nraise E", r"E: <exception str\(\) failed>"
    ),
    "hook raises": (
        "@host.hookimpl\ndef skcurse_diagnostics():\n    raise KeyError('gone')",
        "KeyError: 'gone'.*line 4",
    ),
    "misspelt": ("@host.hookimpl\ndef skcurse_diagnostic():\n    return {}", "did you mean"),
    "wrong signature": ("@host.hookimpl\ndef skcurse_diagnostics(x):\n    return {}", "'x'"),
    "wrong type": ("@host.hookimpl\ndef skcurse_estimators():\n    return {'d': dict}", "no fit"),
    "looks names up while imported": ("host.get_diagnostics()", "while plugins are being imported"),
    "clash": (
        DIAGNOSTIC.format("sign_agreement"),
        "'sign_agreement' of plugin 'broken'.*already offered by plugin 'skcurse'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_named_and_costs_nobody_else(module, monkeypatch, source, message):
    entries = [
        module("broken", source),
        module("aaa", DIAGNOSTIC.format("aaa")),
        module("zzz", DIAGNOSTIC.format("zzz")),
    ]
    with isolated_plugins(entry_points=entries):
        with pytest.warns(UserWarning, match=f"plugin 'broken'.*not used: .*{message}") as caught:
            assert {"aaa", "zzz", "update_alignment"} <= set(get_diagnostics())
        assert len(caught) == 1
        assert caught[0].filename == __file__
        with warnings.catch_warnings(action="error"):
            get_diagnostics()  # said once
        rows = {row["name"]: row for row in report()}
        assert [row["state"] for row in rows.values()] == ["loaded", "loaded", "broken", "loaded"]
        assert not rows["broken"]["diagnostics"]
        with pytest.raises(ValueError, match=r"'broken'.* is missing: it is broken"):
            get_diagnostics(["no_such_diagnostic"])

    monkeypatch.setenv("SKCURSE_STRICT_PLUGINS", "1")
    sys.modules.pop("broken", None)
    with isolated_plugins(entry_points=entries), warnings.catch_warnings(action="error"):
        for _ in range(2):
            with pytest.raises(PluginError, match=f"plugin 'broken'.*{message}"):
                get_diagnostics()
        assert {row["state"] for row in report()} == {"loaded", "broken"}  # the report still works


def test_a_name_that_two_plugins_offer_is_nobodys(module):
    entries = [module(name, DIAGNOSTIC.format("shared")) for name in ("one", "two", "three")]
    with isolated_plugins(entry_points=[*entries, module("zzz", DIAGNOSTIC.format("zzz"))]):
        with pytest.warns(UserWarning, match="'shared' of plugin .* already offered by .*'one'"):
            names = get_diagnostics()
        assert "shared" not in names
        assert {"zzz", "sign_agreement"} <= set(names)
        with pytest.raises(PluginError, match=r"'shared' is ambiguous: .*'one'.*'three'.*'two'"):
            get_diagnostics("shared")
        states = [row["state"] for row in report()[1:]]
        assert states == ["loaded", "broken", "broken", "loaded"]


def test_a_built_in_keeps_a_name_that_a_plugin_claims(module):
    entries = [module(name, DIAGNOSTIC.format("sign_agreement")) for name in ("one", "two")]
    with isolated_plugins(entry_points=entries), pytest.warns(UserWarning, match="plugin 'one'"):
        (scorer,) = get_diagnostics("sign_agreement").values()
    assert scorer.function.__module__.startswith("skcurse.")


def test_one_try_for_each_entry_point(module):
    entry = module("broken", "import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\n1 / 0")
    with isolated_plugins(entry_points=[entry]), warnings.catch_warnings(action="ignore"):
        for _ in range(3):
            get_diagnostics()
            report()
    assert sys.__dict__.pop("tries") == 1


def test_two_entry_points_of_one_name(module):
    first, second = (module(name, DIAGNOSTIC.format(name)) for name in ("one", "two"))
    entries = [EntryPoint("same", entry.value, "skcurse") for entry in (first, second)]
    with isolated_plugins(entry_points=entries):
        with pytest.warns(UserWarning, match="has the name of plugin 'same'"):
            names = get_diagnostics()
        assert [row["state"] for row in report()[1:]] == ["loaded", "broken"]
        assert len({"one", "two"} & set(names)) == 1


@pytest.mark.parametrize(
    ("value", "loaded"),
    [(None, {"one", "two"}), ("", set()), ("two", {"two"}), (" one , two ", {"one", "two"})],
)
def test_allow_list(module, monkeypatch, value, loaded):
    if value is None:
        monkeypatch.delenv("SKCURSE_PLUGINS", raising=False)
    else:
        monkeypatch.setenv("SKCURSE_PLUGINS", value)
    entries = [module(name, DIAGNOSTIC.format(name)) for name in ("one", "two")]
    with isolated_plugins(entry_points=entries), warnings.catch_warnings(action="error"):
        assert {"one", "two"} & set(get_diagnostics()) == loaded
        assert {"one", "two"} & set(sys.modules) == loaded  # a blocked plugin is not imported
        states = {row["name"]: row["state"] for row in report()}
        assert states == {
            "skcurse": "loaded",
            **{name: "loaded" if name in loaded else "blocked" for name in ("one", "two")},
        }
        if "one" not in loaded:
            with pytest.raises(ValueError, match=r"'one'.*blocked, not in SKCURSE_PLUGINS"):
                get_diagnostics(["one"])


def test_an_allowed_plugin_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("SKCURSE_PLUGINS", "ghost")
    with isolated_plugins():
        with pytest.warns(
            UserWarning, match=r"'ghost' \(not installed\).*SKCURSE_PLUGINS names it"
        ):
            get_diagnostics()
        assert [(row["name"], row["state"]) for row in report()[1:]] == [("ghost", "absent")]
    monkeypatch.setenv("SKCURSE_STRICT_PLUGINS", "1")
    with isolated_plugins(), pytest.raises(PluginError, match="'ghost'"):
        get_diagnostics()


def test_registering_knows_what_is_installed(module):
    mine = plugin(diagnostics={"one": alpha})
    with (
        isolated_plugins(entry_points=[module("one", DIAGNOSTIC.format("one"))]),
        pytest.raises(PluginError, match=r"'one' of plugin 'mine'.*by plugin 'one'"),
    ):
        register(mine, name="mine")


def test_first_look_up_from_many_threads(module):
    slow = "import sys, time\nsys.tries = getattr(sys, 'tries', 0) + 1\ntime.sleep(0.2)\n"
    entry = module("slow", slow + DIAGNOSTIC.format("slow"))
    found = []
    with isolated_plugins(entry_points=[entry]):
        threads = [
            threading.Thread(target=lambda: found.append(set(get_diagnostics()))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sys.__dict__.pop("tries") == 1
    assert len(found) == 8
    assert all("slow" in names for names in found)


def test_registering_from_many_threads_loses_nobody():
    names = [f"d{i}" for i in range(16)]
    threads = [
        threading.Thread(target=register, args=(plugin(diagnostics={n: alpha}), n)) for n in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(names) <= set(get_diagnostics())


def test_isolation_ends_even_after_an_error():
    before = report()
    with pytest.raises(ValueError, match="'nothing'"), isolated_plugins(plugin(diagnostics={})):
        get_diagnostics(["nothing"])
    assert report() == before


def test_the_report_is_json():
    register(plugin(data_models={"white_noise": WhiteNoise}), name="mine")
    rows = json.loads(json.dumps(report()))
    assert rows == report()
    assert rows[-1] == {
        "name": "mine",
        "distribution": None,
        "version": None,
        "state": "loaded",
        "data_models": ["white_noise"],
        "diagnostics": [],
        "estimators": [],
        "error": None,
    }


# ------------------------------------------------------------------------------ one cell
def returning(value):
    return DiagnosticScorer("probe", lambda estimator, X, y: value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2, 2.0), (2.5, 2.5), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(3), 3.0),
        (np.bool_(True), 1.0), (np.array(4.0), 4.0), (Fraction(1, 4), 0.25),
        (float("nan"), np.nan), (np.float64("nan"), np.nan), (-0.0, -0.0),
    ],
)  # fmt: skip
def test_real_scalars_are_kept_without_a_word(value, expected):
    with warnings.catch_warnings(action="error"):
        result = returning(value)(None, X, y)
    assert type(result) is float
    np.testing.assert_equal(result, expected)


NO_SCALAR = [
    None, "0.5", b"1", 1j, 1 + 0j, np.complex64(1), np.array(1 + 0j), np.array([1.0]),
    [1.0], (), {}, np.inf, -np.inf, 10**400,
    Decimal("1e999"), np.datetime64("2020"), np.array("1"), object(), (i for i in ()), float,
]  # fmt: skip


@pytest.mark.parametrize("value", NO_SCALAR, ids=lambda v: repr(v)[:20])
def test_everything_else_is_nan_with_one_warning_that_names_the_diagnostic(value):
    with pytest.warns(UserWarning, match="'probe' returned .*not a finite number") as caught:
        result = returning(value)(None, X, y)
    assert np.isnan(result)
    assert len(caught) == 1


class WeirdError(Exception):
    def __str__(self):
        raise RuntimeError


class AnnotatedError(Exception):
    def __init__(self, message):
        super().__init__(message)
        self.add_note("a note")


@pytest.mark.parametrize("error", [ValueError, SystemExit, MemoryError, WeirdError, RecursionError])
def test_an_exception_is_nan_with_its_traceback(error):
    def failing_helper():
        raise error("no\nluck")

    def diagnostic(estimator, X, y):
        return failing_helper()

    scorer = DiagnosticScorer("probe", diagnostic)
    with pytest.warns(UserWarning, match=f"'probe' raised .*{error.__name__}") as caught:
        assert np.isnan(scorer(None, X, y))
    assert len(caught) == 1
    value, text = scorer.evaluate(None, X, y)
    assert np.isnan(value)
    assert "in failing_helper" in text
    assert "scorer.py" not in text


def test_keyboard_interrupt_goes_through():
    def diagnostic(estimator, X, y):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DiagnosticScorer("probe", diagnostic)(None, X, y)


def test_a_diagnostic_cannot_change_what_the_next_scorer_sees():
    def vandal(estimator, X, y):
        X[:] = 0.0
        return 1.0

    scoring = {"vandal": DiagnosticScorer("vandal", vandal), "r2": "r2"}
    with pytest.warns(UserWarning, match="'vandal' raised ValueError.*read-only"):
        scores = cross_validate(Ridge(), X, y, scoring=scoring)
    assert np.isnan(scores["test_vandal"]).all()
    np.testing.assert_array_equal(
        scores["test_r2"], cross_validate(Ridge(), X, y, scoring="r2")["test_score"]
    )
    assert X.flags.writeable


def test_a_diagnostic_cannot_change_a_data_frame():
    pd = pytest.importorskip("pandas", "3")

    def vandal(estimator, X, y):
        X.iloc[:] = 0.0
        y[:] = 0.0
        return 1.0

    frame, targets = pd.DataFrame(X), pd.Series(y)
    assert DiagnosticScorer("vandal", vandal)(None, frame, targets) == 1.0
    np.testing.assert_array_equal(frame, X)
    np.testing.assert_array_equal(targets, y)


# ------------------------------------------------------------------------------ in scikit-learn
def search(diagnostics, **kwargs):
    scoring = {"r2": "r2", **diagnostics}
    return GridSearchCV(Ridge(), {"alpha": [0.1, 10.0]}, scoring=scoring, refit="r2", **kwargs)


def test_a_broken_diagnostic_costs_its_own_column_only():
    def broken(estimator, X, y):
        raise RuntimeError("broken on purpose")

    register(plugin(diagnostics={"broken": broken, "alpha": alpha}))
    with pytest.warns(UserWarning, match="'broken' raised RuntimeError: broken on purpose"):
        results = search(get_diagnostics(["broken", "alpha"])).fit(X, y).cv_results_
    assert np.isnan(results["mean_test_broken"]).all()
    np.testing.assert_array_equal(results["mean_test_alpha"], [0.1, 10.0])
    plain = search({}).fit(X, y).cv_results_
    np.testing.assert_array_equal(results["mean_test_r2"], plain["mean_test_r2"])


def test_clone_nested_cross_validation_and_pickles(tmp_path):
    register(plugin(diagnostics={"alpha": alpha, "mean_prediction": mean_prediction}))
    original = search(get_diagnostics(["alpha", "mean_prediction"]))
    fitted = clone(clone(original)).fit(X, y)
    joblib.dump(fitted, tmp_path / "search.joblib")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "search.joblib")):
        np.testing.assert_array_equal(copy.predict(X), fitted.predict(X))
        assert copy.scoring == fitted.scoring
        refitted = clone(copy).fit(X, y)
        np.testing.assert_array_equal(
            refitted.cv_results_["mean_test_mean_prediction"],
            fitted.cv_results_["mean_test_mean_prediction"],
        )

    nested = cross_validate(
        original, X, y, cv=3, scoring=get_diagnostics(["mean_prediction"]), return_estimator=True
    )
    folds = np.array_split(np.arange(60), 3)
    for value, rows, outer in zip(
        nested["test_mean_prediction"], folds, nested["estimator"], strict=True
    ):
        assert value == outer.predict(X[rows]).mean()


def test_as_the_only_scorer_and_with_sample_weight():
    register(plugin(diagnostics={"mean_prediction": mean_prediction}))
    scorer = get_diagnostics(["mean_prediction"])["mean_prediction"]
    assert cross_validate(Ridge(), X, y, scoring=scorer)["test_score"].shape == (5,)
    weighted = search({"mean_prediction": scorer}).fit(X, y, sample_weight=np.arange(60) + 1.0)
    assert np.isfinite(weighted.cv_results_["mean_test_mean_prediction"]).all()


@pytest.mark.parametrize("inner_search", [False, True])
def test_a_study_hands_its_test_sample_to_any_diagnostic(inner_search):
    seen = []

    def spy(estimator, X, y):
        seen.append((type(estimator), X, y))
        return 0.0

    study = DataModelStudy(Ridge(), WhiteNoise(), n_samples=7)
    if inner_search:
        study = GridSearchCV(study, {"data_model__scale": [1.0]}, cv=2)
    seeds = np.arange(4)
    cross_validate(study, seeds, cv=2, scoring={"spy": DiagnosticScorer("spy", spy)})
    for (kind, X_seen, y_seen), rows in zip(seen, ([0, 1], [2, 3]), strict=True):
        expected = WhiteNoise().sample(7, random_state=np.random.RandomState(rows))
        assert kind is Ridge
        np.testing.assert_array_equal(X_seen, expected[0])
        np.testing.assert_array_equal(y_seen, expected[1])


def test_public_names():
    assert all(hasattr(plugins, name) for name in plugins.__all__)
