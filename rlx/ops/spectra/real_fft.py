"""The one-sided Fourier transform of real samples: the ``rfft`` record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import estimated, size
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.spectra.fft import NORMS, Norm, error_bound
from rlx.ops.spectra.fft_plans import chirp_tables, in_lanes, plan, smooth_convolution_length
from rlx.ops.spectra.fft_tiles import FftProblem, pairs
from rlx.ops.spectra.fft_webgpu import (
    KERNELS,
    Exit,
    PointReader,
    SampleRows,
    Transforms,
    emit_chirped,
    emit_fft,
    emit_tiles,
)
from rlx.resource_limits import charge
from rlx.sizes import pinned

_WORKGROUP = 256


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    if not shape or shape[-1] < 1:
        raise ShapeError("[rfft] no samples", got=shape, expected="[..., n >= 1]")
    if attrs["norm"] not in NORMS:
        raise GraphError("[rfft] no such norm", got=repr(attrs["norm"]), expected=", ".join(NORMS))
    return TensorType((*shape[:-1], 2 * (shape[-1] // 2 + 1)), types[0].dtype)


def _geometry(node: Node) -> tuple[int, int, int, float]:
    """Rows, samples, length of the complex transform, scale.

    An even number of samples is transformed as half as many complex numbers.
    """
    n = pinned(node.inputs[0].shape[-1])
    scale = {"backward": 1.0, "ortho": 1 / math.sqrt(n), "forward": 1 / n}[node.attrs["norm"]]
    return size(node.shape[:-1]), n, n if n % 2 else n // 2, scale


def _roots(n: int, dtype: DType) -> Array:
    """exp(-2 pi i k / n) of each bin, real parts, then imaginary parts."""
    charge(f"[rfft] the factors of length {n}", elements=n)
    w = np.exp(-2j * np.pi * np.arange(n // 2 + 1) / n)
    return np.concatenate([w.real, w.imag]).astype(dtype.numpy)


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    rows, n, _, scale = _geometry(node)
    emit_rows(emitter, emitter.operand(0), emitter.result(), node.dtype, (rows, n, scale))


def emit_rows(
    emitter: Emitter,
    source: Any,
    target: Any,
    dtype: DType,
    geometry: tuple[int, int, float],
    frames: tuple[int, int, int] | None = None,
    taper: Any = None,
    power: bool = False,
) -> None:
    """One-sided transforms, or their powers, on the CPU; ``geometry`` is rows, samples of each, and scale.

    ``frames``: of overlapping rows the number in a signal, its samples, and the samples from one to the next.
    """
    rows, n, scale = geometry
    length = n if n % 2 else n // 2
    direct = plan(length)
    m = 0 if direct else smooth_convolution_length(length)
    passes = direct or plan(m)
    assert passes is not None, "a product of 2, 3 and 5 has a plan"
    tables = [emitter.table(passes.table(dtype)), emitter.table(_roots(n, dtype)), taper]
    if not direct:
        tables += (emitter.table(table) for table in chirp_tables(length, dtype, m))
    lanes = in_lanes(rows, length)
    each, samples, hop = frames or (1, n, 0)
    emitter.call(
        "rfft",
        [source, *tables],
        [target],
        {
            "rows": rows,
            "n": n,
            "length": length,
            "m": m,
            "scale": scale,
            "twiddle_count": passes.count,
            "lanes": int(lanes),
            "frames": each,
            "samples": samples,
            "hop": hop,
            "power": int(power),
            "passes": len(passes.radices),
            "radices": passes.radices,
        },
    )


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    rows, n, _, scale = _geometry(node)
    emit_rfft(emitter, emitter.operand(0), emitter.result(), rows, n, scale)


def emit_rfft(emitter: Emitter, source: Any, target: Any, rows: int, n: int, scale: float) -> None:
    """``rows`` one-sided transforms of n samples on WebGPU."""
    length, bins = n if n % 2 else n // 2, n // 2 + 1
    real = SampleRows(2 - n % 2, n)
    entry, problem = PointReader(real=real), FftProblem(rows, length, emitter.limits)
    direct = plan(length) is not None
    if direct:
        exit = one_sided(emitter, real, n, scale)
        if emit_tiles(emitter, source, target, problem, entry, exit):
            return
    elif n % 2:
        exit = Exit(held=bins, scale=scale)
        if emit_chirped(emitter, source, target, Transforms(rows, n), entry, exit):
            return
    whole = emitter.temp(TensorType((rows, 2 * length), DType.F32))
    common = {"rows": rows, "n": n, "length": length, "bins": bins}
    if not (direct and emit_tiles(emitter, source, whole, problem, entry, Exit())):
        packed = emitter.temp(TensorType((rows, 2 * length), DType.F32))
        groups = math.ceil(rows * length / _WORKGROUP)
        emitter.call("rfft_pack", [source], [packed], common, groups)
        emit_fft(emitter, packed, whole, Transforms(rows, length))
    roots = emitter.table(_roots(n, DType.F32))
    groups = math.ceil(rows * bins / _WORKGROUP)
    emitter.call("rfft_unpack", [whole, roots], [target], {**common, "scale": scale}, groups)


def one_sided(emitter: Emitter, real: SampleRows, n: int, scale: float) -> Exit:
    """Describes how to write the transform of n samples as their one-sided spectrum."""
    charge(f"[rfft] the factors of length {n}", elements=n)
    roots = np.exp(-2j * np.pi * np.arange(n // 2) / n) if real.per_point == 2 else None
    table = None if roots is None else emitter.table(pairs(roots))
    return Exit(scale=scale, bins=n // 2 + 1, roots=table)


_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 16, 17, 34, 60, 97, 128, 194, 256, 1000, 1009, 2018, 8192)


@op(
    infer=_infer,
    flops=lambda node: (
        2.5 * size(node.shape) * max(1.0, math.log2(estimated(node.inputs[0].shape[-1])))
    ),
    cpu=Kernels(("rfft",), _lower_cpu),
    webgpu=Kernels(("rfft_pack", "rfft_unpack", *KERNELS), _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    bound=lambda node: error_bound(node.inputs[0].shape[-1], node.dtype),
    samples=lambda: (
        *(Sample(((3, n),)) for n in _SIZES),
        *(Sample(((37, n),)) for n in (1, 2, 9, 16, 45, 74, 143, 400, 1000)),
        *(Sample(((5, n),), {"norm": "ortho"}) for n in (30, 63)),
        *(Sample(((2, n),), {"norm": norm}) for norm in ("ortho", "forward") for n in (15, 16)),
        Sample(((1, 1),)),
        Sample(((0, 16),)),
        Sample(((2, 0, 15),)),
        Sample(((700, 32),)),
        Sample(((512, 512),), bench=True),
    ),
)
def rfft(x: Array, norm: Norm = "backward") -> Array:
    """The one-sided discrete Fourier transform of real samples over the last axis, any length.

    Args:
        x: ``[..., n]``, n >= 1.
        norm: NumPy's: "backward" does not scale, "ortho" scales by 1/sqrt(n), "forward" by 1/n.

    Returns:
        ``[..., 2 (n // 2 + 1)]``: the real parts of the bins 0 to n // 2, then their imaginary
        parts. The error is that of ``fft``.
    """
    y = np.fft.rfft(x, norm=norm)
    return np.concatenate([y.real, y.imag], -1)
