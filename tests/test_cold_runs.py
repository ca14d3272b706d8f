"""``rlx bench --cold``: the phases of first runs in fresh processes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import rlx
from rlx.cli.cold import in_order
from rlx.cli.cold_start import alone
from rlx.cli.main import main


@pytest.fixture
def file(tmp_path):
    g = rlx.Graph("small")
    g.set_outputs([g.gelu(g.matmul(g.input("x", (4, 8)), g.param("w", (8, 3))))])
    g.param_values["w"] = np.ones((8, 3), np.float32)
    path = tmp_path / "small.rlx"
    rlx.save_model(g, path)
    return path


def onnx_file(folder):
    onnx = pytest.importorskip("onnx")
    result = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> agraph (float[2, 3] x) => (float[2, 3] y) { y = Tanh(x) }'
    )
    onnx.save(result, folder / "tanh.onnx")
    return folder / "tanh.onnx"


def rows(capsys):
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


def test_phases_without_caches_and_with_them(file, capsys):
    assert main(["bench", "--cold", str(file), "--devices", "cpu", "--runs", "2", "--json"]) == 0
    (row,) = rows(capsys).values()
    cold, warm = row["phases_ms"]["cold"], row["phases_ms"]["warm"]
    assert len(cold) == len(warm) == 2
    for item in (*cold, *warm):
        assert {"python", "numpy", "import", "read", "first run"} <= item.keys()
        assert all(ms >= 0 for ms in item.values()), item
    # The second process reads the results of the passes from the cache that the first one filled.
    assert all(item["passes"] > 0 for item in cold)
    assert not any("pass fuse" in item or item.get("passes") for item in warm)
    assert row["warm_ms"] > 0 < row["cold_ms"]


@pytest.mark.webgpu
def test_a_gpu_beside_onnxruntime(tmp_path, capsys, webgpu):
    pytest.importorskip("onnxruntime")
    path = onnx_file(tmp_path)
    command = ["bench", str(path), "--cold", "--devices", webgpu, "--against", "onnxruntime"]
    assert main([*command, "--runs", "1", "--json"]) == 0
    result = rows(capsys)
    assert result.keys() == {"onnxruntime", webgpu}
    assert {"session", "first run"} <= result["onnxruntime"]["phases_ms"]["cold"][0].keys()
    phases = result[webgpu]["phases_ms"]["cold"][0]
    # No "adapters": they are looked for in a thread, and may be there before anything waits for them.
    assert {"nodes", "render", "pipelines"} <= phases.keys()


def test_the_table(tmp_path, capsys):
    assert (
        main(["bench", str(onnx_file(tmp_path)), "--cold", "--devices", "cpu", "--runs", "1"]) == 0
    )
    shown = capsys.readouterr().out
    for text in ("cold", "warm", "import", "nodes", "passes", "first run", "all"):
        assert text in shown, shown


def test_a_contestant_that_fails_is_named(file, capsys):
    command = ["bench", str(file), "--cold", "--devices", "cpu", "--against", "onnxruntime"]
    assert main([*command, "--runs", "1", "--json"]) == 1
    result = rows(capsys)
    assert result["onnxruntime"]["error"]
    assert result["onnxruntime"]["cold_ms"] is None
    assert result["cpu"]["error"] is None


@pytest.mark.parametrize("wrong", [("--runs", "0"), ("--devices", "")])
def test_refusals(wrong, file, capsys):
    assert main(["bench", str(file), "--cold", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err


def test_phases_count_without_those_inside():
    def span(name, start, end):
        return SimpleNamespace(name=name, start=start, end=end)

    spans = [span("b", 2, 4), span("c", 5, 6), span("a", 0, 10), span("b", 12, 13)]
    assert alone(spans) == {"a": 7, "b": 3, "c": 1}
    assert sum(alone(spans).values()) == 11
    assert in_order({"first run", "new", "python"}) == ["python", "new", "first run"]
