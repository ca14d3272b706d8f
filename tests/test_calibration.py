"""Calibrations: figures that are believable, files that are not trusted, and what is done without them."""

import json
import math
import os
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from calibrations import FakeMeter, figures
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import looped

import rlx
from rlx import flags
from rlx.calibrate.stopwatch import BUDGET_S, Stopwatch
from rlx.cli.main import main
from rlx.compiler.device_choice import choose
from rlx.cost import Calibration, CpuCostModel, calibration, store
from rlx.cost.background import waiting_for_figures
from rlx.cost.calibration import CalibrationError


@pytest.fixture
def fake(monkeypatch):
    """Figures without measuring; nothing of earlier tests is known."""
    result = FakeMeter()
    monkeypatch.setattr(calibration, "provided", lambda _: result)
    store.forget()
    yield result
    store.forget()


@pytest.fixture
def file(monkeypatch, tmp_path):
    """Returns the file of the figures."""
    path = tmp_path / "figures.json"
    monkeypatch.setenv("RLX_CALIBRATION", str(path))
    return path


def refused(path):
    """Returns the stored figures, and checks that a warning named the file."""
    store.forget()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = store.stored("cpu")
    for item in caught:
        assert item.category is RuntimeWarning
        assert str(path) in str(item.message)
    assert len(caught) <= 1
    return result, bool(caught)


# --- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def test_measured_figures_are_those_of_runs(place, request):
    if place == "webgpu":
        request.getfixturevalue("webgpu")
    told = []
    result = Calibration.measure(place, lambda part, what: told.append((part, what)))
    assert Calibration.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert [part for part, _ in told] == sorted(part for part, _ in told)
    assert told[-1] == (1.0, "done")
    assert result.identity.device == place
    assert result.unified_memory is (place == "cpu")
    # The budget, and what was begun when it ended; the machine may be busy.
    assert result.measuring_s < 10
    for curve in (result.upload_ns_by_bytes, result.readback_ns_by_bytes, result.copy_ns_by_bytes):
        assert curve.largest >= 256
    assert {64} <= result.matmul_gflops["f32"].keys()
    assert "arithmetic" in result.kernel_ns_by_work
    # Other programs may have slowed down the one or the other, but hardly three times.
    near = [runs_as_estimated(place, result)]
    while not near[-1] and len(near) < 3:
        near.append(runs_as_estimated(place, Calibration.measure(place)))
    assert near[-1]


def runs_as_estimated(place, result):
    """Returns whether a run of one small kernel takes about as long as a round trip and a dispatch."""
    g = rlx.Graph()
    g.set_outputs([g.abs(g.input("x", (64,)))])
    with rlx.compile(g, place) as cg:
        x = np.ones(64, np.float32)
        times = []
        for _ in range(200):
            began = time.perf_counter_ns()
            cg.run_slots(x)
            times.append(time.perf_counter_ns() - began)
    expected = result.roundtrip_ns + result.dispatch_ns
    return expected / 4 < np.median(times) < expected * 4


@pytest.mark.parametrize("allowed", [0.0, 1.0])
def test_a_driver_that_compiles_takes_nothing_from_the_budget_of_a_gpu(webgpu, allowed):
    """A driver that had never seen the kernels left no time for figures; the stored ones told nothing."""
    watch = Stopwatch(rlx.Device.parse(webgpu), lambda part, what: None)
    watch._allowed = allowed  # what a GPU has that is not software
    with watch.aside():
        time.sleep(0.5)
    assert (watch.spent() < 0.4) == bool(allowed)
    assert watch.left() == pytest.approx(BUDGET_S - watch.spent(), abs=0.2)
    assert watch.elapsed() >= 0.5
    with watch.aside():
        time.sleep(1.0)
    assert watch.spent() >= 0.5  # no driver has all the time that it wants


def test_a_gpu_is_awake_at_each_figure(webgpu):
    watch, runs = Stopwatch(rlx.Device.parse(webgpu), lambda part, what: None), []

    class Busy:
        def once(self):
            runs.append("busy")

    class Timed:
        def once(self):
            runs.append("timed")
            return 1

    watch.stay_awake(Busy())
    assert set(runs) == {"busy"}
    for _ in range(2):
        runs.clear()
        watch.times([Timed()])
        assert runs[0] == "busy"
        assert runs[-1] == "timed"


