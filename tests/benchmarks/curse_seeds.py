"""Over how many systems and samples does attention lose to predicting zero out of distribution?

Run ``python tests/benchmarks/curse_seeds.py``. For each gamma and each of `N_SYSTEMS` systems the
embedded experiment of ``skcurse compare`` is run on `N_FOLDS` samples; nothing is selected.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcurse.comparison import compare
from skcurse.datasets import ResidualSSM
from skcurse.estimators import AttentionNTKRegressor, ResidualLinearRegressor

N_SYSTEMS, N_FOLDS = 5, 5
GAMMAS = [-0.8, -0.5, 0.3, 0.8, 0.95]
SHIFT = "sign_inconsistent"


def main() -> None:
    """Print one line for each gamma and system, and the counts."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    models = {"attention": AttentionNTKRegressor(), "residual_linear": ResidualLinearRegressor()}
    comparison = compare(
        models,
        {"residual_ssm": ResidualSSM()},
        data_grid={"gamma": GAMMAS, "system_state": list(range(N_SYSTEMS))},
        cv=N_FOLDS,
        n_samples=1000,
        random_state=0,
    )
    print("mean squared error on the sign-inconsistent task, mean over", N_FOLDS, "samples")
    print(f"{'gamma':>6} system  attention   zero  residual   best  attention>zero  >residual")
    results = comparison.results_
    errors = comparison.scores("mse", SHIFT)
    counts = {gamma: np.zeros(3, dtype=int) for gamma in GAMMAS}
    for start in range(0, len(results["estimator"]), len(models)):
        params = results["params"][start]
        law = ResidualSSM(**params)
        zero, best = law.zero_risk(SHIFT), law.best_residual_risk(SHIFT)
        attention, linear = errors[start], errors[start + 1]
        above, worse = (attention > zero).sum(), (attention > linear).sum()
        counts[params["gamma"]] += [above, worse, (zero > linear).sum()]
        print(
            f"{params['gamma']:6} {params['system_state']:6} {attention.mean():10.3f} {zero:6.3f} "
            f"{linear.mean():9.4f} {best:6.4f} {above:8}/{N_FOLDS} {worse:11}/{N_FOLDS}"
        )
    n_runs = N_SYSTEMS * N_FOLDS
    for gamma, (above, worse, useful) in counts.items():
        print(
            f"gamma {gamma}: of {n_runs} runs attention > zero in {above}, attention > residual "
            f"linear in {worse}, zero > residual linear in {useful}"
        )


if __name__ == "__main__":
    main()
