"""Choosing a device: what is here, what the cost model expects, what is picked, and what runs."""

import numpy as np

import rlx
from rlx.compiler.device_choice import choose
from rlx.device import describe_devices

for found in describe_devices():
    print(f"{found.device}: {found.label}, {found.api}")

for n in (16, 256, 2048):
    g = rlx.Graph(f"matmul {n}")
    g.set_outputs([g.input("a", (n, n)) @ g.input("b", (n, n))])
    choice = choose(g)
    print(f"{n} x {n}: {choice.device} ({choice.reason})")

# One graph on every device, with one set of params.
g = rlx.Graph("layer")
g.set_outputs([g.gelu(g.input("x", (8, 64)) @ g.param("w", (64, 64)))])
gd = rlx.GraphDevices(g, rlx.DevicePolicy(prefer="webgpu"))
gd.set_param("w", np.full((64, 64), 0.01, np.float32))
x = {"x": np.ones((8, 64), np.float32)}

for row in gd.report():
    estimate = "" if row.estimate_ns is None else f"{row.estimate_ns / 1e3:,.1f} us expected"
    print(f"{row.device}: {row.label}: {row.blocker or estimate}")
for result in gd.benchmark(x, runs=20):
    print(f"{result.device}: {result.median_ns / 1e3:,.1f} us measured")

# The first of these that works.
device, (y,) = gd.run_try(["cuda", "webgpu", "cpu"], x)
print(f"ran on {device}: {y.sum():.3f}")
