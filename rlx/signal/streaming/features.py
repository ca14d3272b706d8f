"""Spectra and mel features of a signal that arrives piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import InputError
from rlx.ir.dtype import DTypeLike
from rlx.signal.fourier import stft
from rlx.signal.mel import log_mel, mfcc
from rlx.signal.streaming.framed import Frames
from rlx.signal.window_functions import WindowLike


class StreamingStft(Frames):
    """``stft`` of a signal that arrives piece by piece.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        window: See ``stft``.
        block: Samples that one run takes at most, a multiple of the hop, which is the default. More
            are faster where pieces are long.
        dtype: "f32" or "f64".
        device: Where it runs.
        center: See ``stft``; ``flush`` then gives the last frames.
        pad_mode: See ``stft``.
        nan: The policy for samples that are NaN or infinite. "raise": ``push`` raises ``InputError``
            and takes nothing. "propagate": frames that hold one are NaN, as in ``stft``. "skip": frames
            that hold one are left out.

    Raises:
        InputError: A setting has no such value.

    Example:
        >>> import numpy as np
        >>> stream = StreamingStft(2, n_fft=256, hop=128)
        >>> [stream.push(np.zeros((2, n), np.float32)).shape for n in (100, 200, 0, 1000)]
        [(2, 0, 258), (2, 1, 258), (2, 0, 258), (2, 8, 258)]
    """

    def __init__(  # noqa: PLR0913 - a public signature
        self,
        shape: int | Sequence[int],
        n_fft: int,
        hop: int,
        window: WindowLike = "hann",
        block: int | None = None,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
        center: bool = False,
        pad_mode: str = "reflect",
        nan: str = "raise",
    ) -> None:
        super().__init__(shape, n_fft, hop, block, dtype, device, nan)
        self._make(center, pad_mode, lambda x: stft(x, n_fft, hop, window))


class StreamingLogMel(Frames):
    """``log_mel`` of a signal that arrives piece by piece.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mels: Number of filters.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        log: "log10", "ln", or "db" without a floor: ``log_mel`` with ``top_db=None``. The floors of
            "whisper" and of "db" depend on the maximum of the whole signal, which a stream can't know.
        window: See ``stft``.
        center: See ``stft``; ``flush`` then gives the last frames.
        pad_mode: See ``stft``.
        block: See ``StreamingStft``.
        dtype: "f32" or "f64".
        device: Where it runs.
        nan: See ``StreamingStft``.

    Raises:
        InputError: A setting has no such value.

    Example:
        >>> import numpy as np
        >>> stream = StreamingLogMel((), 16000, n_fft=400, hop=160, n_mels=80)
        >>> stream.push(np.zeros(16000, np.float32)).shape
        (98, 80)
    """

    def __init__(  # noqa: PLR0913 - a public signature
        self,
        shape: int | Sequence[int],
        sample_rate: float,
        n_fft: int,
        hop: int,
        n_mels: int,
        fmin: float = 0.0,
        fmax: float | None = None,
        mel: str = "slaney",
        log: str = "log10",
        window: WindowLike = "hann",
        center: bool = False,
        pad_mode: str = "reflect",
        block: int | None = None,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
        nan: str = "raise",
    ) -> None:
        super().__init__(shape, n_fft, hop, block, dtype, device, nan)
        if log == "whisper":
            raise InputError(
                "[StreamingLogMel] log",
                got="'whisper', whose floor depends on the whole signal",
                expected="'log10', 'ln' or 'db'",
                hint="take 'log10' and apply the floor to the clip when it is whole",
            )
        self._make(
            center,
            pad_mode,
            lambda x: log_mel(
                x, sample_rate, n_fft, hop, n_mels, fmin, fmax, mel, log, window, top_db=None
            ),
        )


class StreamingMfcc(Frames):
    """``mfcc`` with ``top_db=None`` of a signal that arrives piece by piece.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mfcc: Coefficients kept, at most ``n_mels``.
        n_mels: Number of filters.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        window: See ``stft``.
        center: See ``stft``; ``flush`` then gives the last frames.
        pad_mode: See ``stft``.
        block: See ``StreamingStft``.
        dtype: "f32" or "f64".
        device: Where it runs.
        nan: See ``StreamingStft``.

    Raises:
        InputError: A setting has no such value.

    Example:
        >>> import numpy as np
        >>> stream = StreamingMfcc(1, 16000, n_fft=400, hop=160, n_mfcc=13, n_mels=40)
        >>> stream.push(np.ones((1, 1000), np.float32)).shape
        (1, 4, 13)
    """

    def __init__(  # noqa: PLR0913 - a public signature
        self,
        shape: int | Sequence[int],
        sample_rate: float,
        n_fft: int,
        hop: int,
        n_mfcc: int = 20,
        n_mels: int = 128,
        fmin: float = 0.0,
        fmax: float | None = None,
        mel: str = "slaney",
        window: WindowLike = "hann",
        center: bool = False,
        pad_mode: str = "reflect",
        block: int | None = None,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
        nan: str = "raise",
    ) -> None:
        super().__init__(shape, n_fft, hop, block, dtype, device, nan)
        self._make(
            center,
            pad_mode,
            lambda x: mfcc(
                x, sample_rate, n_fft, hop, n_mfcc, n_mels, fmin, fmax, mel, window, top_db=None
            ),
        )
