"""Chooses the rows of a batch so that handing the batch over costs little beside running it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import InputError
from rlx.ir.opdef import Array

# Seconds that Ray Data takes for a batch of 1 MiB, measured on two processors by benchmarks/ray_overhead.py.
OVERHEAD_S = 0.015
# The part of a batch's time that handing it over may take.
SHARE = 0.1
# No batch gets larger: what it holds is in the object store several times.
MAX_ROWS, MAX_BYTES = 1 << 14, 64 << 20
# Sizes that are tried are so many times apart, and the least time of so many runs counts.
_APART, _RUNS = 8, 3


@dataclass(frozen=True)
class BatchSize:
    """A number of rows, with the measurements behind it.

    Attributes:
        rows: Rows of a batch.
        run_s: Measured seconds of a run of these rows.
        overhead_s: Seconds that handing a batch over takes.
        enough: True if the overhead is within ``SHARE`` of the whole; otherwise a limit of rows or bytes was reached.
    """

    rows: int
    run_s: float
    overhead_s: float
    enough: bool

    @property
    def share(self) -> float:
        """The part of a batch's time that handing it over takes."""
        return self.overhead_s / (self.overhead_s + self.run_s)


def measure_batch_size(
    run: Callable[[Mapping[str, Array]], object],
    sample: Mapping[str, Array],
    multiple: int = 1,
    overhead_s: float = OVERHEAD_S,
) -> BatchSize:
    """The least number of rows whose run makes handing them over cheap, by running some.

    Args:
        run: Runs a batch.
        sample: A batch of at least one row, whose rows are repeated.
        multiple: Rows of a batch are so many times a whole number.
        overhead_s: Seconds that handing a batch over takes.

    Returns:
        Powers of two times ``multiple``.

    Raises:
        InputError: The sample is empty.

    Example:
        >>> import numpy as np
        >>> import time
        >>> found = measure_batch_size(lambda batch: time.sleep(0.02), {"x": np.zeros((1, 2))})
        >>> found.rows >= 1
        True
    """
    count = min((len(value) for value in sample.values()), default=0)
    if not count:
        raise InputError("a batch to measure with is empty", expected="one row at least")
    row_bytes = max(1, sum(value.nbytes // max(len(value), 1) for value in sample.values()))
    most = max(multiple, min(MAX_ROWS, MAX_BYTES // row_bytes))
    limit = multiple << ((most // multiple).bit_length() - 1)
    wanted = overhead_s * (1.0 - SHARE) / SHARE
    rows = multiple
    while True:
        batch = {name: np.resize(value, (rows, *value.shape[1:])) for name, value in sample.items()}
        seconds = _least_seconds(run, batch)
        if seconds >= wanted or rows >= limit:
            return BatchSize(rows, seconds, overhead_s, seconds >= wanted)
        # Near the aim the next size is worked out: larger batches are not slower by the row.
        times = min(_APART, 1 << max(1, int(np.ceil(np.log2(wanted / max(seconds, 1e-9))))))
        rows = min(rows * times, limit)


def _least_seconds(
    run: Callable[[Mapping[str, Array]], object], batch: Mapping[str, Array]
) -> float:
    run(batch)  # compiles, and touches memory
    best = float("inf")
    for _ in range(_RUNS):
        began = time.perf_counter()
        run(batch)
        best = min(best, time.perf_counter() - began)
    return best
