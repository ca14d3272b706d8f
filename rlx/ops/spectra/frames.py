"""Overlapping frames of signals: the ``frames`` record, one strided copy, and the transform that reads them in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import estimated, size, strides
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.movement.strided import copied_by, emit_strided_copy
from rlx.ops.spectra.fft import error_bound
from rlx.ops.spectra.fft_plans import plan
from rlx.ops.spectra.fft_tiles import FftProblem
from rlx.ops.spectra.fft_webgpu import KERNELS, PointReader, SampleRows, emit_tiles
from rlx.ops.spectra.real_fft import emit_rfft, emit_rows, one_sided
from rlx.sizes import pinned


def frame_count(name: str, samples: int, length: int, hop: int) -> int:
    """Whole frames of a signal.

    Raises:
        ShapeError: There is none, or a length is below 1.
    """
    if hop < 1 or length < 1 or samples < length:
        raise ShapeError(
            f"[{name}] does not fit",
            got=f"{samples} samples, length {length}, hop {hop}",
            expected="samples >= length >= 1, and hop >= 1",
        )
    return (samples - length) // hop + 1


def framed(x: Array, length: int, hop: int) -> Array:
    """Views of the frames of the last axis."""
    return np.lib.stride_tricks.sliding_window_view(x, length, -1)[..., ::hop, :]


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    *outer, samples = types[0].shape
    count = frame_count("frames", samples, attrs["length"], attrs["hop"])
    return TensorType((*outer, count, attrs["length"]), types[0].dtype)


def _lower(node: Node, emitter: Emitter) -> None:
    _emit_frames(emitter, emitter.result(), node.inputs[0].type, node.shape[-1], node.attrs["hop"])


def _emit_frames(emitter: Emitter, target: Any, x: TensorType, length: int, hop: int) -> None:
    *outer, samples = x.shape
    dims = (size(tuple(outer)), frame_count("frames", samples, length, hop), length)
    steps = (samples, hop, 1)
    emit_strided_copy(emitter, emitter.operand(0), target, x.dtype, dims, steps, strides(dims))


@op(
    infer=_infer,
    **copied_by(_lower),
    internal=True,
    samples=lambda: (
        Sample(((3, 20),), {"length": 8, "hop": 4}),
        Sample(((2, 2, 17),), {"length": 6, "hop": 5}),
        Sample(((5,),), {"length": 2, "hop": 3}),
        Sample(((1, 1),), {"length": 1, "hop": 1}),
        Sample(((0, 9),), {"length": 4, "hop": 2}),
    ),
)
def frames(x: Array, length: int, hop: int) -> Array:
    """Frames of the last axis: ``[..., samples]`` to ``[..., (samples - length) // hop + 1, length]``."""
    return framed(x, length, hop)


# --- transforms of tapered frames ------------------------------------------------------------------------


def _infer_spectra(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    *outer, samples = types[0].shape
    if len(types[1].shape) != 1:
        raise ShapeError("[frame_spectra] taper", got=types[1].shape, expected="[length]")
    length = types[1].shape[0]
    count = frame_count("frame_spectra", samples, length, attrs["hop"])
    return TensorType(
        (*outer, count, (1 if attrs["power"] else 2) * (length // 2 + 1)), types[0].dtype
    )


_POWER = (
    ("mul", (0, 0), DType.F32, None),
    ("mul", (1, 1), DType.F32, None),
    ("add", (2, 3), DType.F32, None),
)


def _lower_spectra_webgpu(node: Node, emitter: Emitter) -> None:
    n, samples = pinned(node.inputs[1].shape[0]), node.inputs[0].shape[-1]
    rows, each, count = size(node.shape[:-1]), 2 - n % 2, node.shape[-2]
    length = n // each
    if plan(length) is not None:
        real = SampleRows(each, samples, count, node.attrs["hop"], emitter.operand(1))
        exit = replace(one_sided(emitter, real, n, 1.0), power=bool(node.attrs["power"]))
        problem = FftProblem(rows, length, emitter.limits)
        if emit_tiles(
            emitter, emitter.operand(0), emitter.result(), problem, PointReader(real=real), exit
        ):
            return
    cut, tapered = (emitter.temp(TensorType((rows, n), DType.F32)) for _ in range(2))
    _emit_frames(emitter, cut, node.inputs[0].type, n, node.attrs["hop"])
    times = (("mul", (0, 1), DType.F32, None),)
    emitter.elementwise(times, [cut, emitter.operand(1)], tapered, ((rows, n), (n,)))
    if not node.attrs["power"]:
        emit_rfft(emitter, tapered, emitter.result(), rows, n, 1.0)
        return
    bins = n // 2 + 1
    spectra = emitter.temp(TensorType((rows, 2 * bins), DType.F32))
    parts = [emitter.temp(TensorType((rows, bins), DType.F32)) for _ in range(2)]
    emit_rfft(emitter, tapered, spectra, rows, n, 1.0)
    for i, part in enumerate(parts):
        dims, steps = (rows, bins), (2 * bins, 1)
        emit_strided_copy(emitter, spectra, part, DType.F32, dims, steps, (bins, 1), i * bins)
    emitter.elementwise(_POWER, parts, emitter.result(), ((rows, bins),) * 2)


def _lower_spectra_cpu(node: Node, emitter: Emitter) -> None:
    n, samples = pinned(node.inputs[1].shape[0]), node.inputs[0].shape[-1]
    emit_rows(
        emitter,
        emitter.operand(0),
        emitter.result(),
        node.dtype,
        (size(node.shape[:-1]), n, 1.0),
        (node.shape[-2], samples, node.attrs["hop"]),
        emitter.operand(1),
        node.attrs["power"],
    )


@op(
    infer=_infer_spectra,
    flops=lambda node: (
        2.5 * size(node.shape) * max(1.0, np.log2(estimated(node.inputs[1].shape[0])))
    ),
    cpu=Kernels(("rfft",), _lower_spectra_cpu),
    webgpu=Kernels((*KERNELS, "rfft_pack", "rfft_unpack", "strided_copy"), _lower_spectra_webgpu),
    dtypes=FLOAT_KERNELS,
    bound=lambda node: (1 + node.attrs["power"]) * error_bound(node.inputs[1].shape[0], node.dtype),
    internal=True,
    samples=lambda: tuple(
        Sample(((*outer, samples), (n,)), {"hop": hop, "power": power})
        for outer, samples, n, hop, powers in (
            ((3,), 300, 64, 32, (False, True)),
            ((2, 2), 101, 30, 7, (False, True)),
            ((2,), 64, 15, 4, (False, True)),
            ((2,), 1000, 400, 160, (False, True)),
            ((1,), 90, 38, 13, (False, True)),
            ((2,), 20000, 16384, 1000, (False,)),
            ((1,), 1, 1, 1, (False,)),
            ((0,), 16, 8, 4, (False, True)),
        )
        for power in powers
    ),
)
def frame_spectra(x: Array, taper: Array, hop: int, power: bool = False) -> Array:
    """One-sided transforms of tapered frames: what ``rlx.signal.stft`` without ``center`` computes.

    Returns:
        ``[..., frames, 2 (length // 2 + 1)]`` in block layout, or half as many powers.
    """
    z = np.fft.rfft(framed(x, len(taper), hop) * taper)
    if power:
        return np.asarray(z.real**2 + z.imag**2)
    return np.concatenate([z.real, z.imag], -1)
