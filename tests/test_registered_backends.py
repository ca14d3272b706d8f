"""Backends that a program registers: devices, programs that are stored, answers to what rlx asks."""

import contextlib
import json

import numpy as np
import pytest
from forged import forge

import rlx
from rlx import flags
from rlx.backends import registry as backend_registry
from rlx.backends.null import NullExecutable
from rlx.backends.reference import BACKEND as REFERENCE
from rlx.backends.reference import ReferenceExecutable
from rlx.backends.webgpu import adapters
from rlx.backends.webgpu.provider import provider
from rlx.calibrate.measurer import Measurer
from rlx.cli import devices, tune
from rlx.compiler import compile_cache
from rlx.compiler.target import Target


class Npu(rlx.Backend):
    """A backend registered by hand."""

    name, kernel_set = "npu", ""

    def __init__(self, infos):
        self._infos = infos

    def devices(self):
        return self._infos

    def absent(self):
        return "no NPU"

    def load(self, info, graph, schedule, plan, options):
        return ReferenceExecutable(graph, {})


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(backend_registry, "_loaded", dict(backend_registry._loaded))
    monkeypatch.setattr(backend_registry, "_broken", {})
    yield
    flags.renew()  # what was compiled for them is no longer there


def doubled():
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,)) * 2.0])
    return g


def test_a_registered_backend_is_a_device(registry):
    rlx.register_backend(Npu([rlx.DeviceInfo("npu", 0, "NPU 1")]))
    assert rlx.is_available("npu")
    assert rlx.Device("npu") in rlx.devices_for(doubled())
    (y,) = rlx.compile(doubled(), "npu").run({"x": np.float32([1, 2])})
    np.testing.assert_array_equal(y, [2, 4])
    row = next(r for r in rlx.GraphDevices(doubled()).report() if r.device.backend == "npu")
    assert (row.label, row.capabilities) == ("NPU 1", None)


class Tiled:
    """A program with a decision of its own: a tile size, which a file may hold."""

    nbytes = 1 << 10

    def __init__(self, schedule, plan, tile):
        self._schedule, self._plan, self.tile = schedule, plan, tile

    def pack(self):
        return {"tile": self.tile}

    def load(self, info, options):
        result = NullExecutable(self._schedule, self._plan)
        result.tile = self.tile
        return result


class Tiling(Npu):
    """A backend whose programs are kept and stored; it measures only once."""

    kernel_set, lowered = "cpu", 0

    def lower(self, info, graph, schedule, plan, options):
        Tiling.lowered += 1
        return Tiled(schedule, plan, 8)

    def unpack(self, data, info, graph, schedule, plan, options):
        if data.get("tile") not in (4, 8):
            raise rlx.InputError(f"no such tile: {data}")
        return Tiled(schedule, plan, data["tile"])

    def build_id(self):
        return "npu 1.0"


def test_a_program_of_a_plugin_is_stored_and_checked(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Tiling, "lowered", 0)
    backend = Tiling([rlx.DeviceInfo("npu", 0, "NPU 1")])
    rlx.register_backend(backend)
    for _ in range(2):  # the second is found in memory, with its program
        assert rlx.compile(doubled(), "npu")._state.executable.tile == 8
    assert Tiling.lowered == 1
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    assert rlx.compile(doubled(), "npu")._state.executable.tile == 8
    assert rlx.cache_stats().disk_hits == before.disk_hits + 1
    assert Tiling.lowered == 1
    # Its build is part of an entry's name.
    compile_cache._kept.clear()
    monkeypatch.setattr(Tiling, "build_id", lambda self: "npu 1.1")
    rlx.compile(doubled(), "npu").close()
    assert Tiling.lowered == 2


def test_what_a_plugin_refuses_of_the_folder_is_made_again(registry, tmp_path, monkeypatch):
    """An update of the plug-in may refuse what it packed before, with the same build."""
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    rlx.register_backend(Tiling([rlx.DeviceInfo("npu", 0, "NPU 1")]))
    monkeypatch.setattr(Tiled, "pack", lambda self: {"tile": 16})
    compile_cache._kept.clear()
    rlx.compile(doubled(), "npu").close()
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    with pytest.warns(RuntimeWarning, match="no such tile"):
        assert rlx.compile(doubled(), "npu")._state.executable.tile == 8
    after = rlx.cache_stats()
    assert (after.refused, after.lowered) == (before.refused + 1, before.lowered + 1)


def test_a_plugin_without_programs_is_found_in_the_folder(registry, tmp_path, monkeypatch):
    """It loads a schedule itself, and the entry holds the schedule."""

    class Loading(Npu):
        kernel_set = "cpu"

        def load(self, info, graph, schedule, plan, options):
            return NullExecutable(schedule, plan)

    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    rlx.register_backend(Loading([rlx.DeviceInfo("npu", 0, "NPU 1")]))
    hits = rlx.cache_stats().disk_hits
    for _ in range(2):
        compile_cache._kept.clear()
        rlx.compile(doubled(), "npu").close()
    assert rlx.cache_stats().disk_hits == hits + 1


