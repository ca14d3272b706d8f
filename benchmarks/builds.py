"""Two builds of rlx side by side: which kernels and calls became faster or slower.

usage: python benchmarks/builds.py BASE NEW [--only REGEX] [--device NAME] [--call run] [--threads N] [--seconds S]
                                   [--json FILE]

BASE and NEW are Python interpreters that have rlx installed, or folders that hold a built ``rlx`` package. Each runs
in a process of its own with the same workloads: the rows of ``benchmarks/cpu.py``, and the large sample of every
operation in every dtype that it takes. The two processes take turns in bursts on the same processors, so that both
see the same machine. A ratio above 1 says that NEW is faster; the quartiles of the pairs say how much to believe it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

PAIRS, BURST_NS, MAX_CALLS = 15, 4_000_000, 1000
DTYPES = ("f32", "f64", "i32", "i64", "u32")


def workloads():
    """Name -> function that gives ``(graph, values of its inputs, weights)``; runs inside a build."""
    from cpu_rows import ROWS
    from work import graph_of

    from rlx.ir.dtype import DType
    from rlx.ops.conformance_cases import Case, cases

    def of_row(row):
        work = row.work(row.size)
        graph = graph_of(work)
        weights = {name: work.values[name] for name in work.weights}
        return graph, [work.values[name] for name in graph.input_names], weights

    def of_case(case):
        return case.graph(), case.operands(), {}

    results = {row.name: (of_row, row) for row in ROWS}
    for case in cases(bench=True):
        uniform = len(set(case.dtypes)) == 1 and case.sample.dtypes is None
        taken = [DType.parse(name) for name in DTYPES] if uniform else case.dtypes[:1]
        for dtype in taken:
            if not uniform:
                results[str(case)] = of_case, case
            elif dtype in case.opdef.dtypes:
                single = Case(case.opdef, case.sample, (dtype,) * len(case.dtypes), case.number)
                results[str(single)] = of_case, single
    return results


def serve():
    """The side of one build: reads a command a line, answers with a line of JSON."""
    os.environ["RLX_CACHE"] = "off"
    import rlx

    listed, call = workloads(), None
    answers = {"names": list(listed), "where": rlx.__file__}
    print(json.dumps(answers), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "row" in command:
                make, what = listed[command["row"]]
                graph, values, weights = make(what)
                options = rlx.CompileOptions(threads=command["threads"], fold=False)
                compiled = rlx.compile(graph, command["device"], weights, options)
                for view, value in zip(compiled.input_views, values, strict=True):
                    view[...] = value
                call = compiled.run_slots
                if command["call"] == "run":
                    named = dict(zip(graph.input_names, compiled.input_views, strict=True))
                    call = partial(compiled.run, {name: v.copy() for name, v in named.items()})
                call()
                answer = {"ns": min(burst(call, 3))}
            else:
                answer = {"ns": median(burst(call, command["calls"]))}
        except Exception as error:  # whatever goes wrong costs this row only
            answer = {"failure": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        print(json.dumps(answer), flush=True)


def burst(call, count):
    """Returns the nanoseconds of each of some calls, after one warm-up call."""
    clock, spent = time.perf_counter_ns, []
    call()
    for _ in range(count):
        began = clock()
        call()
        spent.append(clock() - began)
    return spent


class Build:
    """One build, in a process of its own, which runs the script given."""

    def __init__(self, where, processors, script=__file__):
        path = Path(where).absolute()
        env = dict(os.environ)
        python = str(path)
        if path.is_dir():
            python = sys.executable
            env["PYTHONPATH"] = os.pathsep.join([str(path), env.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [python, script, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._process.pid, processors)
        self.about = self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the build ended with status {self._process.wait()}")
        return json.loads(line)

    def ask(self, **command):
        """Sends a command and waits for its answer."""
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return self._answer()


def compare(builds, name, arguments):
    """The ratios of one workload: the time of the base by that of the new build."""
    line = {"row": name}
    asked = {"threads": arguments.threads, "device": arguments.device, "call": arguments.call}
    first = [build.ask(row=name, **asked) for build in builds]
    failures = [item["failure"] for item in first if "failure" in item]
    if failures:
        return line | {"failure": failures[0]}
    calls = [int(min(MAX_CALLS, max(1, BURST_NS // max(1, item["ns"])))) for item in first]
    times, until = [], time.perf_counter() + arguments.seconds
    while len(times) < 5 or (len(times) < PAIRS and time.perf_counter() < until):
        order = (0, 1) if len(times) % 2 == 0 else (1, 0)
        pair = {index: builds[index].ask(calls=calls[index])["ns"] for index in order}
        times.append((pair[0], pair[1]))
    low, middle, high = np.percentile([base / new for base, new in times], (25, 50, 75)).tolist()
    base, new = np.median(times, 0).tolist()
    return line | {"base_us": base / 1e3, "new_us": new / 1e3, "ratio": middle, "q": [low, high]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="an interpreter, or a folder that holds the built package")
    parser.add_argument("new", help="the same of the other build")
    parser.add_argument("--only", default="", metavar="REGEX", help="workloads whose name fits")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--call", choices=("run_slots", "run"), default="run_slots")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each workload")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    # The last processors: the first ones serve the machine's interrupts.
    processors = list(range(os.cpu_count()))[-arguments.threads :]
    builds = [Build(where, processors) for where in (arguments.base, arguments.new)]
    print(f"base {builds[0].about['where']}\nnew  {builds[1].about['where']}")
    names = [name for name in builds[0].about["names"] if name in builds[1].about["names"]]
    lines = []
    for name in (name for name in names if re.search(arguments.only, name)):
        line = compare(builds, name, arguments)
        lines.append(line)
        if "failure" in line:
            print(f"{name:48} {line['failure']}", flush=True)
            continue
        sure = (
            "" if line["q"][0] <= 1 <= line["q"][1] else "slower" if line["ratio"] < 1 else "faster"
        )
        print(
            f"{name:48} {line['base_us']:12.1f} {line['new_us']:12.1f} us  {line['ratio']:5.2f}"
            f"  {line['q'][0]:5.2f} ... {line['q'][1]:5.2f}  {sure}",
            flush=True,
        )
        if arguments.json:
            arguments.json.write_text(
                json.dumps({"builds": [b.about for b in builds], "rows": lines})
            )
    ratios = [line["ratio"] for line in lines if "ratio" in line]
    slower = sorted((r for r in lines if r.get("q", [1, 1])[1] < 0.97), key=lambda r: r["ratio"])
    print(f"{len(ratios)} workloads, geometric mean {np.exp(np.mean(np.log(ratios))):.3f}")
    print(f"{len(slower)} slower with the upper quartile below 0.97:")
    for line in slower:
        print(f"  {line['ratio']:.2f} ({line['q'][0]:.2f} ... {line['q'][1]:.2f}) {line['row']}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
