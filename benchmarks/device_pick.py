"""Does "auto" pick the truly fastest device, and how near is the estimate? A sweep of 200 graphs.

usage: python benchmarks/device_pick.py [--graphs 200] [--seed 0] [--largest 4e6] [--devices cpu,webgpu]
                                        [--recalibrate] [--idle] [--json device_pick.json]

Half of the graphs are single operations and short chains of them, half are like parts of models; sizes are
spread evenly on a log scale over six orders of magnitude of elements. Each is compiled for every device and
timed through ``run_slots`` (median of calls back to back; the devices take turns of 20 ms). GPUs lower their
clock where they have little to do, and small graphs then take up to twice the time: as calibration does, the sweep
keeps them awake with other work before each turn, unless ``--idle`` is given. A pick is right when no other device was faster;
a pick that was at most 10 % slower than the fastest is counted apart, as within the noise of such a machine.
"""

import argparse
import json
import time
from collections import defaultdict
from statistics import median

import numpy as np

import rlx
from rlx import cost
from rlx.backends.registry import backend
from rlx.compiler.device_choice import choose, measured_model
from rlx.device.names import info_of

DTYPE = "f32"


def side(n, least=1):
    return max(least, round(n**0.5))


# --- single operations -----------------------------------------------------------------------------


def elementwise(g, n, rng):
    x, y = g.input("x", (n,)), g.input("y", (n,))
    for _ in range(rng.integers(1, 6)):
        x = (x + y) * 0.5
    return x


def functions(g, n, rng):
    x = g.input("x", (n,))
    for _ in range(rng.integers(1, 4)):
        x = [g.sin, g.tanh, g.sigmoid, g.gelu, g.exp][rng.integers(5)](x * 0.5)
    return x


