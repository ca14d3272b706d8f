"""Measures the cost of hiding values from a driver's compiler, so that elementwise operations round by themselves.

usage: python benchmarks/guards.py [--device webgpu] [--log2 25] [--rounds 9]

Each kernel is compiled with and without the guards. Both run in turns on the same data; times are the GPU's own. A
software adapter has no clock of its own that is of use: there the processor's time of a run is taken.
"""

import argparse
import os
import time
from statistics import median

os.environ["RLX_CACHE"] = "off"

import numpy as np
from gpu_clock import LoadedWorkload, _KernelClock
from rich.console import Console
from rich.table import Table
from work import Workload, noise
from work_streams import chain_of

import rlx
from rlx.backends.webgpu import codegen, elementwise_wgsl
from rlx.device.names import info_of

GUARD = elementwise_wgsl._opaque
RUNS = 40
KERNELS = {
    "negative": lambda g, x, y: -x,
    "sum": lambda g, x, y: x + y,
    "relu of a sum": lambda g, x, y: g.relu(x + y),
    "chain of 8": chain_of,
    "four products and sums": lambda g, x, y: (((x * 1.5 + y) * 0.3 + x) * y) + 0.25,
    "polynomial": lambda g, x, y: (
        (((((x * 0.1 + 0.2) * x + 0.3) * x + 0.4) * x + 0.5) * x + 0.6) * x
    ),
    "gate": lambda g, x, y: x * g.sigmoid(x) * y,
    "quotients": lambda g, x, y: (x / 3.0 + y) / 2.5,
    "hard swish": lambda g, x, y: x * g.minimum(g.maximum(x + 3.0, 0.0), 6.0) / 6.0,
    "written-out gelu": lambda g, x, y: (
        0.5 * x * (1.0 + g.tanh(0.79788 * (x + 0.044715 * x * x * x)))
    ),
    "power": lambda g, x, y: g.pow(g.abs(x) + 0.5, 1.7) * y + 1.0,
    "functions": lambda g, x, y: (
        g.tanh(g.sin(x * y) + g.cos(x - y)) * g.sqrt(g.abs(x) + 1.0) + g.log(g.abs(y) + 1.0) * 0.5
    ),
}


def made(work, device, guarded):
    """The kernel with guards, or without."""
    elementwise_wgsl._opaque = GUARD if guarded else lambda value: value
    codegen._sources.clear()
    return LoadedWorkload(work, device)


def on_a_gpu(loaded):
    """Times a GPU: ns of a run."""
    clock = _KernelClock(loaded)
    clock.durations(3)
    return lambda: float(np.median(clock.durations(RUNS)[0].sum(1)))


def by_processor(loaded):
    """Times a software adapter: ns of the processor for a run."""
    compiled = loaded.compiled[0]

    def run_once():
        began = time.process_time_ns()
        compiled.run_read_outputs({}, [])
        compiled.sync_pending()
        return time.process_time_ns() - began

    run_once()
    return lambda: median(run_once() for _ in range(RUNS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="webgpu")
    parser.add_argument("--log2", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    info = info_of(rlx.Device.parse(chosen.device))
    timer = by_processor if info.software else on_a_gpu
    rng = np.random.default_rng(0)
    values = {name: noise(rng, 1 << chosen.log2) for name in "xy"}
    table = Table("kernel", "us with", "us without", "ratio", "of all rounds")
    for name, build in KERNELS.items():
        work = Workload(values, lambda g, v, build=build: [build(g, v["x"], v["y"])], None, 1.0)
        both = [made(work, chosen.device, guarded) for guarded in (True, False)]
        timers = [timer(loaded) for loaded in both]
        rounds = [[timed() for timed in timers] for _ in range(chosen.rounds)]
        ratios = sorted(a / b for a, b in rounds)
        times = [median(column) / 1e3 for column in zip(*rounds, strict=True)]
        spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        table.add_row(name, *(f"{us:.1f}" for us in times), f"{median(ratios):.3f}", spread)
        for loaded in both:
            loaded.close()
    Console().print(f"{info.adapter}, 2^{chosen.log2} elements", table)


if __name__ == "__main__":
    main()
