"""Whatever the table, an estimator gives finite answers or one reason why not."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge
from tables import SCALES, layouts, tables

from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The newest value:UserWarning"),
]

REASONS = (
    *("overflow", "scale", "tabulated", "constant first", "outside"),  # magnitudes
    *("context", "to attend to", "to train on"),  # too few rows
)


@st.composite
def estimators(draw):
    alpha = draw(st.sampled_from([0.0, 0.0, 0.5]))
    steps = draw(st.sampled_from([1, 5]))
    network = {"n_neurons": draw(st.sampled_from([2, 16])), "random_state": 0, "alpha": alpha}
    return draw(
        st.sampled_from(
            [
                AttentionNTKRegressor(**network, max_iter=steps, solver="direct"),
                AttentionNTKRegressor(**network, max_iter=steps, solver="collocation"),
                AttentionNTKRegressor(**network, regime="lazy", max_iter=np.inf),
                AttentionNTKRegressor(regime="infinite", alpha=alpha, max_iter=steps),
                ResidualLinearRegressor(alpha=alpha, centered=draw(st.booleans())),
                SoftmaxICLRegressor(max_iter=steps, alpha=alpha),
                SoftmaxICLRegressor(max_iter=steps, early_stopping=True, random_state=0),
            ]
        )
    )


@st.composite
def samples(draw, scales=SCALES):
    """Rows and targets of very different magnitudes, in either precision."""
    X = draw(tables())
    n_outputs = draw(st.sampled_from([None, 1, 2]))
    y = draw(tables(n=len(X), d=n_outputs or 1))
    y = y if n_outputs else y[:, 0]
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    with np.errstate(over="ignore", under="ignore"):
        X, y = (draw(scales) * X).astype(dtype), draw(scales) * y
    assume(np.isfinite(X).all() and np.isfinite(y).all())
    return X, y


def fitted_or_reason(estimator, X, y, **fit_params):
    try:
        return clone(estimator).fit(X, y, **fit_params), ""
    except ValueError as error:
        return None, str(error)


@given(estimators(), samples(), st.data())
def test_every_table_gets_finite_answers_or_a_reason(estimator, sample, data):
    X, y = sample
    weight = data.draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=len(X), max_size=len(X))
    )
    assume(any(weight))
    kept = X.copy(), y.copy()
    model, reason = fitted_or_reason(estimator, X, y, sample_weight=weight)
    prediction = None
    if model is not None:
        try:
            prediction = model.predict(X)
        except ValueError as error:
            reason = str(error)
    np.testing.assert_array_equal(X, kept[0])
    np.testing.assert_array_equal(y, kept[1])
    if prediction is None:
        assert any(word in reason for word in REASONS), reason
        return
    assert np.isfinite(prediction).all()
    assert prediction.shape == y.shape
    assert prediction.dtype == X.dtype
    for name in ("loss_curve_", "coef_", "intercept_", "query_key_", "weights_", "node_weights_"):
        assert np.isfinite(getattr(model, name, 0.0)).all(), name


@given(estimators(), samples(scales=st.just(1.0)), st.data())
def test_memory_layout_is_no_information(estimator, sample, data):
    X, y = sample
    here, why = fitted_or_reason(estimator, X, y)
    there, too = fitted_or_reason(
        estimator, data.draw(layouts(X)), data.draw(layouts(y)) if y.ndim == 2 else y
    )
    assert (here is None) == (there is None), why or too
    assume(here is not None)
    expected = here.predict(X)
    scale = 1.0 + np.abs(expected).max() + np.abs(X).max()
    slack = {"rtol": 0, "atol": scale * (1e-9 if X.dtype == np.float64 else 1e-5)}
    assume(not isinstance(estimator, ResidualLinearRegressor) or np.abs(X).max() < 1e3)
    np.testing.assert_allclose(there.predict(data.draw(layouts(X))), expected, **slack)


@given(samples(scales=st.just(1.0)), st.booleans())
def test_learning_the_change_is_adding_the_newest_value_back(sample, flat):
    X, y = sample
    X = X.astype(np.float64)
    newest = X[:, -1] if y.ndim == 1 else X[:, [-1]]
    model = ResidualTargetRegressor(Ridge(alpha=0.1, fit_intercept=flat)).fit(X, y)
    inner = Ridge(alpha=0.1, fit_intercept=flat).fit(X, y - newest)
    change = inner.predict(X)
    expected = change + (X[:, -1] if change.ndim == 1 else newest)
    np.testing.assert_array_equal(model.predict(X), expected)
