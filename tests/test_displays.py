"""Displays show the numbers they were given, in the way of scikit-learn's."""

import sys
import warnings
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge

from skcurse.comparison import compare
from skcurse.datasets import (
    ResidualSSM,
    SeriesWindows,
    load_sunspots,
    make_residual_ssm,
    make_windows,
)
from skcurse.displays import (
    AsymmetryDisplay,
    AttentionDisplay,
    ComparisonDisplay,
    ForecastDisplay,
    LossCurveDisplay,
    NTKSpectrumDisplay,
    PhaseDisplay,
)
from skcurse.estimators import AttentionNTKRegressor, SoftmaxICLRegressor
from skcurse.theory.icl_phases import training_phases
from skcurse.theory.icl_population import population_descent

matplotlib.use("Agg")
SHIFT = "sign-inconsistent"
MODELS = {"ridge": Ridge(), "mean": DummyRegressor()}


@pytest.fixture(autouse=True)
def _no_figure_stays():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def one_point():
    return compare(MODELS, {"ssm": ResidualSSM(4)}, cv=3, n_samples=50, random_state=0)


@pytest.fixture(scope="module")
def over_gamma():
    grid = {"gamma": [0.8, -0.5, 0.2]}
    law = {"ssm": ResidualSSM(4)}
    return compare(MODELS, law, data_grid=grid, cv=3, n_samples=50, random_state=0)


def inside(figure):
    """Tell whether everything drawn lies within the figure: nothing is cut off."""
    figure.canvas.draw()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    return box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < width + 0.01 and box.y1 < height + 0.01


def test_rows_of_markers(one_point):
    display = one_point.plot()
    ax = display.ax_
    labels = [t.get_text() for t in ax.get_yticklabels()]
    known = ["(predict zero)", "(persistence)", "(best residual linear)"]
    assert labels == ["ridge", "mean", *known]
    bars = {c.get_label(): c for c in ax.containers}
    for law, shift in (("in distribution", None), (SHIFT, "sign_inconsistent")):
        values = one_point.scores("mse", shift)
        np.testing.assert_allclose(bars[law].lines[0].get_xdata(), values.mean(axis=1))
        spread = values.std(axis=1, ddof=1) / np.sqrt(3)
        ends = np.array([s[:, 0] for s in bars[law].lines[2][0].get_segments()])
        np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * spread)
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "none"]
    drawn = sorted(float(line.get_xdata()[0]) for line in hollow)
    np.testing.assert_allclose(drawn, sorted(r.risk for r in one_point.references_))
    assert ax.get_xscale() == "log"
    assert display.figure_ is ax.figure
    assert inside(display.figure_)


def test_curves_over_a_parameter(over_gamma):
    display = over_gamma.plot()
    ax = display.ax_
    assert ax.get_xlabel() == "gamma"
    errors = over_gamma.scores("mse", "sign_inconsistent").mean(axis=1).reshape(3, 2)[[1, 2, 0]]
    solid = [c.lines[0] for c in ax.containers if c.lines[0].get_linestyle() == "-"]
    for line, column in zip(solid, errors.T, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [-0.5, 0.2, 0.8])
        np.testing.assert_allclose(line.get_ydata(), column)
    assert inside(display.figure_)
    shown = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    zero, law = shown["(predict zero)"], shown["in distribution"]
    assert zero.get_marker() != law.get_marker()


def test_points_that_differ_in_words_or_in_two_ways_are_rows():
    grid = {"gamma": [0.2, 0.8], "noise": [0.0, 0.1]}
    law = {"ssm": ResidualSSM(4)}
    ax = compare(Ridge(), law, data_grid=grid, cv=2, n_samples=30).plot().ax_
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels[:2] == ["Ridge, gamma = 0.2, noise = 0.0", "Ridge, gamma = 0.2, noise = 0.1"]
    ax = compare(Ridge(), law, data_grid={"unit_root": [True]}, cv=2, n_samples=30).plot().ax_
    assert ax.get_yticklabels()[0].get_text() == "Ridge"


