"""Values at the ends of floating point get the right answer or one clear error, never NaN."""

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor

from skcurse.estimators.attention_ntk import AttentionNTKRegressor
from skcurse.estimators.residual_linear import ResidualLinearRegressor
from skcurse.estimators.residual_target import ResidualTargetRegressor
from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
from skcurse.theory.collocation import CollocationTable
from skcurse.theory.collocation_descent import accurate_table
from skcurse.theory.lazy_descent import lazy_losses, lazy_model, lazy_stable_rate, lazy_weights
from skcurse.theory.tilted_moments import tilted_moments


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def refusal(model, X, y, **fit_params):
    """Message of the error that fit or predict raises; "" after finite predictions."""
    try:
        predictions = model.fit(X, y, **fit_params).predict(X)
    except ValueError as error:
        return str(error)
    assert np.isfinite(predictions).all()
    return ""


@pytest.mark.parametrize("regime", ["lazy", "infinite"])
@pytest.mark.parametrize(
    ("X", "y", "weight"),
    [
        (3e99 * np.array([[-1.4, 0.5, -2.7]]), [0.0], None),  # squares of features overflow
        (1e300 * normal(4, 2), np.zeros(4), None),
        (normal(4, 2), 1e300 * normal(4, seed=1), [1e300, 1.0, 1.0, 1.0]),
        (normal(4, 8), 5e153 * normal(4, seed=1), None),
    ],
)
def test_closed_forms_that_overflow_say_so(regime, X, y, weight):
    model = AttentionNTKRegressor(n_neurons=8, regime=regime, random_state=0)
    message = refusal(model, X, y, sample_weight=weight)
    assert not message or ("overflow" in message and "Rescale" in message)
    assert message or np.isfinite(model.loss_curve_).all()


def test_squares_of_singular_values_and_losses_that_overflow():
    model = lazy_model(np.eye(2), [1.0, 1.0], lambda X: 1e160 * X)
    with pytest.raises(ValueError, match="overflow"):
        lazy_stable_rate(model)
    large = lazy_model(np.eye(2), [1.2e154, 1.2e154], lambda X: X[:, :1])
    assert large.floor == pytest.approx(1.44e308)
    with pytest.raises(ValueError, match="overflow"):
        lazy_losses(large, [0], learning_rate=0.5)
    for features in (lambda X: np.inf * X[:, :1], lambda X: 1e200 * X[:, :1]):
        with pytest.raises(ValueError, match="overflow"):
            lazy_model(np.ones((2, 1)), [1.0, 1.0], features, sample_weight=[1e300, 1.0])


@pytest.mark.parametrize(
    ("X", "y", "weight"),
    [
        (np.zeros((3, 3)), 2e300 * normal(3), None),
        (normal(5, 3), 1e299 * normal(5), [1e300] * 5),
        ([[1e150, 0.0], [0.0, -1e150]], [0.0, 0.0], [1e300, 1.0]),
        ([[1e150, 3e150, 1e150]], [1e149], None),
    ],
)
def test_tables_that_overflow_say_so(X, y, weight):
    with pytest.raises(ValueError, match=r"overflow|cannot be tabulated"):
        accurate_table(X, y, normal(8), np.ones(8), sample_weight=weight)


def test_a_table_is_checked_also_where_squares_overflow():
    """An error that cannot be told from an overflow is no accuracy."""
    X, y = normal(20, 4), normal(20, seed=1)
    huge = CollocationTable(X, y, interval=(-2.0, 2.0), sample_weight=np.full(20, 1e300))
    plain = CollocationTable(X, y, interval=(-2.0, 2.0))
    network = normal(8).clip(-1, 1), np.ones(8) / 3
    errors, small = huge.errors(*network), plain.errors(*network)
    assert errors.slope_size == pytest.approx(1e300 * small.slope_size, rel=1e-6)
    assert errors.residual_size == pytest.approx(small.residual_size, rel=1e-6)
    assert errors.slope < 1e-9 * errors.slope_size


