"""Methods of ``Graph`` that are named after operations: there once the operation is imported, which may be now."""

from __future__ import annotations

from typing import Any

from rlx.errors import did_you_mean
from rlx.ir.opdef import REGISTRY


class Methods(type):
    """The type of ``Graph``: a method that is not there yet may be that of an operation."""

    def __getattr__(cls, name: str) -> Any:
        if not name.startswith("_") and name in REGISTRY:
            record = REGISTRY[name]  # importing it adds the method
            if not record.internal:
                return type.__getattribute__(cls, name)
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *method_names()})


def method_names() -> list[str]:
    """Names of the methods of all operations."""
    return [name for name, record in REGISTRY.items() if not record.internal]


def absent(kind: type, name: str) -> str:
    """What is said where a graph has no such method."""
    if name.startswith("_"):
        return f"a Graph has no {name!r}"
    known = [one for one in dir(kind) if not one.startswith("_")]
    return f"a Graph has no {name!r}; {did_you_mean(name, known)}"
