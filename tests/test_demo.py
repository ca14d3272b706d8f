"""The main job on the real recording, and its report."""

import json
from importlib import resources

import numpy as np
import pytest

import rlx
from rlx.cli import demo, demo_report
from rlx.cli.eeg import load_recording
from rlx.cli.main import main


def test_recording():
    recording = load_recording()
    assert recording.samples.shape == (len(recording.names), 60 * 160) == (64, 9600)
    assert recording.fs == 160
    assert "Oz" in recording.names
    assert "ODC-BY" in recording.source
    assert "Schalk" in (resources.files("rlx.cli") / "data/ATTRIBUTION.md").read_text()


def test_alpha_at_oz_and_scipy(device):
    recording = load_recording()
    segments = 20
    used = recording.samples[:, : (segments + 1) * 128]
    graph = demo.build_graph(64, recording.fs, segments, 129)
    (peaks,) = rlx.compile(graph, device).run({"x": used})
    power = demo.spectra_of(peaks, 129)
    expected = demo.scipy_spectra(used, recording.fs)
    assert demo.difference(power, expected) < 1e-5
    hz, _ = demo.alpha(power, recording.fs)
    assert abs(hz[recording.names.index("Oz")] - 10.0) <= 0.625


def test_command(tmp_path, capsys):
    report = tmp_path / "report.html"
    assert main(["demo", "--device", "cpu", "--hops", "20", "--json", "--out", str(report)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["devices"][0]["hops"] == 20
    text = report.read_text()
    assert "Oz" in text
    assert "10.0 Hz" in text
    assert "src=" not in text
    assert "<link" not in text
    assert "<svg" in text


def test_what_is_not_installed_is_named_whole(tmp_path, monkeypatch, capsys):
    """Square brackets are printed as they are, not taken for a style."""
    monkeypatch.setattr(demo_report, "_plots", lambda result: {})
    report = str(tmp_path / "report.html")
    assert main(["demo", "--device", "cpu", "--hops", "2", "--out", report]) == 0
    assert "pip install '.[demo]'" in capsys.readouterr().out


def test_wrong_numbers_fail(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "EXPECTED_HZ", 20.0)
    report = str(tmp_path / "report.html")
    assert main(["demo", "--device", "cpu", "--hops", "2", "--out", report]) == 1
    assert "Oz peaks at 10.00 Hz" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["devices", "ops", "env"])
def test_lists(command, capsys):
    assert main([command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main([command]) == 0


def test_bad_input_is_one_line(capsys):
    assert main(["demo", "--device", "gpuu"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_frame():
    g, x = rlx.Graph(), np.arange(12, dtype=np.float32).reshape(1, 12)
    g.set_outputs([rlx.signal.frame(g.input("x", x.shape), 4, 2)])
    (frames,) = rlx.compile(g, "cpu").run({"x": x})
    assert frames[0].tolist() == [list(range(i, i + 4)) for i in range(0, 9, 2)]
