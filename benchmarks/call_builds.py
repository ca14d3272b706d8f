"""Two builds of rlx side by side on the CPU: what a call costs, apart from the work that it does.

usage: python benchmarks/call_builds.py BASE NEW [--pairs 200] [--json FILE]

BASE and NEW are what ``benchmarks/builds.py`` takes. Each runs in a process of its own. They take turns on one
processor in bursts of calls, base and new one after the other, and each pair gives a ratio. A ratio above 1 says that
NEW is slower. The graphs are so small that the call itself is a large part: one element, and a perceptron of two
layers of 8 and of 64. "views" calls ``run_slots()``, "arguments" gives it arrays.
"""

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from builds import Build

BURST = 4000
SIZES = (1, 8, 64)


def runner(size):
    """``run_slots`` of a graph of a size, and arguments for it."""
    import rlx

    rng = np.random.default_rng(0)
    g = rlx.Graph("call")
    x = g.input("x", (1, size))
    weights = {}
    y = g.tanh(x)
    if size > 1:
        y = x
        for name in ("a", "b"):
            weights[name] = rng.normal(0, 0.2, (size, size)).astype("f4")
            y = g.gelu(y @ g.param(name, (size, size)))
    g.set_outputs([y])
    compiled = rlx.compile(g, "cpu", weights, rlx.CompileOptions(threads=1))
    return compiled.run_slots, (rng.normal(size=(1, size)).astype("f4"),)


def nanoseconds(call, arguments):
    """Returns the nanoseconds of one call, as the mean of a burst."""
    times = itertools.repeat(None, BURST)
    began = time.perf_counter_ns()
    for _ in times:
        call(*arguments)
    return (time.perf_counter_ns() - began) / BURST


def serve():
    """The side of one build: reads a command a line, answers with a line of JSON."""
    os.environ["RLX_CACHE"] = "off"
    import rlx

    results = {size: runner(size) for size in SIZES}
    print(json.dumps({"where": rlx.__file__}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        call, arguments = results[command["size"]]
        inputs = arguments if command["way"] == "arguments" else ()
        print(json.dumps({"ns": nanoseconds(call, inputs)}), flush=True)


def compare(builds, size, way, pairs):
    """Medians of both builds, and the median and quartiles of the ratios."""
    times = []
    for index in range(pairs + 2):
        order = (0, 1) if index % 2 == 0 else (1, 0)
        pair = {which: builds[which].ask(size=size, way=way)["ns"] for which in order}
        times.append((pair[0], pair[1]))
    times = times[2:]  # the first ones fill caches
    low, ratio, high = np.percentile([new / base for base, new in times], (25, 50, 75)).tolist()
    base, new = np.median(times, 0).tolist()
    results = {"size": size, "way": way, "base_ns": base, "new_ns": new}
    return results | {"ratio": ratio, "q": [low, high]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="an interpreter, or a folder that holds the built package")
    parser.add_argument("new", help="the same of the other build")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    processors = [os.cpu_count() - 1]  # the first one serves the machine's interrupts
    builds = [Build(where, processors, __file__) for where in (arguments.base, arguments.new)]
    print(f"base {builds[0].about['where']}\nnew  {builds[1].about['where']}")
    lines = []
    for size, way in itertools.product(SIZES, ("views", "arguments")):
        line = compare(builds, size, way, arguments.pairs)
        lines.append(line)
        spread = f"{line['q'][0]:.3f} ... {line['q'][1]:.3f}"
        times = f"{line['base_ns']:8.0f} {line['new_ns']:8.0f} ns"
        print(f"{size:3} {way:10} {times}  {line['ratio']:.3f}  {spread}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(lines))


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
