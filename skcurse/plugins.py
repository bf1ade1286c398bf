"""The plugin host: find plugins, check what they offer, resolve names to objects.

Built-in and third-party plugins go through the same hooks (:mod:`skcurse.hookspecs`). Each is read
on its own, so that a broken one is reported and costs nobody else anything. Nothing is looked for
or imported before the first look-up. Names are resolved in the parent process, to objects that
travel to workers: a worker never looks up a name.

Environment variables, read at the first look-up: ``SKCURSE_PLUGINS``, a comma-separated list of the
entry points to load ("" for none), and ``SKCURSE_STRICT_PLUGINS=1``, which makes a broken plugin,
or an allowed one that is not installed, an error instead of a warning.

Of two plugins that offer one name the later, by its own name, is broken, and asking for the name is
an error: nobody wins in silence. A built-in keeps its name.
"""

import difflib
import importlib
import os
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from skcurse.hookspecs import PROJECT, hookimpl
from skcurse.offers import KINDS, Plugin, PluginError, find_clashes, plugin_name, read_offers
from skcurse.scorer import DiagnosticScorer, summarise

__all__ = [
    "PluginError",
    "construct",
    "describe_unknown",
    "get_data_models",
    "get_diagnostics",
    "get_estimators",
    "hookimpl",
    "isolated_plugins",
    "loaded_plugins",
    "register",
    "report",
    "unregister",
]


@dataclass
class _State:
    """Everything this process knows; ``plugins`` is None until the first look-up."""

    entry_points: tuple[EntryPoint, ...] | None = None
    plugins: tuple[Plugin, ...] | None = None
    loading: bool = False
    strict: bool = False


_state = _State()
_lock = threading.RLock()
_FAULTY = ("broken", "absent")  # states that are told, or in strict mode an error


def _refuse_clashes(plugin: Plugin, others: Iterable[Plugin]) -> None:
    """Raise if `plugin` has the name of another one, or offers a name that another one offers."""
    hint = ""
    if plugin.distribution is None:  # say, a cell of a notebook that is run again
        hint = ": unregister({!r}) first, or give register another name="
    for other in others:
        if other.state == "loaded" and other.name == plugin.name:
            raise PluginError(f"{plugin} has the name of {other}{hint.format(other.name)}")
    faults = [
        f"{KINDS[kind][0]} {name!r} of {plugin} is already offered by {owner}"
        for kind, name, owner in find_clashes(plugin.offers, others)
    ]
    if faults:
        raise PluginError(*faults)


