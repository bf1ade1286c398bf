"""Diagnostics against what they are defined as, on estimators with known weights."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcurse import (
    AttentionNTKRegressor,
    DataModelStudy,
    ICLPrompts,
    ResidualLinearRegressor,
    ResidualSSM,
    ResidualTargetRegressor,
    SoftmaxICLRegressor,
    diagnostics,
    get_diagnostics,
    make_icl_prompts,
    make_residual_ssm,
    ood_scorer,
    pack_prompts,
)

NETWORK = [
    "weight_sign_alignment",
    "update_alignment",
    "last_step_attention",
    "weight_movement",
    "kernel_drift",
    "ntk_min_eigenvalue",
    "ntk_effective_rank",
]
PROMPTS = ["attention_concentration", "loss_floor_gap"]


class Network(RegressorMixin, BaseEstimator):
    """A fitted network whose weights are given, with nothing but what the papers define."""

    def __init__(self, weights=(), initial=(), signs=()):
        self.weights, self.initial, self.signs = weights, initial, signs

    def fit(self, X, y):
        self.weights_ = np.asarray(self.weights, float)
        self.initial_weights_ = np.asarray(self.initial, float)
        self.signs_ = np.asarray(self.signs, float)
        return self

    def softmax(self, x, w):
        e = np.exp(w * x[-1] * x)
        return e / e.sum()

    def predict(self, X):
        means = [[self.softmax(x, w) @ x for w in self.weights_] for x in X]
        return np.array(means) @ self.signs_ / np.sqrt(len(self.signs_))

    def attention(self, X):
        return np.array([[self.softmax(x, w)[-1] for w in self.weights_] for x in X])

    def features(self, X, weights):
        phi = np.empty((len(X), len(weights)))
        for i, x in enumerate(X):
            for r, w in enumerate(weights):
                s = self.softmax(x, w)
                phi[i, r] = x[-1] * (s @ x**2 - (s @ x) ** 2)
        return phi / np.sqrt(len(weights))

    def neural_tangent_kernel(self, X, Y=None, *, at="fitted"):
        w = self.weights_ if at == "fitted" else self.initial_weights_
        return self.features(X, w) @ self.features(X if Y is None else Y, w).T

    def ntk_eigenvalues(self, X, *, at="fitted"):
        return np.linalg.eigvalsh(self.neural_tangent_kernel(X, at=at))[::-1]


RNG = np.random.default_rng(0)
INITIAL = np.array([0.1, -0.5, 1.0, 0.3, 0.2, -0.2])
SIGNS = np.array([1, 1, 1, 1, -1, -1])
WEIGHTS = np.array([0.3, -0.4, 0.9, -0.0, -0.1, -0.2])
X = RNG.normal(size=(7, 4))
NET = Network(WEIGHTS, INITIAL, SIGNS).fit(X, X[:, 0])


def test_weight_sign_alignment_is_the_mean_of_two_shares():
    # a = 1: signs + - + 0, two of four; a = -1: both negative
    assert diagnostics.weight_sign_alignment(NET, X) == pytest.approx((2 / 4 + 1) / 2)


def test_update_alignment_leaves_out_what_did_not_move():
    # moved + + - - - 0; wanted + + + + - -: three of five
    assert diagnostics.update_alignment(NET, X) == pytest.approx(3 / 5)


def test_weight_movement_is_the_largest():
    assert diagnostics.weight_movement(NET, X) == pytest.approx(0.3)


def test_last_step_attention_is_of_negative_neurons_relative_to_uniform():
    expected = np.mean([NET.softmax(x, w)[-1] for x in X for w in WEIGHTS[4:]]) * X.shape[1]
    assert diagnostics.last_step_attention(NET, X) == pytest.approx(expected)
    uniform = Network(np.zeros(6), INITIAL, SIGNS).fit(X, None)
    assert diagnostics.last_step_attention(uniform, X) == pytest.approx(1.0)


def test_sign_agreement_counts_predictions_with_the_sign_of_the_last_step():
    persistence = ResidualLinearRegressor(alpha=1e12, fit_intercept=False).fit(X, X[:, -1])
    assert diagnostics.sign_agreement(persistence, X) == 1.0
    expected = np.mean(np.sign(NET.predict(X)) == np.sign(X[:, -1]))
    assert diagnostics.sign_agreement(NET, X) == expected
    newest_first = ResidualLinearRegressor(alpha=1e12, fit_intercept=False, last_step=0)
    newest_first.fit(X[:, ::-1], X[:, -1])
    assert diagnostics.sign_agreement(newest_first, X[:, ::-1]) == 1.0
    wrapped = ResidualTargetRegressor(
        DummyRegressor(strategy="constant", constant=0.0), last_step=0
    )
    wrapped.fit(X[:, ::-1], X[:, -1])
    assert diagnostics.sign_agreement(wrapped, X[:, ::-1]) == 1.0
    two = ResidualLinearRegressor(alpha=1e12, fit_intercept=False).fit(X, X[:, [-1, -1]])
    assert diagnostics.sign_agreement(two, X) == 1.0


def test_kernel_drift_is_the_relative_frobenius_norm(monkeypatch):
    H0, H = NET.neural_tangent_kernel(X, at="initial"), NET.neural_tangent_kernel(X)
    expected = np.linalg.norm(H - H0) / np.linalg.norm(H0)
    assert diagnostics.kernel_drift(NET, X) == pytest.approx(expected, rel=1e-12)
    batches = [slice(0, 3), slice(3, len(X))]
    monkeypatch.setattr("skcurse.diagnostics._kernel.gen_batches", lambda n, size: batches)
    assert diagnostics.kernel_drift(NET, X) == pytest.approx(expected, rel=1e-12)


def test_kernel_drift_of_two_outputs_is_their_root_mean_square():
    X, y = make_residual_ssm(30, 6, random_state=0)
    Y = np.column_stack([y, -3 * y])
    with warnings.catch_warnings(action="ignore"):
        model = AttentionNTKRegressor(16, max_iter=20, learning_rate=0.05, random_state=0)
        both = diagnostics.kernel_drift(model.fit(X, Y), X)
        drifts = [diagnostics.kernel_drift(model.fit(X, column), X) for column in Y.T]
    assert min(drifts) > 0
    assert both == pytest.approx(np.sqrt(np.mean(np.square(drifts))), rel=1e-6)


def test_spectrum_diagnostics():
    eigenvalues = NET.ntk_eigenvalues(X[:3])
    assert diagnostics.ntk_min_eigenvalue(NET, X[:3]) == pytest.approx(eigenvalues[-1])
    H = NET.neural_tangent_kernel(X[:3])
    expected = np.trace(H) ** 2 / np.sum(H**2)
    assert diagnostics.ntk_effective_rank(NET, X[:3]) == pytest.approx(expected)


def test_min_eigenvalue_is_nan_below_what_is_resolved():
    X, y = make_residual_ssm(60, 8, random_state=0)
    model = AttentionNTKRegressor(512, regime="lazy", random_state=0).fit(X, y)
    assert np.isnan(diagnostics.ntk_min_eigenvalue(model, X))
    assert 1 <= diagnostics.ntk_effective_rank(model, X) <= 60
    assert diagnostics.ntk_min_eigenvalue(model, X[:2]) > 0


def test_update_alignment_is_one_after_the_first_step_where_the_lemma_says_so():
    X, y = make_residual_ssm(80, 10, random_state=1)
    model = AttentionNTKRegressor(64, regime="lazy", max_iter=1, random_state=0).fit(X, y)
    phi = Network().features(X, model.initial_weights_)
    assert (phi.T @ y > 0).all()  # the precondition, computed here
    assert diagnostics.update_alignment(model, X) == 1.0
    flipped = AttentionNTKRegressor(64, regime="lazy", max_iter=1, random_state=0).fit(X, -y)
    assert diagnostics.update_alignment(flipped, X) == 0.0


def test_prompt_diagnostics_on_a_known_attention():
    model = ICLPrompts(n_context=3, vocabulary_size=2, dim=2, probabilities=[0.5, 0.5])
    X, y = model.sample(400, random_state=0)
    with warnings.catch_warnings(action="ignore"):
        learner = SoftmaxICLRegressor(3, max_iter=1).fit(X, y)
    tokens = X[:, :9].reshape(-1, 3, 3)[:, :, :2]
    query = X[:, 9:]
    features = np.unique(query, axis=0)
    learner.query_key_ = 50.0 * np.eye(2)  # attends to the query's feature alone
    seen = (tokens == query[:, None]).all(-1).any(1)
    assert diagnostics.attention_concentration(learner, X) == pytest.approx(seen.mean())
    learner.query_key_ = np.zeros((2, 2))  # uniform attention
    same = (tokens == query[:, None]).all(-1).mean()
    assert diagnostics.attention_concentration(learner, X) == pytest.approx(same)
    counts = np.array(
        [(np.vstack([tokens.reshape(-1, 2), query]) == f).all(1).sum() for f in features]
    )
    p = counts / counts.sum()
    # For two features the closed form: unseen (probability (1 - p_k)^N) costs 2/2.
    floor = sum(p_k * (1 - p_k) ** 3 for p_k in p)
    expected = np.mean((learner.predict(X) - y) ** 2) / 2 - floor
    assert diagnostics.loss_floor_gap(learner, X, y) == pytest.approx(expected, abs=1e-6)


def test_a_token_equals_the_query_in_every_coordinate():
    tokens = np.array([[[1.0, 0.0], [1.0, 1.0]]])
    X = pack_prompts(tokens, np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]]))
    with warnings.catch_warnings(action="ignore"):
        learner = SoftmaxICLRegressor(2, max_iter=1).fit(np.vstack([X, X]), [1.0, 2.0])
    learner.query_key_ = np.zeros((2, 2))
    assert diagnostics.attention_concentration(learner, X) == pytest.approx(0.5)


def wrap(model, kind):
    if kind == "pipeline":
        return make_pipeline("passthrough", model)
    if kind == "search":
        grid = {"random_state": [0]} if hasattr(model, "random_state") else {}
        return GridSearchCV(model, grid, cv=2)
    if kind == "target":
        return TransformedTargetRegressor(model)
    if kind == "nested":
        return make_pipeline(StandardScaler(), TransformedTargetRegressor(model))
    return ResidualTargetRegressor(model)


@pytest.mark.parametrize("kind", ["pipeline", "search", "target", "residual", "nested"])
@pytest.mark.parametrize("name", [*NETWORK, "sign_agreement"])
def test_meta_estimators_are_seen_through(name, kind):
    X, y = make_residual_ssm(40, 6, random_state=0)
    wrapped = wrap(AttentionNTKRegressor(32, regime="lazy", random_state=0), kind).fit(X, y)
    inner, seen = diagnostics.innermost(wrapped, X)
    assert isinstance(inner, AttentionNTKRegressor)
    if kind == "nested":
        np.testing.assert_allclose(seen, StandardScaler().fit_transform(X))
    value = getattr(diagnostics, name)(wrapped, X, y)
    if name == "sign_agreement":  # of the predictions, and the last step, of the whole
        assert value == np.mean(np.sign(wrapped.predict(X)) == np.sign(X[:, -1]))
    else:
        np.testing.assert_equal(value, getattr(diagnostics, name)(inner, seen, y))


@pytest.mark.parametrize("name", [*NETWORK, *PROMPTS])
def test_nan_where_it_does_not_apply(name):
    X, y = make_residual_ssm(30, 6, random_state=0)
    assert np.isnan(getattr(diagnostics, name)(LinearRegression().fit(X, y), X, y))


def test_prompt_diagnostics_do_not_apply_to_rows():
    X, y = make_residual_ssm(30, 6, random_state=0)
    with warnings.catch_warnings(action="ignore"):
        model = SoftmaxICLRegressor(max_iter=5).fit(X, y)
    assert np.isnan(diagnostics.attention_concentration(model, X, y))
    assert np.isnan(diagnostics.loss_floor_gap(model, X, y))


def test_zero_kernel_has_no_relative_quantities():
    X = np.ones((5, 1))
    model = AttentionNTKRegressor(4, regime="lazy", random_state=0).fit(X, X[:, 0])
    assert np.isnan(diagnostics.kernel_drift(model, X))
    assert np.isnan(diagnostics.ntk_effective_rank(model, X))
    assert np.isnan(diagnostics.update_alignment(model, X))


def test_a_study_is_judged_on_the_sample_of_its_seeds():
    study = DataModelStudy(
        AttentionNTKRegressor(32, regime="lazy", random_state=0), ResidualSSM(6), n_samples=60
    )
    scores = cross_validate(
        study, np.arange(6), cv=KFold(3), scoring=get_diagnostics(NETWORK), return_estimator=True
    )
    for split, (_, test) in enumerate(KFold(3).split(np.arange(6))):
        fitted = scores["estimator"][split]
        X, y = fitted.test_sample(np.arange(6)[test])
        for name in NETWORK:
            expected = getattr(diagnostics, name)(fitted.estimator_, X, y)
            np.testing.assert_equal(scores[f"test_{name}"][split], expected)


class TestOODScorer:
    def test_every_split_sees_the_same_shifted_sample(self):
        law = ResidualSSM(n_steps=6)
        X, y = law.sample(80, random_state=0)
        scorer = ood_scorer(law, shift="sign_inconsistent", n_samples=300, random_state=5)
        scores = cross_validate(
            LinearRegression(), X, y, scoring={"ood": scorer}, return_estimator=True
        )
        X_ood, y_ood = law.sample(300, shift="sign_inconsistent", random_state=5)
        expected = [-np.mean((m.predict(X_ood) - y_ood) ** 2) for m in scores["estimator"]]
        np.testing.assert_allclose(scores["test_ood"], expected)

    def test_keeps_a_copy_of_the_data_model_and_pickles(self):
        law = ResidualSSM(n_steps=6, gamma=0.5)
        scorer = ood_scorer(law, shift="sign_inconsistent", n_samples=50)
        model = LinearRegression().fit(*law.sample(50, random_state=0))
        before = scorer(model, None, None)
        law.set_params(gamma=0.9)
        assert scorer(model, None, None) == before
        assert pickle.loads(pickle.dumps(scorer))(model, None, None) == before

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"shift": "sideways"}, "sideways"),
            ({"shift": None, "metric": "nonsense"}, "nonsense"),
            ({"shift": None, "metric": mean_squared_error}, "make_scorer"),
        ],
    )
    def test_what_does_not_exist_fails_at_once(self, options, message):
        with pytest.raises(ValueError, match=message):
            ood_scorer(ResidualSSM(n_steps=6), **options)

    def test_prompts_too(self):
        law = ICLPrompts(n_context=4, vocabulary_size=2)
        X, y = make_icl_prompts(100, n_context=4, vocabulary_size=2, random_state=0)
        with warnings.catch_warnings(action="ignore"):
            model = SoftmaxICLRegressor(4, max_iter=10).fit(X, y)
        assert ood_scorer(law, shift="scaled_task")(model, X, y) < 0

    def test_inside_a_search_over_a_study(self):
        study = DataModelStudy(LinearRegression(), ResidualSSM(6), n_samples=60).fit(np.arange(3))
        law = ResidualSSM(6)
        scorer = ood_scorer(law, shift="sign_inconsistent")
        assert scorer(study, np.arange(3)) == scorer(study.estimator_, None)


@pytest.mark.parametrize("regime", ["finite", "lazy"])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "pipeline", "nested", "residual"])
def test_last_step_attention_of_many_neurons_is_the_mean_of_their_attention(
    regime, n_outputs, kind
):
    X, y = make_residual_ssm(60, 6, random_state=0)
    Y = y if n_outputs == 1 else np.column_stack([y, -3 * y])
    X = np.concatenate([X, 20 * X[:3]])
    network = AttentionNTKRegressor(
        1000, regime=regime, max_iter=20, learning_rate=1e-4, random_state=0
    )
    with warnings.catch_warnings(action="ignore"):
        model = (network if kind == "plain" else wrap(network, kind)).fit(X[:60], Y)
    inner, seen = diagnostics.innermost(model, X)
    negative = inner.attention(seen)[..., inner.signs_ < 0]
    expected = negative.mean() * X.shape[1]
    assert diagnostics.last_step_attention(model, X) == pytest.approx(expected, rel=1e-12)
    positive = inner.attention(seen)[..., inner.signs_ > 0].mean()
    assert inner.mean_attention(seen, sign=1) == pytest.approx(positive, rel=1e-12)


def test_mean_attention_of_infinite_width_and_of_no_neurons():
    X, y = make_residual_ssm(30, 6, random_state=0)
    model = AttentionNTKRegressor(regime="infinite").fit(X, y)
    assert model.mean_attention(X) == model.attention(X).mean()
    assert np.isnan(diagnostics.last_step_attention(model, X))
    one = AttentionNTKRegressor(1, regime="lazy", init="iid", random_state=0).fit(X, y)
    assert np.isnan(one.mean_attention(X, sign=-int(one.signs_[0])))
    with pytest.raises(ValueError, match="features"):
        one.mean_attention(X[:, 1:])
