"""skcurse and plugins installed from wheels in fresh environments, as a user has them.

The environments hold skcurse and the plugins under test, really installed by pip, and nothing of
the environment that runs the tests but links to the packages these need: so the tests neither
download NumPy ten times nor see a plugin that happens to be installed here.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
THREE = ("skcurse-heavy-tails", "skcurse-kernel-alignment", "skcurse-statsmodels")
pytestmark = pytest.mark.skipif(
    not (ROOT / "plugins").is_dir(), reason="the plugins' sources are not here"
)


def dependencies(*names: str) -> set[str]:
    """Return the distributions that `names` need, and what those need, as installed here."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def link(distribution: str, folder: Path) -> None:
    """Link the packages of a distribution, and its metadata, into `folder`."""
    files = importlib.metadata.distribution(distribution).files
    assert files is not None
    for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
        source = Path(str(files[0].locate())).parents[len(files[0].parts) - 1] / top
        if not (folder / top).exists():
            (folder / top).symlink_to(source, target_is_directory=source.is_dir())


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *map(str, arguments)], check=True)


def write_wheel(folder: Path, name: str, source: str, plugin: str | None = None) -> Path:
    """Write a wheel of one module with one entry point, without a build tool."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    files = {
        f"{module}.py": textwrap.dedent(source),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[skcurse]\n{plugin or module} = {module}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name_in_wheel, content in files.items():
            wheel.writestr(name_in_wheel, content)
    return path


class Environment:
    """A fresh virtual environment with some wheels installed."""

    def __init__(self, folder: Path, links: Path, wheels: list[Path]) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "dependencies.pth").write_text(f"{links}\n")
        pip(
            "--python", self.python, "install", "--no-index", "--no-deps", "--no-compile",
            *wheels,
        )  # fmt: skip
        self.command = folder / "bin" / "skcurse"

    def run(self, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SKCURSE_")}
        environment.pop("PYTHONPATH", None)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # many processes import the same
        return subprocess.run(
            [str(word) for word in command],
            capture_output=True, text=True, timeout=120, check=False, cwd=self.python.parent,
            env=environment | {"OMP_NUM_THREADS": "1"} | variables,
        )  # fmt: skip

    def script(self, source: str, *arguments: object, **variables: str) -> str:
        done = self.run(self.python, "-c", textwrap.dedent(source), *arguments, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def plugins(self, **variables: str) -> dict[str, dict[str, object]]:
        """Return what `skcurse plugins --json` lists, by name; it must not fail."""
        done = self.run(self.command, "plugins", "--json", **variables)
        assert done.returncode == 0, done.stderr
        return {row["name"]: row for row in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Return the folder of the wheels of skcurse, the three plugins and the template."""
    folder = tmp_path_factory.mktemp("wheels")
    isolation = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
    sources = [ROOT, *(ROOT / "plugins" / name for name in (*THREE, "template"))]
    pip("wheel", "--no-deps", *isolation, "--wheel-dir", folder, *sources)
    return folder


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory):
    """Return a function from names of wheels to an environment that has them, made once."""
    links = tmp_path_factory.mktemp("links")
    for name in dependencies("skcurse", "statsmodels") - {"skcurse"}:
        link(name, links)
    made: dict[tuple[Path, ...], Environment] = {}

    def make(*plugins: str | Path) -> Environment:
        paths = [wheel(wheels, plugin) for plugin in ("skcurse", *plugins)]
        if (key := tuple(paths)) not in made:
            made[key] = Environment(tmp_path_factory.mktemp("environment"), links, paths)
        return made[key]

    return make


def wheel(folder: Path, name: str | Path) -> Path:
    if isinstance(name, Path):
        return name
    (path,) = folder.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
    return path


