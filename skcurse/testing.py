"""Checks for plugin authors: one call tells all that is wrong, before a user meets it.

Examples
--------
A plugin's whole test file can be::

    import my_plugin
    from skcurse.testing import check_plugin

    def test_plugin():
        check_plugin(my_plugin)

`skcurse.testing` is imported by name: ``import skcurse`` alone does not load it.
"""

import pickle
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone, is_regressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import check_estimator

from skcurse.datasets._base import is_series, sample_fault
from skcurse.offers import KINDS, PluginError, find_clashes, plugin_name, read_offers
from skcurse.plugins import get_estimators, loaded_plugins
from skcurse.scorer import DiagnosticScorer, summarise

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
    _raise_all(
        f"plugin {plugin_name(plugin)!r}", _plugin_problems(plugin, expected_failed_checks or {})
    )


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

    Warns
    -----
    UserWarning
        If a shift gives the very sample of the training law, which may be right for these
        parameters.

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
    others = [other for other in loaded_plugins() if not _is_same(other.source, plugin)]
    for kind, name, owner in find_clashes(offers, others):
        yield f"{KINDS[kind][0]} {name!r}: the name is taken by {owner}"
    for kind, (what, _) in KINDS.items():
        for name, value in offers[kind].items():
            if kind == "data_models":
                problems = _data_model_problems(value)
            elif kind == "diagnostics":
                problems = _diagnostic_problems(value)
            else:
                problems = _estimator_problems(value, expected_failed_checks.get(name))
            yield from (f"{what} {name!r}: {problem}" for problem in problems)


def _is_same(a: object, b: object) -> bool:
    """Whether two plugins are one, say installed here and imported or made again by a test."""
    return type(a) is type(b) and plugin_name(a) == plugin_name(b)


def _estimator_problems(cls: type[Any], expected: Mapping[str, str] | None) -> Iterator[str]:
    try:
        estimator = cls()
    except Exception as error:
        yield f"{cls.__name__}() raised {error!r}"
        return
    if not is_regressor(estimator):
        yield f"{cls.__name__} is no regressor: inherit from RegressorMixin"
        return
    results = check_estimator(
        estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
    )
    for result in results:
        if result["status"] == "failed":
            failure = result["exception"]
            frame = traceback.extract_tb(failure.__traceback__)[-1]
            place = f"{Path(frame.filename).name}, line {frame.lineno}: {frame.line}"
            yield f"{result['check_name']}: {summarise(failure)} ({place})"


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
    if len(set(shifts)) < len(shifts) or {"", "study"} & set(shifts):
        yield f"shifts must be distinct and neither '' nor 'study', got {shifts!r}"
    for shift in (None, *shifts):
        yield from _law_problems(model, shift)
    yield from _shift_problems(model, shifts)
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


def _law_problems(model: Any, shift: str | None) -> Iterator[str]:
    """Check samples of one law: their shapes and values, and what the seed does."""
    series = is_series(model)  # short, and the same whatever the seed
    try:
        for n_samples in (1, 20) if series else (1, 20, 2000):
            X, y = map(np.asarray, model.sample(n_samples, shift=shift, random_state=0))
            if fault := sample_fault(X, y, n_samples):
                yield f"sample({n_samples}, shift={shift!r}): {fault}"
            for name, array in (("X", X), ("y", y)):
                if array.dtype.kind != "f":
                    yield f"{name} must hold floats, got dtype {array.dtype} (shift={shift!r})"
        first = model.sample(20, shift=shift, random_state=0)
        kept = joblib.hash(list(first))
        other = model.sample(20, shift=shift, random_state=1)
        changed = joblib.hash(list(first)) != kept
        again = model.sample(20, shift=shift, random_state=0)
    except Exception as error:
        yield f"sample(shift={shift!r}) raised {summarise(error)}"
        return
    if changed:
        yield f"a sample is overwritten by the next one: return new arrays (shift={shift!r})"
    if joblib.hash(list(again)) != kept:
        yield f"two samples with the same random_state differ (shift={shift!r})"
    if not series and joblib.hash(list(other)) == kept:
        yield f"two samples with different random_state are equal (shift={shift!r})"


def _shift_problems(model: Any, shifts: tuple[str, ...]) -> Iterator[str]:
    """Check that the laws differ, but not in their number of features."""
    n_samples = 20 if is_series(model) else 2000
    try:
        training, *shifted = [
            joblib.hash(list(model.sample(n_samples, shift=shift, random_state=0)))
            for shift in (None, *shifts)
        ]
        widths = {
            np.shape(model.sample(5, shift=shift, random_state=seed)[0])[1:]
            for shift in (None, *shifts)
            for seed in range(5)
        }
    except Exception:  # told already
        return
    for shift, drawn in zip(shifts, shifted, strict=True):
        if drawn == training:
            message = f"{model!r}: shift {shift!r} changes nothing here: does _sample look at it?"
            warnings.warn(message, stacklevel=5)  # no fault where it differs at other parameters
    if len(widths) > 1:
        yield f"the number of features depends on the shift or the seed: {sorted(widths)}"


def _fitted_examples() -> list[tuple[Any, Any, Any]]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 6)), rng.normal(size=60)
    attention = get_estimators("attention_ntk")["attention_ntk"]
    models = (
        LinearRegression(),
        make_pipeline(StandardScaler(), LinearRegression()),
        attention(16, regime="lazy", random_state=0),
    )
    # Evaluated on other rows than they were fitted to, where fitting again does not go unnoticed.
    return [(model.fit(X[:30], y[:30]), X[30:], y[30:]) for model in models]


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
