"""Spectra to features: Welch's strongest bins, the log-mel spectrogram and its gradient."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.record import WEBGPU_FLOATS, op

_WORKGROUP = 256
# Bins that one workgroup ranks: powers take 8 KiB, and an invocation stays far below the 65,535 loop
# iterations after which lavapipe (Mesa 22.3) silently leaves a loop.
_FUSED_BINS = 2048
_F32 = frozenset({DType.F32})


def _infer_welch(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    k, segments = operator.index(attrs["k"]), operator.index(attrs["n_segments"])

    def fail(what: str, got: object, expected: str) -> ShapeError:
        return ShapeError(describe(f"[welch_peaks] {what}", got=got, expected=expected))

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
    n_fft = node.inputs[0].shape[1] // 2
    return {
        "signals": node.shape[0],
        "segments": node.attrs["n_segments"],
        "n_fft": n_fft,
        "bins": n_fft // 2 + 1,
        "k": node.attrs["k"],
    }


def _lower_welch_cpu(node: Node, emitter: Emitter) -> None:
    params = _welch_params(node)
    if params["signals"]:
        # The powers of one signal, then 64-bit keys that sort by power and bin.
        scratch = emitter.temp(TensorType((3 * params["bins"] + 1,), DType.F32))
        emitter.call("welch_peaks", [emitter.operand(0)], [emitter.result(), scratch], params)


def _lower_welch_webgpu(node: Node, emitter: Emitter) -> None:
    params = _welch_params(node)
    signals, bins = params["signals"], params["bins"]
    if signals == 0:
        return
    spec, result = emitter.operand(0), emitter.result()
    if bins <= _FUSED_BINS:
        emitter.call("welch_peaks", [spec], [result], params, signals)
        return
    power = emitter.temp(TensorType((signals, bins), DType.F32))
    groups = math.ceil(signals * bins / _WORKGROUP)
    emitter.call("welch_power", [spec], [power], params, groups)
    emitter.call("welch_rank", [power], [result], params, groups)


@op(
    infer=_infer_welch,
    flops=lambda node: 4.0 * size(node.inputs[0].shape) / 4 + 8.0 * size(node.shape),
    cpu=Kernels(("welch_peaks",), _lower_welch_cpu),
    webgpu=Kernels(("welch_peaks", "welch_power", "welch_rank"), _lower_welch_webgpu),
    dtypes=_F32,
    webgpu_dtypes=WEBGPU_FLOATS,
    samples=(
        Sample(((4, 512),), {"k": 16, "n_segments": 2}),
        Sample(((6, 20),), {"k": 6, "n_segments": 3}),
        Sample(((1, 2),), {"k": 1, "n_segments": 1}),
        Sample(((3, 6),), {"k": 2, "n_segments": 1}),
        Sample(((0, 16),), {"k": 2, "n_segments": 2}),
        Sample(((2, 20000),), {"k": 7, "n_segments": 1}),
        # Equal powers: the lower bin comes first.
        Sample(((1, 32),), {"k": 9, "n_segments": 1}, values=(np.ones((1, 32), np.float32),)),
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
    n_fft = spec.shape[1] // 2
    bins = n_fft // 2 + 1
    weight = np.full(bins, 2.0)
    weight[[0, -1]] = 1.0
    power = weight * (spec[:, :bins] ** 2 + spec[:, n_fft : n_fft + bins] ** 2)
    power = power.reshape(-1, n_segments, bins).mean(1)
    order = np.argsort(-power, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(power, order, 1)
    return np.stack([order, found], -1).reshape(len(power), 2 * k)


def _infer_log_mel(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    return _mel_type("log_mel", types, attrs)


def _mel_type(name: str, types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    spec, filters = types[0].shape, types[1].shape
    if attrs["floor_axes"] not in ("last", "all"):
        raise GraphError(
            describe(f"[{name}] floor_axes", got=attrs["floor_axes"], expected="'last' or 'all'")
        )
    if not spec or spec[-1] % 2 or spec[-1] == 0 or len(filters) != 2:
        raise ShapeError(
            describe(
                f"[{name}] not a spectrum and filters",
                got=f"{spec} and {filters}",
                expected="[..., 2 * n_fft] and [n_mels, n_fft // 2 + 1]",
            )
        )
    bins = spec[-1] // 4 + 1
    if filters[1] != bins or filters[0] < 1:
        raise ShapeError(
            describe(f"[{name}] filters do not fit", got=filters, expected=f"[n_mels, {bins}]")
        )
    return TensorType((*spec[:-1], filters[0]), DType.F32)


def _log_mel_params(node: Node) -> dict[str, Any]:
    n_fft = node.inputs[0].shape[-1] // 2
    return {
        "rows": size(node.shape[:-1]),
        "n_fft": n_fft,
        "bins": n_fft // 2 + 1,
        "mels": node.inputs[1].shape[0],
        "floor_all": int(node.attrs["floor_axes"] == "all"),
    }


def _lower_log_mel_cpu(node: Node, emitter: Emitter) -> None:
    params = _log_mel_params(node)
    if params["rows"]:
        scratch = emitter.temp(TensorType((params["bins"],), DType.F32))
        inputs = [emitter.operand(0), emitter.operand(1)]
        emitter.call("log_mel", inputs, [emitter.result(), scratch], params)


def _lower_log_mel_webgpu(node: Node, emitter: Emitter) -> None:
    params = _log_mel_params(node)
    rows, mels, everywhere = params["rows"], params["mels"], params["floor_all"]
    if rows == 0:
        return
    inputs, result = [emitter.operand(0), emitter.operand(1)], emitter.result()
    raw = emitter.temp(node.type) if everywhere else result
    emitter.call("log_mel", inputs, [raw], {**params, "linear": 0}, rows)
    if everywhere:
        top = emitter.temp(TensorType((1,), DType.F32))
        whole = {"outer": 1, "n": rows * mels, "inner": 1, "kind": "max"}
        emitter.call("reduce", [raw], [top], whole, 1)
        emitter.call(
            "log_mel_floor",
            [raw, top],
            [result],
            {"total": rows * mels},
            math.ceil(rows * mels / _WORKGROUP),
        )


@op(
    infer=_infer_log_mel,
    flops=lambda node: size(node.shape) * (2.0 * (node.inputs[1].shape[1]) + 10),
    cpu=Kernels(("log_mel",), _lower_log_mel_cpu),
    webgpu=Kernels(("log_mel", "reduce", "log_mel_floor"), _lower_log_mel_webgpu),
    dtypes=_F32,
    webgpu_dtypes=WEBGPU_FLOATS,
    samples=(
        Sample(((3, 16), (4, 5)), low=0.0),
        Sample(((2, 3, 16), (4, 5)), {"floor_axes": "all"}, low=0.0),
        Sample(((1, 2), (1, 1)), low=0.0),
        Sample(((0, 16), (4, 5)), low=0.0),
        Sample(((5, 800), (300, 201)), low=0.0),
        Sample(((2, 10000), (7, 2501)), low=0.0),
        # Silence in one frame, loud in the other: the clamp and the floor decide.
        Sample(
            ((2, 16), (4, 5)),
            {"floor_axes": "all"},
            values=(
                np.repeat(np.array([[0], [1000]], np.float32), 16, 1),
                np.eye(4, 5, dtype=np.float32),
            ),
        ),
        Sample(((98, 800), (80, 201)), low=0.0, bench=True),
    ),
)
def log_mel(spec: Array, filters: Array, floor_axes: str = "last") -> Array:
    """Log-mel features of spectra, as speech models take them (Radford et al. 2022, appendix).

    Args:
        spec: f32 ``[..., 2 * n_fft]`` in block layout.
        filters: f32 ``[n_mels, n_fft // 2 + 1]``.
        floor_axes: Where the maximum for the floor is taken: "last" per frame, "all" over everything.

    Returns:
        f32 ``[..., n_mels]``: (max(L, max(L) - 8) + 4) / 4 with L = log10(max(filters @ power, 1e-10)).
    """
    n_fft = spec.shape[-1] // 2
    bins = n_fft // 2 + 1
    power = spec[..., :bins] ** 2 + spec[..., n_fft : n_fft + bins] ** 2
    level = np.log10(np.maximum(power @ filters.T, 1e-10))
    axes = None if floor_axes == "all" else -1
    floor = np.max(level, axis=axes, keepdims=True, initial=-np.inf) - 8.0
    return (np.maximum(level, floor) + 4.0) / 4.0


def _infer_log_mel_backward(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    result = _mel_type("log_mel_backward", types, attrs)
    if types[2].shape != result.shape:
        raise ShapeError(
            describe("[log_mel_backward] dy", got=types[2].shape, expected=result.shape)
        )
    return types[0]


def _lower_log_mel_backward_cpu(node: Node, emitter: Emitter) -> None:
    params = _log_mel_params(node)
    if params["rows"]:
        inputs = [emitter.operand(index) for index in range(3)]
        # The mels of every row, then the powers of one.
        scratch = emitter.temp(
            TensorType((params["rows"] * params["mels"] + params["bins"],), DType.F32)
        )
        emitter.call("log_mel_backward", inputs, [emitter.result(), scratch], params)


def _lower_log_mel_backward_webgpu(node: Node, emitter: Emitter) -> None:
    params = _log_mel_params(node)
    rows, mels, everywhere = params["rows"], params["mels"], params["floor_all"]
    if rows == 0:
        return
    spec, filters, dy = (emitter.operand(index) for index in range(3))
    mel = emitter.temp(TensorType((rows, mels), DType.F32))
    tops = 1 if everywhere else rows
    top = emitter.temp(TensorType((tops,), DType.F32))
    emitter.call("log_mel", [spec, filters], [mel], {**params, "linear": 1}, rows)
    whole = {"outer": tops, "n": rows * mels // tops, "inner": 1, "kind": "max"}
    emitter.call("reduce", [mel], [top], whole, tops)
    inputs = [spec, filters, dy, mel, top]
    emitter.call("log_mel_backward", inputs, [emitter.result()], params, rows)


@op(
    infer=_infer_log_mel_backward,
    flops=lambda node: (
        4.0 * size(node.inputs[2].shape) * node.inputs[1].shape[1] + 4.0 * size(node.shape)
    ),
    cpu=Kernels(("log_mel_backward",), _lower_log_mel_backward_cpu),
    webgpu=Kernels(("log_mel", "reduce", "log_mel_backward"), _lower_log_mel_backward_webgpu),
    dtypes=_F32,
    webgpu_dtypes=WEBGPU_FLOATS,
    samples=(
        Sample(((3, 16), (4, 5), (3, 4)), low=(-2.0, 0.0, -2.0)),
        Sample(((2, 3, 16), (4, 5), (2, 3, 4)), {"floor_axes": "all"}, low=(-2.0, 0.0, -2.0)),
        Sample(((1, 2), (1, 1), (1, 1)), low=(0.5, 0.1, -2.0)),
        Sample(((0, 16), (4, 5), (0, 4))),
        Sample(((5, 800), (300, 201), (5, 300)), low=(-2.0, 0.0, -2.0)),
        Sample(((2, 10000), (7, 2501), (2, 7)), low=(-2.0, 0.0, -2.0)),
        Sample(((3, 14), (4, 4), (3, 4)), low=(-2.0, 0.0, -2.0)),
        # Silence in one frame, loud in the other: the clamp and the floor decide.
        *(
            Sample(
                ((2, 16), (4, 5), (2, 4)),
                {"floor_axes": axes},
                values=(
                    np.repeat(np.array([[1e-3], [1000]], np.float32), 16, 1)
                    * np.array([1, 1, 1e-6, 0] * 4, np.float32),
                    np.eye(4, 5, dtype=np.float32),
                    np.ones((2, 4), np.float32),
                ),
            )
            for axes in ("last", "all")
        ),
        Sample(((98, 800), (80, 201), (98, 80)), low=(-2.0, 0.0, -2.0), bench=True),
    ),
)
def log_mel_backward(spec: Array, filters: Array, dy: Array, floor_axes: str = "last") -> Array:
    """Gradient of ``log_mel`` with respect to the spectrum, the maximum held constant.

    Args:
        spec: f32 ``[..., 2 * n_fft]`` in block layout.
        filters: f32 ``[n_mels, n_fft // 2 + 1]``.
        dy: f32 ``[..., n_mels]``, gradient of the result of ``log_mel``.
        floor_axes: As for ``log_mel``.

    Returns:
        f32 like ``spec``. With m = filters @ power, dm = dy / (4 ln(10) m), and 0 where the clamp or
        the floor decided; d re = 2 re (dm @ filters), d im the same; 0 in the upper bins.
    """
    n_fft = spec.shape[-1] // 2
    bins = n_fft // 2 + 1
    re, im = spec[..., :bins], spec[..., n_fft : n_fft + bins]
    m = (re**2 + im**2) @ filters.T
    top = np.max(m, axis=None if floor_axes == "all" else -1, keepdims=True, initial=0.0)
    # In powers instead of levels: log10(m) <= log10(top) - 8, or m below the clamp.
    decided = m <= np.maximum(1e-8 * top, 1e-10)
    dpower = np.where(decided, 0.0, dy / (4 * math.log(10) * m)) @ filters
    result = np.zeros_like(spec)
    result[..., :bins] = 2 * re * dpower
    result[..., n_fft : n_fft + bins] = 2 * im * dpower
    return result
