"""``rlx regress record``: what a recording holds, and that it holds no more."""

import base64
import getpass
import json
import os
import platform
import random
import re
import sys
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from faulty_installs import faulty_results, hurried

import rlx
from rlx.cli.main import main
from rlx.ir.dtype import DType, store, widen
from rlx.regress import recording as record_files
from rlx.regress.exact import difference, exact_outputs
from rlx.regress.measure import loaded, reference
from rlx.regress.record import RecordPlan, RecordTarget, record
from rlx.regress.record_schema import VERSION, Line
from rlx.regress.recording import read
from rlx.regress.regress_cases import subjects


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A Python that measures peaks for a shorter time; test_peaks_of_the_machine takes the usual one."""
    return hurried(tmp_path_factory.mktemp("quick") / "install")


@pytest.fixture(scope="module")
def recorded(quick, tmp_path_factory):
    """A recording of a few cases of every suite on the CPU by two processes, and on WebGPU where it is."""
    path = tmp_path_factory.mktemp("regress") / "run.rlxreg"
    devices = [str(d) for d in rlx.available_devices() if str(d) in ("cpu", "webgpu")]
    only = r"^((tanh|softmax|matmul|dense|welch_peaks)( .* f32|$)|rfft$)"
    suites = ("ops", "signal", "models", "cold")
    record([RecordTarget(quick, path)], RecordPlan(suites, devices, 2, True, only))
    return path


def test_a_recording_tells_what_was_measured(recorded):
    (result,) = read([recorded])
    assert result.end is not None
    assert result.run.rlx == rlx.__version__
    assert result.run.cores
    assert set(result.end.floors) == set(result.devices)
    assert {"cpu"} <= set(result.devices)
    for measured in result.measured.values():
        assert not measured.failures, measured.failures
        assert measured.case is not None
        assert set(measured.times) == {0, 1}
        assert all(
            times.ns and times.compile_ns and times.memory for times in measured.times.values()
        )
        assert len({tuple(times.bits) for times in measured.times.values()}) == 1
        for output in measured.case.outputs:
            assert output.difference is not None
            assert output.difference.nan == output.difference.nan_expected == 0
        assert result.text(measured.case.schedule).startswith("schedule:")
    for peaks in result.peaks.values():
        assert peaks[1].copy_gb_s > 0
        assert peaks[1].fma_gflop_s > 0
        assert peaks[1].dispatch_us > 0


def test_results_alone_can_be_recorded(recorded, tmp_path, capsys):
    """``--no-times``: the same results, no time of a run, and no cases that are nothing but times."""
    path = tmp_path / "results.rlxreg"
    chosen = ["--only", "^(tanh|welch_peaks)( .* f32|$)", "--suite", "ops", "signal", "cold"]
    command = ["regress", "record", "--quick", "--no-times", "--processes", "1", *chosen]
    assert main([*command, "--devices", "cpu", "-o", str(path)]) == 0
    (base,), (result,) = read([recorded]), read([path])
    assert result.measured
    assert not result.peaks
    for key, measured in result.measured.items():
        assert not measured.failures, measured.failures
        assert not measured.case.timed
        assert measured.case.suite != "cold"
        assert not measured.times[0].ns
        assert measured.times[0].bits == base.measured[key].times[0].bits
    report = tmp_path / "report.json"
    compared = ["regress", "compare", str(recorded), str(path), "--json", str(report)]
    assert main(compared) == 0, capsys.readouterr().out
    cases = json.loads(report.read_text())["cases"]
    assert len(cases) == len(result.measured)
    assert not any(timing["judged"] for case in cases for timing in case["times"])


@pytest.mark.webgpu
def test_a_gpu_has_texts_and_times_of_its_own(recorded, webgpu):
    (result,) = read([recorded])
    timed = [m for (device, _), m in result.measured.items() if device == "webgpu"]
    assert timed
    for measured in timed:
        assert all(kernel.text for kernel in measured.case.kernels)
        assert "fn main" in result.text(measured.case.kernels[0].text)
    if "timestamp-query" in result.devices["webgpu"].features:
        assert any(measured.times[0].gpu_ns for measured in timed)
    assert result.devices["webgpu"].driver
    assert result.devices["webgpu"].vendor_id is not None


def test_a_recording_says_nothing_of_who_made_it(recorded):
    text = recorded.read_text()
    (result,) = read([recorded])
    texts = [result.text(digest) for digest in result.texts]
    for secret in (platform.node(), str(Path.home()), os.getcwd(), sys.prefix, __file__):
        if len(secret) > 2:
            assert secret not in text
            assert not any(secret in text for text in texts)
    if getpass.getuser() != "root":  # "root" is part of other words
        assert getpass.getuser() not in text


def test_a_digest_of_a_case_does_not_depend_on_the_others():
    quick = {subject.digest: subject.name for subject in subjects(["ops"], quick=True)}
    everything = {subject.digest: subject.name for subject in subjects(["ops", "signal", "models"])}
    assert quick.items() <= everything.items()
    assert len({subject.digest for subject in subjects(["ops"])}) == len(subjects(["ops"]))
    # Stays as it is from release to release: it names cases in files that people keep.
    named = {subject.name: subject.digest for subject in subjects(["signal", "models"])}
    assert named["log_mel"] == "f987d539dc538735"
    assert named["recurrent"] == "fa26935ccf6fd8df"


def test_the_same_case_computes_on_the_same_inputs():
    for subject in subjects(["ops", "models"], quick=True)[::9]:
        (_, first), (_, again) = subject.make(), subject.make()
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, again, strict=True))


def test_the_reference_rounds_nothing():
    g = rlx.Graph()
    x = g.input("x", (1000,))
    g.set_outputs([g.cast(g.cast(g.exp(x) * 3.0, "f16"), "f32"), g.exp(x) * 3.0])
    values = np.linspace(-3, 3, 1000).astype(np.float32)
    rounded, exact = exact_outputs(g, {"x": values})
    want = np.exp(values.astype(np.float64)) * 3.0
    np.testing.assert_array_equal(exact, want)
    np.testing.assert_array_equal(rounded, want.astype(np.float16).astype(np.float64))


def test_errors_of_every_kind_are_seen():
    want = np.array([1.0, -2.0, 1e-41, np.nan, np.inf, 0.5], np.float64)
    good = want.astype(np.float32)
    exact = difference(good, DType.F32, want)
    assert exact.max_ulp <= 0.5
    assert (exact.nan, exact.inf, exact.nan_expected, exact.inf_expected) == (1, 1, 1, 1)

    last_place = good.copy()
    last_place[0] = np.nextafter(np.float32(1), np.float32(2))
    assert difference(last_place, DType.F32, want).max_ulp == pytest.approx(1.0)
    flushed = good.copy()
    flushed[2] = 0
    assert difference(flushed, DType.F32, want).max_ulp > 1000
    spread = good.copy()
    spread[5] = np.nan
    assert difference(spread, DType.F32, want).relative is None
    assert difference(spread, DType.F32, want).nan == 2
    tiny = np.array([1e-60], np.float64)
    assert difference(np.zeros(1, np.float32), DType.F32, tiny).max_abs == 0
    infinite = np.array([3.5e38], np.float64)
    assert difference(np.array([np.inf], np.float32), DType.F32, infinite).relative == 0


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64])
def test_an_ulp_is_the_distance_of_neighbours(dtype):
    rng = np.random.default_rng(0)
    values = store(rng.uniform(0.01, 100, 500), dtype)
    bits = values.view(f"u{values.dtype.itemsize}")
    apart = difference((bits + 1).view(values.dtype), dtype, widen(values, dtype))
    assert apart.max_ulp == 1.0
    assert difference(values, dtype, widen(values, dtype)).max_ulp == 0


def test_one_wrong_element_of_a_million_is_seen():
    want = np.random.default_rng(0).standard_normal(10**6)
    got = want.astype(np.float32)
    got[123_456] += 1e-3
    assert difference(got, DType.F32, want).max_abs == pytest.approx(1e-3, rel=1e-2)


def test_a_case_that_fails_is_a_line_and_the_others_go_on(tmp_path):
    path = tmp_path / "run.rlxreg"
    fault = {
        "rfft": "raise OSError('no /home/somebody/models/net.onnx and no C:\\\\Users\\\\me\\\\a.bin')"
    }
    python = faulty_results(tmp_path / "faulty", fault)
    record(
        [RecordTarget(python, path)],
        RecordPlan(("signal",), ["cpu"], 1, True, "^(rfft|welch)$", False),
    )
    (result,) = read([path])
    failed = [m.failures[0] for m in result.measured.values() if m.failures]
    assert [item.error for item in failed] == ["OSError: no net.onnx and no a.bin"]
    assert [m.case.name for m in result.measured.values() if m.case] == ["welch"]


def test_what_can_not_be_measured_at_all_is_an_error(tmp_path):
    path, model = tmp_path / "run.rlxreg", tmp_path / "broken.onnx"
    model.write_bytes(b"no model")
    with pytest.raises(rlx.RlxError):
        record([RecordTarget(sys.executable, path)], RecordPlan((str(model),), ["cpu"], 1))
    with pytest.raises(rlx.RlxError, match="not available"):
        record([RecordTarget(sys.executable, path)], RecordPlan(("signal",), ["webgpu:99"], 1))


def test_a_process_that_dies_is_a_failure_of_its_case(tmp_path, monkeypatch):
    """The install's Python is replaced by one whose third case ends the process."""
    fatal = tmp_path / "site"
    fatal.mkdir()
    (fatal / "sitecustomize.py").write_text(
        "import os, sys\n"
        "from importlib import import_module\n"
        "if 'rlx.regress.worker' in ' '.join(sys.orig_argv):\n"
        "    subjects = import_module('rlx.regress.regress_cases')\n"
        "    table = subjects.pipelines.TABLE\n"
        "    class Fatal(dict):\n"
        "        pass\n"
        "    measure = import_module('rlx.regress.measure')\n"
        "    before = measure.loaded\n"
        "    def loaded(graph, inputs, device, options):\n"
        "        if graph.name == 'welch':\n"
        "            os._exit(7)\n"
        "        return before(graph, inputs, device, options)\n"
        "    measure.loaded = loaded\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(fatal), prepend=os.pathsep)
    path = tmp_path / "run.rlxreg"
    plan = RecordPlan(("signal",), ["cpu"], 1, True, "^(welch|rfft|envelope)$", False)
    record([RecordTarget(sys.executable, path)], plan)
    (result,) = read([path])
    names = {}
    for measured in result.measured.values():
        failure = measured.failures.get(0)
        names[failure.name if failure else measured.case.name] = failure
    assert names["rfft"] is names["envelope"] is None
    assert "status 7" in names["welch"].error
    assert not result.texts


def test_damage_is_a_typed_error(recorded, tmp_path):
    """Two thousand mutations of a recording: typed errors, or a file that still makes sense."""
    whole = recorded.read_bytes().splitlines(keepends=True)
    kinds = {}
    for line in whole:
        kinds.setdefault(json.loads(line)["kind"], []).append(line)
    small = b"".join(line for lines in kinds.values() for line in lines[:2])
    random_ = random.Random(0)
    path = tmp_path / "hurt.rlxreg"
    errors = []
    for _ in range(2000):
        path.write_bytes(_mutated(small, random_))
        try:
            read([path])
        except rlx.InputError as error:
            errors.append(str(error))
    assert len(errors) > 1000
    assert max(map(len, errors)) < 2000


def _mutated(data, random_):
    raw = bytearray(data)
    kind, index = random_.randrange(6), random_.randrange(len(raw))
    if kind == 0:
        raw[index] = random_.randrange(256)
    elif kind == 1:
        del raw[index:]
    elif kind == 2:
        del raw[index : index + random_.randrange(1, 40)]
    elif kind == 3:
        raw[index:index] = random_.choice(
            [b'"', b"{", b"[" * 5000, b"9" * 400, b"\x00", b"\n", b"null,"]
        )
    elif kind == 4:
        lines = data.splitlines(keepends=True)
        random_.shuffle(lines)
        raw = bytearray(b"".join(lines[1:]))
    else:
        numbers = list(re.finditer(rb":-?\d+(\.\d+)?", data))
        result = random_.choice(numbers)
        value = random_.choice([b":-1", b":1e999", b":NaN", b":null", b':"1"', b":" + b"9" * 30])
        raw[result.start() : result.end()] = value
    return bytes(raw)


def _lines(recorded):
    return [json.loads(line) for line in recorded.read_text().splitlines()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [{**lines[0], "schema": VERSION + 1}], "unsupported version"),
        (lambda lines: lines[1:], "without a header"),
        (lambda lines: [], "holds no recording"),
        (lambda lines: [*lines, {**lines[0], "quick": False}], "twice"),
        (lambda lines: [line for line in lines if line["kind"] != "case"], "no line describes"),
        (lambda lines: [line for line in lines if line["kind"] != "device"], "no line describes"),
        (lambda lines: [*lines, {"kind": "what"}], "Invalid value 'what'"),
        (lambda lines: [{**lines[0], "cores": -1}], "cores"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(recorded, tmp_path, change, message):
    path = tmp_path / "changed.rlxreg"
    path.write_text("".join(json.dumps(line) + "\n" for line in change(_lines(recorded))))
    with pytest.raises(rlx.InputError, match=message):
        read([path])


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(rlx.InputError, match="a folder"):
        read([tmp_path])
    huge = tmp_path / "huge.rlxreg"
    with huge.open("wb") as file:
        file.truncate(64 << 20)
    with pytest.raises(rlx.InputError, match="too large"):
        read([huge])
    bomb = record_files.packed("x" * 1_000_000)
    assert len(bomb) < 3000
    data = base64.b64encode(zlib.compress(b"x" * (8 << 20))).decode()
    with pytest.raises(rlx.InputError, match="damaged"):
        record_files.unpacked(data)


def test_two_files_one_after_the_other_are_one(quick, recorded, tmp_path, capsys):
    again = tmp_path / "again.rlxreg"
    record([RecordTarget(quick, again)], RecordPlan(("signal",), ["cpu"], 1, True, "^rfft$"))
    both = tmp_path / "both.rlxreg"
    both.write_bytes(again.read_bytes() + recorded.read_bytes())
    assert len(read([both])) == len(read([again, recorded])) == 2
    merged = tmp_path / "merged.rlxreg"
    assert main(["regress", "merge", str(again), str(recorded), "-o", str(merged)]) == 0
    result, other = read([merged]), read([both])
    assert [item.run for item in result] == [item.run for item in other]
    assert [item.measured for item in result] == [item.measured for item in other]
    assert main(["regress", "merge", str(again), "-o", str(merged)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.slow
def test_installs_that_are_compared_take_turns(tmp_path):
    paths = [tmp_path / "a.rlxreg", tmp_path / "b.rlxreg"]
    targets = [RecordTarget(sys.executable, path) for path in paths]
    record(targets, RecordPlan(("signal",), ["cpu"], 2, True, "^(rfft|stft)$", False))
    first, other = (read([path])[0] for path in paths)
    assert first.run.run != other.run.run
    assert first.run.turns == other.run.turns is not None
    assert first.measured.keys() == other.measured.keys()
    for key, measured in first.measured.items():
        assert measured.case.outputs == other.measured[key].case.outputs
        assert measured.case.kernels == other.measured[key].case.kernels


def test_bad_options_are_one_line(tmp_path, capsys):
    out = str(tmp_path / "run.rlxreg")
    for arguments, message in (
        (["--suite", "opps"], "no suite is named"),
        (["--processes", "0"], "--processes"),
        (["--only", "("], "regular expression"),
        (
            ["--suite", "signal", "--only", "nothing_like_it", "--devices", "cpu"],
            "no case is chosen",
        ),
        (["--devices", "cpu:7"], "cpu:7"),
    ):
        assert main(["regress", "record", *arguments, "-o", out]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["regress", "record", "-o", str(tmp_path / "no" / "run.rlxreg")]) == 2
    with pytest.raises(rlx.InputError, match="no Python"):
        record(
            [RecordTarget(str(tmp_path / "python"), Path(out))], RecordPlan(("signal",), ["cpu"], 1)
        )


def test_peaks_of_the_machine(capsys):
    assert main(["regress", "peak", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["device"] for row in rows] == [str(device) for device in rlx.available_devices()]
    assert rows[0]["copy_gb_s"] > 0


def test_every_line_of_the_schema_is_documented():
    page = (Path(__file__).parent.parent / "docs/reference/record_files.md").read_text()
    for kind in Line.__args__:
        assert f'`"{kind.__struct_config__.tag}"`' in page
        for field in msgspec.structs.fields(kind):
            assert f"`{field.encode_name}`" in page, f"{kind.__name__}.{field.encode_name}"


def test_the_reference_of_a_graph_with_params():
    g = rlx.Graph()
    x, w = g.input("x", (2, 3)), g.param("w", (3, 2), value=np.ones((3, 2), np.float32))
    g.set_outputs([x @ w])
    single = loaded(g, [np.ones((2, 3), np.float32)], "cpu", rlx.CompileOptions())
    np.testing.assert_array_equal(reference(g, single.inputs)[0], single.outputs[0])
