"""Signatures of elementwise programs and random numbers (kernels/elementwise)."""

from __future__ import annotations

from rlx.abi.signature import ADDRESSES, INT, INTS, Parallel, ParamField, Signature, choice

# How an operand is read: in step with the result, as one number, or by strides.
MODES = ("direct", "scalar", "strided")

# The kinds of random numbers.
RANDOM = ("bits", "uniform", "normal")

KERNELS = (
    Signature(
        "elementwise",
        "A program of steps on blocks of elements in registers. For each input its mode (MODES), bytes of an "
        "element, register and strides[rank]; for each literal bytes, register and bits; for each step its loop, the "
        "register of its result (-1: the result of the call) and three operands: inputs first, then registers.",
        {
            "inputs": INT, "literals": INT, "steps": INT, "count": INT, "result_bytes": INT, "rank": INT, "block": INT,
            "dims": INTS, "modes": ParamField(length=0, choices=MODES, enum="MODE"), "input_bytes": INTS, "input_registers": INTS, "strides": INTS,
            "literal_bytes": INTS, "literal_registers": INTS, "literal_bits": INTS, "loops": ADDRESSES,
            "targets": INTS, "operands": INTS,
        },
        {f"operand{i}": "any?" for i in range(8)},
        {"y": "any"},
        parallel=Parallel(),
    ),
    Signature(
        "philox",
        "Random bits, uniform numbers below 1, or normal numbers by a table, from a counter and a seed.",
        {"count": INT, "stream": INT, "kind": choice("PHILOX", *RANDOM), "words": INT},
        {"seed": "u32", "table": "u32?"},
        {"y": "u32|f32"},
        parallel=Parallel(),
    ),
)  # fmt: skip
