"""Matrix products fused with the operations around them."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.abi.products import ACTIVATIONS
from rlx.ir.dtype import HALVES, DType
from rlx.ir.graph import Graph, Node
from rlx.passes.patterns.match import Match, MatchSite, either_way, joined_node


def product(node: Node, site: MatchSite) -> Match | None:
    """act(x @ w + bias), or without an activation."""
    act, add = "none", node
    if node.op in ACTIVATIONS:
        act, add = node.op, node.inputs[0]
    if add.op != "add" or (act != "none" and site.only(add) is not node):
        return None
    for item, bias in either_way(add):
        if item.op != "matmul" or site.only(item) is not add or bias is item:
            continue
        x, w = item.inputs
        fits = len(x.shape) >= 2 and len(w.shape) == 2
        fits = fits and len(bias.shape) == 1 and bias.shape == item.shape[-1:]
        if not fits or add.shape != item.shape or site.blocked(item):
            continue
        if act == "none":
            following = site.only(add)
            if following is not None and following.op in ACTIVATIONS:
                return None  # the pattern is found at the activation instead
        inside = (item, add) if act == "none" else (item, add, node)
        return Match(
            inside, joined_node("fused_matmul_bias_act", (x, w, bias), {"act": act}, node.name)
        )
    return None


def rounded(node: Node, site: MatchSite) -> Match | None:
    """A product by coarse weights, and a bias; the CPU keeps their codes and rounds the other operand."""
    if not site.fuses("coarse_weights") or node.attrs.get("act", "none") != "none":
        return None
    x, turned, *bias = node.inputs
    if turned.op != "transpose" or tuple(turned.attrs["perm"]) != (1, 0):
        return None
    (w,) = turned.inputs
    plain = w.inputs[0] if w.op == "reshape" else w
    if plain.op != "coarse_weights" or plain.shape[-1:] != w.shape[-1:]:
        return None
    codes, scales = plain.inputs
    shape = tuple(w.shape)

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        rows = g.reshape(indices[codes.id], shape), g.reshape(indices[scales.id], shape[:1])
        operands = [indices[x.id], *rows, *(indices[item.id] for item in bias)]
        return g.add_node("rounded_matmul", operands, {}, node.name)

    inside = (plain, w, turned, node) if w is not plain else (w, turned, node)
    return Match(inside, build)


def rounded_recurrence(node: Node, site: MatchSite) -> Match | None:
    """A recurrence with coarse weights, on the CPU likewise."""
    xw, r, *rest = node.inputs
    if not site.fuses("coarse_weights") or r.op != "coarse_weights" or xw.dtype is not DType.F32:
        return None
    operands = (xw, *r.inputs, *rest)
    return Match((r, node), joined_node("rounded_recurrence", operands, node.attrs, node.name))


def transposed(node: Node, site: MatchSite) -> Match | None:
    """X @ y where y is transposed just before, or x, which the CPU's kernels do not read so."""
    if any(len(operand.shape) < 2 for operand in node.inputs):
        return None
    x, y = node.inputs
    left = site.fuses("left_transposed") and _exchanged(x, node, site)
    right = _exchanged(y, node, site)
    if not left and not right:
        return None
    inside = sorted({o.id: o for o, own in ((x, left), (y, right)) if own}.items())
    operands = (x.inputs[0] if left else x, y.inputs[0] if right else y)
    replacement = joined_node("matmul_transposed", operands, {"left": left, "right": right})
    return Match((*(o for _, o in inside), node), replacement)


def _exchanged(operand: Node, product: Node, site: MatchSite) -> bool:
    """Returns whether an operand is a matrix with its last two axes exchanged for this product alone."""
    rank = len(operand.shape)
    exchange = (*range(rank - 2), rank - 1, rank - 2)
    return (
        operand.op == "transpose"
        and tuple(operand.attrs["perm"]) == exchange
        and not operand.fixed
        and site.only(operand) is product
    )


def scaled(node: Node, site: MatchSite) -> Match | None:
    """A product of bytes, as f32, times a scale or one per column. On a CPU that is another pass anyway."""
    if not site.fuses("scaled_integers"):
        return None
    for cast, scale in either_way(node):
        if cast.op != "cast" or site.only(cast) is not node or cast.dtype is not DType.F32:
            continue
        (result,) = cast.inputs
        if result.op != "matmul_integer" or site.only(result) is not cast or site.blocked(result):
            continue
        a, b = result.inputs
        fits = len(b.shape) == 2 and scale.shape in ((), (1,), result.shape[-1:])
        if fits and node.shape == result.shape and scale.dtype is DType.F32:
            replacement = joined_node("scaled_matmul_integer", (a, b, scale), name=node.name)
            return Match((result, cast, node), replacement)
    return None


def half_table(node: Node, site: MatchSite) -> Match | None:
    """Rows of a table in 16 bits that are widened; a GPU would widen the whole table first."""
    (gather,) = node.inputs
    if site.kernels.on_host or gather.op != "gather" or gather.attrs["axis"] != 0:
        return None
    w, rows = gather.inputs
    fits = w.dtype in HALVES and len(w.shape) == 2 and w.shape[1] % 4 == 0 and w.op == "param"
    if not fits or node.dtype is not DType.F32 or site.only(gather) is not node:
        return None
    return Match((gather, node), joined_node("half_rows", (w, rows), name=node.name))


def half_weights(node: Node, site: MatchSite) -> Match | None:
    """``halves`` on a GPU, whose kernels for such weights do nothing behind the product."""
    return None if site.kernels.on_host else halves(node, site)


def halves(node: Node, site: MatchSite) -> Match | None:
    """A product by a weight in 16 bits that is widened for it alone; kernels do so in registers."""
    if not site.fuses("half_weights") or node.dtype is not DType.F32:
        return None
    x, wide, *bias = node.inputs
    turned = wide.op == "transpose" and tuple(wide.attrs["perm"]) == (1, 0)
    cast = wide.inputs[0] if turned else wide
    if (
        cast.op != "cast"
        or node.attrs.get("left")
        or site.only(cast) is not (wide if turned else node)
    ):
        return None
    (w,) = cast.inputs
    if w.dtype not in HALVES or len(w.shape) != 2 or w.op not in ("param", "constant"):
        return None
    if turned and (node.attrs.get("right") or site.only(wide) is not node):
        return None
    transposed = turned or node.attrs.get("right", False)
    attrs = {"act": node.attrs.get("act", "none"), "transposed": transposed}
    # A GPU does so for weights [n, k] in whole pieces.
    narrow = not transposed or w.shape[1] % 32 or not w.shape[1]
    if not site.kernels.on_host and (attrs["act"] != "none" or narrow):
        return None
    inside = (cast, wide, node) if turned else (cast, node)
    if bias and not site.kernels.on_host:

        def build(g: Graph, indices: Mapping[int, Node]) -> Node:
            product = g.add_node("half_matmul", [indices[x.id], indices[w.id]], attrs, node.name)
            return product + indices[bias[0].id]

        return Match(inside, build)
    return Match(inside, joined_node("half_matmul", (x, w, *bias), attrs, node.name))
