"""Compares the CPU backend's estimates of its kernels with their times, over random graphs of one node (cliffs.py).

usage: python benchmarks/estimates.py [--seed 1] [--cases 300] [--only REGEX] [--least 20]

A call is shared among threads by a rough estimate of its time on one thread (rlx/backends/cpu/split.py). Where an estimate
is far too low a kernel gets too few threads, and too many where it is far too high. A row is one kernel: how many times the
estimate it took, the median and both ends, and the cases of the ends. A case counts for the kernel that is expected to take
most of it. Cases of fewer microseconds than --least are left out: they stay on one thread.
"""

import argparse
import os
import re
from collections import defaultdict
from statistics import median

os.environ["RLX_CACHE"] = "off"

from cliffs import cases, compiled_of
from cpu_clock import burst
from rich.console import Console
from rich.progress import track
from rich.table import Table

from rlx.backends.cpu import linker
from rlx.backends.cpu.split import expected_ns

# Calls that are timed of a case, at least and at most, and about how many nanoseconds of them.
FEWEST, MOST, ENOUGH_NS = 5, 200, 20_000_000


def recorded(into):
    """Makes the linker tell which kernel calls it has."""
    shared = linker.split_of

    def seen(call, threads):
        into.append(call)
        return shared(call, threads)

    linker.split_of = seen


def taken(compiled):
    """Nanoseconds of a run, the median."""
    once = median(burst(compiled.run_slots, 3))
    return median(burst(compiled.run_slots, int(min(MOST, max(FEWEST, ENOUGH_NS // once)))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--only", default="")
    parser.add_argument("--least", type=float, default=20)
    chosen = parser.parse_args()
    calls, result = [], defaultdict(list)
    recorded(calls)
    drawn = [item for item in cases(chosen.seed, chosen.cases) if re.search(chosen.only, item.name)]
    for case in track(drawn, transient=True):
        calls.clear()
        compiled = compiled_of(case, "cpu", 1)
        expected = {call.kernel: expected_ns(call) for call in calls}
        took = taken(compiled)
        if expected and took >= 1e3 * chosen.least:
            ratio = took / max(1.0, sum(expected_ns(call) for call in calls))
            result[max(expected, key=expected.get)].append((ratio, took / 1e3, case.name))
    table = Table(
        "kernel", "cases", "least", "median", "most", "us, case of the least", "of the most"
    )
    for kernel, rows in sorted(result.items(), key=lambda item: -median(row[0] for row in item[1])):
        ends = min(rows), max(rows)
        ratios = ends[0][0], median(row[0] for row in rows), ends[1][0]
        said = [f"{us:,.0f}  {name[:60]}" for _, us, name in ends]
        table.add_row(kernel, str(len(rows)), *(f"{ratio:.2f}" for ratio in ratios), *said)
    Console(width=240).print(table)


if __name__ == "__main__":
    main()
