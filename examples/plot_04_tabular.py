"""
=======================================
The in-context learner on a plain table
=======================================

Take the training set as the context and a row as the query, and the layer of the in-context theory
is a smoother that learns by itself which rows are alike. It drops into a scikit-learn pipeline, and
on this table it does better than nearest neighbours, whose similarity is fixed, and about as well
as ridge regression.
"""

# %%
# Three models
# ------------
# The similarity of two rows depends on the scales of their columns, so all three get a scaler. It
# sits in the pipeline: each fold learns the scales from its own training rows.

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, RepeatedKFold, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcurse import SoftmaxICLRegressor

diabetes = load_diabetes(scaled=False)
X, y, columns = diabetes.data, diabetes.target, np.array(diabetes.feature_names)
neighbours = GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [5, 10, 20, 40]})
models = {
    "in context": make_pipeline(StandardScaler(), SoftmaxICLRegressor(max_iter=100)),
    "ridge": make_pipeline(StandardScaler(), RidgeCV()),
    "nearest neighbours": make_pipeline(StandardScaler(), neighbours),
}

# %%
# Their scores
# ------------
# A hundred steps of gradient descent do not reach the minimum, and should not: stopping early is
# the regularisation here. The folds are the same for all models, so we look at differences.

cv = RepeatedKFold(n_splits=5, n_repeats=4, random_state=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    scores = {name: cross_val_score(model, X, y, cv=cv) for name, model in models.items()}
    layer = models["in context"].fit(X, y)[-1]

for name, values in scores.items():
    print(f"{name:20s} R² {values.mean():.3f}")
for name in ("ridge", "nearest neighbours"):
    ahead = scores["in context"] > scores[name]
    print(f"in context is ahead of {name} in {ahead.sum()} of {len(ahead)} folds")

# %%
# The picture
# -----------
# Left: one point a fold. Right: the learned matrix Q. A query row x attends to a training row z by
# exp(zᵀ Q x), so at a red cell queries high in the one column look for rows high in the other.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(8.5, 3.8), layout="constrained", gridspec_kw={"width_ratios": [1.1, 1]}
)
rng = np.random.default_rng(0)
for row, (values, color) in enumerate(
    zip(scores.values(), ["#D55E00", "#0072B2", "#009E73"], strict=True)
):
    left.plot(values, row + rng.uniform(-0.15, 0.15, len(values)), "o", color=color, alpha=0.5)
    left.plot([values.mean()] * 2, [row - 0.3, row + 0.3], color=color, linewidth=2)
left.set_yticks(range(len(scores)), scores)
left.invert_yaxis()
left.set(xlabel="R² on a held-out fold (bars: means)", title="three models, the same folds")

bound = np.abs(layer.query_key_).max()
image = right.imshow(layer.query_key_, cmap="RdBu_r", vmin=-bound, vmax=bound)
right.set_xticks(range(len(columns)), columns, rotation=90)
right.set_yticks(range(len(columns)), columns)
right.set(title="what the layer has learned, Q", xlabel="query row", ylabel="training row")
figure.colorbar(image, ax=right, shrink=0.85)

strongest = columns[np.argsort(-np.diag(layer.query_key_))[:2]]
print("the columns whose agreement counts most:", ", ".join(strongest))

if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
plt.show()
