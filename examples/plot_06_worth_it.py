"""
===================================
Is attention worth it on my series?
===================================

Forecast the next values of a series from several origins, each time with what was known by then,
once with attention and once with ridge regression on the change since the last value. The verdict
is the ratio of their errors with its uncertainty, on the bundled sunspots or on a column of yours::

    python plot_06_worth_it.py --csv my.csv --column load --n-steps 24
"""

# %%
# The series
# ----------
# A CSV file needs a header line. Its last column is taken unless one is named.

import argparse
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skcurse import (
    AttentionNTKRegressor,
    ForecastDisplay,
    ResidualTargetRegressor,
    SeriesWindows,
    compare,
    load_sunspots,
)

parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
parser.add_argument("figure", nargs="?", help="file for the figure")
parser.add_argument("--csv", help="file with the series; default: the bundled sunspots")
parser.add_argument("--column", help="its column; default: the last one")
parser.add_argument("--n-steps", type=int, default=24, help="values in a window")
parser.add_argument("--origins", type=int, default=8, help="number of forecast origins")
args = parser.parse_args()

if args.csv is None:
    name, series = "sunspots", load_sunspots().target
else:
    table = np.genfromtxt(args.csv, delimiter=",", names=True, encoding="utf-8")
    name = args.column or table.dtype.names[-1]
    if name not in table.dtype.names:
        parser.error(f"{Path(args.csv).name} has the columns {', '.join(table.dtype.names)}.")
    series = table[name]

law = SeriesWindows(series, args.n_steps)
try:
    X, y = law.windows()
    splits = list(TimeSeriesSplit(args.origins).split(X))
except ValueError as error:
    parser.error(str(error))

# %%
# Two contestants and a yardstick
# -------------------------------
# Attention gets its best chance: it may forecast the next value or the change since the last one,
# and its regularisation is chosen, like ridge's, on the latest of the data known so far.
#
# Mind where we scale. `SeriesWindows` scales the series before it cuts the windows. Ridge has a
# scaler of its own inside `ResidualTargetRegressor`; one in front of it would scale the last value
# but not the target, and adding the one to the other would make no sense.

# Some candidates do worse than the mean of their targets, and say so: the search passes them over.
warnings.filterwarnings("ignore", message="The loss on the training rows")
network = AttentionNTKRegressor(256, regime="lazy", max_iter=np.inf, random_state=0)
ridge = ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge()))
strengths = np.logspace(-3, 3, 7)


def tuned(estimator, grid):
    """Choose parameters by forecasts within the training rows."""
    return GridSearchCV(estimator, grid, cv=TimeSeriesSplit(3), scoring="neg_mean_squared_error")


models = {
    "attention": tuned(
        Pipeline([("model", network)]),
        [
            {"model": [network], "model__alpha": strengths},
            {"model": [ResidualTargetRegressor(network)], "model__estimator__alpha": strengths},
        ],
    ),
    "residual ridge": tuned(ridge, {"estimator__ridge__alpha": 100 * strengths}),
    "persistence": ResidualTargetRegressor(DummyRegressor(strategy="constant", constant=0.0)),
}

# %%
# Rolling origins
# ---------------
# Each origin trains on all windows before it and is tested on the stretch up to the next one. The
# stretches do not overlap, so we treat the logarithms of their error ratios as independent.

comparison = compare(models, {name: law}, cv=splits, random_state=0)
errors = dict(zip(models, comparison.scores("mse"), strict=True))
level = 0.95


def ratio(model, reference):
    """Geometric mean of the error ratios and its interval by Student's t."""
    logs = np.log(errors[model] / errors[reference])
    half = stats.t.ppf((1 + level) / 2, len(logs) - 1) * stats.sem(logs)
    return np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])


print(f"{name}: {len(series)} values, {len(splits)} origins, {level:.0%} intervals")
for reference in ("residual ridge", "persistence"):
    middle, low, high = ratio("attention", reference)
    print(f"error of attention / error of {reference}: {middle:.2f}, {low:.2f} to {high:.2f}")

_, low, high = ratio("attention", "residual ridge")
if low > 1:
    verdict = "No: attention costs more than a linear model of the change."
elif high < 1:
    verdict = "Yes: attention beats a linear model of the change."
else:
    verdict = "Cannot be told: the interval holds 1. The linear model is the simpler one."
print(f"Is attention worth it on {name}? {verdict}")

# %%
# The picture
# -----------
# Left: the ratios of each origin, with their mean and interval. Right: the last stretch.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.8), layout="constrained", gridspec_kw={"width_ratios": [1, 1.6]}
)
colors = {"attention": "#E69F00", "persistence": "#CC79A7"}
for row, (model, color) in enumerate(colors.items()):
    each = errors[model] / errors["residual ridge"]
    left.plot(each, np.full(len(each), row), "o", color=color, alpha=0.5)
    middle, low, high = ratio(model, "residual ridge")
    left.errorbar(
        middle, row + 0.2, xerr=[[middle - low], [high - middle]], fmt="D", color=color, capsize=3
    )
left.axvline(1, color="k", linestyle="--", linewidth=1)
left.set_xscale("log", base=2)
left.xaxis.set_major_formatter("{x:g}")
left.set(ylim=(1.6, -0.6), xlabel="error / error of residual ridge")
left.set_yticks(range(len(colors)), colors)

train, test = splits[-1]
X, y = law.windows(n_train=len(train))
fitted = {model: models[model].fit(X[train], y[train]) for model in ("residual ridge", "attention")}
ForecastDisplay.from_estimator(fitted, X[test], y[test], index=test + args.n_steps, ax=right)
right.set(xlabel="row of the series", ylabel=f"{name}, standardised")
figure.suptitle(verdict)

if args.figure:
    figure.savefig(args.figure, dpi=150)
plt.show()
