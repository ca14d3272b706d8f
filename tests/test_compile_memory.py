"""Memory of loading and compiling a model: its weights are read where they lie, and held once."""

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from python_process import run_python

LAYERS, WIDTH = 16, 2048
WEIGHTS = LAYERS * WIDTH * WIDTH * 4

# Prints the most bytes of memory of its own (not of files that are mapped) that the process had, beyond what it had before.
MEASURED = """
import sys, threading, time
import numpy as np, rlx
from pathlib import Path

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

rlx.compile, rlx.onnx.Model
most, done = [own()] * 2, threading.Event()

def watch():
    while not done.wait(0.002):
        most[1] = max(most[1], own())

watching = threading.Thread(target=watch)
watching.start()
model = rlx.onnx.Model(sys.argv[1], device=sys.argv[2])
model.run(np.ones((1, 2048), np.float32))
done.set()
watching.join()
print(most[1] - most[0])
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A chain of products whose weights are not aligned in the file."""
    rng = np.random.default_rng(0)
    single = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5
    nodes, tensors = [], []
    for index in range(LAYERS):
        tensors.append(
            numpy_helper.from_array(single + np.float32(index), f"{'w' * (1 + index % 4)}{index}")
        )
        nodes.append(helper.make_node("MatMul", [f"x{index}", tensors[-1].name], [f"p{index}"]))
        nodes.append(helper.make_node("Tanh", [f"p{index}"], [f"x{index + 1}"]))
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info(f"x{LAYERS}", TensorProto.FLOAT, None)],
        tensors,
    )
    path = tmp_path_factory.mktemp("memory") / "products.onnx"
    onnx.save(helper.make_model(graph, ir_version=10), path)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("place", "copies"),
    # The memory of a software adapter is the process's own: its weights, and one more time what a driver keeps of it.
    [("cpu", 1.2), pytest.param("webgpu", 1.8, marks=pytest.mark.webgpu)],
)
def test_weights_are_held_once(model, place, copies, request):
    took = int(run_python("-c", MEASURED, model, place).stdout)
    assert took < copies * WEIGHTS + (100 << 20), f"{took / WEIGHTS:.2f} times the weights"
    # A GPU holds them in memory of its own.
    if place == "cpu" or not request.getfixturevalue("hardware"):
        assert took > WEIGHTS // 2, "something was measured"
