"""GraphDevices: one graph on many devices, by hint, by environment, by estimate, by measurement."""

import numpy as np
import pytest

import rlx
from rlx import Benchmark, Device, DevicePolicy, GraphDevices, flags
from rlx.backends import registry
from rlx.backends.reference import ReferenceExecutable
from rlx.compiler.device_choice import choose
from rlx.cost import RooflineModel
from rlx.device.names import info_of

CPU = Device("cpu")
X = {"x": np.float32([[3, 4]])}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("DEVICES", "DENY_DEVICES", "PREFER_DEVICES", "DEVICE", "DEVICE_CHAIN"):
        monkeypatch.delenv(f"RLX_{name}", raising=False)
    monkeypatch.delenv("RLX_BENCHMARK_PICK", raising=False)
    return monkeypatch


def added():
    g = rlx.Graph("added")
    g.set_outputs([g.input("x", (1, 2)) + g.param("b", (1, 2))])
    return g


def ready(**policy):
    gd = GraphDevices(added(), DevicePolicy(**policy))
    gd.set_param("b", np.float32([[1, 2]]))
    return gd


def names(devices):
    return [str(device) for device in devices]


class TimedBackendStub(rlx.Backend):
    """A backend of the reference with stated speeds, that may fail to load."""

    kernel_set = ""

    def __init__(self, name, trip_ns):
        self.name, self.trip_ns, self.fails = name, trip_ns, ""
        self.loads = 0

    def devices(self):
        return [rlx.DeviceInfo(self.name, 0, f"fake {self.name}")]

    def absent(self):
        return ""

    def cost_model(self, info):
        trip = float(self.trip_ns)
        return RooflineModel(self.name, 1e9, 0.0, trip, 1e9, 1e9, 1e9, unified_memory=True)

    def load(self, info, graph, schedule, plan, options):
        self.loads += 1
        if self.fails == "load":
            raise RuntimeError(f"{self.name} does not load")
        if self.fails == "lost":
            return Lost(graph, {})
        return ReferenceExecutable(graph, {})


class Lost(ReferenceExecutable):
    def compute(self, inputs, targets):
        raise rlx.DeviceLostError("gone")


@pytest.fixture
def fakes(monkeypatch):
    """Registers backends with stated speeds for one test."""
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))

    def register(**trips):
        results = {name: TimedBackendStub(name, trip_ns) for name, trip_ns in trips.items()}
        for value in results.values():
            rlx.register_backend(value)
        return results

    yield register
    flags.renew()  # what was compiled for them is no longer there


# --- params ---------------------------------------------------------------------------------------


def test_a_param_set_later_reaches_every_compiled_device(webgpu):
    gd = ready()
    for device in ("cpu", webgpu):
        gd.run(device, X)
    gd.set_param("b", np.float32([[10, 20]]))
    for device in ("cpu", webgpu):
        np.testing.assert_array_equal(gd.run(device, X)[0], [[13, 24]])


def test_params_are_checked_when_they_are_set_and_kept_as_they_were():
    gd = GraphDevices(added())
    with pytest.raises(rlx.UnknownNameError, match="no param named 'bb'"):
        gd.set_param("bb", np.zeros((1, 2)))
    with pytest.raises(rlx.InputError, match="does not fit"):
        gd.set_param("b", np.zeros((2, 2)))
    with pytest.raises(rlx.InputError, match="never set"):
        gd.run("cpu", X)
    value = np.float32([[1, 2]])
    gd.set_param("b", value)
    value[:] = 99
    np.testing.assert_array_equal(gd.run("reference", X)[0], [[4, 6]])


def test_params_from_bytes_and_those_of_the_graph():
    g = added()
    g.param_values["b"] = np.float32([[5, 5]])
    gd = GraphDevices(g)
    np.testing.assert_array_equal(gd.run("cpu", X)[0], [[8, 9]])
    gd.set_param_typed("b", np.float16([[1, 2]]).tobytes(), "f16")
    np.testing.assert_array_equal(gd.run("cpu", X)[0], [[4, 6]])
    with pytest.raises(rlx.InputError, match="do not fill it"):
        gd.set_param_typed("b", b"123", "f32")
    with pytest.raises(rlx.UnknownNameError):
        gd.set_param_typed("c", b"", "f32")


def test_params_go_to_all_again():
    gd = ready()
    gd.compile("cpu").set_param("b", np.zeros((1, 2)))
    np.testing.assert_array_equal(gd.run("cpu", X)[0], [[3, 4]])
    gd.sync_params_to_all()
    np.testing.assert_array_equal(gd.run("cpu", X)[0], [[4, 6]])


# --- compiling ------------------------------------------------------------------------------------


