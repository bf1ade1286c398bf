"""
=====================
A plugin and a search
=====================

A data model and a diagnostic of your own take part in everything once they are registered: here in
an ordinary grid search over the data as well as the estimator. The question is of our own making,
too: which way will an oscillation turn next? Attention without positions sees a window as a bag of
values and its last one. If the window holds whole periods, the bag is the same on the way up as on
the way down, and attention can do no better than bet on a return towards zero.
"""

# %%
# Two hooks
# ---------
# A plugin is anything with functions marked `hookimpl` that return names and objects. In a package
# of its own it is found by its entry point; in a script or a notebook, register it.

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skcurse


class NoisyOscillation(skcurse.DataModel):
    """Sine waves of one period and random phase, with noise."""

    def __init__(self, n_steps=16, period=8.0, noise=0.2):
        self.n_steps = n_steps
        self.period = period
        self.noise = noise

    def _sample(self, n_samples, shift, rng):
        time = np.arange(self.n_steps + 1)
        phase = rng.uniform(0, 2 * np.pi, size=(n_samples, 1))
        series = np.sqrt(2) * np.sin(2 * np.pi * time / self.period + phase)
        series += self.noise * rng.normal(size=series.shape)
        return series[:, :-1], series[:, -1]


def direction_accuracy(estimator, X, y):
    """Share of forecasts on the same side of the last step as the next one."""
    return np.mean((estimator.predict(X) > X[:, -1]) == (y > X[:, -1]))


class Plugin:
    """What this script offers."""

    @skcurse.hookimpl
    def skcurse_data_models(self):
        """Offer the data model."""
        return {"noisy_oscillation": NoisyOscillation}

    @skcurse.hookimpl
    def skcurse_diagnostics(self):
        """Offer the diagnostic."""
        return {"direction_accuracy": direction_accuracy}


skcurse.register(Plugin())

# %%
# One search over data and estimators
# -----------------------------------
# The rows of a `DataModelStudy` are seeds: each split of the search draws a training sample with
# one set of them and a test sample with another. Nothing here knows about plugins but the names.
# Ridge regression of the change since the last step is scaled inside, behind the residual: scaling
# the windows alone would make "add the last step" meaningless.

model = skcurse.get_data_models()["noisy_oscillation"]()
study = skcurse.DataModelStudy(skcurse.AttentionNTKRegressor(), model, n_samples=300)
cycles = np.arange(0.5, 4.01, 0.25)  # periods in a window
estimators = {
    "attention": skcurse.AttentionNTKRegressor(128, regime="lazy", random_state=0),
    "residual ridge": skcurse.ResidualTargetRegressor(make_pipeline(StandardScaler(), Ridge())),
}
search = GridSearchCV(
    study,
    {"data_model__period": model.n_steps / cycles, "estimator": list(estimators.values())},
    scoring=skcurse.get_diagnostics(["direction_accuracy"]),
    refit=False,
    cv=5,
)
search.fit(np.arange(20))

# %%
# The picture
# -----------
# The table of a grid search is all we need. Bars are standard errors over its splits. At whole
# numbers attention falls onto the rule that knows nothing but the last step.

shape = (len(cycles), len(estimators))
splits = np.array(
    [search.cv_results_[f"split{k}_test_direction_accuracy"] for k in range(search.n_splits_)]
)
mean = splits.mean(axis=0).reshape(shape)
error = (splits.std(axis=0, ddof=1) / np.sqrt(len(splits))).reshape(shape)

rule = []
for period in model.n_steps / cycles:
    X, y = NoisyOscillation(period=period).sample(20_000, random_state=0)
    rule.append(np.mean((X[:, -1] < 0) == (y > X[:, -1])))

figure, ax = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
styles = [("#D55E00", "o"), ("#0072B2", "s")]
for k, (name, (color, marker)) in enumerate(zip(estimators, styles, strict=True)):
    ax.errorbar(
        cycles, mean[:, k], error[:, k], color=color, marker=marker, markersize=4, label=name
    )
ax.plot(cycles, rule, "k--", linewidth=1, label="rule: back towards zero")
ax.set(xlabel="periods in a window", ylabel="share of directions foretold", ylim=(0.45, 1.02))
ax.xaxis.grid(True, color="0.85")
ax.set_xticks(range(1, 5))
ax.legend(frameon=False)

whole = cycles == np.round(cycles)
for kind, points in (("whole", whole), ("broken", ~whole)):
    ahead = (mean[:, 0] - rule)[points].mean()
    print(f"{kind} numbers of periods: attention is {ahead:+.3f} ahead of the rule")

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
plt.show()
