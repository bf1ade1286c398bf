"""What a user must not be afraid of: code in data, the network, files of unknown licence."""

import ast
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import skcurse
from skcurse.datasets import _ett

PACKAGE = Path(skcurse.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# Nothing that is read may run: no unpickling, no evaluation, no shell.
RUNS_DATA = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "subprocess"}
CALLS_RUN_DATA = {"eval", "exec", "compile", "__import__", "read_pickle"}
SHELL = {("os", "system"), ("os", "popen")}
NETWORK = {"urllib", "http", "socket", "ssl", "ftplib", "requests", "httpx", "aiohttp", "urllib3"}
# check_plugin pickles and reads back what its caller handed it; compare only tries to pickle a
# diagnostic that no worker got.
EXEMPT = {("testing.py", "pickle"), ("comparison/_compare.py", "pickle")}


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def called(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "id", getattr(node.func, "attr", None)), node


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_data_are_never_run(path):
    tree = ast.parse(path.read_text())
    name = str(path.relative_to(PACKAGE))
    unsafe = {(name, module) for module in set(imports(tree)) & RUNS_DATA} - EXEMPT
    assert not unsafe
    for function, call in called(tree):
        if function == "compile" and isinstance(call.func, ast.Attribute):
            assert call.func.value.id == "re"
            continue
        assert function not in CALLS_RUN_DATA, f"{name}, line {call.lineno}"
        owner = getattr(getattr(call.func, "value", None), "id", None)
        assert (owner, function) not in SHELL, f"{name}, line {call.lineno}"
        assert (owner, function) not in {("np", "load"), ("joblib", "load")}
        assert not any(keyword.arg == "allow_pickle" for keyword in call.keywords)


def test_only_what_fetches_knows_the_network():
    known = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if set(imports(ast.parse(path.read_text()))) & NETWORK
    }
    assert known == {"datasets/_ett.py"}


def test_what_is_fetched_comes_encrypted_and_is_checked():
    assert _ett._URL.startswith("https://")
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in _ett._SHA256.values())


OFFLINE = """
import sys
def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        raise AssertionError("the network was asked for")
sys.addaudithook(refuse)
import warnings; warnings.simplefilter("ignore")
import skcurse
from skcurse.cli import main
X, y = skcurse.make_windows(skcurse.load_sunspots().target / 50, n_steps=6)
skcurse.load_co2()
for name, cls in skcurse.get_estimators().items():
    cls().fit(X[:40], y[:40]).predict(X[:3])
skcurse.compare(
    [skcurse.ResidualLinearRegressor()], [skcurse.ResidualSSM()], n_samples=40, cv=2
)
try:
    skcurse.fetch_ett(data_home=sys.argv[1], download_if_missing=False)
except OSError:
    print("offline")
"""


def test_nothing_but_a_fetch_asks_for_the_network(tmp_path):
    command = [sys.executable, "-c", OFFLINE, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.stdout.strip().endswith("offline"), run.stderr


def test_every_bundled_file_has_a_source_and_a_licence():
    folder = files("skcurse.datasets") / "data"
    text = (folder / "README.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    bundled = {file.name for file in folder.iterdir()} - {"README.md"}
    stated = {}
    for section in sections:
        names = re.findall(r"^- File: (\S+),", section, flags=re.MULTILINE)
        stated |= dict.fromkeys(names, section)
    assert set(stated) == bundled
    for section in stated.values():
        assert re.search(r"^- Licence: \S", section, flags=re.MULTILINE)
        assert re.search(r"^- Source: \S", section, flags=re.MULTILINE)
    elsewhere = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    ours = {"ledger/curse.toml", "ledger/icl.toml", "ledger/verdicts.json", "py.typed"}
    assert elsewhere - ours == {f"datasets/data/{name}" for name in [*bundled, "README.md"]}
