"""Checks for plugin authors: one call tells all that is wrong, before a user meets it.

Examples
--------
A plugin's whole test file can be::

    import my_plugin
    from skcurse.testing import check_plugin

    def test_plugin():
        check_plugin(my_plugin)
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import pairwise
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import check_estimator

from skcurse.offers import KINDS, PluginError, read_offers
from skcurse.plugins import get_data_models, get_diagnostics, get_estimators
from skcurse.scorer import DiagnosticScorer

__all__ = ["check_data_model", "check_diagnostic", "check_plugin"]


def check_plugin(
    plugin: object,
    *,
    expected_failed_checks: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Check the hooks of a plugin and everything that it offers.

    Parameters
    ----------
    plugin : module or object
        What the entry point names, or `register` is given. It may be installed already.
    expected_failed_checks : mapping of str to mapping, default=None
        For each estimator's name, the scikit-learn checks that it cannot pass, with the reason.

    Raises
    ------
    AssertionError
        If anything is wrong; the message lists all of it.

    See Also
    --------
    check_data_model, check_diagnostic : The same for one object.

    Examples
    --------
    >>> from sklearn.metrics import get_scorer
    >>> from skcurse.plugins import hookimpl
    >>> from skcurse.testing import check_plugin
    >>> class Plugin:
    ...     @hookimpl
    ...     def skcurse_diagnostics(self):
    ...         return {"median_error": get_scorer("neg_median_absolute_error")}
    >>> check_plugin(Plugin())
    """
    _raise_all(type(plugin).__name__, _plugin_problems(plugin, expected_failed_checks or {}))


def check_data_model(model: Any) -> None:
    """Check that a data model can be sampled, seeded, cloned, shifted and sent to a worker.

    Parameters
    ----------
    model : DataModel
        An instance, or a class that needs no arguments.

    Raises
    ------
    AssertionError
        If anything is wrong; the message lists all of it.

    Examples
    --------
    >>> from skcurse.datasets import ResidualSSM
    >>> from skcurse.testing import check_data_model
    >>> check_data_model(ResidualSSM(n_steps=4))
    """
    _raise_all(f"data model {model!r}", _data_model_problems(model))


def check_diagnostic(
    function: Callable[..., Any], estimator: Any = None, X: Any = None, y: Any = None
) -> None:
    """Check that a diagnostic returns a float, repeats, pickles and changes nothing.

    Parameters
    ----------
    function : callable (estimator, X, y) -> float
        The diagnostic.
    estimator : fitted estimator, default=None
        What to call it on; by default a linear regression, alone and in a pipeline, and an
        attention network, on which it may return nan but not fail.
    X : array-like of shape (n_samples, n_features), default=None
        Rows, given with `estimator`.
    y : array-like of shape (n_samples,), default=None
        Targets, given with `estimator`.

    Raises
    ------
    AssertionError
        If anything is wrong; the message lists all of it.

    Examples
    --------
    >>> from skcurse.diagnostics import sign_agreement
    >>> from skcurse.testing import check_diagnostic
    >>> check_diagnostic(sign_agreement)
    """
    cases = None if estimator is None else [(estimator, X, y)]
    _raise_all(f"diagnostic {function!r}", _diagnostic_problems(function, cases))


def _raise_all(what: str, problems: Iterable[str]) -> None:
    found = list(dict.fromkeys(problems))
    if found:
        raise AssertionError("\n- ".join([f"{what} has {len(found)} problem(s):", *found]))


