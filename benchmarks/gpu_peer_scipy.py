"""SciPy's Welch on the host, and the strongest bins by NumPy."""

import time
from statistics import median

import numpy as np

ROUNDS = 5


def start():
    """Its version."""
    import scipy.signal

    return f"SciPy {scipy.__version__} on the CPU"


def takes(row):
    """Returns whether it is the row of Welch's peaks."""
    return row.name.startswith("Welch peaks")


def measure(work):
    """Microseconds of a run."""
    from scipy.signal import welch
    from work_signal import FS

    settings, x = work.peer[1], work.values["x"]
    n, k = settings["n_fft"], settings["k"]

    def run():
        _, power = welch(x, FS, "hann", n, n // 2, axis=-1)
        order = np.argsort(-power, axis=1, kind="stable")[:, :k]
        return order, np.take_along_axis(power, order, 1)

    order, power = run()
    result = np.stack([order, power], -1).reshape(len(x), 2 * k).astype(np.float32)
    got, expected = work.reference([result])
    assert np.linalg.norm(got - expected) < work.tolerance * np.linalg.norm(expected)
    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        run()
        spent.append(time.perf_counter_ns() - began)
    return median(spent) / 1e3
