"""The example's microphone, with a sound device that a test makes up, and its models with Silero's interface."""

import os

import numpy as np
import pytest
from desktop import CLOSE_S, FOLDER, LISTENS_S, failure, middle, result

import rlx

pytest.importorskip("PySide6.QtWidgets", exc_type=ImportError)
onnx = pytest.importorskip("onnx")

# The package sounddevice, with the generated signal in place of a microphone.
SOUND_DEVICE = """
import os, threading, time
import numpy as np

STATE = os.environ["MICROPHONE"]


class PortAudioError(Exception):
    pass


def check_input_settings(samplerate, channels):
    if STATE == "none":
        raise PortAudioError("Error querying device -1")
    assert (samplerate, channels) == (16000, 1)


class InputStream:
    def __init__(self, samplerate, blocksize, channels, dtype, callback):
        if STATE == "busy":
            raise PortAudioError("Device unavailable")
        assert (samplerate, blocksize, channels, dtype) == (16000, 512, 1, "float32")
        self._callback, self._end = callback, threading.Event()
        self._thread = threading.Thread(target=self._work, name="PortAudio")

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _work(self):
        from audio import generated

        start, began = 0, time.monotonic()
        # PortAudio uses the same memory for every call.
        memory = np.empty((512, 1), np.float32)
        while not self._end.wait(max(0.0, began + (start + 512) / 16000 - time.monotonic())):
            memory[:, 0] = generated(start)
            self._callback(memory, 512, None, None)
            memory[:] = 9.0
            start += 512
"""


@pytest.fixture
def microphone(tmp_path):
    """An environment with that package, for a microphone in some state."""
    (tmp_path / "sounddevice.py").write_text(SOUND_DEVICE)
    return lambda state: {**os.environ, "MICROPHONE": state, "PYTHONPATH": str(tmp_path)}


# The generated signal is heard on WebGPU, too (test_desktop_example.py), and no device knows where samples are from.
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.slow)])
def test_it_hears_the_microphone(microphone, device, webgpu):
    arguments = ("--source", "microphone", "--seconds", LISTENS_S, "--device", device)
    output = result(*arguments, environment=microphone("there"))
    assert output["source"] == "microphone"
    assert output["failures"] == []
    if device == "cpu":  # software Vulkan shares the cores with everything else
        assert output["dropped"] == 0
    assert abs(output["tone_hz"] - output["expected_tone_hz"]) < 100
    assert middle(output, True).min() > 0.9
    assert middle(output, False).max() < 0.5
    assert output["close_s"] < CLOSE_S
    assert output["threads_left"] == []


@pytest.mark.parametrize(
    ("state", "words"), [("none", "Error querying device -1"), ("busy", "Device unavailable")]
)
def test_a_microphone_that_can_not_be_used_is_said(microphone, state, words):
    arguments = ("--source", "microphone", "--device", "cpu")
    text, err = failure(*arguments, environment=microphone(state))
    assert words in text
    assert "Traceback" not in err


# --- models ------------------------------------------------------------------------------------------

GAIN, LEVEL = 3000.0, 3.0


