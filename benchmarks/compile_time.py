"""Measures how long models of many nodes take to load, compile and run once, in fresh processes without caches.

usage: python benchmarks/compile_time.py [cpu webgpu ...] [--runs 5] [--threads N] [--nodes 100 1000 10000] [--json FILE]

Models of about 100, 1,000, 5,000 and 10,000 nodes, in blocks as residual networks have, and a transformer of 12 layers as
exporters write it (width 768, 128 tokens, weights of 340 MB). ONNX Runtime's CPU provider creates a session and runs once
beside it. Times are medians without Python's start and imports. The exponent is the slope of the logarithm of time over
that of nodes: 1 is linear.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from cold import BEFORE
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from rlx.cli.cold import measure
from rlx.threads import thread_count

WIDTH, LAYERS, HEADS, MODEL_WIDTH, LENGTH = 32, 12, 12, 768, 128


class Writer:
    """Writes an ONNX graph node by node."""

    def __init__(self):
        self.nodes, self.weights, self.rng = [], {}, np.random.default_rng(0)

    def __call__(self, kind, *operands, **attributes):
        """Adds a node, and gives the name of its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(operands), [name], **attributes))
        return name

    def weight(self, *shape):
        """Adds normal numbers, of a size that keeps results near 1."""
        values = self.rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
        return self.constant(values)

    def constant(self, values):
        """Adds an array."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(values)
        return name

    def write(self, path, result, shape):
        """Writes the model, from ``x`` to a result of the same shape."""
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", result)]
        weights = [numpy_helper.from_array(weight, name) for name, weight in self.weights.items()]
        graph = helper.make_graph(self.nodes, "model", ports[:1], ports[1:], weights)
        sets = [helper.make_opsetid("", 20)]
        output = helper.make_model(graph, opset_imports=sets, ir_version=9)
        path.write_bytes(output.SerializeToString())


def blocks(path, nodes):
    """About so many nodes in residual blocks of ten; gives the input."""
    to, x = Writer(), "x"
    scale, half = to.constant(np.ones(WIDTH, np.float32)), to.constant(np.float32(0.5))
    while len(to.nodes) < nodes:
        y = to("LayerNormalization", x, scale)
        y = to("Add", to("MatMul", y, to.weight(WIDTH, WIDTH)), to.weight(WIDTH))
        y = to("Mul", y, to("Sigmoid", y))
        y = to("Softmax", to("MatMul", y, to.weight(WIDTH, WIDTH)), axis=-1)
        x = to("Add", to("Mul", to("Tanh", y), half), x)
    to.write(path, x, [8, WIDTH])
    return np.random.default_rng(1).normal(size=(8, WIDTH)).astype(np.float32)


def transformer(path):
    """A transformer's layers as PyTorch's exporter writes them; gives the input."""
    to, x = Writer(), "x"
    split = to.constant(np.array([1, LENGTH, HEADS, MODEL_WIDTH // HEADS]))
    joined = to.constant(np.array([1, LENGTH, MODEL_WIDTH]))
    root = to.constant(np.float32((MODEL_WIDTH // HEADS) ** 0.5))
    two, first, half = (to.constant(np.float32(v)) for v in (2**0.5, 1, 0.5))

    def dense(y, a, b):
        return to("Add", to("MatMul", y, to.weight(a, b)), to.weight(b))

    def normed(y):
        ones, zeros = np.ones(MODEL_WIDTH, np.float32), np.zeros(MODEL_WIDTH, np.float32)
        return to("LayerNormalization", y, to.constant(ones), to.constant(zeros))

    def heads(y, order):
        return to("Transpose", to("Reshape", y, split), perm=order)

    for _ in range(LAYERS):
        q, k, v = (dense(x, MODEL_WIDTH, MODEL_WIDTH) for _ in range(3))
        scores = to("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
        weights = to("Softmax", to("Div", scores, root), axis=-1)
        y = to("Transpose", to("MatMul", weights, heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        x = normed(to("Add", x, dense(to("Reshape", y, joined), MODEL_WIDTH, MODEL_WIDTH)))
        y = dense(x, MODEL_WIDTH, 4 * MODEL_WIDTH)
        y = to("Mul", to("Mul", y, to("Add", to("Erf", to("Div", y, two)), first)), half)
        x = normed(to("Add", x, dense(y, 4 * MODEL_WIDTH, MODEL_WIDTH)))
    to.write(path, x, [1, LENGTH, MODEL_WIDTH])
    return np.random.default_rng(1).normal(size=(1, LENGTH, MODEL_WIDTH)).astype(np.float32)


def without_imports(row):
    """Median milliseconds of first runs without caches."""
    return sum(row.middle("cold", p) for p in row.phases() if p not in (*BEFORE, "import"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("devices", nargs="*", default=["cpu"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 1000, 5000, 10000])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    table = Table(title="Load, compile and first run without caches, milliseconds")
    for heading in ("model", "contestant", "first", "of it passes", "us a node"):
        table.add_column(heading, justify="left" if heading in ("model", "contestant") else "right")
    rows, names = [], [*args.devices, "onnxruntime"]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.onnx"
        makers = {f"{n:,} nodes": (n, lambda n=n: blocks(path, n)) for n in args.nodes}
        makers["12-layer transformer"] = None, lambda: transformer(path)
        for model, (count, make) in makers.items():
            inputs = {"x": make()}
            spec = {"model": str(path), "threads": thread_count(args.threads)}
            with tempfile.TemporaryDirectory() as own:
                result = measure(spec, inputs, names, args.runs, Path(own))
            for item in result:
                if item.error:
                    print(f"{model}: {item.name}: {item.error}", flush=True)
                    continue
                ms, passes = without_imports(item), item.middle("cold", "passes")
                rows.append({"model": model, "nodes": count, "contestant": item.name, "ms": ms})
                each = f"{ms * 1e3 / count:,.0f}" if count else ""
                table.add_row(model, item.name, f"{ms:,.0f}", f"{passes:,.0f}", each)
    Console().print(table)
    for contestant in names:
        points = [
            (r["nodes"], r["ms"]) for r in rows if r["contestant"] == contestant and r["nodes"]
        ]
        if len(points) > 1:
            exponent, _ = np.polyfit(*np.log(points).T, 1)
            print(f"{contestant}: exponent {exponent:.2f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
