"""``rlx devices --graph``: the report of a graph in a file, as a table and as JSON."""

import json

import pytest

import rlx
from rlx.cli.main import main


@pytest.fixture
def path(tmp_path):
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", (4, 4)) @ g.param("w", (4, 4))])
    result = tmp_path / "graph.json"
    result.write_text(g.to_json())
    return str(result)


def test_json_has_every_field_of_the_report(path, capsys, monkeypatch):
    monkeypatch.setenv("RLX_DENY_DEVICES", "webgpu")
    assert main(["devices", "--graph", path, "--json"]) == 0
    rows = {row["device"]: row for row in json.loads(capsys.readouterr().out)}
    cpu, cuda = rows["cpu"], rows["cuda"]
    assert cpu["recommended"]
    assert cpu["estimate_ns"] > 0
    assert cpu["capabilities"]["zero_copy_inputs"]
    assert cpu["blocker"] is None
    assert cuda["registered"] is False
    assert "no backend" in cuda["blocker"]
    if rlx.is_available("webgpu"):
        assert rows["webgpu"]["blocker"] == "the policy denies webgpu"
        assert rows["webgpu"]["estimate_ns"] > 0


def test_the_table_names_devices_estimates_and_blockers(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["devices", "--graph", path]) == 0
    text = capsys.readouterr().out
    assert "recommended" in text
    assert "no backend for it is installed" in text
    assert " us" in text


@pytest.mark.parametrize(
    "text",
    ["", "graph", "[]", "5", "{}", '{"nodes": 3}', "null", '{"name": [], "nodes": [{}]}', "\x00"],
)
def test_a_file_without_a_graph_is_one_clear_line(tmp_path, capsys, text):
    result = tmp_path / "bad.json"
    result.write_text(text)
    assert main(["devices", "--graph", str(result)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert message.startswith("rlx devices: ")
    assert "bad.json" in message


def test_bad_input_ends_with_status_2(path, tmp_path, capsys, monkeypatch):
    assert main(["devices", "--graph", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    assert main(["devices", "--graph", str(tmp_path / "bytes.json")]) == 2
    assert "bytes.json" in capsys.readouterr().err
    monkeypatch.setenv("RLX_DENY_DEVICES", "gpuu")
    assert main(["devices", "--graph", path]) == 2
    message = capsys.readouterr().err
    assert "RLX_DENY_DEVICES" in message
    assert "gpuu" in message
