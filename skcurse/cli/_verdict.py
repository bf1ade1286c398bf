"""What the numbers of a comparison say, in words."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from skcurse.comparison import Comparison, describe


def verdict(comparison: Comparison) -> Iterator[str]:
    """Yield sentences, every number and every word of order in them computed."""
    results = comparison.results_
    n_estimators = len(set(results["estimator"]))
    for start in range(0, len(results["estimator"]), n_estimators):
        rows = slice(start, start + n_estimators)
        where = describe(results["data_model"][start], results["params"][start])
        for law in comparison.laws_:
            errors = comparison.scores("mse", law)[rows]
            fitted = ~np.isnan(errors).any(axis=1)
            if not fitted.any():
                continue
            names, errors = results["estimator"][rows][fitted].tolist(), errors[fitted]
            known = {
                r.name: r.risk
                for r in comparison.references_
                if r.shift == law and describe(r.data_model, r.params) == where
            }
            yield f"{where}, {law or 'in distribution'}:"
            yield f"  {_ranking(names, errors, known)}"
            yield from (f"  {line}" for line in _against_references(names, errors, known))
        if "skill" in comparison.diagnostics_:
            yield from (f"  {line}" for line in _skills(comparison, rows))
    if "last_step_attention" in comparison.diagnostics_:
        yield "last_step_attention: 1 is uniform, above 1 is more on the last step"


def _ranking(names: list[str], errors: Any, known: dict[str, float]) -> str:
    """All errors from the smallest up, predicting zero among them if its risk is known."""
    means = dict(zip(names, errors.mean(axis=1), strict=True))
    if "predict zero" in known:
        means["predicting zero"] = known["predict zero"]
    ordered = sorted(means, key=lambda name: means[name])
    return " < ".join(f"{name} {means[name]:.3g}" for name in ordered)


def _against_references(names: list[str], errors: Any, known: dict[str, float]) -> Iterator[str]:
    """How attention and the residual linear network stand, fold by fold."""
    by_name = dict(zip(names, errors, strict=True))
    n_folds = errors.shape[1]
    attention, linear = by_name.get("attention"), by_name.get("residual_linear")
    if attention is not None and "predict zero" in known:
        worse = int((attention > known["predict zero"]).sum())
        yield f"attention costs more than predicting zero in {worse} of {n_folds} folds"
    if attention is not None and linear is not None and n_folds > 1:
        worse = int((attention > linear).sum())
        yield f"attention costs more than residual_linear in {worse} of {n_folds} folds"
    if linear is not None and "best residual linear" in known:
        excess = linear.mean() / known["best residual linear"] - 1
        side = "above" if excess >= 0 else "below"
        error = linear.std(ddof=1) / np.sqrt(n_folds) / known["best residual linear"]
        yield (
            f"residual_linear is {abs(excess):.1%} {side} the best residual linear risk "
            f"(standard error {error:.1%})"
        )


def _skills(comparison: Comparison, rows: slice) -> Iterator[str]:
    """Tell which estimators beat persistence on a series by more than chance."""
    skills = comparison.scores("skill")[rows].mean(axis=1)
    errors = comparison.scores("skill_error")[rows].mean(axis=1)
    for name, value, error in zip(
        comparison.results_["estimator"][rows], skills, errors, strict=True
    ):
        if name == "persistence" or np.isnan(value):
            continue
        change = f"{abs(value):.1%} {'lower' if value > 0 else 'higher'}"
        if value < -1:
            change = f"{1 - value:.3g} times as large"
        if np.isnan(error):
            yield f"{name}: error {change} than persistence's, too few rows for more"
            continue
        if abs(value) < 2 * error:
            word = "cannot be told from"
        else:
            word = "beats" if value > 0 else "loses to"
        yield f"{name} {word} persistence: error {change} (standard error {error:.1%})"
