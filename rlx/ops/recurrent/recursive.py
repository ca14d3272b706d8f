"""Recursive filters along the last axis: ``sosfilt`` and ``lfilter``.

Both are a cascade of sections, each y = (b / a) x in transposed direct form II (Oppenheim & Schafer,
Discrete-Time Signal Processing, 6.3): ``sosfilt`` many of order 2, ``lfilter`` one of any order.
Coefficients are attributes: they stay in double precision whatever the signal's dtype is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, InputError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType, ValuesLike
from rlx.ir.shape import Shape, size
from rlx.ops.declare import FLOAT_KERNELS, named_operands, op
from rlx.resource_limits import charge

# A section: its order + 1 coefficients b, then as many a; a[0] is 1.
Section = tuple[float, ...]

_WORKGROUP = 64
# WebGPU filters blocks of one row in parallel, at least this long, and as few that the loops of one invocation
# end before lavapipe (Mesa 22.3) ends them.
_SHORTEST_BLOCK = 256
_ITERATIONS = 50_000
_F32_MOST = 3e38


def _vector(name: str, values: Any) -> Array:
    array = np.atleast_1d(np.asarray(values, np.float64))
    if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise InputError(
            f"[{name}] coefficients", got=values, expected="finite numbers, at least one"
        )
    return array


def _infer_sosfilt(
    types: Sequence[TensorType], attrs: dict[str, Any]
) -> tuple[TensorType, TensorType]:
    sos = np.asarray(attrs["sos"], np.float64)
    if sos.ndim != 2 or sos.shape[1] != 6 or len(sos) < 1 or not np.all(np.isfinite(sos)):
        raise InputError(
            "[sosfilt] sos", got=sos.shape, expected="[sections >= 1, 6], finite numbers"
        )
    if not np.all(sos[:, 3] == 1):
        raise InputError("[sosfilt] sos", got=f"a0 = {sos[:, 3]}", expected="sos[:, 3] all 1")
    attrs["sos"] = tuple(tuple(map(float, row)) for row in sos)
    return _with_state("sosfilt", types, attrs, (len(sos),), 2)


def _infer_lfilter(
    types: Sequence[TensorType], attrs: dict[str, Any]
) -> tuple[TensorType, TensorType]:
    b, a = _vector("lfilter", attrs["b"]), _vector("lfilter", attrs["a"])
    if a[0] == 0:
        raise InputError("[lfilter] a", got=tuple(a), expected="a[0] other than 0")
    taps = max(len(b), len(a))
    for name, values in (("b", b), ("a", a)):
        padded = np.pad(values / a[0], (0, taps - len(values)))
        attrs[name] = tuple(map(float, padded))
    return _with_state("lfilter", types, attrs, (), taps - 1)


def _with_state(
    name: str,
    types: Sequence[TensorType],
    attrs: dict[str, Any],
    sections: tuple[int, ...],
    order: int,
) -> tuple[TensorType, TensorType]:
    x, more = types[0], dict(zip(attrs["present"], types[1:], strict=True))
    if not x.shape:
        raise ShapeError(f"[{name}] x has no axis", got=x.shape)
    state = TensorType((*sections, *x.shape[:-1], order), x.dtype)
    if "zi" in more and more["zi"].shape != state.shape:
        raise ShapeError(f"[{name}] zi", got=more["zi"].shape, expected=state.shape)
    if "count" in more and more["count"].shape != (1,):
        raise ShapeError(f"[{name}] count", got=more["count"].shape, expected="(1,)")
    if "count" in more and more["count"].dtype is not DType.I32:
        raise DTypeError(f"[{name}] count", got=more["count"].dtype, expected="i32")
    return x, state


def _sections(node: Node) -> list[Section]:
    if node.op == "sosfilt":
        return list(node.attrs["sos"])
    return [(*node.attrs["b"], *node.attrs["a"])]


def _cascade(
    x: Array, sections: Sequence[Section], zi: Array | None, count: Array | None = None
) -> tuple[Array, Array]:
    """The specification, rows ``[rows, n]`` and states of ``[sections, rows, order]`` elements."""
    order = len(sections[0]) // 2 - 1
    state = np.zeros((len(sections), len(x), order + 1))
    if zi is not None:
        state[:, :, :order] = zi.reshape(len(sections), len(x), order)
    y = np.array(x)
    end = x.shape[1] if count is None else int(np.clip(count[0], 0, x.shape[1]))
    y[:, end:] = 0
    for i in range(end):
        for z, section in zip(state, sections, strict=True):
            b, a = np.split(np.array(section), 2)
            v = y[:, i].copy()
            y[:, i] = b[0] * v + z[:, 0]
            # The state moves up one place; the last one is followed by 0.
            z[:, :-1] = z[:, 1:] + np.outer(v, b[1:]) - np.outer(y[:, i], a[1:])
    return y, state[:, :, :order]


def _step_power(sections: Sequence[Section], steps: int) -> Array:
    """The matrix that takes the state of all sections past ``steps`` samples of silence."""
    order = len(sections[0]) // 2 - 1
    # The power by repeated squaring: one matrix product per bit of the number of steps.
    charge("[sosfilt] the step of a filter", elements=64 * (len(sections) * order) ** 2)
    units = np.eye(len(sections) * order)
    rows = len(units)
    zi = units.reshape(rows, len(sections), order).transpose(1, 0, 2)
    _, after = _cascade(np.zeros((rows, 1)), sections, zi)
    step = after.transpose(1, 0, 2).reshape(rows, rows).T
    with np.errstate(all="ignore"):
        power = np.linalg.matrix_power(step, steps)
    # The output of a filter that grows this fast overflows anyway.
    return np.nan_to_num(np.clip(power, -_F32_MOST, _F32_MOST))


def _params(node: Node) -> dict[str, Any]:
    sections = _sections(node)
    return {
        "rows": size(node.inputs[0].shape[:-1]),
        "n": node.inputs[0].shape[-1],
        "sections": len(sections),
        "order": len(sections[0]) // 2 - 1,
    }


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    params, sections = _params(node), _sections(node)
    inputs = named_operands(node, emitter, ("x", "zi", "count"))
    flat = tuple(value for section in sections for value in section)
    emitter.call("recursive", inputs, emitter.results(), {**params, "coefficients": flat})


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    sections = _sections(node)
    zi, count = named_operands(node, emitter, ("zi", "count"))
    has_zi = int(zi is not None)
    params = {**_params(node), "has_zi": has_zi, "has_count": int(count is not None)}
    rows, n = params["rows"], params["n"]
    states = params["sections"] * params["order"]
    x = emitter.operand(0)
    # Trips that recursive_carry makes for a block: loops over the states, and inside one of them another.
    per_block = 3 + math.ceil(states / _WORKGROUP) * (states + 3)
    largest = max(1, _ITERATIONS // per_block)
    blocks = min(largest, max(1, n // _SHORTEST_BLOCK)) if states else 1
    length = max(1, math.ceil(n / blocks))
    blocks = max(1, math.ceil(n / length))
    common = {**params, "length": length, "blocks": blocks, "coefficients": tuple(sections)}
    counted = [] if count is None else [count]
    y, zf = emitter.results()
    initial = zi
    if blocks > 1:
        # Three stages: what each block adds to the state, the state before each block, then the filter itself.
        kind = TensorType((rows, blocks, states), DType.F32)
        added, before = emitter.temp(kind), emitter.temp(kind)
        groups = math.ceil(rows * (blocks - 1) / _WORKGROUP)
        emitter.call("recursive", [x, *counted], [added], {**common, "stage": "state"}, groups)
        power = emitter.table(_step_power(sections, length).astype(np.float32))
        carry = {**_params(node), "has_zi": has_zi, "blocks": blocks, "states": states}
        emitter.call("recursive_carry", [added, power, zi], [before], carry, rows)
        initial = before
    groups = math.ceil(rows * blocks / _WORKGROUP)
    # A state of no elements has no memory to bind.
    outputs = [y, zf] if states else [y]
    inputs = [x, initial] if states else [x]
    emitter.call("recursive", [*inputs, *counted], outputs, {**common, "stage": "filter"}, groups)


def _flops(node: Node) -> float:
    sections = _sections(node)
    return (2.0 * len(sections[0]) - 3) * len(sections) * size(node.inputs[0].shape)


_FIELDS: dict[str, Any] = {
    "flops": _flops,
    "cpu": Kernels(("recursive",), _lower_cpu),
    "webgpu": Kernels(("recursive", "recursive_carry"), _lower_webgpu),
    "free": ("count",),
    "dtypes": FLOAT_KERNELS,
    # The recursion in f32 on a GPU. The C kernel computes in double and stays far below.
    "tolerance": {DType.F32: 2e-5},
}
# Butterworth low-pass filters of order 4 at 0.2 and order 3 at 0.3 of half the sample rate.
_SOS = (
    (0.004824343357716, 0.009648686715432, 0.004824343357716, 1.0, -1.048599576362612, 0.296140357561670),
    (1.0, 2.0, 1.0, 1.0, -1.320913430819426, 0.632738792885277),
)  # fmt: skip
_B = (0.049532996357253, 0.148598989071760, 0.148598989071760, 0.049532996357253)
_A = (1.0, -1.161917483671733, 0.695942755789651, -0.137761301259893)


def _counted(attrs: dict[str, Any], shape: Shape, state: Shape | None, count: int) -> Sample:
    """A case that filters only the first ``count`` samples."""
    rng = np.random.default_rng(5)
    floats = [rng.uniform(-1, 1, s).astype(np.float32) for s in (shape, state) if s is not None]
    absent = {"zi": None} if state is None else {}
    return Sample(
        (shape, *(() if state is None else (state,)), (1,)),
        {**attrs, **absent},
        dtypes=(*(DType.F32,) * len(floats), DType.I32),
        values=(*floats, np.array([count], np.int32)),
    )


@op(
    infer=_infer_sosfilt,
    samples=lambda: (
        Sample(((3, 40),), {"sos": _SOS}),
        Sample(((3, 40), (2, 3, 2)), {"sos": _SOS}),
        Sample(((9, 701), (1, 9, 2)), {"sos": _SOS[:1]}),
        Sample(((2, 2, 17), (2, 2, 2, 2)), {"sos": _SOS}),
        Sample(((1,),), {"sos": _SOS}),
        Sample(((0, 8), (2, 0, 2)), {"sos": _SOS}),
        Sample(((2, 5000),), {"sos": _SOS}),
        Sample(((19, 30), (2, 19, 2)), {"sos": _SOS}),
        _counted({"sos": _SOS}, (2, 40), (2, 2, 2), 13),
        _counted({"sos": _SOS}, (2, 40), (2, 2, 2), 0),
        _counted({"sos": _SOS}, (9, 40), None, 99),
        *(_counted({"sos": _SOS}, (2, 1300), (2, 2, 2), n) for n in (0, 1, 260, 261, 1300)),
        Sample(((64, 2048),), {"sos": _SOS}, bench=True),
    ),
    **_FIELDS,
)
def sosfilt(
    x: Array, sos: ValuesLike, zi: Array | None = None, count: Array | None = None
) -> tuple[Array, Array]:
    """A cascade of second-order sections along the last axis (``scipy.signal.sosfilt``).

    Args:
        x: ``[..., n]``.
        sos: ``[sections, 6]`` numbers: b0, b1, b2, 1, a1, a2 of each section.
        zi: ``[sections, ..., 2]``, the state before the first sample; 0 when absent.
        count: i32 ``[1]``: how many samples, 0 to n, are filtered; all when absent. The results after
            them are 0, and the state is the one after the last of them.

    Returns:
        The filtered signal, like ``x``, and the state after the last sample, like ``zi``. The CPU
        recurses in double precision; WebGPU in f32, with an error of about 1e-7 / (1 - r)^2 for
        poles of radius r.
    """
    shape = (len(sos), *x.shape[:-1], 2)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    y, z = _cascade(rows, sos, zi, count)
    return y.reshape(x.shape), z.reshape(shape)


@op(
    infer=_infer_lfilter,
    samples=lambda: (
        Sample(((3, 40),), {"b": _B, "a": _A}),
        Sample(((3, 40), (3, 3)), {"b": _B, "a": _A}),
        Sample(((9, 300), (9, 1)), {"b": (0.5,), "a": (2.0, -1.5)}),
        Sample(((2, 2, 17),), {"b": (1.0, 0.5, 0.25, 0.1), "a": (1.0,)}),
        Sample(((2, 9),), {"b": (3.0,), "a": (2.0,)}),
        Sample(((1,), (3,)), {"b": _B, "a": _A}),
        Sample(((0, 8),), {"b": _B, "a": _A}),
        Sample(((2, 3000), (2, 3)), {"b": _B, "a": _A}),
        Sample(((17, 31), (17, 3)), {"b": _B, "a": _A}),
        _counted({"b": _B, "a": _A}, (3, 700), (3, 3), 413),
        _counted({"b": (3.0,), "a": (2.0,)}, (3, 7), None, 4),
        Sample(((64, 2048),), {"b": _B, "a": _A}, bench=True),
    ),
    **_FIELDS,
)
def lfilter(
    b: ValuesLike, a: ValuesLike, x: Array, zi: Array | None = None, count: Array | None = None
) -> tuple[Array, Array]:
    """A recursive filter along the last axis (``scipy.signal.lfilter``).

    Args:
        b: Numerator coefficients.
        a: Denominator coefficients; a[0] is not 0.
        x: ``[..., n]``.
        zi: ``[..., max(len(a), len(b)) - 1]``, the state before the first sample; 0 when absent.
        count: i32 ``[1]``: how many samples, 0 to n, are filtered; all when absent. The results after
            them are 0, and the state is the one after the last of them.

    Returns:
        The filtered signal, like ``x``, and the state after the last sample, like ``zi``. Precision
        is that of ``sosfilt``; high orders are better filtered in sections.
    """
    shape = (*x.shape[:-1], len(b) - 1)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    y, z = _cascade(rows, [(*b, *a)], zi, count)
    return y.reshape(x.shape), z.reshape(shape)