GOOD = """
    from skcurse.plugins import hookimpl
    def one(estimator, X, y):
        return 1.0
    @hookimpl
    def skcurse_diagnostics():
        return {"one": one}
"""
USE = """
    import sys, warnings
    import numpy as np
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV
    from skcurse.plugins import get_diagnostics
    X = np.random.default_rng(0).normal(size=(40, 3))
    for names in sys.argv[1:]:
        scoring = {"r2": "r2", **get_diagnostics(names.split(","))}
        search = GridSearchCV(Ridge(), {"alpha": [1, 10]}, scoring=scoring, refit="r2")
        results = search.fit(X, X @ [1, 2, 3]).cv_results_
        assert np.isfinite(results["mean_test_r2"]).all()
        for name in names.split(","):
            print(*results[f"mean_test_{name}"])
"""


def test_no_plugin(environment):
    env = environment()
    assert list(env.plugins()) == ["skcurse"]
    assert env.run(env.python, "-m", "skcurse", "plugins").returncode == 0


def test_importing_loads_no_plugin(environment):
    env = environment(*THREE)
    loaded = env.script(
        "import sys, skcurse; print(*(m for m in sys.modules if m.startswith('skcurse_')))"
    )
    assert not loaded.strip()


def test_one_plugin(environment):
    rows = environment("skcurse-heavy-tails").plugins()
    assert list(rows) == ["skcurse", "heavy_tails"]
    assert rows["heavy_tails"] == {
        "name": "heavy_tails",
        "distribution": "skcurse-heavy-tails",
        "version": "0.1.0",
        "state": "loaded",
        "data_models": ["heavy_tailed_ar"],
        "diagnostics": [],
        "estimators": [],
        "error": None,
    }


def test_three_plugins_and_their_own_dependency(environment):
    env = environment(*THREE)
    rows = env.plugins()
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(
        ["skcurse", "heavy_tails", "kernel_alignment", "statsmodels"], "loaded"
    )
    text = env.run(env.command, "plugins").stdout
    for word in ("skcurse-statsmodels 0.1.0", "heavy_tailed_ar", "kernel_target_alignment"):
        assert word in text
    env.script(
        """
        import numpy as np
        from skcurse.comparison import compare
        from skcurse.estimators.attention_ntk import AttentionNTKRegressor
        estimators = {name: name for name in ("window_autoreg", "residual_linear")}
        estimators["attention"] = AttentionNTKRegressor(8, regime="lazy")
        comparison = compare(
            estimators, "heavy_tailed_ar",
            diagnostics="kernel_target_alignment", data_grid={"gamma": [0.3, 0.9]},
            cv=2, n_samples=40, n_test=40, random_state=0,
        )
        table = comparison.results_
        for law in ("", "_regime_switch"):
            assert np.isfinite(table["mean_test_mse" + law]).all()
            alignment = table["mean_test_kernel_target_alignment" + law]
            np.testing.assert_array_equal(
                np.isfinite(alignment), table["estimator"] == "attention"
            )
        assert not comparison.failures_
        """
    )


def test_the_template_is_a_working_diagnostic_as_its_readme_says(environment):
    readme = (ROOT / "plugins" / "template" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"^ *```python\n(.*?)^ *```", readme, re.M | re.S)
    check = "assert (search.cv_results_['mean_test_mean_error'] != 0).all()\n"
    env = environment("skcurse-template")
    assert env.script(textwrap.dedent(block) + check).startswith("[")


BROKEN = {
    "import_raises": ("import a_library_that_is_not_there", "No module named 'a_library_that"),
    "misspelt_hook": (GOOD.replace("skcurse_diagnostics", "skcurse_diagnosics"), "did you mean"),
    "wrong_signature": (GOOD.replace("diagnostics()", "diagnostics(config)"), "config"),
    "wrong_type": (GOOD.replace('{"one": one}', '{"one": dict}'), "is the class dict"),
}


@pytest.fixture(scope="module")
def broken(environment, tmp_path_factory):
    """Return an environment with one good plugin among broken ones."""
    folder = tmp_path_factory.mktemp("broken")
    sources = {name: source for name, (source, _) in BROKEN.items()} | {"the_good_one": GOOD}
    return environment(
        *(write_wheel(folder, name.replace("_", "-"), text) for name, text in sources.items())
    )


