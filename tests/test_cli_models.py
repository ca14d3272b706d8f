"""The commands on models: run, bench, profile, convert; what they print, save and refuse."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from python_process import run_python

import rlx
from rlx.cli.agreement import agreement, precision_of
from rlx.cli.bench import DIFFERS
from rlx.cli.main import main
from rlx.ir.spans import watched

X = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
# Ends a benchmark after the fewest rounds, of one run each; where ``--seconds`` are more, it takes all rounds.
SHORT = ("--seconds", "1e-5")
DEVICES = ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)]


def built():
    g, rng = rlx.Graph("mlp"), np.random.default_rng(0)
    y = g.gelu(g.input("x", (4, 8)) @ g.param("w", (8, 600)) + g.param("b", (600,)))
    g.set_outputs([g.softmax(y), g.argmax(y, -1)])
    for name in g.param_names:
        g.param_values[name] = rng.normal(size=g.named(name).shape).astype(np.float32)
    return g


@pytest.fixture(params=["json", "rlx"])
def file(request, tmp_path):
    path = tmp_path / f"mlp.{request.param}"
    if request.param == "json":
        path.write_text(built().to_json())
    else:
        rlx.save_model(built(), path)
    return str(path)


@pytest.fixture
def x_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return str(tmp_path / "x.npy")


def said(capsys, *arguments):
    """Returns a command's output as JSON."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("device", DEVICES)
def test_run(device, file, x_file, tmp_path, capsys):
    with rlx.compile(built(), "reference") as exact:
        expected = exact.run({"x": X})
    saved = str(tmp_path / "out.npz")
    arguments = ["run", file, "--device", device, "--input", f"x={x_file}", "--save", saved]
    result = said(capsys, *arguments)
    assert result["device"] == device
    assert result["on_the_host"] == []
    arrays = list(np.load(saved).values())
    for row, array, want in zip(result["outputs"], arrays, expected, strict=True):
        np.testing.assert_allclose(array, want, 1e-4, 1e-6)
        assert row["shape"] == list(want.shape)
        assert row["mean"] == pytest.approx(float(np.mean(want)), rel=1e-4)
        assert row["not finite"] == 0
    assert main(arguments) == 0
    assert "mlp" in capsys.readouterr().out


def test_run_with_made_up_inputs_is_repeatable(file, capsys):
    assert said(capsys, "run", file, "--device", "cpu") == said(
        capsys, "run", file, "--device", "cpu"
    )


