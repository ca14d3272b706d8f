"""Peers of ``benchmarks/gpu.py`` on the same workloads and data, each in a process of its own.

usage: python benchmarks/gpu_peers.py torch|ort|tinygrad|scipy [--small] ROW ...

Prints a line of JSON for every row that the peer has. A peer that is not installed says so. A peer that dies loses only
its remaining rows.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from importlib import import_module
from statistics import median

os.environ.setdefault("RLX_CACHE", "off")

# The module of each peer's rows; all have ``start() -> str`` and ``measure(work) -> us or None``.
PEERS = {
    "torch": "gpu_peer_torch",
    "ort": "gpu_peer_ort",
    "tinygrad": "gpu_peer_tinygrad",
    "scipy": "gpu_peer_scipy",
}
# Seconds that a peer may take for all its rows.
LIMIT_S = 400.0


class Absent(Exception):
    """A peer can't run here; the text says why."""


def run_peer(peer, names, small=False):
    """Runs a peer's process and returns its findings: ``about`` or ``absent``, ``rows`` by name, and its end if bad."""
    command = [sys.executable, __file__, peer, *(["--small"] if small else []), *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        printed, said, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        printed = (
            (error.stdout or b"").decode() if isinstance(error.stdout, bytes) else error.stdout
        )
        said, code = f"stopped after {LIMIT_S:.0f} s", 124
    results = {"rows": {}}
    for line in (printed or "").splitlines():
        if not line.startswith("{"):
            continue  # what libraries print
        single = json.loads(line)
        if "row" in single:
            results["rows"][single.pop("row")] = single
        else:
            results |= single
    if code:
        last = (said.strip().splitlines() or ["no word"])[-1]
        results["ended"] = f"ended with {code}: {last[:300]}"
    return results


def slope(run, few, many, rounds=9):
    """Microseconds of one of many equal steps: what ``run(many)`` takes longer than ``run(few)``.

    The two take turns; medians are compared, so that what both have besides cancels out.
    """
    times = {few: [], many: []}
    for count in (few, many):
        run(count)
        run(count)
    for _ in range(rounds):
        for count, spent in times.items():
            began = time.perf_counter_ns()
            run(count)
            spent.append(time.perf_counter_ns() - began)
    return (median(times[many]) - median(times[few])) / (many - few) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=tuple(PEERS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("rows", nargs="+")
    arguments = parser.parse_args()
    module = import_module(PEERS[arguments.peer])
    # The module of this file is another one when it is imported by a peer's.
    absent = import_module("gpu_peers").Absent
    try:
        print(json.dumps({"about": module.start()}), flush=True)
    except (ImportError, absent) as error:
        print(json.dumps({"absent": f"absent: {error}"}), flush=True)
        return
    from gpu_rows import ROWS

    for row in ROWS:
        if row.name not in arguments.rows or not module.takes(row):
            continue
        try:
            us = module.measure(row.work(row.small[0] if arguments.small else row.size))
        except Exception as error:  # whatever a peer raises costs it this row
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            print(json.dumps({"row": row.name, "error": text}), flush=True)
            continue
        if us is not None:
            print(json.dumps({"row": row.name, "us": us}), flush=True)


if __name__ == "__main__":
    main()
