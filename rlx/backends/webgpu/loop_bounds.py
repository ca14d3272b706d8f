"""Bounds the trip counts of a kernel: every loop in the WGSL declares its own, and a limit holds for all.

lavapipe (Mesa 22.3) ends a shader's loops in silence once an invocation has made 65,535 trips, those of all its loops together.
So each line that begins a loop ends in a comment: ``// trips: K / 16``, the most trips it makes each time that it is entered,
or ``// trips: N in all``, those of all the times together. Expressions may use the constants of the text, numbers, ``+ - *``,
``/`` (which rounds up), ``min``, ``max`` and ``bits`` (the length of a number in binary).
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rlx.dataclasses import dataclass
from rlx.errors import CompileError
from rlx.sizes import SizeExpr, largest, smallest

_NO_SIZES: Mapping[str, Any] = MappingProxyType({})
# Bits of a number that is not known.
_WORD = 32

# Limit on the loop trips of one invocation.
TOO_MANY = 65_535

_DECLARED = re.compile(r"//\s*trips:\s*(.+?)(\s+in all)?\s*$", re.M)
_CONSTANT = re.compile(r"const (\w+)\s*:\s*[ui]32\s*=\s*(?:i32\()?(-?\d+)u?\)?\s*;")
_COMMENT = re.compile(r"//[^\n]*")
# Tokens that counting needs: functions, loops and braces, and calls of functions that have loops.
_TOKENS = r"fn +(\w+)|(?<!\w)(for|while|loop)\b|([{}])"


@dataclass(frozen=True)
class Loop:
    """One loop of a text.

    Attributes:
        declared: The declaration.
        trips: Its value: trips of the loop each time it is entered, or of all times.
        whole: Whether it is of all times.
    """

    declared: str
    trips: int
    whole: bool


@dataclass(frozen=True)
class Trips:
    """The loops of a text.

    Attributes:
        loops: All of them, in the order of the text.
        functions: The trips of one call of each function at most.
    """

    loops: tuple[Loop, ...]
    functions: Mapping[str, int]

    @property
    def total(self) -> int:
        """The trips of one invocation at most."""
        return self.functions.get("main", 0)


def excess(source: str, sizes: Mapping[str, Any] = _NO_SIZES) -> int:
    """Returns the declared trips of a text if they are more than a driver may finish; else 0.

    Args:
        source: The text.
        sizes: Sizes by name that declarations use and that are known only when the graph runs: whether the trips are too many
            is decided for these.
    """
    if sizes:
        return _too_many(trips_of(source, sizes).total)
    declared = _DECLARED.findall(source)
    if not declared:
        return 0
    # Upper bound as if all loops were nested: mostly far below the limit, so that no parsing is needed. Not valid
    # where other functions have loops, since these may be called from many places.
    values, limit = _constants(source), 1
    for expression, _ in declared:
        limit *= 2 + max(0, evaluate(expression, values))
    if limit < TOO_MANY and _DECLARED.search(source, 0, source.find("fn main(")) is None:
        return 0
    return _too_many(trips_of(source).total)


def _too_many(total: int) -> int:
    return total if total >= TOO_MANY else 0


def trips_of(source: str, sizes: Mapping[str, Any] = _NO_SIZES) -> Trips:
    """Reads the loops of a WGSL text. Every loop has braces, and ends its line with its declaration.

    Raises:
        CompileError: A loop has no declaration, or a line has two.
    """
    values = {**_constants(source), **sizes}
    loops = tuple(
        Loop(text, largest(0, evaluate(text, values)), bool(whole))
        for text, whole in _DECLARED.findall(source)
    )
    plain = _COMMENT.sub("", source)
    own, calls = _count(plain, loops, ())
    if any(cost for name, cost in own.items() if name != "main"):
        own, calls = _count(plain, loops, tuple(own))

    @functools.cache
    def total(name: str) -> int:
        return own[name] + sum(times * total(called) for called, times in calls[name].items())

    return Trips(loops, {name: total(name) for name in own})


def _constants(source: str) -> Mapping[str, int]:
    return {name: int(value) for name, value in _CONSTANT.findall(source)}


def _count(
    plain: str, loops: Sequence[Loop], names: Sequence[str]
) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Counts the trips of each function's own loops, and its calls of the named functions."""
    own: dict[str, int] = {}
    calls: dict[str, dict[str, int]] = {}
    function, declared = "", iter(loops)
    # Per open brace: how often its body runs. And the factor of the brace that opens next.
    factors, times = [1], 1
    called = rf"|\b({'|'.join(names)})\s*\(" if names else "|(?!)()"
    for name, begins, brace, call in re.findall(_TOKENS + called, plain):
        if name:
            function, factors, times = name, [1], 1
            own[name], calls[name] = 0, {}
        elif begins:
            loop = next(declared, None)
            if loop is None:
                raise _undeclared(function)
            entered = factors[-1]
            trips = loop.trips if loop.whole else entered * loop.trips
            # One trip more than the body runs: the last one finds the loop condition false.
            own[function] += trips + entered
            times = -(-trips // largest(1, entered))
        elif brace == "{":
            factors.append(factors[-1] * times)
            times = 1
        elif brace == "}":
            factors.pop()
        elif function:
            calls[function][call] = calls[function].get(call, 0) + factors[-1] * largest(1, times)
    if next(declared, None) is not None:
        raise _undeclared("behind the last loop")
    return own, calls


def _undeclared(where: str) -> CompileError:
    return CompileError(
        "the loops of a WGSL kernel and its trip declarations do not match",
        where=where,
        expected="one loop in a line, which ends in: // trips: EXPRESSION",
    )


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: -(-a // b),
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "min": smallest,
    "max": largest,
    "bits": lambda n: _WORD if isinstance(n, SizeExpr) else max(n, 0).bit_length(),
}


@functools.lru_cache(1024)
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def evaluate(expression: str, values: Mapping[str, int]) -> int:
    """The value of a declaration.

    Raises:
        CompileError: It is none, or names a constant that there is not.
    """

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return _FUNCTIONS[node.func.id](*map(value, node.args))
        raise KeyError(expression)

    try:
        return value(_parsed(expression))
    except (KeyError, SyntaxError, ZeroDivisionError) as error:
        raise CompileError(
            "a WGSL kernel declares trips that can't be read", got=expression
        ) from error
