"""Which kernel calls several threads make, in how many parts, and the scratch of each thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rlx.cost.kinds import work_of
from rlx.ir.plan import Call

# Work below this, in ns, is not worth waking a thread for; above, no part is smaller than half of it.
_WORTH = 20_000
# Parts for each thread: with one alone all would wait for a thread that another process holds up.
_PARTS = 8
# Scratch of a graph's other threads, in bytes; a call that would need more is made by fewer threads.
_MOST_SCRATCH = 64 << 20
_ALIGNMENT = 256
# Roughly the time of a unit of work (rlx.cost.kinds) on one thread, in ns.
_NS: Mapping[str, float] = {
    "arithmetic": 0.1,
    "function": 0.05,
    "product": 0.025,
    "convolution": 0.03,
    "attention": 0.06,
    "packed": 0.06,
    "mel": 0.05,
}
_OTHER_NS = 0.12
# Kernels that make a part of their result when they are told to (call.h), and the first of their
# outputs that is scratch: each thread has its own.
_NONE = 4
SPLIT: Mapping[str, int] = {
    "elementwise": _NONE,
    "matmul": 1,
}


class Split(NamedTuple):
    """How a call is shared.

    Attributes:
        parts: Parts that it is made in.
        threads: Threads that make them.
        scratch: Where a thread's own scratch begins for each output, in bytes; -1 for a result.
        apart: Bytes of scratch of one thread.
    """

    parts: int
    threads: int
    scratch: tuple[int, ...]
    apart: int


def split_of(call: Call, threads: int) -> Split | None:
    """How a call is shared among at most so many threads; None where one makes it all.

    Args:
        call: A kernel call.
        threads: Threads, 1 or more.
    """
    if threads == 1 or call.kernel not in SPLIT:
        return None
    parts = min(_PARTS * threads, int(_ns(call) / (_WORTH / 2)))
    first, scratch, apart = SPLIT[call.kernel], [], 0
    for at, value in enumerate(call.outputs):
        scratch.append(apart if at >= first else -1)
        if at >= first:
            apart += -(-value.type.nbytes // _ALIGNMENT) * _ALIGNMENT
    threads = min(threads, parts, 1 + _MOST_SCRATCH // max(1, apart))
    return Split(parts, threads, tuple(scratch), apart) if threads > 1 else None


def _ns(call: Call) -> float:
    """Roughly what a call takes on one thread."""
    if call.kernel == "strided_copy":  # also a part of ops of other kinds
        return 2 * _OTHER_NS * call.outputs[0].type.nbytes
    return sum(_NS.get(kind, _OTHER_NS) * work for kind, work in work_of(call.node).items())
