"""
=======================================
How attention learns to learn, in steps
=======================================

One softmax-attention layer, trained on prompts that show linear functions of a few features, learns
to answer a query by looking at the tokens that equal it. If all features are equally likely it
learns them all at once. If one dominates it learns that one first, and the rare ones later, after
it has unlearnt to look at the dominant one.
"""

# %%
# Exactly, without sampling
# -------------------------
# The gradient of the expected loss has a closed form up to one integral, so gradient descent on
# infinitely many prompts can be computed to rounding. Two laws of the tokens: balanced, and
# imbalanced, where the first feature has probability one half.

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcurse import ICLPrompts, PhaseDisplay, SoftmaxICLRegressor
from skcurse.theory.icl_floors import loss_infimum
from skcurse.theory.icl_phases import training_phases
from skcurse.theory.icl_population import population_descent

n_context, vocabulary_size, learning_rate = 100, 20, 4.0
laws = {
    name: ICLPrompts(n_context, vocabulary_size, probabilities=name)
    for name in ("balanced", "imbalanced")
}


def descend(law, n_iter):
    """Follow a query of the first feature and one of the second."""
    return population_descent(
        law.token_probabilities(),
        n_context,
        learning_rate=learning_rate,
        n_iter=n_iter,
        queries=[0, 1],
    )


descents = {name: descend(law, 5000) for name, law in laws.items()}

# %%
# A trained layer follows it
# --------------------------
# `SoftmaxICLRegressor` sees a finite sample of prompts and takes the same steps.

law = laws["balanced"]
X, y = law.sample(3000, random_state=0)
layer = SoftmaxICLRegressor(n_context, learning_rate=learning_rate, max_iter=1000, tol=0.0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # its last step is ours to choose
    layer.fit(X, y)
X_new, y_new = law.sample(3000, random_state=1)
print(f"score on new tasks: {layer.score(X_new, y_new):.3f}")

# %%
# The picture
# -----------
# Left: how far the loss of a query is from the smallest one that any attention can reach. Right: a
# rare feature under the imbalanced law. First B_{k,1} falls, it looks away from the dominant
# feature; then A_k takes the lead, grows, and converges.

figure = plt.figure(figsize=(8.5, 3.8), layout="constrained")
grid = figure.add_gridspec(2, 2)
loss_axes = figure.add_subplot(grid[:, 0])
lines = {
    ("balanced", 0): ("balanced", "#009E73", "-"),
    ("imbalanced", 0): ("imbalanced, dominant feature", "#D55E00", "--"),
    ("imbalanced", 1): ("imbalanced, rare feature", "#0072B2", "-."),
}
near = 0.01
for (name, query), (label, color, style) in lines.items():
    run = descents[name]
    floor = loss_infimum(run.p, n_context, query=query)
    loss_axes.loglog(1 + run.steps, run.losses[:, query] - floor, style, color=color, label=label)
    below = np.flatnonzero(run.losses[:, query] - floor < near)
    print(f"{label}: within {near} of its floor after {run.steps[below[0]]} steps")

steps = np.unique(np.geomspace(1, len(layer.loss_curve_), 15).astype(int)) - 1
floor = loss_infimum(law.token_probabilities(), n_context)
sampled = np.array(layer.loss_curve_)[steps] - floor
loss_axes.loglog(1 + steps, sampled, "o", color="#009E73", label=f"trained on {len(X)} prompts")
loss_axes.set(xlabel="1 + step of gradient descent", ylabel="loss above its floor")
loss_axes.legend(fontsize=8, frameon=False)

run = descend(laws["imbalanced"], 600)
phase_axes = np.array([figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])])
PhaseDisplay.from_trajectory(run, query=1, ax=phase_axes)
print("phases of the rare feature start at steps", training_phases(run, 1).starts)

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
plt.show()
