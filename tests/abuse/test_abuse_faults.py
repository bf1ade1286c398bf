"""Interruptions, threads, read-only files, fresh processes and little memory."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from skcurse.datasets import _ett, fetch_ett, make_icl_prompts, make_residual_ssm
from skcurse.estimators import residual_linear
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ROWS = make_residual_ssm(40, 6, random_state=0)
PROMPTS = make_icl_prompts(40, n_context=4, vocabulary_size=3, random_state=0)
MODELS = {
    "finite": (AttentionNTKRegressor(16, max_iter=3, random_state=0), ROWS),
    "table": (AttentionNTKRegressor(300, max_iter=3, random_state=0, solver="collocation"), ROWS),
    "lazy": (AttentionNTKRegressor(16, regime="lazy", random_state=0), ROWS),
    "infinite": (AttentionNTKRegressor(regime="infinite"), ROWS),
    "linear": (ResidualLinearRegressor(), ROWS),
    "target": (ResidualTargetRegressor(), ROWS),
    "rows": (SoftmaxICLRegressor(max_iter=3), ROWS),
    "prompts": (SoftmaxICLRegressor(4, max_iter=3), PROMPTS),
}


@pytest.fixture(scope="module")
def fitted():
    return {name: model.fit(*data) for name, (model, data) in MODELS.items()}


def raises(error):
    def function(*args, **kwargs):
        raise error

    return function


class Interrupted(Ridge):
    """A regressor at whose fit the user loses patience."""

    def fit(self, X, y, sample_weight=None):
        if len(X) < 40:
            raise KeyboardInterrupt
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("step", ["add_rows", "solve_factor", "column_weights"])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_an_interrupted_linear_fit_changes_nothing(step, method, monkeypatch):
    X, y = ROWS
    fresh = ResidualLinearRegressor()
    model = ResidualLinearRegressor().fit(X, y)
    before, prediction = dict(vars(model)), model.predict(X)
    narrow = X[:, :3] if method == "fit" else X
    with monkeypatch.context() as patch:
        patch.setattr(residual_linear, step, raises(KeyboardInterrupt))
        for interrupted in (model, fresh):
            with pytest.raises(KeyboardInterrupt):
                getattr(interrupted, method)(narrow, y)
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict(X), prediction)
    assert vars(fresh) == vars(ResidualLinearRegressor())
    np.testing.assert_array_equal(fresh.fit(X, y).predict(X), prediction)


def test_an_interrupted_inner_fit_changes_nothing():
    X, y = ROWS
    model = ResidualTargetRegressor(Interrupted()).fit(X, y)
    before, prediction = dict(vars(model)), model.predict(X)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:10, :3], y[:10])
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict(X), prediction)
    fresh = ResidualTargetRegressor(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X[:10], y[:10])
    assert set(vars(fresh)) == {"estimator", "last_step"}


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        (ResidualLinearRegressor(), {"sample_weight": [-1.0] * 40}),
        (ResidualTargetRegressor(), {"sample_weight": [[1.0]]}),
        (SoftmaxICLRegressor(max_iter=2), {"sample_weight": [-1.0] * 40}),
        (AttentionNTKRegressor(8, max_iter=2), {"sample_weight": [-1.0] * 40}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refused_fit_leaves_a_model_that_predicts(model, refused):
    X, y = ROWS
    prediction = model.fit(X, y).predict(X)
    with pytest.raises(ValueError, match="weight"):
        model.fit(X[:, :2], y, **refused)
    assert model.n_features_in_ == X.shape[1]
    np.testing.assert_array_equal(model.predict(X), prediction)


@pytest.mark.parametrize("name", MODELS)
def test_threads_share_a_fitted_model(fitted, name):
    model, (X, _) = fitted[name], MODELS[name][1]
    methods = [m for m in ("predict", "attention", "ntk_eigenvalues") if hasattr(model, m)]
    alone = {method: getattr(model, method)(X) for method in methods}
    before = dict(vars(model))
    with ThreadPoolExecutor(8) as pool:
        asked = [(method, pool.submit(getattr(model, method), X)) for method in methods * 12]
        for method, answer in asked:
            np.testing.assert_array_equal(answer.result(), alone[method])
    assert vars(model) == before


@pytest.mark.parametrize("name", MODELS)
def test_files_mapped_read_only(fitted, name, tmp_path):
    X, y = MODELS[name][1]
    paths = [tmp_path / "X.npy", tmp_path / "y.npy"]
    for path, array in zip(paths, (X, y), strict=True):
        np.save(path, array)
    content = [path.read_bytes() for path in paths]
    mapped, target = (np.load(path, mmap_mode="r") for path in paths)
    model, reference = type(fitted[name])(**fitted[name].get_params()), fitted[name]
    model.fit(mapped, target)
    for method in ("predict", "attention", "neural_tangent_kernel", "ntk_eigenvalues"):
        if hasattr(model, method):
            np.testing.assert_array_equal(
                getattr(model, method)(mapped), getattr(reference, method)(X)
            )
    assert [path.read_bytes() for path in paths] == content


FRESH = """
import json, sys, warnings
import joblib
warnings.simplefilter("error")
models, data = joblib.load(sys.argv[1])
loaded = [name for name in sys.modules if name.startswith("matplotlib")]
print(json.dumps([{n: m.predict(data[n]).tolist() for n, m in models.items()}, loaded]))
"""


def test_pickles_are_read_in_a_fresh_process(fitted, tmp_path):
    data = {name: X for name, (_, (X, _)) in MODELS.items()}
    joblib.dump((fitted, data), tmp_path / "models.joblib")
    command = [sys.executable, "-c", FRESH, tmp_path / "models.joblib"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    predictions, loaded = json.loads(run.stdout)
    assert not loaded
    for name, prediction in predictions.items():
        np.testing.assert_allclose(prediction, fitted[name].predict(data[name]), rtol=1e-14)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=repr)
def test_a_download_that_is_interrupted_leaves_nothing(error, tmp_path, monkeypatch):
    source = tmp_path / "source.csv"
    source.write_text("date,OT\n")
    monkeypatch.setattr(_ett, "urlopen", lambda url, timeout: source.open("rb"))
    monkeypatch.setattr(_ett.shutil, "copyfileobj", raises(error))
    home = tmp_path / "home"
    with pytest.raises(type(error)):
        fetch_ett(data_home=home)
    assert [p for p in home.rglob("*") if p.is_file()] == []


# What may be held beside data, results and a fixed base, in units of the working memory.
SHARE = 2.5
MEMORY = """
import gc, json, sys, tracemalloc, warnings
import numpy as np, sklearn
from skcurse.datasets import make_icl_prompts
from skcurse.estimators.attention_kernel import AttentionNTKKernel
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

