"""Signals to the strongest bins of their Welch spectra, each sample read once: the ``frame_peaks`` record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import estimated, size
from rlx.ir.variants import DEFAULTS
from rlx.ops.declare import op
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.spectra.fft_tiles import Tile, radices_of, tile, twiddles
from rlx.ops.spectra.frames import frame_count, framed
from rlx.sizes import pinned

# Longest frame that fits into a workgroup under WebGPU's default limits.
MAX_SAMPLES = 2048
MAX_PEAKS = 64
# Threads of a workgroup that makes several short transforms.
LANES = 32
_F32 = frozenset({DType.F32})


def takes(length: int, k: int) -> bool:
    """Returns whether there is a kernel for frames of this length and so many peaks."""
    return 2 <= length <= MAX_SAMPLES and k <= MAX_PEAKS and radices_of(pinned(length)) is not None


def _infer(
    types: Sequence[TensorType], attrs: dict[str, Any]
) -> TensorType | tuple[TensorType, ...]:
    x, taper, weights = (type.shape for type in types)
    k, length = int(attrs["k"]), taper[0]
    frame_count("frame_peaks", x[-1], length, attrs["hop"])
    if weights != (length // 2 + 1,) or not 1 <= k <= weights[0] or not takes(length, k):
        raise ShapeError("[frame_peaks] operands", got=f"{types}, {attrs}")
    signals = size(x[:-1])
    if attrs["pairs"]:
        return TensorType((signals, 2 * k), DType.F32)
    return TensorType((signals, k), DType.F32), TensorType((signals, k), DType.I32)


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    g = Graph("frame_peaks")
    operands = zip(("x", "taper", "weights"), node.inputs, strict=True)
    x, taper, weights = (g.input(name, item.shape, item.dtype) for name, item in operands)
    k, length = node.attrs["k"], taper.shape[0]
    cut = g.add_node("frames", [x], {"length": length, "hop": node.attrs["hop"]})
    segments = cut.shape[-2]
    if node.attrs["centred"]:
        cut = cut - g.add_node("mean", [cut], {"axes": (-1,), "keepdims": True})
    spec = g.add_node("rfft", [cut * taper], {"norm": "backward"})
    flat = g.add_node("reshape", [spec], {"shape": (-1, spec.shape[-1])})
    both = g.add_node("spectrum_peaks", [flat, weights], {"k": k, "n_segments": segments})
    results = [g.add_node(PART, [both], {"index": i}) for i in range(2)]
    if node.attrs["pairs"]:
        places = g.add_node("cast", [results[1]], {"dtype": DType.F32})
        each = (
            g.add_node("reshape", [item], {"shape": (-1, k, 1)}) for item in (places, results[0])
        )
        results = [g.add_node("concat", list(each), {"axis": -1})]
    g.set_outputs(results)
    output = emitter.inline(g, [emitter.operand(i) for i in range(3)])
    for value, result, type in zip(output, emitter.results(), node.types, strict=True):
        emit_strided_copy(emitter, value, result, type.dtype, (type.size,), (1,), (1,))


def _workgroup(length: int, segments: int, k: int, emitter: Emitter) -> tuple[Tile, int, int]:
    """The transforms of a workgroup, the bins that each thread looks at, and the bins that are compared."""
    have = {**DEFAULTS, **emitter.limits}
    memory = have["max-compute-workgroup-storage-size"]
    limit = min(256, have["max-compute-invocations-per-workgroup"])
    # Two real segments make one complex transform.
    single = tile(length, 1, emitter.limits)
    assert single is not None, "the record takes only lengths that fit"
    for count in range(max(1, min(-(-segments // 2), min(LANES, limit) // single.threads)), 0, -1):
        several = tile(length, count, emitter.limits)
        result = replace(single if several is None else several, count=count)
        threads = count * result.threads
        each = -(-(length // 2 + 1) // threads)
        retained = min(k, threads) * each
        if result.storage + 12 * threads + 8 * retained + 8 <= memory:
            break
    else:
        # Real and imaginary parts go through workgroup memory one after the other, which takes half as much.
        result = replace(result, split=True, row=length, skews=(0,) * len(result.skews))
    return result, each, retained


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    samples, (length,) = node.inputs[0].shape[-1], node.inputs[1].shape
    hop, k = node.attrs["hop"], node.attrs["k"]
    segments = frame_count("frame_peaks", samples, length, hop)
    result, each, retained = _workgroup(length, segments, k, emitter)
    roots = emitter.table(twiddles(length, result.radices))
    params = {
        **result.params(),
        "samples": samples,
        "hop": hop,
        "segments": segments,
        "bins": length // 2 + 1,
        "k": k,
        "centred": int(node.attrs["centred"]),
        "apart": int(not node.attrs["pairs"]),
        "each_bins": each,
        "kept": retained,
    }
    inputs = [emitter.operand(0), roots, emitter.operand(1), emitter.operand(2)]
    emitter.call("frame_peaks", inputs, emitter.results(), params, node.shape[0])


def _flops(node: Node) -> float:
    samples, length = node.inputs[0].shape[-1], node.inputs[1].shape[0]
    rows = size(node.inputs[0].shape[:-1])
    rows *= frame_count("frame_peaks", samples, length, node.attrs["hop"])
    return rows * length * (2.5 * max(1.0, math.log2(estimated(length))) + 4.0)


@op(
    infer=_infer,
    flops=_flops,
    cpu=Kernels(("strided_copy", "rfft", "welch_peaks"), _lower_cpu),
    webgpu=Kernels(("frame_peaks",), _lower_webgpu),
    dtypes=_F32,
    internal=True,
    samples=lambda: tuple(
        Sample(((*outer, samples), (n,), (n // 2 + 1,)),
               {"hop": hop, "centred": centred, "k": k, "pairs": pairs}, low=(-2.0, 0.1, 0.1))
        for outer, samples, n, hop, centred, k, pairs in (
            ((5,), 1152, 256, 128, True, 16, True),
            ((5,), 1152, 256, 128, False, 16, False),
            ((2, 2), 700, 100, 33, True, 9, False),
            ((3,), 64, 64, 1, True, 33, True),
            ((2,), 6000, 2048, 500, True, 20, False),
            ((2,), 3000, 1000, 500, True, 64, True),
            ((2,), 300, 15, 7, False, 3, False),
            ((1,), 2, 2, 1, False, 1, True),
            ((0,), 64, 16, 8, True, 2, True),
        )
    ),
)  # fmt: skip
def frame_peaks(
    x: Array, taper: Array, weights: Array, hop: int, centred: bool, k: int, pairs: bool
) -> Any:
    """The k strongest bins of Welch's averaged periodogram of signals (Welch 1967).

    Args:
        x: f32 ``[..., samples]``.
        taper: f32 ``[length]``, what the samples of a segment are multiplied by.
        weights: f32 ``[length // 2 + 1]``, what the powers are multiplied by.
        hop: Samples from one segment to the next.
        centred: Whether each segment's mean is taken off it first.
        k: Bins kept.
        pairs: Whether the result is one of (bin, power) pairs.

    Returns:
        f32 ``[signals, 2 k]`` of pairs, else (values, indices), f32 and i32 ``[signals, k]``: powers
        averaged over the segments in descending order, ties to the lower bin, NaN last.
    """
    cut = framed(x.reshape(-1, x.shape[-1]), len(taper), hop)
    if centred:
        cut = cut - cut.mean(-1, keepdims=True)
    z = np.fft.rfft(cut * taper)
    power = (z.real**2 + z.imag**2).mean(1) * weights
    order = np.argsort(-power, axis=1, kind="stable")[:, :k]
    result = np.take_along_axis(power, order, 1)
    return np.stack([order, result], -1).reshape(len(power), 2 * k) if pairs else (result, order)
