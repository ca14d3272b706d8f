"""The example's window is started as a user would, listens to its generated signal, is looked at, and closed."""

import os
import re
import shutil
import signal
import sys
import time
import wave

import numpy as np
import pytest
from desktop import CLOSE_S, FOLDER, LISTENS_S, PLATFORMS, failure, middle, result, start

pytest.importorskip("PySide6.QtWidgets", exc_type=ImportError)
from PySide6.QtGui import QImage


def pixels(path):
    image = QImage(str(path)).convertToFormat(QImage.Format.Format_RGB888)
    assert not image.isNull()
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    return rows[:, : 3 * image.width()].reshape(image.height(), image.width(), 3).astype(int)


# Each theme and each platform: neither knows of the other. With --all every pair.
PAIRS = [
    pytest.param(theme, platform, marks=pytest.mark.slow if first == second else ())
    for first, theme in enumerate(("dark", "light"))
    for second, platform in enumerate(PLATFORMS)
]


@pytest.mark.parametrize(("theme", "platform"), PAIRS)
def test_it_shows_what_it_hears(platform, theme, tmp_path):
    picture = tmp_path / "window.png"
    arguments = ("--seconds", LISTENS_S, "--device", "cpu", "--theme", theme)
    arguments += ("--screenshot", picture)
    output = result(*arguments, platform=platform)
    assert output["device"] == "cpu"
    assert output["failures"] == []
    assert output["dropped"] == 0
    assert output["close_s"] < CLOSE_S
    assert output["threads_left"] == []
    assert output["worst_gap_ms"] > 0.0
    # One band of the mel scale is about 160 Hz wide there.
    assert abs(output["tone_hz"] - output["expected_tone_hz"]) < 100
    assert middle(output, True).min() > 0.9
    assert middle(output, False).max() < 0.5
    image = pixels(picture)
    assert image.shape == (720, 1000, 3)
    assert (image[3, 3].mean() > 128) == (theme == "light")
    # The tone is the brightest row between its neighbours, in the newest second of the spectrogram.
    heard = image[100:260, 860:960].sum((1, 2))
    brightest = 100 + heard[: heard.size * 6 // 10].argmax()
    top, bottom = 96, 401  # of the data, for this size of the window
    rows = (np.array(output["band_hz"]).size - 1) * (bottom - brightest) / (bottom - top)
    hz = np.interp(rows, np.arange(len(output["band_hz"])), output["band_hz"])
    assert abs(hz - output["expected_tone_hz"]) < 200


def test_on_webgpu(webgpu):
    output = result("--seconds", LISTENS_S, "--device", "webgpu")
    assert output["device"] == "webgpu"
    assert abs(output["tone_hz"] - output["expected_tone_hz"]) < 100
    assert middle(output, True).min() > 0.9
    assert middle(output, False).max() < 0.5
    assert output["close_s"] < CLOSE_S


@pytest.mark.parametrize(("rate", "width"), [(16000, 2), (44100, 2), (8000, 4), (48000, 1)])
def test_wav_files(rate, width, tmp_path):
    """Files of any rate are heard at their pitch; both channels count."""
    t = np.arange(rate) / rate
    tone = 0.5 * np.sin(2 * np.pi * 3000 * t)
    scale, zero, kind = {1: (127, 128, "u1"), 2: (32767, 0, "<i2"), 4: (2**31 - 1, 0, "<i4")}[width]
    path = tmp_path / "tone.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(np.repeat(tone * scale + zero, 2).astype(kind).tobytes())
    output = result(path, "--seconds", 0.5, "--device", "cpu")
    assert output["source"] == str(path)
    assert abs(output["tone_hz"] - 3000) < 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.wav", "--device", "cpu"], "missing.wav"),
        (["--device", "cuda"], "cuda"),
        (["--device", "cpu", "--model", "missing.onnx"], "missing.onnx"),
    ],
)
def test_what_does_not_work_is_said(arguments, words, tmp_path):
    assert words in failure(*arguments, cwd=tmp_path)[0]


@pytest.mark.parametrize("module", ["processing", "audio"])
def test_a_fault_that_nobody_expected_ends_a_run(module, tmp_path):
    """It is shown; the window does not wait for results that will never come."""
    for name in FOLDER.glob("*.py"):
        shutil.copy(name, tmp_path)
    broken = {
        "processing": ("class Listener:", "class Listener:\n    device = 1 / 0\n"),
        "audio": ("def read_wav(path: Path)", "def read_wav(broken)"),
    }
    path = tmp_path / f"{module}.py"
    text = path.read_text()
    assert broken[module][0] in text
    path.write_text(text.replace(*broken[module]))
    source = ["tone.wav"] if module == "audio" else []
    program = (sys.executable, tmp_path / "app.py")
    text, _ = failure(*source, "--device", "cpu", cwd=tmp_path, program=program)
    assert re.search("ZeroDivisionError|NameError", text)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("after", [0.8, 1.2, 3.0])
def test_it_closes_at_any_time(after):
    """While it loads, compiles or listens: under 2 s, and quietly."""
    program = start("offscreen", "--device", "cpu", "--source", "generated")
    time.sleep(after)
    if program.poll() is not None:
        pytest.fail(program.communicate()[1])
    program.send_signal(signal.SIGINT)
    began = time.perf_counter()
    _, err = program.communicate(timeout=20)
    assert time.perf_counter() - began < CLOSE_S
    if after > 2:  # before that, Python may be at an import of the main thread
        assert "Traceback" not in err
        assert program.returncode == 0
