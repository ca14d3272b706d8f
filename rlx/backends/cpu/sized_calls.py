"""Kernel calls with sizes that are known only when the graph runs, and the parameters that change with these sizes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from rlx._ext.program import Calls
from rlx.abi import calls
from rlx.abi.kernels import KERNELS
from rlx.backends.cpu.elementwise_program import program_fields
from rlx.errors import UnknownSizeError
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import KernelCall, MemoryPlan, Schedule, Value
from rlx.passes.memory_plan import plan_memory
from rlx.sizes import Assumptions, Ratio, SizeExpr, deciding
from rlx.sizes.program import compiled, upper_bound

Sizes = Mapping[str, int]


def at(value: Any, sizes: Sizes) -> Any:
    """A size, or a tuple of sizes, for values of dims; anything else as it is."""
    if isinstance(value, SizeExpr | Ratio):
        return value.value(sizes)
    return tuple(at(item, sizes) for item in value) if isinstance(value, tuple | list) else value


class SizedCalls:
    """The calls of a schedule with dims: a static form for some sizes, and the parameters to write for others.

    Args:
        schedule: The calls.
        sizes: Values of dims.
        most: The largest values for which there is memory.
        loops: Addresses of the compiled loops.

    Attributes:
        static: The calls for those sizes. Scratch memory is that of the largest ones.
        names: The dims.
        sizes: The sizes that were written last.

    Raises:
        UnknownSizeError: A call needs a size as a number, such as a Python function.
    """

    def __init__(
        self, schedule: Schedule, sizes: Sizes, most: Sizes, loops: Mapping[str, int]
    ) -> None:
        self.names, self.sizes = tuple(sizes), dict(sizes)
        self._schedule, self._most = schedule, most
        self._places: list[tuple[int, int, bool]] = []
        expressions: list[Any] = []
        for number, call in enumerate(schedule.calls):
            for word, expression, real in self._words(call, loops):
                self._places.append((number, word, real))
                expressions.append(expression)
        self._values = compiled(expressions, self.names)
        shared = ((number, self._rows(call)) for number, call in enumerate(schedule.calls))
        self._shared = [(number, word) for number, word in shared if word is not None]
        self._types = [*(v.type for v in schedule.inputs), *schedule.output_types]
        self.static = self._made_static(sizes)

    def again(self, sizes: Sizes, most: Sizes) -> SizedCalls:
        """Returns the same calls, made static for other sizes."""
        result = copy.copy(self)
        result.sizes, result._most = dict(sizes), most
        result.static = result._made_static(sizes)
        return result

    def plan(self, alignment: int) -> MemoryPlan:
        """Plans the arena for the largest sizes."""
        return plan_memory(self._schedule, alignment, nbytes_of=self._nbytes)

    def _nbytes(self, value: Value) -> int:
        """The bytes of a value at the largest sizes.

        Raises:
            UnknownSizeError: There is no bound.
        """
        result = upper_bound(value.type.nbytes, self._most)
        if result is None:
            raise UnknownSizeError(f"the bytes of {value.name!r} have no bound", got=value.type)
        return max(result, 0)

    def fits(self, sizes: Sizes) -> bool:
        """Returns whether there is memory for some sizes."""
        return all(sizes[name] <= self._most[name] for name in sizes)

    def more(self, sizes: Sizes) -> SizedCalls:
        """Returns the calls for some sizes, with memory for these and half as much again."""
        most = {name: max(self._most[name], sizes[name] + sizes[name] // 2) for name in sizes}
        return self.again(sizes, most)

    def estimating(self) -> AbstractContextManager[None]:
        """Has estimates of work, which read the graph's nodes, take the sizes that were written last."""
        return deciding(Assumptions(self.sizes))

    def types(self, sizes: Sizes) -> list[TensorType]:
        """The types of the inputs, then of the outputs."""
        return [TensorType(at(type.shape, sizes), type.dtype) for type in self._types]

    def write(self, sizes: Sizes, words: Sequence[Array], linked: Calls) -> None:
        """Writes the parameters for some sizes.

        Args:
            sizes: Values of dims.
            words: The words of each call's parameters.
            linked: The calls.
        """
        self.sizes = dict(sizes)
        values = self._values(*(sizes[name] for name in self.names))
        for (number, word, real), value in zip(self._places, values, strict=True):
            (words[number].view(np.float64) if real else words[number])[word] = value
        for number, rows in self._shared:
            linked.set_rows(number, int(words[number][rows]))

    def _words(self, call: KernelCall, loops: Mapping[str, int]) -> list[tuple[int, Any, bool]]:
        """The words of a call's parameters that depend on dims, and their expressions."""
        if call.kernel == "python":
            types = (value.type for value in (*call.inputs, *call.outputs) if value is not None)
            if any(isinstance(size, SizeExpr) for type in types for size in type.shape):
                raise UnknownSizeError("a Python function takes arrays of known sizes alone")
            return []
        params = program_fields(call, loops) if call.kernel == "elementwise" else call.params
        return calls.sized_words(calls.kernel(call.kernel), params)

    def _rows(self, call: KernelCall) -> int | None:
        """The word that counts the rows that threads share; None where they share none, or always the same.

        Raises:
            UnknownSizeError: The rows have an unknown length.
        """
        signature = KERNELS.get(call.kernel)
        parallel = signature.parallel if signature is not None else None
        if signature is None or parallel is None or not parallel.widths:
            return None
        widths = (
            item for operands in parallel.widths(calls.fields(call.params)) for item in operands
        )
        if any(isinstance(width, SizeExpr) for width in widths):
            raise UnknownSizeError("threads share rows of known lengths", where=call.node.where())
        rows = call.params[parallel.rows]
        return signature.offset(parallel.rows) if isinstance(rows, SizeExpr) else None

    def _made_static(self, sizes: Sizes) -> Schedule:
        """The schedule with numbers in place of dims."""
        values = [
            Value(v.id, TensorType(at(v.type.shape, sizes), v.type.dtype), v.kind, v.name, v.array)
            for v in self._schedule.values
        ]
        result = Schedule(values)
        for call in self._schedule.calls:
            signature = KERNELS.get(call.kernel)
            results = len(signature.writes) if signature is not None else len(call.outputs)
            for scratch in call.outputs[results:]:
                count = upper_bound(scratch.type.size, self._most)
                assert count is not None
                values[scratch.id].type = TensorType((max(count, 0),), scratch.type.dtype)
            params = {name: at(value, sizes) for name, value in call.params.items()}
            operands = tuple(None if v is None else values[v.id] for v in call.inputs)
            results_of = tuple(values[v.id] for v in call.outputs)
            made = operands, results_of, params, call.work, call.node, call.in_place, call.unit
            result.calls.append(KernelCall(call.kernel, *made))
        result.inputs = [values[v.id] for v in self._schedule.inputs]
        result.outputs = [values[v.id] for v in self._schedule.outputs]
        result.output_types = [
            TensorType(at(type.shape, sizes), type.dtype) for type in self._schedule.output_types
        ]
        result.params = {name: values[v.id] for name, v in self._schedule.params.items()}
        result.loops = list(self._schedule.loops)
        return result
