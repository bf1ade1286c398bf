"""Training and evaluation of AttentionNTKRegressor, regime by regime.

`learner` is the estimator: parameters, and the fitted attributes that exist by then. A faster way
to descend takes part by its steps, in `network_steps`: stopping rule, divergence, callbacks and
`staged_predict` follow whatever steps that function yields.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skcurse.estimators._resources import Map, block_bytes
from skcurse.estimators._step_tasks import StepTasks
from skcurse.theory.attention_ntk import (
    forward,
    initial_network,
    largest_stable_rate,
    linearised_features,
    linearised_forward,
    loss_gradient,
    rounding_loss,
)
from skcurse.theory.collocation import CollocationTable
from skcurse.theory.collocation_descent import (
    TableDescent,
    accurate_table,
    collocation_pays,
)
from skcurse.theory.compression import CompressedNetwork, compressed_forward
from skcurse.theory.descent import Descent, Step, descent_steps, follow
from skcurse.theory.infinite_width import (
    gaussian_nodes,
    infinite_width_features,
    infinite_width_forward,
    nodes_on,
)
from skcurse.theory.kernel_table import GAUSSIAN_INTERVAL
from skcurse.theory.lazy_descent import (
    LazyModel,
    descent_filter,
    lazy_losses,
    lazy_model,
    lazy_stable_rate,
    lazy_steps,
    lazy_weights,
)
from skcurse.theory.tabulated_lazy import CompressedLazyModel, tabulated_lazy_model

Array = NDArray[np.float64]

# Condition number from which rounding errors are warned of: fewer than six digits are left.
_ILL_CONDITIONED = 1e10
# Condition number from which a table, with errors of 1e-14, is less exact than a closed form needs.
_BLURRED = 1e6
# About as many nodes stand for the weights of the infinitely wide network.
_N_NODES = 1000


def options(blocks: Map) -> dict[str, Any]:
    """Arguments of the theory's functions for memory and workers."""
    return {"block_bytes": block_bytes(), "map": blocks}


def hold_data(learner: Any, X: Array, y: Array, sample_weight: Array | None) -> None:
    """Keep the training data that counts."""
    rows = slice(None) if sample_weight is None else sample_weight > 0
    learner.X_fit_, learner.y_fit_ = (z[rows].astype(np.float64, copy=False) for z in (X, y))
    learner.sample_weight_fit_ = None if sample_weight is None else sample_weight[rows]


def initialise(learner: Any, previous: Any) -> None:
    """Draw the initial weights, or take over those of the previous fit; where to start."""
    shape = (*learner.y_fit_.shape[1:], previous.n_neurons)
    continues = previous.regime == getattr(previous, "regime_", None) == "finite"
    if previous.warm_start and continues:
        if previous.weights_.size != math.prod(shape):
            raise ValueError(
                f"warm_start=True continues from weights of shape {previous.weights_.shape}, but y "
                f"and n_neurons ask for {shape}: set warm_start=False to start anew."
            )
        learner.initial_weights_, learner.signs_ = previous.initial_weights_, previous.signs_
        learner.start_weights_ = previous.weights_.reshape(shape)
        return
    learner.initial_weights_, learner.signs_ = initial_network(
        previous.n_neurons,
        check_random_state(previous.random_state),
        antisymmetric=previous.init == "antisymmetric",
    )
    learner.start_weights_ = np.broadcast_to(learner.initial_weights_, shape).copy()


def descend_network(learner: Any, tasks: StepTasks, blocks: Map) -> Descent:
    """Train the network of finite width."""
    descent = _chosen_descent(learner, blocks)
    learner.solver_ = learner.start_solver_ = "direct" if descent is None else "collocation"
    if descent is None:
        data = {"sample_weight": learner.sample_weight_fit_, **options(blocks)}
        find_rate: Callable[..., float] = partial(largest_stable_rate, learner.X_fit_, **data)
    else:
        find_rate = descent.table.largest_stable_rate
    stable_rate = partial(find_rate, learner.initial_weights_, alpha=learner.alpha)
    learner.start_rate_ = _rate(learner, stable_rate)
    run = follow(
        network_steps(learner, blocks, descent),
        learning_rate=learner.start_rate_,
        largest_stable_rate=stable_rate,
        max_iter=int(learner.max_iter),
        tol=learner.tol,
        n_iter_no_change=learner.n_iter_no_change,
        noise=noise(learner),
        watch=tasks,
    )
    learner.weights_, learner.loss_curve_, learner.n_iter_ = run.weights, run.losses, run.n_iter
    learner.learning_rate_ = run.learning_rate
    if descent is not None:
        learner.compressed_ = descent.network()
        if learner.compressed_ is None:
            learner.solver_ = "direct"
    return run


