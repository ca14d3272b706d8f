"""How many trips the loops of a kernel make: every loop of a WGSL text declares it, and a limit holds for all.

lavapipe (Mesa 22.3) ends a shader's loops in silence once an invocation has made 65,535 trips, those of all its
loops together. So each line that begins a loop ends in a comment: ``// trips: K / 16``, the most trips it makes
each time that it is entered, or ``// trips: N in all``, those of all the times together. Expressions may use the
constants of the text, numbers, ``+ - *``, ``/`` (which rounds up), ``min``, ``max`` and ``bits`` (the length of a
number in binary).
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlx.errors import CompileError, describe

# The trips that no invocation may reach.
TOO_MANY = 65_535

_DECLARED = re.compile(r"//\s*trips:\s*(.+?)(\s+in all)?\s*$")
_ALL_DECLARED = re.compile(r"//\s*trips:\s*(.+?)(?:\s+in all)?\s*$", re.M)
_BEGINS = re.compile(r"\b(?:for|while|loop)\b")
_CONSTANT = re.compile(r"\bconst\s+(\w+)\s*:\s*[ui]32\s*=\s*(?:i32\()?(-?\d+)u?\)?\s*;")
_COMMENT = re.compile(r"//.*$")
_TOKEN = re.compile(r"\bfn\s+(\w+)|\b(for|while|loop)\b|(\w+)\s*(?=\()|([{}();])")


@dataclass(frozen=True)
class Loop:
    """One loop of a text.

    Attributes:
        line: Its first line, without the declaration.
        declared: The declaration.
        trips: Its value: trips of the loop each time it is entered, or of all times.
        whole: Whether it is of all times.
        function: The function that it stands in.
    """

    line: str
    declared: str
    trips: int
    whole: bool
    function: str


@dataclass(frozen=True)
class Trips:
    """The loops of a text.

    Attributes:
        loops: All of them.
        total: The trips of one invocation at most, the last look of each loop at its condition included.
    """

    loops: tuple[Loop, ...]
    total: int


def excess(source: str) -> int:
    """The trips of a text, as far as they are declared, where a driver may not finish them; else 0."""
    declared = _ALL_DECLARED.findall(source)
    if not declared:
        return 0
    # Even all loops nested in each other are few trips mostly, and need no closer look.
    values, most = _constants(source), 1
    for expression in declared:
        most *= 2 + max(0, evaluate(expression, values))
    if most < TOO_MANY:
        return 0
    total = trips_of(source).total
    return total if total >= TOO_MANY else 0


def trips_of(source: str) -> Trips:
    """Reads the loops of a WGSL text.

    Raises:
        CompileError: A loop has no declaration, or a line has two.
    """
    values = _constants(source)
    reader = _Reader()
    for text in source.splitlines():
        found = _DECLARED.search(text)
        plain = _COMMENT.sub("", text)
        begins = len(_BEGINS.findall(plain))
        if begins != (found is not None):
            raise CompileError(
                describe(
                    "a loop of a WGSL kernel does not declare its trips",
                    got=text.strip(),
                    expected="one loop in a line, which ends in: // trips: EXPRESSION",
                )
            )
        loop = None
        if found is not None:
            trips = max(0, evaluate(found[1], values))
            loop = Loop(plain.strip(), found[1], trips, found[2] is not None, "")
        reader.read(plain, loop)
    return Trips(tuple(reader.loops), reader.total("main"))


def _constants(source: str) -> Mapping[str, int]:
    return {name: int(value) for name, value in _CONSTANT.findall(source)}


class _Reader:
    """Goes through a text token by token and adds up what each function does in its loops."""

    def __init__(self) -> None:
        self.loops: list[Loop] = []
        # By function: what its own loops cost, and how often it calls others.
        self._own: dict[str, int] = {}
        self._calls: dict[str, dict[str, int]] = {}
        self._function = ""
        # How often what stands here runs: the factor of every open brace and of a loop without one.
        self._factors: list[int] = []
        self._waiting: int | None = None
        self._header = 0

    def read(self, text: str, loop: Loop | None) -> None:
        """One line; ``loop`` is what it declares."""
        for token in _TOKEN.finditer(text):
            name, begins, called, sign = token.groups()
            if name:
                self._function = name
                self._own[name], self._calls[name] = 0, {}
                self._factors = []
            elif begins:
                assert loop is not None
                self._begin(loop)
            elif called and called != self._function and self._factors:
                calls = self._calls[self._function]
                calls[called] = calls.get(called, 0) + self._factor() * (self._waiting or 1)
            elif sign:
                self._sign(sign)

    def _factor(self) -> int:
        return self._factors[-1] if self._factors else 1

    def _begin(self, loop: Loop) -> None:
        times = self._factor()
        trips = loop.trips if loop.whole else times * loop.trips
        # Every time that it is entered, the last trip is the one that finds the end.
        self._own[self._function] += trips + times
        self._waiting = max(1, -(-trips // times)) if times else 1
        self.loops.append(Loop(loop.line, loop.declared, loop.trips, loop.whole, self._function))

    def _sign(self, sign: str) -> None:
        if sign == "(":
            self._header += 1
        elif sign == ")":
            self._header -= 1
        elif sign == "{":
            self._factors.append(self._factor() * (self._waiting or 1))
            self._waiting = None
        elif sign == "}":
            if self._factors:
                self._factors.pop()
        elif self._header == 0:
            self._waiting = None

    def total(self, function: str) -> int:
        """The trips of a function and of those that it calls."""
        return self._own[function] + sum(
            times * self.total(called)
            for called, times in self._calls[function].items()
            if called in self._own
        )


_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: -(-a // b),
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "bits": lambda n: max(n, 0).bit_length(),
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
            describe("a WGSL kernel declares trips that can't be read", got=expression)
        ) from error
