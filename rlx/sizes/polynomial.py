"""The normal form of sizes: polynomials of atoms with whole coefficients, and quotients, minima and maxima as atoms.

A polynomial is a dictionary of monomials and their coefficients. A monomial is a sorted tuple of atoms; the empty one
stands for the constant. Two equal expressions that differ by the order or the grouping of their operands have the same form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Union

Atom = Union["Unknown", "Quotient", "Extreme"]
Monomial = tuple[Atom, ...]
Terms = tuple[tuple[Monomial, int], ...]
# The least and the largest value; None for no bound.
Bounds = tuple[int | None, int | None]
CONSTANT: Monomial = ()


class Unknown(NamedTuple):
    """A whole number that a call gives: a dim, or the part of it behind its factor.

    Attributes:
        name: The name of its dim.
        factor: The dim is so many times this number.
        low: The least value.
        high: The largest value; None for no bound.
    """

    name: str
    factor: int
    low: int
    high: int | None

    @property
    def key(self) -> tuple[str, ...]:
        """The place of the atom among others."""
        return "", self.name

    def bounds(self) -> Bounds:
        """The values that it may have."""
        return self.low, self.high

    def value(self, values: Mapping[str, int]) -> int:
        """Its value for values of dims."""
        return values[self.name] // self.factor


class Quotient(NamedTuple):
    """A quotient, rounded down.

    Attributes:
        above: The numerator.
        below: The denominator, above 0.
    """

    above: Terms
    below: Terms

    @property
    def key(self) -> tuple[str, ...]:
        """The place of the atom among others."""
        return "//", text(self.above), text(self.below)

    def bounds(self) -> Bounds:
        """The values that it may have."""
        (low, high), (least, most) = bounds(self.above), bounds(self.below)
        least = max(1, least or 1)
        # A negative numerator is nearest to 0 over the largest denominator.
        lower = (
            None if low is None else low // least if low < 0 else 0 if most is None else low // most
        )
        upper = (
            None
            if high is None
            else high // least
            if high >= 0
            else -1
            if most is None
            else high // most
        )
        return lower, upper

    def value(self, values: Mapping[str, int]) -> int:
        """Its value for values of dims."""
        return value(self.above, values) // value(self.below, values)


class Extreme(NamedTuple):
    """The least or the largest of some numbers.

    Attributes:
        largest: Whether it is the largest.
        items: The numbers.
    """

    largest: bool
    items: tuple[Terms, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The place of the atom among others."""
        return ("max" if self.largest else "min"), *map(text, self.items)

    def bounds(self) -> Bounds:
        """The values that it may have."""
        each = [bounds(item) for item in self.items]
        lows, highs = ([pair[i] for pair in each] for i in (0, 1))
        known_lows, known_highs = ([v for v in item if v is not None] for item in (lows, highs))
        if self.largest:
            low = max(known_lows, default=None)
            return low, max(known_highs) if len(known_highs) == len(each) else None
        high = min(known_highs, default=None)
        return min(known_lows) if len(known_lows) == len(each) else None, high

    def value(self, values: Mapping[str, int]) -> int:
        """Its value for values of dims."""
        each = [value(item, values) for item in self.items]
        return max(each) if self.largest else min(each)


def terms(sums: Mapping[Monomial, int]) -> Terms:
    """The normal form of sums of coefficients. What is added to a minimum or a maximum is added to each of its numbers."""
    result = tuple(sorted(((m, c) for m, c in sums.items() if c), key=_order))
    found = [term for term in result if any(isinstance(atom, Extreme) for atom in term[0])]
    if len(found) == 1 and len(found[0][0]) == 1 and (len(result) > 1 or found[0][1] != 1):
        (atom,), factor = found[0]
        assert isinstance(atom, Extreme)
        rest = tuple(term for term in result if term is not found[0])
        return extreme(
            atom.largest == (factor > 0), [add(scale(item, factor), rest) for item in atom.items]
        )
    return result


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[tuple[str, ...], ...]]:
    """Higher powers come first, the constant last."""
    return -len(term[0]), tuple(map(_key, term[0]))


@functools.lru_cache(1 << 14)
def _key(atom: Atom) -> tuple[str, ...]:
    return atom.key


def constant(number: int) -> Terms:
    """A number."""
    return ((CONSTANT, number),) if number else ()


def of_atom(atom: Atom, factor: int = 1) -> Terms:
    """An atom, times a number."""
    return ((((atom,), factor),)) if factor else ()


