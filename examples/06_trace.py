"""Profiles runs: a trace for ui.perfetto.dev, and a profile as a table, on every device here."""

import json
import tempfile
from pathlib import Path

import numpy as np

import rlx

g = rlx.Graph("head")
x = g.input("x", (64, 256))
hidden = g.gelu(x @ g.param("w1", (256, 256)))
g.set_outputs([g.softmax(hidden @ g.param("w2", (256, 16)))])
rng = np.random.default_rng(0)
weights = {name: rng.normal(0, 0.1, g.named(name).shape) for name in g.param_names}
batch = rng.normal(size=(64, 256)).astype(np.float32)

folder = Path(tempfile.mkdtemp())
for device in rlx.available_devices():
    with rlx.compile(g, device, weights) as cg:
        cg.run({"x": batch})
        path = folder / f"{device}.json".replace(":", "-")
        with cg.trace(path):
            for _ in range(3):
                cg.run_slots(batch)
        events = json.loads(path.read_text())["traceEvents"]
        kernels = [event for event in events if event.get("cat") == "kernel"]
        print(f"{device}: {len(kernels)} kernels in 3 runs, in {path}: open it in ui.perfetto.dev")
        if cg.capabilities.device_timestamps:
            print(cg.profile({"x": batch}), "\n")
