"""Assumptions that depend on sizes: each is made for hints, and kept as a guard that later sizes have to meet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rlx.errors import UnknownSizeError
from rlx.sizes import polynomial as poly
from rlx.sizes.polynomial import Terms

# The relations of guards to 0.
POSITIVE, ZERO, NONZERO = "> 0", "== 0", "!= 0"


class Guard(NamedTuple):
    """Something that was assumed of sizes.

    Attributes:
        terms: The number that is compared with 0.
        relation: ``POSITIVE``, ``ZERO`` or ``NONZERO``.
    """

    terms: Terms
    relation: str

    def holds(self, values: Mapping[str, int]) -> bool:
        """Returns whether it holds for values of dims."""
        with contextlib.suppress(ZeroDivisionError):  # another guard says that this size is above 0
            number = poly.value(self.terms, values)
            if self.relation == POSITIVE:
                return number > 0
            return (number == 0) == (self.relation == ZERO)
        return False

    def names(self) -> frozenset[str]:
        """Returns the names of its dims."""
        return frozenset(atom.name for atom in poly.atoms(self.terms))

    def __str__(self) -> str:
        return f"{poly.text(self.terms)} {self.relation}"


class Assumptions:
    """Decides comparisons of sizes by hints, and keeps them as guards.

    Args:
        hints: A value of each dim.
        joins: Whether two dims whose equality is asked for get one hint, so that they are taken to be equal.
        ones: Whether axes whose hint is 1 are broadcast.

    Attributes:
        hints: Those values.
        ones: Whether axes whose hint is 1 are broadcast.
        guards: What was assumed, each once.
        inferred: What inference assumed: for other sizes inference decides anew.
        kept: One of these two, where assumptions are kept now.
    """

    def __init__(
        self, hints: Mapping[str, int], *, joins: bool = False, ones: bool = False
    ) -> None:
        self.hints: dict[str, int] = dict(hints)
        self.ones: bool = ones
        self._joins = joins
        self.guards: dict[Guard, None] = {}
        self.inferred: dict[Guard, None] = {}
        self.kept: dict[Guard, None] = self.guards
        self._known: dict[tuple[Terms, bool], bool] = {}

    def decide(self, terms: Terms, equal: bool) -> bool:
        """Returns whether a number is 0, or whether it is above 0.

        Args:
            terms: The number.
            equal: Whether the question is the first one.
        """
        key = terms, equal
        if key not in self._known:
            if equal and self._joins:
                self._join(terms)
            number = poly.value(terms, self.hints)
            self._known[key] = number == 0 if equal else number > 0
        result = self._known[key]
        if not equal:
            # Not above 0 is: its negation is above -1.
            kept = terms if result else poly.add(poly.scale(terms, -1), poly.constant(1))
            self.kept[Guard(kept, POSITIVE)] = None
            return result
        if terms[0][1] < 0:
            terms = poly.scale(terms, -1)
        self.kept[Guard(terms, ZERO if result else NONZERO)] = None
        return result

    def _join(self, terms: Terms) -> None:
        """Gives two dims one hint where a number is the difference of both, and both can have it."""
        parts = [monomial[0] for monomial, _ in terms if len(monomial) == 1]
        if len(terms) != 2 or len(parts) != 2 or terms[0][1] != -terms[1][1]:
            return
        a, b = parts
        if (
            not (isinstance(a, poly.Unknown) and isinstance(b, poly.Unknown))
            or a.factor != b.factor
        ):
            return
        both = min(self.hints[a.name], self.hints[b.name])
        highs = [atom.high * atom.factor for atom in (a, b) if atom.high is not None]
        both = min(max(both, a.low * a.factor, b.low * b.factor), *highs, 1 << 62)
        self.hints[a.name] = self.hints[b.name] = both

    @contextlib.contextmanager
    def undone_by_errors(self) -> Iterator[None]:
        """Drops the guards of a block that ends in an error."""
        kept = self.kept is self.inferred
        before = dict(self.guards), dict(self.inferred), dict(self._known)
        try:
            yield
        except BaseException:
            self.guards, self.inferred, self._known = before
            self.kept = self.inferred if kept else self.guards
            raise

    def hold(self, values: Mapping[str, int]) -> bool:
        """Returns whether all guards of some dims, but those of inference, hold for values of these."""
        own = (guard for guard in self.guards if guard.names() <= values.keys())
        return all(guard.holds(values) for guard in own)


_under_way = threading.local()


def current() -> Assumptions | None:
    """The assumptions of this thread that are under way."""
    assumptions: Assumptions | None = getattr(_under_way, "assumptions", None)
    return assumptions


@contextlib.contextmanager
def deciding(assumptions: Assumptions | None) -> Iterator[None]:
    """Has comparisons of sizes in this thread be decided by these assumptions; None leaves all as it is."""
    if assumptions is None:
        yield
        return
    before = current()
    _under_way.assumptions = assumptions
    try:
        yield
    finally:
        _under_way.assumptions = before


@contextlib.contextmanager
def assuming_nothing() -> Iterator[None]:
    """Has comparisons of sizes in this thread be decided by bounds alone; others raise ``UnknownSizeError``."""
    before = current()
    _under_way.assumptions = None
    try:
        yield
    finally:
        _under_way.assumptions = before


def surely(question: Callable[[], bool]) -> bool:
    """Returns whether something holds for all values that dims may have; nothing is assumed for it."""
    try:
        with assuming_nothing():
            return question()
    except UnknownSizeError:
        return False


@contextlib.contextmanager
def inferring(assumptions: Assumptions) -> Iterator[None]:
    """``deciding``, and keeps what is decided meanwhile as guards of inference."""
    before, assumptions.kept = assumptions.kept, assumptions.inferred
    try:
        with deciding(assumptions):
            yield
    finally:
        assumptions.kept = before
