"""The output of commands on terminals, on narrow ones, and in pipes."""

import os
import re
import sys
from pathlib import Path

import pytest
from test_cli_models import on_a_terminal
from test_onnx import info, model, node

import rlx
from rlx.cli.cold import _last_error
from rlx.cli.main import main


@pytest.fixture
def file(tmp_path):
    """A small model."""
    path = tmp_path / "model.onnx"
    nodes = [node("Relu", "x", "a"), node("Exp", "a", "b"), node("Softmax", "b", "share", axis=-1)]
    path.write_bytes(model(nodes, [info("x", [4, 8])], ["share"]))
    return str(path)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_bar_has_one_fraction_for_all(file):
    path = os.pathsep.join([str(Path(rlx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": path, "RLX_CACHE": "off"}
    shown, _ = on_a_terminal("run", file, "--device", "cpu", env=env)
    parts = [int(part) for part in re.findall(r"(\d+)%", shown)]
    assert parts == sorted(parts)
    assert min(parts) < 50 < max(parts)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_errors_have_lines_on_a_terminal_and_parts_elsewhere(tmp_path, monkeypatch, capsys):
    missing = str(tmp_path / "none.onnx")
    assert main(["run", missing]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"rlx run: the model can't be read; where: {missing}; got: " in message
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["run", missing]) == 2
    err = capsys.readouterr().err
    first, *rest = err[err.index("rlx run") :].splitlines()
    assert first == "rlx run: the model can't be read"
    assert rest[0] == f"  where: {missing}"


def test_bench_fits_80_columns_and_is_whole_in_a_pipe(file, monkeypatch, capsys, webgpu):
    monkeypatch.setenv("COLUMNS", "80")
    for devices in ("cpu", f"reference,cpu,{webgpu}"):
        assert main(["bench", file, "--devices", devices, "--seconds", "1e-5"]) == 0
        out = capsys.readouterr().out
        for device in devices.split(","):
            assert re.search(rf"\b{device}\b", out)
        for figure in ("load ms", "first run ms", "p50 us", "runs/s", "relative", "max ULP"):
            assert figure in out
        # No figure is cut, and no line is longer than the table needs.
        assert "\u2026" not in out
        assert max(map(len, (line.rstrip() for line in out.splitlines()))) <= 80


def test_errors_in_tables_are_one_line_of_parts(file, capsys):
    assert main(["bench", file, "--devices", "cuda,cpu", "--seconds", "1e-5"]) == 1
    out = capsys.readouterr().out
    assert "cuda: no backend for 'cuda' is installed; got: cuda; expected: " in out


def test_the_error_of_a_process_that_ended():
    said = "Traceback (most recent call last):\n  File x\nrlx.errors.InputError: no\n  got: 1\n  hint: two"
    assert _last_error(said) == "rlx.errors.InputError: no; got: 1; hint: two"
    assert _last_error("") == ""
