"""ResidualTargetRegressor: the inner estimator on the change, and nothing else."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDRegressor
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR
from sklearn.utils import get_tags

from skcurse.datasets import make_windows
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor

PERSISTENCE = DummyRegressor(strategy="constant", constant=0.0)
INNER = [
    LinearRegression(),
    Ridge(alpha=0.5),
    KNeighborsRegressor(3),
    RandomForestRegressor(5, random_state=0),
    make_pipeline(StandardScaler(), Ridge()),
    ResidualLinearRegressor(alpha=0.1),
]
ROUTED = {"enable_metadata_routing": True}


def walk(n=80, d=4, horizon=1):
    series = 50.0 + np.cumsum(np.random.default_rng(0).normal(size=n))
    return make_windows(series, d, horizon)


class Spy(RegressorMixin, BaseEstimator):
    """Keeps what it was given and predicts zeros."""

    def fit(self, X, y, sample_weight=None, note=None):
        self.X_, self.y_, self.sample_weight_, self.note_ = X, y, sample_weight, note
        self.n_features_in_ = 1
        return self

    def predict(self, X, note=None):
        self.predict_note_ = note
        return np.zeros(np.shape(X)[0])


class Learner(Spy):
    """Learns in chunks, with missing values."""

    def partial_fit(self, X, y):
        return self.fit(X, y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


# --- what is fitted and predicted ------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The newest value:UserWarning")
@pytest.mark.parametrize("last_step", [-1, 0, 2])
@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("inner", INNER, ids=lambda e: type(e).__name__)
def test_is_the_inner_estimator_fitted_on_the_change(inner, horizon, last_step):
    X, y = walk(horizon=horizon)
    newest = X[:, last_step] if horizon == 1 else X[:, [last_step]]
    by_hand = clone(inner).fit(X, y - newest)
    model = ResidualTargetRegressor(inner, last_step=last_step).fit(X, y)
    assert_array_equal(model.predict(X), newest + by_hand.predict(X))
    assert model.n_features_in_ == 4
    assert not hasattr(inner, "n_features_in_")


@pytest.mark.parametrize("horizon", [1, 3])
def test_around_a_dummy_that_says_zero_is_persistence(horizon):
    X, y = walk(horizon=horizon)
    zeros = 0.0 if horizon == 1 else np.zeros(horizon)
    dummy = DummyRegressor(strategy="constant", constant=zeros)
    predicted = ResidualTargetRegressor(dummy).fit(X, y).predict(X)
    assert_array_equal(predicted, np.broadcast_to(X[:, -1:], (len(X), horizon)).reshape(y.shape))


def test_around_a_dummy_that_says_the_mean_is_persistence_plus_drift():
    X, y = walk()
    model = ResidualTargetRegressor(DummyRegressor()).fit(X, y)
    assert_allclose(model.predict(X), X[:, -1] + (y - X[:, -1]).mean(), rtol=1e-13)


@pytest.mark.parametrize("horizon", [1, 3])
def test_linear_inner_estimators_are_the_residual_linear_network(horizon):
    """Least squares of the change on all columns forgets the constraint that centring puts."""
    X, y = walk(horizon=horizon)
    default = ResidualTargetRegressor().fit(X, y)
    plain = LinearRegression().fit(X, y)
    assert isinstance(default.estimator_, LinearRegression)
    assert_allclose(default.predict(X), plain.predict(X), rtol=1e-11)
    constant = np.full((1, 4), 1e4)
    network = ResidualLinearRegressor().fit(X, y)
    moved = ResidualLinearRegressor().fit(X - 50.0, y - 50.0).predict(constant - 50.0) + 50.0
    assert_allclose(network.predict(constant), moved, rtol=1e-11)


def test_column_of_targets_keeps_its_shape():
    X, y = walk()
    flat = ResidualTargetRegressor().fit(X, y).predict(X)
    column = ResidualTargetRegressor().fit(X, y[:, None]).predict(X)
    assert column.shape == (len(X), 1)
    assert_allclose(column[:, 0], flat, rtol=1e-13)
    inner = DummyRegressor()  # answers a column of targets with a flat array
    assert ResidualTargetRegressor(inner).fit(X, y[:, None]).predict(X).shape == (len(X),)


def test_forecasts_the_level_that_trees_cannot_leave():
    series = np.arange(200.0) + np.sin(np.arange(200.0))
    X, y = make_windows(series, 8)
    forest = RandomForestRegressor(20, random_state=0)
    inside, outside = (X[:120], y[:120]), (X[120:], y[120:])
    assert ResidualTargetRegressor(forest).fit(*inside).score(*outside) > 0.99
    assert clone(forest).fit(*inside).score(*outside) < 0.0


@pytest.mark.filterwarnings("error")
def test_scaling_inside_leaves_the_newest_value_on_the_scale_of_y():
    X, y = walk()
    model = ResidualTargetRegressor(make_pipeline(StandardScaler(), LinearRegression()))
    plain = LinearRegression().fit(X, y)
    assert_allclose(model.fit(X, y).predict(X), plain.predict(X), rtol=1e-11)


# --- what X may be ---------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("last_step", [-1, 1, -4])
def test_data_frames_reach_the_inner_estimator_with_their_names(frame, last_step):
    X, y = walk()
    names = ["newest", "oldest", "b", "a"]
    held = frame(dict(zip(names, X.T, strict=True)))
    model = ResidualTargetRegressor(Spy(), last_step=last_step).fit(held, y)
    assert model.estimator_.X_ is held
    assert_array_equal(model.feature_names_in_, names)
    assert_array_equal(model.estimator_.y_, y - X[:, last_step])
    assert_array_equal(model.predict(held), X[:, last_step])
    ridge = ResidualTargetRegressor(Ridge(), last_step=last_step).fit(held, y)
    assert_array_equal(ridge.estimator_.feature_names_in_, names)
    with pytest.raises(ValueError, match="feature names should match"):
        ridge.predict(held[names[::-1]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        ridge.predict(X)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_only_the_newest_column_must_be_numeric(frame):
    X, y = walk(d=2)
    weekday = np.array(["Mon", "Tue"])[np.arange(len(X)) % 2]
    held = frame({"day": weekday, "before": X[:, 0], "newest": X[:, 1]})
    encode = ColumnTransformer([("day", OneHotEncoder(), ["day"])], remainder="passthrough")
    model = ResidualTargetRegressor(make_pipeline(encode, LinearRegression())).fit(held, y)
    design = np.column_stack([weekday == "Mon", X])
    expected = LinearRegression().fit(design, y - X[:, 1]).predict(design) + X[:, 1]
    assert_allclose(model.predict(held), expected, rtol=1e-10)
    with pytest.raises(ValueError, match=r"could not convert|convert string"):
        ResidualTargetRegressor(PERSISTENCE, last_step=0).fit(held, y)


def test_nullable_columns_and_integers_are_numbers():
    X = pd.DataFrame({"a": pd.array([1, 2, 3, 4], dtype="Int64")})
    y = np.array([2, 1, 5, 4], dtype=np.uint8)
    model = ResidualTargetRegressor(Spy()).fit(X, y)
    assert_array_equal(model.estimator_.y_, [1.0, -1.0, 2.0, 0.0])
    model.fit(np.array([[3], [2], [6], [4]], dtype=np.uint8), y)
    assert_array_equal(model.estimator_.y_, [-1.0, -1.0, -1.0, 0.0])


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_tables_are_passed_on(make):
    X, y = walk()
    held = make(X * (X > 49.0))
    model = ResidualTargetRegressor(Ridge(), last_step=0).fit(held, y)
    assert get_tags(model).input_tags.sparse
    dense = ResidualTargetRegressor(Ridge(), last_step=0).fit(held.toarray(), y)
    assert_allclose(model.predict(held), dense.predict(held.toarray()), rtol=1e-6)
    refuses = ResidualTargetRegressor(HistGradientBoostingRegressor())
    assert not get_tags(refuses).input_tags.sparse
    with pytest.raises(TypeError, match="dense data is required"):
        refuses.fit(held, y)


def test_older_values_may_be_missing_where_the_inner_estimator_copes():
    X, y = walk()
    X = X.copy()
    X[::5, 1] = np.nan
    for inner in (HistGradientBoostingRegressor(), make_pipeline(SimpleImputer(), Ridge())):
        model = ResidualTargetRegressor(inner).fit(X, y)
        expected = clone(inner).fit(X, y - X[:, -1]).predict(X) + X[:, -1]
        assert_array_equal(model.predict(X), expected)
    assert get_tags(ResidualTargetRegressor(HistGradientBoostingRegressor())).input_tags.allow_nan
    with pytest.raises(ValueError, match="contains NaN"):
        ResidualTargetRegressor(Ridge()).fit(X, y)
    assert_array_equal(ResidualTargetRegressor(PERSISTENCE).fit(X, y).predict(X), X[:, -1])


def test_the_mean_stands_in_for_a_missing_newest_value():
    X, y = walk()
    X, gaps = X.copy(), np.arange(len(X)) % 7 == 3
    X[gaps, -1] = np.nan
    model = ResidualTargetRegressor(HistGradientBoostingRegressor(random_state=0)).fit(X, y)
    base = np.where(gaps, X[~gaps, -1].mean(), X[:, -1])
    by_hand = HistGradientBoostingRegressor(random_state=0).fit(X, y - base)
    assert_allclose(model.predict(X), base + by_hand.predict(X), rtol=1e-13)
    assert_allclose(model.predict(X[gaps][:1]), model.predict(X)[gaps][:1], rtol=1e-13)
    X[:, -1] = np.nan
    impute = SimpleImputer(keep_empty_features=True)
    never_seen = ResidualTargetRegressor(make_pipeline(impute, Ridge())).fit(X, y)
    assert_allclose(never_seen.predict(X), Ridge().fit(X[:, :-1], y).predict(X[:, :-1]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_persistence_has_nothing_to_say_where_the_newest_value_is_missing(value):
    X, y = walk()
    X = X.copy()
    model = ResidualTargetRegressor(PERSISTENCE).fit(X, y)
    X[3, -1] = value
    for call in (lambda: model.predict(X), lambda: model.fit(X, y)):
        with pytest.raises(ValueError, match=r"newest column of X .*contains (NaN|infinity)"):
            call()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_of_x_and_y_is_kept(dtype):
    X, y = walk()
    model = ResidualTargetRegressor(Ridge()).fit(X.astype(dtype), y.astype(dtype))
    assert model.predict(X.astype(dtype)).dtype == dtype


def test_input_is_not_written_to():
    X, y = walk()
    X, y = X.copy(), y.copy()
    X[3, -1] = np.nan
    kept = X.copy(), y.copy()
    X.flags.writeable = y.flags.writeable = False
    ResidualTargetRegressor(HistGradientBoostingRegressor()).fit(X, y).predict(X)
    assert_array_equal(X, kept[0])
    assert_array_equal(y, kept[1])


@pytest.mark.parametrize("last_step", [4, -5, 1.5, True, "d"])
def test_no_such_column(last_step):
    X, y = walk()
    with pytest.raises(ValueError, match="last_step must be the index of one of the 4 columns"):
        ResidualTargetRegressor(last_step=last_step).fit(X, y)


@pytest.mark.parametrize("bad", ["few", "nan", "none", "one_dimensional"])
def test_bad_input_is_refused_before_the_inner_estimator_sees_it(bad):
    X, y = walk()
    model = ResidualTargetRegressor(PERSISTENCE)
    arguments = {
        "few": ((X, y[1:]), "inconsistent numbers"),
        "nan": ((X, np.full(len(y), np.nan)), "Input y contains NaN"),
        "none": ((X, None), "requires y to be passed"),
        "one_dimensional": ((X[:, 0], y), "Expected 2D array"),
    }
    values, message = arguments[bad]
    with pytest.raises(ValueError, match=message):
        model.fit(*values)
    assert not hasattr(model, "estimator_")


# --- capabilities of the inner estimator -----------------------------------------------------


@pytest.mark.parametrize(
    "inner", [*INNER, PERSISTENCE, MultiOutputRegressor(SVR())], ids=lambda e: type(e).__name__
)
def test_tags_are_the_inner_estimators(inner):
    ours, theirs = get_tags(ResidualTargetRegressor(inner)), get_tags(inner)
    assert ours.estimator_type == "regressor"
    assert ours.target_tags.required
    assert ours.regressor_tags == theirs.regressor_tags
    for name in ("sparse", "allow_nan"):
        assert getattr(ours.input_tags, name) == getattr(theirs.input_tags, name)
    for name in ("multi_output", "single_output"):
        assert getattr(ours.target_tags, name) == getattr(theirs.target_tags, name)


def test_partial_fit_exists_where_the_inner_estimator_has_it():
    X, y = walk(d=3)
    assert not hasattr(ResidualTargetRegressor(), "partial_fit")
    assert not hasattr(ResidualTargetRegressor(make_pipeline(Ridge())), "partial_fit")
    model = ResidualTargetRegressor(SGDRegressor(random_state=0, eta0=1e-5), last_step=0)
    by_hand = clone(model.estimator)
    for rows in np.array_split(np.arange(len(X)), 4):
        model.partial_fit(X[rows], y[rows])
        by_hand.partial_fit(X[rows], y[rows] - X[rows, 0])
    assert_array_equal(model.predict(X), by_hand.predict(X) + X[:, 0])
    with pytest.raises(ValueError, match="2 features"):
        model.partial_fit(X[:, :2], y)
    assert not hasattr(model.fit(X, y), "n_samples_seen_")


def test_the_first_chunk_says_what_stands_in_for_a_missing_newest_value():
    model = ResidualTargetRegressor(Learner())
    model.partial_fit([[1.0], [np.nan], [3.0]], [0.0, 0.0, 0.0])
    assert_array_equal(model.estimator_.y_, [-1.0, -2.0, -3.0])
    model.partial_fit([[np.nan], [7.0]], [0.0, 0.0])
    assert_array_equal(model.estimator_.y_, [-2.0, -7.0])
    assert_array_equal(model.predict([[np.nan], [5.0]]), [2.0, 5.0])


@pytest.mark.filterwarnings("ignore:The newest value:UserWarning")
def test_partial_fit_goes_on_from_fit():
    X, y = walk()
    inner = ResidualLinearRegressor(centered=False, alpha=0.1)
    model = ResidualTargetRegressor(inner).fit(X[:30], y[:30])
    fitted = model.estimator_
    model.partial_fit(X[30:], y[30:])
    assert model.estimator_ is fitted
    assert_allclose(model.predict(X), ResidualTargetRegressor(inner).fit(X, y).predict(X))


# --- metadata --------------------------------------------------------------------------------


def test_without_routing_everything_goes_to_the_inner_estimator():
    X, y = walk()
    weights = np.arange(1.0, len(X) + 1.0)
    model = ResidualTargetRegressor(Spy()).fit(X, y, sample_weight=weights, note="n")
    assert model.estimator_.sample_weight_ is weights
    assert model.estimator_.note_ == "n"
    model.predict(X, note="p")
    assert model.estimator_.predict_note_ == "p"
    steps = Pipeline([("scale", StandardScaler()), ("ridge", Ridge())])
    piped = ResidualTargetRegressor(steps).fit(X, y, ridge__sample_weight=weights)
    scaled = StandardScaler().fit_transform(X)
    by_hand = Ridge().fit(scaled, y - X[:, -1], sample_weight=weights)
    assert_allclose(piped.predict(X), by_hand.predict(scaled) + X[:, -1])
    with pytest.raises(TypeError, match="sample_weight"):
        ResidualTargetRegressor(KNeighborsRegressor()).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("routing", [False, True])
def test_weight_two_is_a_row_twice_and_weight_zero_a_row_absent(routing):
    X, y = walk()
    weights = np.random.default_rng(0).integers(0, 3, size=len(X))
    repeated = np.repeat(np.arange(len(X)), weights)
    with config_context(enable_metadata_routing=routing):
        model = ResidualTargetRegressor().fit(X, y, sample_weight=weights)
    without = ResidualTargetRegressor().fit(X[repeated], y[repeated])
    assert_allclose(model.predict(X), without.predict(X), rtol=1e-11)


def test_with_routing_the_inner_estimator_gets_what_it_requests():
    X, y = walk()
    weights = np.arange(1.0, len(X) + 1.0)
    with config_context(**ROUTED):
        asks = (
            Spy().set_fit_request(sample_weight=True, note="remark").set_predict_request(note=True)
        )
        model = ResidualTargetRegressor(asks).fit(X, y, sample_weight=weights, remark="r")
        assert model.estimator_.sample_weight_ is weights
        assert model.estimator_.note_ == "r"
        model.predict(X, note="p")
        assert model.estimator_.predict_note_ == "p"
        refuses = Spy().set_fit_request(sample_weight=False)
        with pytest.raises(TypeError, match="sample_weight"):
            ResidualTargetRegressor(refuses).fit(X, y, sample_weight=weights)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            ResidualTargetRegressor(Spy()).fit(X, y, sample_weight=weights)
        learns = ResidualTargetRegressor(SGDRegressor().set_partial_fit_request(sample_weight=True))
        learns.partial_fit(X, y, sample_weight=np.zeros(len(X)) + 1e-9)
        assert_allclose(learns.predict(X) - X[:, -1], 0.0, atol=1e-3)


def test_with_routing_a_search_passes_weights_to_fit_and_score():
    X, y = walk()
    weights = np.random.default_rng(0).uniform(size=len(X))
    with config_context(**ROUTED):
        model = ResidualTargetRegressor(Ridge().set_fit_request(sample_weight=True))
        model.set_score_request(sample_weight=True)
        scores = cross_validate(model, X, y, cv=2, params={"sample_weight": weights})["test_score"]
    half = len(X) // 2
    train, test = slice(half, None), slice(None, half)
    by_hand = Ridge().fit(X[train], (y - X[:, -1])[train], sample_weight=weights[train])
    predicted = by_hand.predict(X[test]) + X[test, -1]
    residual = np.average((y[test] - predicted) ** 2, weights=weights[test])
    spread = np.cov(y[test], aweights=weights[test], ddof=0)
    assert_allclose(scores[0], 1.0 - residual / spread, rtol=1e-10)


# --- composition -----------------------------------------------------------------------------


def test_composes_with_the_rest_of_scikit_learn():
    X, y = walk(horizon=2)
    model = ResidualTargetRegressor(Ridge(alpha=0.3))
    plain = clone(model).fit(X, y).predict(X)
    assert_allclose(MultiOutputRegressor(model).fit(X, y).predict(X), plain, rtol=1e-11)
    single = ResidualTargetRegressor(MultiOutputRegressor(SVR())).fit(X, y)
    assert single.predict(X).shape == y.shape
    assert_array_equal(pickle.loads(pickle.dumps(clone(model).fit(X, y))).predict(X), plain)
    assert_array_equal(make_pipeline("passthrough", model).fit(X, y).predict(X), plain)
    wrapped = TransformedTargetRegressor(
        model, func=lambda y: 2.0 * y, inverse_func=lambda y: y / 2.0, check_inverse=False
    )
    changed = Ridge(alpha=0.3).fit(X, 2.0 * y - X[:, [-1]]).predict(X) + X[:, [-1]]
    assert_allclose(wrapped.fit(X, y).predict(X), changed / 2.0, rtol=1e-12)
    nested = {"estimator__alpha": [1e-3, 1e9], "estimator": [Ridge()], "last_step": [0, -1]}
    search = GridSearchCV(model, nested, cv=3).fit(X, y)
    assert search.best_params_["last_step"] == -1
    assert clone(search.best_estimator_).get_params()["estimator__alpha"] in (1e-3, 1e9)


@pytest.mark.parametrize("inner", ["ridge", Ridge, object()])
def test_what_is_no_estimator_is_refused(inner):
    X, y = walk()
    with pytest.raises(TypeError, match="clone"):
        ResidualTargetRegressor(inner).fit(X, y)


def test_a_classifier_is_refused_and_can_be_asked_for_its_tags():
    X, y = walk()
    model = ResidualTargetRegressor(LogisticRegression())
    assert get_tags(model).estimator_type == "regressor"
    with pytest.raises(ValueError, match=r"must be a regressor.* got LogisticRegression\(\)"):
        model.fit(X, y > 0)


@pytest.mark.parametrize(
    ("table", "last_step", "column"),
    [
        (pd.DataFrame({"a": [1.0, 2.0], "unit": ["kW", "MW"]}), -1, "'unit', last_step=-1"),
        (np.array([["x", 1.0], ["y", 2.0]], dtype=object), 0, "0, last_step=0"),
    ],
)
def test_text_where_the_newest_value_should_be_is_named(table, last_step, column):
    message = rf"newest column of X \({column}\) must be numeric: .*'(x|kW)'"
    with pytest.raises(ValueError, match=message):
        ResidualTargetRegressor(last_step=last_step).fit(table, [1.0, 2.0])