def test_the_data_model_is_chosen_by_name():
    series = SeriesWindows(np.sin(np.arange(60.0)), 4)
    comparison = compare(MODELS, {"sine": series, "ssm": ResidualSSM(4)}, cv=2, n_samples=30)
    sine = ComparisonDisplay.from_comparison(comparison)
    assert sine.ax_.get_title() == "sine"
    assert len(sine.ax_.containers) == 1
    ssm = ComparisonDisplay.from_comparison(comparison, data_model="ssm")
    assert len(ssm.ax_.containers) == 2
    with pytest.raises(ValueError, match="No data model 'cosine'"):
        ComparisonDisplay.from_comparison(comparison, data_model="cosine")


def test_axes_can_be_given_and_no_figure_is_made(one_point):
    _, ax = plt.subplots()
    display = one_point.plot(ax=ax)
    assert display.ax_ is ax
    assert len(plt.get_fignums()) == 1
    assert display.plot(ax=ax) is display


def test_one_fold_has_no_bars():
    split = (np.arange(30), np.arange(30, 50))
    series = SeriesWindows(np.sin(np.arange(60.0)), 4)
    ax = compare(Ridge(), series, cv=[split]).plot().ax_
    assert not ax.containers[0].has_xerr


def test_without_matplotlib_the_error_names_the_extra(one_point, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"skcurse\[plot\]"):
        one_point.plot()


# ---- displays of one fitted network
@pytest.fixture(scope="module")
def network():
    X, y = make_residual_ssm(60, 6, random_state=0)
    model = AttentionNTKRegressor(32, max_iter=30, tol=0.0, random_state=0)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return model.fit(X, y), X, y


def test_loss_curve_and_its_rate(network):
    model, X, _ = network
    display = LossCurveDisplay.from_estimator(model, X[:2])
    loss, rate = display.ax_.lines
    np.testing.assert_array_equal(loss.get_ydata(), model.loss_curve_)
    np.testing.assert_array_equal(loss.get_xdata(), np.arange(len(model.loss_curve_)))
    smallest = np.nanmin(model.ntk_eigenvalues(X[:2], at="initial"))
    steps = np.arange(len(model.loss_curve_))
    expected = model.loss_curve_[0] * (1 - model.learning_rate_ * smallest) ** (2 * steps)
    np.testing.assert_allclose(rate.get_ydata(), expected)
    assert inside(display.figure_)
    assert len(LossCurveDisplay.from_estimator(model).ax_.lines) == 1
    assert display.ax_.get_ylabel() == "half the sum of squares"
    half_sum = 0.5 * np.sum((np.array([*model.staged_predict(X)][-1]) - network[2]) ** 2)
    assert model.loss_curve_[-1] == pytest.approx(half_sum)


def test_a_rate_that_says_nothing_is_left_out(network):
    model, X, _ = network
    decay = model.learning_rate_ * np.nanmin(model.ntk_eigenvalues(X, at="initial"))
    assert decay * model.n_iter_ < 1e-3
    assert len(LossCurveDisplay.from_estimator(model, X).ax_.lines) == 1
    for contraction, n_lines in ((0.99e-4, 1), (1.01e-4, 2)):
        display = LossCurveDisplay(np.linspace(2, 1, 11), contraction=contraction).plot()
        assert len(display.ax_.lines) == n_lines


def test_the_loss_on_held_out_rows_is_drawn_too():
    X, y = make_residual_ssm(60, 4, random_state=1)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model = SoftmaxICLRegressor(max_iter=20, early_stopping=True, random_state=0).fit(X, y)
    ax = LossCurveDisplay.from_estimator(model).ax_
    for line, losses in zip(
        ax.lines, (model.loss_curve_, model.validation_loss_curve_), strict=True
    ):
        np.testing.assert_array_equal(line.get_ydata(), losses)
    assert ax.lines[1].get_label() == "validation loss"
    assert ax.get_ylabel() == "half the mean of squares"


def test_the_rate_bounds_the_loss_along_one_eigenvector():
    """One window, one eigenvalue: the linearised loss is the line itself."""
    X, y = make_residual_ssm(1, 5, random_state=1)
    model = AttentionNTKRegressor(8, regime="lazy", max_iter=50, learning_rate=0.01, random_state=0)
    display = LossCurveDisplay.from_estimator(model.fit(X, y), X)
    loss, rate = display.ax_.lines
    np.testing.assert_allclose(loss.get_ydata(), rate.get_ydata(), rtol=1e-10)


