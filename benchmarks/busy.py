"""Measures how much longer networks take on the CPU beside a program that keeps its cores busy.

usage: python benchmarks/busy.py [--seconds 2] [--repeats 5] [--only REGEX] [--docs FILE]

The other program has a process for each core, then for half of them, which computes all the time. Networks of many calls
run with a thread for each core; a run waits for the slowest thread after each call. Loads take turns. The table has the
mean time of a run alone, and how many times as long it is beside others: medians of turns.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from report import markdown, write_between

import rlx
from rlx.backends.cpu.cpu_backend import processor
from rlx.threads import usable_cores

RNG = np.random.default_rng(0)


def noise(*shape):
    return RNG.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))


def products():
    """A chain of 64 products with activations."""
    g = rlx.Graph()
    x = h = g.input("x", (128, 384))
    for _ in range(64):
        h = g.gelu(h @ g.constant(noise(384, 384)) + g.constant(noise(384)))
    g.set_outputs([h])
    return g, noise(*x.shape)


def residuals():
    """Blocks of a residual network: 64 convolutions, of one point and of nine, and sums."""
    g = rlx.Graph()
    x = h = g.input("x", (1, 64, 56, 56))
    for _ in range(32):
        inner = g.relu(g.conv2d(h, g.constant(noise(64, 64, 3, 3) / 8), padding=1))
        h = g.relu(h + g.conv2d(inner, g.constant(noise(64, 64, 1, 1) / 8)))
    g.set_outputs([h])
    return g, noise(*x.shape)


def attention():
    """Layers of a transformer: norms, products, attention and sums."""
    g = rlx.Graph()
    x = h = g.input("x", (64, 256))
    one, zero = g.constant(np.ones(256, np.float32)), g.constant(np.zeros(256, np.float32))
    for _ in range(12):
        n = g.layer_norm(h, one, zero)
        q, k, v = (g.reshape(n @ g.constant(noise(256, 256)), (1, 64, 4, 64)) for _ in range(3))
        q, k, v = (g.transpose(item, (0, 2, 1, 3)) for item in (q, k, v))
        made = g.reshape(g.transpose(g.attention(q, k, v), (0, 2, 1, 3)), (64, 256))
        h = h + made @ g.constant(noise(256, 256))
        n = g.layer_norm(h, one, zero)
        h = h + g.gelu(n @ g.constant(noise(256, 1024))) @ g.constant(noise(1024, 256) / 2)
    g.set_outputs([h])
    return g, noise(*x.shape)


GRAPHS = {
    "64 products of 128 x 384": products,
    "64 convolutions, 64 channels of 56 x 56": residuals,
    "12 layers of attention, 64 x 256": attention,
}


def mean_ms(run, others, seconds):
    """The mean time of a run while so many other processes compute, and whether all gave the same bits."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(others)]
    try:
        time.sleep(0.2)
        runs, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            run()
            runs += 1
        return 1000 * (time.perf_counter() - began) / runs
    finally:
        for one in started:
            one.kill()
            one.wait()


def measured(name, cores, seconds, repeats):
    """The row of a graph."""
    graph, x = GRAPHS[name]()
    loads = {n: [] for n in (0, cores, cores // 2)}
    with rlx.compile(graph, "cpu", options=rlx.CompileOptions(threads=cores)) as compiled:
        expected = compiled.run_slots(x)[0].tobytes()

        def run():
            if compiled.run_slots(x)[0].tobytes() != expected:
                raise SystemExit(f"{name}: other bits")

        for _ in range(repeats):
            for others, times in loads.items():
                times.append(mean_ms(run, others, seconds))
    alone = median(loads[0])
    return [
        name,
        f"{alone:.2f}",
        *(
            f"{median(b / a for a, b in zip(loads[0], loads[n], strict=True)):.2f}"
            for n in (cores, cores // 2)
        ),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="a regular expression of the graphs")
    parser.add_argument("--docs", type=Path, help="a page with a place for the table")
    args = parser.parse_args()
    cores = usable_cores()
    cells = [
        measured(name, cores, args.seconds, args.repeats)
        for name in GRAPHS
        if re.search(args.only, name)
    ]
    headings = ["graph", "ms alone", f"{cores} others", f"{cores // 2} others"]
    text = f"Measured on: {processor()}; cores: {cores}.\n\n" + "\n".join(markdown(headings, cells))
    print(text)
    if args.docs:
        write_between(args.docs, "benchmarks/busy.py", text)


if __name__ == "__main__":
    main()
