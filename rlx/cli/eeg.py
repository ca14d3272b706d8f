"""The recording that the demo and the examples run on."""

from __future__ import annotations

from importlib import resources

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.opdef import Array


@dataclass(frozen=True)
class EegRecording:
    """A multi-channel recording.

    Attributes:
        samples: float32 ``[channels, samples]`` in microvolts.
        names: Channel names.
        fs: Samples per second.
        source: Where it comes from.
    """

    samples: Array
    names: tuple[str, ...]
    fs: float
    source: str


def load_recording() -> EegRecording:
    """The 64-channel eyes-closed EEG that comes with rlx (PhysioNet EEGMMIDB S001R02, ODC-BY 1.0).

    Example:
        >>> recording = load_recording()
        >>> len(recording.names), recording.fs
        (64, 160.0)
    """
    file = resources.files("rlx.cli") / "data" / "eeg_eyes_closed.npz"
    with file.open("rb") as opened, np.load(opened) as data:
        samples = data["digital"] * data["scale"][:, None] + data["offset"][:, None]
        names = tuple(str(name) for name in data["names"])
        fs = float(data["fs"])
    source = "PhysioNet EEG Motor Movement/Imagery Dataset, S001R02, ODC-BY 1.0"
    return EegRecording(samples.astype(np.float32), names, fs, source)