# ------------------------------------------------------------------------------ loading
def _cause(error: BaseException) -> str:
    """One line: type, message, and the place in the plugin that raised."""
    if isinstance(error, PluginError):
        return str(error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    machinery = ("<", __file__, os.path.dirname(importlib.__file__))
    own = [f for f in frames if not f.filename.startswith(machinery)]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{summarise(error)}{place}"


def _read_entry_point(entry: EntryPoint, allowed: set[str] | None, others: list[Plugin]) -> Plugin:
    """Import and check one entry point; whatever it raises becomes its state."""
    plugin = Plugin(entry.name)
    if entry.dist is not None:
        plugin = replace(plugin, distribution=entry.dist.name, version=entry.dist.version)
    if allowed is not None and entry.name not in allowed:
        return replace(plugin, state="blocked", error="not in SKCURSE_PLUGINS")
    try:
        source = entry.load()
        plugin = replace(plugin, source=source, offers=read_offers(source))
        _refuse_clashes(plugin, others)
    except (Exception, SystemExit) as error:
        contested = tuple(
            (kind, name)
            for kind, name, owner in find_clashes(plugin.offers, others)
            if owner.name != PROJECT  # a built-in keeps its name
        )
        broken = replace(plugin, state="broken", error=_cause(error))
        return replace(broken, contested=contested, offers={})
    return plugin


def _load(state: _State) -> tuple[Plugin, ...]:
    """Load everything once; later calls, and other threads, get the same tuple."""
    with _lock:
        if state.plugins is not None:
            return state.plugins
        if state.loading:
            raise PluginError(
                "names can be neither looked up nor registered while plugins are being imported"
            )
        state.loading = True
        try:
            allow_list = os.environ.get("SKCURSE_PLUGINS")
            allowed = None if allow_list is None else {s.strip() for s in allow_list.split(",")}
            state.strict = os.environ.get("SKCURSE_STRICT_PLUGINS", "") not in ("", "0")
            built_in = importlib.import_module("skcurse.builtin")
            offers = read_offers(built_in)
            version = importlib.import_module(PROJECT).__version__
            plugins = [Plugin(PROJECT, PROJECT, version, offers=offers, source=built_in)]
            found = state.entry_points
            if found is None:
                found = tuple(metadata.entry_points(group=PROJECT))
            for entry in sorted(found, key=lambda e: (e.name, e.dist.name if e.dist else "")):
                plugins.append(_read_entry_point(entry, allowed, plugins))
            for name in sorted((allowed or set()) - {plugin.name for plugin in plugins} - {""}):
                reason = "SKCURSE_PLUGINS names it, and nothing of this name is installed"
                plugins.append(Plugin(name, state="absent", error=reason))
            state.plugins = tuple(plugins)
        finally:
            state.loading = False
        for plugin in plugins:
            if plugin.state in _FAULTY and not state.strict:
                message = f"skcurse {plugin} is not used: {plugin.error}"
                warnings.warn(message, stacklevel=5)  # the caller of get_...
        return state.plugins


def loaded_plugins() -> tuple[Plugin, ...]:
    """Every plugin; in strict mode a broken one is an error."""
    state = _state
    plugins = state.plugins
    if plugins is None:
        plugins = _load(state)
    if state.strict and (faulty := [p for p in plugins if p.state in _FAULTY]):
        raise PluginError(*(f"{p} is {p.state}: {p.error}" for p in faulty))
    return plugins


def register(plugin: object, name: str | None = None) -> str:
    """Make a plugin known to this process.

    Parameters
    ----------
    plugin : module or object
        With functions marked by `hookimpl`.
    name : str, default=None
        Name in reports; by default that of the module or of the object's class.

    Returns
    -------
    str
        The name, for `unregister`.

    Raises
    ------
    PluginError
        If the plugin breaks the contract, or a name is taken: both owners are named. Nothing is
        registered then.

    Examples
    --------
    >>> import skcurse.plugins as plugins
    >>> class Plugin:
    ...     @plugins.hookimpl
    ...     def skcurse_diagnostics(self):
    ...         return {"one": lambda estimator, X, y: 1.0}
    >>> plugins.register(Plugin(), name="mine")
    'mine'
    >>> plugins.get_diagnostics(["one"])["one"](None, None, None)
    1.0
    >>> plugins.unregister("mine")
    """
    if name is None:
        name = plugin_name(plugin)
    with _lock:
        plugins = loaded_plugins()
        candidate = Plugin(name, offers=read_offers(plugin), source=plugin)
        _refuse_clashes(candidate, plugins)
        _state.plugins = (*plugins, candidate)
    return name


def unregister(plugin: object) -> None:
    """Forget a plugin.

    Parameters
    ----------
    plugin : str, module or object
        A name, or what was registered.

    Raises
    ------
    ValueError
        If no such plugin is registered, or it is skcurse's own.
    """
    with _lock:
        plugins = loaded_plugins()
        if plugin in (PROJECT, plugins[0].source):
            raise ValueError("The built-in plugin 'skcurse' cannot be unregistered.")
        rest = tuple(
            p
            for p in plugins
            if p.name != plugin and not (p.state == "loaded" and p.source is plugin)
        )
        if len(rest) == len(plugins):
            known = ", ".join(repr(p.name) for p in plugins)
            raise ValueError(f"No plugin {plugin!r} is registered; there are {known}.")
        _state.plugins = rest


@contextmanager
def isolated_plugins(*plugins: object, entry_points: Iterable[EntryPoint] = ()) -> Iterator[None]:
    """Context manager for tests: only the built-ins and the given plugins exist inside.

    Parameters
    ----------
    *plugins : module or object
        Registered on entry.
    entry_points : iterable of EntryPoint, default=()
        Loaded, lazily, in place of those that are installed.

    Examples
    --------
    >>> from skcurse.plugins import isolated_plugins, report
    >>> with isolated_plugins():
    ...     [row["name"] for row in report()]
    ['skcurse']
    """
    global _state
    outside = _state
    _state = _State(entry_points=tuple(entry_points))
    try:
        for plugin in plugins:
            register(plugin)
        yield
    finally:
        _state = outside


def report() -> list[dict[str, Any]]:
    """List every plugin: what it offers, its state and its error. Never raises for a broken one.

    Returns
    -------
    list of dict
        Keys "name", "distribution", "version" (None where unknown), "state" ("loaded", "blocked",
        "broken" or "absent"), "data_models", "diagnostics", "estimators" (lists of names), "error"
        (None or one line). Ready for `json.dumps`.

    Examples
    --------
    >>> from skcurse.plugins import report
    >>> report()[0]["data_models"]
    ['residual_ssm', 'icl_prompts']
    """
    state = _state
    with warnings.catch_warnings(action="ignore"):  # the report itself says it
        plugins = state.plugins or _load(state)
    return [
        {
            "name": plugin.name,
            "distribution": plugin.distribution,
            "version": plugin.version,
            "state": plugin.state,
            **{kind: list(plugin.offers.get(kind, {})) for kind in KINDS},
            "error": plugin.error,
        }
        for plugin in plugins
    ]


# ------------------------------------------------------------------------------ resolving names
def describe_unknown(kind: str, name: object, others: Iterable[str] = ()) -> str:
    """Tell what is there instead of `name`, `others` included, and who might have offered it."""
    plugins = loaded_plugins()
    what, known = KINDS[kind][0], sorted({*_resolve(kind, None), *others})
    lines = [f"Unknown {what} {name!r}."]
    if close := difflib.get_close_matches(str(name), known):
        lines.append(f"Did you mean {' or '.join(map(repr, close))}?")
    else:
        lines.append(f"There are {', '.join(map(repr, known)) or 'none'}.")
    for plugin in plugins:
        lines += [
            f"{name!r} is one of get_{other}()." for other, names in plugin.offers.items()
            if other != kind and name in names
        ]  # fmt: skip
        if plugin.state != "loaded":
            lines.append(f"What {plugin} offers is missing: it is {plugin.state}, {plugin.error}.")
    lines.append("`skcurse plugins` lists every plugin and what it offers.")
    return " ".join(lines)


def _resolve(kind: str, names: Iterable[str] | None) -> dict[str, Any]:
    """Names to objects, in the order asked for."""
    plugins = loaded_plugins()
    table = {k: v for plugin in plugins for k, v in plugin.offers.get(kind, {}).items()}
    contested = [(p, n) for p in plugins for k, n in p.contested if k == kind and n in table]
    if names is None:
        return {k: v for k, v in table.items() if k not in [name for _, name in contested]}
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in table:
            raise ValueError(describe_unknown(kind, name))
        if rivals := [plugin for plugin, n in contested if n == name]:
            owners = [p for p in plugins if name in p.offers.get(kind, {})] + rivals
            raise PluginError(
                f"{KINDS[kind][0]} {name!r} is ambiguous: {' and '.join(map(str, owners))} offer "
                "it. Leave all but one out: SKCURSE_PLUGINS lists the plugins to load."
            )
    return {name: table[name] for name in names}


def construct(name: str, cls: type[Any]) -> Any:
    """Make an instance without arguments; whatever that raises is a ValueError with the name."""
    try:
        return cls()
    except Exception as error:
        raise ValueError(f"{name!r}: {cls.__name__}() raised {summarise(error)}.") from error


def get_data_models(names: Iterable[str] | None = None) -> dict[str, type[Any]]:
    """Resolve names to classes of data models.

    Parameters
    ----------
    names : str or iterable of str, default=None
        None stands for all, built-in and plugins'.

    Returns
    -------
    dict of str to class
        In the order of `names`.

    Raises
    ------
    ValueError
        If a name is unknown: the message names the closest ones; or offered by two plugins.

    Examples
    --------
    >>> from skcurse.plugins import get_data_models
    >>> get_data_models(["residual_ssm"])
    {'residual_ssm': <class '...ResidualSSM'>}
    """
    return _resolve("data_models", names)


def get_estimators(names: Iterable[str] | None = None) -> dict[str, type[Any]]:
    """Resolve names to classes of estimators.

    Parameters
    ----------
    names : str or iterable of str, default=None
        None stands for all, built-in and plugins'.

    Returns
    -------
    dict of str to class
        In the order of `names`.

    Raises
    ------
    ValueError
        If a name is unknown: the message names the closest ones; or offered by two plugins.

    Examples
    --------
    >>> from skcurse.plugins import get_estimators
    >>> get_estimators(["residual_linear"])
    {'residual_linear': <class '...ResidualLinearRegressor'>}
    """
    return _resolve("estimators", names)


def get_diagnostics(names: Iterable[str] | None = None) -> dict[str, DiagnosticScorer]:
    """Resolve names to scorers for the ``scoring`` dict of scikit-learn's cross-validation.

    Parameters
    ----------
    names : str or iterable of str, default=None
        None stands for all, built-in and plugins'.

    Returns
    -------
    dict of str to DiagnosticScorer
        In the order of `names`. They pickle, and need no look-up where they are called. Like every
        scorer they are maximised where a search names one in ``refit``.

    Raises
    ------
    ValueError
        If a name is unknown: the message names the closest ones; or offered by two plugins.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skcurse.plugins import get_diagnostics
    >>> X, y = make_regression(random_state=0)
    >>> scoring = {"r2": "r2", **get_diagnostics(["sign_agreement"])}
    >>> search = GridSearchCV(Ridge(), {"alpha": [1, 10]}, scoring=scoring, refit="r2").fit(X, y)
    >>> search.cv_results_["mean_test_sign_agreement"].shape
    (2,)
    """
    table = _resolve("diagnostics", names)
    return {name: DiagnosticScorer(name, function) for name, function in table.items()}
