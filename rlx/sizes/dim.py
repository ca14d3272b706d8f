"""``rlx.Dim``: a size of an input that is known only when the graph runs."""

from __future__ import annotations

from typing import Any

from rlx.errors import ShapeError
from rlx.sizes import polynomial as poly
from rlx.sizes.expressions import SizeExpr

# The hint of a dim without one: no kernel takes it for a special size.
_USUAL = 64
LARGEST = 1 << 40


class Dim(SizeExpr):
    """A size that is known only when the graph runs; it stands in shapes in place of an int.

    Two dims of one name are one dim. Arithmetic of dims gives sizes. No dim is an int: what needs its value at compile time
    raises ``UnknownSizeError``. Dims never broadcast: two dims that have to be equal are compared when the graph runs.

    Args:
        name: The name; errors and ``cg.set_sizes`` use it.
        max: The largest value; None for no bound. Memory is planned for the sizes that a program meets, not for this.
        min: The least value.
        multiple_of: A number that divides every value; ``min`` and ``max`` are multiples of it.

    Attributes:
        name: The name.
        min: The least value.
        max: The largest value, or None.
        multiple_of: The number that divides every value.

    Raises:
        ShapeError: The bounds are no whole numbers, contradict each other, or the name is no identifier.

    Example:
        >>> import numpy as np, rlx
        >>> tokens = rlx.Dim("tokens", max=2048)
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.sum(g.input("x", (tokens, 4)), axes=1)])
        >>> cg = rlx.compile(g, device="cpu")
        >>> [cg.run(np.ones((n, 4), np.float32))[0].shape for n in (3, 100)]
        [(3,), (100,)]
    """

    __slots__ = ("max", "min", "multiple_of", "name")

    def __init__(
        self, name: str, max: int | None = None, *, min: int = 0, multiple_of: int = 1
    ) -> None:
        numbers = [min, multiple_of, *([] if max is None else [max])]
        _check(
            isinstance(name, str) and name.isidentifier(), name, "a name as Python's variables have"
        )
        _check(all(type(number) is int for number in numbers), numbers, "whole numbers")
        _check(multiple_of > 0, f"multiple_of={multiple_of}", "at least 1")
        most = LARGEST if max is None else max
        _check(0 <= min <= most <= LARGEST, f"min={min}, max={max}", "0 <= min <= max <= 2^40")
        fits = min % multiple_of == 0 and (max is None or max % multiple_of == 0)
        _check(fits, f"min={min}, max={max}", f"multiples of {multiple_of}")
        self.name: str = name
        self.min: int = min
        self.max: int | None = max
        self.multiple_of: int = multiple_of
        high = None if max is None else max // multiple_of
        atom = poly.Unknown(name, multiple_of, min // multiple_of, high)
        super().__init__(poly.of_atom(atom, multiple_of))

    def takes(self, value: int) -> bool:
        """Returns whether it may have a value."""
        within = self.min <= value and (self.max is None or value <= self.max)
        return within and value % self.multiple_of == 0

    @property
    def expected(self) -> str:
        """The values that it takes, for messages."""
        most = "or more" if self.max is None else f"to {self.max}"
        said = f"{self.name} is {self.min} {most}"
        return f"{said}, a multiple of {self.multiple_of}" if self.multiple_of > 1 else said

    @property
    def hint(self) -> int:
        """A usual value, for assumptions before the first run."""
        most = LARGEST if self.max is None else self.max
        usual = -(-_USUAL // self.multiple_of) * self.multiple_of
        return sorted((self.min, usual, most))[1]

    def __reduce__(self) -> Any:
        return checked_dim, (self.name, self.max, self.min, self.multiple_of)


def dims_of(size: SizeExpr) -> list[Dim]:
    """Returns the dims that a size depends on, each once."""
    atoms = dict.fromkeys(poly.atoms(size.terms))
    return [
        checked_dim(
            a.name, None if a.high is None else a.high * a.factor, a.low * a.factor, a.factor
        )
        for a in atoms
    ]


def checked_dim(name: str, most: int | None, least: int, multiple_of: int) -> Dim:
    """Makes a dim of fields in the order of its pickles.

    Raises:
        ShapeError: See ``Dim``.
    """
    return Dim(name, most, min=least, multiple_of=multiple_of)


def _check(fits: bool, got: object, expected: str) -> None:
    if not fits:
        raise ShapeError("[Dim] not a dim", got=got, expected=expected)