def test_a_device_is_compiled_once_until_it_is_forgotten_or_closed(fakes):
    result = fakes(cuda=1e9)["cuda"]
    gd = ready()
    first = gd.compile("cuda")
    assert gd.compile("cuda") is first
    gd.run("cuda", X)
    assert result.loads == 1
    gd.invalidate_cache()
    assert gd.compile("cuda") is not first
    np.testing.assert_array_equal(first.run(X)[0], [[4, 6]])
    gd.compile("cuda").close()
    np.testing.assert_array_equal(gd.run("cuda", X)[0], [[4, 6]])
    assert result.loads == 3


def test_every_way_to_compile_and_to_run(fakes):
    fakes(cuda=1)
    gd = ready(allow="cpu,cuda")
    for compiled in (
        gd.compile_fastest(),
        gd.compile_resolved(None),
        gd.compile_resolved_with_inputs("cuda", X),
        gd.compile_chain(None),
        gd.compile_chain("tpu,cuda"),
    ):
        assert compiled is gd.compile("cuda")
    for outputs in (
        gd.run_fastest(X),
        gd.run_resolved(None, X),
        gd.run_resolved("cpu", X),
        gd.run_resolved_with_inputs(None, X),
    ):
        np.testing.assert_array_equal(outputs[0], [[4, 6]])
    assert gd.warm_all() == {}
    with gd:
        retained = gd.compile("cpu")
    assert retained.closed


def test_what_is_no_graph_or_no_policy_is_refused():
    g = added()
    with pytest.raises(rlx.GraphError, match="not a graph"):
        GraphDevices("graph")
    with pytest.raises(rlx.InputError, match="not a policy"):
        GraphDevices(g, "cpu")
    with pytest.raises(rlx.VerifyError):
        GraphDevices(rlx.Graph())


# --- chains ---------------------------------------------------------------------------------------


def test_all_attempts_are_told():
    with pytest.raises(rlx.DeviceFallbackError) as caught:
        ready().run_try("cuda,tpu", X)
    attempts = caught.value.attempts
    assert names(device for device, _ in attempts) == ["cuda", "tpu"]
    assert all(isinstance(error, rlx.DeviceUnavailableError) for _, error in attempts)
    assert "cuda" in str(caught.value)
    assert "tpu" in str(caught.value)


def test_an_empty_chain_is_one_attempt_on_the_cpu_with_that_reason():
    gd = ready()
    for attempt in (lambda: gd.run_try([], X), lambda: gd.run_chain([], X)):
        with pytest.raises(rlx.DeviceFallbackError) as caught:
            attempt()
        ((device, error),) = caught.value.attempts
        assert device == CPU
        assert "chain of devices is empty" in str(error)


def test_a_chain_of_what_is_no_device_is_refused_at_once():
    with pytest.raises(rlx.DeviceParseError, match="gpuu"):
        ready().run_try("cpu,gpuu", X)
    with pytest.raises(rlx.InputError, match="not a list"):
        ready().run_try(5, X)


def test_chains_by_hint_by_environment_and_by_estimate(fakes, environment):
    fakes(cuda=1, rocm=2)
    gd = ready(allow="cpu,cuda,rocm")
    assert names(gd.chain()) == ["cuda", "rocm", "cpu"]
    assert names(gd.chain("cpu")) == ["cpu", "cuda", "rocm"]
    assert names(gd.chain("tpu,cpu")) == ["tpu", "cpu"]
    assert names(gd.chain([CPU, "rocm"])) == ["cpu", "rocm"]
    environment.setenv("RLX_DEVICE_CHAIN", "rocm,cpu")
    assert names(gd.chain()) == ["rocm", "cpu"]
    assert names(gd.chain("cuda")) == ["cuda", "rocm", "cpu"]
    environment.setenv("RLX_DEVICE", "cpu")
    assert names(gd.chain()) == ["cpu", "rocm"]
    assert names(gd.chain("cuda")) == ["cuda", "rocm", "cpu"]
    environment.setenv("RLX_DEVICE_CHAIN", "rocm,gpuu")
    with pytest.raises(rlx.DeviceParseError, match=r"RLX_DEVICE_CHAIN[^$]*gpuu"):
        gd.chain()


def test_a_chain_resolves_to_its_first_device_that_can_run_the_graph(fakes):
    fakes(cuda=1, rocm=2)
    gd = ready(allow="cpu,cuda,rocm")
    assert str(gd.resolve_chain()) == "cuda"
    assert gd.resolve_chain("cpu") == CPU
    assert str(gd.resolve_chain("tpu,rocm,cpu")) == "rocm"
    assert gd.compile_chain("tpu,rocm,cpu").device == gd.resolve_chain("tpu,rocm,cpu")
    with pytest.raises(rlx.DeviceUnavailableError, match=r"tpu: no backend.*; mlx: no backend"):
        gd.resolve_chain(["tpu", "mlx"])
    with pytest.raises(rlx.DeviceUnavailableError, match="empty chain"):
        gd.resolve_chain([])


