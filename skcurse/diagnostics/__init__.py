"""Diagnostics: functions (estimator, X, y) -> float that run as scorers.

Each measures one quantity of the papers on a fitted estimator, so that it can stand in the
``scoring`` dict of `cross_validate` or `GridSearchCV`. A diagnostic asks for what it needs
(``weights_``, ``signs_``, ...), never for a type, and returns nan where the estimator has none of
it. Pipelines, searches and other meta-estimators are seen through.

References
----------
.. [Curse] Ke, Liang, Shi, Song, Yang, "Curse of Attention", arXiv:2412.06061.
.. [ICL] Huang, Cheng, Liang, "In-Context Convergence of Transformers", arXiv:2310.05249.
"""

from skcurse.diagnostics._in_context import attention_concentration, loss_floor_gap
from skcurse.diagnostics._innermost import innermost
from skcurse.diagnostics._kernel import kernel_drift, ntk_effective_rank, ntk_min_eigenvalue
from skcurse.diagnostics._network import (
    last_step_attention,
    sign_agreement,
    update_alignment,
    weight_movement,
    weight_sign_alignment,
)
from skcurse.diagnostics._ood import ood_scorer

__all__ = [
    "attention_concentration",
    "innermost",
    "kernel_drift",
    "last_step_attention",
    "loss_floor_gap",
    "ntk_effective_rank",
    "ntk_min_eigenvalue",
    "ood_scorer",
    "sign_agreement",
    "update_alignment",
    "weight_movement",
    "weight_sign_alignment",
]
