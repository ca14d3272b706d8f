"""Convolutions fused with later operations."""

from __future__ import annotations

from collections.abc import Mapping

from rlx.abi.products import ACTIVATIONS
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import size
from rlx.ops.windows.convolution import suits_units
from rlx.ops.windows.fused import FUSED
from rlx.ops.windows.hwio_weights import TURNED
from rlx.passes.patterns.match import Build, Match, MatchSite, either_way, joined_node

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d")


def _per_channel(node: Node, conv: Node) -> bool:
    """Returns whether an operand has one value per channel of a convolution's result, beside it."""
    shape = (1,) * (len(conv.shape) - len(node.shape)) + node.shape
    return size(node.shape) == conv.shape[1] and shape[1] == conv.shape[1]


def _with_bias(g: Graph, conv: Node, x: Node, w: Node, bias: Node) -> Node:
    """The convolution with another weight and bias."""
    attrs = {key: value for key, value in conv.attrs.items() if key not in ("present", "bias")}
    result: Node = getattr(g, conv.op)(x, w, bias=_flat(g, bias, conv), **attrs)
    return result


def _flat(g: Graph, values: Node, conv: Node) -> Node:
    """The values per channel as ``[channels]``."""
    wanted = (conv.shape[1],)
    if values.op == "reshape" and values.inputs[0].shape == wanted:
        return values.inputs[0]
    return values if values.shape == wanted else g.reshape(values, wanted)


def conv_bias(node: Node, site: MatchSite) -> Match | None:
    """conv(x, w) + bias."""
    for conv, bias in either_way(node):
        if conv.op not in _CONVOLUTIONS or site.only(conv) is not node or len(conv.inputs) != 2:
            continue
        if bias is conv or node.shape != conv.shape or not _per_channel(bias, conv):
            continue
        return Match((conv, node), _biased(conv, bias))
    return None


def _biased(conv: Node, bias: Node) -> Build:
    x, w = conv.inputs
    return lambda g, index: _with_bias(g, conv, index[x.id], index[w.id], index[bias.id])


def conv_affine(node: Node, site: MatchSite) -> Match | None:
    """conv(x, w, b) * factor + shift with values per channel that depend on no input: a batch norm.

    The weights are multiplied instead: conv(x, w * factor, b * factor + shift).
    """
    conv, factor, shift = node.inputs
    if conv.op not in _CONVOLUTIONS[:3] or site.only(conv) is not node:
        return None
    fixed = all(_per_channel(o, conv) and o.fixed for o in (factor, shift))
    if not fixed or node.shape != conv.shape or not all(item.fixed for item in conv.inputs[1:]):
        return None
    x, w, *bias = conv.inputs

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        scale, moved = (_flat(g, indices[item.id], conv) for item in (factor, shift))
        if bias:
            moved = g.fma(indices[bias[0].id], scale, moved)
        scaled = g.mul(indices[w.id], g.reshape(scale, (conv.shape[1], *(1,) * (len(w.shape) - 1))))
        return _with_bias(g, conv, indices[x.id], scaled, moved)

    return Match((conv, node), build)


def conv_after(node: Node, site: MatchSite) -> Match | None:
    """act(conv(x, w, b) + r), or with one of the two, on a CPU: its kernels do so before they store results.

    y * sigmoid(y) of a convolution y is the activation silu.

    On a GPU it is another pass anyway.
    """
    if not site.fuses("convolution_epilogue"):
        return None
    if node.op == "mul":
        return _conv_silu(node, site)
    act, add = "none", node
    if node.op in ACTIVATIONS and node.op != "none":
        act, add = node.op, node.inputs[0]
        if add.op in FUSED and site.only(add) is node and not site.blocked(add):
            return Match((add, node), _followed(add, None, act, node.name))
    if add.op != "add" or (act != "none" and site.only(add) is not node):
        return None
    if act == "none" and (following := site.only(add)) is not None and following.op in ACTIVATIONS:
        return None  # the pattern is found at the activation instead
    for conv, residual in either_way(add):
        alone = conv.op in FUSED and site.only(conv) is add and residual is not conv
        if alone and residual.shape == conv.shape == add.shape and not site.blocked(conv):
            inside = (conv, add) if act == "none" else (conv, add, node)
            return Match(inside, _followed(conv, residual, act, node.name))
    return None


def _conv_silu(node: Node, site: MatchSite) -> Match | None:
    for conv, gate in either_way(node):
        if gate.op == "sigmoid" and gate.inputs[0] is conv and conv.op in FUSED:
            if site.private((conv, gate), node) and not site.blocked(conv):
                return Match((conv, gate, node), _followed(conv, None, "silu", node.name))
    return None


def _followed(conv: Node, residual: Node | None, act: str, name: str) -> Build:
    operands = [*conv.inputs, *(() if residual is None else (residual,))]
    present = (
        *(("bias",) if len(conv.inputs) > 2 else ()),
        *(() if residual is None else ("residual",)),
    )
    attrs = {**conv.attrs, "present": present, "act": act}
    return joined_node(FUSED[conv.op], operands, attrs, name)


def turned_weight(node: Node, site: MatchSite) -> Match | None:
    """A convolution on matrix units: its known weight is brought into their order once, not in every run."""
    x, w, *bias = node.inputs
    taps = size(w.shape[2:])
    if not site.fuses("turned_weights") or not w.fixed or taps == 1 or not suits_units(node):
        return None
    if node.dtype not in (DType.F32, DType.F16):
        return None

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        flat = g.reshape(indices[w.id], (*w.shape[:2], taps))
        turned = g.reshape(g.transpose(flat, (0, 2, 1)), w.shape)
        operands = [indices[x.id], turned, *(indices[item.id] for item in bias)]
        return g.add_node(TURNED[node.op], operands, node.attrs, node.name)

    return Match((node,), build)
