"""Sizes as JSON values: an exact round trip, with the bounds of their dims."""

from __future__ import annotations

from typing import Any

from rlx.errors import GraphError
from rlx.sizes import polynomial as poly
from rlx.sizes.dim import checked_dim
from rlx.sizes.expressions import Size, SizeExpr, size_of
from rlx.sizes.guards import NONZERO, POSITIVE, ZERO, Guard

# Quotients and extremes within each other, in sizes that come out of files.
_DEEPEST = 32
# The terms of such a size.
_MOST_TERMS = 1 << 10


def size_to(size: SizeExpr) -> list[Any]:
    """A size as JSON values: its terms, each with its factor and its atoms."""
    return _terms_to(size.terms)


def size_from(data: Any) -> Size:
    """Reads the values of ``size_to``.

    Raises:
        GraphError: They are not such values.
    """
    return size_of(_terms_from(data, 0))


def guard_to(guard: Guard) -> list[Any]:
    """A guard as JSON values."""
    return [_terms_to(guard.terms), guard.relation]


def guard_from(data: Any) -> Guard:
    """Reads the values of ``guard_to``.

    Raises:
        GraphError: They are not such values.
    """
    terms, relation = data
    if relation not in (POSITIVE, ZERO, NONZERO):
        raise _refused(data)
    return Guard(_terms_from(terms, 0), relation)


def _terms_to(terms: poly.Terms) -> list[Any]:
    return [[factor, [_atom_to(atom) for atom in monomial]] for monomial, factor in terms]


def _atom_to(atom: poly.Atom) -> list[Any]:
    if isinstance(atom, poly.Unknown):
        high = None if atom.high is None else atom.high * atom.factor
        return ["dim", atom.name, atom.low * atom.factor, high, atom.factor]
    if isinstance(atom, poly.Quotient):
        return ["//", _terms_to(atom.above), _terms_to(atom.below)]
    return ["max" if atom.largest else "min", *map(_terms_to, atom.items)]


def _terms_from(data: Any, depth: int) -> poly.Terms:
    if not isinstance(data, list) or len(data) > _MOST_TERMS or depth > _DEEPEST:
        raise _refused(data)
    sums: dict[poly.Monomial, int] = {}
    for factor, atoms in data:
        if type(factor) is not int or not isinstance(atoms, list):
            raise _refused(data)
        monomial = tuple(_atom_from(atom, depth) for atom in atoms)
        sums[monomial] = sums.get(monomial, 0) + factor
    return poly.terms(sums)


def _atom_from(data: Any, depth: int) -> poly.Atom:
    kind, *rest = data
    if kind == "dim":
        name, low, high, factor = rest
        ((monomial, _),) = checked_dim(name, high, low, factor).terms
        return monomial[0]
    items = [_terms_from(item, depth + 1) for item in rest]
    if kind == "//" and len(items) == 2:
        high = poly.bounds(items[1])[1]
        if high is None or high > 0:
            return poly.Quotient(*items)
    if kind in ("min", "max") and items:
        return poly.Extreme(kind == "max", tuple(items))
    raise _refused(data)


def _refused(data: Any) -> GraphError:
    return GraphError("not a size", got=f"{data!r:.120}")
