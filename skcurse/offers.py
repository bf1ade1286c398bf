"""Read what one plugin offers and check it against the contract, touching nobody else."""

import difflib
import inspect
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pluggy

from skcurse import hookspecs
from skcurse.hookspecs import PROJECT

__all__ = ["KINDS", "Plugin", "PluginError", "find_clashes", "plugin_name", "read_offers"]

# kind of object -> (how to call one, methods that its class needs)
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "data_models": ("data model", ("sample", "get_params", "set_params")),
    "diagnostics": ("diagnostic", ()),
    "estimators": ("estimator", ("fit", "predict", "get_params", "set_params")),
}


class PluginError(ValueError):
    """A plugin that breaks the contract: each argument names one thing that is wrong."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


@dataclass(frozen=True)
class Plugin:
    """One plugin and what became of it.

    ``offers`` maps a kind to a mapping from names to objects. ``contested`` lists (kind, name) of
    what it offers and another one offered first: for that it is broken.
    """

    name: str
    distribution: str | None = None
    version: str | None = None
    state: str = "loaded"
    error: str | None = None
    offers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contested: tuple[tuple[str, str], ...] = ()
    source: object = None

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}" if self.distribution else "run time"
        if self.state == "absent":
            origin = "not installed"
        return f"plugin {self.name!r} ({origin})"


def plugin_name(plugin: object) -> str:
    """Return the name of a module, or that of an object's class."""
    return str(getattr(plugin, "__name__", type(plugin).__qualname__))


def find_clashes(
    offers: Mapping[str, Mapping[str, Any]], others: Iterable[Plugin]
) -> Iterator[tuple[str, str, Plugin]]:
    """Yield (kind, name, owner) for what one of the others offers already."""
    for owner in others:
        for kind in KINDS:
            for name in offers.get(kind, {}):
                if name in owner.offers.get(kind, {}):
                    yield kind, name, owner


def _fault(kind: str, name: object, value: object) -> str | None:
    """Say what is wrong with one entry of a hook's mapping, if anything is."""
    what, methods = KINDS[kind]
    if not isinstance(name, str) or not name:
        return f"the name of a {what} must be a non-empty str, got {name!r}"
    if kind == "diagnostics":
        if isinstance(value, type):
            return f"{what} {name!r} is the class {value.__qualname__}; offer an instance of it"
        if not callable(value):
            return f"{what} {name!r} is {reprlib.repr(value)}, which is not callable"
        try:
            inspect.signature(value).bind(None, None, None)
        except TypeError:
            return f"{what} {name!r} does not take the three arguments (estimator, X, y)"
        except ValueError:  # a C function without a signature
            return None
        return None
    if not isinstance(value, type):
        return f"{what} {name!r} is {reprlib.repr(value)}; offer a class, not an instance"
    missing = ", ".join(m for m in methods if not callable(getattr(value, m, None)))
    if missing:
        return f"{what} {name!r}: class {value.__qualname__} has no {missing}"
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        call = f"{value.__qualname__}() without arguments"
        return f"{what} {name!r}: {call} must work, so give each a default: {error}"
    except ValueError:  # a C class without a signature
        return None
    return None


def read_offers(plugin: object) -> dict[str, dict[str, Any]]:
    """Call the hooks of one plugin, alone, and check what they return.

    Parameters
    ----------
    plugin : module or object
        With functions marked by `hookimpl`.

    Returns
    -------
    dict of str to dict
        "data_models", "diagnostics" and "estimators", each from names to objects.

    Raises
    ------
    PluginError
        If the plugin is a class, marks no function, implements an unknown hook or one with other
        arguments, or offers something of the wrong type. All wrong types are named at once.

    Examples
    --------
    >>> from skcurse.plugins import hookimpl, read_offers
    >>> class Plugin:
    ...     @hookimpl
    ...     def skcurse_diagnostics(self):
    ...         return {"one": lambda estimator, X, y: 1.0}
    >>> list(read_offers(Plugin())["diagnostics"])
    ['one']
    """
    if isinstance(plugin, type):
        raise PluginError(f"{plugin.__qualname__} is a class; a plugin is an instance or a module")
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, name=plugin_name(plugin))
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        message = " ".join(str(error).split())
        known = [f"{PROJECT}_{kind}" for kind in KINDS]
        unknown = [hook for hook in vars(manager.hook) if hook[0] != "_" and hook not in known]
        for match in difflib.get_close_matches(unknown[0], known, 1) if unknown else ():
            message += f"; did you mean {match!r}?"
        raise PluginError(message) from error
    if not manager.get_hookcallers(plugin):
        raise PluginError("it implements no hook: mark its functions with @skcurse.hookimpl")
    offers: dict[str, dict[str, Any]] = {}
    faults: list[str | None] = []
    for kind, (what, _) in KINDS.items():
        offers[kind] = {}
        hook = getattr(manager.hook, f"{PROJECT}_{kind}")
        answers = hook()
        if len(answers) < len(hook.get_hookimpls()):  # pluggy leaves a None out
            faults.append(f"{PROJECT}_{kind} returned None: did it forget to return its mapping?")
        for mapping in answers:
            if not isinstance(mapping, Mapping):
                faults.append(f"{PROJECT}_{kind} returned {reprlib.repr(mapping)}, not a mapping")
                continue
            faults += [f"{what} {n!r} is offered twice" for n in mapping if n in offers[kind]]
            faults += [_fault(kind, name, value) for name, value in mapping.items()]
            offers[kind].update(mapping)
    if found := [fault for fault in faults if fault]:
        raise PluginError(*found)
    return offers