def solve_linear(learner: Any, blocks: Map) -> None:
    """Train a linear model: the linearised network, or the one of infinite width."""
    n_steps = float(learner.max_iter)
    for table in (_chosen_table(learner, blocks), None):
        learner.solver_ = "direct" if table is None else "collocation"
        if learner.regime_ == "infinite":
            nodes = gaussian_nodes(learner.X_fit_) if table is None else table.gaussian_nodes()
            learner.node_breaks_ = nodes.breaks
        model = linear_model(learner, blocks, table)
        learner.learning_rate_ = _rate(learner, partial(lazy_stable_rate, model, learner.alpha))
        descent = {"learning_rate": learner.learning_rate_, "alpha": learner.alpha}
        learner.loss_steps_ = lazy_steps(model, n_steps, **descent)  # refuses steps that diverge
        condition = _condition(model, n_steps, descent)
        if table is None or learner.solver == "collocation" or condition <= _BLURRED:
            break
    _warn_if_rounded(condition)
    learner.loss_curve_ = lazy_losses(model, learner.loss_steps_, **descent)
    learner.n_iter_ = learner.max_iter if math.isinf(n_steps) else int(learner.max_iter)
    trained = linear_weights(learner, model, n_steps)
    if table is not None:
        learner.compressed_ = linear_networks(learner, table, model)(n_steps)
    if learner.regime_ == "infinite":
        learner.node_weights_ = trained
    else:
        learner.weights_ = trained


def _condition(model: LazyModel, n_steps: float, descent: dict[str, float]) -> float:
    """Norm of the features times that of their filtered inverse."""
    gain = descent_filter(model.values**2, n_steps, **descent)
    return float(np.max(model.values, initial=0.0) * np.max(model.values * gain, initial=0.0))


def _warn_if_rounded(condition: float) -> None:
    """Warn where the closed form inverts singular values so small that rounding dominates."""
    if condition > _ILL_CONDITIONED:
        warnings.warn(
            f"The features are inverted with a condition number of {condition:.1g}: rounding "
            "errors may dominate the predictions. Set alpha > 0 or a smaller, finite max_iter.",
            ConvergenceWarning,
            stacklevel=5,
        )


