"""
============================
A search for the best window
============================

optuna searches over what a grid cannot hold: here the length of the windows, which changes X
itself, beside a parameter of the estimator. The folds are in time order.
"""

import optuna
from sklearn.model_selection import TimeSeriesSplit, cross_val_score

from skcurse import ResidualLinearRegressor, load_sunspots, make_windows

series = load_sunspots().target
series = (series - series[:100].mean()) / series[:100].std()  # before the windows are cut


def objective(trial):
    """Mean squared error of forecasts, over origins."""
    n_steps = trial.suggest_int("n_steps", 2, 48, log=True)
    alpha = trial.suggest_float("alpha", 1e-3, 1e3, log=True)
    X, y = make_windows(series, n_steps)
    X, y = X[-240:], y[-240:]  # the same targets whatever the window
    cv = TimeSeriesSplit(5)
    model = ResidualLinearRegressor(alpha=alpha)
    return -cross_val_score(model, X, y, cv=cv, scoring="neg_mean_squared_error").mean()


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=40)
print(f"mean squared error {study.best_value:.3f} with {study.best_params}")