@functools.lru_cache(1 << 14)
def add(*items: Terms) -> Terms:
    """The sum."""
    sums: dict[Monomial, int] = {}
    for item in items:
        for monomial, factor in item:
            sums[monomial] = sums.get(monomial, 0) + factor
    return terms(sums)


def scale(item: Terms, factor: int) -> Terms:
    """A product with a number."""
    return terms({monomial: c * factor for monomial, c in item}) if factor else ()


@functools.lru_cache(1 << 14)
def multiply(a: Terms, b: Terms) -> Terms:
    """The product."""
    sums: dict[Monomial, int] = {}
    for left, m in a:
        for right, n in b:
            monomial = tuple(sorted(left + right, key=_key))
            sums[monomial] = sums.get(monomial, 0) + m * n
    return terms(sums)


def number_of(item: Terms) -> int | None:
    """The value of a constant; None for others."""
    if not item:
        return 0
    return item[0][1] if len(item) == 1 and not item[0][0] else None


def value(item: Terms, values: Mapping[str, int]) -> int:
    """The value for values of dims."""
    return sum(c * math.prod(atom.value(values) for atom in monomial) for monomial, c in item)


def bind(item: Terms, values: Mapping[str, int]) -> Terms:
    """The normal form with values in the place of some dims."""
    sums = []
    for monomial, factor in item:
        product = constant(factor)
        for atom in monomial:
            product = multiply(product, _bind_atom(atom, values))
        sums.append(product)
    return add(*sums)


def _bind_atom(atom: Atom, values: Mapping[str, int]) -> Terms:
    if isinstance(atom, Unknown):
        return constant(atom.value(values)) if atom.name in values else of_atom(atom)
    if isinstance(atom, Quotient):
        return divide(bind(atom.above, values), bind(atom.below, values))
    return extreme(atom.largest, [bind(item, values) for item in atom.items])


@functools.lru_cache(1 << 14)
def bounds(item: Terms) -> Bounds:
    """The values that it may have, by its terms alone."""
    low: int | None = 0
    high: int | None = 0
    for monomial, factor in item:
        least, most = _product_bounds([atom.bounds() for atom in monomial])
        if factor < 0:
            least, most = most, least
        low = None if low is None or least is None else low + factor * least
        high = None if high is None or most is None else high + factor * most
    return low, high


def _product_bounds(items: Iterable[Bounds]) -> Bounds:
    """The bounds of a product."""
    low: int | None = 1
    high: int | None = 1
    for least, most in items:
        if low is None or least is None or low < 0 or least < 0:
            if None in (low, high, least, most):
                return None, None
            ends = [a * b for a in (low, high) for b in (least, most)]  # type: ignore[operator]
            low, high = min(ends), max(ends)
            continue
        low, high = low * least, None if high is None or most is None else high * most
    return low, high


