"""Measures how well calls on the CPU share cores: with threads of one graph, and with a process on the same cores.

usage: python benchmarks/sharing.py [--cores 2] [--seconds 1.5] [--repeats 5] [--json sharing.json] [--docs FILE]

Of each graph: the time of a call on 1, 2, 4 ... threads, on twice as many threads as cores, and of two processes that
run it at the same time with a thread for each core. A fair share of two is half of what one process makes alone.
Processes are bound to the cores on Linux; turns are repeated, and medians printed.
"""

import argparse
import json
import os
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

# Workers wait for so long before they begin, so that two begin together.
AHEAD_S = 1.5
RNG = np.random.default_rng(0)


def noise(*shape):
    return RNG.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))


def products(rows, size, count):
    """A chain of matrix products, each with an activation."""
    g = rlx.Graph()
    position = g.input("x", (rows, size))
    for _ in range(count):
        position = g.gelu(position @ g.constant(noise(size, size)) + g.constant(noise(size)))
    g.set_outputs([position])
    return g, noise(rows, size)


def convolutions(channels, side, count):
    """A chain of 3x3 convolutions."""
    g = rlx.Graph()
    position = g.input("x", (1, channels, side, side))
    for _ in range(count):
        position = g.relu(
            g.conv2d(position, g.constant(noise(channels, channels, 3, 3)), padding=1)
        )
    g.set_outputs([position])
    return g, noise(1, channels, side, side)


def rows(count, size):
    """Ops of rows, which wait for memory."""
    g = rlx.Graph()
    x = g.input("x", (count, size))
    g.set_outputs([g.softmax(g.layer_norm(x, g.constant(noise(size)), g.constant(noise(size))))])
    return g, noise(count, size)


def recurrence(steps, units):
    """A recurrence of one sequence, whose steps wait for each other."""
    g = rlx.Graph()
    x = g.input("x", (steps, 1, units))
    weights = (g.constant(noise(1, 4 * units, units)) for _ in range(2))
    g.set_outputs([g.lstm(x, *weights)[0]])
    return g, noise(steps, 1, units)


GRAPHS = {
    "12 products of 64 x 128": lambda: products(64, 128, 12),
    "6 products of 256 x 512": lambda: products(256, 512, 6),
    "8 convolutions, 64 channels of 56 x 56": lambda: convolutions(64, 56, 8),
    "rows, 4096 x 1024": lambda: rows(4096, 1024),
    "lstm, 32 steps of 512 units": lambda: recurrence(32, 512),
}


def worker(name, threads, seconds, begin):
    """Prints how many calls a second the graph makes from the moment `begin` on."""
    graph, x = GRAPHS[name]()
    with rlx.compile(graph, "cpu", options=rlx.CompileOptions(threads=threads)) as compiled:
        for _ in range(3):
            compiled.run_slots(x)
        time.sleep(max(0.0, begin - time.time()))
        calls, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            compiled.run_slots(x)
            calls += 1
        print(calls / (time.perf_counter() - began))


def calls_a_second(name, threads, cores, seconds, processes=1):
    """Returns the calls per second of each of some processes that run at the same time on the same cores."""

    def bind():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])

    begin = time.time() + AHEAD_S
    command = [sys.executable, __file__, "--worker", name, str(threads), str(seconds), str(begin)]
    setup = bind if hasattr(os, "sched_setaffinity") else None
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=setup)
        for _ in range(processes)
    ]
    return [float(item.communicate()[0]) for item in started]


def measured(name, cores, seconds, repeats):
    """Medians of some turns: calls a second by threads, and the share of each of two processes."""
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores] + [2 * cores]
    speeds, shares = {n: [] for n in counts}, []
    for _ in range(repeats):
        for n in counts:
            speeds[n] += calls_a_second(name, n, cores, seconds)
        both = calls_a_second(name, cores, cores, seconds, processes=2)
        shares.append([item / (speeds[cores][-1] / 2) for item in both])
    lesser, greater = (median(share) for share in zip(*map(sorted, shares), strict=True))
    return {
        "graph": name,
        "calls_a_second": {n: median(speed) for n, speed in speeds.items()},
        "shares": [lesser, greater],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=usable_cores())
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="a regular expression of the graphs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="a page with a place for the table")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, threads, seconds, begin = args.worker
        worker(name, int(threads), float(seconds), float(begin))
        return
    results = [
        measured(name, args.cores, args.seconds, args.repeats)
        for name in GRAPHS
        if re.search(args.only, name)
    ]
    counts = list(results[0]["calls_a_second"])
    headings = [
        "graph",
        "us, 1 thread",
        *(f"{n} threads" for n in counts[1:]),
        "two processes, share",
    ]
    cells = []
    for row in results:
        speeds, (lesser, greater) = row["calls_a_second"], row["shares"]
        faster = (f"{speeds[n] / speeds[1]:.1f} x" for n in counts[1:])
        first = row["graph"], f"{1e6 / speeds[1]:,.0f}"
        cells.append([*first, *faster, f"{lesser:.2f} and {greater:.2f}"])
    text = f"Measured on: {processor()}; cores: {args.cores}.\n\n" + "\n".join(
        markdown(headings, cells)
    )
    print(text)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    if args.docs:
        write_between(args.docs, "benchmarks/sharing.py", text)


if __name__ == "__main__":
    main()