def softmax(g, n, rng):
    columns = int(rng.choice([16, 64, 256, 1000, 4096]))
    return g.softmax(g.input("x", (max(1, n // columns), columns)))


def norm(g, n, rng):
    columns = int(rng.choice([64, 256, 768, 2048]))
    x = g.input("x", (max(1, n // columns), columns))
    if rng.integers(2):
        return g.rms_norm(x, g.param("w", (columns,)))
    return g.layer_norm(x, g.param("w", (columns,)), g.param("b", (columns,)))


def reduce(g, n, rng):
    x = g.input("x", (side(n), side(n)))
    return [g.sum, g.mean, g.max][rng.integers(3)](x, -1)


def transpose(g, n, rng):
    return g.transpose(g.input("x", (side(n), side(n))))


def concat(g, n, rng):
    x, y = g.input("x", (side(n), side(n))), g.input("y", (side(n), side(n)))
    return g.concat([x, y], int(rng.integers(2)))


def matmul(g, n, rng):
    s = side(n)
    m = int(rng.choice([1, 8, max(1, s // 4), s, s]))
    return g.input("x", (m, s)) @ g.param("w", (s, s))


def batched(g, n, rng):
    b = int(rng.choice([2, 8, 16]))
    s = side(n / b)
    return g.input("x", (b, s, s)) @ g.input("y", (b, s, s))


def fourier(g, n, rng):
    length = int(rng.choice([128, 512, 1000, 4096]))
    return g.rfft(g.input("x", (max(1, n // length), length)))


def sorting(g, n, rng):
    columns = int(rng.choice([64, 512, 2048]))
    return g.topk(g.input("x", (max(1, n // columns), columns)), 8)[0]


def running(g, n, rng):
    columns = int(rng.choice([64, 1024]))
    return g.cumsum(g.input("x", (max(1, n // columns), columns)), -1)


def embedding(g, n, rng):
    width = int(rng.choice([32, 256, 768]))
    rows = max(1, n // width)
    return g.gather(g.param("w", (1000, width)), g.input("ids", (rows,), "i32"))


def filtered(g, n, rng):
    x = g.input("x", (max(1, n // 1000), 1000))
    return g.sosfilt(x, [[0.1, 0.2, 0.1, 1.0, -0.9, 0.3]] * int(rng.integers(1, 4)))[0]


# --- parts of models -------------------------------------------------------------------------------


def mlp(g, n, rng):
    width = int(rng.choice([32, 64, 128, 512]))
    x = g.input("x", (max(1, n // width), width))
    for index in range(rng.integers(1, 5)):
        x = g.gelu(x @ g.param(f"w{index}", (width, width)) + g.param(f"b{index}", (width,)))
    return x


def cnn(g, n, rng):
    channels = int(rng.choice([8, 16, 32]))
    x = g.input("x", (1, 3, side(n / 3, 8), side(n / 3, 8)))
    before = 3
    for index in range(rng.integers(1, 4)):
        w = g.param(f"w{index}", (channels, before, 3, 3))
        x = g.relu(g.conv2d(x, w, g.param(f"b{index}", (channels,)), padding=1))
        before = channels
    return g.max_pool(x, 2) if rng.integers(2) else x


def attention(g, n, rng):
    heads, dim = int(rng.choice([2, 4, 8])), int(rng.choice([32, 64]))
    shape = (1, max(1, n // (heads * dim)), heads * dim)
    q, k, v = (g.input(name, shape) for name in "qkv")
    return g.attention(
        q, k, v, kind=str(rng.choice(["none", "causal"])), num_heads=heads, head_dim=dim
    )


def transformer(g, n, rng):
    heads, dim = 4, int(rng.choice([16, 32, 64]))
    width = heads * dim
    x = g.input("x", (1, max(1, n // width), width))
    normed = g.rms_norm(x, g.param("n1", (width,)))
    q, k, v = (normed @ g.param(name, (width, width)) for name in ("wq", "wk", "wv"))
    mixed = g.attention(q, k, v, kind="causal", num_heads=heads, head_dim=dim)
    x = x + mixed @ g.param("wo", (width, width))
    normed = g.rms_norm(x, g.param("n2", (width,)))
    up = g.silu(normed @ g.param("up", (width, 4 * width))) * (
        normed @ g.param("gate", (width, 4 * width))
    )
    return x + up @ g.param("down", (4 * width, width))


def classifier(g, n, rng):
    width = int(rng.choice([64, 256, 1024]))
    x = g.input("x", (max(1, n // width), width))
    return g.softmax(g.layer_norm(x) @ g.param("w", (width, 10)) + g.param("b", (10,)))


def spectrum(g, n, rng):
    x = g.input("x", (max(1, n // 512), 512))
    return g.log(g.maximum(rlx.signal.welch(x, 250.0, nperseg=256), 1e-12))


def recurrent(g, n, rng):
    hidden, steps = int(rng.choice([16, 64])), int(rng.choice([8, 32]))
    x = g.input("x", (steps, max(1, n // (steps * hidden)), hidden))
    return g.lstm(x, g.param("w", (1, 4 * hidden, hidden)), g.param("r", (1, 4 * hidden, hidden)))[
        0
    ]


def recommender(g, n, rng):
    rows, width = max(1, n // 64), 16
    result = g.gather(g.param("table", (5000, width)), g.input("ids", (rows, 4), "i32"))
    x = g.reshape(result, (rows, 4 * width))
    return g.sigmoid(g.relu(x @ g.param("w0", (64, 32))) @ g.param("w1", (32, 1)))


SINGLE = (
    elementwise, functions, softmax, norm, reduce, transpose, concat, matmul, batched, fourier, sorting,
    running, embedding, filtered,
)  # fmt: skip
MODELS = (mlp, cnn, attention, transformer, classifier, spectrum, recurrent, recommender)


def graphs(count, largest, seed):
    """``(family, elements, graph)``; the sizes go evenly through the orders of magnitude."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.permutation(np.linspace(np.log(largest / 1e6), np.log(largest), count)))
    for index, size in enumerate(sizes):
        families = (SINGLE, MODELS)[index % 2]
        family = families[index // 2 % len(families)]
        while True:
            n = max(1, int(size))
            g = rlx.Graph(f"{family.__name__} {n}")
            result = family(g, n, rng)
            g.set_outputs([result])
            # Work that grows faster than the elements is held in bounds, or one graph takes minutes.
            if sum(node.opdef.flops(node) for node in g.nodes) <= 500 * largest:
                break
            size /= 4
        yield family.__name__, n, g


def arrays(graph, rng):
    """Values of inputs and params."""
    results = {}
    for name in (*graph.input_names, *graph.param_names):
        node = graph.named(name)
        if node.dtype is rlx.DType.I32:
            results[name] = rng.integers(0, 1000, node.shape, dtype=np.int32)
        else:
            results[name] = rng.normal(0, 0.1, node.shape).astype(np.float32)
    return results


def busy(device):
    """Work that keeps a GPU at its full clock, which it lowers where it has little to do; None on others."""
    info = info_of(device)
    if info.backend == "cpu" or info.software:
        return None
    g = rlx.Graph("busy")
    x = g.input("x", (16, 1024))
    y = x
    for _ in range(8):
        y = y @ g.param("w", (1024, 1024)) if "w" not in g.param_names else y @ g.named("w")
    g.set_outputs([y])
    cg = rlx.compile(g, device, {"w": np.full((1024, 1024), 1e-3, np.float32)})
    value = np.ones((16, 1024), np.float32)
    return lambda: cg.run_slots(value)


def measured(graph, devices, values, keep_busy, seconds=0.15):
    """Median ns of a run on each device."""
    params = {name: values[name] for name in graph.param_names}
    inputs = [values[name] for name in graph.input_names]
    compiled = [rlx.compile(graph, device, params) for device in devices]
    samples = [[] for _ in compiled]
    for cg in compiled:
        for _ in range(2):
            cg.run_slots(*inputs)
    began = time.perf_counter()
    while len(samples[0]) < 3 or (
        len(samples[0]) < 1000 and time.perf_counter() - began < seconds * len(devices)
    ):
        for cg, times, work in zip(compiled, samples, keep_busy):
            turn = time.perf_counter_ns()
            while work and time.perf_counter_ns() - turn < 2e7:
                work()
            # Back to back, as a loop runs: the first calls find the caches of the other device, and a
            # GPU that has gone to sleep.
            burst, turn = [], time.perf_counter_ns()
            while not burst or time.perf_counter_ns() - turn < 2e7:
                start = time.perf_counter_ns()
                cg.run_slots(*inputs)
                burst.append(time.perf_counter_ns() - start)
            times += burst[len(burst) // 4 :]
    for cg in compiled:
        cg.close()
    return [median(times) for times in samples]


def quantiles(ratios):
    return {f"p{q}": round(float(np.percentile(ratios, q)), 3) for q in (5, 10, 25, 50, 75, 90, 95)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=float, default=4e6)
    parser.add_argument("--devices", default="cpu,webgpu")
    parser.add_argument("--recalibrate", action="store_true")
    parser.add_argument("--idle", action="store_true", help="let a GPU lower its clock")
    parser.add_argument("--json")
    args = parser.parse_args()
    devices = rlx.parse_device_list(args.devices)
    for device in devices:
        if args.recalibrate and backend(device.backend).is_built_in:
            cost.store.remeasure(device)
        result = measured_model(device).calibration
        print(f"{device}: {result.identity.adapter}, measured in {result.measuring_s:.1f} s")
    rng = np.random.default_rng(args.seed)
    keep_busy = [None if args.idle else busy(device) for device in devices]
    rows = []
    for family, n, graph in graphs(args.graphs, args.largest, args.seed):
        choice = choose(graph)
        times = measured(graph, devices, arrays(graph, rng), keep_busy)
        pick = min(devices, key=lambda device: choice.estimates[device])
        row = {"family": family, "elements": n, "pick": str(pick)}
        for device, ns in zip(devices, times):
            row[str(device)] = {
                "measured_us": ns / 1e3,
                "estimated_us": choice.estimates[device] / 1e3,
                "ratio": choice.estimates[device] / ns,
            }
        fastest = min(times)
        row["right"] = times[devices.index(pick)] == fastest
        row["near"] = times[devices.index(pick)] <= 1.1 * fastest
        rows.append(row)
    report(rows, devices)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


def report(rows, devices):
    count = len(rows)
    print(f"{count} graphs; picked: {shares(rows)}")
    print(
        f"pick right {sum(r['right'] for r in rows) / count:.1%}, within 10 % of the fastest",
        end=" ",
    )
    print(f"{sum(r['near'] for r in rows) / count:.1%}")
    for device in devices:
        ratios = np.array([row[str(device)]["ratio"] for row in rows])
        inside = np.mean((ratios >= 0.5) & (ratios <= 2))
        print(f"{device}: estimate within 2x {inside:.1%}; estimate / measured {quantiles(ratios)}")
        families = defaultdict(list)
        for row in rows:
            families[row["family"]].append(round(row[str(device)]["ratio"], 2))
        for family, item in sorted(families.items()):
            print(f"   {family:12} {min(item):6.2f} {median(item):6.2f} {max(item):6.2f}")
        worst = sorted(rows, key=lambda row: -abs(np.log(row[str(device)]["ratio"])))[:8]
        for row in worst:
            print(f"   {row['family']} {row['elements']}: {row[str(device)]}")
    for row in rows:
        if not row["near"]:
            print("wrong pick:", json.dumps(row))


def shares(rows):
    picked = defaultdict(int)
    for row in rows:
        picked[row["pick"]] += 1
    return dict(picked)


if __name__ == "__main__":
    main()