def test_bench(file, capsys, webgpu, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = said(capsys, "bench", file, "--devices", f"reference,cpu,{webgpu}", *SHORT)
    assert [row["name"] for row in result["rows"]] == ["reference", "cpu", webgpu]
    assert result["precision"] == "f32"
    assert len(result["model_sha256"]) == 64
    assert {"rlx", "python", "numpy", "wgpu"} <= set(result["versions"])
    for row in result["rows"]:
        assert row["error"] is None
        assert 0 < row["p25_us"] <= row["p50_us"] <= row["p75_us"] <= row["p99_us"]
        speed = row["times_as_fast_as_first"]
        assert 0 < speed["p25"] <= speed["p50"] <= speed["p75"]
        assert sum(map(len, row["samples_us"])) >= len(row["samples_us"]) >= 5
        assert row["adapter"]
        share, best = row["agreements"]
        assert share["max_abs"] < 1e-5
        assert share["same_argmax"] == 1
        assert best["max_abs"] == 0
        assert best["max_ulp"] is None
    assert main(["bench", file, "--devices", "cpu", "--seconds", "0.05"]) == 0
    assert "p50 us" in capsys.readouterr().out


def test_bench_fails_where_outputs_are_nan(tmp_path, capsys):
    g = rlx.Graph()
    g.set_outputs([g.sqrt(g.input("x", (50, 50)) - 0.5)])
    path = tmp_path / "nan.json"
    path.write_text(g.to_json())
    arguments = ["bench", str(path), "--devices", "reference,cpu", *SHORT]
    assert main([*arguments, "--json"]) == DIFFERS
    for row in json.loads(capsys.readouterr().out)["rows"]:
        (first,) = row["agreements"]
        assert first["nan"] == first["nan_expected"] > 0
        assert "are NaN" in first["failure"]
    assert main([*arguments, "--allow-nan"]) == 0


@pytest.mark.parametrize("device", DEVICES)
def test_bench_fails_where_one_element_in_a_million_is_wrong(device, tmp_path, capsys):
    g = rlx.Graph()
    g.set_outputs([g.tanh(g.input("x", (1000, 1000)))])
    path, right, wrong = (tmp_path / name for name in ("tanh.json", "right.npy", "wrong.npy"))
    path.write_text(g.to_json())
    value = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)
    np.save(tmp_path / "x.npy", value)
    expected = np.tanh(value)
    np.save(right, expected)
    expected[123, 456] += 0.01
    np.save(wrong, expected)
    arguments = ["bench", str(path), "--devices", device, *SHORT]
    arguments += ["--input", f"x={tmp_path / 'x.npy'}", "--expect"]
    name = g.outputs[0].name
    assert main([*arguments, f"{name}={right}"]) == 0
    assert main([*arguments, f"{name}={wrong}"]) == DIFFERS
    assert "1 of 1000000 elements" in capsys.readouterr().out.replace("\n", " ")
    assert main([*arguments, f"{name}={wrong}", "--tolerance", "0.1"]) == 0
    assert main([*arguments, f"other={wrong}"]) == 2
    assert main([*arguments, f"{name}={path}"]) == 2
    assert main([*arguments, "nonsense"]) == 2


def test_bench_goes_on_where_a_device_fails(tmp_path, capsys):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (64, 64), "f64") + 1.0])
    path = tmp_path / "small.json"
    path.write_text(g.to_json())
    assert main(["bench", str(path), "--devices", "cuda,cpu", *SHORT, "--json"]) == 1
    failed, ran = json.loads(capsys.readouterr().out)["rows"]
    # The first that ran is the one that others are compared with.
    assert ran["first"] == "cpu"
    assert ran["times_as_fast_as_first"]["p50"] == 1
    assert "cuda" in failed["error"]
    assert ran["error"] is None


@pytest.mark.parametrize("device", DEVICES)
def test_profile(device, file, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    arguments = ["profile", file, "--device", device, "--runs", "3"]
    result = said(capsys, *arguments)
    assert result["runs"] == 3
    ops = {row["name"]: row for row in result["rows"]}
    assert set(ops) == {"fused_matmul_bias_act", "softmax", "argmax"}
    assert all(row["us"] >= 0 and row["estimate_us"] > 0 for row in ops.values())
    assert main([*arguments, "--nodes", "--trace", str(trace)]) == 0
    assert "estimate us" in capsys.readouterr().out
    assert json.loads(trace.read_text())["traceEvents"]


def test_convert(tmp_path, capsys, x_file):
    source = tmp_path / "mlp.json"
    source.write_text(built().to_json())
    whole = said(capsys, "convert", str(source), "--device", "cpu")
    assert whole["file"] == str(tmp_path / "mlp.rlx")
    small = str(tmp_path / "small.rlx")
    less = said(capsys, "convert", str(source), "--weights", "int8", "--output", small)
    assert less["notes"] == ["w: i8"]
    arguments = ("--device", "cpu", "--input", f"x={x_file}")
    exact, rounded = (
        said(capsys, "run", item, *arguments)["outputs"][0]["most"]
        for item in (whole["file"], small)
    )
    assert rounded == pytest.approx(exact, rel=0.05)
    assert main(["convert", small]) == 2
    assert "the model itself" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "bench", "profile", "convert"])
