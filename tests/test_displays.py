"""Displays show the numbers they were given, in the way of scikit-learn's."""

import sys

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge

from skcurse.comparison import compare
from skcurse.datasets import ResidualSSM, SeriesWindows
from skcurse.displays import ComparisonDisplay

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
