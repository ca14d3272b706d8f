"""Measures what a run costs whose sizes have changed: beside a run of the same sizes, and beside a graph without dims.

usage: python benchmarks/resizes.py [--device cpu|webgpu] [--layers 1,16,64] [--rows 12] [--seconds 1]

A layer is a product, a sum, a norm and an activation, each a call of a kernel; rows are a dim. Sizes differ by one row, so that
kernels take the same time. The three runs take turns. Printed are medians in microseconds, and what a change adds.
"""

import argparse
import os
import time
from statistics import median

os.environ["RLX_CACHE"] = "off"

import numpy as np
from rich.console import Console
from rich.table import Table

import rlx

WIDTH = 16


def network(rows, layers):
    """The graph of so many layers."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("layers")
    x = g.input("x", (rows, WIDTH))
    for index in range(layers):
        w = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
        y = g.softmax(x @ g.param(f"w{index}", w.shape, value=w))
        x = g.cumsum(x + y, 1)
    g.set_outputs([x])
    return g


def measured(device, layers, rows, seconds):
    """Calls of kernels; and median microseconds of a static run, of one of the same sizes, of a changed one, and of the change."""
    options = rlx.CompileOptions(fuse=False, threads=1)
    static = rlx.compile(network(rows, layers), device, options=options)
    sized = rlx.compile(network(rlx.Dim("rows"), layers), device, options=options)
    small, large = (np.ones((count, WIDTH), np.float32) for count in (rows - 1, rows))
    for x in (large, small, large):
        sized.run_slots(x)
    spent = {"static": [], "same": [], "changed": []}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(spent["static"]) < 20:
        for name, run, x, before in (
            ("static", static.run_slots, large, large),
            ("same", sized.run_slots, large, large),
            ("changed", sized.run_slots, large, small),
        ):
            run(before)
            began = time.perf_counter_ns()
            run(x)
            spent[name].append((time.perf_counter_ns() - began) / 1e3)
    calls = int(sized.as_text("schedule").split()[1])
    pairs = zip(spent["changed"], spent["same"], strict=True)
    return calls, [median(times) for times in (*spent.values(), [a - b for a, b in pairs])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "webgpu"])
    parser.add_argument("--layers", default="1,16,64", metavar="LIST")
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    table = Table("calls", "static", "same sizes", "changed", "a change adds", title=args.device)
    for layers in map(int, args.layers.split(",")):
        calls, times = measured(args.device, layers, args.rows, args.seconds)
        table.add_row(str(calls), *(f"{value:.1f}" for value in times))
    Console().print(table)


if __name__ == "__main__":
    main()
