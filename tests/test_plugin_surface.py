"""Work that a plug-in may leave to rlx: single nodes, memory limits, precisions, params, the choice of packages."""

import math

import numpy as np
import pytest

import rlx
from rlx import flags
from rlx.backends import registry
from rlx.backends.reference import ReferenceExecutable
from rlx.cli.main import main
from rlx.compiler.device_choice import measured_model
from rlx.plugin import (
    Capabilities,
    DeviceInfo,
    KernelLimitError,
    ReboundReferences,
    RooflineModel,
    method_of,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Partial(rlx.Backend):
    """The reference, but for operations and dtypes that it leaves to the host."""

    kernel_set = ""

    def __init__(self, name, leaves=(), dtypes=(), able=None):
        self.name, self._leaves, self._dtypes = name, leaves, dtypes
        self.able = able or Capabilities(arena_ptr=False)
        self.graphs = []

    def devices(self):
        return [DeviceInfo(self.name, 0, "Partial")]

    def absent(self):
        return "never"

    def capabilities(self, info):
        return self.able

    def unsupported(self, info, node):
        if node.op in self._leaves:
            return f"no {node.op}"
        return f"no {node.dtype}" if str(node.dtype) in self._dtypes else None

    def load(self, info, graph, schedule, plan, options):
        self.graphs.append(graph)
        return ReferenceExecutable(graph, {}, options.max_iterations)


@pytest.fixture
def partial():
    results = []

    def make(*args, **kwargs):
        backend = Partial("npu", *args, **kwargs)
        rlx.register_backend(backend)
        results.append(backend)
        return backend

    yield make
    registry._loaded.pop("npu", None)
    flags.renew()


def chain(graph):
    """Device, host, device, with a param on each side and an output of each."""
    x, w, b = graph.input("x", (2, 3)), graph.param("w", (3, 3)), graph.param("b", (3,))
    first = x @ w
    second = graph.softmax(first + b)
    graph.set_outputs([second * 2.0, first, second, w])
    return graph


def values():
    rng = np.random.default_rng(0)
    return {"w": rng.random((3, 3), np.float32), "b": rng.random(3, np.float32)}


def test_nodes_that_a_backend_leaves_run_on_the_host(partial):
    backend, graph, params = partial(("softmax", "add")), chain(rlx.Graph("chain")), values()
    with rlx.compile(graph, "npu", params) as cg, rlx.compile(graph, "cpu", params) as expected:
        assert [
            sorted({n.op for n in g.nodes} - {"input", "param", "constant"}) for g in backend.graphs
        ] == [["matmul"], ["mul"]]
        reasons = {text.rpartition(": ")[2] for text in cg.host_fallbacks}
        assert reasons == {"no softmax", "no add"}
        for _ in range(2):
            for first, other in zip(cg.run_slots(X), expected.run_slots(X), strict=True):
                np.testing.assert_allclose(first, other, rtol=1e-5)
        clone = cg.clone()
        for name in ("w", "b"):
            cg.set_param(name, 2 * params[name])
            expected.set_param(name, 2 * params[name])
            np.testing.assert_array_equal(clone._state.read_param(name), 2 * params[name])
        for first, other in zip(clone.run_slots(X), expected.run_slots(X), strict=True):
            np.testing.assert_allclose(first, other, rtol=1e-5)
        clone.close()
        assert "# host" in cg.as_text("kernels")
        assert cg.memory()["params"] > 0


def test_a_handle_feeds_a_graph_in_parts(partial):
    partial(("exp",))
    g = rlx.Graph("feed")
    state, x = g.input("state", (3,)), g.input("x", (3,))
    total = state + x
    g.set_outputs([total, g.exp(total)])
    with rlx.compile(g, "npu") as cg:
        cg.bind_gpu_handle("state", np.zeros(3, np.float32))
        cg.set_gpu_handle_feed("state", 0)
        for _ in range(2):
            cg.run_slots(np.ones(3, np.float32))
        assert cg.read_gpu_handle("state").tolist() == [2, 2, 2]
        np.testing.assert_allclose(cg.run_slots(np.ones(3, np.float32))[1], math.e**3, rtol=1e-5)


def test_several_results_and_subgraphs_move_as_a_whole(partial):
    partial(("ordered",), ("f64",))
    g = rlx.Graph("several")
    x = g.input("x", (2, 3))
    top, position = g.topk(x, 2)
    then, other = rlx.Graph("then"), rlx.Graph("else")
    then.set_outputs([then.cast(then.cast(then.input("x", (2, 2)), "f64") * 2.0, "f32")])
    other.set_outputs([other.input("x", (2, 2)) + 1.0])
    g.set_outputs([top + 1.0, position, g.if_(g.sum(x) > 0.0, then, other, top)])
    with rlx.compile(g, "npu") as cg, rlx.compile(g, "cpu") as expected:
        for first, wanted in zip(cg.run_slots(X), expected.run_slots(X), strict=True):
            np.testing.assert_allclose(first, wanted)
        assert any("in its subgraph: no f64" in text for text in cg.host_fallbacks)


def test_nothing_runs_on_the_host_where_it_may_not(partial):
    partial(("softmax",))
    options = rlx.CompileOptions(allow_host_fallback=False)
    with pytest.raises(rlx.UnsupportedOpError, match="no softmax"):
        rlx.compile(chain(rlx.Graph()), "npu", values(), options)


def test_what_is_too_large_when_it_is_lowered_runs_on_the_host(partial):
    backend = partial()

    def load(info, graph, schedule, plan, options):
        large = {node: "too large" for node in graph.nodes if node.op == "softmax"}
        if large:
            raise KernelLimitError("too large", large)
        return ReferenceExecutable(graph, {})

    backend.lower = lambda *args: _Program(load(*args), args)
    with rlx.compile(chain(rlx.Graph()), "npu", values()) as cg:
        assert len(cg.host_fallbacks) == 1
        assert cg.host_fallbacks[0].endswith("too large")
        assert np.isfinite(cg.run_slots(X)[0]).all()


class _Program:
    def __init__(self, executable, args):
        self.executable, self.nbytes = executable, 0

    def pack(self):
        return None

    def load(self, info, options):
        return self.executable


def test_a_memory_limit_holds_for_backends_that_plan_their_memory(partial):
    backend = partial()
    for limit, loaded in ((40, 0), (60, 1)):  # below the params; below them and what a run takes
        with pytest.raises(rlx.DeviceMemoryError, match="memory_limit"):
            rlx.compile(chain(rlx.Graph()), "npu", values(), rlx.CompileOptions(memory_limit=limit))
        assert len(backend.graphs) == loaded
    rlx.compile(
        chain(rlx.Graph()), "npu", values(), rlx.CompileOptions(memory_limit=10_000)
    ).close()


def test_a_precision_is_taken_or_refused_by_name(partial):
    partial(able=Capabilities(arena_ptr=False, precisions=("f32", "bf16")))
    rlx.Session("npu", precision="bf16").compile(chain(rlx.Graph())).close()
    for device, precision in (
        ("npu", "tf32"),
        ("npu", "f16"),
        ("cpu", "tf32"),
        ("reference", "bf16"),
    ):
        with pytest.raises(rlx.CompileError, match=precision) as caught:
            rlx.Session(device, precision=precision).compile(chain(rlx.Graph()))
        assert "'f32'" in str(caught.value)
    with pytest.raises(rlx.CompileError, match="no such precision"):
        rlx.Session("npu", precision="tf31")


@pytest.mark.parametrize("prepares", [False, True])
def test_what_depends_on_params_alone_is_prepared_where_a_backend_wants_it(partial, prepares):
    backend = partial(able=Capabilities(arena_ptr=False, prepared_params=prepares))
    g = rlx.Graph("prepared")
    g.set_outputs([g.input("x", (2, 3)) @ g.exp(g.param("w", (3, 3)))])
    w = values()["w"]
    with rlx.compile(g, "npu", {"w": w}) as cg:
        (graph,) = backend.graphs
        assert ("exp" in {node.op for node in graph.nodes}) is not prepares
        np.testing.assert_allclose(cg.run_slots(X)[0], X @ np.exp(w), rtol=1e-5)
        np.testing.assert_array_equal(cg._state.read_param("w"), w)
    with rlx.compile(g, "npu", {"w": w}, rlx.CompileOptions(hoist=False)):
        assert "exp" in {node.op for node in backend.graphs[-1].nodes}


def test_a_saved_model_says_that_a_plug_in_compiles_it_itself(partial, tmp_path):
    partial()
    graph = chain(rlx.Graph())
    notes = rlx.save_model(graph, tmp_path / "model.rlx", devices=["cpu", "npu"])
    assert notes == ["npu: it is compiled when it is loaded; its backend takes graphs whole"]


class _Point:
    """An entry point of a package."""

    def __init__(self, package, backend):
        self.value, self._backend = f"{package}:BACKEND", backend
        self.dist = type("Dist", (), {"name": package, "version": "1.0"})

    def load(self):
        return self._backend


def test_a_variable_chooses_among_packages_that_claim_one_device(monkeypatch):
    points = tuple(_Point(name, Partial("npu", (name,))) for name in ("rlx_one", "rlx-two"))
    monkeypatch.setattr(registry, "_entry_points", lambda: {"npu": points})
    for wanted, message in (
        ("", "RLX_PLUGINS to npu=rlx-one or npu=rlx-two"),
        ("npu=rlx-three", "'rlx-three', which has no such backend"),
    ):
        registry._broken.pop("npu", None)
        monkeypatch.setenv("RLX_PLUGINS", wanted)
        with pytest.raises(rlx.DeviceUnavailableError, match=message):
            registry.backend("npu")
    for wanted, package in (("npu=RLX.one", "rlx_one"), ("npu = rlx-two", "rlx-two")):
        monkeypatch.setattr(registry, "_broken", {})
        monkeypatch.setattr(registry, "_loaded", {})
        monkeypatch.setenv("RLX_PLUGINS", wanted)
        assert registry.backend("npu").plain._leaves == (package,)
    monkeypatch.setenv("RLX_PLUGINS", "npu")
    with pytest.raises(rlx.InputError, match="RLX_PLUGINS"):
        registry._chosen("npu", points)


def test_a_method_beyond_the_protocol_is_found_or_refused():
    with rlx.compile(chain(rlx.Graph()), "reference", values()) as cg:
        assert method_of(cg, "memory")()["params"] > 0
        with pytest.raises(rlx.InputError, match="run_on_device"):
            method_of(cg, "run_on_device")
    with pytest.raises(rlx.RlxError):
        method_of(cg, "memory")


class Counting:
    """NumPy that remembers what was asked of it."""

    def __init__(self):
        self.asked = set()

    def __getattr__(self, name):
        self.asked.add(name)
        return getattr(np, name)


def test_references_are_copied_with_another_library():
    namespace = Counting()
    rebound = ReboundReferences(namespace)
    namespace.asked.clear()
    assert np.isclose(
        rebound.reference("layer_norm")(np.float64([1.0, 2.0]), eps=0.0, axis=0)[1], 1.0
    )
    assert {"mean", "sqrt"} <= namespace.asked
    # Names that a reference calls in other modules, and other records.
    namespace.asked.clear()
    rebound.reference("residual_norm")(np.ones(2), np.ones(2), axis=0)
    assert "mean" in namespace.asked
    assert rebound.reference("softmax") is rebound.reference("softmax")


def test_functions_and_records_are_replaced_in_copies_alone():
    instead = {"rlx.ops.elementwise.table.erf": lambda x: x * 0}
    rebound = ReboundReferences(np, instead, {"softmax": lambda x, axis=-1: "mine"})
    assert rebound.reference("gelu")(np.float64(3.0)) == 1.5
    assert rebound.reference("softmax")(np.ones(2)) == "mine"
    with rlx.compile(chain(rlx.Graph()), "reference", values()) as cg:
        assert np.allclose(cg.run_slots(X)[2].sum(-1), 1)


def test_a_figure_of_a_plug_in_is_its_own(partial):
    backend = partial()
    figures = RooflineModel("npu", 1.0, 5e4, 1e4, 1.0, 1.0, 1.0, True)
    backend.cost_model = lambda info: figures
    row = next(r for r in rlx.GraphDevices(chain(rlx.Graph())).report() if str(r.device) == "npu")
    assert row.estimate_ns > 5e4
    assert measured_model(rlx.Device("npu")) is figures


def test_the_command_does_not_measure_what_nobody_would_read(partial, monkeypatch, capsys):
    partial()
    measured = []
    monkeypatch.setattr(
        "rlx.cli.devices.remeasure", lambda device, show: measured.append(str(device))
    )
    assert main(["devices", "--calibrate"]) == 0
    assert "cpu" in measured
    assert "npu" not in measured
    assert "the plug-in of npu states its figures" in capsys.readouterr().err
