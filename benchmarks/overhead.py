"""Measures the cost of a call: a small MLP on the CPU, a round trip to a GPU, and 100 dependent dispatches.

usage: python benchmarks/overhead.py [p1 p2 p3] [--device webgpu] [--calls 3000] [--spin-us 100]
                                     [--most-upload 65536] [--json overhead.json]

Peers run beside, calls interleaved, where they can be imported: ONNX Runtime with IOBinding for p1 (the MLP), PyTorch
on CUDA and ONNX Runtime on WebGPU (onnxruntime-ep-webgpu) for p2 (the round trip) and p3 (100 dispatches).
"rlx through wgpu-py" is the same schedule with RLX_WEBGPU_HOT=0; both also on Dawn, where that is installed. Results are
checked before anything is timed; times are in microseconds.
"""

import argparse
import importlib
import json
import math
import os
import platform
import time

import numpy as np

import rlx

N = 64
rng = np.random.default_rng(0)
X = rng.normal(size=(1, N)).astype(np.float32)


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def percentiles(ns):
    return {f"p{q}": float(np.percentile(ns, q)) / 1e3 for q in (50, 99, 99.9)}


def timed(contestants, calls, expected, rounds=30):
    """Percentiles of each, called in turns so that all see the same machine."""
    for name, call in contestants.items():
        got = np.array(call(), np.float32).reshape(-1)
        error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
        assert error < 1e-5, f"{name}: relative error {error:.2g}"
    samples = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            for warm in range(5 + calls // rounds):
                begin = time.perf_counter_ns()
                call()
                if warm >= 5:  # the first find the caches of the one before
                    samples[name].append(time.perf_counter_ns() - begin)
    return {name: percentiles(ns) for name, ns in samples.items()}


def gelu(x):
    erf = np.vectorize(math.erf)
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def p1(args):
    """1x64 -> 64 -> 64 with gelu in f32 on one CPU thread."""
    weights = {f"w{i}": rng.normal(0, 0.2, (N, N)).astype(np.float32) for i in range(2)}
    biases = {f"b{i}": rng.normal(0, 0.2, (N,)).astype(np.float32) for i in range(2)}
    g = rlx.Graph("mlp")
    y, expected = g.input("x", (1, N)), X.astype(np.float64)
    for i in range(2):
        y = g.gelu(y @ g.param(f"w{i}", (N, N)) + g.param(f"b{i}", (N,)))
        expected = gelu(expected @ weights[f"w{i}"] + biases[f"b{i}"])
    g.set_outputs([y])
    run = rlx.compile(g, "cpu", params={**weights, **biases}).run_slots
    contestants = {"rlx": lambda: run(X)[0]}
    if optional("onnx") and optional("onnxruntime"):
        contestants["onnxruntime IOBinding"] = onnx_mlp(weights, biases)
    figures = timed(contestants, args.calls * 10, expected.reshape(-1))
    # The contestants share a Python call and the two looks at the clock.
    figures["an empty call"] = timed({"": lambda: X}, args.calls * 10, X.reshape(-1))[""]
    return figures


def onnx_mlp(weights, biases):
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    nodes, value = [], "x"
    for i in range(2):
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Gelu", [f"a{i}"], [f"y{i}"]))
        value = f"y{i}"
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, N])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, N])],
        [numpy_helper.from_array(v, k) for k, v in {**weights, **biases}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    x, y = ort.OrtValue.ortvalue_from_numpy(X), ort.OrtValue.ortvalue_from_numpy(np.empty_like(X))
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output(value, y)

    return Checked(lambda: session.run_with_iobinding(binding), y.numpy)


class Checked:
    """A call whose result is looked at only the first time, outside of the timing."""

    def __init__(self, call, result):
        self._call, self._result = call, result

    def __call__(self):
        self._call()
        if self._result is not None:
            result, self._result = self._result(), None
            return result
        return None


def chain(device, length, hot):
    """x + 1, ``length`` times, a dispatch each."""
    os.environ["RLX_WEBGPU_HOT"] = "1" if hot else "0"
    g = rlx.Graph("chain")
    y = g.input("x", (1, N))
    for index in range(length):
        # Alternating, so that nothing is folded into one addition.
        y = g.tanh(y) if index % 2 else y * 1.5
    g.set_outputs([y])
    options = rlx.CompileOptions(fuse=False)
    compiled = rlx.Session(device, options=options).compile(g)
    count = compiled.as_text("schedule").count(" = elementwise(")
    assert count == length, f"{count} dispatches, not {length}"
    return compiled


def expected_chain(length):
    y = X.astype(np.float64)
    for index in range(length):
        y = np.tanh(y) if index % 2 else y * 1.5
    return y.reshape(-1)


def torch_chain(torch, length):
    """The same in PyTorch on CUDA: eager, and as a CUDA graph where there is more than one kernel."""
    host = torch.from_numpy(X).pin_memory()
    back = torch.empty_like(host).pin_memory()
    device = torch.empty_like(host, device="cuda")

    def compute(y):
        for index in range(length):
            y = torch.tanh(y) if index % 2 else y * 1.5
        return y

    def eager():
        device.copy_(host, non_blocking=True)
        back.copy_(compute(device), non_blocking=True)
        torch.cuda.synchronize()
        return back.numpy()

    results = {"torch CUDA eager": eager}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            compute(device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.copy_(host, non_blocking=True)
        back.copy_(compute(device), non_blocking=True)

    def captured():
        graph.replay()
        torch.cuda.synchronize()
        return back.numpy()

    results["torch CUDA graph"] = captured
    return results


def onnx_chain(length):
    """The same in ONNX Runtime on WebGPU, from an array to an array."""
    import onnx
    import onnxruntime as ort
    import onnxruntime_ep_webgpu as webgpu
    from onnx import TensorProto, helper

    nodes, value = [], "x"
    for index in range(length):
        kind, more = ("Tanh", []) if index % 2 else ("Mul", ["factor"])
        nodes.append(helper.make_node(kind, [value, *more], [f"y{index}"]))
        value = f"y{index}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, N])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, N])],
        [helper.make_tensor("factor", TensorProto.FLOAT, [1], [1.5])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    name = webgpu.get_ep_name()
    if not any(device.ep_name == name for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(name, webgpu.get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == name]
    options = ort.SessionOptions()
    options.add_provider_for_devices(devices[:1], {})
    session = ort.InferenceSession(model.SerializeToString(), options)
    assert name in session.get_providers(), session.get_providers()
    return lambda: session.run(None, {"x": X})[0]


def gpu(args, length):
    hot, python = chain(args.device, length, True), chain(args.device, length, False)
    contestants = {
        "rlx": lambda: hot.run_slots(X)[0],
        "rlx through wgpu-py": lambda: python.run_slots(X)[0],
    }
    if args.device == "webgpu" and rlx.is_available("dawn"):
        for name, way in (("rlx on Dawn", True), ("rlx on Dawn through wgpudawn", False)):
            other = chain("dawn", length, way)
            contestants[name] = lambda other=other: other.run_slots(X)[0]
    torch = optional("torch")
    if torch and torch.cuda.is_available():
        contestants |= torch_chain(torch, length)
    if optional("onnx") and optional("onnxruntime") and optional("onnxruntime_ep_webgpu"):
        contestants["onnxruntime WebGPU"] = onnx_chain(length)
    figures = timed(contestants, args.calls, expected_chain(length))
    figures["rlx, its parts"] = parts(hot._state.executable, args.calls)
    return figures


def parts(executable, calls):
    """Medians of enqueueing alone and of the wait behind it."""
    enqueue, wait = [], []
    for _ in range(calls):
        begin = time.perf_counter_ns()
        pending = executable.submit([X], [0], False)
        middle = time.perf_counter_ns()
        pending.wait()
        enqueue.append(middle - begin)
        wait.append(time.perf_counter_ns() - middle)
    return {"enqueue p50": np.median(enqueue) / 1e3, "wait p50": np.median(wait) / 1e3}


def p2(args):
    """Upload of 256 B, one dispatch, read-back of 256 B."""
    return gpu(args, 1)


def p3(args):
    """100 dependent dispatches in one run_slots."""
    return gpu(args, 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", nargs="*", default=["p1", "p2", "p3"])
    parser.add_argument("--device", default="webgpu")
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--spin-us", type=float, help="how long a wait asks before it sleeps")
    parser.add_argument("--most-upload", type=int, help="uploads up to this many bytes stay mapped")
    parser.add_argument("--json", default="overhead.json")
    args = parser.parse_args()
    if args.spin_us is not None:
        from rlx.backends.webgpu import device

        device.SPIN_NS = int(args.spin_us * 1e3)
    if args.most_upload is not None:
        from rlx.backends.webgpu import submission_builder

        submission_builder.MAX_MAPPED_UPLOAD = args.most_upload
    results = {
        "machine": platform.platform(),
        "processors": os.cpu_count(),
        "versions": {"rlx": rlx.__version__, "numpy": np.__version__},
    }
    for name in ("onnxruntime", "torch", "wgpu"):
        if module := optional(name):
            results["versions"][name] = module.__version__
    if rlx.is_available(args.device):
        from rlx.backends.registry import backend

        results["adapters"] = [f"{d.adapter}, {d.driver}" for d in backend("webgpu").devices()]
    for name in args.which:
        if name != "p1" and not rlx.is_available(args.device):
            print(f"{name}: no {args.device} here")
            continue
        run = {"p1": p1, "p2": p2, "p3": p3}[name]
        figures = run(args)
        for peer in [name for name in figures if name.startswith(("onnxruntime", "torch"))]:
            figures[f"{peer} / rlx"] = figures[peer]["p50"] / figures["rlx"]["p50"]
        figures["rlx p99.9 / p50"] = figures["rlx"]["p99.9"] / figures["rlx"]["p50"]
        results[name] = figures
        print(f"{name}: {run.__doc__}")
        for what, values in figures.items():
            if isinstance(values, dict):
                values = "  ".join(f"{key} {value:9.2f}" for key, value in values.items())
            else:
                values = f"{values:.2f}"
            print(f"  {what:28} {values}")
    if "p2" in results and "p3" in results:
        each = (results["p3"]["rlx"]["p50"] - results["p2"]["rlx"]["p50"]) / 99
        results["us for each further dispatch"] = each
        print(f"each further dispatch: {each:.2f} us")
    with open(args.json, "w") as out:
        json.dump(results, out, indent=2)


main()
