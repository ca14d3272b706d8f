"""Spectra to their strongest bins: Welch's periodogram and the choice from it, in one pass."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import op

_WORKGROUP = 256
# Bins that one workgroup ranks: powers take 8 KiB, and an invocation stays far below the 65,535 loop
# iterations after which lavapipe (Mesa 22.3) silently ends a loop.
_FUSED_BINS = 2048
_F32 = frozenset({DType.F32})


def _infer_welch(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    k, segments = operator.index(attrs["k"]), operator.index(attrs["n_segments"])

    def fail(what: str, got: object, expected: str) -> ShapeError:
        return ShapeError(f"[welch_peaks] {what}", got=got, expected=expected)

    if len(shape) != 2 or shape[1] % 2 or shape[1] == 0:
        raise fail("not a spectrum in block layout", shape, "[outer, 2 * n_fft]")
    if segments < 1 or shape[0] % segments:
        raise fail(
            "rows do not divide into segments",
            f"{shape[0]} rows, n_segments {segments}",
            "n_segments >= 1 dividing the rows",
        )
    bins = shape[1] // 4 + 1
    if not 1 <= k <= bins:
        raise fail("k out of range", k, f"1 to {bins} (n_fft // 2 + 1 bins)")
    attrs.update(k=k, n_segments=segments)
    return TensorType((shape[0] // segments, 2 * k), DType.F32)


def _welch_params(node: Node) -> dict[str, Any]:
    apart = node.op != "welch_peaks"
    n_fft = node.inputs[0].shape[1] // 2
    return {
        "signals": node.shape[0],
        "segments": node.attrs["n_segments"],
        "n_fft": n_fft,
        "bins": node.inputs[1].shape[0] if apart else n_fft // 2 + 1,
        "k": node.attrs["k"],
        "apart": int(apart),
    }


def _lower_welch_cpu(node: Node, emitter: Emitter) -> None:
    params = _welch_params(node)
    inputs = [emitter.operand(i) for i in range(len(node.inputs))]
    kernel = "weighted_peaks" if params.pop("apart") else "welch_peaks"
    emitter.call(kernel, inputs, emitter.results(), params)


def _lower_welch_webgpu(node: Node, emitter: Emitter) -> None:
    params = _welch_params(node)
    signals, bins = params["signals"], params["bins"]
    inputs = [emitter.operand(i) for i in range(len(node.inputs))]
    if bins <= _FUSED_BINS:
        emitter.call("welch_peaks", inputs, emitter.results(), params, signals)
        return
    power = emitter.temp(TensorType((signals, bins), DType.F32))
    groups = math.ceil(signals * bins / _WORKGROUP)
    emitter.call("welch_power", inputs, [power], params, groups)
    emitter.call("welch_rank", [power], emitter.results(), params, groups)


_WELCH_CPU = Kernels(("welch_peaks", "weighted_peaks"), _lower_welch_cpu)
_WELCH_WEBGPU = Kernels(("welch_peaks", "welch_power", "welch_rank"), _lower_welch_webgpu)


@op(
    infer=_infer_welch,
    flops=lambda node: 4.0 * size(node.inputs[0].shape) / 4 + 8.0 * size(node.shape),
    cpu=_WELCH_CPU,
    webgpu=_WELCH_WEBGPU,
    dtypes=_F32,
    samples=lambda: (
        Sample(((4, 512),), {"k": 16, "n_segments": 2}),
        Sample(((6, 20),), {"k": 6, "n_segments": 3}),
        Sample(((1, 2),), {"k": 1, "n_segments": 1}),
        Sample(((3, 6),), {"k": 2, "n_segments": 1}),
        Sample(((0, 16),), {"k": 2, "n_segments": 2}),
        Sample(((2, 20000),), {"k": 7, "n_segments": 1}),
        # Equal powers: the lower bin comes first.
        Sample(((1, 32),), {"k": 9, "n_segments": 1}, values=(np.ones((1, 32), np.float32),)),
        Sample(((2, 2048),), {"k": 40, "n_segments": 2}),
        Sample(((1, 2048),), {"k": 9, "n_segments": 1}, values=(np.ones((1, 2048), np.float32),)),
        Sample(((512, 512),), {"k": 16, "n_segments": 8}, bench=True),
    ),
)
def welch_peaks(spec: Array, k: int, n_segments: int) -> Array:
    """The k strongest bins of Welch's averaged periodogram (Welch 1967).

    Args:
        spec: f32 ``[outer, 2 * n_fft]``, spectra in block layout; ``n_segments`` consecutive rows
            are the segments of one signal.
        k: Bins kept, at most ``n_fft // 2 + 1``.
        n_segments: Segments per signal; divides ``outer``.

    Returns:
        f32 ``[outer / n_segments, 2 * k]``: (bin, power) pairs, power descending, ties to the lower
        bin. Power is the mean over the segments of w * (re^2 + im^2), w = 1 for the first and the
        last bin and 2 between (one-sided).
    """
    weight = np.full(spec.shape[1] // 4 + 1, 2.0)
    weight[[0, -1]] = 1.0
    powers, order = spectrum_peaks.reference(spec, weight, k, n_segments)
    return np.stack([order, powers], -1).reshape(len(powers), 2 * k)


def _infer_peaks(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    (rows, width), (bins,), k = types[0].shape, types[1].shape, int(attrs["k"])
    segments = attrs["n_segments"]
    if segments < 1 or rows % segments or not 1 <= k <= bins or 2 * bins > width or width % 2:
        raise ShapeError("[spectrum_peaks] operands", got=f"{types}, {attrs}")
    result = (rows // segments, k)
    return TensorType(result, DType.F32), TensorType(result, DType.I32)


@op(
    infer=_infer_peaks,
    flops=lambda node: 4.0 * size(node.inputs[0].shape) / 4 + 8.0 * size(node.shape),
    cpu=_WELCH_CPU,
    webgpu=_WELCH_WEBGPU,
    dtypes=_F32,
    internal=True,
    samples=lambda: (
        Sample(((6, 22), (11,)), {"k": 6, "n_segments": 3}, low=0.1),
        Sample(((4, 512), (129,)), {"k": 16, "n_segments": 2}, low=0.1),
        Sample(((1, 2), (1,)), {"k": 1, "n_segments": 1}, low=0.1),
        Sample(((0, 18), (9,)), {"k": 2, "n_segments": 2}),
        Sample(((6, 1026), (513,)), {"k": 16, "n_segments": 3}),
        Sample(((2, 10002), (5001,)), {"k": 7, "n_segments": 1}, low=0.1),
    ),
)
def spectrum_peaks(spec: Array, weights: Array, k: int, n_segments: int) -> Any:
    """The k strongest bins of averaged powers, and where they are: what ``welch_peaks`` is a case of.

    Args:
        spec: f32 ``[outer, 2 * block]``: real parts, then imaginary ones. The bins are the first ones
            of each.
        weights: f32 ``[bins]``; ``bins <= block``.
        k: Bins kept.
        n_segments: Consecutive rows that are averaged.

    Returns:
        (values, indices): f32 and i32 ``[outer / n_segments, k]``, weighted powers in descending
        order, ties to the lower bin, NaN last.
    """
    bins, block = len(weights), spec.shape[1] // 2
    power = weights * (spec[:, :bins] ** 2 + spec[:, block : block + bins] ** 2)
    power = power.reshape(len(spec) // n_segments, n_segments, bins).mean(1)
    order = np.argsort(-power, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(power, order, 1), order
