"""The computation of the app: a log-mel spectrogram, and the probability of voice in each of its columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import rlx
from rlx import signal

RATE, CHUNK = 16000, 512  # samples per second, samples per run: 32 ms
N_FFT, HOP, MELS, LOWEST_HZ = 512, 256, 64, 50.0
COLUMNS = CHUNK // HOP  # of the spectrogram, per run
# Silero's model looks back this far, and its probability is for a whole chunk.
MODEL_CONTEXT, MODEL_STATE = 64, (2, 1, 128)
# Sizes of the symbolic dimensions of Silero's files, by their names. The file for 16 kHz has none.
MODEL_SIZES: tuple[dict[str, int], ...] = (
    {},
    {"input[0]": 1, "input[1]": CHUNK + MODEL_CONTEXT, "state[1]": 1},
    {"batch": 1, "sequence": CHUNK + MODEL_CONTEXT},
)
# The noise floor of a band follows the level down by half the distance per column, and up by 3 dB per second.
FALL, RISE_DB = 0.5, 3.0 * HOP / RATE
LEAST_DB, DECAY = 3.0, 0.8  # above the floor a band counts; what is left of the activity per column
VOICE_BANDS = slice(2, 48)  # about 150 Hz to 4.5 kHz


def band_hz() -> np.ndarray:
    """The centre of each mel band in Hz, float64 ``[MELS]``."""
    filters = signal.mel_filterbank(RATE, N_FFT, MELS, LOWEST_HZ)
    return filters @ signal.fft_frequencies(N_FFT, RATE) / filters.sum(1)


def listening_graph() -> rlx.Graph:
    """The graph of one run.

    Inputs: ``samples`` ``[N_FFT - HOP + CHUNK]``, the last ones of the run before first; ``floor``
    ``[1, MELS]``, the noise floor in dB; ``before`` ``[1, 1]``, the activity so far.

    Outputs: the levels in dB ``[COLUMNS, MELS]``, the activity ``[COLUMNS, 1]`` in 0 to 1, and the next
    values of ``floor`` and ``before``.
    """
    g = rlx.Graph("listen")
    samples = g.input("samples", (N_FFT - HOP + CHUNK,))
    floor, before = g.input("floor", (1, MELS)), g.input("before", (1, 1))
    levels = signal.log_mel(samples, RATE, N_FFT, HOP, MELS, LOWEST_HZ, log="db", top_db=None)
    bands = np.zeros((MELS, 1), np.float32)
    bands[VOICE_BANDS] = 1.0 / (VOICE_BANDS.stop - VOICE_BANDS.start)
    mean, activity = g.constant(bands), []
    for index in range(COLUMNS):
        level = levels[index : index + 1]
        above = level - floor
        # The mean over the bands, each counted from 3 to 23 dB: 4.5 dB of it is as likely voice as noise.
        heard = g.minimum(g.maximum(above - LEAST_DB, 0.0), 20.0) @ mean
        before = g.maximum(g.sigmoid((heard - 4.5) * 1.5), before * DECAY)
        activity.append(before)
        floor = floor + g.where(above < 0.0, above * FALL, g.minimum(above, RISE_DB))
    g.set_outputs([levels, g.concat(activity, 0), floor, before])
    return g


def load_model(path: Path) -> rlx.Graph:
    """Silero's voice activity model for one stream at ``RATE``.

    Raises:
        rlx.RlxError: It is another model.
        OSError: The file can't be read.
    """
    for sizes in MODEL_SIZES:
        try:
            graph = rlx.onnx.load(path, sizes, {"sr": np.array(RATE)} if sizes else {})
        except (rlx.InputError, rlx.UnknownNameError):  # its sizes have other names
            continue
        inputs = {node.name: node.shape for node in graph.nodes if node.op == "input"}
        if inputs == {"input": (1, CHUNK + MODEL_CONTEXT), "state": MODEL_STATE}:
            return graph
    raise rlx.ImportModelError(f"{path} is not Silero's voice activity model")


class Listener:
    """A graph compiled for a device, and the state of the stream that it listens to.

    Args:
        device: A device, or "auto".
        model: The file of Silero's voice activity model (ONNX), or None for the graph's own activity.
        progress: Called with an ``rlx.Progress`` while compiling.
        cancel: Ends the compile from another thread.

    Raises:
        rlx.CancelledError: ``cancel`` was used.
        rlx.RlxError: The device or the model can't be used.
    """

    def __init__(self, device: str, model: Path | None, progress, cancel: rlx.CancelToken) -> None:
        self._graph = listening_graph()
        self._model = None
        self._compiled = rlx.compile(self._graph, device, progress=progress, cancel=cancel)
        try:
            self._compiled.warm()
            if model is not None:
                graph = load_model(model)
                self._model = rlx.compile(graph, device, progress=progress, cancel=cancel)
            self.reset()
        except BaseException:
            self.close()
            raise
        self.device, self.reason = str(self._compiled.device), self._compiled.choice.reason

    def candidates(self) -> list[rlx.DeviceCandidate]:
        """Every device, with what it would take there or why it can't."""
        return rlx.GraphDevices(self._graph).report()

    def reset(self) -> None:
        """Forgets what was heard."""
        self._samples = np.zeros(N_FFT - HOP + CHUNK, np.float32)
        # The state stays on the device: each run's last outputs are the next run's inputs.
        state = {"floor": np.zeros((1, MELS), np.float32), "before": np.zeros((1, 1), np.float32)}
        for output, (name, value) in enumerate(state.items(), 2):
            self._compiled.bind_gpu_handle(name, value)
            self._compiled.set_gpu_handle_feed(name, output)
        if self._model is not None:
            self._model.bind_gpu_handle("state", np.zeros(MODEL_STATE, np.float32))
            self._model.set_gpu_handle_feed("state", 1)

    def __call__(self, chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Levels in dB ``[COLUMNS, MELS]`` and activity ``[COLUMNS]`` of the next ``[CHUNK]`` samples."""
        self._samples[:-CHUNK] = self._samples[CHUNK:]
        self._samples[-CHUNK:] = chunk
        levels, activity = self._compiled.run_read_outputs({"samples": self._samples}, [0, 1])
        if self._model is None:
            return levels, activity[:, 0]
        window = self._samples[None, -CHUNK - MODEL_CONTEXT :]
        (voice,) = self._model.run_read_outputs({"input": window}, [0])
        return levels, np.repeat(voice[0], COLUMNS)

    def close(self) -> None:
        """Frees the device's memory."""
        for compiled in (self._compiled, self._model):
            if compiled is not None:
                compiled.close()
