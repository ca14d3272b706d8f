"""Measures the gain of each pattern: the same graph with the pattern taken and left out, on a device.

usage: python benchmarks/fusion_kernels.py [cpu webgpu ...] [--rounds 60] [--json fusion_kernels.json]

The inputs stay on the device; the two take turns and the medians are compared.
"""

import argparse
import json
import time
from contextlib import contextmanager
from statistics import median
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

import rlx
from rlx.passes.patterns import apply

WIDTH, HIDDEN = 384, 1536


def swiglu(g, rows):
    x = g.input("x", (rows, WIDTH))
    gate, up = (g.param(name, (WIDTH, HIDDEN)) for name in ("wg", "wu"))
    return [g.silu(x @ gate) * (x @ up)]


def qkv(g, rows):
    x = g.input("x", (rows, WIDTH))
    return [
        g.relu(x @ g.param(name, (WIDTH, WIDTH)) + g.param(f"b{name}", (WIDTH,))) for name in "qkv"
    ]


def residual_and_norm(g, rows):
    x, r = g.input("x", (rows, WIDTH)), g.input("r", (rows, WIDTH))
    total = x + r
    return [g.rms_norm(total, g.param("w", (WIDTH,))), total]


def bias_and_gelu(g, rows):
    x = g.input("x", (rows, WIDTH))
    return [g.gelu(x @ g.param("w", (WIDTH, HIDDEN)) + g.param("b", (HIDDEN,)))]


def attention(g, rows):
    q, k, v = (g.input(name, (1, 6, rows, 64)) for name in "qkv")
    return [g.softmax(q @ g.transpose(k, (0, 1, 3, 2)) * 0.125) @ v]


def log_mel(g, rows):
    x = g.input("x", (1, 160 * rows + 240))
    return [rlx.signal.log_mel(x, 16000, 400, 160, 80, log="whisper")]


CASES = {
    "gated product": swiglu,
    "products of one input": qkv,
    "residual and norm": residual_and_norm,
    "product, bias and activation": bias_and_gelu,
    "attention": attention,
    "spectrum and log-mel": log_mel,
}


@contextmanager
def without(name):
    left = tuple(pattern for pattern in apply.PATTERNS if pattern.name != name)
    with mock.patch.object(apply, "PATTERNS", left):
        yield


def measure(name, rows, device, rounds):
    g = rlx.Graph(name)
    g.set_outputs(CASES[name](g, rows))
    rng = np.random.default_rng(0)
    params = {
        key: (rng.normal(size=g.named(key).shape) / WIDTH**0.5).astype(np.float32)
        for key in g.param_names
    }
    with without(name):
        plain = rlx.compile(g, device, params)
    fused = rlx.compile(g, device, params)
    taken = f"took {name}" in fused.as_text("fused")
    for cg in (plain, fused):
        for key in g.input_names:
            value = np.random.default_rng(1).normal(size=g.named(key).shape).astype(np.float32)
            cg.bind_gpu_handle(key, value)
    results = [[slot.copy() for slot in cg.run_slots()] for cg in (plain, fused)]
    for first, other in zip(*results, strict=True):
        np.testing.assert_allclose(first, other, 2e-3, 2e-4)
    times = ([], [])
    for _ in range(rounds):
        for cg, spent in zip((plain, fused), times, strict=True):
            start = time.perf_counter()
            cg.run_slots()
            spent.append(time.perf_counter() - start)
    for cg in (plain, fused):
        cg.close()
    apart, together = (median(spent) * 1e6 for spent in times)
    return {
        "device": str(device),
        "pattern": name,
        "rows": rows,
        "taken": taken,
        "apart_us": apart,
        "fused_us": together,
        "ratio": apart / together,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="*", default=["cpu", "webgpu"])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    table = Table("device", "pattern", "rows", "taken", "apart us", "fused us", "ratio")
    results = []
    for device in rlx.parse_device_list(",".join(arguments.devices)):
        for name in CASES:
            for rows in (1, 16, 128, 1024):
                row = measure(name, rows, device, arguments.rounds)
                results.append(row)
                table.add_row(
                    row["device"],
                    name,
                    str(rows),
                    "yes" if row["taken"] else "no",
                    f"{row['apart_us']:,.0f}",
                    f"{row['fused_us']:,.0f}",
                    f"{row['ratio']:.2f}",
                )
    Console(width=100).print(table)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
