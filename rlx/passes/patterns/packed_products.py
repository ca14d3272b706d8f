"""Products of one row by packed weights: with the norm before them, the gate or the sum behind them, and each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.shape import size
from rlx.ops.block_formats import FORMATS
from rlx.ops.products.gated_matmul import MAX_PARTS
from rlx.ops.products.half import on_gpu
from rlx.ops.products.packed_products import BIASES
from rlx.passes.patterns.match import Match, MatchSite, either_way, joined_node
from rlx.passes.patterns.shared_products import activation


def _is_product(node: Node, site: MatchSite) -> bool:
    """Returns whether a node is a product of one row by weights that a kernel of these reads."""
    return (
        site.fuses("packed_products")
        and (
            (node.op == "dequant_matmul" and node.attrs["scheme"] in FORMATS)
            or (node.op == "half_matmul" and on_gpu(node))
        )
        and node.dtype is DType.F32
        and node.shape[-1] > 0
        and node.inputs[0].shape[-1] > 0
        and node.inputs[1].fixed
        and not site.blocked(node)
        # A product of one row is worth a program apart: the answer for the sizes of a run becomes a guard.
        and bool(size(node.shape[:-1]) == 1)
    )


def _schemes(products: Sequence[Node]) -> tuple[str, ...]:
    """The format of each product's weights."""
    return tuple(item.attrs.get("scheme") or item.inputs[1].dtype.name for item in products)


def _attrs(
    schemes: tuple[str, ...], act: str = "none", eps: float = 1e-5, present: tuple[str, ...] = ()
) -> dict[str, object]:
    return {"schemes": schemes, "act": act, "eps": eps, "present": present, "style": "", "head": 2}


def gated(node: Node, site: MatchSite) -> Match | None:
    """act(x @ gate) * (x @ up)."""
    for first, up in either_way(node):
        act, gate, between = activation(first)
        if not act or gate is up or not _is_product(gate, site) or not _is_product(up, site):
            continue
        inside = (gate, *between, up)
        alike = gate.inputs[0] is up.inputs[0] and gate.shape == up.shape
        if not alike or not site.private(inside, node):
            continue
        operands = (gate.inputs[0], gate.inputs[1], up.inputs[1])
        attrs = _attrs(_schemes((gate, up)), act)
        ordered = sorted(inside, key=lambda item: item.id)
        return Match((*ordered, node), joined_node("packed_products", operands, attrs, node.name))
    return None


def added(node: Node, site: MatchSite) -> Match | None:
    """A product plus r, as where a block adds what it computed."""
    for product, residual in either_way(node):
        if not _is_product(product, site) or site.only(product) is not node:
            continue
        if not product.shape == residual.shape == node.shape or residual is product:
            continue
        x, w = product.inputs
        attrs = _attrs(_schemes((product,)), present=("residual",))
        build = joined_node("packed_products", (x, residual, w), attrs, node.name)
        return Match((product, node), build)
    return None