def silero(path, sizes):
    """A model with Silero's inputs and outputs: activity from the mean power, smoothed by its state.

    Args:
        path: Where it goes.
        sizes: "fixed" as the file for 16 kHz, "unnamed" or "named" as the files with an input for the rate.
    """
    make = onnx.helper
    shapes = {
        "fixed": ([1, 576], [2, 1, 128]),
        "unnamed": ([None, None], [2, None, 128]),
        "named": (["batch", "sequence"], [2, "batch", 128]),
    }[sizes]
    kind = onnx.TensorProto
    inputs = [
        make.make_tensor_value_info(name, kind.FLOAT, shape)
        for name, shape in zip(("input", "state"), shapes, strict=True)
    ]
    outputs = [
        make.make_tensor_value_info("output", kind.FLOAT, [None, 1]),
        make.make_tensor_value_info("stateN", kind.FLOAT, [2, None, 128]),
    ]
    constants = {
        "axis": np.array([1], np.int64), "axes": np.array([0, 2], np.int64), "gain": np.float32(GAIN),
        "level": np.float32(LEVEL), "half": np.float32(0.5), "khz": np.float32(16000.0),
    }  # fmt: skip
    nodes = [
        make.make_node("Mul", ["input", "input"], ["squared"]),
        make.make_node("ReduceMean", ["squared", "axis"], ["power"], keepdims=1),
        make.make_node("Mul", ["state", "half"], ["rest"]),
        make.make_node("Add", ["rest", "power"], ["stateN"]),
        make.make_node("ReduceMean", ["stateN", "axes"], ["smooth"], keepdims=0),
        make.make_node("Unsqueeze", ["smooth", "axis"], ["column"]),
        make.make_node("Mul", ["column", "gain"], ["loud"]),
        make.make_node("Sub", ["loud", "level"], ["above"]),
        make.make_node("Sigmoid", ["above"], ["output"]),
    ]
    if sizes != "fixed":
        inputs.append(make.make_tensor_value_info("sr", kind.INT64, []))
        nodes[6:7] = [
            make.make_node("Cast", ["sr"], ["rate"], to=kind.FLOAT),
            make.make_node("Div", ["rate", "khz"], ["once"]),
            make.make_node("Mul", ["column", "once"], ["same"]),
            make.make_node("Mul", ["same", "gain"], ["loud"]),
        ]
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = make.make_graph(nodes, "vad", inputs, outputs, tensors)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9), path)
    return path


def expected(chunks):
    """Computes the model's results for chunk after chunk, in NumPy."""
    window, state, output = np.zeros(576), 0.0, []
    for chunk in chunks:
        window = np.concatenate([window[-64:], chunk])
        state = state / 2 + np.mean(window**2)
        output.append(1 / (1 + np.exp(LEVEL - GAIN * state)))
    return np.array(output)


@pytest.mark.parametrize("sizes", ["fixed", "unnamed", "named"])
@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_a_model_listens_to_the_stream(sizes, device, tmp_path, monkeypatch, webgpu):
    """Chunk by chunk it gives what it should: its state stays on the device, and ``reset`` forgets it."""
    monkeypatch.syspath_prepend(FOLDER)
    import processing
    from audio import generated

    chunks = [generated(512 * index) for index in range(90)]
    path = silero(tmp_path / "vad.onnx", sizes)
    listener = processing.Listener(device, path, lambda progress: None, rlx.CancelToken())
    try:
        for _ in range(2):
            results = [listener(chunk)[1] for chunk in chunks]
            np.testing.assert_allclose(
                results, np.repeat(expected(chunks)[:, None], 2, 1), rtol=1e-4, atol=1e-6
            )
            listener.reset()
    finally:
        listener.close()


def test_devices_hear_the_same_whenever_they_begin(monkeypatch, webgpu):
    """The first second and a half, begun at every sixth chunk of the generated signal's period."""
    monkeypatch.syspath_prepend(FOLDER)
    import processing
    from audio import generated

    heard = []
    for device in ("cpu", webgpu):
        listener = processing.Listener(device, None, lambda progress: None, rlx.CancelToken())
        try:
            for first in range(0, 48, 6):
                heard += [listener(generated(512 * (first + index)))[1] for index in range(48)]
                listener.reset()
        finally:
            listener.close()
    cpu, gpu = np.split(np.array(heard), 2)
    assert cpu.min() < 0.1 < 0.99 < cpu.max()
    np.testing.assert_allclose(gpu, cpu, rtol=0, atol=1e-4)


def test_the_window_uses_the_model(tmp_path):
    path = silero(tmp_path / "vad.onnx", "fixed")
    output = result("--seconds", LISTENS_S, "--device", "cpu", "--model", path)
    assert output["failures"] == []
    assert middle(output, True).min() > 0.9
    assert middle(output, False).max() < 0.2
    # This model is less sure in a silence than the example's own graph, so it is the one that was heard.
    assert middle(output, False).min() > 0.03


def test_another_model_is_refused(tmp_path):
    make, kind = onnx.helper, onnx.TensorProto
    values = [make.make_tensor_value_info(name, kind.FLOAT, [4]) for name in "xy"]
    graph = make.make_graph([make.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    path = tmp_path / "other.onnx"
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9), path)
    text, _ = failure("--device", "cpu", "--model", path)
    assert "other.onnx is not Silero's voice activity model" in text