def test_broken_plugins_are_listed_with_their_causes(broken):
    rows = broken.plugins()
    assert rows.pop("skcurse")["state"] == rows.pop("the_good_one")["state"] == "loaded"
    assert set(rows) == set(BROKEN)
    for name, (_, message) in BROKEN.items():
        assert rows[name]["state"] == "broken"
        assert message in rows[name]["error"]
        assert rows[name]["distribution"] == name.replace("_", "-")
    listed = broken.run(broken.command, "plugins")
    assert listed.returncode == 0
    assert "the_good_one (the-good-one 1.0): loaded" in listed.stdout


def test_broken_plugins_are_warned_of_once_and_the_rest_works(broken):
    used = broken.run(broken.python, "-c", textwrap.dedent(USE), "one,sign_agreement")
    assert used.returncode == 0, used.stderr
    assert used.stdout.startswith("1.0 1.0\n")
    assert "Traceback" not in used.stderr
    for name, (_, message) in BROKEN.items():
        (line,) = [line for line in used.stderr.splitlines() if f"plugin '{name}'" in line]
        assert f"({name.replace('_', '-')} 1.0) is not used: " in line
        assert message in line


def test_strict_mode_makes_them_errors(broken):
    strict = {"SKCURSE_STRICT_PLUGINS": "1"}
    used = broken.run(broken.python, "-c", textwrap.dedent(USE), "one", **strict)
    listed = broken.run(broken.command, "plugins", **strict)
    assert (used.returncode, listed.returncode) == (1, 2)
    assert "the_good_one (the-good-one 1.0): loaded" in listed.stdout
    for name, (_, message) in BROKEN.items():
        for done in (used, listed):
            assert f"plugin '{name}' ({name.replace('_', '-')} 1.0) is broken" in done.stderr
            assert message in done.stderr


