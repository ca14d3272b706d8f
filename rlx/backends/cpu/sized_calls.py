"""Kernel calls with sizes that are known only when the graph runs, and the parameters that change with these sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from rlx._ext.program import Calls
from rlx.abi import calls
from rlx.abi.kernels import KERNELS
from rlx.backends.cpu.elementwise_program import program_fields
from rlx.backends.sized_schedule import SizedSchedule, Sizes, at
from rlx.errors import UnknownSizeError
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import KernelCall, Schedule, Value
from rlx.sizes import SizeExpr
from rlx.sizes.program import compiled, upper_bound


class SizedCalls(SizedSchedule):
    """The calls of a schedule with dims: a static form for some sizes, and the parameters to write for others.

    Args:
        schedule: The calls.
        sizes: Values of dims.
        most: The largest values for which there is memory.
        loops: Addresses of the compiled loops.

    Attributes:
        static: The calls for those sizes. Scratch memory is that of the largest ones.

    Raises:
        UnknownSizeError: A call needs a size as a number, such as a Python function.
    """

    def __init__(
        self, schedule: Schedule, sizes: Sizes, most: Sizes, loops: Mapping[str, int]
    ) -> None:
        super().__init__(schedule, sizes, most)
        self._places: list[tuple[int, int, bool]] = []
        expressions: list[Any] = []
        for number, call in enumerate(schedule.calls):
            for word, expression, real in self._words(call, loops):
                self._places.append((number, word, real))
                expressions.append(expression)
        self._values = compiled(expressions, self.names)
        shared = ((number, self._rows(call)) for number, call in enumerate(schedule.calls))
        self._shared = [(number, word) for number, word in shared if word is not None]
        self.static = self._made_static(sizes)

    def again(self, sizes: Sizes, most: Sizes) -> Self:
        """Returns the same calls, made static for other sizes."""
        result = super().again(sizes, most)
        result.static = result._made_static(sizes)
        return result

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
            for v in self.schedule.values
        ]
        result = Schedule(values)
        for call in self.schedule.calls:
            signature = KERNELS.get(call.kernel)
            results = len(signature.writes) if signature is not None else len(call.outputs)
            for scratch in call.outputs[results:]:
                count = upper_bound(scratch.type.size, self.most)
                assert count is not None
                values[scratch.id].type = TensorType((max(count, 0),), scratch.type.dtype)
            params = {name: at(value, sizes) for name, value in call.params.items()}
            operands = tuple(None if v is None else values[v.id] for v in call.inputs)
            results_of = tuple(values[v.id] for v in call.outputs)
            made = operands, results_of, params, call.work, call.node, call.in_place, call.unit
            result.calls.append(KernelCall(call.kernel, *made))
        result.inputs = [values[v.id] for v in self.schedule.inputs]
        result.outputs = [values[v.id] for v in self.schedule.outputs]
        result.output_types = [
            TensorType(at(type.shape, sizes), type.dtype) for type in self.schedule.output_types
        ]
        result.params = {name: values[v.id] for name, v in self.schedule.params.items()}
        result.loops = list(self.schedule.loops)
        return result
