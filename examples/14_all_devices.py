"""One model on all devices of this machine at once: results in order, and who did how much.

With a GPU it works beside the CPU; a machine without one has a pool of one device.
"""

import time

import numpy as np

import rlx

ROWS, WIDTH, LAYERS, BATCHES = 64, 256, 4, 200

rng = np.random.default_rng(0)
g = rlx.Graph("network")
y = g.input("x", (ROWS, WIDTH))
for at in range(LAYERS):
    w = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
    y = g.gelu(y @ g.param(f"w{at}", w.shape, value=w))
g.set_outputs([y])

batches = [rng.standard_normal((ROWS, WIDTH)).astype(np.float32) for _ in range(BATCHES)]
with rlx.Pool(g) as pool:
    print(pool)
    for device, reason in pool.skipped.items():
        print(f"{device} is left out: {reason}")
    began = time.perf_counter()
    results = [y for (y,) in pool.map(batches)]
    seconds = time.perf_counter() - began
    for row in pool.report():
        print(f"{row.device}: {row.done} batches, {1e3 * (row.item_s or 0):.2f} ms each lately")
print(f"{BATCHES / seconds:,.0f} batches a second")

alone = rlx.compile(g, "cpu")
worst = max(float(np.abs(alone.run({"x": x})[0] - y).max()) for x, y in zip(batches, results))
print(f"largest difference from the CPU alone: {worst:.1e}")
assert worst < 1e-4
