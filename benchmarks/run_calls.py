"""Measures ``run`` beside ``run_slots``, for arrays from 256 B to 64 MiB.

usage: python benchmarks/run_calls.py [--only REGEX] [--threads N] [--seconds 2] [--docs docs/benchmarks.md]

``run`` takes named inputs and returns fresh arrays; ``run_slots`` takes the same arrays by position and returns views.
Both are timed in turns. A row is marked where ``run`` takes more than 1.15 times as long and 5 us.
"""

import argparse
import re
from pathlib import Path

import numpy as np
from cpu_clock import in_pairs
from onnx import TensorProto, helper
from report import markdown, write_between

import rlx
from rlx.backends.cpu.cpu_backend import processor
from rlx.threads import thread_count

SIZES = {f"{n} B": n for n in (256, 4096)} | {f"{n} KiB": n << 10 for n in (64, 256)}
SIZES |= {f"{n} MiB": n << 20 for n in (1, 4, 16, 64)}
# The bound of run: this many times as long as run_slots, and microseconds more.
FACTOR, MORE = 1.15, 5.0


def softmax(g, x):
    return g.softmax(x)


def add(g, x, y):
    return x + y


def matmul(g, x, y):
    return x @ y


# Graphs by name: the function, how many inputs it takes, and the last axis of arrays of n numbers.
GRAPHS = {
    "softmax": (softmax, 1, lambda n: min(n, 1024)),
    "add": (add, 2, lambda n: n),
    "matmul": (matmul, 2, lambda n: int(n**0.5)),
}


def arrays(count, shape):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for _ in range(count)]


def graph_calls(name, nbytes, options):
    """``run`` and ``run_slots`` of one of GRAPHS."""
    make, count, last = GRAPHS[name]
    numbers = nbytes // 4
    shape = (numbers // last(numbers), last(numbers))
    g = rlx.Graph(name)
    g.set_outputs([make(g, *(g.input(f"x{index}", shape) for index in range(count)))])
    cg = rlx.compile(g, "cpu", options=options)
    arguments = arrays(count, shape)
    named = {f"x{index}": array for index, array in enumerate(arguments)}
    return (lambda: cg.run(named)), (lambda: cg.run_slots(*arguments))


def model_calls(nbytes, options):
    """``Model.run`` of a model with three inputs, and ``run_slots`` of its graph."""
    shape = [nbytes // 4 // 64, 64]
    names = ["x0", "x1", "x2"]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]
    nodes = [
        helper.make_node("Mul", ["x0", "x1"], ["product"]),
        helper.make_node("Add", ["product", "x2"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"], axis=-1),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    output = helper.make_graph(nodes, "three inputs", ports, [result])
    file = helper.make_model(output, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    model = rlx.onnx.Model(file.SerializeToString(), "cpu", options=options)
    arguments = arrays(3, shape)
    named = dict(zip(names, arguments, strict=True))
    cg = model.compile(named)
    return (lambda: model.run(named)), (lambda: cg.run_slots(*arguments))


def rows(arguments):
    """``(name, microseconds of run, of run_slots, their ratio)`` of each row; results are compared first."""
    options = rlx.CompileOptions(threads=arguments.threads)
    for what in (*GRAPHS, "model of 3 inputs"):
        for size, nbytes in SIZES.items():
            name = f"{what}, {size}"
            if not re.search(arguments.only, name):
                continue
            result = graph_calls(what, nbytes, options) if what in GRAPHS else None
            run, slots = result or model_calls(nbytes, options)
            for first, other in zip(run(), slots(), strict=True):
                np.testing.assert_array_equal(first, other)
            pair = in_pairs([run, slots], arguments.seconds)
            yield name, *pair.p50, 1 / pair.ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name fits this pattern")
    parser.add_argument("--threads", type=int, help="threads of a graph")
    parser.add_argument("--seconds", type=float, default=2.0, help="about so long for a row")
    parser.add_argument("--docs", type=Path, help="puts the table into this file")
    arguments = parser.parse_args()
    threads = thread_count(arguments.threads)
    cells = []
    for name, run, slots, ratio in rows(arguments):
        # By the ratio of bursts that follow each other: other programs slow single bursts down.
        over = "*" if ratio * slots > FACTOR * slots + MORE else ""
        cells.append(
            [name, f"{slots:,.1f}", f"{run:,.1f}", f"{run - slots:+,.1f}", f"{ratio:.2f}{over}"]
        )
        print(*cells[-1], sep=" | ", flush=True)
    over = sum(row[-1].endswith("*") for row in cells)
    text = [
        f"Measured on: {processor()}, {threads} threads; {over} of {len(cells)} rows take more than "
        f"{FACTOR} times as long and {MORE:g} us (marked).",
        "",
        *markdown(
            ["arrays of", "us, run_slots", "us, run", "difference", "run / run_slots"], cells
        ),
    ]
    if arguments.docs:
        write_between(arguments.docs, "benchmarks/run_calls.py", "\n".join(text))


if __name__ == "__main__":
    main()
