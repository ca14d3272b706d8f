"""Throughput of a pool of devices beside that of each of its devices alone.

usage: python benchmarks/pool.py [--devices cpu,webgpu,...] [--items 400] [--json FILE] [--docs PAGE]
       python benchmarks/pool.py --from-json benchmarks/pool_h100.json --docs docs/scaling.md

Each model is run on the same inputs through a pool of one device, for each device, and through one of all of them, in turns.
The last column is the pool's throughput over the sum of the others. Devices that share a processor (a GPU that the CPU
imitates, and the CPU) can't reach the sum.
"""

import argparse
import json
import math
import time
from pathlib import Path
from statistics import median

import numpy as np
import report
from rich.console import Console
from rich.table import Table

SCRIPT = "benchmarks/pool.py"
ROUNDS = 3


def mlp(rng, rows, width, layers):
    """A chain of products with an activation."""
    import rlx

    g = rlx.Graph(f"mlp of {layers} x {width}, {rows} rows")
    x = g.input("x", (rows, width))
    for index in range(layers):
        w = rng.standard_normal((width, width)).astype(np.float32) * width**-0.5
        x = g.gelu(x @ g.param(f"w{index}", w.shape, value=w))
    g.set_outputs([x])
    return g


def convolutions(rng, images, channels, side, layers):
    """A chain of 3x3 convolutions."""
    import rlx

    g = rlx.Graph(f"{layers} convolutions of {channels} channels, {images} x {side} x {side}")
    x = g.input("x", (images, channels, side, side))
    for index in range(layers):
        w = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / channels
        x = g.relu(g.conv2d(x, g.param(f"w{index}", w.shape, value=w), padding=1))
    g.set_outputs([g.mean(x, (2, 3))])
    return g


def graphs(rng):
    return [
        mlp(rng, 64, 512, 4),
        mlp(rng, 512, 1024, 6),
        convolutions(rng, 4, 32, 56, 6),
    ]


def rate(graph, devices, items):
    """Items a second."""
    import rlx

    with rlx.Pool(graph, devices) as pool:
        list(pool.map(items[:8]))
        began = time.perf_counter()
        count = sum(1 for _ in pool.map(items))
        return count / (time.perf_counter() - began)


def measure(graph, devices, count, rng):
    shape = graph.named("x").shape
    # Each item has numbers of its own: another beginning in one long row of numbers.
    size = math.prod(shape)
    row = rng.standard_normal(8 * size + count).astype(np.float32)
    starts = rng.choice(7 * size + count, count, replace=False)
    items = [row[start : start + size].reshape(shape) for start in starts]
    rounds = []
    for _ in range(ROUNDS):
        alone = [rate(graph, [device], items) for device in devices]
        rounds.append([*alone, rate(graph, devices, items)])
    rates = [median(column) for column in zip(*rounds, strict=True)]
    return {"model": graph.name, "rates": rates, "of_sum": rates[-1] / sum(rates[:-1])}


def finish(result, arguments, console):
    headings = ["model", *(f"{name}, items/s" for name in result["devices"]), "all", "of the sum"]
    cells = [
        [row["model"], *(f"{rate:,.0f}" for rate in row["rates"]), f"{row['of_sum']:.2f}"]
        for row in result["rows"]
    ]
    table = Table(*headings, title=result["machine"])
    for row in cells:
        table.add_row(*row)
    console.print(table)
    report.save(result, arguments)
    if arguments.docs:
        output = "\n".join(report.markdown(headings, cells))
        report.write_between(arguments.docs, SCRIPT, f"{output}\n\n{result['machine']}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="", help='"all" of the machine where none are given')
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--from-json", type=Path, help="take the figures from an earlier --json")
    arguments = parser.parse_args()
    console = Console(width=150)
    if arguments.from_json:
        return finish(json.loads(arguments.from_json.read_text()), arguments, console)
    import os

    from rlx.device.candidates import separate_devices
    from rlx.device.names import Device, info_of

    named = [Device.parse(part) for part in arguments.devices.split(",") if part]
    devices = named or separate_devices()
    adapters = [f"{device}: {info_of(device).adapter}" for device in devices]
    results = {"machine": f"{', '.join(adapters)}; {os.cpu_count()} processors"}
    results |= {"devices": list(map(str, devices)), "rows": []}
    rng = np.random.default_rng(0)
    for graph in graphs(rng):
        results["rows"].append(measure(graph, devices, arguments.items, rng))
        console.print(results["rows"][-1])
    return finish(results, arguments, console)


if __name__ == "__main__":
    main()
