"""The example that draws a spectrum on the GPU: its levels are right, its picture shows them, nothing goes by the host."""

import importlib.util
import wave
from pathlib import Path

import numpy as np
import pytest
from python_process import run_python

# Picture and numbers share a device, which is one of the package wgpu.
pytestmark = [pytest.mark.webgpu, pytest.mark.wgpu_native]
PATH = Path(__file__).parent.parent / "examples/12_waterfall.py"


@pytest.fixture(scope="module")
def example(webgpu):
    spec = importlib.util.spec_from_file_location("waterfall", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def levels(example, samples):
    """The rows that the history ends with, by NumPy in float64."""
    size, hop = example.N_FFT, example.HOP
    samples = np.concatenate([np.zeros(size - hop), samples.astype(np.float64)])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    frames = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop] * window
    power = np.abs(np.fft.rfft(frames)[:, : example.BINS]) ** 2 * (4 / size) ** 2
    return np.clip(1 - 10 * np.log10(power + 1e-12) / example.FLOOR_DB, 0, 1)


def test_levels_and_texture(example):
    import rendercanvas.offscreen

    picture = example.Picture(rendercanvas.offscreen.RenderCanvas(size=(64, 64), pixel_ratio=1))
    waterfall = example.Waterfall(picture.device)
    samples = example.sound_of(None)[: 40 * example.HOP]
    arguments = example.blocks(samples)
    before = waterfall.compiled.bytes_moved
    for _ in range(20):
        waterfall.draw_to(picture.texture, next(arguments))
    moved = waterfall.compiled.bytes_moved
    assert moved.read_back == before.read_back
    assert moved.uploaded - before.uploaded == samples.nbytes
    size = (example.BINS, example.ROWS, 1)
    result = np.asarray(waterfall.compiled.read_gpu_handle("history"))
    want = levels(example, samples)
    np.testing.assert_allclose(result[-40:], want, atol=2e-3)
    assert not result[:-40].any()
    assert picture.texture.size == size
    waterfall.close()


def test_program(tmp_path):
    """A tone of 4 kHz is a bright line in the middle, over noise."""
    from PIL import Image

    sound, saved = tmp_path / "tone.wav", tmp_path / "picture.png"
    t = np.arange(16000) / 16000
    tone = 0.5 * np.sin(2 * np.pi * 4000 * t) + 0.001 * np.random.default_rng(0).normal(size=t.size)
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((tone * 32767).astype("<i2").tobytes())
    done = run_python(PATH, "--wav", sound, "--frames", 140, "--save", saved)
    assert "140 frames of 1024 x 512" in done.stdout
    brightness = np.asarray(Image.open(saved)).sum(2).astype(float)
    columns = brightness[20:-20].mean(0)
    assert abs(int(columns.argmax()) - 512) <= 3
    assert columns.max() > 4 * np.median(columns) > 0


def test_a_file_that_does_not_fit(tmp_path):
    path = tmp_path / "slow.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
    done = run_python(PATH, "--wav", path, status=1)
    assert "expected 16 bits at 16000 Hz" in done.stderr.splitlines()[-1]
