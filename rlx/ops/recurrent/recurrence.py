"""The loop over time that lstm, gru and rnn share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.recurrent import CELLS
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import Shape, size, strides
from rlx.ops.declare import FLOAT_KERNELS, named_operands, op
from rlx.ops.movement.strided import emit_strided_copy
from rlx.sizes import starts

# Gates per hidden unit. The number of a cell is its parameter in the C kernel.
# WGSL: hidden states that two rows of workgroup memory hold, and steps of the loops of one
# invocation; lavapipe ends longer ones early.
_LOCAL = 2048
_STEPS = 40000


def _extent(node: Node) -> tuple[int, int, int, int]:
    """Time steps, batch, directions, hidden units."""
    steps, directions, batch, hidden = node.types[0].shape
    return steps, batch, directions, hidden


def infer_recurrence(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    """The types of the results: y, and the last states.

    Raises:
        GraphError: An attribute is wrong.
        ShapeError: The operands do not fit.
        DTypeError: The lengths are no i32.
    """
    xw, r = types[0], types[1]
    directions = len(attrs["reverse"])
    if any(attr not in (0, 1) for attr in attrs["reverse"]) or attrs["cell"] not in CELLS:
        raise GraphError("[recurrence] attributes", got=attrs, expected="a cell, and bools")
    gates, hidden = CELLS[attrs["cell"]], r.shape[-1]
    fits = len(xw.shape) == 3 and xw.shape[2] == directions * gates * hidden
    if not fits or r.shape != (directions, gates * hidden, hidden):
        raise ShapeError(
            "[recurrence] gates and weights do not fit",
            got=f"xw {xw.shape}, r {r.shape}, {directions} directions",
            expected=f"xw [T, B, D * {gates} * H], r [D, {gates} * H, H]",
        )
    batch = xw.shape[1]
    state = TensorType((directions, batch, hidden), xw.dtype)
    shapes = {
        "bias": (directions, hidden),
        "h0": state.shape,
        "c0": state.shape,
        "p": (directions, 3 * hidden),
        "seq_lens": (batch,),
    }
    for name, type in zip(attrs["present"], types[2:], strict=True):
        if type.shape != shapes[name]:
            raise ShapeError(
                f"[recurrence] {name} has the wrong shape", got=type.shape, expected=shapes[name]
            )
        if name == "seq_lens" and type.dtype is not DType.I32:
            raise DTypeError("[recurrence] seq_lens", got=type.dtype, expected="i32")
    attrs["reverse"] = tuple(map(int, attrs["reverse"]))
    attrs["clip"] = float(attrs["clip"])
    y = TensorType((xw.shape[0], directions, batch, hidden), xw.dtype)
    return (y, state, state) if attrs["cell"] == "lstm" else (y, state)


def _optional_operands(node: Node, emitter: Emitter) -> dict[str, Any]:
    """The optional operands, None for an absent one."""
    names = ("bias", "h0", "c0", "p", "seq_lens")
    return dict(zip(names, named_operands(node, emitter, names), strict=True))


def lower_on_cpu(node: Node, emitter: Emitter, first: int = 2) -> None:
    """Writes the kernel call, with ``first`` operands in front of the optional ones.

    Of three, the last are scales of weights in 8 bits.
    """
    steps, batch, directions, hidden = _extent(node)
    results = list(emitter.results())
    if len(results) == 2:
        results.append(emitter.temp(TensorType((1,), node.dtype)))
    narrow = first > 2
    # Packing costs about three reads of the weights. Those in 8 bits are multiplied as panels alone.
    packed = narrow or (steps > 1 and batch * steps >= 8)
    args = _optional_operands(node, emitter)
    emitter.call(
        "recurrence",
        [*map(emitter.operand, range(2)), emitter.operand(2) if narrow else None, *args.values()],
        results,
        {
            "steps": steps,
            "batch": batch,
            "directions": directions,
            "hidden": hidden,
            "cell": list(CELLS).index(node.attrs["cell"]),
            "input_forget": int(node.attrs["input_forget"]),
            "clip": node.attrs["clip"],
            "pack": int(packed),
            "narrow": int(narrow),
            "reverse": node.attrs["reverse"],
        },
    )


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    steps, batch, directions, hidden = _extent(node)
    gates, cell = CELLS[node.attrs["cell"]], node.attrs["cell"]
    args, (y, *states) = _optional_operands(node, emitter), emitter.results()
    # Neighbouring threads make neighbouring units, so the weights are read [D, H, gates * H].
    transposed: Shape = (directions, hidden, gates * hidden)
    weights = emitter.temp(TensorType(transposed, node.dtype))
    walk = [gates * hidden * hidden, 1, hidden]
    emit_strided_copy(
        emitter, emitter.operand(1), weights, node.dtype, transposed, walk, strides(transposed)
    )
    # The results hold the states between calls.
    flat = (directions * batch * hidden,)
    for name, state in zip(("h0", "c0"), states, strict=False):
        if args[name] is not None:
            emit_strided_copy(emitter, args[name], state, node.dtype, flat, [1], [1])
    local = hidden <= _LOCAL
    rows = (
        [] if local else [emitter.temp(TensorType((directions * batch * 2 * hidden,), node.dtype))]
    )
    lanes = 64 if hidden <= 64 else 256
    per_step = math.ceil(hidden / lanes) * (gates * (math.ceil(hidden / 4) + 4) + 2)
    some = max(_STEPS // per_step, 1)
    for first in starts(max(steps, 1), some):
        emitter.call(
            "recurrence",
            [emitter.operand(0), weights, args["bias"], args["p"], args["seq_lens"]],
            [y, *states, *rows],
            {
                "steps": steps,
                "batch": batch,
                "directions": directions,
                "hidden": hidden,
                "cell": cell,
                "input_forget": int(node.attrs["input_forget"]),
                "clip": node.attrs["clip"],
                "reverse": node.attrs["reverse"],
                "first": first,
                "last": min(first + some, steps),
                "lanes": lanes,
                "local": int(local),
                **{f"has_{name}": int(value is not None) for name, value in args.items()},
            },
            directions * batch,
        )


def sample(steps: int, batch: int, hidden: int, cell: str, more: str = "", **attrs: Any) -> Sample:
    """A case; ``more`` names the optional operands, by their first letters."""
    directions = len(attrs.get("reverse", (0,)))
    gates, state = CELLS[cell], (directions, batch, hidden)
    shapes: list[Shape] = [
        (steps, batch, directions * gates * hidden),
        (directions, gates * hidden, hidden),
    ]
    options = {
        "bias": (directions, hidden),
        "h0": state,
        "c0": state,
        "p": (directions, 3 * hidden),
    }
    present = tuple(name for name in options if name[0] in more)
    shapes += [options[name] for name in present]
    inputs = {"reverse": (0,), "clip": 0.0, "input_forget": False, **attrs}
    # Larger recurrent weights would make errors grow from step to step.
    high = (1.0, 1.0 / math.sqrt(max(hidden, 1)), *(1.0,) * len(present))
    low = tuple(-value for value in high)
    attrs = {"cell": cell, "present": present, **inputs}
    return Sample(tuple(shapes), attrs, low=low, high=high)


def _with_lengths(cell: str, reverse: tuple[int, ...]) -> Sample:
    rng = np.random.default_rng(3)
    directions, gates, hidden = len(reverse), CELLS[cell], 5
    shapes = ((6, 4, directions * gates * hidden), (directions, gates * hidden, hidden))
    values = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    attrs = {"cell": cell, "reverse": reverse, "clip": 0.0, "input_forget": False}
    return Sample(
        (*shapes, (4,)),
        {**attrs, "present": ("seq_lens",)},
        dtypes=(DType.F32, DType.F32, DType.I32),
        values=(*values, np.array([6, 3, 0, 1], np.int32)),
    )


@op(
    internal=True,
    free=("seq_lens",),
    infer=infer_recurrence,
    flops=lambda node: 2.0 * size(node.types[0].shape) * (node.inputs[1].shape[1] + 10),
    cpu=Kernels(("recurrence",), lower_on_cpu),
    webgpu=Kernels(("recurrence", "strided_copy"), _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 2e-5},  # the error of a step goes through all later ones
    samples=lambda: (
        sample(1, 1, 1, "lstm"),
        sample(0, 2, 3, "lstm", "hc"),
        sample(0, 2, 3, "gru"),
        sample(3, 0, 3, "gru", "h"),
        sample(4, 3, 0, "tanh"),
        *(sample(7, 3, 9, cell, "h") for cell in CELLS if cell != "gru_linear"),
        sample(7, 3, 9, "gru_linear", "bh"),
        sample(4, 5, 70, "lstm", "hcp", reverse=(0, 1)),
        sample(5, 2, 17, "lstm", "p", reverse=(1,), clip=0.4),
        sample(5, 2, 17, "lstm", "hc", input_forget=True),
        sample(4, 2, 300, "gru", "h", reverse=(0, 1), clip=0.5),
        sample(4, 2, 65, "gru_linear", "bh", reverse=(1, 0)),
        sample(5, 9, 41, "lstm", "hc"),
        sample(5, 9, 41, "gru", "h", reverse=(0, 1)),
        sample(5, 9, 41, "gru_linear", "bh"),
        sample(600, 1, 4, "tanh"),
        sample(40, 2, 130, "relu", "h", clip=0.7),
        # More units than workgroup memory holds, and several WGSL calls.
        sample(2, 1, 2100, "tanh", "h"),
        sample(2, 1, 2100, "gru"),
        *(
            _with_lengths(cell, reverse)
            for cell in ("lstm", "gru", "tanh")
            for reverse in ((0, 1), (1,))
        ),
    ),
)
def recurrence(  # noqa: PLR0913 - the operation's own signature
    xw: Array,
    r: Array,
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
    """A recurrent layer over time, given what the inputs add to its gates.

    Gates as in ONNX: lstm i, o, f, c; gru z, r, h.

    Args:
        xw: ``[T, B, D * G * H]``: x @ w^T and biases of T time steps, for D directions and G gates of H
            hidden units.
        r: ``[D, G * H, H]``, recurrent weights.
        bias: ``[D, H]``, of gru_linear: recurrent bias of the candidate.
        h0: ``[D, B, H]``, hidden state before the first step, or None for 0.
        c0: ``[D, B, H]``, cell state of lstm before the first step, or None for 0.
        p: ``[D, 3 * H]``, peephole weights of lstm for i, o, f.
        seq_lens: i32 ``[B]``: steps of each sequence, at most T; None for T. y is 0 after them.
        cell: lstm, gru, gru_linear (the reset gate acts after the product), tanh or relu.
        reverse: For each direction, whether it goes from the last step to the first.
        clip: Largest magnitude of what goes into an activation; 0 for no bound.
        input_forget: Whether the forget gate of lstm is 1 - i.

    Returns:
        y ``[T, D, B, H]``, the last h ``[D, B, H]``, and of lstm the last c.
    """
    steps, batch, hidden = xw.shape[0], xw.shape[1], r.shape[2]
    y = np.zeros((steps, len(reverse), batch, hidden))
    shape = (len(reverse), batch, hidden)
    last_h = np.zeros(shape) if h0 is None else h0.copy()
    last_c = np.zeros(shape) if c0 is None else c0.copy()
    lengths = np.full(batch, steps) if seq_lens is None else np.clip(seq_lens, 0, steps)
    per_direction = xw.reshape(steps, batch, len(reverse), -1 if xw.size else r.shape[1])
    everyone = np.arange(batch)

    def squash(v: Array) -> Array:
        return np.clip(v, -clip, clip) if clip > 0 else v

    def sigmoid(v: Array) -> Array:
        return 0.5 * (1.0 + np.tanh(0.5 * squash(v)))

    for d, backwards in enumerate(reverse):
        h, c = last_h[d], last_c[d]
        peep = [np.zeros(hidden)] * 3 if p is None else np.split(p[d], 3)
        for step in range(steps):
            active = step < lengths
            pos = np.where(active & bool(backwards), lengths - 1 - step, step)
            x = np.split(per_direction[pos, everyone, d], CELLS[cell], -1)
            product = np.split(h @ r[d].T, CELLS[cell], -1)
            new_c = c
            if cell == "lstm":
                i = sigmoid(x[0] + product[0] + peep[0] * c)
                f = 1 - i if input_forget else sigmoid(x[2] + product[2] + peep[2] * c)
                new_c = f * c + i * np.tanh(squash(x[3] + product[3]))
                new_h = sigmoid(x[1] + product[1] + peep[1] * new_c) * np.tanh(new_c)
            elif cell in ("gru", "gru_linear"):
                z, reset = sigmoid(x[0] + product[0]), sigmoid(x[1] + product[1])
                if cell == "gru":
                    inner = (reset * h) @ r[d, 2 * hidden :].T
                else:
                    inner = reset * (product[2] + (0.0 if bias is None else bias[d]))
                new_h = (1 - z) * np.tanh(squash(x[2] + inner)) + z * h
            else:
                v = squash(x[0] + product[0])
                new_h = np.tanh(v) if cell == "tanh" else np.maximum(v, 0)
            y[pos, d, everyone] = np.where(active[:, None], new_h, 0.0)
            h, c = np.where(active[:, None], new_h, h), np.where(active[:, None], new_c, c)
        last_h[d], last_c[d] = h, c
    return (y, last_h, last_c) if cell == "lstm" else (y, last_h)
