"""What lower floors ask of higher ones: named by ``rlx`` itself, and imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_named: dict[str, tuple[str, str]] = {}
_found: dict[str, Any] = {}


def provide(name: str, module: str, attribute: str) -> None:
    """Says where something is."""
    _named[name] = module, attribute


def provided(name: str) -> Any:
    """What was named so. Its module is imported by the first call; while that goes on, the same thread gets None."""
    if name not in _found:
        module, attribute = _named[name]
        there = import_module(module)
        if not hasattr(there, attribute):
            return None
        _found[name] = getattr(there, attribute)
    return _found[name]
