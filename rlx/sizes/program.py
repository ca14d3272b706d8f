"""Programs of sizes: many expressions as one table of steps, which compiled code evaluates for values of dims."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from rlx._ext.program import SizeSteps
from rlx.errors import UnknownSizeError
from rlx.sizes import polynomial as poly
from rlx.sizes.expressions import SizeExpr
from rlx.sizes.guards import NONZERO, POSITIVE, ZERO, Guard
from rlx.sizes.ratio import Ratio

# The operations and relations of sizes.h.
_SUM, _QUOTIENT, _LEAST, _LARGEST, _REAL = range(5)
_RELATIONS = {POSITIVE: 0, ZERO: 1, NONZERO: 2}
# Whole numbers that a table holds, and those that it makes a double of.
_MOST, _MOST_REAL = 1 << 63, 1 << 53
# A register, before it is known how many constants there are: its kind, and its place among these.
Register = tuple[int, int]
_DIMS, _CONSTANTS, _STEPS = range(3)
# Bits of a coefficient of a guard: products of sizes have room for as many.
_GUARD_BITS = 31


class SizeValue(NamedTuple):
    """A number of a table.

    Attributes:
        above: The register of the number, or of a numerator.
        below: The register of a denominator; -1 for a whole number.
    """

    above: int
    below: int


class SizeProgram:
    """Expressions of dims as steps. Equal parts of expressions are one step.

    Args:
        names: The dims, in the order of their values.

    Example:
        >>> from rlx.sizes import Dim
        >>> program = SizeProgram(["n"])
        >>> double = program.add(Dim("n") * 2 + 1)
        >>> program.steps().numbers([program.place(double).above], 3)
        [7]
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._known: dict[Hashable, Register] = {name: (_DIMS, i) for i, name in enumerate(names)}
        self._dims = len(names)
        self._constants: dict[int, Register] = {}
        self._steps: dict[tuple[Any, ...], Register] = {}
        self._checks: list[tuple[Register, int]] = []

    def add(self, size: Any, real: bool = False) -> tuple[Register, Register | None]:
        """Adds a size, a quotient of sizes or a number.

        Args:
            size: The expression.
            real: Whether its value becomes a double.

        Raises:
            UnknownSizeError: A number in it is too large.
        """
        if isinstance(size, Ratio):
            return self._real(size.above, False), self._real(size.below, True)
        return self._real(size, False) if real else self._size(size), None

    def check(self, guard: Guard) -> None:
        """Adds a comparison with 0."""
        self._checks.append((self._terms(_in_words(guard)), _RELATIONS[guard.relation]))

    def place(self, added: tuple[Register, Register | None]) -> SizeValue:
        """Returns the registers of something that was added, when all is."""
        above, below = added
        return SizeValue(self._place(above), -1 if below is None else self._place(below))

    def steps(self) -> SizeSteps:
        """Returns a table with registers of its own."""
        steps = [
            (op, self._place(a), self._operand(b), self._operand(c)) for op, a, b, c in self._steps
        ]
        checks = [(self._place(register), relation) for register, relation in self._checks]
        return SizeSteps(self._dims, list(self._constants), steps, checks)

    def _place(self, register: Register) -> int:
        kind, index = register
        return index + (0, self._dims, self._dims + len(self._constants))[kind]

    def _operand(self, operand: Register | int) -> int:
        return operand if isinstance(operand, int) else self._place(operand)

    def _size(self, size: Any) -> Register:
        return self._terms(size.terms) if isinstance(size, SizeExpr) else self._constant(int(size))

    def _real(self, size: Any, positive: bool) -> Register:
        if not isinstance(size, SizeExpr) and abs(size) > _MOST_REAL:
            raise UnknownSizeError("a quotient of sizes needs a larger number", got=size)
        return self._step(_REAL, self._size(size), int(positive), 0)

    def _constant(self, value: int) -> Register:
        if not -_MOST <= value < _MOST:
            raise UnknownSizeError("a size needs a number beyond 64 bits", got=value)
        return self._constants.setdefault(value, (_CONSTANTS, len(self._constants)))

    def _step(self, op: int, a: Register, b: Register | int, c: Register | int) -> Register:
        return self._steps.setdefault((op, a, b, c), (_STEPS, len(self._steps)))

    def _terms(self, terms: poly.Terms) -> Register:
        if terms not in self._known:
            self._known[terms] = self._sum(terms)
        return self._known[terms]

    def _sum(self, terms: poly.Terms) -> Register:
        total = self._constant(sum(factor for monomial, factor in terms if not monomial))
        for monomial, factor in terms:
            if monomial:
                *others, last = map(self._atom, monomial)
                product = reduce(self._product, others, self._constant(factor))
                total = self._step(_SUM, product, last, total)
        return total

    def _product(self, a: Register, b: Register) -> Register:
        return b if a == self._constant(1) else self._step(_SUM, a, b, self._constant(0))

    def _atom(self, atom: poly.Atom) -> Register:
        if atom not in self._known:
            self._known[atom] = self._made(atom)
        return self._known[atom]

    def _made(self, atom: poly.Atom) -> Register:
        if isinstance(atom, poly.Unknown):
            dim = self._known[atom.name]
            factor = self._constant(atom.factor)
            return dim if atom.factor == 1 else self._step(_QUOTIENT, dim, factor, 0)
        if isinstance(atom, poly.Quotient):
            return self._step(_QUOTIENT, self._terms(atom.above), self._terms(atom.below), 0)
        op = _LARGEST if atom.largest else _LEAST
        return reduce(lambda a, b: self._step(op, a, b, 0), map(self._terms, atom.items))


