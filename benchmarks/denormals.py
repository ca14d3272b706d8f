"""The cost of subnormal numbers: signals and states that decay into silence, with ``denormals="flush"`` and ``"keep"``.

usage: python benchmarks/denormals.py [--threads 1] [--seconds 2] [--docs docs/benchmarks.md]

Each row is the same graph compiled twice, timed in turns on the same inputs.
"""

import argparse
from pathlib import Path

import numpy as np
from cpu_clock import in_pairs
from report import markdown, write_between

import rlx
from rlx.backends.cpu.cpu_backend import processor
from rlx.threads import thread_count

SILENCE = np.float32(1e-39)


def filters():
    """Eight channels of 48,000 samples: a click at the start, then silence, through a low-pass filter of four poles."""
    # Poles at 0.98: the filter falls below the normal numbers after 4,300 samples.
    section = [1e-4, 2e-4, 1e-4, 1.0, -2 * 0.98, 0.98**2]
    x = np.zeros((8, 48000), np.float32)
    x[:, :10] = 1
    g = rlx.Graph("filter")
    g.set_outputs([rlx.signal.sosfilt(np.array([section, section]), g.input("x", x.shape))])
    return g, [x]


def tail(x, decay):
    """A signal that decays by a factor each step, down through the subnormal numbers to 0."""
    steps = np.arange(x.shape[0], dtype=np.float64).reshape(-1, *[1] * (x.ndim - 1))
    return (x * decay**steps).astype(np.float32)


def lstm():
    """An LSTM of 128 units without biases over 400 steps of an input that decays into silence."""
    steps, size = 400, 128
    rng = np.random.default_rng(0)
    w, r = (rng.normal(size=(1, 4 * size, size)).astype(np.float32) * 0.02 for _ in range(2))
    x = tail(rng.normal(size=(steps, 1, size)), 0.6)
    g = rlx.Graph("lstm")
    g.set_outputs(list(g.lstm(g.input("x", x.shape), g.constant(w), g.constant(r))))
    return g, [x]


def gelu():
    """gelu of numbers from -20 to -10, whose results go from 1e-22 down through the subnormal numbers."""
    x = np.linspace(-20, -10, 1 << 18, dtype=np.float32)
    g = rlx.Graph("gelu")
    g.set_outputs([g.gelu(g.input("x", x.shape))])
    return g, [x]


def quiet_conv():
    """A convolution, 3 x 3, of 16 channels of 64 x 64 numbers around 1e-39."""
    x = np.random.default_rng(0).normal(size=(1, 16, 64, 64)).astype(np.float32) * SILENCE
    w = np.random.default_rng(1).normal(size=(16, 16, 3, 3)).astype(np.float32)
    g = rlx.Graph("conv")
    g.set_outputs([g.conv2d(g.input("x", x.shape), g.constant(w), padding=1)])
    return g, [x]


def quiet_weights():
    """A matrix product, 64 x 512 x 512, by weights of which a tenth are around 1e-39, as pruned models have them."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(512, 512)).astype(np.float32)
    w[rng.random(w.shape) < 0.1] *= SILENCE
    x = rng.normal(size=(64, 512)).astype(np.float32)
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", x.shape) @ g.constant(w)])
    return g, [x]


def scaled():
    """A product with a number, of 2**18 numbers that become subnormal."""
    x = np.full(1 << 18, 1e-30, np.float32)
    g = rlx.Graph("scaled")
    g.set_outputs([g.input("x", x.shape) * 1e-10])
    return g, [x]


ROWS = {
    "IIR filter decaying into silence": filters,
    "LSTM decaying into silence": lstm,
    "gelu of large negative numbers": gelu,
    "convolution of numbers around 1e-39": quiet_conv,
    "product by weights, a tenth subnormal": quiet_weights,
    "numbers that become subnormal": scaled,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of a graph")
    parser.add_argument("--seconds", type=float, default=2.0, help="about so long for a row")
    parser.add_argument("--docs", type=Path, help="puts the table into this file")
    arguments = parser.parse_args()
    cells = []
    for name, make in ROWS.items():
        graph, inputs = make()
        calls = []
        for denormals in ("flush", "keep"):
            options = rlx.CompileOptions(denormals=denormals, threads=arguments.threads)
            calls.append(rlx.compile(graph, "cpu", options=options).run_slots)
        for flushed, item in zip(
            *([y.copy() for y in call(*inputs)] for call in calls), strict=True
        ):
            np.testing.assert_allclose(flushed, item, rtol=1e-4, atol=1e-36)
        pair = in_pairs([lambda c=call, g=inputs: c(*g) for call in calls], arguments.seconds)
        cells.append([name, *(f"{us:,.1f}" for us in pair.p50), f"{pair.ratio:.2f}"])
        print(*cells[-1], sep=" | ", flush=True)
    text = [
        f"Measured on: {processor()}, threads: {thread_count(arguments.threads)}.",
        "",
        *markdown(["workload", "us, flush", "us, keep", "keep / flush"], cells),
    ]
    if arguments.docs:
        write_between(arguments.docs, "benchmarks/denormals.py", "\n".join(text))


if __name__ == "__main__":
    main()