def _chosen_descent(learner: Any, blocks: Map) -> TableDescent | None:
    """Prepare the descent on a table; None where the direct formula is cheaper or was asked for."""
    asked = learner.solver == "collocation"
    n_samples, n_features = learner.X_fit_.shape
    n_steps = int(learner.max_iter) * (learner.start_weights_.size // learner.n_neurons)
    if learner.solver == "direct" or not (
        asked or collocation_pays(n_samples, learner.n_neurons, n_features, n_steps)
    ):
        return None
    try:
        return table_descent(learner, blocks)
    except ValueError:
        # Windows that no table resolves, or that overflow, which the direct formula tells better;
        # or an earlier fit left every table and went on by the direct formula, as this one does.
        if asked and np.all(learner.start_weights_ == learner.initial_weights_):
            raise
        return None


def table_descent(learner: Any, blocks: Map) -> TableDescent:
    """Prepare the descent on a table in place of the data."""
    table = accurate_table(
        learner.X_fit_,
        learner.y_fit_,
        learner.start_weights_,
        learner.signs_,
        also=learner.initial_weights_,
        sample_weight=learner.sample_weight_fit_,
        map=blocks,
    )
    return TableDescent(
        table,
        learner.start_weights_,
        learner.signs_,
        alpha=learner.alpha,
        initial_weights=learner.initial_weights_,
    )


def network_steps(learner: Any, blocks: Map, descent: TableDescent | None) -> Iterator[Step]:
    """Yield the steps of the network of finite width, the start first, without end."""
    rule = {"shorten": learner.learning_rate == "auto", "noise": noise(learner)}
    if descent is not None:
        return descent.steps(learner.start_rate_, **rule)
    objective = partial(
        loss_gradient,
        learner.X_fit_,
        learner.y_fit_,
        signs=learner.signs_,
        sample_weight=learner.sample_weight_fit_,
        alpha=learner.alpha,
        initial_weights=learner.initial_weights_,
        **options(blocks),
    )
    return descent_steps(objective, learner.start_weights_, learner.start_rate_, **rule)


def _chosen_table(learner: Any, blocks: Map) -> CollocationTable | None:
    """Tabulate the data of a closed form; None where the direct formula is cheaper or asked for."""
    if learner.solver == "collocation":
        return linear_table(learner, blocks)
    n_samples, n_features = learner.X_fit_.shape
    width = _N_NODES if learner.regime_ == "infinite" else learner.n_neurons
    # Without ridge, in the limit, even the smallest singular values count, which tables blur.
    limit = learner.max_iter == np.inf and learner.alpha == 0
    if learner.solver == "direct" or limit or not collocation_pays(n_samples, width, n_features, 1):
        return None
    try:
        return linear_table(learner, blocks)
    except ValueError:
        return None


def linear_table(learner: Any, blocks: Map) -> CollocationTable:
    """Tabulate the data of a closed form."""
    data = {"sample_weight": learner.sample_weight_fit_, "map": blocks}
    X, y = learner.X_fit_, learner.y_fit_
    if learner.regime_ == "infinite":
        return CollocationTable(X, y, interval=GAUSSIAN_INTERVAL, **data)
    n_outputs = 1 if y.ndim == 1 else y.shape[1]
    starts = np.tile(learner.initial_weights_, (n_outputs, 1))
    return accurate_table(X, y, starts, learner.signs_, **data)


def linear_model(learner: Any, blocks: Map, table: CollocationTable | None) -> LazyModel:
    """Decompose the features of the training windows."""
    residual, resources = learner.y_fit_, options(blocks)
    if table is not None:
        return tabulated_lazy_model(table, *_linear_measure(learner))
    if learner.regime_ == "infinite":
        nodes = nodes_on(learner.node_breaks_)
        features = partial(infinite_width_features, nodes=nodes, **resources)
    else:
        start = {"weights": learner.initial_weights_, "signs": learner.signs_, **resources}
        features = partial(linearised_features, **start)
        residual = (residual.T - forward(learner.X_fit_, **start)).T
    return lazy_model(
        learner.X_fit_,
        residual,
        features,
        sample_weight=learner.sample_weight_fit_,
        block_bytes=block_bytes(),
    )


def _linear_measure(learner: Any) -> tuple[Array, Array, Array]:
    """Weights where features are taken, what scales them, and their masses in the output."""
    if learner.regime_ == "infinite":
        nodes = nodes_on(learner.node_breaks_)
        return nodes.points, nodes.roots, np.zeros_like(nodes.roots)
    masses = learner.signs_ / math.sqrt(learner.signs_.size)
    return learner.initial_weights_, masses, masses


def linear_networks(
    learner: Any, table: CollocationTable | None, model: LazyModel
) -> Callable[[float], CompressedNetwork | None]:
    """Compressed networks by steps; None where the direct formula is cheaper or more accurate."""
    if table is None or model.right.shape[1] <= table.skeleton.weights.size:
        return lambda n_steps: None
    measure = _linear_measure(learner)
    compressed = CompressedLazyModel(table.skeleton, learner.X_fit_, model, *measure)
    shape = learner.y_fit_.shape[1:]

    def network(n_steps: float) -> CompressedNetwork | None:
        found = compressed.network(
            n_steps, learning_rate=learner.learning_rate_, alpha=learner.alpha
        )
        if found is None:
            return None
        masses = found.masses.reshape(-1, *shape)
        return found._replace(masses=masses, totals=found.totals.reshape(shape))

    return network


def linear_weights(learner: Any, model: LazyModel, n_steps: float) -> Array:
    """Weights of the linear model after a number of steps, a row for each column of y."""
    moved = lazy_weights(
        model, n_steps, learning_rate=learner.learning_rate_, alpha=learner.alpha
    ).T
    moved = moved[0] if learner.y_fit_.ndim == 1 else moved
    return moved if learner.regime_ == "infinite" else learner.initial_weights_ + moved


def noise(learner: Any) -> float:
    """Loss of an exact fit."""
    return rounding_loss(
        learner.X_fit_,
        learner.y_fit_,
        learner.signs_,
        sample_weight=learner.sample_weight_fit_,
    )


def _rate(learner: Any, stable_rate: Callable[[], float]) -> float:
    """Step size, half of the largest stable one unless the user has chosen."""
    if learner.learning_rate != "auto":
        return float(learner.learning_rate)
    bound = stable_rate()
    return 0.5 * bound if np.isfinite(bound) else 1.0


def outputs(
    learner: Any,
    X: NDArray[np.floating],
    trained: Array | Callable[[], Array],
    blocks: Map,
    network: CompressedNetwork | None = None,
) -> NDArray[np.floating]:
    """Output of the network with the given weights, in the precision of X.

    Where there is a compressed network, its few nodes stand for all the neurons, and the weights
    are asked for only if it does not cover all rows.
    """
    resources = options(blocks)
    direct = partial(_direct_outputs, learner, trained, resources)
    if network is not None and learner.regime_ == "finite":
        # Few neurons are cheaper than the nodes.
        network = network if learner.signs_.size > network.weights.size else None
    out = direct(X) if network is None else compressed_forward(X, network, direct, **resources)
    with np.errstate(over="ignore"):
        out = out.astype(X.dtype)
    if not np.isfinite(out).all():
        raise ValueError(f"Outputs overflow {X.dtype}: rescale X.")
    return out


def _direct_outputs(
    learner: Any,
    trained: Array | Callable[[], Array],
    resources: dict[str, Any],
    X: NDArray[np.floating],
) -> Array:
    """Sum over all the neurons, or all the nodes of the quadrature."""
    weights = trained() if callable(trained) else trained
    if learner.regime_ == "finite":
        return forward(X, weights, learner.signs_, **resources)
    if learner.regime_ == "lazy":
        start = learner.initial_weights_
        return linearised_forward(X, weights, start, learner.signs_, **resources)
    return infinite_width_forward(X, weights, learner.node_breaks_, **resources)
