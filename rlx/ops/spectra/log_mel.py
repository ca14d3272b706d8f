"""Spectra to features: the log-mel spectrogram and its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import one_call, op
from rlx.ops.rows.reduce_rows import emit_pieces, emit_reduce

_WORKGROUP = 256
_MANY_FRAMES = 64
_F32 = frozenset({DType.F32})


def _levels(power: Array, filters: Array, floor_axes: str) -> Array:
    level = np.log10(np.maximum(power @ filters.T, 1e-10))
    axes = None if floor_axes == "all" else -1
    floor = np.max(level, axis=axes, keepdims=True, initial=-np.inf) - 8.0
    return (np.maximum(level, floor) + 4.0) / 4.0


def _check_floor(name: str, axes: Any) -> None:
    if axes not in ("last", "all"):
        raise GraphError(f"[{name}] floor_axes", got=axes, expected="'last' or 'all'")


def _mel_type(name: str, types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    spec, filters = types[0].shape, types[1].shape
    _check_floor(name, attrs["floor_axes"])
    if not spec or spec[-1] % 2 or spec[-1] == 0 or len(filters) != 2:
        raise ShapeError(
            f"[{name}] not a spectrum and filters",
            got=f"{spec} and {filters}",
            expected="[..., 2 * n_fft] and [n_mels, n_fft // 2 + 1]",
        )
    bins = spec[-1] // 4 + 1
    if filters[1] != bins or filters[0] < 1:
        raise ShapeError(f"[{name}] filters do not fit", got=filters, expected=f"[n_mels, {bins}]")
    return TensorType((*spec[:-1], filters[0]), DType.F32)


def _log_mel_params(node: Node) -> dict[str, Any]:
    return {
        "rows": size(node.inputs[0].shape[:-1]),
        "n_fft": node.inputs[0].shape[-1] // 2,
        "bins": node.inputs[1].shape[1],
        "mels": node.inputs[1].shape[0],
        "floor_all": int(node.attrs["floor_axes"] == "all"),
    }


def _lower_log_mel_cpu(node: Node, emitter: Emitter) -> None:
    params = _log_mel_params(node)
    everywhere, rows, mels = params.pop("floor_all"), params["rows"], params["mels"]
    inputs, result = [emitter.operand(0), emitter.operand(1)], emitter.result()
    # The largest of all rows is known when all of them are there.
    raw = emitter.temp(TensorType((rows * mels,), DType.F32)) if everywhere else result
    emitter.call("log_mel", inputs, [raw], {**params, "floor": int(not everywhere)})
    if everywhere:
        top = emitter.temp(TensorType((1,), DType.F32))
        emit_pieces(emitter, "max", raw, top, (1, rows * mels, 1), DType.F32)
        emitter.elementwise(_FLOOR, [raw, top], result, (node.shape, ()))


def _call_log_mel(
    emitter: Emitter, inputs: list[Any], result: Any, params: dict[str, Any], linear: int
) -> None:
    rows = params["rows"]
    # Frames of one workgroup share the filters that it reads; few frames spread over the device.
    frames = 4 if rows >= _MANY_FRAMES else 1
    more = {"linear": linear, "frames": frames}
    emitter.call("log_mel", inputs, [result], {**params, **more}, math.ceil(rows / frames))


def _lower_log_mel_webgpu(node: Node, emitter: Emitter) -> None:
    params = _log_mel_params(node)
    rows, mels, everywhere = params["rows"], params["mels"], params["floor_all"]
    inputs, result = [emitter.operand(0), emitter.operand(1)], emitter.result()
    raw = emitter.temp(node.type) if everywhere else result
    _call_log_mel(emitter, inputs, raw, params, linear=0)
    if everywhere:
        top = emitter.temp(TensorType((1,), DType.F32))
        emit_reduce(emitter, "max", raw, top, (1, rows * mels, 1))
        emitter.call(
            "log_mel_floor",
            [raw, top],
            [result],
            {"total": rows * mels},
            math.ceil(rows * mels / _WORKGROUP),
        )


# Operands: levels, and the largest of them.
_FLOOR = (
    ("literal", (), DType.F32, 8.0),
    ("sub", (1, 2), DType.F32, None),
    ("maximum", (0, 3), DType.F32, None),
    ("literal", (), DType.F32, 4.0),
    ("add", (4, 5), DType.F32, None),
    ("literal", (), DType.F32, 0.25),
    ("mul", (6, 7), DType.F32, None),
)
_MEL_CPU = Kernels(("log_mel", "reduce_max"), _lower_log_mel_cpu)
_MEL_WEBGPU = Kernels(("log_mel", "reduce", "reduce_tiles", "log_mel_floor"), _lower_log_mel_webgpu)


@op(
    infer=lambda types, attrs: _mel_type("log_mel", types, attrs),
    flops=lambda node: size(node.shape) * (2.0 * (node.inputs[1].shape[1]) + 10),
    cpu=_MEL_CPU,
    webgpu=_MEL_WEBGPU,
    dtypes=_F32,
    samples=lambda: (
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
        Sample(((70, 16), (4, 5)), {"floor_axes": "all"}, low=0.0),
        Sample(((70, 2400), (33, 601)), low=0.0),
        Sample(((98, 800), (80, 201)), low=0.0, bench=True),
    ),
)
def log_mel(spec: Array, filters: Array, floor_axes: Literal["last", "all"] = "last") -> Array:
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
    return _levels(power, filters, floor_axes)


def _infer_mel(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    spec, filters = types[0].shape, types[1].shape
    _check_floor("spectrum_mel", attrs["floor_axes"])
    if len(filters) != 2 or not spec or spec[-1] != 2 * filters[1]:
        raise ShapeError("[spectrum_mel] operands", got=f"{spec}, {filters}")
    return TensorType((*spec[:-1], filters[0]), DType.F32)


@op(
    infer=_infer_mel,
    flops=lambda node: size(node.shape) * (2.0 * (node.inputs[1].shape[1]) + 10),
    cpu=_MEL_CPU,
    webgpu=_MEL_WEBGPU,
    dtypes=_F32,
    internal=True,
    samples=lambda: (
        Sample(((3, 10), (4, 5)), {"floor_axes": "last"}, low=0.0),
        Sample(((2, 35, 10), (4, 5)), {"floor_axes": "all"}, low=0.0),
        Sample(((0, 10), (4, 5)), {"floor_axes": "last"}, low=0.0),
        Sample(((1, 2), (1, 1)), {"floor_axes": "last"}, low=0.0),
        Sample(((98, 402), (80, 201)), {"floor_axes": "last"}, low=0.0),
    ),
)
def spectrum_mel(spec: Array, filters: Array, floor_axes: str = "last") -> Array:
    """``log_mel`` of one-sided spectra, f32 ``[..., 2 * bins]``: real parts, then imaginary ones."""
    bins = filters.shape[1]
    power = spec[..., :bins] ** 2 + spec[..., bins:] ** 2
    return _levels(power, filters, floor_axes)


def _infer_log_mel_backward(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    result = _mel_type("log_mel_backward", types, attrs)
    if types[2].shape != result.shape:
        raise ShapeError("[log_mel_backward] dy", got=types[2].shape, expected=result.shape)
    return types[0]


def _lower_log_mel_backward_webgpu(node: Node, emitter: Emitter) -> None:
    params = _log_mel_params(node)
    rows, mels, everywhere = params["rows"], params["mels"], params["floor_all"]
    spec, filters, dy = (emitter.operand(i) for i in range(3))
    mel = emitter.temp(TensorType((rows, mels), DType.F32))
    tops = 1 if everywhere else rows
    top = emitter.temp(TensorType((tops,), DType.F32))
    _call_log_mel(emitter, [spec, filters], mel, params, linear=1)
    emit_reduce(emitter, "max", mel, top, (tops, rows * mels // tops, 1))
    inputs = [spec, filters, dy, mel, top]
    emitter.call("log_mel_backward", inputs, [emitter.result()], params, rows)


@op(
    infer=_infer_log_mel_backward,
    flops=lambda node: (
        4.0 * size(node.inputs[2].shape) * node.inputs[1].shape[1] + 4.0 * size(node.shape)
    ),
    cpu=one_call("log_mel_backward", _log_mel_params),
    webgpu=Kernels(
        ("log_mel", "reduce", "reduce_tiles", "log_mel_backward"), _lower_log_mel_backward_webgpu
    ),
    dtypes=_F32,
    samples=lambda: (
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
def log_mel_backward(
    spec: Array, filters: Array, dy: Array, floor_axes: Literal["last", "all"] = "last"
) -> Array:
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
