"""Sizes that are known only at a call: whole numbers with arithmetic, which no code reads unasked.

A size is no int. Its arithmetic gives sizes in a normal form; a comparison is decided by the bounds of its dims, or by the
assumptions under way (``rlx.sizes.guards``), which keep what they assumed. Where there are none it is an error, as each
conversion to a number is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Union, cast

from rlx.sizes import polynomial as poly
from rlx.sizes.polynomial import Terms
from rlx.sizes.ratio import Ratio, SymbolicNumber, unknown

Size = Union[int, "SizeExpr"]


class SizeExpr(SymbolicNumber):
    """A size that depends on dims; see ``rlx.Dim``.

    Args:
        terms: Its normal form, which is no constant.
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms: Terms = terms
        self._hash = hash(terms)

    # --- arithmetic ------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        b = _terms(other)
        if b is None:
            return Ratio(self, 1) + other if _is_fraction(other) else NotImplemented
        return size_of(poly.add(self.terms, b))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other if _is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if _is_number(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        b = _terms(other)
        if b is None:
            return Ratio(self, 1) * other if _is_fraction(other) else NotImplemented
        return size_of(poly.multiply(self.terms, b))

    __rmul__ = __mul__

    def __pow__(self, power: int) -> Any:
        result: Size = 1
        for _ in range(power):
            result = result * self
        return result

    def __neg__(self) -> Any:
        return SizeExpr(poly.scale(self.terms, -1))

    def __abs__(self) -> Any:
        return largest(self, -self)

    def __floordiv__(self, other: Any) -> Any:
        return _floor_divide(self.terms, _terms(other))

    def __rfloordiv__(self, other: Any) -> Any:
        return _floor_divide(_terms(other), self.terms)

    def __mod__(self, other: Any) -> Any:
        return self - (self // other) * other if _is_number(other) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return other - (other // self) * self if _is_number(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        return Ratio.of(self, other) if _is_number(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio.of(other, self) if _is_number(other) else NotImplemented

    def __rshift__(self, bits: int) -> Any:
        return self // (1 << bits)

    def __lshift__(self, bits: int) -> Any:
        return self * (1 << bits)

    # --- comparisons -----------------------------------------------------------------------------

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> Any:
        if isinstance(other, SizeExpr) and self.terms == other.terms:
            return True
        b = _terms(other)
        if b is None:
            return Ratio(self, 1) == other if _is_fraction(other) else NotImplemented
        return is_zero(poly.add(self.terms, poly.scale(b, -1)))

    def __ne__(self, other: object) -> Any:
        result = self.__eq__(other)
        return result if result is NotImplemented else not result

    def __ge__(self, other: Any) -> Any:
        b = _terms(other)
        if b is None:
            return Ratio(self, 1) >= other if _is_fraction(other) else NotImplemented
        return is_positive(poly.add(self.terms, poly.scale(b, -1), poly.constant(1)))

    def __gt__(self, other: Any) -> Any:
        b = _terms(other)
        if b is None:
            return Ratio(self, 1) > other if _is_fraction(other) else NotImplemented
        return is_positive(poly.add(self.terms, poly.scale(b, -1)))

    def __bool__(self) -> bool:
        return not is_zero(self.terms)

    # --- conversions -----------------------------------------------------------------------------

    def __index__(self) -> int:
        raise unknown(self, "a use that needs its value")

    def __trunc__(self) -> SizeExpr:
        return self

    def __floor__(self) -> SizeExpr:
        return self

    def __ceil__(self) -> SizeExpr:
        return self

    def __repr__(self) -> str:
        return poly.text(self.terms)

    def __reduce__(self) -> Any:
        return size_of, (self.terms,)

    def bit_length(self) -> int:
        """Returns the bits of its number, which numbers of as many bits have; it is not negative."""
        bits = int(hinted(self)).bit_length()
        assert (1 << bits) > self >= 1 << bits >> 1
        return bits

    # --- values ----------------------------------------------------------------------------------

    def value(self, values: Mapping[str, int]) -> int:
        """Returns its value for values of its dims."""
        return poly.value(self.terms, values)

    def bounds(self) -> poly.Bounds:
        """Returns the least and the largest value; None for no bound."""
        return poly.bounds(self.terms)

    def names(self) -> frozenset[str]:
        """Returns the names of its dims."""
        return frozenset(atom.name for atom in poly.atoms(self.terms))


def size_of(terms: Terms) -> Size:
    """The size of a normal form: an int where it is a constant."""
    number = poly.number_of(terms)
    return SizeExpr(terms) if number is None else number


def _terms(value: Any) -> Terms | None:
    """The normal form of a size or of a whole number; None for anything else."""
    if isinstance(value, SizeExpr):
        return value.terms
    if isinstance(value, int):
        return poly.constant(value)
    if hasattr(value, "__index__") and not hasattr(value, "shape"):
        return poly.constant(value.__index__())
    if getattr(value, "shape", None) == () and getattr(value.dtype, "kind", "") in "iu":
        return poly.constant(int(value))
    return None


def _is_fraction(value: Any) -> bool:
    return isinstance(value, float | Ratio)


def _is_number(value: Any) -> bool:
    return _is_fraction(value) or _terms(value) is not None


def _floor_divide(above: Terms | None, below: Terms | None) -> Any:
    if above is None or below is None:
        return NotImplemented
    if not below:
        raise ZeroDivisionError("division of a size by zero")
    if not is_positive(below, exact=True):
        above, below = poly.scale(above, -1), poly.scale(below, -1)
        if not is_positive(below, exact=True):
            raise ZeroDivisionError("division of a size by a size of zero")
    return size_of(poly.divide(above, below))


def is_positive(terms: Terms, exact: bool = False) -> bool:
    """Returns whether a number is above 0, by its bounds or by a decision, which is ``exact`` where no other is right."""
    low, high = poly.bounds(terms)
    if low is not None and low > 0:
        return True
    if high is not None and high <= 0:
        return False
    return decide(terms, False, exact)


def is_zero(terms: Terms) -> bool:
    """Returns whether a number is 0, by its bounds, by what divides it, or by a decision."""
    if not terms:
        return True
    low, high = poly.bounds(terms)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    rest = next((c for monomial, c in terms if not monomial), 0)
    if rest and rest % poly.common_factor(terms):
        return False
    return decide(terms, True)


def decide(terms: Terms, equal: bool, exact: bool = False) -> bool:
    """Decides a comparison with 0 that bounds leave open, by the assumptions under way."""
    from rlx.sizes.guards import current

    assumptions = current()
    if assumptions is None:
        relation = "== 0" if equal else "> 0"
        raise unknown(size_of(terms), f"the comparison {poly.text(terms)} {relation}")
    return assumptions.decide(terms, equal, exact)


def value_of(size: Size, values: Mapping[str, int]) -> int:
    """Returns the value of a size for values of its dims."""
    return size.value(values) if isinstance(size, SizeExpr) else size


def bound(size: Size, values: Mapping[str, int]) -> Size:
    """Returns a size with values in the place of some of its dims."""
    return size_of(poly.bind(size.terms, values)) if isinstance(size, SizeExpr) else size


def smallest(*sizes: Any) -> Any:
    """Returns the least of some sizes, as ``min`` does for ints; no comparison is decided for it."""
    return _extreme(False, sizes)


def largest(*sizes: Any) -> Any:
    """Returns the largest of some sizes, as ``max`` does for ints; no comparison is decided for it."""
    return _extreme(True, sizes)


def flag(number: Any) -> Any:
    """Returns 1 for a number above 0, and 0 for others; no comparison is decided for it."""
    return largest(0, smallest(1, number))


def _extreme(most: bool, sizes: tuple[Any, ...]) -> Any:
    if not any(isinstance(size, SizeExpr) for size in sizes):
        return max(sizes) if most else min(sizes)
    return size_of(poly.extreme(most, [cast(Terms, _terms(size)) for size in sizes]))


def positive(size: Any) -> Any:
    """Returns a shorter form of a size that is known to be above 0: without the 0 of a maximum."""
    atoms = size.terms[0][0] if isinstance(size, SizeExpr) and len(size.terms) == 1 else ()
    if len(atoms) == 1 and isinstance(atoms[0], poly.Extreme) and atoms[0].largest:
        items = [item for item in atoms[0].items if item]
        return size_of(poly.extreme(True, items)) if size.terms[0][1] == 1 else size
    return size


def pinned(size: Any) -> int:
    """Returns a size as a number. What is decided by it holds for this number alone, and for others it is decided anew."""
    if not isinstance(size, SizeExpr):
        return int(size)
    assumptions = _current(size)
    value = poly.value(size.terms, assumptions.hints)
    assumptions.pin(poly.add(size.terms, poly.constant(-value)))
    return value


def hinted(size: Any) -> Any:
    """Returns the number of a size at the hints of the assumptions under way, for estimates; nothing is assumed by it."""
    if isinstance(size, SizeExpr | Ratio):
        return size.value(_current(size).hints)
    return size


def starts(stop: Any, step: int) -> Iterator[int]:
    """Yields the numbers of ``range(0, stop, step)``; how many there are is decided."""
    start = 0
    while start < stop:
        yield start
        start += step


def _current(size: Any) -> Any:
    """The assumptions under way."""
    from rlx.sizes.guards import current

    assumptions = current()
    if assumptions is None:
        raise unknown(size, "a use that needs its value")
    return assumptions


def ceil_divide(above: Any, below: Any) -> Any:
    """Returns the quotient, rounded up."""
    return -(-above // below)
