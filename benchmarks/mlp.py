"""run_slots against ONNX Runtime's IOBinding: a three-layer 1x64 MLP with gelu, on the CPU.

usage: python benchmarks/mlp.py   (needs onnx and onnxruntime; prints ratios, writes mlp.json)
"""

import json
import platform
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import rlx

N, LAYERS, ROUNDS, CALLS = 64, 3, 200, 200
rng = np.random.default_rng(0)
WEIGHTS = {f"w{i}": rng.normal(0, 0.2, (N, N)).astype(np.float32) for i in range(LAYERS)}
BIASES = {f"b{i}": rng.normal(0, 0.2, (N,)).astype(np.float32) for i in range(LAYERS)}
X = rng.normal(size=(1, N)).astype(np.float32)


def ours():
    g = rlx.Graph("mlp")
    y = g.input("x", (1, N))
    for i in range(LAYERS):
        y = g.gelu(y @ g.param(f"w{i}", (N, N)) + g.param(f"b{i}", (N,)))
    g.set_outputs([y])
    return rlx.compile(g, "cpu", params={**WEIGHTS, **BIASES})


def theirs():
    nodes, value = [], "x"
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Gelu", [f"a{i}"], [f"y{i}"]))
        value = f"y{i}"
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, N])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, N])],
        [numpy_helper.from_array(v, k) for k, v in {**WEIGHTS, **BIASES}.items()],
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
    return session, binding, y


def percentiles(ns):
    return {f"p{q}": float(np.percentile(ns, q)) / 1e3 for q in (50, 99, 99.9)}


def main():
    compiled = ours()
    session, binding, result = theirs()
    run = compiled.run_slots
    session.run_with_iobinding(binding)
    (y,) = run(X)
    error = np.linalg.norm(y - result.numpy()) / np.linalg.norm(result.numpy())
    assert error < 1e-5, error
    samples = {"rlx": [], "onnxruntime": []}
    for _ in range(ROUNDS):  # interleaved, so that both see the same machine
        for name, call, args in (
            ("rlx", run, (X,)),
            ("onnxruntime", session.run_with_iobinding, (binding,)),
        ):
            for _ in range(CALLS):
                begin = time.perf_counter_ns()
                call(*args)
                samples[name].append(time.perf_counter_ns() - begin)
    figures = {name: percentiles(ns) for name, ns in samples.items()}
    figures["ratio_p50"] = figures["onnxruntime"]["p50"] / figures["rlx"]["p50"]
    figures["versions"] = {
        "rlx": rlx.__version__,
        "onnxruntime": ort.__version__,
        "machine": platform.platform(),
        "isa": compiled.as_text("kernels").splitlines()[0],
    }
    print(json.dumps(figures, indent=2))
    with open("mlp.json", "w") as out:
        json.dump(figures, out, indent=2)


main()
