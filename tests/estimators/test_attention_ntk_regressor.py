"""AttentionNTKRegressor: scikit-learn's checks on every variant, and what each regime promises."""

import pickle
import re
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from skcurse.estimators._resources import parallel_map
from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.theory.attention_ntk import (
    forward,
    gradient_descent,
    kernel_features,
    largest_stable_rate,
)

SMALL = {"n_neurons": 16, "max_iter": 20}
VARIANTS = [
    AttentionNTKRegressor(**SMALL),
    AttentionNTKRegressor(**SMALL, solver="direct", init="iid", alpha=0.1),
    AttentionNTKRegressor(**SMALL, n_jobs=2),
    AttentionNTKRegressor(**SMALL, regime="lazy"),
    AttentionNTKRegressor(n_neurons=16, regime="lazy", max_iter=np.inf, alpha=0.5, init="iid"),
    AttentionNTKRegressor(**SMALL, regime="infinite"),
    AttentionNTKRegressor(regime="infinite", max_iter=np.inf, alpha=0.5),
]
REGIMES = ["finite", "lazy", "infinite"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@parametrize_with_checks(VARIANTS)
def test_estimator_checks(estimator, check):
    check(estimator)


def test_poor_score_is_claimed():
    assert all(get_tags(variant).regressor_tags.poor_score for variant in VARIANTS)


def series(n=40, d=6, n_outputs=None, seed=0):
    """Windows of a stationary series, and what comes next."""
    rng = np.random.default_rng(seed)
    steps = np.arange(d + (n_outputs or 1))
    phase = rng.uniform(0, 2 * np.pi, size=(n, 3, 1))
    waves = np.cos(steps * np.array([0.4, 1.1, 2.0])[:, None] + phase)
    U = np.einsum("nk,nkt->nt", rng.rayleigh(size=(n, 3)), waves)
    return U[:, :d], U[:, d] if n_outputs is None else U[:, d:]


def model(regime="finite", **parameters):
    defaults = {"n_neurons": 64, "max_iter": 15, "tol": 0.0, "random_state": 0}
    return AttentionNTKRegressor(regime=regime, **{**defaults, **parameters})


def loss_of(fitted, X, y, s, alpha):
    """Loss from predictions and weights alone."""
    residual = (fitted.predict(X) - y).reshape(len(X), -1)
    loss = np.sum(s[:, None] * residual**2) / 2
    if fitted.regime_ == "infinite":
        return loss + alpha * np.sum(fitted.node_weights_**2) / 2
    return loss + alpha * np.sum((fitted.weights_ - fitted.initial_weights_) ** 2) / 2


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("n_outputs", [None, 1, 2])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_losses_are_those_of_the_predictions(regime, n_outputs, alpha):
    X, y = series(n_outputs=n_outputs)
    s = np.random.default_rng(1).uniform(0, 2, size=len(X))
    fitted = model(regime, alpha=alpha, init="iid").fit(X, y, sample_weight=s)
    assert fitted.predict(X).shape == y.shape
    assert fitted.loss_curve_[-1] == pytest.approx(loss_of(fitted, X, y, s, alpha), rel=1e-10)
    assert fitted.loss_curve_[-1] < fitted.loss_curve_[0]
    steps = getattr(fitted, "loss_steps_", np.arange(fitted.n_iter_ + 1))
    assert (steps[0], steps[-1], len(steps)) == (0, 15, len(fitted.loss_curve_))
    staged = list(fitted.staged_predict(X))
    assert len(staged) == len(steps) - 1
    np.testing.assert_array_equal(staged[-1], fitted.predict(X))
    first = clone(fitted).set_params(max_iter=int(steps[3])).fit(X, y, sample_weight=s)
    np.testing.assert_allclose(staged[2], first.predict(X), rtol=1e-9, atol=1e-12)


def test_finite_regime_is_the_theory():
    X, y = series()
    fitted = model(solver="direct").fit(X, y)
    run = gradient_descent(X, y, fitted.initial_weights_, fitted.signs_, max_iter=15, tol=0.0)
    np.testing.assert_array_equal(fitted.weights_, run.weights)
    np.testing.assert_array_equal(fitted.loss_curve_, run.losses)
    np.testing.assert_array_equal(fitted.predict(X), forward(X, run.weights, fitted.signs_))
    bound = largest_stable_rate(X, fitted.initial_weights_)
    assert fitted.learning_rate_ == pytest.approx(bound / 2, rel=1e-12)
    assert fitted.n_iter_ == 15


def test_lazy_and_infinite_limits_are_kernel_ridge():
    X, y = series(n=12)
    Z, _ = series(n=5, seed=1)
    for regime, alpha in (("lazy", 0.2), ("infinite", 0.2), ("lazy", 1e-6), ("infinite", 1e-6)):
        fitted = model(regime, alpha=alpha, max_iter=np.inf, init="iid").fit(X, y)
        start = np.zeros(12), np.zeros(5)
        if regime == "lazy":
            start = [forward(rows, fitted.initial_weights_, fitted.signs_) for rows in (X, Z)]
        K = fitted.neural_tangent_kernel(X) + alpha * np.eye(12)
        expected = start[1] + fitted.neural_tangent_kernel(Z, X) @ np.linalg.solve(K, y - start[0])
        np.testing.assert_allclose(fitted.predict(Z), expected, atol=1e-7)
        assert fitted.n_iter_ == np.inf


def test_wide_networks_approach_the_infinite_one():
    X, y = series(n=20)
    limit = model("infinite", max_iter=30).fit(X, y).predict(X)
    errors = {}
    for regime in ("lazy", "finite"):
        for m in (2**8, 2**14):
            runs = [
                model(regime, n_neurons=m, max_iter=30, random_state=k).fit(X, y).predict(X)
                for k in range(4)
            ]
            errors[regime, m] = np.sqrt(np.mean((np.array(runs) - limit) ** 2))
        # An eightfold smaller error is expected.
        assert errors[regime, 2**14] < errors[regime, 2**8] / 3


@pytest.mark.parametrize("regime", REGIMES)
def test_columns_are_networks_of_their_own(regime):
    X, Y = series(n_outputs=3)
    together = model(regime).fit(X, Y)
    for k, y in enumerate(Y.T):
        alone = model(regime).fit(X, y)
        np.testing.assert_allclose(together.predict(X)[:, k], alone.predict(X), rtol=1e-9)
        if regime != "infinite":
            np.testing.assert_allclose(together.weights_[k], alone.weights_, rtol=1e-9)
            np.testing.assert_array_equal(together.initial_weights_, alone.initial_weights_)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_weight_two_is_a_row_twice_and_weight_zero_none(regime, alpha):
    X, y = series()
    s = np.arange(40) % 3
    weighted = model(regime, alpha=alpha).fit(X, y, sample_weight=s)
    repeated = model(regime, alpha=alpha).fit(np.repeat(X, s, axis=0), np.repeat(y, s))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-10)
    # Whatever the row holds: this one alone would overflow the loss.
    X[0], y[0] = 1e200, -1e200
    absent = model(regime, alpha=alpha).fit(X, y, sample_weight=s)
    np.testing.assert_array_equal(absent.loss_curve_, weighted.loss_curve_)