@pytest.mark.parametrize(
    ("settings", "X", "y"),
    [
        ({"alpha": 1e10, "centered": False}, 1e-300 * normal(5, 3), 1e200 * normal(5)),
        ({"centered": False}, 3e-300 * normal(3, 2), 5e105 * normal(3)),
        ({"fit_intercept": False}, 2e-310 * normal(2, 8), 6e9 * normal(2)),
    ],
)
def test_linear_weights_that_overflow_say_so(settings, X, y):
    message = refusal(ResidualLinearRegressor(**settings), X, y)
    assert not message or "divide the series by a constant" in message


def test_a_penalty_that_overflows_beside_tiny_windows_leaves_persistence():
    X = 1e-300 * normal(5, 3)
    model = ResidualLinearRegressor(alpha=1e10, fit_intercept=False).fit(X, X[:, 0])
    np.testing.assert_array_equal(model.predict(X), X[:, -1])


@pytest.mark.parametrize("weight", [[1e300, 1.0, 2.0], [1e300, 1e-300, 1e-300]])
def test_weights_and_values_whose_product_overflows(weight):
    X = 7e299 * normal(3, 3)
    model = ResidualLinearRegressor(centered=False)
    message = refusal(model, X, X[:, 0] / 2, sample_weight=weight)
    assert not message or "divide the series by a constant" in message


def test_changes_and_forecasts_that_overflow_are_refused():
    X = np.array([[1.0, 1.7e308], [2.0, -1.0]])
    with pytest.raises(ValueError, match="Changes from the newest value overflow float64"):
        ResidualTargetRegressor().fit(X, [-1.7e308, 0.0])
    drift = ResidualTargetRegressor(DummyRegressor(strategy="constant", constant=1e308))
    drift.fit([[0.0], [1.0]], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"DummyRegressor\(.*are not finite"):
        drift.predict([[1e308]])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("early_stopping", [False, True])
def test_labels_beyond_single_precision(early_stopping):
    X = np.array([[0.0], [1.0], [2.0], [0.5]], dtype=np.float32)
    y = np.array([-1e39, 1e40, -1e40, 3e39])
    model = SoftmaxICLRegressor(max_iter=2, early_stopping=early_stopping, random_state=0)
    assert "overflow float32" in refusal(model, X, y)
    assert not refusal(model, X.astype(np.float64), y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_matrix_beyond_single_precision():
    X = np.float32(1e-30) * normal(6, 2).astype(np.float32)
    with pytest.raises(ValueError, match="query-key matrix overflow float32"):
        SoftmaxICLRegressor(max_iter=3).fit(X, X[:, 0] * 1e30)


def test_rows_that_contradict_each_other_do_not_blow_up_the_weights():
    """Duplicate windows with different targets get their mean; rounding is no direction."""
    rng = np.random.default_rng(0)
    J = rng.standard_normal((6, 9))[[0, 1, 2, 0, 1, 2, 0]]
    y = rng.standard_normal(7)
    model = lazy_model(J, y, lambda X: X)
    assert model.values.shape == (3,)
    weights = lazy_weights(model, np.inf, learning_rate=1e-3)[:, 0]
    means = [y[[0, 3, 6]].mean(), y[[1, 4]].mean(), y[[2, 5]].mean()]
    np.testing.assert_allclose(J[:3] @ weights, means, rtol=1e-10)
    np.testing.assert_allclose(weights, np.linalg.pinv(J, rcond=1e-10) @ y, atol=1e-12)
    assert lazy_losses(model, [np.inf], learning_rate=1e-3)[0] == pytest.approx(
        0.5 * np.sum((J @ weights - y) ** 2)
    )


@pytest.mark.parametrize("weight", [1e10, -1e10, 1e300])
def test_scores_beyond_floating_point_leave_one_entry(weight):
    """A softmax of infinite sharpness has the extreme entry as its mean and no variance."""
    X = np.array([[-1e200, 3e199, 1e200], [2e200, 1e200, 2e200]])
    mean, var = tilted_moments(X, [weight])
    np.testing.assert_array_equal(mean[:, 0], [X[0, 2], 2e200] if weight > 0 else [-1e200, 1e200])
    np.testing.assert_array_equal(var, 0.0)