def test_refusals(command, tmp_path, capsys, x_file):
    good, other = tmp_path / "mlp.json", tmp_path / "text.npy"
    good.write_text(built().to_json())
    other.write_text("no array")
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad.rlx").write_text("{}")
    (tmp_path / "model.oonx").write_text("")
    for value, text in (
        (["model.oonx"], "what kind of file"),
        (["bad.json"], "holds no graph"),
        (["bad.rlx"], "holds no model"),
        (["nowhere.rlx"], "nowhere"),
        (["mlp.json", "--dim", "batch"], "NAME=SIZE"),
        (["mlp.json", "--dim", "batch=3"], "no symbolic dimensions"),
        *(
            ()
            if command == "convert"
            else (
                (["mlp.json", "--input", "x"], "NAME=FILE.npy"),
                (["mlp.json", "--input", f"y={x_file}"], "no input 'y'"),
                (["mlp.json", "--input", f"x={other}"], "holds no array"),
                (["mlp.json", "--input", "x=/no/such/file"], "such"),
            )
        ),
    ):
        assert main([command, str(tmp_path / value[0]), *value[1:]]) == 2, value
        error = capsys.readouterr().err
        assert error.startswith(f"rlx {command}: ")
        assert text in error
        assert error.count("\n") == 1


# --- ONNX -------------------------------------------------------------------------------------------


@pytest.fixture
def onnx_file(tmp_path):
    """softmax(relu(x @ w + b)) and the position of its maximum, for any batch."""
    helper, kinds = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(8, 600)), "b": rng.normal(size=600)}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Softmax", ["r"], ["share"], axis=-1),
            helper.make_node("ArgMax", ["share"], ["best"], axis=-1, keepdims=0),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", kinds.FLOAT, ["batch", 8])],
        [
            helper.make_tensor_value_info("share", kinds.FLOAT, ["batch", 600]),
            helper.make_tensor_value_info("best", kinds.INT64, ["batch"]),
        ],
        [onnx.numpy_helper.from_array(np.float32(a), name) for name, a in weights.items()],
    )
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = tmp_path / "model.onnx"
    onnx.save(result, path)
    return str(path)


