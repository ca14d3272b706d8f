"""Recurrences with weights in 8 bits, whose states the CPU rounds to 16 bits where a model allows as much."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from rlx.abi.recurrent import CELLS
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.declare import op
from rlx.ops.int8_weights import ROUNDED_TOLERANCE, check_scales, on_cpu
from rlx.ops.recurrent.recurrence import infer_recurrence, lower_on_cpu, recurrence, sample


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    xw, r, scales, *rest = types
    check_scales("rounded_recurrence", r, scales)
    return infer_recurrence([xw, TensorType(r.shape, xw.dtype), *rest], attrs)


def _sample(steps: int, batch: int, hidden: int, cell: str, more: str = "", **attrs: Any) -> Sample:
    """A case of ``recurrence`` whose weights are codes, with a scale for each row of them."""
    case = sample(steps, batch, hidden, cell, more, **attrs)
    xw, r, *rest = case.shapes
    types = (DType.F32, DType.I8, DType.F32, *(DType.F32,) * len(rest))
    high = (1.0, 127.9, 1 / 128 / math.sqrt(max(hidden, 1)), *(1.0,) * len(rest))
    low = (-1.0, -128.0, 0.0, *(-1.0,) * len(rest))
    return Sample((xw, r, r[:-1], *rest), case.attrs, types, low=low, high=high)


@op(
    internal=True,
    free=("r", "seq_lens"),
    infer=_infer,
    flops=lambda node: 2.0 * size(node.types[0].shape) * (node.inputs[1].shape[1] + 10),
    cpu=Kernels(("recurrence",), functools.partial(lower_on_cpu, first=3)),
    host_reason=on_cpu,
    dtypes=frozenset({DType.F32}),
    tolerance={DType.F32: ROUNDED_TOLERANCE},
    samples=lambda: (
        _sample(1, 1, 1, "lstm"),
        _sample(0, 2, 3, "lstm", "hc"),
        _sample(3, 0, 3, "gru", "h"),
        _sample(4, 3, 0, "tanh"),
        *(_sample(7, 3, 9, cell, "h") for cell in CELLS if cell != "gru_linear"),
        _sample(7, 3, 9, "gru_linear", "bh"),
        _sample(4, 5, 70, "lstm", "hcp", reverse=(0, 1)),
        _sample(5, 2, 17, "lstm", "p", reverse=(1,), clip=0.4, input_forget=True),
        _sample(4, 2, 300, "gru", "h", reverse=(0, 1), clip=0.5),
        _sample(4, 2, 65, "gru_linear", "bh", reverse=(1, 0)),
        _sample(3, 16, 41, "lstm", "hc"),
        # More elements than are summed in 32 bits at a time.
        _sample(3, 1, 530, "tanh", "h"),
    ),
)
def rounded_recurrence(  # noqa: PLR0913 - the operation's own signature
    xw: Array,
    r: Array,
    scales: Array,
    bias: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    p: Array | None = None,
    seq_lens: Array | None = None,
    cell: str = "lstm",
    reverse: Any = (0,),
    clip: float = 0.0,
    input_forget: bool = False,
) -> Any:
    """``recurrence`` with weights in 8 bits: codes i8 ``[D, G * H, H]`` and scales ``[D, G * H]``.

    The CPU rounds states to 16 bits.
    """
    weights = r * scales[..., None]
    return recurrence.reference(
        xw, weights, bias, h0, c0, p, seq_lens, cell, reverse, clip, input_forget
    )
