"""Signatures of kernels that iterate over time steps (kernels/recurrent)."""

from __future__ import annotations

from typing import Any

from rlx.abi.constants import FILTER_LANES, RECURRENT_PANEL, SCAN_CHANNELS, TEAM
from rlx.abi.products import PACKING
from rlx.abi.signature import (
    FLAG,
    FLOATS,
    INT,
    INTS,
    LINKED,
    REAL,
    REALS,
    Parallel,
    Scratch,
    Signature,
    choice,
)
from rlx.sizes import largest, smallest

# Weights of a task of a step, at least: a thread takes a few microseconds for them.
_TASK_WEIGHTS = 65536
# Cells by name, and the gates of each.
CELLS = {"lstm": 4, "gru": 3, "gru_linear": 3, "tanh": 1, "relu": 1}


def _recurrence(p: Any) -> Any:
    """Elements of the gates, two states of each row, one in 16 bits with its scale, and packed weights."""
    gates = tuple(CELLS.values())[p.cell]
    packed = (gates * p.hidden + 2 * RECURRENT_PANEL) * p.hidden * p.pack
    rounded = p.narrow * p.batch * (p.hidden // 2 + 2)
    return p.batch * (gates + 2) * p.hidden + rounded + packed


def _tasks(p: Any) -> Any:
    """Tasks of a step that are worth a thread: each has so many weights to read, and two phases to wait for."""
    weights = tuple(CELLS.values())[p.cell] * p.hidden * p.hidden
    return smallest(TEAM, p.hidden // RECURRENT_PANEL, weights // _TASK_WEIGHTS)


KERNELS = (
    Signature(
        "recurrence",
        "The loop over time of lstm, gru and rnn. With `pack`, weights that are not packed already are packed first. "
        "`narrow` weights are in 8 bits, with a scale for each row, and are always packed.",
        {
            "steps": INT, "batch": INT, "directions": INT, "hidden": INT, "cell": choice("CELL", *CELLS),
            "input_forget": FLAG, "clip": REAL, "pack": FLAG, "narrow": FLAG,
            "reverse": INTS,
            "packing": PACKING, "packed_stride": LINKED,
        },
        {
            "xw": "T", "weights": "T|i8", "scales": "T?", "bias": "T?", "h0": "T?", "c0": "T?", "peepholes": "T?",
            "lengths": "i32?",
        },
        {"y": "T", "h": "T", "c": "T"},
        {"work": Scratch("T", _recurrence)},
        FLOATS,
        # Several sequences share what is read of the weights.
        parallel=Parallel(most=lambda p: p.batch // 4, tasks=_tasks, once=True),
        flushes=True,
    ),
    Signature(
        "selective_scan",
        "The linear recurrence of a state-space model whose steps depend on the input.",
        {"batch": INT, "length": INT, "channels": INT, "states": INT},
        {"x": "T", "delta": "T", "a": "T", "b": "T", "c": "T", "d": "T?"},
        {"y": "T"},
        {
            "states": Scratch("T", lambda p: p.channels * max(p.states, 1)),
            "products": Scratch("T", lambda p: max(p.states, 1)),
        },
        FLOATS,
        parallel=Parallel(most=lambda p: largest(p.batch, p.channels // SCAN_CHANNELS)),
        flushes=True,
    ),
    Signature(
        "recursive",
        "Recursive filters in sections of one order, coefficients b and a of one section after the other.",
        {"rows": INT, "n": INT, "sections": INT, "order": INT, "coefficients": REALS},
        {"x": "T", "zi": "T?", "count": "i32?"},
        {"y": "T", "zf": "T"},
        {"states": Scratch("f64", lambda p: p.sections * (p.order + 1) * FILTER_LANES)},
        FLOATS,
        parallel=Parallel(most=lambda p: p.rows // FILTER_LANES),
        flushes=True,
    ),
)  # fmt: skip