@pytest.mark.parametrize("regime", REGIMES)
def test_workers_change_no_bit_and_memory_only_rounding(regime):
    X, y = series(n=70, n_outputs=2)

    def results(**parameters):
        fitted = model(regime, n_neurons=300, solver="direct", max_iter=5, **parameters).fit(X, y)
        return [
            fitted.loss_curve_,
            fitted.predict(X),
            fitted.attention(X),
            fitted.neural_tangent_kernel(X, X[:9]),
            fitted.ntk_eigenvalues(X)[..., :5],
        ]

    with sklearn.config_context(working_memory=0.1):
        serial, parallel = results(), results(n_jobs=2)
    for roomy, a, b in zip(results(), serial, parallel, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, roomy, rtol=1e-10, atol=1e-12 * np.abs(roomy).max())


def test_any_joblib_backend_maps_blocks():
    X, _ = series()
    w, a = np.linspace(-1, 1, 8), np.ones(8)
    with joblib.parallel_config(backend="loky"), parallel_map(2) as blocks:
        assert list(blocks(divmod, [7, 9], [2, 4])) == [(3, 1), (2, 1)]
        out = forward(X, w, a, map=blocks, block_bytes=2**12)
    np.testing.assert_allclose(out, forward(X, w, a, block_bytes=2**12), rtol=1e-12)


