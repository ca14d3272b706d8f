"""Fourier transforms on WebGPU: chooses the kernels for a length and writes their calls."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType
from rlx.ir.opdef import Emitter, TensorType
from rlx.ops.spectra.fft_plans import chirp_tables, convolution_length, plan
from rlx.ops.spectra.fft_tiles import (
    FFT,
    FftProblem,
    Tile,
    halves,
    pairs,
    smooth_length,
    tile,
    twiddles,
)
from rlx.resource_limits import charge

KERNELS = ("fft_tile", "fft_pass", "fft_chirp")
_PASS_WORKGROUP = 256


@dataclass(frozen=True)
class Transforms:
    """Transforms of complex rows in block layout: real parts, then imaginary parts.

    Attributes:
        rows: The number of transforms.
        n: Points of each.
        inverse: Whether they are inverse transforms.
        scale: The factor of the results.
    """

    rows: int
    n: int
    inverse: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class SampleRows:
    """Rows of real samples, which may overlap.

    Attributes:
        per_point: Samples that make a point: 1, or 2 that become its real and imaginary part.
        length: Samples of a signal.
        frames: Rows of a signal.
        hop: Samples from one row of a signal to the next.
        taper: A value with one factor per sample of a row; None for no factors.
    """

    per_point: int
    length: int
    frames: int = 1
    hop: int = 0
    taper: Any = None


@dataclass(frozen=True)
class PointReader:
    """The steps of reading points, in their order. The steps happen in this order.

    Attributes:
        real: The samples that points are made of; None for points in block layout.
        held: Points that are stored; the rest of a transform is 0. 0: all are stored.
        swap: Whether real and imaginary parts are swapped.
        chirp: A value with one complex factor per stored point; None for no factors.
    """

    real: SampleRows | None = None
    held: int = 0
    swap: bool = False
    chirp: Any = None


@dataclass(frozen=True)
class Exit:
    """The steps of writing results, in their order. The steps happen in this order.

    Attributes:
        swap_before: Whether real and imaginary parts are swapped before the factor.
        factor: A value with one complex factor per point; None for no factors.
        swap_after: Whether the parts are swapped after the factor.
        scale: A number that all results are multiplied by.
        held: Points that are written; 0: all.
        bins: Bins of the one-sided spectrum that is written instead; 0 for points in block layout.
        power: Whether re^2 + im^2 of the bins is written.
        roots: For pairs of samples, a value with exp(-pi i k / n) for each of n points.
    """

    swap_before: bool = False
    factor: Any = None
    swap_after: bool = False
    scale: float = 1.0
    held: int = 0
    bins: int = 0
    power: bool = False
    roots: Any = None


def emit_fft(emitter: Emitter, source: Any, target: Any, wanted: Transforms) -> None:
    """Transforms of any length, from block layout to block layout."""
    rows, n = wanted.rows, wanted.n
    # An inverse transform is a forward one with real and imaginary parts swapped on both sides.
    entry = PointReader(swap=wanted.inverse)
    exit = Exit(swap_after=wanted.inverse, scale=wanted.scale)
    if plan(n) is not None:
        if not emit_tiles(
            emitter, source, target, FftProblem(rows, n, emitter.limits), entry, exit
        ):
            emit_passes(emitter, source, target, wanted)
    elif not emit_chirped(emitter, source, target, wanted, entry, exit):
        _emit_bluestein(emitter, source, target, wanted)


def _emit_bluestein(emitter: Emitter, source: Any, target: Any, wanted: Transforms) -> None:
    """Transforms of a length without a plan, as a convolution whose steps are kernels of their own."""
    rows, n = wanted.rows, wanted.n
    m = convolution_length(n)
    a, b = (emitter.temp(TensorType((rows, 2 * m), DType.F32)) for _ in range(2))
    chirp, taps = (emitter.table(table) for table in chirp_tables(n, DType.F32))

    def stage(name: str, inputs: list[Any], output: Any, count: int) -> None:
        params = {
            "stage": name,
            "rows": rows,
            "n": n,
            "m": m,
            "inverse": int(wanted.inverse),
            "scale": wanted.scale,
        }
        groups = math.ceil(rows * count / _PASS_WORKGROUP)
        emitter.call("fft_chirp", inputs, [output], params, groups)

    stage("spread", [source, chirp], a, m)
    emit_passes(emitter, a, b, Transforms(rows, m))
    stage("filter", [b, taps], a, m)
    emit_passes(emitter, a, b, Transforms(rows, m, inverse=True))
    stage("gather", [b, chirp], target, n)


def emit_chirped(
    emitter: Emitter, source: Any, target: Any, wanted: Transforms, entry: PointReader, exit: Exit
) -> bool:
    """Transforms as a convolution of smooth length, whose factors are applied as tiles read and write.

    Returns:
        False, and no call, where no tile fits.
    """
    rows, n = wanted.rows, wanted.n
    m = smooth_length(2 * n - 1, convolution_length(n), emitter.limits)
    problem = FftProblem(rows, m, emitter.limits)
    if FFT.choose(problem, emitter).name == "passes":
        return False
    # Real parts, then imaginary parts, as pairs.
    pairs = [table.reshape(2, -1).T.reshape(-1) for table in chirp_tables(n, DType.F32, m)]
    chirp, taps = map(emitter.table, pairs)
    middle = emitter.temp(TensorType((rows, 2 * m), DType.F32))
    there = replace(entry, held=n, chirp=chirp)
    back = replace(exit, swap_before=True, factor=chirp, held=exit.held or n)
    return emit_tiles(emitter, source, middle, problem, there, Exit(factor=taps)) and emit_tiles(
        emitter, middle, target, problem, PointReader(swap=True), back
    )


def emit_tiles(
    emitter: Emitter, source: Any, target: Any, problem: FftProblem, entry: PointReader, exit: Exit
) -> bool:
    """Transforms in registers, in one kernel or in two.

    Returns:
        False, and no call, where the length takes one pass at a time.
    """
    n, rows = problem.n, problem.rows
    variant = FFT.choose(problem, emitter).name
    if variant == "rows":
        single = tile(n, rows, emitter.limits)
        assert single is not None, "the variant takes the problem"
        real = entry.real
        read = _Walk(n, real.frames, real.hop, real.per_point) if real else _Walk(n)
        _emit_tile(emitter, source, target, _Step(single, rows, entry, exit, read, _Walk(n)))
        return True
    both = halves(problem) if variant == "columns" else None
    if both is None or exit.bins or (entry.real and entry.real.frames > 1):
        return False
    first, second = both
    between = emitter.temp(TensorType((rows, 2 * n), DType.F32))
    # Column c of the first step becomes row c between them, times exp(-2 pi i c k / n) at k.
    charge(f"[fft] the factors of length {n}", elements=n)
    angles = np.arange(second.n)[:, None] * np.arange(first.n)
    factor = emitter.table(pairs(np.exp(-2j * np.pi * angles / n).reshape(-1)))
    stride = entry.real.per_point if entry.real else 1
    columns = _Walk(n, second.n, stride, stride * second.n)
    lines = _Walk(n, second.n, first.n, 1)
    step = _Step(first, rows, entry, Exit(factor=factor), columns, lines)
    _emit_tile(emitter, source, between, step)
    columns = _Walk(n, first.n, 1, first.n)
    _emit_tile(emitter, between, target, _Step(second, rows, PointReader(), exit, columns, columns))
    return True


@dataclass(frozen=True)
class _Walk:
    """The positions of a tile's transforms among n points.

    ``inner`` transforms, ``across`` apart, make one whole; the points of one are ``step`` apart.
    """

    n: int
    inner: int = 1
    across: int = 0
    step: int = 1


@dataclass(frozen=True)
class _Step:
    """A call of the kernel that transforms in registers: the tile of a workgroup, and how points go in and out."""

    tile: Tile
    rows: int
    entry: PointReader
    exit: Exit
    read: _Walk
    write: _Walk

    @property
    def total(self) -> int:
        """Transforms of the tile's length."""
        real = self.entry.real
        return self.rows if real and real.frames > 1 else self.rows * self.read.inner

    def read_params(self) -> dict[str, Any]:
        """Returns the kernel's parameters for reading."""
        entry, read, real = self.entry, self.read, self.entry.real
        stored = entry.held or read.n
        outer, imag = (real.length, 1) if real else (2 * stored, stored)
        # Pairs of samples are read as one where every place that is read is even.
        even = not any(stride % 2 for stride in (outer, read.across, read.step))
        return {
            "inner": read.inner,
            "in_outer": outer,
            "in_imag": imag,
            "held_in": stored,
            "in_across": read.across,
            "in_step": read.step,
            "from_columns": int(read.inner > 1 and (real is None or real.frames == 1)),
            "samples": real.per_point if real else 0,
            "wide": int(real is not None and real.per_point == 2 and even),
            "tapered": int(real is not None and real.taper is not None),
            "chirped": int(entry.chirp is not None),
            "swap_in": int(entry.swap),
        }

    def write_params(self) -> dict[str, Any]:
        """Returns the kernel's parameters for writing."""
        exit, write = self.exit, self.write
        stored = exit.held or write.n
        # A one-sided spectrum is written row by row, also where several rows are of one signal.
        across = (1 if exit.power else 2) * exit.bins if exit.bins else write.across
        return {
            "out_outer": self.read.inner * across if exit.bins else 2 * stored,
            "out_imag": stored,
            "out_across": across,
            "out_step": write.step,
            "to_columns": int(write.step > 1),
            "bins": exit.bins,
            "power": int(exit.power),
            "factored": int(exit.factor is not None),
            "cut": int(stored < write.n),
            "swap_before": int(exit.swap_before),
            "swap_after": int(exit.swap_after),
            "scale": exit.scale,
        }


