"""Which kernel calls several threads make, in how many parts, and the scratch of each thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlx.cost.kinds import work_of
from rlx.ir.plan import Call, Value
from rlx.ir.shape import size

# Work below this, in ns, is not worth waking a thread for; above, no part is smaller than half of it.
_WORTH = 20_000
# Scratch of a graph's other threads, in bytes; a call that would need more is made by fewer threads.
_MOST_SCRATCH = 64 << 20
_ALIGNMENT = 256
# cython_src/parallel.h has the same figure.
_ROW_PARAMS = 64
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


class Way(NamedTuple):
    """How the calls of a kernel can be shared.

    Attributes:
        scratch: The first output that is scratch, of which each thread has its own.
        rows: The parameter that counts rows which have nothing to do with each other: parts are
            calls on fewer of them. "" for kernels that ask for their share (call.h).
        widths: The elements of such a row, by the parameters: of each input, 0 for those that all rows
            use, and of each output.
        parts: Parts for each thread: with one alone all would wait for a thread that another process
            holds up. Fewer where each begins with work of its own.
        most: Parts that there can be at most, by the parameters; None for no such limit.
    """

    scratch: int = 4
    rows: str = ""
    widths: Callable[[Any], tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    parts: int = 8
    most: Callable[[Any], int] | None = None


def _reduced(p: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (p["n"] * p["inner"],), (p["inner"],)


WAYS: Mapping[str, Way] = {
    "elementwise": Way(),
    "matmul": Way(1),
    "gated_product": Way(1),
    "matmul_integer": Way(1),
    "grouped_matmul": Way(1),
    "dequant_matmul": Way(1),
    "conv": Way(1, parts=4),
    "conv_few": Way(1, parts=2),
    "conv_pad": Way(),
    "conv_direct": Way(1),
    "conv_long": Way(1),
    "conv_depthwise": Way(1),
    "conv_depthwise_narrow": Way(1),
    "conv_transpose": Way(1),
    "attention": Way(1),
    "softmax": Way(4, "outer", lambda p: ((p["n"] * p["inner"],), (p["n"] * p["inner"],))),
    "layer_norm": Way(4, "rows", lambda p: ((p["n"], 0, 0, p["n"]), (p["n"], p["n"]))),
    **{
        f"reduce_{kind}": Way(4, "outer", _reduced)
        for kind in ("sum", "mean", "max", "min", "prod")
    },
    "fft": Way(1),
    "rfft": Way(1),
    "pool_max": Way(1, "channels", lambda p: ((size(p["dims"]),), (size(p["out"]),))),
    "pool_sum": Way(1, "channels", lambda p: ((size(p["dims"]),), (size(p["out"]),))),
    # Several sequences share what is read of the weights.
    "recurrence": Way(3, most=lambda p: p["batch"] // 4),
    "strided_copy": Way(),
    "gather": Way(),
}


class Split(NamedTuple):
    """How a call is shared: what ``struct rlx_split`` of parallel.h says.

    Attributes:
        parts: Parts that it is made in.
        threads: Threads that make them.
        scratch: Where a thread's own scratch begins for each output, in bytes; -1 for a result.
        apart: Bytes of scratch of one thread.
        rows: Rows that are shared; 0 where the kernel asks for its share.
        at: Position of the parameter that counts them.
        params: How many parameters there are.
        inputs: Bytes of a row of each input, 0 for those that all rows use.
        outputs: Bytes of a row of each output.
    """

    parts: int
    threads: int
    scratch: tuple[int, ...]
    apart: int
    rows: int
    at: int
    params: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def split_of(call: Call, threads: int) -> Split | None:
    """How a call is shared among at most so many threads; None where one makes it all.

    Args:
        call: A kernel call.
        threads: Threads, 1 or more.
    """
    way = WAYS.get(call.kernel)
    if threads == 1 or way is None:
        return None
    parts = min(way.parts * threads, int(_ns(call) / (_WORTH / 2)))
    if way.most:
        parts = min(parts, way.most(call.params))
    scratch, apart = [], 0
    for at, value in enumerate(call.outputs):
        scratch.append(apart if at >= way.scratch else -1)
        if at >= way.scratch:
            apart += -(-value.type.nbytes // _ALIGNMENT) * _ALIGNMENT
    rows, at, params = 0, 0, 0
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    if way.widths:
        rows, at, params = call.params[way.rows], *_place(call, way.rows)
        parts = min(parts, rows) if params <= _ROW_PARAMS else 1
        widths = way.widths(call.params)
        inputs, outputs = map(_bytes, widths, (call.inputs, call.outputs))
    threads = min(threads, parts, 1 + _MOST_SCRATCH // max(1, apart))
    if threads < 2:
        return None
    return Split(parts, threads, tuple(scratch), apart, rows, at, params, inputs, outputs)


def _bytes(widths: Sequence[int], values: Sequence[Value | None]) -> tuple[int, ...]:
    """So many elements of each value in bytes; the rest holds no rows."""
    return tuple(
        width * value.type.dtype.itemsize if value is not None else 0
        for width, value in zip(widths, values, strict=False)
    )


def _place(call: Call, name: str) -> tuple[int, int]:
    """Where a parameter stands among the words that the kernel gets, and how many these are."""
    found = count = 0
    for key, value in call.params.items():
        if key == name:
            found = count
        count += len(value) if isinstance(value, tuple) else 1
    return found, count


def _ns(call: Call) -> float:
    """Roughly what a call takes on one thread."""
    if call.kernel == "strided_copy":  # also a part of ops of other kinds
        return 2 * _OTHER_NS * call.outputs[0].type.nbytes
    return sum(_NS.get(kind, _OTHER_NS) * work for kind, work in work_of(call.node).items())
