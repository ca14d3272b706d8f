"""Imports on first use: names of packages, and services that lower floors ask of higher ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

_named: dict[str, tuple[str, str]] = {}
_found: dict[str, Any] = {}


def provide(name: str, module: str, attribute: str) -> None:
    """Says where something is."""
    _named[name] = module, attribute


def provided(name: str) -> Any:
    """Returns the object of that name. The first call imports its module; meanwhile the same thread gets None."""
    if name not in _found:
        module, attribute = _named[name]
        there = import_module(module)
        if not hasattr(there, attribute):
            return None
        _found[name] = getattr(there, attribute)
    return _found[name]


def names_of(package: str, names: Mapping[str, str]) -> Mapping[str, str]:
    """Has names of a package imported from their modules when they are first used; returns the module of each.

    It gives the package its ``__getattr__``: a type checker that saw one would take any name for an attribute.

    Args:
        package: The package's ``__name__``.
        names: By the full name of a module, what the package has of it: names apart by spaces. A module that the
            package has as a whole has no names there, and is known by the last part of its own.
    """
    homes = {
        name: module
        for module, value in names.items()
        for name in value.split() or [module.rpartition(".")[2]]
    }

    def attribute(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home)
        result = getattr(module, name) if names[home] else module
        setattr(sys.modules[package], name, result)
        return result

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    vars(sys.modules[package]).update(__getattr__=attribute, __dir__=listed)
    return homes
