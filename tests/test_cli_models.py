"""The commands on models: run, bench, profile, convert; what they print, save and refuse."""

import json

import numpy as np
import pytest

import rlx
from rlx.cli.main import main

X = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
DEVICES = ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)]


def built():
    g = rlx.Graph("mlp")
    rng = np.random.default_rng(0)
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


def said(capsys, *given):
    """What a command prints as JSON."""
    assert main([*given, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("device", DEVICES)
def test_run(device, file, x_file, tmp_path, capsys):
    with rlx.compile(built(), "reference") as exact:
        expected = exact.run({"x": X})
    saved = str(tmp_path / "out.npz")
    given = ["run", file, "--device", device, "--input", f"x={x_file}", "--save", saved]
    found = said(capsys, *given)
    assert found["device"] == device
    assert found["on_the_host"] == []
    arrays = list(np.load(saved).values())
    for row, one, want in zip(found["outputs"], arrays, expected, strict=True):
        np.testing.assert_allclose(one, want, 1e-4, 1e-6)
        assert row["shape"] == list(want.shape)
        assert row["mean"] == pytest.approx(float(np.mean(want)), rel=1e-4)
        assert row["not finite"] == 0
    assert main(given) == 0
    assert "mlp" in capsys.readouterr().out


def test_run_with_made_up_inputs_is_repeatable(file, capsys):
    assert said(capsys, "run", file, "--device", "cpu") == said(
        capsys, "run", file, "--device", "cpu"
    )


def test_bench(file, capsys, webgpu):
    rows = said(capsys, "bench", file, "--devices", f"reference,cpu,{webgpu}", "--seconds", "0.2")
    assert [row["name"] for row in rows] == ["reference", "cpu", webgpu]
    for row in rows:
        assert row["error"] is None
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert row["runs_per_s"] > 0
        assert row["difference"] < 1e-4
    assert main(["bench", file, "--devices", "cpu", "--seconds", "0.05"]) == 0
    assert "p50 us" in capsys.readouterr().out


def test_bench_goes_on_where_a_device_fails(tmp_path, capsys):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (1 << 14, 1 << 14), "f64") + 1.0])
    path = tmp_path / "large.json"
    path.write_text(g.to_json())
    assert main(["bench", str(path), "--devices", "cuda,cpu", "--seconds", "0.05", "--json"]) == 1
    failed, ran = json.loads(capsys.readouterr().out)
    assert "cuda" in failed["error"]
    assert ran["error"] is None


@pytest.mark.parametrize("device", DEVICES)
def test_profile(device, file, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    given = ["profile", file, "--device", device, "--runs", "3"]
    found = said(capsys, *given)
    assert found["runs"] == 3
    ops = {row["name"]: row for row in found["rows"]}
    assert set(ops) == {"fused_matmul_bias_act", "softmax", "argmax"}
    assert all(row["us"] >= 0 and row["estimate_us"] > 0 for row in ops.values())
    assert main([*given, "--nodes", "--trace", str(trace)]) == 0
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
    given = ("--device", "cpu", "--input", f"x={x_file}")
    exact, rounded = (
        said(capsys, "run", one, *given)["outputs"][0]["most"] for one in (whole["file"], small)
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
    for given, text in (
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
        assert main([command, str(tmp_path / given[0]), *given[1:]]) == 2, given
        error = capsys.readouterr().err
        assert error.startswith(f"rlx {command}: ")
        assert text in error
        assert error.count("\n") == 1