@pytest.mark.parametrize("regime", REGIMES)
def test_single_precision_in_single_precision_out(regime):
    X, y = series()
    X32 = X.astype(np.float32)
    fitted = model(regime).fit(X32, y.astype(np.float32))
    assert fitted.predict(X32).dtype == np.float32
    assert fitted.attention(X32).dtype == np.float32
    np.testing.assert_allclose(fitted.predict(X32), model(regime).fit(X, y).predict(X), atol=1e-4)


def test_warm_start_continues():
    X, y = series()
    whole = model(solver="direct").fit(X, y)
    halves = model(solver="direct", max_iter=5, warm_start=True, alpha=0.0).fit(X, y)
    halves.set_params(max_iter=10).fit(X, y)
    np.testing.assert_allclose(halves.weights_, whole.weights_, rtol=1e-12)
    np.testing.assert_allclose(halves.loss_curve_, whole.loss_curve_[5:], rtol=1e-10)
    np.testing.assert_array_equal(halves.initial_weights_, whole.initial_weights_)
    np.testing.assert_array_equal(list(halves.staged_predict(X))[-1], halves.predict(X))
    with pytest.raises(ValueError, match="warm_start=True continues from weights of shape"):
        halves.set_params(n_neurons=10).fit(X, y)
    cold = clone(halves).set_params(n_neurons=64, warm_start=False)
    np.testing.assert_array_equal(cold.fit(X, y).predict(X), cold.fit(X, y).predict(X))


@pytest.mark.parametrize("regime", REGIMES)
def test_diverging_step_names_itself_and_the_largest_stable_one(regime):
    X, y = series()
    stable = 2 * model(regime).fit(X, y).learning_rate_
    diverging = model(regime, learning_rate=50 * stable)
    with pytest.raises(ValueError, match="diverges") as error:
        diverging.fit(X, y)
    for value in (50 * stable, stable):
        assert f"{value:.6g}" in str(error.value)
    assert not hasattr(diverging, "n_features_in_")
    assert np.isfinite(model(regime, learning_rate=0.9 * stable).fit(X, y).predict(X)).all()


def test_reaching_max_iter_warns_and_converging_does_not():
    X, y = series()
    with pytest.warns(ConvergenceWarning, match="After 3 steps"):
        model(max_iter=3, tol=1e-4).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        fitted = model(max_iter=5000, tol=1e-3).fit(X, y)
        model("lazy", max_iter=3).fit(X, y)
    change = fitted.loss_curve_[10:] / fitted.loss_curve_[:-10]
    assert 1 - change[-1] <= 1e-3
    assert np.all(1 - change[:-1] > 1e-3)


@pytest.mark.parametrize("init", ["antisymmetric", "iid"])
@pytest.mark.parametrize("regime", REGIMES)
def test_windows_that_move_nothing_get_the_initial_output(regime, init):
    rng = np.random.default_rng(0)
    for X in (
        rng.normal(size=(8, 1)),
        np.repeat(rng.normal(size=(8, 1)), 5, axis=1),
        rng.normal(size=(8, 4)) * [1, 1, 1, 0],
        1e-200 * rng.normal(size=(8, 4)),
        1e120 * (2.0 + rng.normal(size=(8, 4))),
    ):
        if X.max() > 1e100 and regime == "infinite":
            # Some of infinitely many neurons are close enough to zero to feel such windows.
            with pytest.raises(ValueError, match="too large"):
                model(regime).fit(X, np.ones(8))
            continue
        fitted = model(regime, init=init, max_iter=100).fit(X, rng.normal(size=8))
        assert fitted.learning_rate_ == 1.0
        expected = np.zeros(8)
        if regime != "infinite":
            np.testing.assert_array_equal(fitted.weights_, fitted.initial_weights_)
            expected = forward(X, fitted.initial_weights_, fitted.signs_)
        np.testing.assert_allclose(fitted.predict(X), expected, rtol=1e-12)
        np.testing.assert_array_equal(fitted.ntk_eigenvalues(X), 0.0)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("scale", [1e300, 1e120, 1e20, 1e3, 1e-3, 1e-60, 1e-300])
