"""Names on the command line, where the command, plugins, scikit-learn and files all have some."""

from collections.abc import Sequence

from skcurse.plugins import loaded_plugins


def plugins_that_offer(kind: str, name: str) -> list[str]:
    """Return the plugins, skcurse's own left out, that offer this name."""
    return [str(p) for p in loaded_plugins()[1:] if name in p.offers.get(kind, {})]


def refuse_ambiguous(what: str, name: str, owners: Sequence[str]) -> None:
    """Raise a ValueError that names all owners of a name, if there are several."""
    if len(owners) > 1:
        raise ValueError(
            f"{what} {name!r} is ambiguous: it belongs to {' and '.join(owners)}. Leave a plugin "
            "out (SKCURSE_PLUGINS lists those to load), or write a file as ./NAME."
        )
