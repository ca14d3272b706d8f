"""Assumptions that depend on sizes: each is made for hints, and kept as a guard that later sizes have to meet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

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
        steady: Whether speed alone makes no guard; see ``preferring`` and ``general``.

    Attributes:
        hints: Those values.
        ones: Whether axes whose hint is 1 are broadcast.
        steady: Whether speed alone makes no guard.
        guards: What was assumed, each once.
        inferred: What inference assumed: for other sizes inference decides anew.
        kept: One of these two, where assumptions are kept now.
    """

    def __init__(
        self,
        hints: Mapping[str, int],
        *,
        joins: bool = False,
        ones: bool = False,
        steady: bool = False,
    ) -> None:
        self.hints: dict[str, int] = dict(hints)
        self.ones: bool = ones
        self.steady: bool = steady
        self._joins = joins
        self.guards: dict[Guard, None] = {}
        self.inferred: dict[Guard, None] = {}
        self.kept: dict[Guard, None] = self.guards
        self._known: dict[tuple[Terms, bool], bool] = {}
        self._for_speed = False

    def decide(self, terms: Terms, equal: bool, exact: bool = False) -> bool:
        """Returns whether a number is 0, or whether it is above 0.

        Args:
            terms: The number.
            equal: Whether the question is the first one.
            exact: Whether no other answer is right, so that it becomes a guard in each case.
        """
        key = terms, equal
        if key not in self._known:
            if equal and self._joins:
                self._join(terms)
            number = poly.value(terms, self.hints)
            self._known[key] = number == 0 if equal else number > 0
        result = self._known[key]
        if exact or not self._for_speed:
            self._keep(terms, equal, result)
        return result

    def pin(self, terms: Terms) -> None:
        """Assumes that a number is 0, as it is for the hints."""
        self._known[terms, True] = True
        self._keep(terms, True, True)

    def _keep(self, terms: Terms, equal: bool, result: bool) -> None:
        """Keeps what was decided as a guard."""
        if not equal:
            # Not above 0 is: its negation is above -1.
            kept = terms if result else poly.add(poly.scale(terms, -1), poly.constant(1))
            self.kept[Guard(kept, POSITIVE)] = None
            return
        if terms[0][1] < 0:
            terms = poly.scale(terms, -1)
        self.kept[Guard(terms, ZERO if result else NONZERO)] = None

    @contextlib.contextmanager
    def preferring(self) -> Iterator[None]:
        """Makes no guards meanwhile where the assumptions are steady."""
        before, self._for_speed = self._for_speed, self.steady
        try:
            yield
        finally:
            self._for_speed = before

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
def preferring() -> Iterator[None]:
    """Has comparisons be decided for the sake of speed: each answer is right for all sizes.

    They are decided by hints. Steady assumptions keep no guards of them.
    """
    assumptions = current()
    with contextlib.nullcontext() if assumptions is None else assumptions.preferring():
        yield


def is_steady() -> bool:
    """Returns whether the assumptions under way keep no guards for the sake of speed."""
    assumptions = current()
    return assumptions is not None and assumptions.steady


def general(question: Callable[[], bool], answer: bool) -> bool:
    """Decides a question of which one answer is right for all sizes, and the other one faster for some.

    Args:
        question: Compares sizes.
        answer: The answer that is right for all.

    Returns:
        With steady assumptions that answer, unless the other one is true of all sizes that dims may have. Otherwise the
        answer for the hints, which becomes a guard.
    """
    if not is_steady():
        return question()
    return answer if not surely(lambda: question() is not answer) else not answer


def divides(number: int, size: Any) -> bool:
    """Returns whether a number divides a size; kernels that read so many neighbours at once are right for no other size."""
    return (
        not size % number if isinstance(size, int) else general(lambda: size % number == 0, False)
    )


def may_exceed(size: Any, most: int) -> bool:
    """Returns whether a size may be above a number; kernels for larger ones are right for smaller ones, too."""
    return size > most if isinstance(size, int) else general(lambda: bool(size > most), True)


@contextlib.contextmanager
def inferring(assumptions: Assumptions) -> Iterator[None]:
    """``deciding``, and keeps what is decided meanwhile as guards of inference."""
    before, assumptions.kept = assumptions.kept, assumptions.inferred
    try:
        with deciding(assumptions):
            yield
    finally:
        assumptions.kept = before
