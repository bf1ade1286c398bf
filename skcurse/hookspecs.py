"""The hooks a plugin may implement: one page, every hook returns a mapping from names to objects.

A plugin is a module, or an instance of a class, with functions marked by `hookimpl`. A
distribution makes it known by an entry point of the group ``skcurse``; a script or a notebook by
:func:`skcurse.plugins.register`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

PROJECT = "skcurse"
"""Name of the entry-point group and of the hooks' project."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Decorator that marks a function of a plugin as the implementation of a hook."""


@hookspec
def skcurse_data_models() -> Mapping[str, type[Any]]:  # type: ignore[empty-body]
    """Offer data models.

    Returns
    -------
    mapping of str to class
        Subclasses of :class:`skcurse.datasets.DataModel`, or classes with its ``sample``,
        ``get_params`` and ``set_params``. They can be constructed without arguments.

    Notes
    -----
    ``_sample(n_samples, shift, rng)`` returns new arrays: X of shape (n_samples, n_features) and y
    of shape (n_samples,) or (n_samples, n_outputs), finite floats. `rng` is a
    `numpy.random.RandomState`. A method ``reference_risks(shift)`` may give closed-form risks.

    Examples
    --------
    >>> from skcurse.datasets import DataModel
    >>> from skcurse.hookspecs import hookimpl
    >>> class WhiteNoise(DataModel):
    ...     def _sample(self, n_samples, shift, rng):
    ...         return rng.normal(size=(n_samples, 4)), rng.normal(size=n_samples)
    >>> @hookimpl
    ... def skcurse_data_models():
    ...     return {"white_noise": WhiteNoise}
    """


@hookspec
def skcurse_diagnostics() -> Mapping[str, Callable[..., float]]:  # type: ignore[empty-body]
    """Offer diagnostics.

    Returns
    -------
    mapping of str to callable
        Functions ``(estimator, X, y) -> float``: the fitted estimator and the held-out rows. They
        return nan where they do not apply.

    Notes
    -----
    A diagnostic must change none of its arguments. Only NumPy arrays and pandas objects are
    protected, since copying the rest would cost every user: `skcurse.testing.check_diagnostic`
    tells. Named in ``refit`` of a search it is maximised, like every scorer.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.hookspecs import hookimpl
    >>> def bias(estimator, X, y):
    ...     return np.mean(estimator.predict(X) - y)
    >>> @hookimpl
    ... def skcurse_diagnostics():
    ...     return {"bias": bias}
    """


@hookspec
def skcurse_estimators() -> Mapping[str, type[Any]]:  # type: ignore[empty-body]
    """Offer estimators.

    Returns
    -------
    mapping of str to class
        scikit-learn regressors that can be constructed without arguments, so every parameter has
        a default.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> from skcurse.hookspecs import hookimpl
    >>> @hookimpl
    ... def skcurse_estimators():
    ...     return {"nearest_neighbours": KNeighborsRegressor}
    """
