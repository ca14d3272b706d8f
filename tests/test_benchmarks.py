"""The GPU benchmark runs: its rows are right at small sizes, and its peers, times and table fit together."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from python_process import run_python

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "gpu.py"
run = partial(run_python, SCRIPT, timeout=300)
BEGIN, END = "<!-- benchmarks/gpu.py -->", "<!-- end of benchmarks/gpu.py -->"


@pytest.mark.webgpu
@pytest.mark.parametrize("limits", ["own", "default"])
def test_small_sizes_are_right(webgpu, tmp_path, limits):
    result = tmp_path / "found.json"
    only = "^matmul 4x4096x4096$|^fft 32768 x 512$"
    run("--check", "--limits", limits, "--variants", "all", "--only", only, "--json", result)
    lines = json.loads(result.read_text())["checks"]
    assert {line["row"] for line in lines} == {"matmul 4x4096x4096", "fft 32768 x 512"}
    assert all(line["correct"] and 0 < line["error"] < line["tolerance"] for line in lines)


@pytest.mark.webgpu
def test_a_row_is_timed_and_its_table_goes_into_a_file(webgpu, tmp_path):
    result, page = tmp_path / "found.json", tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    only = ("--small", "--only", "^Welch peaks")
    run(*only, "--json", result, "--docs", page, "--peers", "scipy")
    (line,) = json.loads(result.read_text())["rows"]
    assert line["gpu_us"] > 0
    assert line["ratios"]["scipy"] > 0
    assert set(line["kernel_us"]) == set(line["kernels"])
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert f"| {line['row']} |" in text
    # The figures alone make the same table again.
    run("--from-json", result, "--docs", page)
    assert page.read_text() == text


@pytest.mark.webgpu
def test_memory_is_poisoned_before_the_run(webgpu, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from gpu_clock import LoadedWorkload
    from gpu_rows import ROWS

    (row,) = [row for row in ROWS if row.name == "softmax 16384 x 1024"]
    with LoadedWorkload(row.work(row.small[0]), webgpu) as loaded:
        before = loaded.compiled[0]._state.executable.read_row(0, 0)
        assert np.isnan(before).all()
        assert np.isfinite(loaded.outputs()[0]).all()


def test_no_row_fits(tmp_path):
    assert "0 of 0" in run("--check", "--only", "no such row", status=1).stdout


def test_wrong_results_are_found(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from gpu_rows import ROWS
    from work import error_of, graph_of

    import rlx

    for name in ("f32 matmul 1024", "decode", "fft 65536 x 256", "softmax 16384 x 1024"):
        (row,) = [row for row in ROWS if row.name == name]
        work = row.work(row.small[0])
        weights = {key: work.values[key] for key in work.weights}
        inputs = {key: work.values[key] for key in work.values if key not in work.weights}
        outputs = rlx.compile(graph_of(work), "cpu", weights).run(inputs)
        assert error_of(work, outputs) <= work.tolerance
        outputs[0].reshape(-1)[-1] += np.abs(outputs[0]).max()
        assert error_of(work, outputs) > work.tolerance, name
        outputs[0].reshape(-1)[outputs[0].size // 2] = np.nan
        assert error_of(work, outputs) == float("inf"), name
