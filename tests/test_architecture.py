"""The arrows between modules point down, and the core imports nothing it should not."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import skcurse

ROOT = Path(skcurse.__file__).parent

# theory <- datasets, estimators <- diagnostics <- comparison, displays <- cli
ALLOWED = {
    "theory": set(),
    "hookspecs": set(),
    "scorer": set(),
    "offers": {"hookspecs"},
    "builtin": {"hookspecs", "datasets", "diagnostics", "estimators"},
    "plugins": {"hookspecs", "offers", "scorer", "builtin"},
    "datasets": {"theory"},
    "estimators": {"theory"},
    "diagnostics": {"datasets", "theory", "scorer"},
    "testing": {"hookspecs", "offers", "plugins", "scorer", "datasets"},
    "displays": {"theory", "datasets", "estimators", "diagnostics"},
    "comparison": {"displays", "diagnostics", "datasets", "estimators", "plugins", "scorer"},
    "ledger": {"comparison", "diagnostics", "datasets", "estimators", "theory"},
    "cli": {"ledger", "comparison", "displays", "diagnostics", "datasets", "estimators", "plugins"},
    "__main__": {"cli"},
}
FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")
EXTRAS = {"matplotlib", "rich", "pandas", "polars", "torch", "jax", "dask", "distributed", "skops"}


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: relative import"
            found.add(node.module)
            if node.module == "skcurse":
                found |= {f"skcurse.{alias.name}" for alias in node.names}
    return found


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_down(path):
    ours = {m.split(".")[1] for m in imports(path) if m.startswith("skcurse.")}
    upwards = ours - ALLOWED[layer(path)] - {layer(path)}
    assert not upwards, f"{layer(path)} must not import {upwards}"


@pytest.mark.parametrize("path", sorted((ROOT / "theory").glob("*.py")), ids=lambda p: p.name)
def test_theory_is_numpy_and_scipy_only(path):
    roots = {m.split(".")[0] for m in imports(path)}
    assert roots <= {"numpy", "scipy", "skcurse", *sys.stdlib_module_names}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_extras_are_imported_where_they_are_used(path):
    roots = {m.split(".")[0] for m in imports(path, top_level_only=True)}
    assert not roots & EXTRAS


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_public_scikit_learn_only(path):
    private = {m for m in imports(path) if m.startswith("sklearn.") and "._" in m}
    assert not private


def test_import_is_light():
    heavy = EXTRAS | {"scipy.stats"}
    # scikit-learn itself may load some of them: only what skcurse adds counts.
    code = f"""
import sys
import sklearn.pipeline, sklearn.model_selection, sklearn.linear_model
before = set(sys.modules)
import skcurse
print(*sorted({heavy!r} & (set(sys.modules) - before)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not out.stdout.split()


def test_top_level_is_what_the_user_asked_for():
    root = ROOT.parent
    if not (root / "pyproject.toml").exists():
        pytest.skip("installed without the source tree")
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    visible = {name.split("/")[0] for name in tracked if name and not name.startswith(".")}
    assert visible <= {
        "pyproject.toml", "skcurse", "plugins", "examples", "tests",
        "README.md", "LICENSE", "CHANGELOG.md",
    }  # fmt: skip