def test_names_of_one_device_share_their_figures(webgpu):
    meter = calibration.meter()
    api = meter.identity("webgpu").api.lower()
    assert meter.identity("gpu") == meter.identity("webgpu:0") == meter.identity("webgpu")
    if api in ("vulkan", "metal"):
        assert meter.identity(api) == meter.identity("webgpu")
    assert meter.identity("webgpu") != meter.identity("cpu")


def test_figures_of_one_instruction_set_are_not_those_of_another(monkeypatch):
    best = calibration.meter().identity("cpu")
    monkeypatch.setenv("RLX_CPU_ISA", "plain")
    assert calibration.meter().identity("cpu") != best


def test_units_are_in_the_names_and_speeds_follow():
    result = figures()
    assert result.copy_gb_per_s == pytest.approx(20)
    assert result.upload_gb_per_s == pytest.approx(10)
    assert result.readback_gb_per_s == pytest.approx(5)
    assert result.matmul_gflops["f32"] == pytest.approx({16: 10, 64: 40, 256: 80, 1024: 90})
    units = ("_ns", "_s", "_ns_by_bytes", "_ns_by_flops", "_ns_by_work", "_ns_by_kind")
    plain = {"identity", "threads", "unified_memory"}
    assert all(name in plain or name.endswith(units) for name in result.to_json())


# --- files -----------------------------------------------------------------------------------------


def test_measured_once_and_found_again(fake, file):
    first = Calibration.load_or_measure("cpu")
    assert Calibration.load_or_measure("cpu") is first
    store.forget()  # as another process would
    assert Calibration.load_or_measure("cpu") == first
    assert fake.measured == ["cpu"]
    assert sorted(json.loads(file.read_text())) == ["devices", "format"]


def test_a_folder_has_a_file_per_device(fake, monkeypatch, tmp_path, webgpu):
    monkeypatch.setenv("RLX_CALIBRATION", str(tmp_path / "made"))
    for device in ("cpu", webgpu):
        Calibration.load_or_measure(device)
    names = [path.name for path in sorted((tmp_path / "made").iterdir())]
    assert len(names) == 2
    assert names[0].startswith("cpu-")
    assert names[1].startswith("webgpu-")


def test_one_file_holds_several_devices(fake, file, webgpu):
    both = [Calibration.load_or_measure(device) for device in ("cpu", webgpu)]
    store.forget()
    assert [store.stored(device) for device in ("cpu", webgpu)] == both


def test_by_default_the_cache_folder_of_the_user(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("RLX_CALIBRATION", "on")
    monkeypatch.setattr(store, "default_folder", lambda: tmp_path / "user")
    Calibration.load_or_measure("cpu")
    assert len(list((tmp_path / "user").glob("cpu-*.json"))) == 1


@pytest.mark.parametrize(
    "change", [{"rlx_version": "0.0.0"}, {"driver": "older"}, {"wgpu_version": "0.1"}]
)
def test_figures_of_another_version_are_measured_again(fake, file, change):
    current = fake.identity("cpu")
    store.save(file, figures(replace(current, **change)))
    with pytest.warns(RuntimeWarning, match="figures.json") as caught:
        result = Calibration.load_or_measure("cpu")
    assert len(caught) == 1
    assert result.identity == current
    assert fake.measured == ["cpu"]
    assert refused(file) == (result, False)


def test_a_damaged_file_is_replaced_with_one_warning(fake, file):
    file.write_text("{")
    with pytest.warns(RuntimeWarning, match="figures.json.*not used"):
        CpuCostModel()
    # Warnings are errors in the tests: there is no second one.
    CpuCostModel()
    result = Calibration.load_or_measure("cpu")
    assert refused(file) == (result, False)


def leaves(data, path=()):
    """The paths to every value in JSON."""
    yield path
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from leaves(data[key], (*path, key))


def says_nothing(raw, identity):
    """Returns whether a file is undamaged, but has no entry of a device."""
    try:
        content = json.loads(raw)
        entries = content["devices"] if content["format"] == store._FORMAT else None
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(entries, dict) and store._slug(identity) not in entries


STRANGE = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, -1, -0.0, 1e300, 10**400, 0, True, None]),
    st.sampled_from(["", "1", [], {}, [[]], [[1, 2], [1, 2]], [[2, 2], [1, 1]], {"f32": []}]),
    st.floats(),
    st.integers(),
    st.text(max_size=5),
)
PLENTY = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def stored(fake, file):
    """Valid figures, which are in the file."""
    good = figures(fake.identity("cpu"))
    file.unlink(missing_ok=True)
    assert store.save(file, good)
    return good


