"""Measured iterations to an epsilon-optimal loss against the rates of the convergence theorems.

Prints, for balanced, dominant and under-represented query features, log-log slopes of the exact
iteration count in K, the learning rate and epsilon (least squares over the grid, with standard
errors from the residuals) beside the same fit to the predicted count, and the range of their
ratio. The theorems bound the count from above, so a ratio below a constant is what they claim;
equal slopes are not. Counts are exact, so the standard errors measure curvature, not noise.
N = 10 K³, as the analysis asks for N much larger than K³.
"""

import itertools

import numpy as np

from skcurse.theory.icl_phases import predicted_iterations, training_phases
from skcurse.theory.icl_population import population_descent

FEATURES, RATES = (10, 20, 40, 80), (1.0, 2.0, 4.0)
EPSILONS = {
    "balanced": (0.1, 0.03, 0.01, 0.003),
    "dominant": (0.01, 0.003, 0.001, 0.0003),
    "under-represented": (0.1, 0.03, 0.01, 0.003),
}
LIMIT = 10**6


def law(kind, k):
    """Probabilities and the query feature of each kind of run."""
    if kind == "balanced":
        return np.full(k, 1 / k), 0
    return np.append(0.5, np.full(k - 1, 0.5 / (k - 1))), 0 if kind == "dominant" else 1


def fit(factors, counts):
    """Slopes of log counts in the log factors, with standard errors."""
    design = np.column_stack([np.ones(len(counts)), np.log(factors)])
    coef, residual, *_ = np.linalg.lstsq(design, np.log(counts), rcond=None)
    variance = residual[0] / (len(counts) - design.shape[1])
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    return coef[1:], errors[1:]


def measure(kind):
    """Rows of (K, eta, epsilon, measured, predicted) over the grid."""
    rows = []
    for k, eta in itertools.product(FEATURES, RATES):
        p, query = law(kind, k)
        run = population_descent(
            p, 10 * k**3, learning_rate=eta, n_iter=LIMIT, queries=[query], record=LIMIT,
            epsilon=EPSILONS[kind],
        )  # fmt: skip
        predicted = predicted_iterations(k, eta, EPSILONS[kind], dominant=kind == "dominant")
        rows += zip([k] * 4, [eta] * 4, EPSILONS[kind], run.reached[0], predicted, strict=True)
    return np.array(rows)


def report(name, rows):
    """Print measured and predicted slopes over these rows."""
    free = [i for i in range(3) if np.unique(rows[:, i]).size > 1]
    slopes, errors = fit(rows[:, free], rows[:, 3])
    theory, _ = fit(rows[:, free], rows[:, 4])
    cells = [
        f"{('K', 'eta', 'epsilon')[i]} {s:+.3f} ± {e:.3f} ({t:+.3f})"
        for i, s, e, t in zip(free, slopes, errors, theory, strict=True)
    ]
    ratio = rows[:, 3] / rows[:, 4]
    print(f"{name:36s} " + "  ".join(cells) + f"  ratio {ratio.min():.3f} … {ratio.max():.3f}")


def phase_table():
    """Print where the phases of an under-represented feature begin, in units of 1 / eta."""
    print("\nPhases of an under-represented feature, eta = 2: eta * first step of II, III, IV")
    print("and of the lead switch; the same divided by K² log K")
    for k in FEATURES:
        p, query = law("under-represented", k)
        run = population_descent(
            p, 10 * k**3, learning_rate=2.0, n_iter=20_000, queries=[query], record=1
        )
        phases = training_phases(run, query)
        starts = 2.0 * np.append(phases.starts[1:], phases.lead_switch)
        print(f"  K={k:3d} ", starts, (starts / (k**2 * np.log(k))).round(3))


def main():
    """Print all tables."""
    print("slope of the measured count ± standard error (slope of the prediction)")
    tables = {kind: measure(kind) for kind in EPSILONS}
    for kind, rows in tables.items():
        report(kind, rows)
        for eps in EPSILONS[kind]:
            report(f"  epsilon = {eps}", rows[rows[:, 2] == eps])
        report("  K = 80", rows[rows[:, 0] == 80])
    print("\niterations at eta = 1: measured / predicted")
    for kind, rows in tables.items():
        for k in FEATURES:
            chosen = rows[(rows[:, 0] == k) & (rows[:, 1] == 1.0)]
            cells = "  ".join(f"{int(m):7d}/{t:9.0f}" for m, t in chosen[:, 3:])
            print(f"{kind:18s} K={k:3d}  {cells}")
    phase_table()


if __name__ == "__main__":
    main()
