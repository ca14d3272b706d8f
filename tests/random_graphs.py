"""Random graphs over all ops, for comparing backends: each op as one of its record's samples has it.

Operands are nodes made earlier, brought to the sample's shape, dtype and range by ops that don't amplify
errors. What jumps (rounding, comparing, sorting) reads values that are exact on every backend, so that an
error in the last place can't flip it.
"""

from __future__ import annotations

import numpy as np
from samples import SIZED_BY_DATA

from rlx.ir.dtype import DType, store, widen
from rlx.ir.graph import PART, Graph
from rlx.ir.opdef import REGISTRY
from rlx.ops.declare import bind_reference, call_with
from rlx.ops.placeholders import LEAVES

# Ops whose results jump with their operands, or that blow up small differences (a norm of equal values).
_JUMPS = {
    "floor", "ceil", "round", "sign", "mod", "fmod", "quantize", "sample", "find_peaks", "topk", "sort",
    "argsort", "argmax", "argmin", "eq", "ne", "lt", "le", "gt", "ge", "is_nan", "is_inf", "max_pool",
    "nonzero_count", "welch_peaks", "log_mel", "log_mel_backward", "hard_swish", "while_", "if_",
    "layer_norm", "group_norm", "instance_norm", "batch_norm", "rms_norm", "l2_normalize",
    "cast", "cumprod", "prod", "tan", "atan2", "power", "pow", "sosfilt", "lfilter", "logsumexp",
}  # fmt: skip
_CUSTOM_MAIN = {
    DType.F32,
    DType.F16,
    DType.BF16,
    DType.I32,
    DType.U32,
    DType.BOOL,
    DType.I8,
    DType.U8,
}


def choices():
    """(record, sample, dtypes) of every public op, in types that all backends compute natively."""
    results = {}
    for opdef in REGISTRY.values():
        if opdef.internal or opdef.name in SIZED_BY_DATA:
            continue
        taken = []
        for sample in opdef.samples:
            if sample.bench or sum(int(np.prod(s)) for s in sample.shapes) > 4096:
                continue
            if sample.dtypes is not None:
                taken.append((sample, sample.dtypes))
            else:
                main = sorted(opdef.accepts & _CUSTOM_MAIN, key=str)
                taken += [(sample, (dtype,) * len(sample.shapes)) for dtype in main]
        taken = [
            (sample, dtypes)
            for sample, dtypes in taken
            if not {DType.F64, DType.I64} & set(dtypes)
            and sample.attrs.get("dtype") not in (DType.F64, DType.I64, "f64", "i64")
        ]
        if taken:
            results[opdef.name] = taken
    return results


CHOICES = choices()