@pytest.mark.parametrize("what", ["X", "y", "both", "one row"])
def test_extreme_values_get_an_answer_or_one_clear_error(regime, scale, what):
    X, y = series(n=10)
    X, y = X / np.abs(X).max(), y / np.abs(y).max()
    X = X * scale if what in ("X", "both") else X
    y = y * scale if what in ("y", "both") else y
    if what == "one row":
        X[3] *= scale
    try:
        fitted = model(regime, max_iter=10).fit(X, y)
        out = fitted.predict(X)
    except ValueError as error:
        assert re.search(r"[Rr]escale|scale X", str(error))  # noqa: PT017
        assert scale >= 1e20
    else:
        assert np.isfinite(out).all()
        assert fitted.loss_curve_[-1] <= fitted.loss_curve_[0] * (1 + 1e-9)


@pytest.mark.parametrize("n_samples", [1, 2])
@pytest.mark.parametrize("regime", REGIMES)
def test_a_row_or_two_are_fitted(regime, n_samples):
    X, y = (
        np.array([[1.0, 2.0, 0.5], [1.0, 2.0, 0.5]])[:n_samples],
        np.array([0.1, 0.2])[:n_samples],
    )
    options = {"max_iter": 10_000, "tol": 1e-14}
    fitted = model(regime, **options).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X), np.mean(y), rtol=1e-4)


@pytest.mark.parametrize("regime", REGIMES)
def test_eigenvalues_are_values_or_nan(regime):
    X, y = series(n=30)
    fitted = model(regime, n_neurons=64).fit(X, y)
    values = fitted.ntk_eigenvalues(X)
    known = values[~np.isnan(values)]
    assert len(values) == 30
    assert np.all(np.diff(known) <= 0)
    assert known[-1] > 1e-30 * known[0]
    assert np.isnan(fitted.ntk_eigenvalues(np.vstack([X, X]))[30:]).any()
    kernel = fitted.neural_tangent_kernel(X)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(kernel)[::-1], np.nan_to_num(values), atol=1e-13 * values[0]
    )
    narrow = model(regime, n_neurons=4).fit(X, y).ntk_eigenvalues(X)
    if regime != "infinite":
        # Two distinct weights at the start, four after training.
        np.testing.assert_array_equal(narrow[4:], 0.0)
        assert np.isnan(model(regime, n_neurons=4).fit(X, y).ntk_eigenvalues(X, at="initial")[3])


def test_kernel_and_attention_at_the_start_and_after_training():
    X, Y = series(n_outputs=2)
    fitted = model().fit(X, Y)
    for weights, kernel, values in (
        (fitted.weights_, fitted.neural_tangent_kernel(X), fitted.ntk_eigenvalues(X)),
        (
            fitted.initial_weights_[None],
            fitted.neural_tangent_kernel(X, at="initial")[None],
            fitted.ntk_eigenvalues(X, at="initial")[None],
        ),
    ):
        for w, H, spectrum in zip(weights, kernel, values, strict=True):
            features = kernel_features(X, w)
            np.testing.assert_allclose(H, features @ features.T / 64, rtol=1e-12)
            assert spectrum[0] == pytest.approx(np.linalg.norm(H, 2), rel=1e-12)
    attention = fitted.attention(X)
    assert attention.shape == (40, 2, 64)
    scores = fitted.weights_[None, :, :, None] * X[:, -1, None, None, None] * X[:, None, None, :]
    S = np.exp(scores) / np.exp(scores).sum(axis=3, keepdims=True)
    np.testing.assert_allclose(attention, S[..., -1], rtol=1e-10)
    assert model().fit(X, Y[:, 0]).attention(X).shape == (40, 64)
    limit = model("infinite").fit(X, Y)
    sample = model(n_neurons=20_000, max_iter=1).fit(X, Y[:, 0])
    wide = sample.set_params().attention(X)
    error = wide.std(axis=1) / np.sqrt(10_000)
    assert np.all(np.abs(wide.mean(axis=1) - limit.attention(X)[:, 0]) < 6 * error)
    with pytest.raises(ValueError, match="at must be 'fitted' or 'initial'"):
        fitted.neural_tangent_kernel(X, at="middle")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"regime": "wide"}, "regime must be one of"),
        ({"solver": "fast"}, "solver must be one of"),
        ({"init": "zero"}, "init must be one of"),
        ({"n_neurons": 0}, "n_neurons"),
        ({"n_neurons": 7}, "even number of neurons, got 7"),
        ({"learning_rate": "fast"}, "learning_rate must be 'auto' or a positive"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 0, "regime": "lazy"}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"n_iter_no_change": 0}, "n_iter_no_change"),
        ({"alpha": -0.1}, "alpha"),
    ],
)
def test_parameters_out_of_range(parameters, message):
    X, y = series()
    with pytest.raises(ValueError, match=message):
        model(**parameters).fit(X, y)


