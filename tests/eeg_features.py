"""Computes ICLabel's view of a component: a map of the head, a spectrum, an autocorrelation (Pion-Tonachini 2019)."""

import numpy as np
import scipy

LABELS = ("brain", "muscle", "eye", "heart", "line noise", "channel noise", "other")
GRID = 32
SCALE = np.float32(0.99)  # the network was trained on features up to that

# Rows of the 10-10 system: the names from the left ear's side to the right one's, between which electrodes
# lie at equal angles; and where the middle and the end of the row are: degrees from the vertex, degrees
# from the nose.
ROWS = (
    ("Fp1 Fpz Fp2", (92, 0), (92, 18)),
    ("Af7 Af3 Afz Af4 Af8", (69, 0), (92, 36)),
    ("F7 F5 F3 F1 Fz F2 F4 F6 F8", (46, 0), (92, 54)),
    ("Ft7 Fc5 Fc3 Fc1 Fcz Fc2 Fc4 Fc6 Ft8", (23, 0), (92, 72)),
    ("T7 C5 C3 C1 Cz C2 C4 C6 T8", (0, 0), (92, 90)),
    ("Tp7 Cp5 Cp3 Cp1 Cpz Cp2 Cp4 Cp6 Tp8", (23, 180), (92, 108)),
    ("P7 P5 P3 P1 Pz P2 P4 P6 P8", (46, 180), (92, 126)),
    ("Po7 Po3 Poz Po4 Po8", (69, 180), (92, 144)),
    ("O1 Oz O2", (92, 180), (92, 162)),
    ("T9 T10", (115, 90), (115, 90)),
    ("Iz", (115, 180), (115, 180)),
)


def _direction(from_vertex, from_nose):
    """Front, right and up of a place on the unit sphere."""
    down, round_ = np.radians(from_vertex), np.radians(from_nose)
    return np.array([np.sin(down) * np.cos(round_), np.sin(down) * np.sin(round_), np.cos(down)])


def electrodes():
    """Unit vectors (front, right, up) of the electrodes by name."""
    results = {}
    for text, middle, end in ROWS:
        names = text.split()
        half = len(names) // 2
        a, b = _direction(*middle), _direction(*end)
        angle = np.arccos(np.clip(a @ b, -1, 1))
        for index, name in enumerate(names):
            part = abs(index - half) / half if len(names) % 2 and half else 1.0
            place = b if angle < 1e-9 else np.sin((1 - part) * angle) * a + np.sin(part * angle) * b
            place = place / np.linalg.norm(place)
            results[name] = place * ((1, -1, 1) if index < half else (1, 1, 1))
    return results


def head(places):
    """Places ``[n, 2]`` (front, right) on the map: the angle from the vertex is the distance, 0.5 the rim."""
    away = np.arccos(places[:, 2]) / np.pi
    flat = places[:, :2] / np.maximum(np.linalg.norm(places[:, :2], axis=1, keepdims=True), 1e-12)
    return flat * away[:, None] * (0.5 / max(1.02 * away.max(), 0.5))


def topography(weights, places):
    """Maps ``[components, 32, 32]`` (back to front, left to right) by biharmonic splines (Sandwell 1987).

    Args:
        weights: ``[components, electrodes]``, how strongly each component reaches each electrode.
        places: ``[electrodes, 3]``.
    """

    def green(first, other):
        apart = np.linalg.norm(first[:, None] - other[None], axis=-1)
        return apart**2 * (np.log(np.where(apart > 0, apart, 1)) - 1)

    position = head(places)
    line = np.linspace(-0.5, 0.5, GRID)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    result = green(grid, position) @ np.linalg.solve(green(position, position), weights.T)
    result[np.linalg.norm(grid, axis=1) > 0.5] = 0
    return (result / np.abs(result).max(0)).T.reshape(-1, GRID, GRID)


def spectrum(activity, fs):
    """Decibels ``[components, 100]`` at 1 to 100 Hz: the medians of seconds that overlap by half.

    Above half the sampling rate the last value stands. The largest magnitude is 1.
    """
    taper = np.hamming(fs)
    count = min(fs // 2, 100)
    parts = np.lib.stride_tricks.sliding_window_view(activity, fs, -1)[:, :: fs // 2] * taper
    power = np.median(np.abs(np.fft.rfft(parts)) ** 2, 1)[:, 1 : count + 1]
    power *= 2 / (fs * np.sum(taper**2))
    if count == fs // 2:
        power[:, -1] /= 2
    level = 20 * np.log10(power)
    level = np.concatenate([level, np.repeat(level[:, -1:], 100 - count, 1)], 1)
    for value in (49, 59):  # where a filter took the mains away
        sides = level[:, [value - 1, value + 1]]
        gap = np.all(sides - level[:, value : value + 1] > 5, 1)
        level[gap, value] = sides[gap].mean(1)
    return level / np.abs(level).max(1, keepdims=True)


def autocorrelation(activity, fs):
    """Correlations ``[components, 100]`` with what was 0.01 to 1 s before, unbiased, over 3 s parts."""
    points = 3 * fs
    parts = np.lib.stride_tricks.sliding_window_view(activity, points, -1)[:, :: points // 2]
    spec = np.abs(np.fft.rfft(parts, 2 * points)) ** 2
    result = np.fft.irfft(spec.mean(1))[:, : fs + 1]
    result /= result[:, :1] * (points - np.arange(fs + 1)) / points
    return scipy.signal.resample_poly(result, 100, fs, axis=-1)[:, 1:101]


def features(weights, activity, places, fs):
    """The network's inputs: every component four times, as it is, negated, mirrored, and both.

    Args:
        weights: ``[components, electrodes]``.
        activity: ``[components, samples]`` in microvolts, from 1 Hz on.
        places: ``[electrodes, 3]``.
        fs: Samples per second.
    """
    maps = topography(weights, places)
    lines = {"psds": spectrum(activity, fs), "autocorr": autocorrelation(activity, fs)}
    results = {name: np.tile(line, (4, 1))[:, None, None] for name, line in lines.items()}
    results["topo"] = np.concatenate([maps, -maps, maps[..., ::-1], -maps[..., ::-1]])[:, None]
    return {name: np.float32(value) * SCALE for name, value in results.items()}
