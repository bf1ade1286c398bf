"""What the parameters of AttentionNTKRegressor may be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from skcurse.estimators._resources import check_number


def check_parameters(network: Any) -> None:
    """Raise for a parameter of an `AttentionNTKRegressor` that is out of range."""
    options = {
        "regime": ("finite", "lazy", "infinite"),
        "solver": ("auto", "direct", "collocation"),
        "init": ("antisymmetric", "iid"),
    }
    for name, accepted in options.items():
        if getattr(network, name) not in accepted:
            raise ValueError(
                f"{name} must be one of {', '.join(map(repr, accepted))}; got "
                f"{getattr(network, name)!r}."
            )
    check_scalar(network.n_neurons, "n_neurons", Integral, min_val=1)
    if isinstance(network.learning_rate, str):
        if network.learning_rate != "auto":
            raise ValueError(
                f"learning_rate must be 'auto' or a positive number; got {network.learning_rate!r}."
            )
    else:
        check_number(
            network.learning_rate, "learning_rate", min_val=0, include_boundaries="neither"
        )
    if network.regime == "finite" and network.max_iter == np.inf:
        raise ValueError(
            "max_iter must be finite in the finite regime; infinitely many steps need "
            "regime='lazy' or regime='infinite'."
        )
    if network.max_iter != np.inf:
        check_scalar(network.max_iter, "max_iter", Real, min_val=1)
        # Not a number has no remainder either.
        if network.max_iter % 1 != 0:
            raise ValueError(
                f"max_iter must be a whole number of steps, 1 or more; got {network.max_iter!r}."
            )
    check_number(network.tol, "tol", min_val=0)
    check_scalar(network.n_iter_no_change, "n_iter_no_change", Integral, min_val=1)
    check_number(network.alpha, "alpha", min_val=0)