def test_the_loss_after_infinitely_many_steps_is_a_level():
    X, y = make_residual_ssm(5, 4, random_state=1)
    model = AttentionNTKRegressor(16, regime="lazy", max_iter=np.inf, random_state=0).fit(X, y)
    display = LossCurveDisplay.from_estimator(model)
    curve, level = display.ax_.lines
    assert np.isfinite(curve.get_xdata()).all()
    assert set(level.get_ydata()) == {model.loss_curve_[-1]}


def test_the_loss_of_an_estimator_without_a_kernel_has_no_rate():
    X, y = make_residual_ssm(20, 4, random_state=1)
    model = SoftmaxICLRegressor(max_iter=5, tol=1.0, n_iter_no_change=2).fit(X, y)
    (curve,) = LossCurveDisplay.from_estimator(model, X).ax_.lines
    np.testing.assert_array_equal(curve.get_ydata(), model.loss_curve_)


@pytest.mark.parametrize("display", [AsymmetryDisplay, AttentionDisplay, NTKSpectrumDisplay])
def test_what_cannot_be_shown_gets_a_reason(display):
    X, y = make_residual_ssm(20, 4, random_state=1)
    data = [] if display is AsymmetryDisplay else [X]
    with pytest.raises(NotFittedError):
        display.from_estimator(AttentionNTKRegressor(), *data)
    with pytest.raises(NotFittedError):
        LossCurveDisplay.from_estimator(AttentionNTKRegressor())
    with pytest.raises(ValueError, match=r"Ridge has no .*, which this display shows"):
        display.from_estimator(Ridge().fit(X, y), *data)
    infinite = AttentionNTKRegressor(regime="infinite").fit(X, y)
    if display is not NTKSpectrumDisplay:
        with pytest.raises(ValueError, match=r"in the infinite regime has no .*weights_"):
            display.from_estimator(infinite, *data)


@pytest.mark.parametrize("output", [-1, 2, 0.5, "a"])
@pytest.mark.parametrize("regime", ["finite", "lazy", "infinite"])
def test_an_output_out_of_range_gets_a_reason(regime, output):
    X, y = make_residual_ssm(20, 4, random_state=1)
    model = AttentionNTKRegressor(16, regime=regime, max_iter=3, tol=0.0, random_state=0)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model.fit(X, np.column_stack([y, -2 * y]))
    shown = [lambda o: NTKSpectrumDisplay.from_estimator(model, X, output=o)]
    if regime != "infinite":
        shown.append(lambda o: AttentionDisplay.from_estimator(model, X, output=o))
        shown.append(lambda o: AsymmetryDisplay.from_estimator(model, output=o))
    for show in shown:
        with pytest.raises(ValueError, match=r"output must be an integer in \[0, 2\)"):
            show(output)
        show(1)


def test_asymmetry_by_sign(network):
    model, _, _ = network
    display = AsymmetryDisplay.from_estimator(model)
    for line, sign in zip(display.ax_.lines[:2], (1, -1), strict=True):
        rows = model.signs_ == sign
        np.testing.assert_array_equal(line.get_xdata(), model.initial_weights_[rows])
        np.testing.assert_array_equal(line.get_ydata(), model.weights_[rows])
    assert inside(display.figure_)


def test_spectrum_and_its_resolution(network):
    model, X, _ = network
    display = NTKSpectrumDisplay.from_estimator(model, X)
    initial, fitted, resolution = display.ax_.lines
    for line, at in ((initial, "initial"), (fitted, "fitted")):
        eigenvalues = model.ntk_eigenvalues(X, at=at)
        shown = eigenvalues > 0  # neither nan nor zero
        np.testing.assert_array_equal(line.get_ydata(), eigenvalues[shown])
        np.testing.assert_array_equal(line.get_xdata(), np.flatnonzero(shown) + 1)
    level = 1e-30 * max(model.ntk_eigenvalues(X, at=at)[0] for at in ("initial", "fitted"))
    np.testing.assert_allclose(resolution.get_ydata(), level)
    assert display.ax_.get_xlim()[1] == 1 + max(initial.get_xdata()[-1], fitted.get_xdata()[-1])
    assert min(fitted.get_ydata()) >= level
    assert inside(display.figure_)


def test_a_spectrum_that_training_leaves_is_drawn_once():
    X, y = make_residual_ssm(20, 4, random_state=0)
    model = AttentionNTKRegressor(16, regime="lazy", random_state=0).fit(X, y)
    assert len(NTKSpectrumDisplay.from_estimator(model, X).ax_.lines) == 2


