"""From tables to what an in-context learner is trained on: contexts, queries and their labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import murmurhash3_32

from skcurse.theory.counted_prompts import CountedPrompts, count_prompts
from skcurse.theory.prompts import unpack_prompts
from skcurse.theory.softmax_icl import LossGradient, loss_gradient

Array = NDArray[np.float64]


class Examples(NamedTuple):
    """Contexts (as keyword arguments of the theory functions), queries, targets and weights."""

    context: dict[str, Any]
    query: Array
    target: Array
    weight: Array

    @property
    def tokens(self) -> Array:
        """The context tokens."""
        tokens: Array = self.context["tokens"]
        return tokens

    def loss_gradient(
        self, query_key: Array, *, alpha: float, block_bytes: int, map: Callable[..., Any]
    ) -> LossGradient:
        """Loss of these examples and its gradient."""
        return loss_gradient(
            query=self.query,
            target=self.target,
            query_key=query_key,
            sample_weight=self.weight,
            alpha=alpha,
            block_bytes=block_bytes,
            map=map,
            **self.context,
        )


Batch = Examples | CountedPrompts


def prompt_context(
    X: Array, n_context: int, output_shape: tuple[int, ...]
) -> tuple[dict[str, Any], Array]:
    """Contexts and queries of flattened prompts; labels have the rank of y."""
    tokens, labels, query = unpack_prompts(X, n_context, int(np.prod(output_shape, dtype=int)))
    return {"tokens": tokens, "labels": labels.reshape(*labels.shape[:2], *output_shape)}, query


def row_context(X: Array, y: Array, weight: Array) -> dict[str, Any]:
    """All rows as the context of every query."""
    with np.errstate(divide="ignore"):
        return {"tokens": X[None], "labels": y[None], "log_mass": np.log(weight)[None]}


def prompt_examples(X: Array, y: Array, weight: Array, n_context: int) -> Batch:
    """Prompts as examples, by counts where tokens repeat."""
    context, query = prompt_context(X, n_context, y.shape[1:])
    counted = count_prompts(**context, query=query, target=y, sample_weight=weight)
    if counted is not None:
        return counted
    # Labels lie between tokens in X: steps are faster where they lie side by side.
    context["labels"] = np.ascontiguousarray(context["labels"])
    return Examples(context, query, y, weight)


def leave_one_out_examples(X: Array, y: Array, weight: Array) -> Examples:
    """Each row as a query whose context is the other rows."""
    present = np.count_nonzero(weight)
    if present < 2 and weight.max() <= 1:
        raise ValueError(
            "Leave-one-out needs a second training row to attend to, got "
            f"n_samples={present} of positive weight."
        )
    return Examples({**row_context(X, y, weight), "leave_one_out": True}, X, y, weight)


def held_out_rows(X: Array, weight: Array, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Choose distinct rows at random; copies of one row end up on the same side."""
    bits = (row.tobytes() for row in X + 0.0)  # + 0.0 makes -0.0 and 0.0 one
    mark = np.array([murmurhash3_32(row, seed=seed, positive=True) for row in bits])
    present = np.unique(mark[weight > 0])
    n_held = int(np.ceil(fraction * len(present)))
    if n_held >= len(present):
        raise ValueError(
            f"validation_fraction={fraction} of n_samples={len(X)} with {len(present)} distinct "
            "rows leaves none to train on."
        )
    return mark <= present[n_held - 1]


def check_magnitude(**arrays: NDArray[np.floating]) -> None:
    """Keep products of two labels and four features, the units of a step, representable."""
    for name, array in arrays.items():
        largest = max(float(array.max()), -float(array.min()))
        if largest > 1e45 or 0 < largest < 1e-45:
            raise ValueError(
                f"The largest magnitude in {name} is {largest:g}, outside 1e-45 to 1e45, where "
                "gradients overflow or vanish. Rescale it, for example with StandardScaler."
            )