def check(file, good):
    """A changed file is refused, unless it says the same: a blank more, say, or 20.0 in place of 20."""
    result, warned = refused(file)
    if result is not None:
        assert (result, warned) == (good, False)
    else:
        assert warned != says_nothing(file.read_bytes(), good.identity)


@PLENTY
@given(data=st.data())
def test_no_changed_value_is_believed(fake, file, data):
    good = stored(fake, file)
    content = json.loads(file.read_text())
    path = data.draw(st.sampled_from([path for path in leaves(content) if path]))
    value = data.draw(STRANGE)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()) and isinstance(inner, dict):
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    file.write_text(json.dumps(content))
    check(file, good)


@PLENTY
@given(data=st.data())
def test_no_damaged_file_is_believed(fake, file, data):
    good = stored(fake, file)
    raw = file.read_bytes()
    index = data.draw(st.integers(0, len(raw) - 1))
    how = data.draw(st.sampled_from(["cut", "change", "insert", "other"]))
    if how == "cut":
        raw = raw[:index]
    elif how == "change":
        raw = raw[:index] + bytes([data.draw(st.integers(0, 255))]) + raw[index + 1 :]
    elif how == "insert":
        raw = raw[:index] + data.draw(st.binary(min_size=1, max_size=20)) + raw[index:]
    else:
        raw = data.draw(st.binary(max_size=200))
    file.write_bytes(raw)
    check(file, good)


def test_deep_and_long_files_are_refused(fake, file):
    for raw in (b"[" * 100_000, b" " * (5 << 20), b'{"format": "rlx calibration 1"}'):
        file.write_bytes(raw)
        assert refused(file) == (None, True)


def test_figures_that_can_not_be_are_refused():
    for name, value in [
        ("roundtrip_ns", math.nan),
        ("dispatch_ns", -1.0),
        ("threads", 1.5),
        ("threads", True),
        ("unified_memory", 1),
        ("copy_ns_by_bytes", [[1000, 1], [2000, 0.5]]),
        ("copy_ns_by_bytes", []),
        ("matmul_ns_by_flops", {}),
        ("row_ns_by_kind", {"softmax": -1}),
        ("identity", {}),
    ]:
        with pytest.raises(CalibrationError, match=name.split("_")[0]):
            Calibration.from_json({**figures().to_json(), name: value})


@pytest.mark.parametrize("place", ["a file is in the way", "it is a folder"])
def test_where_nothing_may_be_written_it_still_works(fake, monkeypatch, tmp_path, place):
    if place == "it is a folder":
        path = tmp_path / "figures.json"
        path.mkdir()
    else:
        (tmp_path / "in the way").write_text("")
        path = tmp_path / "in the way" / "figures.json"
    monkeypatch.setenv("RLX_CALIBRATION", str(path))
    said = pytest.warns(RuntimeWarning, match="a folder") if path.is_dir() else nullcontext()
    with said:
        result = Calibration.load_or_measure("cpu")
    # Within the process it is remembered.
    assert Calibration.load_or_measure("cpu") is result
    assert fake.measured == ["cpu"]
    assert [path.name for path in tmp_path.rglob("*.tmp")] == []


WRITER = """
import sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("error")
from dataclasses import replace
from calibrations import IDENTITY, figures
from rlx.cost import store
path, own = Path(sys.argv[2]), replace(IDENTITY, adapter=sys.argv[3])
for at in range(150):
    assert store.save(path, figures(own, dispatch_ns=20.0 + at))
    store._load(path, own)   # a file torn by the other process would be a warning, so an error
"""


def test_processes_that_write_at_once_do_no_harm(tmp_path):
    path = tmp_path / "figures.json"
    command = [sys.executable, "-c", WRITER, os.path.dirname(__file__), str(path)]
    running = [subprocess.Popen([*command, name], stderr=subprocess.PIPE) for name in "ab"]
    for item in running:
        _, errors = item.communicate(timeout=120)
        assert item.returncode == 0, errors.decode()
    entries = json.loads(path.read_text())["devices"]
    assert 1 <= len(entries) <= 2
    for entry in entries.values():
        assert Calibration.from_json(entry["figures"]).dispatch_ns >= 20
    assert os.listdir(tmp_path) == ["figures.json"]


# --- RLX_CALIBRATION -------------------------------------------------------------------------------


