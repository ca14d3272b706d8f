"""Graph -> Graph with channels as the last axis of convolutions and of the operations between them, on the CPU.

The kernels of convolutions read channels that are next to each other. A value ``[N, C, ...]`` that a convolution makes exists
as ``[N, ..., C]``. Its readers take that form if they can, and a transpose gives the usual form to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.ir.graph import Graph, Node
from rlx.ir.notes import Note
from rlx.ir.rewrite import Rewriter, reached
from rlx.ir.shape import same_size
from rlx.ops.declare import operand_names
from rlx.ops.windows.convolution_cpu import suits_last
from rlx.ops.windows.fft_conv import samples_of_block
from rlx.ops.windows.geometry import collapsed, window_of
from rlx.passes.fusion_gate import Specialisation

CONVOLUTIONS = tuple(f"{form}conv{rank}d" for form in ("", "fused_") for rank in (1, 2, 3))


def _is_one(n: Any) -> bool:
    return same_size(n, 1)


def _order(rank: int) -> tuple[int, ...]:
    """The axes of ``[N, ..., C]``, as they are called in ``[N, C, ...]``."""
    return (0, *range(2, rank), 1)


def _back(rank: int) -> tuple[int, ...]:
    """The axes of ``[N, C, ...]``, as they are called in ``[N, ..., C]``."""
    return (0, rank - 1, *range(1, rank - 1))


def _moved(items: Any) -> tuple[Any, ...]:
    """The items of the axes of ``[N, C, ...]`` in the order of ``[N, ..., C]``."""
    return tuple(items[axis] for axis in _order(len(items)))


def _axis(axis: int, rank: int) -> int:
    return _order(rank).index(axis)


class _Forms(Rewriter):
    """A rewriter that knows the values whose channels are last."""

    def __init__(self, old: Graph) -> None:
        super().__init__(old)
        self.last: dict[int, Node] = {}
        # What convolutions depend on.
        self.before = reached(node for node in old.nodes if node.op in CONVOLUTIONS)
        self._source: str | None = None

    def add(self, op: str, inputs: list[Node], attrs: Mapping[str, Any]) -> Node:
        """Appends a node of the operation in hand."""
        return self.new.add_node(op, inputs, attrs, source=self._source)

    def _permuted(self, x: Node, perm: tuple[int, ...]) -> Node:
        """The axes of a value in another order; a view where only axes of size 1 move."""
        if x.op == "constant":
            value = np.ascontiguousarray(x.attrs["value"].transpose(perm))
            value.setflags(write=False)
            return self.add("constant", [], {**x.attrs, "value": value})
        kept = [axis for axis in perm if not _is_one(x.shape[axis])]
        if kept == sorted(kept):
            return self.add("reshape", [x], {"shape": tuple(x.shape[axis] for axis in perm)})
        if x.op == "transpose":
            perm = tuple(x.attrs["perm"][axis] for axis in perm)
            x = x.inputs[0]
            if perm == tuple(range(len(perm))):
                return x
        return self.add("transpose", [x], {"perm": perm})

    def with_last(self, node: Node) -> Node:
        """A value of the old graph with its channels last."""
        if node.id not in self.last:
            self.last[node.id] = self._permuted(self[node], _order(len(node.shape)))
        return self.last[node.id]

    def __getitem__(self, node: Node) -> Node:
        """The new node that replaces an old one, in the usual form."""
        if node.id not in self._map:
            self.replace(node, self._permuted(self.last[node.id], _back(len(node.shape))))
        return super().__getitem__(node)

    def beside(self, node: Node, rank: int) -> Node:
        """An operand that is repeated to a shape of some axes, with its channels last."""
        if all(map(_is_one, node.shape)):
            return self[node]
        if len(node.shape) == rank:
            return self.with_last(node)
        shape = (*(1,) * (rank - len(node.shape)), *node.shape)
        return self._permuted(self.add("reshape", [self[node]], {"shape": shape}), _order(rank))

    def visit(self, node: Node) -> bool:
        """Makes a node of the new graph; returns whether its channels are last."""
        self._source = node.source
        made = None
        if node.op in CONVOLUTIONS:
            made = _convolution(self, node)
        elif node.op == "transpose" and node.attrs["perm"] == _back(len(node.shape)):
            made = self.last[node.id] = self[node.inputs[0]]
        elif (x := _shuffled(node)) is not None and x.id in self.last:
            made = _shuffle(self, node, x)
        elif any(operand.id in self.last for operand in node.inputs) and len(node.types) == 1:
            rule = _elementwise if node.opdef.elementwise else _RULES.get(node.op)
            made = rule(self, node) if rule else None
        if made is None:
            for operand in node.inputs:
                self[operand]
            self.keep(node)
            return False
        return True


def _result(
    forms: _Forms, node: Node, op: str, inputs: list[Node], attrs: Mapping[str, Any]
) -> Node:
    """Makes a node whose channels are last."""
    made = forms.last[node.id] = forms.add(op, inputs, attrs)
    return made


def _convolution(forms: _Forms, node: Node) -> Node | None:
    x = node.inputs[0]
    known, single = x.id in forms.last, node.inputs[1].shape[1] == 1
    fixed = node.inputs[1].fixed
    if samples_of_block(node, collapsed(window_of(node)), fixed):
        return None
    if not suits_last(node) and not (known and node.attrs["groups"] == 1):
        return None
    if single and node.attrs["groups"] > 1 and not known:
        return None
    operands = dict(zip(operand_names(node), node.inputs, strict=True))
    inputs = [
        forms.with_last(operand) if name in ("x", "residual") else forms[operand]
        for name, operand in operands.items()
    ]
    attrs = {key: node.attrs[key] for key in ("stride", "padding", "dilation", "groups")}
    present = tuple(name for name in ("bias", "residual") if name in operands)
    attrs |= {"present": present, "act": node.attrs.get("act", "none")}
    return _result(forms, node, "conv_last", inputs, attrs)


def _elementwise(forms: _Forms, node: Node) -> Node | None:
    rank = len(node.shape)
    whole = [item for item in node.inputs if item.id in forms.last and item.shape == node.shape]
    if rank < 3 or not whole:
        return None
    return _result(
        forms, node, node.op, [forms.beside(item, rank) for item in node.inputs], node.attrs
    )


def _pool(forms: _Forms, node: Node) -> Node | None:
    x = forms.with_last(node.inputs[0])
    if len(x.shape) > 4:
        return None
    # The channels are a third axis, whose windows are single elements.
    a, one = node.attrs, forms.add("reshape", [x], {"shape": (x.shape[0], 1, *x.shape[1:])})
    each = {key: (*a[key], 1) for key in ("kernel", "stride", "dilation")}
    each["padding"] = (*a["padding"], (0, 0))
    pooled = forms.add(node.op, [one], {**a, **each})
    shape = (pooled.shape[0], *pooled.shape[2:])
    return _result(forms, node, "reshape", [pooled], {"shape": shape})


def _reduction(forms: _Forms, node: Node) -> Node | None:
    x, axes = node.inputs[0], node.attrs["axes"]
    rank = len(x.shape)
    if not node.attrs["keepdims"] and 1 not in axes and not {*range(2, rank)} <= {*axes}:
        return None
    attrs = {**node.attrs, "axes": tuple(sorted(_axis(axis, rank) for axis in axes))}
    inputs = [forms.with_last(x), *(forms[item] for item in node.inputs[1:])]
    if node.attrs["keepdims"]:
        return _result(forms, node, node.op, inputs, attrs)
    made = forms.add(node.op, inputs, attrs)
    forms.replace(node, made)
    return made


def _along_axis(forms: _Forms, node: Node) -> Node | None:
    attrs = {**node.attrs, "axis": _axis(node.attrs["axis"], len(node.shape))}
    return _result(forms, node, node.op, [forms.with_last(item) for item in node.inputs], attrs)


def _concat(forms: _Forms, node: Node) -> Node | None:
    there = sum(item.type.size for item in node.inputs if item.id in forms.last)
    return _along_axis(forms, node) if 2 * there >= node.type.size else None


def _pad(forms: _Forms, node: Node) -> Node | None:
    attrs = {**node.attrs, "pads": _moved(node.attrs["pads"])}
    inputs = [forms.with_last(node.inputs[0]), *(forms[item] for item in node.inputs[1:])]
    return _result(forms, node, node.op, inputs, attrs)


def _slice(forms: _Forms, node: Node) -> Node | None:
    attrs = {**node.attrs, **{key: _moved(node.attrs[key]) for key in ("starts", "stops", "steps")}}
    return _result(forms, node, node.op, [forms.with_last(node.inputs[0])], attrs)


def _resize(forms: _Forms, node: Node) -> Node | None:
    from rlx.ops.resize.plane import passes_of

    rank = len(node.shape)
    # Where no convolution follows, channels move back while there are few elements.
    if node.id not in forms.before and node.inputs[0].type.size < node.type.size:
        return None
    x = forms.with_last(node.inputs[0])
    for attrs in passes_of(node) if node.op == "interpolate_plane" else [node.attrs]:
        x = forms.add("interpolate", [x], {**attrs, "axis": _axis(attrs["axis"], rank)})
    forms.last[node.id] = x
    return x


def _reshape(forms: _Forms, node: Node) -> Node | None:
    x, shape = node.inputs[0], node.shape
    if len(shape) < 3 or not all(map(same_size, x.shape[:2], shape[:2])):
        return None
    return _result(forms, node, "reshape", [forms.last[x.id]], {"shape": _moved(shape)})


def _shuffled(node: Node) -> Node | None:
    """The value whose channels a node takes in turns from groups: ``[N, a, b, ...]``, whose first two axes change places."""
    if node.op != "reshape" or node.inputs[0].op != "transpose":
        return None
    turned = node.inputs[0]
    split, rank = turned.inputs[0], len(turned.shape)
    if split.op != "reshape" or turned.attrs["perm"] != (0, 2, 1, *range(3, rank)):
        return None
    x = split.inputs[0]
    same = (*x.shape[:1], *x.shape[2:]) == (*split.shape[:1], *split.shape[3:])
    return x if same and rank == len(x.shape) + 1 and x.shape == node.shape else None


def _shuffle(forms: _Forms, node: Node, x: Node) -> Node:
    whole, (first, second) = forms.last[x.id], node.inputs[0].inputs[0].shape[1:3]
    split = forms.add("reshape", [whole], {"shape": (*whole.shape[:-1], first, second)})
    rank = len(split.shape)
    perm = (*range(rank - 2), rank - 1, rank - 2)
    turned = forms.add("transpose", [split], {"perm": perm})
    return _result(forms, node, "reshape", [turned], {"shape": whole.shape})


def _transpose(forms: _Forms, node: Node) -> Node | None:
    x = node.inputs[0]
    order = _order(len(x.shape))
    perm = tuple(order.index(axis) for axis in node.attrs["perm"])
    made = forms._permuted(forms.last[x.id], perm)
    forms.replace(node, made)
    return made


_RULES: Mapping[str, Callable[[_Forms, Node], Node | None]] = {
    "max_pool": _pool, "window_sum": _pool, "concat": _concat, "narrow": _along_axis, "softmax": _along_axis,
    "log_softmax": _along_axis, "pad_constant": _pad, "pad_repeat": _pad, "slice": _slice, "interpolate": _resize,
    "interpolate_plane": _resize, "reshape": _reshape, "transpose": _transpose,
    **dict.fromkeys(("sum", "mean", "max", "min", "prod", "sum_squares", "sum_abs"), _reduction),
}  # fmt: skip


def move_channels(graph: Graph, notes: list[Note], target: Specialisation) -> Graph:
    """Makes channels the last axis of convolutions and of the operations between them."""
    forms = _Forms(graph)
    count = sum(forms.visit(node) for node in graph.nodes)
    if not forms.last:
        return graph
    notes.append(Note.of("channels_last", f"{count} operations have their channels last"))
    return forms.finish()
