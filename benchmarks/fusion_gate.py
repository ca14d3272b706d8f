"""Is the fusion gate right? Each candidate is timed as the gate decides, and the other way round.

usage: python benchmarks/fusion_gate.py [cpu webgpu ...] [--rounds 60] [--json fusion_gate.json]

The graphs read the strongest bins off Welch's power spectrum. Where only they are wanted, one kernel that reads
the spectra is less work than powers, means and a sort apart. Where the power spectrum is an output as well, that
kernel would read all segments once more, and the bins are better found in the average. Both ways are compiled
with the device's calibrated figures; the runs take turns and the medians are compared. The gate is right where
the way that it left is not faster by more than the noise (5 %).
"""

import argparse
import json
import math
import time
from dataclasses import replace
from statistics import median

import numpy as np
from fusion_kernels import without
from rich.console import Console
from rich.table import Table

import rlx
from rlx import cost
from rlx.compiler.device_choice import measured_model

NAME = "spectrum and peaks"
# signals, segments, samples of a segment, bins kept, whether the power spectrum is wanted too
CASES = [
    (64, 8, 256, 16, False),
    (512, 8, 256, 16, False),
    (2048, 8, 256, 16, False),
    (256, 64, 256, 16, False),
    (128, 16, 1024, 8, False),
    (512, 8, 256, 16, True),
    (256, 64, 256, 16, True),
    (64, 256, 256, 16, True),
    (64, 64, 1024, 8, True),
]


def welch(signals, segments, length, k, power_too):
    """The strongest bins of each signal's averaged spectra; the spectra are given."""
    g = rlx.Graph("peaks")
    bins = length // 2 + 1
    spec = g.input("spec", (signals, segments, 2 * bins))
    re, im = spec[..., :bins], spec[..., bins:]
    weights = np.full(bins, 2.0, np.float32)
    weights[[0, -1]] = 1.0
    power = g.mean((re * re + im * im) * g.constant(weights), -2)
    values, places = g.topk(power, k)
    g.set_outputs([power, values, places] if power_too else [values, places])
    return g


def compiled(graph, device, taken, gate):
    """The graph as the gate decides, or with the candidate taken or left whatever it says."""
    if taken is False:
        with without(NAME):
            return rlx.compile(graph, device)
    if taken:
        gate = replace(gate, min_gain_ns=-math.inf)
        return rlx.compile(graph, device, options=rlx.CompileOptions(io_gate=gate))
    return rlx.compile(graph, device)


def measure(case, device, rounds):
    graph = welch(*case)
    gate = rlx.IoFusionGate.from_cost_model(measured_model(device))
    with compiled(graph, device, None, gate) as decided:
        line = next(line for line in decided.as_text("fused").splitlines() if NAME in line)
    x = np.random.default_rng(0).normal(size=graph.named("spec").shape).astype(np.float32)
    ways = {taken: compiled(graph, device, taken, gate) for taken in (True, False)}
    results = {}
    # The spectra stay on the device, as behind a transform there: the way to it is not compared.
    for taken, cg in ways.items():
        cg.bind_gpu_handle("spec", x)
        results[taken] = [slot.copy() for slot in cg.run_slots()]
    for first, other in zip(*results.values(), strict=True):
        if first.dtype.kind == "f":
            np.testing.assert_allclose(first, other, 1e-4, 1e-4)
    times = {True: [], False: []}
    for _ in range(rounds):
        for taken, cg in ways.items():
            start = time.perf_counter()
            cg.run_slots()
            times[taken].append(time.perf_counter() - start)
    for cg in ways.values():
        cg.close()
    took = " took " in line
    fused, apart = median(times[True]), median(times[False])
    chosen, other = (fused, apart) if took else (apart, fused)
    return {
        "device": str(device),
        "signals": case[0],
        "segments": case[1],
        "samples": case[2],
        "k": case[3],
        "power_too": case[4],
        "gate": "took" if took else "refused",
        "note": line.split(": ", 2)[-1],
        "fused_us": fused * 1e6,
        "apart_us": apart * 1e6,
        "right": chosen <= 1.05 * other,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="*", default=["cpu", "webgpu"])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rlx.clear_cache()
    rows = []
    for device in rlx.parse_device_list(",".join(arguments.devices)):
        result = cost.Calibration.load_or_measure(device)
        print(f"{device}: {result.identity.adapter}, measured in {result.measuring_s:.1f} s")
        rows += [measure(case, device, arguments.rounds) for case in CASES]
    table = Table(
        "device",
        "signals x segments x samples",
        "power too",
        "gate",
        "fused us",
        "apart us",
        "right",
    )
    for row in rows:
        table.add_row(
            row["device"],
            f"{row['signals']} x {row['segments']} x {row['samples']}",
            "yes" if row["power_too"] else "",
            row["gate"],
            f"{row['fused_us']:,.0f}",
            f"{row['apart_us']:,.0f}",
            "yes" if row["right"] else "no",
        )
    Console(width=120).print(table)
    print(f"right in {sum(row['right'] for row in rows)} of {len(rows)}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