@pytest.mark.parametrize(
    ("change", "tile"), [({"tile": 4}, 4), ({"tile": 1 << 40}, 8), ("no dict", 8), ([], 8)]
)
def test_what_a_plugin_packed_is_checked_by_it(registry, tmp_path, monkeypatch, change, tile):
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    rlx.register_backend(Tiling([rlx.DeviceInfo("npu", 0, "NPU 1")]))
    path = tmp_path / "model.rlx"
    forge(path, doubled(), lambda plan, stored: plan.update(program=change), "npu")
    compile_cache._kept.clear()
    checked = contextlib.nullcontext() if tile == 4 else pytest.warns(RuntimeWarning, match="again")
    with checked:
        compiled = rlx.compile(rlx.load_model(path), "npu")
    assert compiled._state.executable.tile == tile


def test_a_backend_with_neither_load_nor_lower_is_none(registry):
    class Idle(rlx.Backend):
        name = "npu"

        def devices(self):
            return []

        def absent(self):
            return "never there"

    with pytest.raises(rlx.InputError, match="without load or lower"):
        rlx.register_backend(Idle())


class Able(Tiling):
    """A backend that answers what rlx asks of every one."""

    kernel_set = "webgpu"

    def capabilities(self, info):
        return rlx.Capabilities(
            f16="half" in info.features, kernel_variants=True, optional_features=("half", "tensors")
        )

    def path(self, info):
        return "fast"


def test_half_precision_is_a_question_to_capabilities(registry):
    infos = [
        rlx.DeviceInfo("npu", 0, "old"),
        rlx.DeviceInfo("npu", 1, "new", features=frozenset({"half"})),
    ]
    rlx.register_backend(Able(infos))
    options = rlx.CompileOptions(precision="f16")
    with pytest.raises(rlx.CompileError, match="no half-precision arithmetic"):
        Target.of(rlx.Device("npu"), options)
    assert Target.of(rlx.Device("npu", 1), options).kernel_set == "webgpu-f16"
    # One that does not say has none.
    rlx.register_backend(Tiling(infos))
    with pytest.raises(rlx.CompileError, match="no half-precision arithmetic"):
        Target.of(rlx.Device("npu", 1), options)


@pytest.mark.parametrize("device", ["npu", "reference"])
def test_half_precision_is_refused_by_what_takes_graphs(registry, device):
    rlx.register_backend(Npu([rlx.DeviceInfo("npu", 0, "NPU 1")]))
    with pytest.raises(rlx.CompileError, match="does not compute in precision 'f16'"):
        rlx.compile(doubled(), device, options=rlx.CompileOptions(precision="f16"))


@pytest.mark.parametrize("member", ["clone", "submit", "capabilities"])
def test_an_executable_without_a_member_is_named(registry, member):
    class Lacking:
        def __getattr__(self, name):
            if name == member:
                raise AttributeError(name)
            return getattr(self.whole, name)

    class Short(Npu):
        def load(self, *args):
            result = Lacking()
            result.whole = super().load(*args)
            return result

    rlx.register_backend(Short([rlx.DeviceInfo("npu", 0, "NPU 1")]))
    with pytest.raises(rlx.CompileError, match=f"plug-in for 'npu' lacks {member}"):
        rlx.compile(doubled(), "npu")


def test_reports_ask_a_plugin_what_it_can_do(registry):
    infos = [rlx.DeviceInfo("npu", 0, "new", features=frozenset({"half"}))]
    rlx.register_backend(Able(infos))
    assert devices._lacks(infos[0]) == ["tensors: no such feature"]
    assert tune._has_variants(rlx.Device("npu"))
    result = Measurer().identity("npu")
    assert (result.path, result.wgpu_version) == ("fast", "npu 1.0")
    rlx.register_backend(Npu(infos))
    assert devices._lacks(infos[0]) == []
    assert not tune._has_variants(rlx.Device("npu"))
    result = Measurer().identity("npu")
    assert (result.path, result.wgpu_version) == ("", "")


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([object()], "no rlx.DeviceInfo"),
        ([rlx.DeviceInfo("cpu", 0, "not mine")], "no rlx.DeviceInfo of 'npu'"),
        (None, "TypeError"),
    ],
)
def test_devices_that_are_none(registry, found, reason):
    rlx.register_backend(Npu(found))
    row = next(r for r in rlx.GraphDevices(doubled()).report() if r.device.backend == "npu")
    assert not row.available
    assert reason in row.blocker
    assert not rlx.is_available("npu")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "NPU"}, "lower-case word"),
        ({"name": 5}, "lower-case word"),
        ({"kernel_set": "cuda"}, "wants the kernel set 'cuda'"),
    ],
)
def test_what_is_no_backend_is_refused(registry, change, reason):
    single = Npu([])
    for name, value in change.items():
        setattr(single, name, value)
    with pytest.raises(rlx.InputError, match=reason):
        rlx.register_backend(single)
    with pytest.raises(rlx.InputError, match="class Npu is not a backend"):
        rlx.register_backend(Npu)
    with pytest.raises(rlx.InputError, match=r"object does not inherit from rlx\.Backend"):
        rlx.register_backend(object())


