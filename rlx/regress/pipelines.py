"""The signal pipelines of the suite "signal": each builds a graph and gives its inputs.

The name of a pipeline stands for what it computes: whoever changes one gives it another name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rlx import signal
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array

Build = Callable[[Graph], Sequence[Array]]

# An EEG of 64 channels, four seconds at 250 Hz, and one second of speech at 16 kHz.
_EEG, _EEG_FS = (64, 1000), 250.0
_SPEECH, _SPEECH_FS = (16000,), 16000.0


def _noise(shape: tuple[int, ...], fs: float, seed: int = 0) -> Array:
    """Noise around two tones."""
    rng = np.random.default_rng([seed, *shape])
    time = np.arange(shape[-1]) / fs
    tones = np.sin(2 * np.pi * fs * 0.04 * time) + 0.5 * np.sin(2 * np.pi * fs * 0.11 * time)
    return (tones + 0.3 * rng.standard_normal(shape)).astype(np.float32)


def _pipeline(
    shape: tuple[int, ...], fs: float, result: Callable[[Node], Node | Sequence[Node]]
) -> Build:
    def build(g: Graph) -> Sequence[Array]:
        output = result(g.input("x", shape))
        g.set_outputs([output] if isinstance(output, Node) else list(output))
        return [_noise(shape, fs)]

    return build


def _coherence(g: Graph) -> Sequence[Array]:
    x, y = g.input("x", _EEG), g.input("y", _EEG)
    g.set_outputs([signal.coherence(x, y, _EEG_FS, nperseg=128)])
    return [_noise(_EEG, _EEG_FS), _noise(_EEG, _EEG_FS, 1)]


def _welch_peaks(g: Graph) -> Sequence[Array]:
    power = signal.welch(g.input("x", _EEG), _EEG_FS, nperseg=256)
    g.set_outputs(list(g.topk(power, 4)))
    return [_noise(_EEG, _EEG_FS)]


# A low pass of order four at a fifth of the sampling rate, as second-order sections: two one-pole pairs.
_SOS = np.array(
    [
        [0.0465829, 0.0931659, 0.0465829, 1.0, -0.3289757, 0.0645877],
        [1.0, 2.0, 1.0, 1.0, -0.4531195, 0.4663256],
    ]
)

TABLE: Mapping[str, Build] = {
    "rfft": _pipeline((64, 1024), _EEG_FS, signal.rfft),
    "stft": _pipeline(_SPEECH, _SPEECH_FS, lambda x: signal.stft(x, 400, 160)),
    "welch": _pipeline(_EEG, _EEG_FS, lambda x: signal.welch(x, _EEG_FS, nperseg=256)),
    "welch_median": _pipeline(
        _EEG, _EEG_FS, lambda x: signal.welch(x, _EEG_FS, nperseg=128, average="median")
    ),
    "welch_peaks": _welch_peaks,
    "coherence": _coherence,
    "band_power": _pipeline(
        _EEG, _EEG_FS, lambda x: signal.band_power(x, [(8.0, 13.0), (13.0, 30.0)], _EEG_FS)
    ),
    "log_mel": _pipeline(
        _SPEECH, _SPEECH_FS, lambda x: signal.log_mel(x, _SPEECH_FS, 400, 160, 80)
    ),
    "mfcc": _pipeline(_SPEECH, _SPEECH_FS, lambda x: signal.mfcc(x, _SPEECH_FS, 400, 160, 20, 40)),
    "sosfilt": _pipeline(_EEG, _EEG_FS, lambda x: signal.sosfilt(_SOS, x)),
    "sosfiltfilt": _pipeline(_EEG, _EEG_FS, lambda x: signal.sosfiltfilt(_SOS, x)),
    "envelope": _pipeline(_EEG, _EEG_FS, signal.envelope),
    "decimate": _pipeline(_EEG, _EEG_FS, lambda x: signal.decimate(x, 4)),
    "resample": _pipeline(_EEG, _EEG_FS, lambda x: signal.resample_poly(x, 3, 5, axis=-1)),
}
