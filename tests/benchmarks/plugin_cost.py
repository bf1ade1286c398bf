"""What plugins cost: a look-up, a diagnostic in a search, an import.

Run as ``python tests/benchmarks/plugin_cost.py``. Both sides of each ratio are timed in turn, in
one process (searches) or in fresh ones (imports); intervals are 95 % bootstrap intervals of the
median.
"""

import os
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable

import numpy as np
from sklearn.datasets import make_regression
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from skcurse.plugins import get_diagnostics, hookimpl, isolated_plugins

PAIRS = 60
CACHE = tempfile.TemporaryDirectory()


def mean_error(estimator, X, y):
    return float(np.mean(estimator.predict(X) - y))


def largest_error(estimator, X, y):
    return float(np.max(np.abs(estimator.predict(X) - y)))


def norm(estimator, X, y):
    return float(np.linalg.norm(estimator.coef_))


FUNCTIONS = {"mean_error": mean_error, "largest_error": largest_error, "norm": norm}


class Plugin:
    @hookimpl
    def skcurse_diagnostics(self):
        return FUNCTIONS


def interval(values: list[float]) -> str:
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (4000, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return f"{np.median(values):.4f}  [{low:.4f}, {high:.4f}]"


def ratios(first: Callable[[], object], second: Callable[[], object]) -> list[float]:
    """Time two functions in turn, each first as often as the other."""
    first(), second()
    found = []
    for i in range(PAIRS):
        order = (first, second) if i % 2 else (second, first)
        times = {function: timeit.timeit(function, number=1) for function in order}
        found.append(times[first] / times[second])
    return found


def search(scoring):
    X, y = make_regression(200, 10, noise=1.0, random_state=0)
    grid = {"alpha": np.logspace(-3, 3, 10)}
    scoring = {"r2": "r2", **scoring}
    return lambda: GridSearchCV(Ridge(), grid, scoring=scoring, refit="r2").fit(X, y)


def run(code: str) -> str:
    """Run Python with bytecode cached, as an installed package has it."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": CACHE.name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


def extra_import_seconds(modules: str) -> float:
    """CPU seconds of importing skcurse where the scikit-learn modules it needs are imported."""
    clock = "time.process_time()"
    return float(run(f"import time, {modules}; t = {clock}; import skcurse; print({clock} - t)"))


def needed_modules() -> str:
    """Return the scikit-learn modules that importing skcurse imports."""
    return run(
        "import sys, skcurse; print(*sorted(m for m in sys.modules if m.split('.')[0] == 'sklearn'"
        " and not any(part.startswith('_') for part in m.split('.'))), sep=', ')"
    ).strip()


def main() -> None:
    with isolated_plugins(Plugin()):
        number = 2000
        names = list(FUNCTIONS)
        for label, call in (("all", get_diagnostics), ("three", lambda: get_diagnostics(names))):
            seconds = min(timeit.repeat(call, number=number, repeat=5)) / number
            print(f"get_diagnostics, {label}: {1e6 * seconds:.2f} µs")
        with_plugins, plain = search(get_diagnostics(names)), search(FUNCTIONS)
        print("search with three diagnostics / with three plain scorers:", end=" ")
        print(interval(ratios(with_plugins, plain)))
    modules = needed_modules()
    extra = [extra_import_seconds(modules) for _ in range(15)]
    print(f"import skcurse after its {modules.count(',') + 1} scikit-learn modules, CPU seconds:")
    print(interval(extra))
    loaded = run("import sys, skcurse; print('skcurse.builtin' in sys.modules)").strip()
    print(f"built-in plugin loaded by the import: {loaded}")


if __name__ == "__main__":
    main()