def _emit_tile(emitter: Emitter, source: Any, target: Any, step: _Step) -> None:
    entry, exit = step.entry, step.exit
    roots = emitter.table(twiddles(step.tile.n, step.tile.radices))
    args = (entry.chirp, entry.real.taper if entry.real else None, exit.roots, exit.factor)
    tables = [roots, *(table for table in args if table is not None)]
    params = {**step.tile.params(), "rows": step.total, **step.read_params(), **step.write_params()}
    groups = math.ceil(step.total / step.tile.count)
    emitter.call("fft_tile", [source, *tables], [target], params, groups)


def emit_passes(emitter: Emitter, source: Any, target: Any, wanted: Transforms) -> None:
    """The Stockham passes of transforms, one dispatch each."""
    rows, n = wanted.rows, wanted.n
    passes = plan(n)
    assert passes is not None
    table = emitter.table(passes.table(DType.F32))
    common = {"rows": rows, "n": n, "count": passes.count, "inverse": int(wanted.inverse)}
    spare = emitter.temp(TensorType((rows, 2 * n), DType.F32))
    last, length, stride, current = len(passes.radices) - 1, n, 1, source
    for i, (radix, offset) in enumerate(zip(passes.radices, passes.offsets, strict=True)):
        # Alternates so that the last pass writes the target.
        output = target if (last - i) % 2 == 0 else spare
        params = {
            **common,
            "radix": radix,
            "length": length,
            "stride": stride,
            "offset": offset,
            "first": int(i == 0),
            "last": int(i == last),
            "scale": wanted.scale if i == last else 1.0,
        }
        groups = math.ceil(rows * (n // radix) / _PASS_WORKGROUP)
        emitter.call("fft_pass", [current, table], [output], params, groups)
        current, length, stride = output, length // radix, stride * radix