def _in_words(guard: Guard) -> poly.Terms:
    """The number of a guard, or one of smaller coefficients where they are large: if that is above 0, so is the guard's.

    Comparisons with floats have such coefficients, since a float is taken for what it is exactly.
    """
    factors = [factor for _, factor in guard.terms]
    over = max(map(abs, factors)).bit_length() - _GUARD_BITS
    lows = (poly.bounds(((monomial, 1),))[0] for monomial, _ in guard.terms)
    if (
        over <= 0
        or guard.relation != POSITIVE
        or not all(low is not None and low >= 0 for low in lows)
    ):
        return guard.terms
    # A whole number is above 0 if it is 1 or more.
    rest = poly.add(guard.terms, poly.constant(-1))
    less = poly.terms({monomial: factor >> over for monomial, factor in rest})
    return poly.add(less, poly.constant(1))


def holds(guards: Sequence[Guard], names: Sequence[str]) -> SizeSteps:
    """Compiles guards to one function that tells whether all hold for values of the dims."""
    program = SizeProgram(names)
    for guard in guards:
        program.check(guard)
    return program.steps()


def within(terms: poly.Terms, most: Mapping[str, int]) -> poly.Terms:
    """A size of dims with other largest values."""
    return poly.terms(
        {tuple(_atom_within(atom, most) for atom in monomial): factor for monomial, factor in terms}
    )


def upper_bound(size: Any, most: Mapping[str, int]) -> int | None:
    """Returns a number that a size is never above while its dims are at most so large; None for no bound."""
    if not isinstance(size, SizeExpr):
        return int(size)
    return poly.bounds(within(size.terms, most))[1]


def _atom_within(atom: poly.Atom, most: Mapping[str, int]) -> poly.Atom:
    if isinstance(atom, poly.Unknown):
        high = most[atom.name] // atom.factor
        return atom._replace(
            high=max(atom.low, high if atom.high is None else min(high, atom.high))
        )
    if isinstance(atom, poly.Quotient):
        return poly.Quotient(within(atom.above, most), within(atom.below, most))
    return poly.Extreme(atom.largest, tuple(within(item, most) for item in atom.items))
