"""Quotients of sizes that were not rounded yet: what a division of sizes gives."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any

from rlx.errors import UnknownSizeError

_under_way = threading.local()


@contextlib.contextmanager
def spelling(spell: Callable[[Any], str]) -> Iterator[None]:
    """Has ``str`` of sizes and of their quotients in this thread be what a function makes of them, for texts of kernels."""
    _under_way.spell = spell
    try:
        yield
    finally:
        del _under_way.spell


def spelled(size: Any) -> str:
    """The text of a size or of a quotient of sizes."""
    spell: Callable[[Any], str] = getattr(_under_way, "spell", repr)
    return spell(size)


def unknown(size: object, what: str) -> UnknownSizeError:
    """Returns the error that a size was read as a number."""
    error = UnknownSizeError(
        f"the size {size!r} is known only when the graph runs",
        got=what,
        expected="arithmetic of sizes",
        hint="g.dim(x, axis) gives it as a value of the graph; dims={...} fixes it",
    )
    names = getattr(size, "names", None)
    error.names = names() if names is not None else frozenset()
    return error


class SymbolicNumber:
    """The base of sizes that depend on dims, and of their quotients. A class of these defines ``>=`` and ``>``."""

    __slots__ = ()
    # NumPy's numbers leave the arithmetic to it.
    __array_ufunc__ = None

    def __ge__(self, other: Any) -> Any:
        raise NotImplementedError

    def __gt__(self, other: Any) -> Any:
        raise NotImplementedError

    def __lt__(self, other: Any) -> Any:
        result = self.__ge__(other)
        return result if result is NotImplemented else not result

    def __le__(self, other: Any) -> Any:
        result = self.__gt__(other)
        return result if result is NotImplemented else not result

    def __int__(self) -> int:
        raise unknown(self, "int()")

    def __float__(self) -> float:
        raise unknown(self, "float()")

    def __str__(self) -> str:
        return spelled(self)


class Ratio(SymbolicNumber):
    """A quotient of sizes that was not rounded yet.

    Args:
        above: The numerator.
        below: The denominator, above 0.
    """

    __slots__ = ("above", "below")

    def __init__(self, above: Any, below: Any) -> None:
        self.above: Any = above
        self.below: Any = below

    @classmethod
    def of(cls, above: Any, below: Any) -> Any:
        """The quotient of sizes, fractions of sizes, or floats: these are taken for what they are exactly."""
        over, under = _fraction(above), _fraction(below)
        if over is None or under is None:
            return NotImplemented
        a, b = over[0] * under[1], over[1] * under[0]
        return cls(-a, -b) if b < 0 else cls(a, b)

    def __mul__(self, other: Any) -> Any:
        factor = _fraction(other)
        return (
            NotImplemented
            if factor is None
            else Ratio(self.above * factor[0], self.below * factor[1])
        )

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return Ratio.of(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio.of(other, self)

    def __add__(self, other: Any) -> Any:
        b = _fraction(other)
        if b is None:
            return NotImplemented
        return Ratio(self.above * b[1] + b[0] * self.below, self.below * b[1])

    __radd__ = __add__

    def __neg__(self) -> Ratio:
        return Ratio(-self.above, self.below)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __floor__(self) -> Any:
        return self.above // self.below

    def __ceil__(self) -> Any:
        return -(-self.above // self.below)

    def __trunc__(self) -> Any:
        return self.__floor__() if self.above >= 0 else self.__ceil__()

    def __floordiv__(self, other: Any) -> Any:
        return (self / other).__floor__()

    def __eq__(self, other: object) -> Any:
        b = _fraction(other)
        if b is None:
            return False if isinstance(other, float) else NotImplemented
        return self.above * b[1] == b[0] * self.below

    def __ge__(self, other: Any) -> Any:
        b = _fraction(other)
        if b is None:
            return 0.0 >= other if isinstance(other, float) else NotImplemented
        return self.above * b[1] >= b[0] * self.below

    def __gt__(self, other: Any) -> Any:
        b = _fraction(other)
        if b is None:
            return 0.0 > other if isinstance(other, float) else NotImplemented
        return self.above * b[1] > b[0] * self.below

    def __hash__(self) -> int:
        return hash((self.above, self.below))

    def __bool__(self) -> bool:
        return bool(self.above)

    def __repr__(self) -> str:
        return f"({self.above!r})/({self.below!r})"

    def names(self) -> frozenset[str]:
        """Returns the names of its dims."""
        parts = (self.above, self.below)
        return frozenset[str]().union(*(p.names() for p in parts if not isinstance(p, int)))

    def value(self, values: Mapping[str, int]) -> float:
        """Returns its value for values of its dims, as Python divides whole numbers; NaN over 0."""
        below = _value(self.below, values)
        return _value(self.above, values) / below if below else float("nan")


def _fraction(value: Any) -> tuple[Any, Any] | None:
    """A number as a numerator and a positive denominator; a float is taken for what it is exactly."""
    if isinstance(value, Ratio):
        return value.above, value.below
    if isinstance(value, float) and isfinite(value):
        return value.as_integer_ratio()
    return (value, 1) if hasattr(value, "__index__") else None


def _value(size: Any, values: Mapping[str, int]) -> int:
    result: int = size if isinstance(size, int) else size.value(values)
    return result
