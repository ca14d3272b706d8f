"""The command ``rlx lm``."""

import io
import json
import sys

import pytest
import tiny_lm

from rlx.cli.main import main


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_lm.model(types=("Q8_0",), layers=1))
    return str(path)


@pytest.fixture
def talk(path, monkeypatch, capsys):
    """Says lines to a model; returns the exit code, what was printed, and what was said beside it."""

    def talk(*lines, options=()):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        # One precision for prompts and steps: a message that is taken back leaves what was computed.
        settings = "--device cpu --precision int8 --max-tokens 5 --seed 1".split()
        return main(["lm", "chat", path, *settings, *options]), *capsys.readouterr()

    return talk


def test_a_conversation(talk, tmp_path):
    code, said, beside = talk("the", "/undo", "the", "/quit", "never read")
    first, second = said.splitlines()[:2]
    assert code == 0
    assert first == second != ""
    assert "/undo" in beside
    kept = tmp_path / "kept"
    code, _, beside = talk("the", "/undo", "/undo", f"/save {tmp_path}/none/x", f"/save {kept}")
    assert code == 0
    assert "no message to take back" in beside
    assert "none/x" in beside or "none" in beside
    assert kept.exists()
    code, said, _ = talk("one", options=["--load", str(kept)])
    assert code == 0
    assert said.strip()


def test_a_conversation_without_its_library(talk, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    code, _, beside = talk("the")
    assert code == 1
    assert "pip install" in beside


def test_rates_of_a_model(path, capsys):
    command = ["lm", "bench", path, "--device", "cpu", "-p", "20", "-n", "4", "-r", "2", "--json"]
    assert main([*command, "--llama-bench", "no such program"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["test"] for row in rows] == ["pp20", "tg4"]
    assert all(0 < row["least"] <= row["median"] <= row["most"] for row in rows)
    assert main(["lm", "bench", path, "--device", "cpu", "-p", "0"]) != 0
    assert main(["lm", "bench", path, "--device", "cpu", "-p", "95", "-n", "9"]) != 0


def test_what_a_file_holds(path, tmp_path, capsys):
    assert main(["lm", "info", path, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert (rows["architecture"], rows["layers"], rows["width"]) == ("llama", 1, 256)
    assert "Q8_0" in rows["tensors"]
    assert main(["lm", "info", path]) == 0
    assert "llama" in capsys.readouterr().out
    assert main(["lm", "info", str(tmp_path / "none.gguf")]) != 0
