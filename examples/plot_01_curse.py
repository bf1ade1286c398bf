"""
===================================
The curse of attention, on its data
===================================

A softmax-attention network trained on windows of a series learns one thing about the next step:
whether neighbours tend to have the same sign. Where the next step breaks that habit it costs more
than predicting zero, if neighbours tend to agree (gamma > 0). A linear model of the differences to
the last step, trained on the same windows, is not fooled.
"""

# %%
# The data
# --------
# The residual state space model is a stationary series whose neighbours have correlation gamma. We
# train on its windows and test twice: on new windows of the same law, and on windows whose next
# step has the other sign than the last one.

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.dummy import DummyRegressor

from skcurse import (
    AttentionNTKRegressor,
    ResidualLinearRegressor,
    ResidualSSM,
    ResidualTargetRegressor,
    compare,
)

law = ResidualSSM(n_steps=16, noise=0.05)
gammas = [-0.8, -0.6, -0.4, -0.2, 0.2, 0.4, 0.6, 0.8]
shift = "sign_inconsistent"

# %%
# The contestants
# ---------------
# Persistence repeats the last step. Every number below is a mean over replicates with fresh
# training and test samples, the same ones for all models.

persistence = ResidualTargetRegressor(DummyRegressor(strategy="constant", constant=0.0))
comparison = compare(
    {
        "attention": AttentionNTKRegressor(n_neurons=256, max_iter=10_000, tol=1e-3),
        "persistence": persistence,
        "residual linear": ResidualLinearRegressor(),
    },
    {"residual SSM": law},
    data_grid={"gamma": gammas},
    diagnostics=["sign_agreement"],
    cv=4,
    n_samples=300,
    random_state=0,
)


def by_gamma(score, name, shift=None):
    """Mean and standard error over the replicates, one entry for each gamma."""
    folds = comparison.scores(score, shift)[comparison.results_["estimator"] == name]
    return folds.mean(axis=1), folds.std(axis=1, ddof=1) / np.sqrt(folds.shape[1])


# %%
# What it learns
# --------------
# The share of forecasts that have the sign of the last step jumps from none to all at gamma = 0.

print("gamma   attention: share of forecasts with the last step's sign")
for gamma, share in zip(gammas, by_gamma("sign_agreement", "attention", shift)[0], strict=True):
    print(f"{gamma:+.2f}   {share:.2f}")

# %%
# What it costs
# -------------
# The dashed line is the exact cost of predicting zero. On the law that it was trained on (left)
# attention is below that line throughout. Where the sign changes (right) it is above it for every
# positive gamma and below it for every negative one: there its habit is the right one.

zero = {law_name: [] for law_name in (None, shift)}
for reference in comparison.references_:
    if reference.name == "predict zero":
        zero[reference.shift].append(reference.risk)

figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), sharey=True, layout="constrained")
styles = {
    "attention": ("#D55E00", "o"),
    "persistence": ("#CC79A7", "D"),
    "residual linear": ("#0072B2", "s"),
}
for ax, test_law in zip(axes, zero, strict=True):
    for name, (color, marker) in styles.items():
        mean, error = by_gamma("mse", name, test_law)
        ax.errorbar(gammas, mean, error, color=color, marker=marker, markersize=5, label=name)
    ax.plot(gammas, zero[test_law], "k--", linewidth=1, label="predict zero")
    ax.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    ax.set(xlabel="gamma, correlation of neighbours", yscale="log")
axes[0].set(title="same law as in training", ylabel="mean squared error")
axes[1].set(title="next step of the other sign")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)

worse = by_gamma("mse", "attention", shift)[0] > zero[shift]
print("attention costs more than predicting zero at gamma =", np.array(gammas)[worse])

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
plt.show()
