"""Kernel calls with sizes that are known only when the graph runs, and the parameters that change with these sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import is_
from typing import Any, Self

from rlx._ext.program import RunSizes, SizeSteps
from rlx.abi import calls
from rlx.abi.kernels import KERNELS
from rlx.backends.cpu.elementwise_program import program_fields
from rlx.backends.cpu.linker import Share
from rlx.backends.cpu.split import flushes, split_of
from rlx.backends.sized_schedule import SizedSchedule, Sizes, at, static_type
from rlx.errors import UnknownSizeError
from rlx.ir.opdef import TensorType
from rlx.ir.plan import ARENA, KernelCall, Schedule, Value
from rlx.sizes import Assumptions, SizeExpr, deciding
from rlx.sizes.program import SizeProgram, upper_bound

# Bytes that values for larger sizes than those met may have.
_ROOM = 1 << 30
# A number that depends on sizes: call, field of its split or "", word, register, and the register of a denominator or -1.
SizedPlace = tuple[int, str, int, int, int]


class SizedCalls(SizedSchedule):
    """The calls of a schedule with dims: a static form for some sizes, and the numbers to write for others.

    Args:
        schedule: The calls.
        sizes: Values of dims.
        most: The largest values for which there is memory.
        loops: Addresses of the compiled loops.
        threads: Threads that may make a call together.
        flush: Whether subnormal operands count as 0 where kernels allow it.

    Attributes:
        static: The calls for those sizes. Scratch memory is that of the largest ones.
        table: Computes the numbers, and the sizes of inputs and outputs.
        places: Where the numbers are written.
        run_sizes: The sizes of runs.
        shares: The split of each call, and whether it flushes subnormal operands.

    Raises:
        UnknownSizeError: A call needs a size as a number, such as a Python function.
    """

    table: SizeSteps
    places: list[SizedPlace]
    run_sizes: RunSizes
    shares: list[Share]

    def __init__(
        self,
        schedule: Schedule,
        sizes: Sizes,
        most: Sizes,
        loops: Mapping[str, int],
        threads: int,
        flush: bool,
    ) -> None:
        super().__init__(schedule, sizes, most)
        self._threads, self._flush = threads, flush
        # The structs of calls are made for all sizes: those of some sizes alone may have fewer words.
        self._params = [_fields(call, loops) for call in schedule.calls]
        self._make(sizes)

    def again(self, sizes: Sizes, most: Sizes) -> Self:
        """Returns the same calls, made static for other sizes."""
        result = super().again(sizes, most)
        result._make(sizes)
        return result

    def _make(self, sizes: Sizes) -> None:
        """Makes the static form and the program of the numbers."""
        self.static = self._made_static(sizes)
        self.shares = []
        program = SizeProgram(self.names)
        added: list[Any] = []
        known: dict[Any, Share] = {}
        with deciding(Assumptions(self.sizes)):
            for number, call in enumerate(self.schedule.calls):
                words = calls.sized_words(calls.kernel(call.kernel), self._params[number])
                added += [(number, "", word, program.add(*item)) for word, *item in words]
                fields = self._share(call, self.static.calls[number], known)
                added += [(number, name, i, program.add(item)) for name, i, item in fields]
        self.run_sizes = self._run_sizes(program)
        self.places = [(*place, *program.place(each)) for *place, each in added]
        self.table = self.run_sizes.table

    def _share(
        self, call: KernelCall, static: KernelCall, known: dict[Any, Share]
    ) -> list[tuple[str, int, Any]]:
        """Notes the split of a call, like that of an equal one; returns the fields that depend on sizes."""
        signature = KERNELS.get(call.kernel)
        results = len(signature.writes) if signature is not None else len(call.outputs)
        # Each thread has scratch memory for the largest sizes.
        outputs = *call.outputs[:results], *static.outputs[results:]
        types = [str(value and value.type) for value in (*call.inputs, *outputs)]
        # Layers of a model repeat themselves. Sizes are compared as text, since nothing is decided about them.
        key = call.kernel, call.node.op, repr(call.params), *types
        if key not in known:
            like = KernelCall(call.kernel, call.inputs, outputs, call.params, 0, call.node)
            known[key] = split_of(like, self._threads), flushes(like) if self._flush else 0
        split, flush = known[key]
        fields = [] if split is None else list(split.sized())
        if isinstance(flush, SizeExpr):
            fields.append(("flush", 0, flush))
            flush = 1
        self.shares.append((split and split.linked(), flush))
        return fields

    def more(self, sizes: Sizes) -> Self:
        """Returns the calls for some sizes, with memory for larger ones.

        Raises:
            SizesError: A number that depends on sizes does not fit 64 bits.
        """
        self.table.numbers((), *(sizes[name] for name in self.names))
        return super().more(sizes)

    @staticmethod
    def roomy(schedule: Schedule, sizes: Sizes) -> Sizes:
        """Returns sizes for sixteen times the memory; for four times where that is more than programs usually have.

        Memory that no run touches costs addresses alone, and to grow takes as long as many runs.
        """
        types = Counter(value.type for value in schedule.values if value.kind in ARENA)
        count = max(1, len(sizes))
        for each in (max(4.0, 16.0 ** (1 / count)), 4.0, 4.0 ** (1 / count)):
            most = {name: int(size * each) for name, size in sizes.items()}
            bounds = {type: upper_bound(type.nbytes, most) for type in types}
            if sum(count * (bounds[type] or 0) for type, count in types.items()) <= _ROOM:
                break
        return most

    def _made_static(self, sizes: Sizes) -> Schedule:
        """The schedule with numbers in place of dims."""
        types = {v.type: static_type(v.type, sizes) for v in self.schedule.values}
        values = [Value(v.id, types[v.type], v.kind, v.name, v.array) for v in self.schedule.values]
        result = Schedule(values)
        for call, fields in zip(self.schedule.calls, self._params, strict=True):
            signature = KERNELS.get(call.kernel)
            results = len(signature.writes) if signature is not None else len(call.outputs)
            for scratch in call.outputs[results:]:
                count = upper_bound(scratch.type.size, self.most)
                assert count is not None
                values[scratch.id].type = TensorType((max(count, 0),), scratch.type.dtype)
            params: Mapping[str, Any] = {name: at(value, sizes) for name, value in fields.items()}
            if all(map(is_, params.values(), fields.values())):
                params = fields  # most calls; a model has thousands
            operands = tuple(None if v is None else values[v.id] for v in call.inputs)
            results_of = tuple(values[v.id] for v in call.outputs)
            made = operands, results_of, params, call.work, call.node, call.in_place, call.unit
            result.calls.append(KernelCall(call.kernel, *made))
        result.inputs = [values[v.id] for v in self.schedule.inputs]
        result.outputs = [values[v.id] for v in self.schedule.outputs]
        result.output_types = [static_type(type, sizes) for type in self.schedule.output_types]
        result.params = {name: values[v.id] for name, v in self.schedule.params.items()}
        result.loops = list(self.schedule.loops)
        return result


def _fields(call: KernelCall, loops: Mapping[str, int]) -> Mapping[str, Any]:
    """The parameters of a call as its struct has them.

    Raises:
        UnknownSizeError: It is a Python function on arrays of unknown sizes.
    """
    if call.kernel == "python":
        types = (value.type for value in (*call.inputs, *call.outputs) if value is not None)
        if any(isinstance(size, SizeExpr) for type in types for size in type.shape):
            raise UnknownSizeError("a Python function takes arrays of known sizes alone")
    return program_fields(call, loops) if call.kernel == "elementwise" else call.params