def test_attention_is_a_distribution_and_agrees_with_the_estimator(network, monkeypatch):
    model, X, _ = network
    whole = AttentionDisplay.from_estimator(model, X)
    monkeypatch.setattr("skcurse.displays._attention._BLOCK", 1)
    blocks = AttentionDisplay.from_estimator(model, X)
    for sign in (1, -1):
        weights = whole.attention[sign]
        np.testing.assert_allclose(weights.sum(), 1.0)
        last = model.attention(X)[:, model.signs_ == sign].mean()
        assert weights[-1] == pytest.approx(last, rel=1e-12)
        np.testing.assert_allclose(blocks.attention[sign], weights, rtol=1e-13)
    np.testing.assert_array_equal(whole.ax_.lines[0].get_xdata(), [5, 4, 3, 2, 1, 0])
    highest = max(np.max(line.get_ydata()) for line in whole.ax_.lines)
    assert whole.ax_.get_ylim()[1] > 1.05 * highest
    assert inside(whole.figure_)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"step": 1}, r"step must be an integer in \[0, 1\), the horizon"),
        ({"step": -1}, "step must be"),
        ({"y_true": np.ones((3, 2)), "y_pred": np.ones((3, 2)), "step": 2}, r"in \[0, 2\)"),
        ({"y_true": np.ones((3, 2)), "y_pred": np.ones(3), "step": 1}, "horizon of 'forecast'"),
        ({"y_pred": np.ones((3, 1, 1))}, "one or two dimensions"),
        ({"y_pred": {"long": np.ones(4)}}, r"'long' has shape \(4,\), but y_true has shape \(3,\)"),
        ({"index": [1, 2]}, r"'index' has shape \(2,\)"),
    ],
)
def test_forecasts_that_do_not_fit_get_a_reason(data, message):
    with pytest.raises(ValueError, match=message):
        ForecastDisplay.from_predictions(**{"y_true": np.ones(3), "y_pred": np.ones(3)} | data)
    assert not plt.get_fignums()


def test_forecasts_with_their_times():
    bunch = load_sunspots()
    X, y, index = make_windows(bunch.target, 8, 2, return_index=True)
    model = Ridge().fit(X[:200], y[:200])
    times = bunch.index[index.target][200:240]
    rows = slice(200, 240)
    display = ForecastDisplay.from_estimator(
        {"ridge": model}, X[rows], y[rows], index=times, step=1
    )
    truth, forecast = display.ax_.lines
    np.testing.assert_array_equal(truth.get_ydata(), y[rows, 1])
    np.testing.assert_array_equal(forecast.get_ydata(), model.predict(X[rows])[:, 1])
    np.testing.assert_array_equal(truth.get_xdata(orig=True), times)
    assert inside(display.figure_)
    plain = ForecastDisplay.from_estimator(model, X[rows], y[rows])
    assert plain.ax_.lines[1].get_label() == "Ridge"


def test_phases_and_their_borders():
    p = np.append(0.5, np.full(19, 0.5 / 19))
    run = population_descent(p, 1000, learning_rate=4.0, n_iter=400, queries=[3, 0], record=1)
    display = PhaseDisplay.from_trajectory(run, query=3)
    weights, rates = display.ax_
    drawn = [line.get_ydata() for line in weights.lines]
    np.testing.assert_array_equal(drawn[0], run.logits[:, 0, 3])
    np.testing.assert_array_equal(drawn[1], run.logits[:, 0, 0])
    np.testing.assert_array_equal(rates.lines[0].get_ydata(), run.rates[:, 0, 3])
    np.testing.assert_array_equal(rates.lines[1].get_ydata(), np.abs(run.rates[:, 0, 0]))
    _, second, third, fourth = training_phases(run, 3).starts
    shades = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in weights.patches]
    assert shades == [(second, third), (fourth, 400)]
    assert [text.get_text() for text in weights.texts] == ["I", "II", "III", "IV"]
    assert inside(display.figure_)
    dominant = PhaseDisplay.from_trajectory(run, query=0)
    assert len(dominant.ax_[0].lines) == 2  # the others are one curve
    with pytest.raises(ValueError, match="does not follow query 7"):
        PhaseDisplay.from_trajectory(run, query=7)


