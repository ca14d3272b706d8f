"""``import rlx`` loads next to nothing; what is used is loaded then, and everything public is there."""

import json

import pytest
from python_process import run_python

import rlx

# Imports of numpy are not counted.
COUNT = """
import json, sys, time
import numpy
before, start = set(sys.modules), time.process_time()
{code}
took = time.process_time() - start
print(json.dumps([sorted(set(sys.modules) - before), took]))
"""


def loaded(code):
    modules, took = json.loads(run_python("-P", "-c", COUNT.format(code=code)).stdout)
    return set(modules), took


def test_import_alone():
    modules, _ = loaded("import rlx")
    own = {name for name in modules if name.startswith("rlx")}
    assert own == {"rlx", "rlx.lazy_imports", "rlx.version", "rlx._ext"}
    assert len(modules) <= 20, sorted(modules)
    # Measured in a loaded machine: the least of a few.
    assert min(loaded("import rlx")[1] for _ in range(3)) < 0.06


def test_what_a_graph_loads():
    modules, _ = loaded("import rlx; rlx.Graph().input('x', (2,))")
    assert not {name for name in modules if name.startswith(("rlx.importers", "rlx.compiler"))}
    for absent in ("wgpu", "jinja2", "rich", "platformdirs", "asyncio", "onnx", "scipy"):
        assert absent not in modules


def test_what_a_run_on_the_cpu_loads():
    code = """
import rlx
g = rlx.Graph(); g.set_outputs([g.input("x", (2,)) + 1.0])
rlx.compile(g, "cpu").run([1, 2])
"""
    modules, _ = loaded(code)
    for absent in (
        "wgpu",
        "jinja2",
        "rich",
        "asyncio",
        "rlx.importers.onnx",
        "rlx.regress",
        "rlx.cli",
    ):
        assert absent not in modules


def test_a_model_loads_its_own_operators():
    graph = (
        'g = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Gelu", ["y"], ["z"])], "two",'
        '[helper.make_tensor_value_info("x", 1, [4])], [helper.make_tensor_value_info("z", 1, [4])])'
    )
    code = f"""
import rlx
from onnx import helper
{graph}
model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
rlx.onnx.Model(model.SerializeToString(), device="cpu").run([1, 2, 3, 4])
"""
    modules, _ = loaded(code)
    lowering = {name for name in modules if name.startswith("rlx.importers.onnx.ops.")}
    assert "rlx.importers.onnx.ops.activations" in lowering
    assert len(lowering) <= 3, sorted(lowering)
    for absent in ("rlx.ops.all_ops", "rlx.passes.masking.analysis", "rlx.ops.recurrent.layers"):
        assert absent not in modules


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_a_second_start_loads_what_it_runs(device, tmp_path, monkeypatch):
    import onnx
    from onnx import helper

    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    ports = [helper.make_tensor_value_info(name, 1, [4]) for name in ("x", "z")]
    graph = helper.make_graph(nodes, "two", ports[:1], ports[1:])
    path = tmp_path / "two.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path
    )
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    run = f"rlx.onnx.Model({str(path)!r}, device={device!r}).run([1, 2, 3, 4])"
    first, _ = loaded(f"import rlx; {run}")
    second, _ = loaded(f"import rlx; {run}; assert rlx.cache_stats().disk_hits == 1")
    making = {
        "rlx.backends.webgpu.codegen",
        "rlx.compiler.lowering",
        "rlx.importers.onnx.load",
        "rlx.importers.onnx.schema",
        "rlx.importers.onnx.walk",
        "rlx.passes.pipeline",
        "rlx.passes.schedule",
    }
    assert making - first <= ({"rlx.backends.webgpu.codegen"} if device == "cpu" else set())
    assert not making & second
    own = {name for name in second if name.startswith("rlx")}
    assert len(own) <= 175, sorted(own)


@pytest.mark.parametrize("name", ["rlx", "rlx.cost", "rlx.device", "rlx.onnx", "rlx.signal"])
def test_packages_list_what_they_import_late(name):
    code = f"""
import importlib
package = importlib.import_module({name!r})
assert set(package.__all__) <= set(dir(package))
for each in package.__all__:
    assert getattr(package, each) is vars(package)[each]
try:
    package.nothing
except AttributeError as error:
    assert str(error) == "module {name!r} has no attribute 'nothing'", error
else:
    raise AssertionError("found")
"""
    loaded(code.replace("{name!r}", repr(name)))


def test_errors_load_no_operation():
    modules, _ = loaded("from rlx import DeviceLostError, RlxError, CancelToken")
    assert "rlx.ops" not in modules


def test_everything_public_is_there():
    namespace = {}
    exec("from rlx import *", namespace)
    for name in rlx.__all__:
        assert namespace[name] is getattr(rlx, name)
    assert set(rlx.__all__) <= set(dir(rlx))
    for name, home in rlx._homes.items():
        result = getattr(rlx, name)
        assert getattr(result, "__module__", home).startswith(home.rpartition(".")[0])


def test_a_graph_knows_the_operations_however_it_is_imported():
    loaded("from rlx.ir.graph import Graph; g = Graph(); g.stft(g.input('x', (64,)), 16, 8)")
    loaded("import rlx.ops; assert 'istft' in rlx.ops.__all__")
    loaded("from rlx.signal.fourier import stft; import rlx; assert rlx.Graph.istft")
