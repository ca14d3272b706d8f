"""Programs of sizes: many expressions computed at once for values of dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlx.sizes import polynomial as poly
from rlx.sizes.expressions import SizeExpr
from rlx.sizes.guards import POSITIVE, ZERO, Guard
from rlx.sizes.ratio import Ratio


def compiled(sizes: Sequence[Any], names: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """Compiles expressions to one function of the values of dims.

    Args:
        sizes: Sizes, quotients of sizes, and numbers.
        names: The dims, in the order of the function's parameters.

    Example:
        >>> from rlx.sizes import Dim
        >>> compiled([Dim("n") * 2 + 1, 7], ["n"])(3)
        (7, 7)
    """
    places = {name: f"v{i}" for i, name in enumerate(names)}
    return _function([_code(size, places) for size in sizes], places)


def holds(guards: Sequence[Guard], names: Sequence[str]) -> Callable[..., bool]:
    """Compiles guards to one function that tells whether all hold."""
    places = {name: f"v{i}" for i, name in enumerate(names)}
    relations = {POSITIVE: "> 0", ZERO: "== 0"}
    parts = [f"{_terms(g.terms, places)} {relations.get(g.relation, '!= 0')}" for g in guards]
    function = _function([" and ".join(parts) or "True"], places)

    def all_hold(*values: int) -> bool:
        with suppress(ZeroDivisionError):  # another guard says that this size is above 0
            return bool(function(*values)[0])
        return False

    return all_hold


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


def _function(parts: Sequence[str], places: Mapping[str, str]) -> Callable[..., tuple[Any, ...]]:
    # Names of dims never become code: each is a variable of a number of its own.
    source = f"lambda {', '.join(places.values())}: ({''.join(f'{part}, ' for part in parts)})"
    function: Callable[..., tuple[Any, ...]] = eval(
        source, {"min": min, "max": max, "__builtins__": {}}
    )
    return function


def _code(size: Any, places: Mapping[str, str]) -> str:
    if isinstance(size, Ratio):
        return f"(({_code(size.above, places)}) / ({_code(size.below, places)}))"
    return _terms(size.terms, places) if isinstance(size, SizeExpr) else repr(size)


def _terms(terms: poly.Terms, places: Mapping[str, str]) -> str:
    products = ("*".join([str(factor), *(_atom(a, places) for a in m)]) for m, factor in terms)
    return f"({' + '.join(products) or '0'})"


def _atom(atom: poly.Atom, places: Mapping[str, str]) -> str:
    if isinstance(atom, poly.Unknown):
        name = places[atom.name]
        return name if atom.factor == 1 else f"({name} // {atom.factor})"
    if isinstance(atom, poly.Quotient):
        return f"({_terms(atom.above, places)} // {_terms(atom.below, places)})"
    return f"{'max' if atom.largest else 'min'}({', '.join(_terms(i, places) for i in atom.items)})"