@functools.lru_cache(1 << 14)
def divide(above: Terms, below: Terms) -> Terms:
    """The quotient, rounded down, for a positive denominator.

    What the denominator divides is taken out: floor((q d + r) / d) = q + floor(r / d).
    """
    if above == below:
        return constant(1)
    if len(above) == 1 and above[0][1] == 1 and len(above[0][0]) == 1:
        atom = above[0][0][0]
        if isinstance(atom, Extreme):
            return extreme(atom.largest, [divide(item, below) for item in atom.items])
    quotient, rest = _split(above, below)
    if not rest:
        return quotient
    exact, over = _split(_pulled(above), _pulled(below))
    if not over:
        return terms(dict(exact))
    rest, below = _reduced(rest, below)
    divisor = number_of(below)
    if divisor == 1:
        return add(quotient, rest)
    (low, high), least = bounds(rest), bounds(below)[0]
    if low is not None and low >= 0 and high is not None and least is not None and high < least:
        return quotient
    number = number_of(rest)
    if number is not None and divisor is not None:
        return add(quotient, constant(number // divisor))
    if rest[0][0] and rest[0][1] < 0 and divisor is not None:
        # One form for what is rounded up: floor(-x / d) = -floor((x + d - 1) / d).
        rest = add(scale(rest, -1), below, constant(-1))
        return add(quotient, scale(divide(rest, below), -1))
    return add(quotient, of_atom(Quotient(rest, below)))


def _pulled(item: Terms) -> Terms:
    """The same with what divides all numbers of a minimum or a maximum in front of it: not in its normal form."""
    sums: dict[Monomial, int] = {}
    for monomial, factor in item:
        atoms: list[Atom] = []
        for atom in monomial:
            parts = atom.items if isinstance(atom, Extreme) else ()
            each = math.gcd(*(c for part in parts for _, c in part))
            if isinstance(atom, Extreme) and each > 1:
                divided = [tuple((m, c // each) for m, c in part) for part in parts]
                atom, factor = (
                    Extreme(atom.largest, tuple(sorted(divided, key=text))),
                    factor * each,
                )
            atoms.append(atom)
        key = tuple(sorted(atoms, key=_key))
        sums[key] = sums.get(key, 0) + factor
    return tuple((monomial, factor) for monomial, factor in sums.items() if factor)


def _split(above: Terms, below: Terms) -> tuple[Terms, Terms]:
    """A quotient and the rest of terms that the denominator does not divide."""
    if len(below) != 1:
        return (), above
    (divisor, factor), whole, rest = below[0], {}, {}
    for monomial, c in above:
        left = list(monomial)
        try:
            for atom in divisor:
                left.remove(atom)
        except ValueError:
            rest[monomial] = c
            continue
        times, over = divmod(c, factor)
        # Of the constant all multiples are taken out, of others those that leave nothing.
        if over and (monomial or divisor):
            rest[monomial] = c
            continue
        whole[tuple(left)] = times
        if over:
            rest[monomial] = over
    return terms(whole), terms(rest)


def _reduced(above: Terms, below: Terms) -> tuple[Terms, Terms]:
    """A numerator and a denominator without the number that divides both; the numerator's constant is rounded down."""
    divisor = number_of(below)
    common = math.gcd(*(c for monomial, c in above if monomial), *(c for _, c in below))
    if common <= 1:
        return above, below
    if divisor is None and any(not monomial and c % common for monomial, c in above):
        return above, below
    return (
        terms({monomial: c // common for monomial, c in above}),
        terms({monomial: c // common for monomial, c in below}),
    )


def extreme(largest: bool, items: Iterable[Terms]) -> Terms:
    """The least or the largest, without those that bounds rule out."""
    left: list[Terms] = []
    for item in items:
        inner = [item]
        if len(item) == 1 and item[0][1] == 1 and len(item[0][0]) == 1:
            atom = item[0][0][0]
            if isinstance(atom, Extreme) and atom.largest == largest:
                inner = list(atom.items)
        for each in inner:
            if any(_beats(other, each, largest) for other in left):
                continue
            left = [other for other in left if not _beats(each, other, largest)] + [each]
    if len(left) == 1:
        return left[0]
    return of_atom(Extreme(largest, tuple(sorted(left, key=text))))


def _beats(one: Terms, other: Terms, largest: bool) -> bool:
    """Returns whether one is never less than the other, or never more."""
    sums = dict(one if largest else other)
    for monomial, factor in other if largest else one:
        sums[monomial] = sums.get(monomial, 0) - factor
    # Not in its normal form, which would ask this again of minima and maxima.
    low = bounds(tuple((monomial, c) for monomial, c in sums.items() if c))[0]
    return low is not None and low >= 0


def atoms(item: Terms) -> Iterable[Unknown]:
    """The numbers of calls that it depends on; one may come several times."""
    for monomial, _ in item:
        for atom in monomial:
            if isinstance(atom, Unknown):
                yield atom
            else:
                inner = (atom.above, atom.below) if isinstance(atom, Quotient) else atom.items
                for each in inner:
                    yield from atoms(each)


def text(item: Terms) -> str:
    """The expression as Python writes it."""
    return " + ".join([_term(monomial, c) for monomial, c in item]).replace("+ -", "- ") or "0"


def _term(monomial: Monomial, factor: int) -> str:
    listed = [_atom(atom) for atom in monomial]
    # A dim that is a multiple of a number is written by its name.
    for i, atom in enumerate(monomial):
        if isinstance(atom, Unknown) and atom.factor > 1 and factor % atom.factor == 0:
            listed[i], factor = atom.name, factor // atom.factor
    if not listed:
        return str(factor)
    return {1: "", -1: "-"}.get(factor, f"{factor}*") + "*".join(listed)


def _atom(atom: Atom) -> str:
    if isinstance(atom, Unknown):
        return atom.name if atom.factor == 1 else f"({atom.name}//{atom.factor})"
    if isinstance(atom, Quotient):
        return f"(({text(atom.above)})//({text(atom.below)}))"
    return f"{'max' if atom.largest else 'min'}({', '.join(map(text, atom.items))})"


def common_factor(item: Terms) -> int:
    """The largest number that divides all terms but the constant."""
    return math.gcd(*(c for monomial, c in item if monomial))