def test_off_reads_and_writes_nothing(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("RLX_CALIBRATION", "off")
    monkeypatch.setattr(store, "default_folder", lambda: tmp_path / "user")
    assert store.stored("cpu") is None
    assert CpuCostModel().dispatch_overhead_ns() == 300
    assert Calibration.load_or_measure("cpu").dispatch_ns == 20
    assert store.stored("cpu") is None
    assert not list(tmp_path.iterdir())


def test_measure_ignores_what_is_stored(fake, monkeypatch, tmp_path):
    monkeypatch.setattr(store, "default_folder", lambda: tmp_path)
    monkeypatch.setenv("RLX_CALIBRATION", "on")
    Calibration.load_or_measure("cpu")
    store.forget()
    monkeypatch.setenv("RLX_CALIBRATION", "measure")
    for _ in range(2):
        Calibration.load_or_measure("cpu")
    assert fake.measured == ["cpu", "cpu"]


@looped("text", ["maybe", "relative/folder", "0", "measured", "on off", "\n2"])
def test_what_does_not_parse_raises(fake, monkeypatch, text):
    monkeypatch.setenv("RLX_CALIBRATION", text)
    with pytest.raises(rlx.InputError, match="RLX_CALIBRATION") as caught:
        store.stored("cpu")
    assert repr(text.strip()) in str(caught.value)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12))
def test_any_text_is_taken_or_refused_by_name(fake, monkeypatch, tmp_path, text):
    monkeypatch.setattr(store, "default_folder", lambda: tmp_path)
    monkeypatch.setattr(store, "save", lambda *arguments: False)
    monkeypatch.setenv("RLX_CALIBRATION", text)
    try:
        flags.CALIBRATION.get()
    except rlx.InputError as error:
        refusal = str(error)
    else:
        assert Calibration.load_or_measure("cpu").dispatch_ns == 20
        return
    assert "RLX_CALIBRATION" in refusal
    assert repr(text.strip()) in refusal


# --- what it decides -------------------------------------------------------------------------------


def product():
    g = rlx.Graph()
    g.set_outputs([g.input("a", (64, 64)) @ g.input("b", (64, 64))])
    return g


@pytest.mark.parametrize("faster", ["cpu", "webgpu"])
def test_auto_takes_what_was_measured_faster(fake, file, webgpu, faster):
    slow = {"roundtrip_ns": 1e8, "unified_memory": False}
    fake.changes["by_device"] = {"webgpu" if faster == "cpu" else "cpu": slow}
    with waiting_for_figures():
        result = choose(product())
    assert str(result.device) == faster
    assert fake.measured == ["cpu", "webgpu"]
    with rlx.compile(product(), "auto") as cg:
        assert str(cg.device) == faster
    assert fake.measured == ["cpu", "webgpu"]  # not again
    assert result.estimates[rlx.Device(faster)] < 1e8


def test_a_device_that_can_not_be_measured_is_not_taken(fake, file, webgpu, monkeypatch):
    plain = fake.measure

    def measure(device, progress):
        if str(device) == "webgpu":
            raise rlx.DeviceLostError("it went away")
        return plain(device, progress)

    monkeypatch.setattr(fake, "measure", measure)
    with waiting_for_figures():
        result = choose(product())
    assert str(result.device) == "cpu"
    assert "went away" in result.blocked[rlx.Device("webgpu")]


def test_the_only_device_is_not_measured(fake, file, monkeypatch):
    import rlx.compiler.device_choice as module

    monkeypatch.setattr(module, "available_devices", lambda: [rlx.Device("cpu")])
    assert str(choose(product()).device) == "cpu"
    assert fake.measured == []


def test_nothing_is_measured_where_the_device_is_given(fake, file, webgpu, monkeypatch):
    monkeypatch.setenv("RLX_DEVICE", "webgpu")
    assert str(choose(product()).device) == "webgpu"
    monkeypatch.setenv("RLX_DEVICE", "nothing")
    with pytest.raises(rlx.DeviceParseError, match="nothing"):
        choose(product())
    with rlx.compile(product(), "cpu"):
        assert fake.measured == []


def test_the_command_measures_and_shows(fake, file, capsys):
    assert main(["devices"]) == 0
    assert "not measured" in capsys.readouterr().out
    assert main(["devices", "--calibrate"]) == 0
    assert "cpu" in fake.measured
    assert "GFLOP/s" in capsys.readouterr().out
    assert main(["devices", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    row = next(row for row in shown["devices"] if row["device"] == "cpu")
    assert Calibration.from_json(row["calibration"]) == store.stored("cpu")
    assert row["recommended"]
    assert any("cuda" in line for line in shown["missing"])
