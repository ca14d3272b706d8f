"""Einstein summation, rewritten to transposes, products of matrices and sums."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Sample
from rlx.ir.shape import is_one, size, strides
from rlx.ops.declare import FLOAT_KERNELS, composite
from rlx.resource_limits import charge


def _refuse(equation: str, what: str) -> GraphError:
    return GraphError(f"[einsum] {what}", got=repr(equation), expected="a form like 'bij,bjk->bik'")


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """An equation as one letter per axis of each operand and of the result.

    An ellipsis becomes letters of its own, the same in every operand, counted from the last. Without an
    arrow the result has the letters that occur once, in alphabetical order, behind the ellipsis.

    Raises:
        GraphError: The equation is malformed or does not fit the operands.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    plain = text.replace("...", "").replace(",", "").replace("->", "")
    if (plain and not plain.isalpha()) or len(terms) != len(ranks):
        raise _refuse(equation, f"does not fit {len(ranks)} operands")
    spare = [c for c in string.ascii_letters if c not in plain]
    hidden = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True)]
    wide = max((n for n, term in zip(hidden, terms, strict=True) if "..." in term), default=0)
    dots = "".join(spare[:wide])

    for term, extra in zip(terms, hidden, strict=True):
        if extra < 0 or (extra and "..." not in term) or term.count(".") not in (0, 3):
            raise _refuse(equation, f"term {term!r} does not fit its operand")
    inputs = [
        term.replace("...", dots[wide - extra :]) for term, extra in zip(terms, hidden, strict=True)
    ]
    if arrow:
        result = right.replace("...", dots)
    else:
        letters = sorted(set(plain))
        result = dots + "".join(c for c in letters if left.count(c) == 1)
    if len(set(result)) != len(result) or not set(result) <= set("".join(inputs)):
        raise _refuse(equation, "the result repeats a letter or has one of no operand")
    return inputs, result


def _diagonal(g: Graph, x: Node, letters: str) -> tuple[Node, str]:
    """Axes that share a letter become one: the entries where they are equal."""
    unique = "".join(dict.fromkeys(letters))
    if unique == letters:
        return x, letters
    dims: dict[str, int] = {}
    for letter, dim in zip(letters, x.shape, strict=True):
        if dims.setdefault(letter, dim) != dim:
            raise ShapeError("[einsum] axes of one letter differ", got=f"{x.shape}")
    shape = tuple(dims[letter] for letter in unique)
    steps = strides(x.shape)
    walk = [sum(s for c, s in zip(letters, steps, strict=True) if c == letter) for letter in unique]
    charge("[einsum] a diagonal", elements=len(shape) * math.prod(shape))
    pos = np.indices(shape, dtype=np.int32)
    flat = sum((i * step for i, step in zip(pos, walk, strict=True)), np.zeros(shape, np.int32))
    return g.gather(g.reshape(x, (-1,)), g.constant(flat.astype(np.int32)), 0), unique


def _sum_out(g: Graph, x: Node, letters: str, retained: set[str]) -> tuple[Node, str]:
    """Letters that nothing else needs are summed away."""
    gone = [i for i, letter in enumerate(letters) if letter not in retained]
    if not gone:
        return x, letters
    return g.sum(x, gone), "".join(c for c in letters if c in retained)


def _order(g: Graph, x: Node, letters: str, wanted: str) -> Node:
    return x if letters == wanted else g.transpose(x, [letters.index(c) for c in wanted])


def _contract(g: Graph, a: Node, la: str, b: Node, lb: str, retained: set[str]) -> tuple[Node, str]:
    """Two operands become one: a batched product of matrices over the letters they share."""
    dims: dict[str, int] = {}
    for letter, dim in [*zip(la, a.shape, strict=True), *zip(lb, b.shape, strict=True)]:
        known = dims.get(letter, 1)
        if not is_one(known) and not is_one(dim) and known != dim:
            raise ShapeError(f"[einsum] sizes of {letter!r} differ", got=f"{known} and {dim}")
        dims[letter] = dim if is_one(known) else known
    a, la = _sum_out(g, a, la, set(lb) | retained)
    b, lb = _sum_out(g, b, lb, set(la) | retained)
    shared = [c for c in la if c in lb]
    # A size of 1 stands for the other operand's size.
    a = _spread(g, a, la, shared, dims)
    b = _spread(g, b, lb, shared, dims)
    batch = "".join(c for c in shared if c in retained)
    inner = "".join(c for c in shared if c not in retained)
    rows = "".join(c for c in la if c not in shared)
    columns = "".join(c for c in lb if c not in shared)

    def merged(x: Node, letters: str, *groups: str) -> Node:
        moved = _order(g, x, letters, "".join(groups))
        return g.reshape(moved, [size(tuple(dims[c] for c in group)) for group in groups])

    product = g.matmul(merged(a, la, batch, rows, inner), merged(b, lb, batch, inner, columns))
    letters = batch + rows + columns
    return g.reshape(product, [dims[c] for c in letters]), letters


def _spread(g: Graph, x: Node, letters: str, shared: list[str], dims: dict[str, int]) -> Node:
    shape = tuple(dims[c] if c in shared else d for c, d in zip(letters, x.shape, strict=True))
    return x if shape == x.shape else g.expand(x, shape)


_SAMPLES: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((3, 4), (4, 5))),
    ("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))),
    ("bhqd,bhkd->bhqk", ((2, 3, 5, 4), (2, 3, 6, 4))),
    ("ii->i", ((4, 4),)),
    ("ii", ((4, 4),)),
    ("ij->ji", ((3, 4),)),
    ("ij,ij->", ((3, 4), (3, 4))),
    ("i,j->ij", ((3,), (4,))),
    ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 2))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
    ("abc,cd->", ((2, 3, 4), (4, 5))),
    ("ij,jk", ((1, 1), (1, 1))),
    ("ij,jk->ik", ((0, 4), (4, 5))),
)


def _einsum(g: Graph, equation: str, xs: list[Node]) -> Node:
    if not xs:
        raise _refuse(equation, "no operands")
    terms, result = parse(equation, [len(x.shape) for x in xs])
    parts = [_diagonal(g, x, letters) for x, letters in zip(xs, terms, strict=True)]
    left, letters = parts[0]
    for i in range(1, len(parts)):
        later = set("".join(term for _, term in parts[i + 1 :])) | set(result)
        left, letters = _contract(g, left, letters, *parts[i], later)
    left, letters = _sum_out(g, left, letters, set(result))
    return _order(g, left, letters, result)


@composite(
    _einsum,
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},  # a sum over everything cancels
    samples=lambda: tuple(Sample(shapes, {"equation": equation}) for equation, shapes in _SAMPLES),
)
def einsum(equation: str, *xs: Array) -> Array:
    """Sum of products over the axes that an equation names (NumPy's ``einsum``).

    Operands are joined from left to right, each pair by one batched product of matrices.

    Args:
        equation: One letter per axis, operands separated by commas, the result behind ``->``. A letter
            that the result lacks is summed over; a letter that an operand repeats takes its diagonal;
            ``...`` stands for axes that are broadcast.
        xs: The operands.
    """
    return np.einsum(equation, *xs)
