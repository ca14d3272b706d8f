"""Load, compile and first run of a 16-node chain in a fresh process without caches."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

NODES, WIDTH = 16, 64
# No cache of rlx, nor of the drivers that keep one.
COLD = {"RLX_CACHE": "off", "__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}
# The kinds of nodes in turn.
STEPS = ("matmul", "gelu", "softmax", "layer_norm")


def chain():
    """The chain as a graph with its weights, and a sample of the operand."""
    import rlx

    rng = np.random.default_rng(3)
    g = rlx.Graph("chain of 16")
    y, weights = g.input("x", (WIDTH, WIDTH)), {}
    for index in range(NODES):
        kind = STEPS[index % len(STEPS)]
        if kind == "matmul":
            weights[f"w{index}"] = rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32)
            y = y @ g.param(f"w{index}", (WIDTH, WIDTH))
        else:
            y = getattr(g, kind)(y)
    g.set_outputs([y])
    g.param_values.update(weights)
    return g, weights, rng.normal(size=(WIDTH, WIDTH)).astype(np.float32)


def onnx_chain(weights):
    """The same as the bytes of an ONNX model."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, value = [], "x"
    ones = {"scale": np.ones(WIDTH, np.float32), **weights}
    operators = {"gelu": "Gelu", "softmax": "Softmax", "layer_norm": "LayerNormalization"}
    for index in range(NODES):
        kind = STEPS[index % len(STEPS)]
        more = {"matmul": [f"w{index}"], "layer_norm": ["scale"]}.get(kind, [])
        nodes.append(helper.make_node(operators.get(kind, "MatMul"), [value, *more], [f"y{index}"]))
        value = f"y{index}"
    shape = [WIDTH, WIDTH]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(item, name) for name, item in ones.items()],
    )
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def rlx_first(folder, device):
    """Milliseconds from the file to the first result, and those of them that finding the adapters takes."""
    import time

    # Imports are not part of it.
    import wgpu.backends.wgpu_native  # noqa: F401

    import rlx

    x = np.load(folder / "x.npy")
    began = time.perf_counter()
    rlx.available_devices()
    rlx.is_available(device)
    started = time.perf_counter()
    with rlx.compile(rlx.load_model(folder / "chain.rlx"), device) as compiled:
        (y,) = compiled.run({"x": x})
    over = time.perf_counter()
    error = float(np.linalg.norm(y - np.load(folder / "y.npy")) / np.linalg.norm(y))
    return {"rlx_ms": (over - began) * 1e3, "adapters_ms": (started - began) * 1e3, "error": error}


def ort_first(folder):
    """Milliseconds of ONNX Runtime's WebGPU from the file to the first result."""
    import time

    # Imports are not part of it.
    import onnxruntime  # noqa: F401
    import onnxruntime_ep_webgpu  # noqa: F401
    from gpu_peer_ort import ort_session

    x = np.load(folder / "x.npy")
    began = time.perf_counter()
    session = ort_session((folder / "chain.onnx").read_bytes())
    session.run(None, {"x": x})
    return {"ort": (time.perf_counter() - began) * 1e3}


def cold_start(device, beside=True, runs=3):
    """The medians of some fresh processes, rlx and ONNX Runtime's WebGPU."""
    import rlx

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        g, weights, x = chain()
        np.save(folder / "x.npy", x)
        with rlx.compile(g, "cpu") as compiled:
            np.save(folder / "y.npy", compiled.run({"x": x})[0])
        rlx.save_model(g, folder / "chain.rlx")
        results = [_fresh("rlx", folder, device) for _ in range(runs)]
        failed = [item for item in results if "error_text" in item or item["error"] > 1e-5]
        if failed:
            return {"failed": failed[0].get("error_text") or f"wrong by {failed[0]['error']:.2g}"}
        middle = sorted(results, key=lambda item: item["rlx_ms"])[runs // 2]
        if not beside:
            return middle | {"ort": "not asked for"}
        try:
            (folder / "chain.onnx").write_bytes(onnx_chain(weights))
            times = [_fresh("ort", folder, device) for _ in range(runs)]
            middle["ort"] = sorted(time["ort"] for time in times)[runs // 2]
        except ImportError as error:
            middle["ort"] = f"absent: {error}"
        except KeyError:
            middle["ort"] = f"absent: {times[0]['error_text']}"
        return middle


def _fresh(who, folder, device):
    """Returns the output of a new process."""
    command = [sys.executable, __file__, who, str(folder), device]
    done = subprocess.run(command, env={**os.environ, **COLD}, capture_output=True, text=True)
    if done.returncode:
        return {"error_text": (done.stderr.strip().splitlines() or ["no word"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    who, folder, device = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    print(json.dumps(rlx_first(folder, device) if who == "rlx" else ort_first(folder)))