def _plugin_problems(
    plugin: object, expected_failed_checks: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    try:
        offers = read_offers(plugin)
    except PluginError as error:
        yield from error.args
        return
    except Exception as error:
        yield f"a hook raised {error!r}"
        return
    registered: list[Mapping[str, Any]]
    diagnostics = {name: scorer.function for name, scorer in get_diagnostics().items()}
    registered = [get_data_models(), diagnostics, get_estimators()]
    for (kind, (what, _)), table in zip(KINDS.items(), registered, strict=True):
        for name, value in offers[kind].items():
            other = table.get(name, value)
            problems = [] if other is value else [f"the name is taken by {other!r}"]
            if kind == "data_models":
                problems += _data_model_problems(value)
            elif kind == "diagnostics":
                problems += _diagnostic_problems(value)
            else:
                problems += _estimator_problems(value, expected_failed_checks.get(name))
            yield from (f"{what} {name!r}: {problem}" for problem in problems)


def _estimator_problems(cls: type[Any], expected: Mapping[str, str] | None) -> Iterator[str]:
    try:
        estimator = cls()
    except Exception as error:
        yield f"{cls.__name__}() raised {error!r}"
        return
    results = check_estimator(
        estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
    )
    for result in results:
        if result["status"] == "failed":
            yield f"{result['check_name']}: {result['exception']!r}"


def _data_model_problems(model: Any) -> Iterator[str]:
    try:
        model = clone(model() if isinstance(model, type) else model)
        model = pickle.loads(pickle.dumps(model.set_params(**model.get_params())))
    except Exception as error:
        yield f"constructing, cloning or pickling it raised {error!r}"
        return
    before, global_state = (
        joblib.hash(model.get_params()),
        joblib.hash(check_random_state(None).get_state()),
    )
    shifts = getattr(model, "shifts", None)
    if not isinstance(shifts, tuple) or not all(isinstance(shift, str) for shift in shifts):
        yield f"shifts must be a tuple of str, got {shifts!r}"
        shifts = ()
    widths = []
    for shift in (None, *shifts):
        try:
            for n_samples in (1, 20):
                X, y = model.sample(n_samples, shift=shift, random_state=0)
                yield from _sample_problems(np.asarray(X), np.asarray(y), n_samples, shift)
            again, other = (model.sample(20, shift=shift, random_state=seed) for seed in (0, 1))
        except Exception as error:
            yield f"sample(shift={shift!r}) raised {error!r}"
            continue
        if joblib.hash([X, y]) != joblib.hash(list(again)):
            yield f"two samples with the same random_state differ (shift={shift!r})"
        is_series = hasattr(model, "windows")  # one series, whatever the seed
        if not is_series and joblib.hash([X, y]) == joblib.hash(list(other)):
            yield f"two samples with different random_state are equal (shift={shift!r})"
        widths.append(np.shape(X)[1:])
    if any(a != b for a, b in pairwise(widths)):
        yield f"the number of features depends on the shift: {widths}"
    for n_samples, shift in ((0, None), (-1, None), (5, "no such shift")):
        try:
            model.sample(n_samples, shift=shift, random_state=0)
        except ValueError:
            continue
        except Exception as error:
            yield f"sample({n_samples}, shift={shift!r}) raised {error!r}, not a ValueError"
        else:
            yield f"sample({n_samples}, shift={shift!r}) did not raise a ValueError"
    if joblib.hash(model.get_params()) != before:
        yield "sampling changes its parameters"
    if joblib.hash(check_random_state(None).get_state()) != global_state:
        yield "it draws from numpy's global random state: use the rng that _sample is given"


def _sample_problems(X: Any, y: Any, n_samples: int, shift: str | None) -> Iterator[str]:
    if X.ndim != 2 or len(X) != n_samples or y.ndim not in (1, 2) or len(y) != n_samples:
        yield f"sample({n_samples}, shift={shift!r}) has shapes {X.shape} and {y.shape}"
    for name, array in (("X", X), ("y", y)):
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            yield f"{name} must be finite floats, got dtype {array.dtype} (shift={shift!r})"


def _fitted_examples() -> list[tuple[Any, Any, Any]]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 6)), rng.normal(size=30)
    attention = get_estimators("attention_ntk")["attention_ntk"]
    models = (
        LinearRegression(),
        make_pipeline(StandardScaler(), LinearRegression()),
        attention(16, regime="lazy", random_state=0),
    )
    return [(model.fit(X, y), X, y) for model in models]


def _diagnostic_problems(
    function: Callable[..., Any], cases: list[tuple[Any, Any, Any]] | None = None
) -> Iterator[str]:
    try:
        pickle.dumps(joblib.wrap_non_picklable_objects(function))
        if getattr(function, "__module__", None) != "__main__":
            pickle.dumps(function)
    except Exception as error:
        yield f"it does not pickle, so no worker and no saved search can have it: {error!r}"
    scorer = DiagnosticScorer("checked", function)
    for estimator, X, y in cases or _fitted_examples():
        on = f"on {type(estimator).__name__}"
        before = [joblib.hash(a) for a in (estimator, X, y)]
        value, fault = scorer.evaluate(estimator, X, y)
        if fault is not None:
            yield f"{on} it {fault.splitlines()[0]}"
        arguments = deepcopy((X, y))  # writable, where a scorer hands over read-only arrays
        try:
            function(estimator, *arguments)
        except Exception:
            continue
        for name, a, b in zip(
            ("the estimator", "X", "y"), (estimator, *arguments), before, strict=True
        ):
            if joblib.hash(a) != b:
                yield f"{on} it changes {name}"
        if not np.array_equal(value, scorer.evaluate(estimator, X, y)[0], equal_nan=True):
            yield f"{on} two calls differ"