def test_a_chain_goes_past_a_device_that_the_policy_denies():
    gd = ready(deny="cpu")
    device, _ = gd.run_try("cpu,reference", X)
    assert str(device) == "reference"
    with pytest.raises(rlx.DeviceUnavailableError, match="the policy denies cpu"):
        gd.compile("cpu")


def test_a_lost_device_starts_anew(fakes):
    result = fakes(cuda=1e9)["cuda"]
    result.fails = "lost"
    gd = ready()
    assert gd.run_try("cuda,cpu", X)[0] == CPU
    result.fails = ""
    assert str(gd.run_try("cuda,cpu", X)[0]) == "cuda"
    assert result.loads == 2


# --- resolving ------------------------------------------------------------------------------------


def test_a_hint_then_the_environment_then_the_pick(fakes, environment):
    fakes(cuda=1, rocm=1e9)
    gd = ready()
    assert str(gd.resolve()) == str(gd.fastest()) == "cuda"
    environment.setenv("RLX_DEVICE", "rocm")
    assert str(gd.resolve()) == str(gd.resolve("auto")) == "rocm"
    assert str(gd.resolve("cpu")) == "cpu"
    assert str(gd.resolve_with_inputs(None, X)) == "rocm"
    # The fastest device does not depend on it.
    assert str(gd.fastest()) == "cuda"
    # A policy's own device, from an environment of another prefix, goes before it.
    environment.setenv("APP_DEVICE", "cpu")
    gd.set_policy(DevicePolicy.from_env("APP_"))
    assert str(gd.resolve()) == "cpu"


def test_a_hint_that_is_not_viable_names_those_that_are(environment):
    gd = ready(deny="reference")
    for hint, reason in {"cuda": "no backend", "webgpu:99": "not available"}.items():
        with pytest.raises(rlx.DeviceUnavailableError, match=reason) as caught:
            gd.resolve(hint)
        assert "expected: one of cpu" in str(caught.value)
        assert "where: hint" in str(caught.value)
    with pytest.raises(rlx.DeviceUnavailableError, match="the policy denies reference"):
        gd.resolve("reference")
    environment.setenv("RLX_DEVICE", "cuda")
    with pytest.raises(rlx.DeviceUnavailableError, match="environment variable RLX_DEVICE"):
        gd.resolve()
    environment.setenv("RLX_DEVICE", "gpuu")
    with pytest.raises(rlx.DeviceParseError, match=r"RLX_DEVICE.*'gpuu'"):
        gd.resolve()


def test_auto_goes_by_the_environment(fakes, environment):
    fakes(cuda=1, rocm=2)
    params = {"b": np.zeros((1, 2))}
    assert str(rlx.compile(added(), params=params).device) == "cuda"
    environment.setenv("RLX_DENY_DEVICES", "cuda")
    assert str(rlx.compile(added(), params=params).device) == "rocm"
    environment.setenv("RLX_DEVICES", "cpu,cuda")
    assert str(rlx.compile(added(), params=params).device) == "cpu"
    assert str(GraphDevices.from_env(added()).fastest()) == "cpu"
    # Without from_env a policy is what was given.
    assert str(GraphDevices(added()).fastest()) == "cuda"
    environment.setenv("RLX_DEVICES", "cuda")
    with pytest.raises(rlx.DeviceUnavailableError, match="the policy denies cuda"):
        rlx.compile(added(), params=params)
    environment.setenv("RLX_DEVICES", "cuda,gpuu")
    with pytest.raises(rlx.DeviceParseError, match=r"RLX_DEVICES.*'gpuu'"):
        rlx.compile(added(), params=params)


def test_no_device_at_all_says_why_of_each():
    gd = ready(allow="tpu")
    assert gd.devices == []
    for call in (gd.fastest, gd.resolve, gd.chain, gd.resolve_chain):
        with pytest.raises(rlx.DeviceUnavailableError, match="cpu: the policy allows only tpu"):
            call()


# --- estimates, measurements ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [((), "cuda"), ("rocm", "rocm"), ("tpu", "cuda"), ("tpu,rocm", "rocm"), ("rocm,cuda", "rocm")],
)
def test_prefer_decides_among_estimates_within_ten_percent(fakes, prefer, expected):
    fakes(cuda=1000, rocm=1099, tpu=1101)
    gd = ready(allow="cpu,cuda,rocm,tpu", prefer=prefer)
    assert str(gd.fastest()) == expected
    assert names(row.device for row in gd.report() if row.recommended) == [expected]
    assert names(gd.chain())[0] == expected
    choice = choose(gd.graph, policy=gd.policy)
    assert str(choice.device) == expected
    assert ("preferred" in choice.reason) == (expected != "cuda")


