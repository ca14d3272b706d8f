"""Fourier transforms on WebGPU: which kernels a length takes, and what they are told."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.budget import spend
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array, Emitter, TensorType
from rlx.ops.spectra.fft_plans import chirp_tables, convolution_length, plan
from rlx.ops.spectra.fft_tiles import (
    FFT,
    Problem,
    Tile,
    halves,
    pairs,
    smooth_length,
    tile,
    twiddles,
)

KERNELS = ("fft_tile", "fft_pass", "fft_chirp")
_PASS_WORKGROUP = 256


@dataclass(frozen=True)
class Samples:
    """Rows of real samples; they may overlap.

    Attributes:
        each: Samples of a point: 1, or 2 that become its real and imaginary part.
        length: Samples of a signal.
        frames: Rows of a signal.
        hop: Samples from one of its rows to the next.
        taper: What the samples of a row are multiplied by; None for nothing.
    """

    each: int
    length: int
    frames: int = 1
    hop: int = 0
    taper: Any = None


@dataclass(frozen=True)
class Ends:
    """What happens to points on their way into a transform and out of it.

    Attributes:
        swap_in: Whether real and imaginary parts are swapped first.
        held_in: Points that there are; the others are 0. 0: all.
        chirp: What the points that there are are multiplied by.
        swap_between: Whether the parts are swapped before the factor.
        factor: What the results are multiplied by.
        swap_out: Whether the parts are swapped after it.
        held_out: Points that are written; 0: all.
        scale: A number that all are multiplied by.
        real: The samples that points are made of; None for points in block layout.
        bins: Bins of the one-sided spectrum that is written; 0 for all points in block layout.
        power: Whether re^2 + im^2 of the bins is written instead.
        roots: For pairs of samples, exp(-pi i k / n) of each of n points.
    """

    swap_in: int = 0
    held_in: int = 0
    chirp: Any = None
    swap_between: int = 0
    factor: Any = None
    swap_out: int = 0
    held_out: int = 0
    scale: float = 1.0
    real: Samples | None = None
    bins: int = 0
    power: int = 0
    roots: Any = None


def emit_fft(
    emitter: Emitter, source: Any, target: Any, rows: int, n: int, inverse: int, scale: float
) -> None:
    """``rows`` transforms of any length, from block layout to block layout."""
    if plan(n) is not None:
        ends = Ends(swap_in=inverse, swap_out=inverse, scale=scale)
        if not emit_tiles(emitter, source, target, rows, n, ends):
            emit_passes(emitter, source, target, rows, n, inverse, scale)
        return
    if emit_chirped(emitter, source, target, rows, n, Ends(inverse, swap_out=inverse, scale=scale)):
        return
    m = convolution_length(n)
    a, b = (emitter.temp(TensorType((rows, 2 * m), DType.F32)) for _ in range(2))
    chirp, taps = (emitter.table(table) for table in chirp_tables(n, DType.F32))

    def stage(name: str, inputs: list[Any], output: Any, count: int) -> None:
        emitter.call(
            "fft_chirp",
            inputs,
            [output],
            {"stage": name, "rows": rows, "n": n, "m": m, "inverse": inverse, "scale": scale},
            math.ceil(rows * count / _PASS_WORKGROUP),
        )

    stage("spread", [source, chirp], a, m)
    emit_passes(emitter, a, b, rows, m, 0, 1.0)
    stage("filter", [b, taps], a, m)
    emit_passes(emitter, a, b, rows, m, 1, 1.0)
    stage("gather", [b, chirp], target, n)


def emit_chirped(emitter: Emitter, source: Any, target: Any, rows: int, n: int, ends: Ends) -> bool:
    """Transforms as a convolution of smooth length, its factors at the ends of tiles; False where none fits."""
    m = smooth_length(2 * n - 1, convolution_length(n), emitter.limits)
    if FFT.choose(Problem(rows, m, emitter.limits), emitter).name == "passes":
        return False
    tables = chirp_tables(n, DType.F32, m)
    chirp, taps = (emitter.table(_paired(table)) for table in tables)
    middle = emitter.temp(TensorType((rows, 2 * m), DType.F32))
    there = Ends(ends.swap_in, held_in=n, chirp=chirp, factor=taps, real=ends.real)
    back = replace(ends, swap_in=1, swap_between=1, factor=chirp, real=None)
    back = replace(back, held_out=ends.held_out or n)
    return emit_tiles(emitter, source, middle, rows, m, there) and emit_tiles(
        emitter, middle, target, rows, m, back
    )


def _paired(table: Array) -> Array:
    """Real parts, then imaginary parts, as pairs."""
    return np.ascontiguousarray(table.reshape(2, -1).T).reshape(-1)


def emit_tiles(emitter: Emitter, source: Any, target: Any, rows: int, n: int, ends: Ends) -> bool:
    """Transforms in registers, in one kernel or two; False where the length takes a pass at a time."""
    problem = Problem(rows, n, emitter.limits)
    way = FFT.choose(problem, emitter).name
    if way == "rows":
        one = tile(n, rows, emitter.limits)
        assert one is not None, "the variant takes the problem"
        lines = _Walk(n)
        if ends.real:
            real = ends.real
            lines = _Walk(n, real.frames, real.hop, real.each)
        _emit_tile(emitter, source, target, one, rows, ends, lines, _Walk(n))
        return True
    both = halves(problem) if way == "columns" else None
    if both is None or ends.bins or (ends.real and ends.real.frames > 1):
        return False
    first, second = both
    between = emitter.temp(TensorType((rows, 2 * n), DType.F32))
    # Column c of the first step becomes row c between them, times exp(-2 pi i c k / n) at k.
    spend(f"[fft] the factors of length {n}", elements=n)
    turn = np.arange(second.n)[:, None] * np.arange(first.n)
    factor = emitter.table(pairs(np.exp(-2j * np.pi * turn / n).reshape(-1)))
    into = replace(ends, swap_between=0, factor=factor, swap_out=0, held_out=0, scale=1.0)
    each = ends.real.each if ends.real else 1
    columns, lines = _Walk(n, second.n, each, each * second.n), _Walk(n, second.n, first.n, 1)
    _emit_tile(emitter, source, between, first, rows, into, columns, lines)
    out = replace(ends, swap_in=0, held_in=0, chirp=None, real=None)
    columns = _Walk(n, first.n, 1, first.n)
    _emit_tile(emitter, between, target, second, rows, out, columns, columns)
    return True


@dataclass(frozen=True)
class _Walk:
    """Where the points of a tile's transforms lie in ones of n points.

    Attributes:
        n: Points of the whole.
        inner: Transforms that make one whole.
        across: From one of them to the next.
        step: From one point to the next.
    """

    n: int
    inner: int = 1
    across: int = 0
    step: int = 1


def _emit_tile(
    emitter: Emitter,
    source: Any,
    target: Any,
    tile: Tile,
    rows: int,
    ends: Ends,
    walk: _Walk,
    out: _Walk,
) -> None:
    held_in, held_out, real = ends.held_in or walk.n, ends.held_out or out.n, ends.real
    outer, imag = (real.length, 1) if real else (2 * held_in, held_in)
    tables = [emitter.table(twiddles(tile.n, tile.radices))]
    extra = (ends.chirp, real.taper if real else None, ends.roots, ends.factor)
    tables += [table for table in extra if table is not None]
    # A one-sided spectrum is written row by row, also where several rows are of one signal.
    across = (1 if ends.power else 2) * ends.bins if ends.bins else out.across
    total = rows * walk.inner if not real or real.frames == 1 else rows
    strides = (outer, walk.across, walk.step)
    params = {
        **tile.params(),
        "rows": total,
        "inner": walk.inner,
        "in_outer": outer,
        "in_imag": imag,
        "held_in": held_in,
        "in_across": walk.across,
        "in_step": walk.step,
        "out_outer": walk.inner * across if ends.bins else 2 * held_out,
        "out_imag": held_out,
        "out_across": across,
        "out_step": out.step,
        "from_columns": int(walk.inner > 1 and (real is None or real.frames == 1)),
        "to_columns": int(out.step > 1),
        "samples": real.each if real else 0,
        "wide": int(real is not None and real.each == 2 and not any(s % 2 for s in strides)),
        "tapered": int(real is not None and real.taper is not None),
        "bins": ends.bins,
        "power": ends.power,
        "chirped": int(ends.chirp is not None),
        "turned": int(ends.factor is not None),
        "cut": int(held_out < out.n),
        "swap_in": ends.swap_in,
        "swap_between": ends.swap_between,
        "swap_out": ends.swap_out,
        "scale": ends.scale,
    }
    emitter.call("fft_tile", [source, *tables], [target], params, math.ceil(total / tile.count))


def emit_passes(
    emitter: Emitter, source: Any, target: Any, rows: int, n: int, inverse: int, scale: float
) -> None:
    """The Stockham passes of ``rows`` transforms, one dispatch each."""
    passes = plan(n)
    assert passes is not None
    table = emitter.table(passes.table(DType.F32))
    common = {"rows": rows, "n": n, "count": passes.count, "inverse": inverse}
    spare = emitter.temp(TensorType((rows, 2 * n), DType.F32))
    last, length, stride, current = len(passes.radices) - 1, n, 1, source
    for at, (radix, offset) in enumerate(zip(passes.radices, passes.offsets, strict=True)):
        # Alternates so that the last pass writes the target.
        output = target if (last - at) % 2 == 0 else spare
        emitter.call(
            "fft_pass",
            [current, table],
            [output],
            {
                **common,
                "radix": radix,
                "length": length,
                "stride": stride,
                "offset": offset,
                "first": int(at == 0),
                "last": int(at == last),
                "scale": scale if at == last else 1.0,
            },
            math.ceil(rows * (n // radix) / _PASS_WORKGROUP),
        )
        current, length, stride = output, length // radix, stride * radix