class RandomGraphBuilder:
    """Grows one graph."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.g = Graph(f"random {seed}")
        self.values = {}
        self.params = {}
        self.pool = []  # (node, exact)

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def draw(self, shape, dtype, low, high):
        if dtype is DType.BOOL:
            return self.rng.integers(0, 2, shape).astype(np.bool_)
        if dtype in (DType.U8, DType.U32):
            low = max(low, 0)
        return store(self.rng.uniform(low, high, shape), dtype)

    def leaf(self, shape, dtype, low, high, value=None):
        """A new input, param or constant."""
        array = self.draw(shape, dtype, low, high) if value is None else value
        kind = self.pick(("input", "input", "param", "constant"))
        if kind == "constant":
            return self.g.constant(array, dtype)
        name = f"{kind}{len(self.values) + len(self.params)}"
        (self.values if kind == "input" else self.params)[name] = array
        return getattr(self.g, kind)(name, shape, dtype)

    def adapt(self, node, shape, dtype, low, high):
        """An earlier node brought to a shape, dtype and range, without amplifying its error."""
        g = self.g
        size = int(np.prod(shape))
        flat = g.reshape(node, (-1,))
        have = flat.shape[0]
        if have < size:
            flat = g.tile(flat, -(-size // have))
        if flat.shape[0] > size:
            flat = g.narrow(flat, 0, int(self.rng.integers(flat.shape[0] - size + 1)), size)
        x = g.reshape(flat, shape)
        if node.dtype is not DType.F32:
            x = g.cast(x, DType.F32)
        x = g.where(g.logical_or(g.is_nan(x), g.is_inf(x)), 0.25, x)
        x = g.clip(x, -1e4, 1e4)
        x = g.softsign(x)
        x = g.add(g.mul(x, float(high - low) / 2), float(high + low) / 2)
        return x if dtype is DType.F32 else g.cast(x, dtype)

    def operand(self, shape, dtype, low, high, exact):
        nodes = [n for n, is_exact in self.pool if n.type.size and (is_exact or not exact)]
        fresh = not nodes or self.rng.random() < 0.3
        # Casting to an integer jumps, so it needs an exact value as well: a leaf is one.
        if fresh or exact or not dtype.is_float:
            return self.leaf(shape, dtype, low, high), True
        return self.adapt(self.pick(nodes), shape, dtype, low, high), False

    def add(self):
        name = self.pick(list(CHOICES))
        opdef = REGISTRY[name]
        sample, dtypes = self.pick(CHOICES[name])
        jumps = name in _JUMPS
        operands = []
        for index, (shape, dtype) in enumerate(zip(sample.shapes, dtypes, strict=True)):
            low = sample.low[index] if isinstance(sample.low, tuple) else sample.low
            high = sample.high[index] if isinstance(sample.high, tuple) else sample.high
            if sample.values is not None:
                value = store(np.asarray(sample.values[index]), dtype)
                operands.append((self.leaf(shape, dtype, low, high, value), True))
            else:
                operands.append(self.operand(shape, dtype, low, high, jumps))
        attrs = dict(sample.attrs)
        names = [text for text in opdef.operands if text.rstrip("?*") not in attrs]
        inputs = {}
        for index, text in enumerate(names):
            key = text.rstrip("?*")
            if text.endswith("*"):
                inputs[key] = [node for node, _ in operands[index:]]
            elif index < len(operands):
                inputs[key] = operands[index][0]
        result = call_with(getattr(self.g, name), opdef.signature, {**inputs, **attrs})
        for node in result if isinstance(result, tuple) else (result,):
            self.pool.append((node, False))

    def build(self, least, limit):
        target = int(self.rng.integers(least, limit + 1))
        while len(self.g.nodes) < target:
            self.add()
        used = {operand.id for node in self.g.nodes for operand in node.inputs}
        ends = [n for n, _ in self.pool if n.id not in used]
        some = [n for n, _ in self.pool if self.rng.random() < 0.1]
        self.g.set_outputs([*ends, *some] or [self.g.nodes[-1]])
        return self


def random_graph(seed, least=5, limit=60):
    """A graph of at least ``least`` nodes, the values of its inputs, and those of its params."""
    result = RandomGraphBuilder(seed).build(least, limit)
    return result.g, result.values, result.params


def unrounded(graph, leaves):
    """The outputs without rounding floats between nodes: how far rounding carries."""
    values = {}
    for node in graph.nodes:
        operands = [values[operand.id] for operand in node.inputs]
        if node.op in LEAVES:
            result = leaves[node.name] if node.op != "constant" else node.attrs["value"]
            values[node.id] = (widen(np.asarray(result), node.dtype),)
        elif node.op == PART:
            values[node.id] = (operands[0][node.attrs["index"]],)
        else:
            bound = bind_reference(node.opdef, node.attrs, [o[0] for o in operands])
            with np.errstate(all="ignore"):
                result = call_with(node.opdef.reference, node.opdef.signature, bound)
            listed = result if isinstance(result, tuple) else (result,)
            values[node.id] = tuple(
                np.asarray(v, np.float64 if t.dtype.is_float else t.dtype.numpy)
                for v, t in zip(listed, node.types, strict=True)
            )
    return [values[node.id][0] for node in graph.outputs]