warnings.simplefilter("ignore")
limit = int(sys.argv[1])
sklearn.set_config(working_memory=limit)
rng = np.random.default_rng(0)
X = rng.standard_normal((20_000, 4)); y = X[:, 0].copy(); few = slice(0, 200)
many = X[:5000]  # times a thousand nodes
direct = AttentionNTKRegressor(256, max_iter=1, solver="direct", random_state=0)
lazy = AttentionNTKRegressor(64, regime="lazy", max_iter=5, random_state=0).fit(X[few], y[few])
wide = AttentionNTKRegressor(regime="infinite", max_iter=5).fit(X[few], y[few])
rows = SoftmaxICLRegressor(max_iter=1).fit(X[:3000], y[:3000])
linear = ResidualLinearRegressor()
calls = {
    "direct fit": lambda: direct.fit(X, y),
    "direct predict": lambda: direct.predict(X),
    "lazy predict": lambda: lazy.predict(X),
    "wide predict": lambda: wide.predict(many),
    "wide attention": lambda: wide.attention(many),
    "kernel diagonal": lambda: AttentionNTKKernel().diag(many),
    "linear fit": lambda: linear.fit(X, y),
    "linear predict": lambda: linear.predict(X),
    "rows fit": lambda: SoftmaxICLRegressor(max_iter=1).fit(X[:3000], y[:3000]),
    "rows predict": lambda: rows.predict(X),
}
peaks = {}
for name, call in calls.items():
    gc.collect(); tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = call()
    peaks[name] = (tracemalloc.get_traced_memory()[1] - before) / 2**20
    tracemalloc.stop(); del kept
print(json.dumps(peaks))
"""


def test_memory_stays_within_the_limit():
    """All has thousands of rows times neurons, nodes or contexts: up to 100 MB if held at once."""
    limit, base = 4, 6.0
    command = [sys.executable, "-c", MEMORY, str(limit)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    peaks = json.loads(run.stdout)
    assert {name: peak for name, peak in peaks.items() if peak > SHARE * limit + base} == {}
