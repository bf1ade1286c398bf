"""Diagnostics in other processes: loky, dask, a missing module, a worker that is killed."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

# A plugin as a notebook defines it: everything in __main__.
MAIN = """
import os, sys, warnings
import joblib
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from skcurse.plugins import get_diagnostics, hookimpl, register, unregister

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X @ [1.0, 2.0, 3.0] + rng.normal(size=60)
SCALE = 100.0  # a global that has to travel with the function
PARENT = os.getpid()


def scaled_alpha(estimator, X, y):
    return SCALE * estimator.alpha


def elsewhere(estimator, X, y):
    return os.getpid() != PARENT


class Plugin:
    @hookimpl
    def skcurse_diagnostics(self):
        return {"scaled_alpha": scaled_alpha, "elsewhere": elsewhere}


def search(names, **kwargs):
    scoring = {"r2": "r2", **get_diagnostics(names)}
    return GridSearchCV(Ridge(), {"alpha": [0.5, 2.0]}, scoring=scoring, refit="r2", **kwargs)


def check(results):
    np.testing.assert_array_equal(results["mean_test_scaled_alpha"], [50.0, 200.0])
    np.testing.assert_array_equal(results["mean_test_elsewhere"], [1.0, 1.0])
    assert np.isfinite(results["mean_test_r2"]).all()
    print("checked")
"""
REGISTERED = "register(Plugin())\nnames = ['scaled_alpha', 'elsewhere']\n"
LOKY = "check(search(names, n_jobs=2).fit(X, y).cv_results_)\n"
DASK = """
from dask.distributed import Client, LocalCluster
with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
    with Client(cluster), joblib.parallel_config(backend="dask"):
        results = search(names).fit(X, y).cv_results_
check(results)
"""
# A module that exists in this process alone, as after a change of sys.path.
HOMELESS = """
import importlib.util
spec = importlib.util.spec_from_file_location("homeless", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["homeless"] = module
spec.loader.exec_module(module)
register(module)
"""


class Script:
    """A Python program in a process group of its own, so that no child can hide."""

    def __init__(
        self, folder: Path, source: str, *arguments: object, notebook: bool = False
    ) -> None:
        path = folder / "program.py"
        path.write_text(textwrap.dedent(source))
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        # As in a notebook, `python -c` has a __main__ without a file that workers could run again.
        program = ["-c", path.read_text()] if notebook else [str(path)]
        process = subprocess.Popen(
            [sys.executable, *program, *map(str, arguments)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment, cwd=folder,
        )  # fmt: skip
        self.group = process.pid
        try:
            self.out, self.err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(self.group, 9)
            raise
        self.returncode = process.returncode

    def left_over(self) -> bool:
        """Whether a process of the group is still there, ten seconds after its end."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                os.killpg(self.group, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.05)
        os.killpg(self.group, 9)
        return True


def test_a_plugin_in_main_under_loky(tmp_path):
    source = """
class Quitter:
    @hookimpl
    def skcurse_diagnostics(self):
        return {"quitter": lambda estimator, X, y: sys.exit(3)}


register(Quitter())
results = search([*names, "quitter"], n_jobs=2).fit(X, y).cv_results_
assert np.isnan(results["mean_test_quitter"]).all()
check(results)
"""
    done = Script(tmp_path, MAIN + REGISTERED + source)
    assert (done.returncode, done.out) == (0, "checked\n"), done.err
    assert "Diagnostic 'quitter' raised SystemExit: 3" in done.err
    assert not done.left_over()


def test_a_plugin_in_a_notebook_that_is_unregistered_before_the_search_runs(tmp_path):
    source = "grid = search(names, n_jobs=2)\nunregister('Plugin')\n"
    source += "check(grid.fit(X, y).cv_results_)\n"
    done = Script(tmp_path, MAIN + REGISTERED + source, notebook=True)
    assert done.out == "checked\n", done.err
    assert not done.left_over()


@pytest.mark.extra
def test_a_plugin_in_a_notebook_under_dask(tmp_path):
    pytest.importorskip("distributed")
    done = Script(tmp_path, MAIN + REGISTERED + DASK, notebook=True)
    assert done.out == "checked\n", done.err
    assert not done.left_over()


@pytest.mark.parametrize(
    "backend", ["loky", pytest.param("dask", marks=pytest.mark.extra)]
)  # fmt: skip
def test_a_module_that_workers_cannot_import(tmp_path, backend):
    if backend == "dask":
        pytest.importorskip("distributed")
    hidden = tmp_path / "hidden" / "homeless.py"
    hidden.parent.mkdir()
    hidden.write_text(
        "from skcurse.plugins import hookimpl\n"
        "def homeless(estimator, X, y):\n    return 1.0\n"
        "@hookimpl\ndef skcurse_diagnostics():\n    return {'homeless': homeless}\n"
    )
    run = LOKY if backend == "loky" else DASK
    done = Script(tmp_path, MAIN + HOMELESS + "names = ['homeless']\n" + run, hidden, notebook=True)
    assert done.returncode == 1
    assert "No module named 'homeless'" in done.err
    assert "checked" not in done.out
    assert not done.left_over()


def test_a_killed_worker_is_one_clear_error(tmp_path):
    source = """
class Killer:
    @hookimpl
    def skcurse_diagnostics(self):
        return {"killer": killer}


def killer(estimator, X, y):
    if os.getpid() != PARENT:
        os.kill(os.getpid(), 9)
    return 1.0


register(Killer())
try:
    search(["killer"], n_jobs=2).fit(X, y)
except Exception as error:
    print(type(error).__name__)
    assert "unexpectedly terminated" in str(error)
check(search(names, n_jobs=2).fit(X, y).cv_results_)  # the parent is as good as new
"""
    done = Script(tmp_path, MAIN + REGISTERED + source)
    assert done.out == "TerminatedWorkerError\nchecked\n", done.err
    assert not done.left_over()
