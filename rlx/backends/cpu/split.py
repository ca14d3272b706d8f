"""Chooses the kernel calls that several threads share, the number of parts, and the scratch memory of each thread.

It also tells which calls flush subnormal operands to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlx.abi.calls import fields
from rlx.abi.kernels import KERNELS, MAX_INPUTS, MAX_OUTPUTS
from rlx.cost.op_classes import sized_work_of, traffic
from rlx.ir.dtype import HALVES
from rlx.ir.plan import KernelCall, Value
from rlx.ir.shape import estimated, size
from rlx.sizes import Ratio, SizeExpr, hinted, largest, smallest
from rlx.sizes import polynomial as poly
from rlx.sizes.expressions import size_of
from rlx.threads import usable_cores

# Work below this, in ns, is not worth waking a thread for. A thread takes a fourth of it at least, and each of several parts
# of a thread all of it: a part takes about 1 us more.
_WORTH = 14_000
# Work from which on, in ns, it is worth telling the processor to take subnormal operands for 0, and back.
_WORTH_FLUSHING = 1_000
# Scratch of a graph's other threads, in bytes; a call that would need more is made by fewer threads.
_MAX_SCRATCH = 64 << 20
_ALIGNMENT = 256
# Roughly the time of a unit of work (rlx.cost.op_classes) on one thread, in ns.
_NS: Mapping[str, float] = {
    "arithmetic": 0.1, "function": 0.05, "product": 0.015, "convolution": 0.02, "recurrence": 0.025, "attention": 0.025,
    "packed": 0.02, "mel": 0.05,
}  # fmt: skip
_OTHER_NS = 0.12
# The time of a byte that a kernel only moves, and of each line of bytes that it moves together.
_COPY_NS = 0.025
_LINE_NS: Mapping[str, float] = {"strided_copy": 0.3, "pad": 2, "pad_repeat": 2.5, "gather": 0.4}
# Elements that lie apart in one place only are moved in tiles of so many rows at least, whose lines have so many bytes.
_TILE_ROWS, _TILE_BYTES = 8, 32
# The least time per byte that a call reads or writes, from a cache that cores share.
_BYTE_NS = 0.02
# The same where threads have made what a call reads: it comes from the caches of their cores.
_FAR_NS = 0.04
# The least time per byte of weights in blocks or 16 bits, which come from memory, and the time to round an element.
_BLOCK_NS, _ROUND_NS = 0.1, 1
# How many times as long kernels take as the others of their kind: medians over random shapes (benchmarks/estimates.py).
_TIMES: Mapping[str, float] = {
    "arg_reduce": 3, "conv_depthwise": 2.5, "conv_last": 0.5, "depthwise_last": 0.8, "conv_transpose": 1.6, "winograd_last": 0.2,
    "cumulate": 3, "fft": 0.5, "interpolate": 0.6, "matmul_integer": 0.13, "nearest_planes": 0.15,
    "pool_max": 2, "pool_sum": 2, "reduce_mean": 1.5, "reduce_prod": 1.5, "reduce_sum_abs": 1.5, "reduce_sum_squares": 1,
    "scatter": 0.2, "topk": 10,
}  # fmt: skip
# How much longer a product of fewer than four rows takes, for the same work, since it waits for its weights; and what
# it takes to store a result.
_FEW_ROWS, _STORE_NS = 1.6, 0.06
# Where struct rlx_split (parallel.h) has which numbers of a call.
WORDS: Mapping[str, int] = {
    "parts": 0, "threads": 1, "tasks": 2, "flush": 3, "once": 4, "apart": 5, "rows": 6, "at": 7, "words": 8, "scratch": 9,
    "inputs": 9 + MAX_OUTPUTS, "outputs": 9 + MAX_OUTPUTS + MAX_INPUTS,
}  # fmt: skip


class WorkSplit(NamedTuple):
    """The split of a call among threads, as ``struct rlx_split`` of parallel.h has it.

    Where a call depends on sizes that are known only when the graph runs, so do parts, threads, tasks, rows and bytes.

    Attributes:
        parts: Parts that it is made in.
        threads: Threads that make them.
        scratch: Where a thread's own scratch begins for each output, in bytes; -1 for a result.
        apart: Bytes of scratch of one thread.
        tasks: Tasks of a phase, where a team of threads makes the call; 0 where they make parts.
        rows: Rows that are shared; 0 where the kernel asks for its share.
        at: The word of the parameters that counts them.
        words: Words of the parameters.
        inputs: Bytes of a row of each input, 0 for those that all rows use.
        outputs: Bytes of a row of each output.
    """

    parts: int
    threads: int
    scratch: tuple[int, ...]
    apart: int
    tasks: int
    rows: int
    at: int
    words: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def sized(self) -> Iterator[tuple[str, int, SizeExpr]]:
        """The fields that depend on sizes: name, place in a field of several numbers, and expression."""
        for name, value in self._asdict().items():
            for index, item in enumerate(value if isinstance(value, tuple) else (value,)):
                if isinstance(item, SizeExpr):
                    yield name, index, item

    def numbers(self, flush: bool, once: bool, start: int) -> list[int]:
        """The words of ``struct rlx_split``; scratch begins at the address ``start``."""
        scratch = [0 if offset < 0 else start + offset for offset in self.scratch]
        fields = {**self._asdict(), "flush": flush, "once": once, "scratch": scratch}
        result = [0] * (WORDS["outputs"] + MAX_OUTPUTS)
        for name, value in fields.items():
            items = value if isinstance(value, Sequence) else (value,)
            result[WORDS[name] : WORDS[name] + len(items)] = items
        return result

    def linked(self) -> WorkSplit:
        """The split in numbers: at the hints of the assumptions under way, but for as many threads as it ever takes."""
        threads = self.threads
        if isinstance(threads, SizeExpr):
            # It never takes more than there are cores, though not every expression says so.
            threads = threads.bounds()[1] or usable_cores()
        values: dict[str, Any] = {
            name: tuple(map(hinted, value)) if isinstance(value, tuple) else hinted(value)
            for name, value in self._asdict().items()
        }
        return WorkSplit(**{**values, "threads": threads})


def split_of(call: KernelCall, threads: int) -> WorkSplit | None:
    """Splits a call among at most so many threads; None where one thread runs it all.

    Args:
        call: A kernel call.
        threads: Threads, 1 or more.
    """
    signature = KERNELS.get(call.kernel)
    parallel = signature.parallel if signature else None
    if threads == 1 or signature is None or parallel is None:
        return None
    args = fields(call.params)
    # A thread without a core of its own would hold up the rest.
    threads = min(threads, usable_cores())
    fourths = _times(call, _WORTH / 4)
    worth = smallest(threads, fourths, threads * (fourths // 4))
    # A thread makes as many parts as another.
    parts = worth * largest(1, smallest(parallel.parts, fourths // (4 * threads)))
    if parallel.most:
        parts = smallest(parts, parallel.most(args))
    tasks = smallest(threads, worth, parallel.tasks(args)) if parallel.tasks else 0
    if hinted(tasks) > max(1, hinted(parts)):
        shared = (-1,) * len(call.outputs)
        return WorkSplit(tasks, tasks, shared, 0, tasks, 0, 0, signature.words, (), ())
    scratch, apart = [], 0
    for index, value in enumerate(call.outputs):
        own = index >= len(signature.writes)
        scratch.append(apart if own else -1)
        if own:
            apart += -(-value.type.nbytes // _ALIGNMENT) * _ALIGNMENT
    rows, index = 0, 0
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    if parallel.widths:
        rows, index = call.params[parallel.rows], signature.offset(parallel.rows)
        parts = smallest(parts, rows)
        inputs, outputs = map(_bytes, parallel.widths(args), (call.inputs, call.outputs))
    parts = largest(1, parts)
    # The number of threads bounds the expression: memory is taken for so many.
    most = 1 + _MAX_SCRATCH // max(1, apart)
    threads = smallest(threads, largest(1, worth), parts, most)
    if not isinstance(threads, SizeExpr) and threads < 2:
        return None
    return WorkSplit(
        parts, threads, tuple(scratch), apart, 0, rows, index, signature.words, inputs, outputs
    )


def flushes(call: KernelCall) -> Any:
    """Returns whether a call flushes subnormal operands to 0 where ``CompileOptions.denormals`` allows it: 1 or 0."""
    signature = KERNELS.get(call.kernel)
    if signature is None or not signature.flushes:
        return 0
    return smallest(1, _times(call, _WORTH_FLUSHING))


def _bytes(widths: Sequence[int], values: Sequence[Value | None]) -> tuple[int, ...]:
    """So many elements of each value in bytes; the rest holds no rows."""
    return tuple(
        width * value.type.dtype.itemsize if value is not None else 0
        for width, value in zip(widths, values, strict=False)
    )


def expected_ns(call: KernelCall) -> float:
    """Estimates the time of a call on one thread."""
    return _longest(_terms(call))


def _longest(terms: list[list[tuple[float, Any]]]) -> float:
    return max(sum(rate * float(estimated(amount)) for rate, amount in each) for each in terms)


def _times(call: KernelCall, ns: float) -> Any:
    """So many times as long as some nanoseconds a call takes on one thread, rounded down; a size where it depends on sizes."""
    terms = [*_terms(call), [(_FAR_NS, _moved(call))]]
    if all(isinstance(amount, int | float) for each in terms for _, amount in each):
        return int(_longest(terms) / ns)
    picoseconds = (
        sum(_scaled(amount, 1000 * rate) for rate, amount in each if amount) for each in terms
    )
    return largest(*picoseconds) // max(1, round(1000 * ns))


def _scaled(amount: Any, rate: float) -> Any:
    """An amount times a rate, with whole coefficients."""
    if isinstance(amount, Ratio):
        return _scaled(amount.above, rate / estimated(amount.below))
    if not isinstance(amount, SizeExpr):
        return round(amount * rate)
    return size_of(poly.terms({monomial: round(c * rate) for monomial, c in amount.terms}))


def _moved(call: KernelCall) -> Any:
    """The bytes that a call reads and writes; those of a copy may be a part of its node's."""
    if call.kernel in ("round_rows", "round_windows"):  # of a product
        return 2 * call.outputs[0].type.nbytes
    if call.kernel not in _LINE_NS:
        return traffic(call.node)
    count = size(call.params["dims"]) * call.params.get("unit", 1)
    return 2 * count * call.outputs[0].type.dtype.itemsize


