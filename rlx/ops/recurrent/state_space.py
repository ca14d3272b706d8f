"""The selective scan of state space models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import FLOAT_KERNELS, one_call, op

# WGSL: states of one channel that stand in registers, threads of a workgroup, and steps of the loops
# of one invocation; lavapipe ends longer ones early.
_REGISTERS = 32
_LANES = 64
_STEPS = 40000


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    x, a = types[0].shape, types[2].shape
    if len(x) != 3 or len(a) != 2:
        raise ShapeError(
            "[selective_scan] wrong rank", got=f"x {x}, a {a}", expected="[B, L, D], [D, N]"
        )
    batch, length, channels = x
    states = (batch, length, a[1])
    expected = {"delta": x, "a": (channels, a[1]), "b": states, "c": states, "d": (channels,)}
    for (name, shape), type in zip(expected.items(), types[1:], strict=False):
        if type.shape != shape:
            raise ShapeError(
                f"[selective_scan] {name} has the wrong shape",
                got=type.shape,
                expected=f"{shape} for x {x} and a {a}",
            )
    return types[0]


def _params(node: Node) -> dict[str, Any]:
    names = ("batch", "length", "channels", "states")
    return dict(zip(names, (*node.shape, node.inputs[2].shape[1]), strict=True))


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    params = {**_params(node), "has_d": int(len(node.inputs) > 5)}
    states, length = params["states"], params["length"]
    unrolled = states <= _REGISTERS
    some = max(_STEPS // (1 if unrolled else states), 1)
    retained = emitter.temp(
        TensorType((params["batch"] * params["channels"] * max(states, 1),), node.dtype)
    )
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    for first in range(0, length, some):
        emitter.call(
            "selective_scan",
            operands,
            [emitter.result(), retained],
            {
                **params,
                "unrolled": int(unrolled),
                "first": first,
                "last": min(first + some, length),
            },
            params["batch"] * math.ceil(params["channels"] / _LANES),
        )


def _sample(batch: int, length: int, channels: int, states: int, skip: bool = True) -> Sample:
    line, narrow = (batch, length, channels), (batch, length, states)
    shapes = (line, line, (channels, states), narrow, narrow, (channels,))
    # Steps are positive and a negative, so that the states decay.
    low, high = (-1.0, 0.01, -2.0, -1.0, -1.0, -1.0), (1.0, 1.0, -0.01, 1.0, 1.0, 1.0)
    count = len(shapes) if skip else 5
    return Sample(shapes[:count], {} if skip else {"d": None}, low=low, high=high)


@op(
    infer=_infer,
    flops=lambda node: size(node.shape) * node.inputs[2].shape[1] * 14.0,
    cpu=one_call("selective_scan", _params),
    webgpu=Kernels(("selective_scan",), _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 1e-5},  # the errors of the exponentials multiply over the steps
    samples=lambda: (
        _sample(1, 1, 1, 1),
        _sample(2, 0, 3, 4),
        _sample(0, 5, 3, 4),
        _sample(2, 5, 3, 0),
        _sample(2, 33, 7, 16),
        _sample(2, 33, 70, 5, skip=False),
        _sample(1, 20, 65, 33),
        # Several WGSL calls, with the states in registers and in memory.
        _sample(1, 41000, 1, 1),
        _sample(1, 900, 2, 90),
        Sample(
            ((1, 512, 256), (1, 512, 256), (256, 16), (1, 512, 16), (1, 512, 16), (256,)),
            low=(-1.0, 0.01, -2.0, -1.0, -1.0, -1.0),
            high=(1.0, 1.0, -0.01, 1.0, 1.0, 1.0),
            bench=True,
        ),
    ),
)
def selective_scan(
    x: Array, delta: Array, a: Array, b: Array, c: Array, d: Array | None = None
) -> Array:
    """The recurrence of Mamba (arXiv:2312.00752, section 3): a linear state space model per channel.

    h = exp(delta * a) * h + delta * b * x, from h = 0; y = sum over the states of c * h, plus d * x. A
    state of 0 adds 0, also where the exponential overflows.

    Args:
        x: ``[B, L, D]``: L steps of D channels.
        delta: ``[B, L, D]``, step sizes.
        a: ``[D, N]``, what makes the N states of a channel decay.
        b: ``[B, L, N]``, how x enters the states.
        c: ``[B, L, N]``, how the states make y.
        d: ``[D]``, how x goes straight to y, or None for 0.

    Returns:
        y, ``[B, L, D]``.
    """
    h = np.zeros((x.shape[0], *a.shape))
    y = np.zeros(x.shape)
    for step in range(x.shape[1]):
        size_now = delta[:, step, :, None]
        # A state of 0 stays 0, also where the factor overflows to infinity.
        rest = np.where(h == 0, 0.0, np.exp(size_now * a) * h)
        h = rest + size_now * b[:, step, None, :] * x[:, step, :, None]
        y[:, step] = np.sum(h * c[:, step, None, :], -1)
    return y if d is None else y + d * x