def test_infinity_is_for_closed_forms():
    X, y = series()
    with pytest.raises(ValueError, match="regime='lazy' or regime='infinite'"):
        model(max_iter=np.inf).fit(X, y)
    model("lazy", max_iter=10**30).fit(X, y)


@pytest.mark.parametrize("name", ["alpha", "tol", "learning_rate"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_parameters_are_finite(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number (above|of at least) 0"):
        model(**{name: value}).fit(*series())


def messages(fit):
    with warnings.catch_warnings(record=True, action="always") as caught:
        fit()
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("solver", ["direct", "collocation"])
@pytest.mark.parametrize("regime", ["lazy", "infinite"])
@pytest.mark.parametrize(
    ("limit", "warned"),
    [
        ({"max_iter": np.inf}, True),
        ({"max_iter": 10**25}, True),
        ({"max_iter": np.inf, "alpha": 1e-24}, True),
        ({"max_iter": np.inf, "alpha": 1e-6}, False),
        ({"max_iter": 1000}, False),
    ],
)
def test_inverting_rounding_errors_is_warned_of(regime, solver, limit, warned):
    X = np.random.default_rng(0).normal(size=(60, 6))
    said = messages(lambda: model(regime, solver=solver, **limit).fit(X, X @ np.arange(6.0)))
    assert ["alpha > 0 or a smaller, finite max_iter" in text for text in said] == [True] * warned
    # The solvers disagree where there is a warning, and nowhere else.
    one, two = (
        model(regime, solver=s, **limit).fit(X, X @ np.arange(6.0)).predict(X[::-1, ::-1])
        for s in ("direct", "collocation")
    )
    assert np.allclose(one, two, rtol=1e-3, atol=1e-3) is not warned


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (0.5, 100.0), (40.0, 0.0)])
def test_a_fit_worse_than_the_mean_is_warned_of(regime, scale, offset):
    X, y = series()
    X, y = scale * X + offset, scale * y + offset
    s = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    fitted = model(regime, max_iter=100)
    said = messages(lambda: fitted.fit(X, y, sample_weight=s))
    worse = any("standardise the series before it is cut" in text for text in said)
    assert worse is (offset > 0)
    assert (fitted.score(X, y, sample_weight=s) < 0) is worse


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(40), "sample_weight must not be zero in all rows"),
        (np.where(np.arange(40) < 3, 1.0, -0.5), r"sample_weight must not be .* -0\.5 in row 3"),
        (np.ones(3), r"sample_weight must hold 40 .* its shape is \(3,\)"),
        (np.ones((40, 2)), r"its shape is \(40, 2\)"),
        (np.ones((40, 2, 2)), "Found array"),
    ],
)
def test_sample_weights_out_of_range(weight, message):
    X, y = series()
    with pytest.raises(ValueError, match=message):
        model().fit(X, y, sample_weight=weight)


def test_random_state_instances_move_on_and_seeds_do_not():
    X, y = series()
    rng = np.random.RandomState(0)
    first, second = (model("lazy", random_state=rng).fit(X, y).weights_ for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, model("lazy", random_state=0).fit(X, y).weights_)


@pytest.mark.parametrize("regime", REGIMES)
def test_round_trips_and_compositions(regime, tmp_path):
    X, y = series()
    fitted = model(regime).fit(X, y)
    joblib.dump(fitted, tmp_path / "model.joblib")
    for other in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
    composed = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), model(regime)), transformer=StandardScaler()
    )
    search = GridSearchCV(
        composed, {"regressor__attentionntkregressor__alpha": [0.0, 0.1]}, cv=2
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    both = MultiOutputRegressor(model(regime)).fit(X, np.stack([y, y], axis=1))
    np.testing.assert_array_equal(both.predict(X)[:, 0], fitted.predict(X))


def test_regimes_leave_no_attributes_of_each_other():
    X, y = series()
    estimator = model()
    for regime in [*REGIMES, "finite"]:
        estimator.set_params(regime=regime).fit(X, y)
        assert vars(estimator).keys() == vars(model(regime).fit(X, y)).keys()
