"""Signatures of jumps, and of functions that users register (kernels/control)."""

from __future__ import annotations

from rlx.abi.signature import ADDRESS, INT, INTS, REALS, Group, Signature

# The call that a jump leads to. It comes first, so that the loop that makes the calls finds it.
_TARGET = Group("rlx_jump_target", {"target": INT})

_ORDER = "It decides which call comes next."

KERNELS = (
    Signature("jump", "Goes on with another call.", {"to": _TARGET}, alone=_ORDER),
    Signature(
        "jump_unless",
        "The same where a condition is false.",
        {"to": _TARGET},
        {"condition": "bool"},
        alone=_ORDER,
    ),
    Signature(
        "next_trip",
        "Counts the trips of a loop, and jumps when all are made.",
        {"to": _TARGET, "trips": INT},
        writes={"counter": "i64"},
        alone=_ORDER,
    ),
    Signature(
        "custom",
        "The C function of a registered operation, with the sizes of its operands and its numbers.",
        {"function": ADDRESS, "sizes": INTS, "numbers": REALS},
        {f"operand{i}": "any?" for i in range(8)},
        {f"result{i}": "any" if i == 0 else "any?" for i in range(4)},
        alone="The user's function is called once for all of its result.",
    ),
    Signature(
        "python",
        "A Python function amid the compiled kernels.",
        {"function": ADDRESS},
        alone="The user's function is called once for all of its result.",
        in_table=False,
    ),
)
