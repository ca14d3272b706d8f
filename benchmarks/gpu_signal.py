"""Rows of transforms and spectra on a GPU."""

from work import BenchmarkRow
from work_signal import fft, log_mel, stft, welch

POINTS = 1 << 24
LENGTHS = (256, 512, 1000, 1024, 4096, 4099, 16384, 65536)


def _transforms():
    for n in LENGTHS:
        for real in (False, True):
            few = tuple(dict(rows=r, n=n, real=real) for r in ((3,) if n > 1024 else (1, 5)))
            yield BenchmarkRow(
                f"{'rfft' if real else 'fft'} {POINTS // n} x {n}", fft,
                dict(rows=POINTS // n, n=n, real=real), few,
                quick=not real and n in (256, 1024, 4099, 16384),
            )  # fmt: skip


ROWS = (
    *_transforms(),
    BenchmarkRow("Welch peaks 8192 x 8 x 256, k 16", welch, dict(signals=8192, segments=8, n_fft=256, k=16),
        (dict(signals=5, segments=8, n_fft=256, k=16), dict(signals=1, segments=3, n_fft=256, k=4)), quick=True),
    BenchmarkRow("stft 64 x 30 s, 400/160", stft, dict(signals=64, samples=480000, n_fft=400, hop=160),
        (dict(signals=2, samples=1360, n_fft=400, hop=160),)),
    BenchmarkRow("stft 16 x 2^20, 1024/256", stft, dict(signals=16, samples=1 << 20, n_fft=1024, hop=256),
        (dict(signals=2, samples=2000, n_fft=1024, hop=256),)),
    BenchmarkRow("log-mel 64 x 30 s, 80 bands", log_mel,
        dict(signals=64, samples=480000, n_fft=400, hop=160, mels=80),
        (dict(signals=2, samples=1360, n_fft=400, hop=160, mels=80),), quick=True),
)  # fmt: skip
