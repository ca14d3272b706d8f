"""One graph on the CPU and by XLA: the same numbers, how long a call takes, and a cache that stays on the device.

The devices come with `pip install 'plugins/rlx_xla[cuda]'`, or `[rocm]` or `[tpu]`; without any of them XLA runs on the processor.
"""

import sys
import time

import numpy as np

import rlx
from rlx.backends.registry import backend_names

if "xla" not in backend_names():
    sys.exit(
        "this example runs graphs by XLA: in a checkout of rlx: pip install plugins/rlx_xla, or 'plugins/rlx_xla[cuda]' for an NVIDIA GPU"
    )

WIDTH, LENGTH, RUNS = 256, 128, 10
rng = np.random.default_rng(0)
weights = {
    name: (rng.standard_normal((WIDTH, WIDTH)) / 16).astype(np.float32) for name in ("w1", "w2")
}
x = rng.standard_normal((LENGTH, WIDTH)).astype(np.float32)


def network() -> rlx.Graph:
    """Two layers."""
    g = rlx.Graph("network")
    hidden = g.gelu(g.input("x", x.shape) @ g.param("w1", (WIDTH, WIDTH)))
    g.set_outputs([g.softmax(hidden @ g.param("w2", (WIDTH, WIDTH)))])
    return g


device = next(name for name in ("cuda", "rocm", "tpu", "xla") if rlx.is_available(name))
exact = rlx.compile(network(), "cpu", weights).run_slots(x)[0].copy()
with rlx.compile(network(), device, weights) as compiled:
    y = compiled.run_slots(x)[0]
    start = time.perf_counter()
    for _ in range(RUNS):
        compiled.run_slots(x)
    took = (time.perf_counter() - start) / RUNS
    print(
        f"{device}: {took * 1e6:.0f} us a call, at most {np.max(np.abs(y - exact)):.1g} from the CPU"
    )

# A cache stays on the device: the output that feeds it takes its memory.
g = rlx.Graph("cache")
cache, row, at = (
    g.input("cache", (LENGTH, WIDTH)),
    g.input("row", (1, WIDTH)),
    g.input("at", (1, 1), "i64"),
)
cache = g.scatter_nd(cache, at, row)
g.set_outputs([cache, g.sum(cache)])
with rlx.compile(g, device) as step:
    step.bind_gpu_handle("cache", np.zeros((LENGTH, WIDTH), np.float32))
    step.set_gpu_handle_feed("cache", 0)
    for position in range(3):
        given = {"row": np.ones((1, WIDTH), np.float32), "at": np.array([[position]])}
        (total,) = step.run_read_outputs(given, [1])
    print(f"after three rows the cache holds {float(total):.0f}, of {3 * WIDTH} that were written")