def test_every_plugin_is_broken(environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    names = ["broken-a", "broken-b"]
    env = environment(*(write_wheel(folder, name, "1 / 0") for name in names))
    assert [row["state"] for row in env.plugins().values()] == ["loaded", "broken", "broken"]
    assert env.script(USE, "sign_agreement").count(" ") == 1


def test_two_plugins_with_the_same_names(environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clash")
    env = environment(
        write_wheel(folder, "owner-a", GOOD),
        write_wheel(folder, "owner-b", GOOD.replace("return 1.0", "return 2.0")),
        write_wheel(folder, "owner-c", GOOD.replace("one", "three"), plugin="owner_a"),
    )
    rows = json.loads(env.run(env.command, "plugins", "--json").stdout)
    assert [row["state"] for row in rows] == ["loaded", "loaded", "broken", "broken"]
    for row in rows[2:]:
        assert f"({row['distribution']} 1.0)" in row["error"]
        assert "'owner_a' (owner-a 1.0)" in row["error"]
    used = env.run(env.python, "-c", textwrap.dedent(USE), "sign_agreement", "one")
    assert used.returncode == 1
    assert used.stdout.count("\n") == 1  # the diagnostic that only one offers
    (line,) = [line for line in used.stderr.splitlines() if "'one' is ambiguous" in line]
    assert "'owner_a' (owner-a 1.0) and plugin 'owner_b' (owner-b 1.0)" in line


def test_allow_list(environment):
    env = environment(*THREE)
    states = {
        allowed: [row["state"] for row in env.plugins(SKCURSE_PLUGINS=allowed).values()]
        for allowed in ("", "statsmodels, heavy_tails")
    }
    assert states == {
        "": ["loaded", "blocked", "blocked", "blocked"],
        "statsmodels, heavy_tails": ["loaded", "loaded", "blocked", "loaded"],
    }
    missing = env.run(
        env.python, "-c", textwrap.dedent(USE), "kernel_target_alignment", SKCURSE_PLUGINS=""
    )
    assert missing.returncode == 1
    assert "blocked, not in SKCURSE_PLUGINS" in missing.stderr


def test_a_fitted_search_is_loaded_in_a_fresh_process(environment, tmp_path):
    env = environment(*THREE)
    env.script(
        """
        import pickle, sys
        import joblib
        from sklearn.model_selection import GridSearchCV
        from skcurse.estimators.attention_ntk import AttentionNTKRegressor
        from skcurse.plugins import get_data_models, get_diagnostics
        X, y = get_data_models()["heavy_tailed_ar"](6).sample(60, random_state=0)
        scoring = {"r2": "r2", **get_diagnostics(["kernel_target_alignment"])}
        model = AttentionNTKRegressor(8, regime="lazy", random_state=0)
        search = GridSearchCV(model, {"n_neurons": [8, 16]}, scoring=scoring, refit="r2")
        search.fit(X, y)
        joblib.dump(search, sys.argv[1] + "/search.joblib")
        with open(sys.argv[1] + "/search.pickle", "wb") as file:
            pickle.dump(search, file)
        """,
        tmp_path,
    )
    env.script(
        """
        import pickle, sys
        import joblib, numpy as np
        from sklearn.base import clone
        loaded = joblib.load(sys.argv[1] + "/search.joblib")
        again = pickle.load(open(sys.argv[1] + "/search.pickle", "rb"))
        import skcurse_heavy_tails
        X, y = skcurse_heavy_tails.HeavyTailedAR(6).sample(60, random_state=0)
        name = "mean_test_kernel_target_alignment"
        for search in (loaded, again):
            assert np.isfinite(search.cv_results_[name]).all()
            refitted = clone(search).fit(X, y)
            np.testing.assert_allclose(refitted.cv_results_[name], search.cv_results_[name])
        """,
        tmp_path,
    )


def test_a_search_over_a_plugins_data_model_is_the_loop_by_hand(environment):
    env = environment(*THREE)
    env.script(
        """
        import numpy as np
        from sklearn.base import clone
        from sklearn.model_selection import GridSearchCV, KFold
        from skcurse.comparison import DataModelStudy
        from skcurse.estimators.attention_ntk import AttentionNTKRegressor
        from skcurse.plugins import get_data_models, get_diagnostics
        model = get_data_models()["heavy_tailed_ar"](n_steps=6)
        estimator = AttentionNTKRegressor(regime="lazy", random_state=0)
        alignment = get_diagnostics(["kernel_target_alignment"])["kernel_target_alignment"]
        seeds, grid = np.arange(9), {
            "data_model__gamma": [0.3, 0.9], "estimator__n_neurons": [8, 16]
        }
        study = DataModelStudy(estimator, model, n_samples=40, shift="regime_switch")
        scoring = {"score": lambda study, seeds, y=None: study.score(seeds), "kta": alignment}
        search = GridSearchCV(study, grid, cv=3, scoring=scoring, refit="score", n_jobs=2)
        results = search.fit(seeds).cv_results_
        for i, params in enumerate(results["params"]):
            law = clone(model).set_params(gamma=params["data_model__gamma"])
            scores, alignments = [], []
            for train, test in KFold(3).split(seeds):
                draw = lambda rows, shift: law.sample(
                    40, shift=shift, random_state=np.random.RandomState(seeds[rows]))
                fitted = clone(estimator).set_params(n_neurons=params["estimator__n_neurons"])
                fitted.fit(*draw(train, None))
                sample = draw(test, "regime_switch")
                scores.append(fitted.score(*sample))
                alignments.append(alignment.function(fitted, *sample))
            for name, values in (("score", scores), ("kta", alignments)):
                np.testing.assert_allclose(results["mean_test_" + name][i], np.mean(values))
                np.testing.assert_allclose(results["std_test_" + name][i], np.std(values))
        """
    )