@pytest.mark.parametrize("n_iter", [400, 2000, 5000])
def test_numerals_of_phases_stay_apart(n_iter):
    p = np.append(0.5, np.full(19, 0.5 / 19))
    run = population_descent(p, 100, learning_rate=4.0, n_iter=n_iter, queries=3)
    display = PhaseDisplay.from_trajectory(run, query=3)
    assert inside(display.figure_)
    for panel in display.ax_:
        boxes = [text.get_window_extent() for text in panel.texts]
        assert panel.texts[-1].get_text() == "IV"
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_one_curve_is_a_line_several_are_a_band():
    run = population_descent([0.4, 0.3, 0.2, 0.1], 20, learning_rate=1.0, n_iter=20)
    weights = PhaseDisplay.from_trajectory(run, query=2).ax_[0]
    assert len(weights.lines) == 2
    assert len(weights.collections) == 1
    run = population_descent([0.4, 0.2, 0.2, 0.2], 20, learning_rate=1.0, n_iter=20)
    weights = PhaseDisplay.from_trajectory(run, query=2).ax_[0]
    np.testing.assert_array_equal(weights.lines[2].get_ydata(), run.logits[:, 2, 1])
    assert not weights.collections


@pytest.mark.parametrize("count", [1, 3, None])
def test_phases_need_two_axes(count):
    run = population_descent([0.6, 0.4], 20, learning_rate=1.0, n_iter=2)
    ax = (
        plt.figure().add_subplot() if count is None else plt.subplots(count, squeeze=False)[1][:, 0]
    )
    with pytest.raises(ValueError, match="two axes"):
        PhaseDisplay.from_trajectory(run, query=1, ax=ax)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "draw",
    [
        lambda: PhaseDisplay(population_descent([0.6, 0.4], 9, learning_rate=1.0, n_iter=0), 1),
        lambda: PhaseDisplay(population_descent([1.0], 9, learning_rate=1.0, n_iter=5), 0),
        lambda: PhaseDisplay(population_descent([1.0, 0.0], 9, learning_rate=1.0, n_iter=5), 1),
        lambda: LossCurveDisplay([1.0]),
        lambda: LossCurveDisplay([1.0], contraction=0.5),
        lambda: LossCurveDisplay([0.0, 0.0]),
        lambda: LossCurveDisplay([1.0, 1.0], contraction=0.0),
        lambda: NTKSpectrumDisplay({"none": [np.nan, np.nan]}),
        lambda: NTKSpectrumDisplay({"zero": [0.0], "one": [1.0]}),
        lambda: AttentionDisplay({1: [1.0]}),
        lambda: AsymmetryDisplay([0.0], [0.0], [1]),
        lambda: ForecastDisplay([1.0], {"constant": [1.0]}),
    ],
)
def test_degenerate_runs_are_drawn_without_warnings(draw):
    display = draw().plot()
    display.figure_.canvas.draw()


def test_every_display_draws_into_given_axes_and_names_the_extra(network, monkeypatch):
    model, X, y = network
    run = population_descent([0.6, 0.2, 0.2], 20, learning_rate=1.0, n_iter=5)
    makers = [
        lambda ax: LossCurveDisplay.from_estimator(model, X[:3], ax=ax),
        lambda ax: AsymmetryDisplay.from_estimator(model, ax=ax),
        lambda ax: NTKSpectrumDisplay.from_estimator(model, X, ax=ax),
        lambda ax: AttentionDisplay.from_estimator(model, X, ax=ax),
        lambda ax: ForecastDisplay.from_estimator(model, X, y, ax=ax),
        lambda ax: PhaseDisplay.from_trajectory(run, 1, ax=[ax, plt.figure().add_subplot()]),
    ]
    for make in makers:
        _, ax = plt.subplots()
        before = len(plt.get_fignums())
        display = make(ax)
        assert np.ravel(display.ax_)[0] is ax
        assert display.figure_ is ax.figure
        assert len(plt.get_fignums()) - before == isinstance(display, PhaseDisplay)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for make in makers[:5]:
        with pytest.raises(ImportError, match=r"skcurse\[plot\]"):
            make(None)


@pytest.mark.parametrize("attention", [{}, {1: []}])
def test_no_attention_is_one_clear_error(attention):
    with pytest.raises(ValueError, match="holds no weights"):
        AttentionDisplay(attention).plot()