def by_onnxruntime(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


@pytest.mark.parametrize("device", DEVICES)
def test_run_of_onnx(device, onnx_file, x_file, tmp_path, capsys):
    saved = str(tmp_path / "out.npz")
    arguments = ["run", onnx_file, "--dim", "batch=4", "--device", device]
    result = said(capsys, *arguments, "--input", f"x={x_file}", "--save", saved)
    share, best = (np.load(saved)[name] for name in ("share", "best"))
    want_share, want_best = by_onnxruntime(onnx_file, X)
    np.testing.assert_allclose(share, want_share, 1e-4, 1e-7)
    np.testing.assert_array_equal(best, want_best)
    assert [(row["name"], row["shape"]) for row in result["outputs"]] == [
        ("share", [4, 600]),
        ("best", [4]),
    ]
    assert result["on_the_host"] == []
    # With made-up inputs, of another batch.
    result = said(capsys, "run", onnx_file, "--dim", "batch=2", "--device", device)
    assert result["outputs"][0]["shape"] == [2, 600]


def test_bench_of_onnx(onnx_file, capsys, webgpu, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    arguments = ("--dim", "batch=4", "--devices", "all", "--against", "onnxruntime", *SHORT)
    result = said(capsys, "bench", onnx_file, *arguments)
    rows = result["rows"]
    assert result["inputs"] == {"x": [4, 8]}
    devices = [str(device) for device in rlx.available_devices()]
    assert {"cpu", webgpu} <= set(devices)
    assert [row["name"] for row in rows] == ["onnxruntime", *devices]
    for row in rows:
        assert row["error"] is None
        assert [item["output"] for item in row["agreements"]] == ["share", "best"]
        assert all(item["relative"] < 1e-5 for item in row["agreements"])
        assert row["compile_ms"] > 0
        assert row["first_ms"] > 0
        assert 0 < row["p50_us"] <= row["p99_us"]
    for row in rows[1:]:
        assert row["load_ms"] > 0
        assert row["memory_mb"] > 0
    assert main(["bench", onnx_file, *arguments]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("onnxruntime", *devices, "p99 us", "runs/s", "max ULP"))
    # Without --dim a size is made up, and said.
    assert main(["bench", onnx_file, "--devices", "cpu", *SHORT]) == 0
    assert "--dim batch=1" in capsys.readouterr().out


@pytest.mark.parametrize("device", DEVICES)
def test_profile_of_onnx(device, onnx_file, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    arguments = ["profile", onnx_file, "--dim", "batch=4", "--device", device, "--runs", "2"]
    result = said(capsys, *arguments, "--trace", str(trace))
    assert len(result["rows"]) > 1
    assert len(result["nodes"]) >= len(result["rows"])
    for row in result["rows"]:
        assert row["us"] >= 0
        assert row["bound"] in ("memory", "compute", None)
    events = json.loads(trace.read_text())["traceEvents"]
    assert any("softmax" in event.get("name", "") for event in events)
    assert main(arguments) == 0
    assert "softmax" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("weights", "error", "smaller"), [(None, 1e-5, 1.5), ("f16", 2e-3, 0.8), ("int8", 3e-2, 0.6)]
)
def test_convert_of_onnx(weights, error, smaller, onnx_file, x_file, tmp_path, capsys):
    result, saved = str(tmp_path / "m.rlx"), str(tmp_path / "out.npz")
    chosen = ["--weights", weights] if weights else []
    done = said(capsys, "convert", onnx_file, "--dim", "batch=4", "-o", result, *chosen)
    assert done["file"] == result
    assert done["bytes"] < smaller * done["bytes_before"]
    said(capsys, "run", result, "--device", "cpu", "--input", f"x={x_file}", "--save", saved)
    share, _ = np.load(saved).values()
    want, _ = by_onnxruntime(onnx_file, X)
    assert np.linalg.norm(share - want) < error * np.linalg.norm(want)


@pytest.mark.parametrize("command", ["run", "bench", "profile", "convert"])
def test_refusals_of_onnx(command, onnx_file, tmp_path, capsys, x_file):
    wide, damaged = str(tmp_path / "wide.npy"), tmp_path / "damaged.onnx"
    np.save(wide, np.zeros((4, 9), np.float32))
    with open(onnx_file, "rb") as file:
        damaged.write_bytes(file.read()[:-20])
    (tmp_path / "text.onnx").write_text("no model")
    batch = ["--dim", "batch=4"]
    inputs = (
        ([onnx_file, *batch, "--input", f"X={x_file}"], "did you mean 'x'"),
        ([onnx_file, *batch, "--input", f"x={wide}"], "(4, 9)"),
        ([onnx_file, "--dim", "batch=3", "--input", f"x={x_file}"], "(3, 8)"),
    )
    for value, text in (
        ([onnx_file, "--dim", "bach=4"], "did you mean 'batch'"),
        ([str(damaged), *batch], "cut short or damaged"),
        ([str(tmp_path / "text.onnx")], "byte 0 of the file"),
        ([str(tmp_path / "none.onnx")], "can't be read"),
        *(() if command == "convert" else inputs),
    ):
        assert main([command, *value]) == 2, value
        error = capsys.readouterr().err
        assert error.startswith(f"rlx {command}: ")
        assert text in error
        assert error.count("\n") == 1


# --- progress ---------------------------------------------------------------------------------------


def on_a_terminal(*arguments, env):
    """Returns a command's output on a terminal that is its standard error, and on its standard output."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rlx", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=env) as process:
        os.close(theirs)
        said = bytearray()
        # The other end's being closed is an error on Linux, and no bytes elsewhere.
        with suppress(OSError):
            while part := os.read(ours, 1 << 16):
                said += part
        output = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()), output.decode()


@pytest.fixture
def fresh(tmp_path):
    """Nothing measured or compiled before."""
    path = os.pathsep.join([str(Path(rlx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    more = {"TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": path, "RLX_CACHE": "off"}
    return os.environ | more | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "RLX_CALIBRATION": "on"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_bars_on_a_terminal_only(onnx_file, fresh, webgpu):
    arguments = ("run", onnx_file, "--dim", "batch=4", "--device", "auto")
    shown, table = on_a_terminal(*arguments, env=fresh)
    for text in ("load", "compile", "measuring cpu", f"measuring {webgpu}", "run", "\u2501"):
        assert text in shown
    assert "share" in table
    assert "measuring" not in table
    shown, output = on_a_terminal(*arguments, "--json", env=fresh)
    assert shown == ""
    assert json.loads(output)["outputs"]
    # Standard error is no terminal here.
    done = run_python("-m", "rlx", *arguments, env=fresh)
    assert done.stderr == ""
    assert "share" in done.stdout


def test_loading_and_compiling_say_how_far_they_are(onnx_file):
    told = []
    with watched(lambda what, part: told.append((what, part))):
        graph = rlx.onnx.load(onnx_file, {"batch": 4})
        assert told == [("Gemm", 0), ("Relu", 0.25), ("Softmax", 0.5), ("ArgMax", 0.75)]
        with rlx.compile(graph, "cpu"):
            pass
    assert {"verify", "schedule", "memory plan", "link"} <= {what for what, _ in told}


def test_differences_that_a_norm_would_hide():
    from rlx.cli.agreement import relative_difference as off

    nan, inf = np.nan, np.inf
    assert off([np.float32([1, 2])], [np.float32([1, 2])]) == 0
    assert off([np.float32([3, 5])], [np.float32([3, 4])]) == pytest.approx(0.2)
    assert off([np.float32([1, nan])], [np.float32([1, 2])]) == inf
    assert off([np.float32([1, 2])], [np.float32([1, inf])]) == inf
    assert off([np.float32([-inf])], [np.float32([inf])]) == inf
    assert off([np.float32([nan, inf, 1])], [np.float32([nan, inf, 1])]) == 0
    assert off([np.zeros((1, 2))], [np.zeros(2)]) == inf


def test_differences_in_units_in_the_last_place():
    f = np.float32

    def ulps(got, want, dtype=None):
        return agreement("", np.array(got), np.array(want), 0.0, dtype).max_ulp

    assert ulps(f([1, -0.0]), f([1, 0.0])) == 0
    assert ulps(np.nextafter(f([1]), f(2)), f([1])) == 1
    assert ulps(f([1e-45]), f([-1e-45])) == 2
    assert ulps(np.float64([-1]), np.float64([1])) == 2 * 0x3FF0000000000000
    assert ulps(np.float16([np.nan, 1]), np.float16([1, 1])) == 0
    assert ulps(np.uint16([0x3F80]), np.uint16([0x3F82]), rlx.DType.BF16) == 2
    assert ulps(np.int32([3]), np.int32([5])) is None


def test_a_difference_of_one_element_or_of_infinity_fails():
    want = np.ones(10**6, np.float32)
    for place, value in ((999_999, 1.001), (0, np.inf), (5, np.nan)):
        got = want.copy()
        got[place] = value
        result = agreement("y", got, want, 1e-4)
        assert result.apart == 1
        assert "1 of 1000000" in result.failure
    assert agreement("y", want + np.float32(5e-5), want, 1e-4).failure is None
    steps = np.arange(9, dtype=np.uint8)
    assert agreement("y", steps + np.uint8(1), steps, 0.0).failure is None
    assert agreement("y", steps + np.uint8(2), steps, 0.0).failure
    assert agreement("y", want[:5], want, 1e-4).failure == "shape (5,), expected (1000000,)"


def test_the_precision_of_a_model_is_that_of_its_activations():
    def precision(build):
        g = rlx.Graph()
        g.set_outputs([build(g, g.input("x", (2, 8)))])
        return precision_of(g)

    assert precision(lambda g, x: x + 1.0) == "f32"
    assert precision(lambda g, x: g.cast(g.cast(x, "f16") * 2.0, "f32")) == "f16"
    assert precision(lambda g, x: g.quantize(x, np.float32(0.1), np.int8(0))) == "8-bit"
    weights = np.ones((8, 3), np.int8)
    scales = np.float32(0.5), np.int8(0)
    assert precision(lambda g, x: x @ g.dequantize(g.constant(weights), *scales)) == "f32"