def normed(node: Node, site: MatchSite) -> Match | None:
    """Products of one row that a norm may have made, which each workgroup makes anew."""
    x = node.inputs[0]
    # In the order of the graph, each once.
    readers = [reader for _, reader in sorted({r.id: r for r in site.readers(x)}.items())]
    plain = [item for item in readers if _is_product(item, site)]
    # One call has to make the norm for all of its readers.
    most = MAX_PARTS if len(plain) == len(readers) else 1
    fits = len(readers) <= most and all(_may_norm(item, x, site) for item in readers)
    norm = x if fits and _is_norm(x, site) else None
    if node.op == "packed_products":
        if norm is None or not _may_norm(node, x, site):
            return None
        group, (act, weights) = [node], (node.attrs["act"], node.inputs[1:])
        schemes = node.attrs["schemes"]
    else:
        place = next((i for i, item in enumerate(plain) if item is node), None)
        if place is None or (place % MAX_PARTS != MAX_PARTS - 1 and node is not plain[-1]):
            return None  # the pattern is found at the last product of the group
        group = plain[place // MAX_PARTS * MAX_PARTS : place + 1]
        act, weights = "none", tuple(item.inputs[1] for item in group)
        schemes = _schemes(group)
        if len(group) == 1 and norm is None:
            return None
    if norm is not None:
        inside, read = [norm, *group], norm.inputs
        attrs = _attrs(schemes, act, norm.attrs["eps"], ("norm",))
    else:
        inside, read, attrs = group, (x,), _attrs(schemes, act)
    operands = (*read, *weights)
    build = joined_node("packed_products", operands, attrs, node.name)
    return Match(tuple(inside), build, tuple(group))


def biased(node: Node, site: MatchSite) -> Match | None:
    """Products to each of which a vector is added."""
    last = _biased(node)
    made = None if last is None else last[0].inputs[0]
    if made is None or made.op != "packed_products" or set(made.attrs["present"]) - {"norm"}:
        return None
    parts = sorted(site.readers(made), key=lambda part: part.attrs["index"])
    ends = [site.only(part) for part in parts]
    found = [_biased(end) if end is not None and end.op == "add" else None for end in ends]
    if len(parts) != len(made.types) or made.attrs["act"] != "none":
        return None
    sums = [
        end
        for end, each, part in zip(ends, found, parts, strict=True)
        if end is not None and each is not None and each[0] is part
    ]
    if len(sums) < len(parts) or node.id < max(end.id for end in sums):
        return None
    biases, count = [each[1] for each in found if each], 1 + len(made.attrs["present"])
    attrs = {**made.attrs, "present": (*made.attrs["present"], *BIASES[: len(parts)])}
    operands = (*made.inputs[:count], *biases, *made.inputs[count:])
    inside = sorted((made, *parts, *sums), key=lambda item: item.id)
    build = joined_node("packed_products", operands, attrs, made.name)
    return Match(tuple(inside), build, tuple(sums))


def _biased(node: Node) -> tuple[Node, Node] | None:
    """A part of several products, and the vector that is added to it."""
    for part, bias in either_way(node):
        if (
            part.op == PART
            and bias.fixed
            and bias.shape == part.shape[-1:]
            and node.shape == part.shape
        ):
            return part, bias
    return None


def narrowed(node: Node, site: MatchSite) -> Match | None:
    """The second and third result of three rounded to f16, as keys and values that a cache keeps."""
    made = _part_of(node)
    if made is None or len(made.types) != 3 or made.attrs["halves"]:
        return None
    parts = {part.attrs["index"]: part for part in site.readers(made)}
    if len(parts) != 3:
        return None
    inside, ends = [made], [parts[0]]
    for index in (1, 2):
        end: Node | None = parts[index]
        while end is not None and end.op in (PART, "reshape"):
            inside.append(end)
            end = site.only(end)
        if end is None or end.op != "cast" or end.dtype is not DType.F16:
            return None
        ends.append(end)
    # Two neighbours in memory share a word.
    words = all(part.shape[-1] % 2 == 0 for part in parts.values()) and made.attrs["head"] % 4 == 0
    if node is not max(ends, key=lambda end: end.id) or not words:
        return None

    def build(g: Graph, indices: Mapping[int, Node]) -> Sequence[Node]:
        inputs = [indices[operand.id] for operand in made.inputs]
        result = g.add_node("packed_products", inputs, {**made.attrs, "halves": 2}, made.name)
        return [
            g.reshape(g.add_node(PART, [result], {"index": i}), end.shape)
            for i, end in enumerate(ends)
        ]

    return Match((*sorted(inside, key=lambda item: item.id), *ends), build, tuple(ends))


def _part_of(node: Node) -> Node | None:
    """The products of which a node is one result, in another shape and type."""
    while node.op in ("cast", "reshape"):
        node = node.inputs[0]
    is_part = node.op == PART and node.inputs[0].op == "packed_products"
    return node.inputs[0] if is_part else None


class _Turn(NamedTuple):
    """Heads that ``rope`` turns.

    Attributes:
        part: The heads, one result of several.
        cos: Cosines of one position.
        sin: Sines for each entry of a head, with its sign.
        style: Which entries make a pair.
        inside: The nodes between the heads and the last addition, in the order of the graph.
    """

    part: Node
    cos: Node
    sin: Node
    style: str
    inside: tuple[Node, ...]


def turned(node: Node, site: MatchSite) -> Match | None:
    """The rotation of two results of three, as of queries and keys."""
    last = _turn(node, site)
    if last is None or last.part.attrs["index"] != 1:
        return None
    made = last.part.inputs[0]
    parts = {reader.attrs["index"]: reader for reader in site.readers(made)}
    if len(made.types) != 3 or len(parts) != 3 or made.attrs["act"] != "none":
        return None
    for reader in site.readers(last.cos):
        for add in site.readers(reader) if reader.op == "mul" else ():
            first = _turn(add, site) if add.op == "add" else None
            if first is None or first.part is not parts[0] or first.style != last.style:
                continue
            if first.cos is not last.cos or first.sin is not last.sin:
                continue
            return _turned(made, parts[2], (add, node), (first, last))
    return None


def _turned(made: Node, third: Node, ends: tuple[Node, Node], turns: tuple[_Turn, _Turn]) -> Match:
    head = 2 * size(turns[0].cos.shape)
    present = tuple(made.attrs["present"])
    count = 1 + len(present)
    operands = (*made.inputs[:count], turns[0].cos, turns[0].sin, *made.inputs[count:])
    attrs = {
        **made.attrs,
        "present": (*present, "cos", "sin"),
        "style": turns[0].style,
        "head": head,
    }
    inside = {item.id: item for turn in turns for item in turn.inside}
    inside |= {item.id: item for item in (made, third, *(turn.part for turn in turns))}
    ordered = [inside[key] for key in sorted(inside.keys() - {end.id for end in ends})]

    def build(g: Graph, indices: Mapping[int, Node]) -> Sequence[Node]:
        inputs = [indices[operand.id] for operand in operands]
        result = g.add_node("packed_products", inputs, attrs, made.name)
        q, k, v = (g.add_node(PART, [result], {"index": i}) for i in range(3))
        return [g.reshape(q, ends[0].shape), g.reshape(k, ends[1].shape), v]

    return Match((*ordered, *ends), build, (*ends, third))


def _turn(node: Node, site: MatchSite) -> _Turn | None:
    """``rope`` of a result, as it is added to a graph; see ``rlx.ops.attention.rotary``."""
    for plain, crossed in either_way(node):
        if plain.op != "mul" or crossed.op != "mul" or site.only(plain) is not node:
            continue
        for pairs, cos in either_way(plain):
            for flipped, signed in either_way(crossed):
                if pairs.op != "reshape" or flipped.op != "slice" or flipped.inputs[0] is not pairs:
                    continue
                axis = _flipped_axis(flipped)
                signs = [item for item in signed.inputs if item.op == "constant"]
                if signed.op != "mul" or len(signs) != 1 or axis is None:
                    continue
                part, between = pairs, list[Node]()
                while part.op == "reshape":
                    between.append(part)
                    part = part.inputs[0]
                entries = list(pairs.shape[-2:])
                angles = [n if i - 2 != axis else 1 for i, n in enumerate(entries)]
                fits = part.op == PART and part.inputs[0].op == "packed_products"
                fits = fits and signs[0].attrs["value"].reshape(-1).tolist() == [-1, 1]
                fits = fits and _is_one_head(cos, angles) and _is_one_head(signed, entries)
                fits = fits and len(site.readers(pairs)) == 2 and site.only(crossed) is node
                if fits:
                    style = "gptj" if axis == -1 else "neox"
                    inside = (*between, plain, flipped, crossed, node)
                    return _Turn(part, cos, signed, style, inside)
    return None


def _flipped_axis(node: Node) -> int | None:
    """The axis of 2 entries that a slice turns round, -1 or -2; None where it does something else."""
    steps, shape = list(node.attrs["steps"]), node.inputs[0].shape
    if node.shape != shape or sorted(steps) != [-1, *[1] * (len(steps) - 1)]:
        return None
    axis = steps.index(-1) - len(shape)
    return axis if axis >= -2 and shape[axis] == 2 else None


def _is_one_head(node: Node, entries: Sequence[object]) -> bool:
    """Returns whether a node has such entries, the same for all heads."""
    return list(node.shape[-2:]) == entries and bool(size(node.shape[:-2]) == 1)


def _is_norm(x: Node, site: MatchSite) -> bool:
    """Returns whether a node is a norm by the root of the mean square, with a weight, of one row."""
    return (
        x.op == "rms_norm"
        and x.attrs["axis"] % len(x.shape) == len(x.shape) - 1
        and tuple(x.attrs["present"]) == ("weight",)
        and not site.is_output(x)
        and not site.blocked(x)
    )


def _may_norm(reader: Node, x: Node, site: MatchSite) -> bool:
    """Returns whether a reader of a norm can make it itself."""
    if reader.op == "packed_products":
        return reader.inputs[0] is x and not reader.attrs["present"]
    return _is_product(reader, site) and reader.inputs[0] is x
