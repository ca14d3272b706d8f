"""References of operations that compute with another array library: ``np`` in them is bound anew.

The reference of an operation is a short NumPy function. A plug-in for an engine with an array library of its own
gets a copy of it, in which the name ``np`` stands for an object of the plug-in. So do the functions of rlx that the
reference calls. The reference itself stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import CellType, FunctionType
from typing import Any, cast

import numpy as np

from rlx.ir.opdef import REGISTRY, OpDef, lookup

# Whose functions are copied. All others are called as they are, with whatever they are given.
_OURS = ("rlx.ops.", "rlx.ir.dtype")


class ReboundReferences:
    """Copies of references that compute with another array library.

    Args:
        namespace: The object that ``np`` stands for in the copies.
        instead: Functions that take the place of others, by module and name: ``rlx.ops.elementwise.table.erf``.
        records: Functions that take the place of whole references, by operation.

    Example:
        >>> import numpy
        >>> import rlx
        >>> class Library:
        ...     def __getattr__(self, name):
        ...         return (lambda x: 3 * x) if name == "abs" else getattr(numpy, name)
        >>> softsign = ReboundReferences(Library()).reference("softsign")  # x / (1 + np.abs(x))
        >>> float(softsign(numpy.float64(1.0)))
        0.25
    """

    def __init__(
        self,
        namespace: Any,
        instead: Mapping[str, Callable[..., Any]] | None = None,
        records: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._namespace = namespace
        self._instead = dict(instead or {})
        self._records = dict(records or {})
        self._globals: dict[str, dict[str, Any]] = {}
        self._functions: dict[int, tuple[FunctionType, Any]] = {}
        self._references: dict[str, Callable[..., Any]] = {}

    def replace(
        self, instead: Mapping[str, Callable[..., Any]], records: Mapping[str, Callable[..., Any]]
    ) -> None:
        """Adds functions that take the place of others, before the first copy is made.

        Args:
            instead: Functions that take the place of others, by module and name.
            records: Functions that take the place of whole references, by operation.
        """
        self._instead.update(instead)
        self._records.update(records)

    def reference(self, op: str) -> Callable[..., Any]:
        """The reference of an operation, with the parameters that it has."""
        if op not in self._references:
            result = self._records.get(op)
            self._references[op] = result or self.function(REGISTRY[op].reference)
        return self._references[op]

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The copy of a function; the function itself where it is none of rlx's."""
        if not isinstance(function, FunctionType) or not _is_ours(function.__module__):
            return function
        known = self._functions.get(id(function))
        if known is not None:
            return cast(Callable[..., Any], known[1])
        result = self._instead.get(f"{function.__module__}.{function.__qualname__}")
        if result is None:
            cells = tuple(CellType() for _ in function.__closure__ or ())
            names = self._of_module(function.__module__)
            result = FunctionType(function.__code__, names, function.__name__, None, cells)
            # Registered before its closure is copied, since the closure may hold the function itself.
            self._functions[id(function)] = function, result
            for cell, old in zip(cells, function.__closure__ or (), strict=True):
                cell.cell_contents = self._value(old.cell_contents)
            result.__defaults__, result.__kwdefaults__ = (
                function.__defaults__,
                function.__kwdefaults__,
            )
        self._functions[id(function)] = function, result
        return result

    def _of_module(self, name: str) -> dict[str, Any]:
        """The names of a module, of which ``np`` and rlx's own functions are replaced when they are first asked for."""
        if name not in self._globals:
            module = sys.modules[name]
            self._globals[name] = results = dict(vars(module))
            for key, value in vars(module).items():
                results[key] = self._value(value)
        return self._globals[name]

    def _value(self, value: Any) -> Any:
        """Returns the replacement of a value that a function refers to by name."""
        if value is np:
            return self._namespace
        if value is lookup:
            return lambda name: _Record(self, lookup(name))
        if isinstance(value, FunctionType):
            return self.function(value)
        if isinstance(value, np.ufunc):
            return getattr(self._namespace, value.__name__, value)
        if isinstance(value, OpDef):
            return _Record(self, value)
        if isinstance(value, dict):
            return self._fields(value, dict)
        if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a row of a table
            return self._fields(value._asdict(), lambda fields: type(value)(**fields))
        if is_dataclass(value) and _is_ours(type(value).__module__):
            kind: Callable[..., Any] = type(value)
            return self._fields(dict(vars(value)), lambda fields: kind(**fields))
        return value

    def _fields(self, fields: dict[Any, Any], make: Callable[[dict[Any, Any]], Any]) -> Any:
        """A table whose entries stand for others in a copy, where any of them does."""
        results = {key: self._value(value) for key, value in fields.items()}
        same = all(results[key] is value for key, value in fields.items())
        return make(fields) if same else make(results)


class _Record:
    """A record in a copy: its reference is the copy."""

    def __init__(self, rebound: ReboundReferences, record: OpDef) -> None:
        self._rebound, self._record = rebound, record

    def __getattr__(self, name: str) -> Any:
        if name == "reference":
            return self._rebound.reference(self._record.name)
        return getattr(self._record, name)


def _is_ours(module: str | None) -> bool:
    return module is not None and (module + ".").startswith(_OURS)
