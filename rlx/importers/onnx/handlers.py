"""The table of operators: which function lowers an ONNX operator from which version on."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.operator_index import MODULES

Handler = Callable[[OnnxCall], Any]


class Operator(NamedTuple):
    """The lowering of an operator.

    Attributes:
        since: First version of the domain's operator set that this is the meaning of.
        handler: Gives a node or an array for each output (a tuple where there are several).
        fold: Whether it is computed at load when all operands are known.
        raw: Whether it handles known operands, sequences and subgraphs by itself.
        carried: Whether it is right for 16-bit integers and u64 in a wider type.
        strict: Whether an attribute, operand or output that the handler leaves alone is refused.
    """

    since: int
    handler: Handler
    fold: bool = True
    raw: bool = False
    carried: bool = False
    strict: bool = False


def builder(method: str, count: int = 1, **defaults: float) -> Handler:
    """A handler that calls a builder method.

    Args:
        method: Its name.
        count: The operands that it takes, the first ones of the node.
        **defaults: Attributes that it takes under their own names, integers or floats as their defaults are.
    """

    def handler(call: OnnxCall) -> Any:
        attributes = {
            name: (call.real if isinstance(value, float) else call.integer)(name, value)
            for name, value in defaults.items()
        }
        return getattr(call.g, method)(*map(call.x, range(count)), **attributes)

    return handler


# Domains whose operators grow attributes and operands without a new version.
STRICT = ("com.microsoft", "ai.onnx.ml")

_TABLE: dict[tuple[str, str], list[Operator]] = {}


def onnx_op(
    *names: str,
    since: int = 1,
    domain: str = "",
    fold: bool = True,
    raw: bool = False,
    carried: bool = False,
) -> Callable[[Handler], Handler]:
    """Registers the decorated function for operators.

    Args:
        *names: The operators.
        since: First version with this meaning.
        domain: Their domain; "" is ONNX's own.
        fold: See ``Operator``.
        raw: See ``Operator``.
        carried: See ``Operator``.
    """

    def decorate(handler: Handler) -> Handler:
        for name in names:
            rows = _TABLE.setdefault((domain, name), [])
            row = Operator(since, handler, fold, raw, carried, domain in STRICT)
            bisect.insort(rows, row, key=lambda r: r.since)
        return handler

    return decorate


def find(domain: str, name: str, opset: int) -> Operator | None:
    """The operator as it was in a version of its domain; None where there is none.

    The modules that register it are imported when it is first asked for.
    """
    for module in _modules().get((domain, name), ()):
        import_module(module)
    rows = _TABLE.get((domain, name), [])
    index = bisect.bisect_right(rows, opset, key=lambda row: row.since)
    return rows[index - 1] if index else None


def names() -> list[tuple[str, str]]:
    """Every operator there is, as (domain, name)."""
    return sorted(_modules())


@functools.cache
def _modules() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The modules that register each operator: more than one where versions of it differ much."""
    results: dict[tuple[str, str], tuple[str, ...]] = {}
    for module, domain, operators in MODULES:
        for name in operators.split():
            results[domain, name] = *results.get((domain, name), ()), module
    return results
