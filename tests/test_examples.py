"""Every example is what a gallery expects, and runs without a screen."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
PLOTS = [path for path in EXAMPLES if path.name.startswith("plot_")]
NEEDS = {
    "with_dask": "distributed",
    "with_optuna": "optuna",
    "with_skforecast": "skforecast",
    "with_skops": "skops",
    "with_sktime": "sktime",
}
each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def imported(tree):
    """Modules of this package and the names that are taken from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "skcurse":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "skcurse":
            yield "skcurse", node.attr


def test_there_are_six_plots_in_order():
    assert [path.name[5:7] for path in PLOTS] == ["01", "02", "03", "04", "05", "06"]


@each_example
def test_is_a_page_of_a_gallery(path):
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    lines = ast.get_docstring(tree).splitlines()
    assert lines[0] == lines[2] == "=" * len(lines[1])
    assert ("# %%" in source) == (path in PLOTS)


@each_example
def test_uses_public_names_only(path):
    names = list(imported(ast.parse(path.read_text("utf-8"))))
    assert names
    for module, name in names:
        assert not any(part.startswith("_") for part in [*module.split("."), name])
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


@pytest.mark.extra
@each_example
def test_runs(path, tmp_path, request):
    if "extra" not in request.config.getoption("markexpr"):
        pytest.skip("takes a minute: run with -m extra")
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    figure = [str(tmp_path / "figure.png")] if path in PLOTS else []
    run = subprocess.run(
        [sys.executable, str(path), *figure],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == (["figure.png"] if figure else [])
    if path in PLOTS:
        assert run.stderr == ""