def test_figures_that_are_no_numbers_are_never_picked(registry):
    from rlx.cost import RooflineModel

    class Odd(Npu):
        def cost_model(self, info):
            return RooflineModel("npu", *[float("nan")] * 6, unified_memory=True)

    rlx.register_backend(Odd([rlx.DeviceInfo("npu", 0, "NPU")]))
    assert rlx.fastest_device_for(doubled(), rlx.DevicePolicy(allow="cpu,npu")) == rlx.Device("cpu")


def test_the_table_of_devices_says_whose_figures_they_are(registry, capsys):
    from rlx.cli.main import main
    from rlx.cost import RooflineModel

    class Stated(Npu):
        def cost_model(self, info):
            return RooflineModel("npu", *[100.0] * 6, unified_memory=True)

    rlx.register_backend(Stated([rlx.DeviceInfo("npu", 0, "NPU")]))
    assert main(["devices", "--json"]) == 0
    rows = {row["device"]: row for row in json.loads(capsys.readouterr().out)["devices"]}
    assert rows["npu"]["measured"] == "stated by its plug-in"
    assert "default figures" not in rows["npu"]["recommended"]
    assert "calibrate" in rows["cpu"]["measured"]


# --- the same hardware twice ----------------------------------------------------------------------


def test_one_gpu_through_two_backends_is_told(registry):
    class Rocm(Npu):
        name = "rocm"

    rlx.register_backend(Npu([rlx.DeviceInfo("npu", index, "GPU X") for index in range(2)]))
    rlx.register_backend(Rocm([rlx.DeviceInfo("rocm", 0, "other", hardware="gpu x")]))
    gd = rlx.GraphDevices(doubled(), rlx.DevicePolicy(allow="npu,rocm"))
    rows = {str(row.device): row for row in gd.report()}
    # Two equal cards are two; the other backend's is the first of them.
    assert [rows[name].same_as for name in ("npu", "npu:1")] == [None, None]
    assert rows["rocm"].same_as == rlx.Device("npu")
    assert rows["rocm"].label == "other (same GPU as npu)"
    results = gd.benchmark({"x": np.float32([1, 2])}, 2)
    assert {str(r.device): r.same_as for r in results}["rocm"] == rlx.Device("npu")
    from rlx.compiler.device_choice import choose

    reason = choose(doubled(), policy=rlx.DevicePolicy(allow="npu,rocm")).reason
    assert "rocm is the same GPU as npu" in reason


class AdapterStub:
    def __init__(self, name, api, kind="DiscreteGPU", pci=1):
        self.info = {
            "device": name,
            "vendor_id": 1,
            "device_id": pci,
            "backend_type": api,
            "adapter_type": kind,
            "description": api,
        }
        self.limits, self.features = {}, set()


def test_adapters_through_two_apis_come_last_and_keep_their_names(monkeypatch):
    results = [
        AdapterStub("Soft", "Vulkan", "CPU", 9),
        AdapterStub("Card", "D3D12"),
        AdapterStub("Card", "D3D12"),
        AdapterStub("Card", "Vulkan"),
        AdapterStub("Card", "Vulkan"),
        AdapterStub("Card", "OpenGL"),
        AdapterStub("Other", "Vulkan", pci=2),
    ]
    adapters.adapters(
        provider("wgpu")
    )  # wgpu puts another object in the place of ``wgpu.gpu`` when its library is loaded
    import wgpu

    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: results)
    adapters.look_again()
    try:
        infos = adapters.device_infos("webgpu")
        seen = [(info.adapter, info.api) for info in infos]
        hardware = [("Card", "D3D12"), ("Card", "D3D12"), ("Other", "Vulkan"), ("Soft", "Vulkan")]
        assert seen == [*hardware, ("Card", "Vulkan"), ("Card", "Vulkan")]
        gd = rlx.GraphDevices(doubled(), rlx.DevicePolicy(deny="cpu"))
        rows = {str(row.device): row for row in gd.report()}
        twins = {name: str(row.same_as) for name, row in rows.items() if row.same_as}
        assert twins == {"webgpu:4": "webgpu", "webgpu:5": "webgpu:1"}
        assert rows["webgpu:4"].label == "Card (Vulkan, same GPU as webgpu)"
        assert rows["webgpu:3"].label == "Soft (Vulkan, software)"
        # A name of an API counts its own adapters; a policy understands either name.
        assert rlx.is_available("vulkan:3")
        # Dawn has a device of its own where it is installed and finds a GPU.
        policy = rlx.DevicePolicy(deny="cpu,vulkan,dawn")
        assert list(map(str, rlx.GraphDevices(doubled(), policy).devices)) == ["webgpu", "webgpu:1"]
        only = rlx.DevicePolicy(allow="vulkan:1")
        assert list(map(str, rlx.GraphDevices(doubled(), only).devices)) == ["webgpu:3"]
    finally:
        adapters.look_again()


def test_the_reference_fulfils_what_it_is_to_show():
    assert backend_registry._fault(REFERENCE) is None
