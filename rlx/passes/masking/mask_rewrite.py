"""The masked graph: the padded one, with one more input that says how many elements are valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import PRESENT
from rlx.ir.rewrite import Rewriter
from rlx.passes.masking.analysis import Study
from rlx.passes.masking.dim_sizes import LENGTHS, Axis, Factor
from rlx.passes.masking.rules import MaskStep, places


def masked(study: Study) -> Graph:
    """The padded graph with the masks that a study asks for.

    What its outputs hold beyond the lengths is unspecified.
    """
    return _MaskRewriter(study).written()


class _MaskRewriter(Rewriter):
    def __init__(self, study: Study) -> None:
        super().__init__(study.graph)
        self._study = study
        self._lengths: Node | None = None
        self._made: dict[Any, Node] = {}
        # Axes of nodes of the new graph along which padding is known to be 0.
        self._clean: dict[int, frozenset[int]] = {}

    def written(self) -> Graph:
        """The graph."""
        inputs = [node for node in self.old.nodes if node.op == "input"]
        for node in inputs:
            self.keep(node)
        count = len(self._study.values)
        self._lengths = self.new.input(LENGTHS, (count,), DType.I32)
        for node, step in zip(self.old.nodes, self._study.steps, strict=True):
            if node.op == "input":
                continue
            write = _SPECIAL.get(step.special)
            if write is not None:
                new = write(self, node, step)
                new.name, new.source = node.name, node.source
            elif not step.masks:
                new = self.keep(node)
            else:
                operands = self.operands(node, step)
                new = self.new.add_node(node.opdef, operands, node.attrs, node.name, node.source)
            self.replace(node, new)
            if step.clean:
                self._clean[new.id] = step.clean
        return self.finish()

    def operands(self, node: Node, step: MaskStep) -> list[Node]:
        """The operands of a node, masked where its step says so."""
        results = [self[operand] for operand in node.inputs]
        for i, axis, fill in step.masks:
            value = self._scalar(node.inputs[fill]) if isinstance(fill, int) else None
            kind = fill if isinstance(fill, str) else ""
            results[i] = self.masked(results[i], axis, self.along(node, i, axis), kind, value)
        return results

    def _scalar(self, node: Node) -> Node:
        """The number that a node holds, or that it is filled with."""
        result = self[node.inputs[0] if node.op == "expand" else node]
        return result if not result.shape else self.new.reshape(result, ())

    def along(self, node: Node, operand: int, axis: int) -> Axis:
        """Returns the axis of an operand, with its lengths."""
        return self._study.axes(node.inputs[operand].id)[axis]

    def masked(self, x: Node, axis: int, of: Axis, fill: str, value: Node | None = None) -> Node:
        """A node whose padding along an axis is replaced."""
        if fill == "zero" and axis in self._clean.get(x.id, ()):
            return x
        key = "masked", x.id, axis, fill, None if value is None else value.id
        if key not in self._made:
            shape = [1] * len(x.shape)
            shape[axis] = x.shape[axis]
            other = value
            if other is None:
                other = self.new.constant(np.array(_fill(x.dtype, fill), x.dtype.numpy), x.dtype)
            new = self.new.where(self.new.reshape(self.valid(of), shape), x, other)
            self._made[key] = new
            if fill == "zero":
                self._clean[new.id] = self._clean.get(x.id, frozenset()) | {axis}
        return self._made[key]

    def length(self, of: Factor) -> Node:
        """Returns the number of valid elements, i32 ``[1]``."""
        pos = self._study.lengths[of.sizes[:-1]]
        if ("length", pos) not in self._made:
            assert self._lengths is not None
            self._made["length", pos] = self.new.narrow(self._lengths, 0, pos, 1)
        return self._made["length", pos]

    def valid(self, of: Axis) -> Node:
        """Returns a mask of the valid elements along an axis, bool ``[size]``."""
        key = "valid", *(factor.sizes[:-1] for factor in of)
        if key in self._made:
            return self._made[key]
        result = None
        for i, factor in enumerate(of):
            if factor.varies:
                places = np.arange(factor.sizes[0], dtype=np.int32)
                places = places.reshape([-1] + [1] * (len(of) - 1 - i))
                single = self.new.lt(self.new.constant(places), self.length(factor))
                result = single if result is None else self.new.logical_and(result, single)
        assert result is not None
        if len(of) > 1:
            result = self.new.expand(result, [factor.sizes[0] for factor in of])
            result = self.new.reshape(result, (result.type.size,))
        self._made[key] = result
        return result

    def count(self, axes: Sequence[Axis], dtype: DType) -> Node:
        """Returns the number of valid elements of some axes, as a float of shape ``[1]``."""
        fixed, result = 1, None
        for axis in axes:
            for factor in axis:
                if not factor.varies:
                    fixed *= factor.sizes[0]
                    continue
                length = self.new.cast(self.length(factor), dtype)
                result = length if result is None else self.new.mul(result, length)
        assert result is not None
        return result if fixed == 1 else self.new.mul(result, float(fixed))


def _fill(dtype: DType, kind: str) -> Any:
    """Returns the value that replaces padding."""
    if kind in ("zero", "one"):
        return int(kind == "one")
    if dtype is DType.BOOL:
        return kind == "high"
    if dtype.is_float:
        return np.inf if kind == "high" else -np.inf
    limits = np.iinfo(dtype.numpy)
    return limits.max if kind == "high" else limits.min


def _mean(to: _MaskRewriter, node: Node, step: MaskStep) -> Node:
    (x,) = to.operands(node, step)
    axes = to._study.axes(node.inputs[0].id)
    total = to.new.sum(x, node.attrs["axes"], node.attrs["keepdims"])
    count = to.count([axes[axis] for axis in node.attrs["axes"]], x.dtype)
    return to.new.div(total, count if total.shape else to.new.reshape(count, ()))


def _norm(to: _MaskRewriter, node: Node, step: MaskStep) -> Node:
    x, *rest = to.operands(node, step)
    axis, rank = node.attrs["axis"], len(x.shape)
    axes = list(range(axis, rank))
    old = to._study.axes(node.inputs[0].id)
    count = to.count([old[axis] for axis in axes], x.dtype)
    if node.op == "layer_norm":
        mean = to.new.div(to.new.sum(x, axes, True), count)
        x = to.new.sub(x, mean)
        for mask in step.masks:
            x = to.masked(x, mask.axis, to.along(node, 0, mask.axis), "zero")
    variance = to.new.div(to.new.sum(to.new.mul(x, x), axes, True), count)
    result = to.new.mul(x, to.new.rsqrt(to.new.add(variance, float(node.attrs["eps"]))))
    args = places(node)
    if "weight" in args:
        result = to.new.mul(result, rest[args["weight"] - 1])
    if "bias" in args:
        result = to.new.add(result, rest[args["bias"] - 1])
    return result


def _from_end(to: _MaskRewriter, node: Node, step: MaskStep) -> Node:
    """Cuts a piece at the end of the valid elements."""
    x, old = to[node.inputs[0]], to._study.axes(node.inputs[0].id)
    if node.op == "narrow":
        cuts = [(node.attrs["axis"], node.attrs["start"], 1, node.attrs["length"])]
    else:
        attrs = node.attrs
        cuts = [
            (axis, attrs["starts"][axis], attrs["steps"][axis], count)
            for axis, count in enumerate(node.shape)
        ]
    for axis, start, stride, count in cuts:
        if axis == step.axis:
            (factor,) = old[axis]
            offset = start - factor.sizes[0] + stride * np.arange(count, dtype=np.int32)
            places = to.new.add(to.length(factor), to.new.constant(offset.astype(np.int32)))
            x = to.new.gather(x, places, axis)
        elif (start, stride, count) != (0, 1, x.shape[axis]):
            stop = start + stride * count
            x = to.new.slice(
                x, [start], [stop if stop >= 0 else -x.shape[axis] - 1], [axis], [stride]
            )
    return x


def _attention(to: _MaskRewriter, node: Node, step: MaskStep) -> Node:
    q, k, v, *mask = to.operands(node, step)
    attrs = dict(node.attrs)
    at_keys = 2 if len(node.shape) == 4 and attrs["layout"] == "bhsd" else 1
    valid = to.valid(to.along(node, 1, at_keys))
    if attrs["kind"] == "bias":
        low = to.new.constant(np.array(-np.inf, q.dtype.numpy), q.dtype)
        result = to.new.where(valid, mask[0], low)
    else:
        result = to.new.expand(valid, (q.shape[0], k.shape[at_keys]))
        result = to.new.logical_and(result, mask[0]) if mask else result
        attrs.update(kind="custom")
    attrs[PRESENT] = ("mask",)
    return to.new.add_node(node.opdef, [q, k, v, result], attrs, node.name, node.source)


def _recurrence(to: _MaskRewriter, node: Node, step: MaskStep) -> Node:
    operands = [to[operand] for operand in node.inputs]
    (factor,) = to.along(node, 0, 0)
    return _ended(to, node, "seq_lens", to.new.expand(to.length(factor), operands[0].shape[1]))


def _counted(to: _MaskRewriter, node: Node, step: MaskStep) -> Node:
    (factor,) = to.along(node, 0, -1)
    return _ended(to, node, "count", to.length(factor))


def _ended(to: _MaskRewriter, node: Node, name: str, lengths: Node) -> Node:
    """A node whose last operand, which it may have already, says how many steps it takes."""
    operands, args = [to[operand] for operand in node.inputs], places(node)
    if name in args:
        operands[args[name]] = to.new.minimum(operands[args[name]], lengths)
    else:
        operands.append(lengths)
    attrs = {**node.attrs, PRESENT: tuple(dict.fromkeys((*node.attrs[PRESENT], name)))}
    return to.new.add_node(node.opdef, operands, attrs, node.name, node.source)


_SPECIAL: dict[str, Callable[[_MaskRewriter, Node, MaskStep], Node]] = {
    "mean": _mean,
    "norm": _norm,
    "from_end": _from_end,
    "attention": _attention,
    "recurrence": _recurrence,
    "counted": _counted,
}
