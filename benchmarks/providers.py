"""The same kernels through two WebGPU implementations: Dawn beside wgpu-native, in turns on one GPU.

usage: python benchmarks/providers.py [--only REGEX] [--devices webgpu,dawn] [--json FILE] [--docs PAGE]
       python benchmarks/providers.py --from-json benchmarks/providers_h100.json --docs docs/benchmarks.md

The rows are those of ``benchmarks/gpu.py`` that tell most, and all in f16 and bytes, which Dawn multiplies on matrix units
where a GPU has some. Many runs stand in one pass of one submission, without timestamps
between the kernels: the two implementations put the stamps of a pass on different sides of its barriers, so that
durations between stamps can't be compared. The time of a run is what twice as many runs take longer, which leaves the
submission and the wait out. The devices take turns; the figure is the median of the turns.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from statistics import geometric_mean, median

os.environ["RLX_CACHE"] = "off"

import numpy as np
import report
from gpu_clock import LoadedWorkload, copies_for
from gpu_rows import ROWS
from rich.console import Console
from rich.table import Table
from work import error_of, touched

SCRIPT = "benchmarks/providers.py"
# Turns of each device; about how long the GPU works in a turn, and before the first.
TURNS, TURN_NS, WARMING_NS = 9, 20e6, 400e6
# Bind groups of one pass at most.
MAX_DISPATCHES = 8192
# Rows that matrix units may take.
HALF = re.compile("f16|int8")


class ProviderDevice:
    """A workload on one device, its data there."""

    def __init__(self, work, device):
        self.loaded = LoadedWorkload(work, device, copies_for(work.nbytes or touched(work)))
        executables = [item._state.executable for item in self.loaded.compiled]
        self.error = error_of(work, self.loaded.outputs())
        self.right = self.error <= work.tolerance
        self._gpu = executables[0]._gpu
        self._batches = [
            batch for executable in executables for batch in executable._batches.current
        ]

    def spent(self, runs):
        """ns from handing over so many runs to their end."""
        encoder = self._gpu.device.create_command_encoder(label="benchmark")
        compute = encoder.begin_compute_pass(label="benchmark")
        for index in range(runs):
            for pipeline, group, x, y in self._batches[index % len(self._batches)]:
                compute.set_pipeline(pipeline)
                compute.set_bind_group(0, group)
                compute.dispatch_workgroups(x, y, 1)
        compute.end()
        commands = encoder.finish()
        began = time.perf_counter_ns()
        self._gpu.queue.submit([commands])
        self._gpu.device._poll_wait()
        return time.perf_counter_ns() - began

    def runs(self):
        """Returns the number of runs that fill a turn."""
        self.spent(1)
        few = 8
        each = max(1e3, (self.spent(3 * few) - self.spent(few)) / (2 * few))
        limit = MAX_DISPATCHES // (2 * max(map(len, self._batches)))
        return int(np.clip(TURN_NS / each, 4, max(4, limit)))

    def turn(self, runs):
        """us of a run."""
        return (self.spent(2 * runs) - self.spent(runs)) / runs / 1e3


def row_of(row, devices):
    """The line of a row: microseconds by device, and the second device's speed over the first's."""
    line = {"row": row.name, "size": row.size}
    results = []
    try:
        work = row.work(row.size)
        results = [ProviderDevice(work, name) for name in devices]
        if wrong := [name for name, item in zip(devices, results, strict=True) if not item.right]:
            return line | {"correct": False, "failure": f"wrong on {', '.join(wrong)}"}
        if any(item.loaded.on_the_host for item in results):
            return line | {"correct": True, "skipped": "partly on the host"}
        runs = max(item.runs() for item in results)
        until = time.perf_counter_ns() + WARMING_NS
        while time.perf_counter_ns() < until:
            for item in results:
                item.spent(runs)
        turns = np.array([[item.turn(runs) for item in results] for _ in range(TURNS)])
        line["us"] = dict(zip(devices, np.median(turns, 0).tolist(), strict=True))
        line["speed"] = median((turns[:, 0] / turns[:, 1]).tolist())
        facts = {
            "flops": work.flops,
            "error": results[1].error,
            "kernels": results[1].loaded.kernels(),
        }
        return line | facts | {"correct": True, "runs": runs}
    except Exception as error:  # whatever goes wrong costs this row only
        return line | report.failure(error)
    finally:
        for item in results:
            item.loaded.close()


def cells(line, devices):
    if "us" not in line:
        said = line.get("skipped") or line.get("failure", "")
        return [line["row"], *[""] * len(devices), said, "", ""]
    rate = line["flops"] / line["us"][devices[1]] / 1e6
    return [
        line["row"],
        *(f"{line['us'][name]:,.1f}" for name in devices),
        f"{line['speed']:.2f}",
        f"{rate:,.0f}" if rate >= 1 else "",
        f"{line['error']:.1e}",
    ]


def summary(lines):
    """The speeds of the rows in f32, and of the others."""
    said = []
    for name, half in (("f32", False), ("f16 and bytes", True)):
        speeds = [
            line["speed"]
            for line in lines
            if "speed" in line and half == bool(HALF.search(line["row"]))
        ]
        if speeds:
            mean = geometric_mean(speeds)
            said.append(
                f"{name}: geometric mean of {len(speeds)} speeds {mean:.2f}, least {min(speeds):.2f}"
            )
    return "; ".join(said)


def finish(result, arguments, console):
    """Tables and files from what was measured."""
    devices = result["devices"]
    last = devices[1]
    headings = ["kernel", *(f"{name}, us" for name in devices)]
    headings += [f"speed of {last}", f"{last}, T/s", f"error of {last}"]
    table = Table(*headings, title=f"{result['adapter']}, {', '.join(result['drivers'])}")
    for line in result["rows"]:
        table.add_row(*cells(line, devices))
    console.print(table)
    said = summary(result["rows"])
    console.print(said)
    report.save(result, arguments)
    if arguments.docs:
        rows = [cells(line, devices) for line in result["rows"]]
        output = "\n".join(report.markdown(headings, rows))
        report.write_between(arguments.docs, SCRIPT, f"{output}\n\n{result['adapter']}. {said}.")
    return int(not all(line["correct"] for line in result["rows"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name fits")
    parser.add_argument(
        "--devices", default="webgpu,dawn", help="two devices, the one to compare with first"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--from-json", type=Path, help="take the figures from an earlier --json")
    arguments = parser.parse_args()
    console = Console(width=150)
    if arguments.from_json:
        return finish(json.loads(arguments.from_json.read_text()), arguments, console)
    devices = arguments.devices.split(",")
    if len(devices) != 2:
        parser.error(f"--devices takes two names, got {arguments.devices!r}")
    import rlx
    from rlx.device.names import info_of

    infos = [info_of(rlx.Device.parse(name)) for name in devices]
    drivers = [f"{name}: {info.driver}" for name, info in zip(devices, infos, strict=True)]
    results = {"devices": devices, "adapter": infos[0].adapter, "drivers": drivers, "rows": []}
    rows = [row for row in ROWS if re.search(arguments.only, row.name)]
    for row in (row for row in rows if row.quick or HALF.search(row.name)):
        results["rows"].append(row_of(row, devices))
        console.print("  ".join(cells(results["rows"][-1], devices)), markup=False, highlight=False)
        report.save(results, arguments)
    return finish(results, arguments, console)


if __name__ == "__main__":
    sys.exit(main())