def _terms(call: KernelCall) -> list[list[tuple[float, Any]]]:
    """Estimates of a call of which the longer one counts: times of a unit, in ns, and amounts of units."""
    if call.kernel in _LINE_NS:  # also of a part of a result, and of ops of other kinds
        moved = _moved(call) // 2
        return [[(_COPY_NS, moved), (_LINE_NS[call.kernel], _lines(call, moved))]]
    if call.kernel == "dequant_products":  # of several nodes
        work = 2 * call.params["m"] * call.params["k"] * sum(call.params["n"])
        weights = sum(value.type.nbytes for value in call.inputs[2:] if value is not None)
        return [[(_NS["packed"], work)], [(_BLOCK_NS, weights)]]
    if call.kernel in ("round_rows", "round_windows"):
        return [[(_ROUND_NS, call.outputs[0].type.nbytes // 2)]]
    # The same where all bytes are near, and where they are in a cache that cores share.
    near = [_computing(call), [(_BYTE_NS, traffic(call.node))]]
    w = call.inputs[1] if call.kernel == "matmul" else None
    if w is not None and w.type.dtype in HALVES:
        near.append([(_BLOCK_NS, w.type.nbytes)])
    return near


def _lines(call: KernelCall, moved: Any) -> Any:
    """Lines of bytes that a call moves together, of so many bytes."""
    params = call.params
    dims, rows = params["dims"], size(params["dims"][:-1])
    if call.kernel == "gather":
        *varied, step = estimated(params["index_steps"])
        return size(dims) + (12 * rows if any(varied) else 0) if step else rows
    if call.kernel != "strided_copy":
        return rows
    source, target = estimated(params["source_steps"]), estimated(params["target_steps"])
    last, tall = estimated(dims)[-1], estimated(dims)[source.index(1)] if 1 in source else 0
    vectors = last >= 2 * _TILE_ROWS and -1 <= source[-1] <= 2  # also backwards and by twos
    if target[-1] == 1 and (source[-1] in (0, 1) or vectors):
        return rows
    turned = target[-1] == 1 and min(tall, last) >= _TILE_ROWS
    return moved // _TILE_BYTES if turned else size(dims)


def _computing(call: KernelCall) -> list[tuple[float, Any]]:
    times, stored = _TIMES.get(call.kernel, 1.0), []
    if call.kernel == "matmul":
        stored = [(_STORE_NS, call.outputs[0].type.size)]
        times = _FEW_ROWS if call.params["m"] < 4 else 1.0
    work = sized_work_of(call.node).items()
    return [*stored, *((_NS.get(kind, _OTHER_NS) * times, amount) for kind, amount in work)]