def test_the_report_has_every_device_and_what_is_in_its_way():
    g = rlx.Graph()
    g.set_outputs([g.input("x", (1 << 20, 1 << 14))])
    rows = {str(row.device): row for row in GraphDevices(g, DevicePolicy(deny="cpu")).report()}
    assert set(rows) >= {"cpu", "webgpu", "cuda", "rocm", "mlx", "tpu", "ane"}
    cpu, cuda = rows["cpu"], rows["cuda"]
    assert cpu.available
    assert cpu.registered
    assert cpu.supports_graph
    assert not cpu.recommended
    assert cpu.blocker == "the policy denies cpu"
    assert cpu.estimate_ns > 0
    assert cpu.capabilities.zero_copy_inputs
    assert (cuda.available, cuda.registered, cuda.supports_graph) == (False, False, False)
    assert (cuda.estimate_ns, cuda.capabilities) == (None, None)
    assert "no backend" in cuda.blocker


def test_a_value_that_no_buffer_holds_blocks_a_gpu(webgpu):
    g = rlx.Graph()
    limit = info_of(Device(webgpu)).limits["max-buffer-size"]
    g.set_outputs([g.input("x", (limit // 4 + 1,))])
    row = next(row for row in GraphDevices(g).report() if str(row.device) == webgpu)
    assert row.available
    assert not row.supports_graph
    assert row.blocker.startswith("x has ")
    assert GraphDevices(g).fastest() == CPU


def test_the_benchmark_ranks_and_puts_a_failing_device_last(fakes):
    fakes(cuda=1, rocm=1)["cuda"].fails = "load"
    gd = ready(allow="cpu,cuda,rocm")
    assert names(gd.devices) == ["cpu", "cuda", "rocm"]
    results = gd.benchmark(X, 5)
    assert [result.error is None for result in results] == [True, True, False]
    assert results[0].median_ns <= results[1].median_ns < results[2].median_ns == float("inf")
    assert str(results[2].device) == "cuda"
    assert "cuda does not load" in str(results[2].error)
    for result in results[:2]:
        assert 0 < result.median_ns <= result.p99_ns < float("inf")
        assert result.compile_ns > 0
    with pytest.raises(rlx.InputError, match="runs"):
        gd.benchmark(X, 0)


def test_the_benchmark_makes_one_run_more_than_it_times(fakes, monkeypatch):
    result = fakes(cuda=1)["cuda"]
    counts = []
    compute = ReferenceExecutable.compute

    def counted(self, inputs, targets):
        counts.append(result)
        compute(self, inputs, targets)

    monkeypatch.setattr(ReferenceExecutable, "compute", counted)
    ready(allow="cuda").benchmark(X, 4)
    assert len(counts) == 5


def test_a_pick_by_benchmark_goes_by_what_is_measured(fakes):
    # By its own account the fake is fast; its NumPy is not.
    fakes(cuda=0)
    g = rlx.Graph()
    x = g.input("x", (64, 64))
    for _ in range(20):
        x = g.tanh(x @ g.param("w", (64, 64)) if not g.param_names else x @ g.named("w"))
    g.set_outputs([x])
    by_cost = GraphDevices(g, DevicePolicy(allow="cpu,cuda"))
    assert str(by_cost.fastest()) == "cuda"
    measured = GraphDevices(g, DevicePolicy(allow="cpu,cuda", pick=Benchmark(5)))
    assert measured.fastest() == measured.resolve() == CPU
    assert names(measured.chain()) == ["cpu", "cuda"]
    # Values made up for the benchmark are gone: the param is still missing.
    with pytest.raises(rlx.InputError, match="never set"):
        measured.run("cpu", {"x": np.zeros((64, 64), np.float32)})


def test_a_pick_by_benchmark_runs_on_the_inputs_it_is_given(fakes):
    fakes(cuda=1)
    gd = ready(allow="cpu,cuda", pick=Benchmark(2))
    assert gd.resolve_with_inputs(None, X) in gd.devices
    np.testing.assert_array_equal(gd.run_fastest(X)[0], [[4, 6]])
    gd.invalidate_cache()
    with pytest.raises(rlx.DeviceFallbackError, match="no input named 'y'"):
        gd.run_fastest({"y": X["x"]})


def test_auto_measures_where_the_environment_says_so(fakes, environment):
    result = fakes(cuda=0)["cuda"]
    environment.setenv("RLX_BENCHMARK_PICK", "2")
    environment.setenv("RLX_DEVICES", "cpu,cuda")
    compiled = rlx.compile(added(), params={"b": np.float32([[1, 2]])})
    assert result.loads >= 1
    assert compiled.device in (CPU, Device("cuda"))
    np.testing.assert_array_equal(compiled.run(X)[0], [[4, 6]])
