"""A schedule with sizes that are known only when the graph runs: its types for values of dims, and its plan of memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from operator import is_not
from typing import Any, Self

from rlx._ext.program import RunSizes
from rlx.errors import UnknownSizeError
from rlx.ir.input_sizes import shown_by
from rlx.ir.opdef import TensorType
from rlx.ir.plan import MemoryPlan, Schedule, Value
from rlx.passes.memory_plan import plan_memory
from rlx.sizes import Assumptions, Ratio, SizeExpr, deciding, dims_of
from rlx.sizes.program import SizeProgram, upper_bound

Sizes = Mapping[str, int]


def at(value: Any, sizes: Sizes) -> Any:
    """A size, or a tuple of sizes, for values of dims; anything else as it is."""
    if isinstance(value, SizeExpr | Ratio):
        return value.value(sizes)
    if not isinstance(value, tuple | list):
        return value
    result = tuple([at(item, sizes) for item in value])
    return result if any(map(is_not, result, value)) else value


def static_type(type: TensorType, sizes: Sizes) -> TensorType:
    """A type for values of dims."""
    return TensorType(at(type.shape, sizes), type.dtype)


class SizedSchedule:
    """A schedule with dims, for some values of these, and with memory for larger ones.

    Args:
        schedule: The calls.
        sizes: Values of dims.
        most: The largest values for which there is memory.

    Attributes:
        schedule: The calls.
        names: The dims.
        sizes: The values that were written last.
        most: The largest values for which there is memory.
    """

    def __init__(self, schedule: Schedule, sizes: Sizes, most: Sizes) -> None:
        self.schedule, self.most = schedule, most
        self.names, self.sizes = tuple(sizes), dict(sizes)
        self._bounds: dict[TensorType, int] = {}
        self._types = [*(v.type for v in schedule.inputs), *schedule.output_types]

    def again(self, sizes: Sizes, most: Sizes) -> Self:
        """Returns the same calls for other sizes, with memory for others."""
        result = copy.copy(self)
        result.sizes, result.most, result._bounds = dict(sizes), most, {}
        return result

    def plan(self, alignment: int) -> MemoryPlan:
        """Plans the arena for the largest sizes."""
        return plan_memory(self.schedule, alignment, nbytes_of=self.nbytes)

    def nbytes(self, value: Value) -> int:
        """The bytes of a value at the largest sizes.

        Raises:
            UnknownSizeError: There is no bound.
        """
        if value.type not in self._bounds:
            result = upper_bound(value.type.nbytes, self.most)
            if result is None:
                raise UnknownSizeError(f"the bytes of {value.name!r} have no bound", got=value.type)
            self._bounds[value.type] = max(result, 0)
        return self._bounds[value.type]

    def fits(self, sizes: Sizes) -> bool:
        """Returns whether there is memory for some sizes."""
        return all(sizes[name] <= self.most[name] for name in sizes)

    def more(self, sizes: Sizes) -> Self:
        """Returns the calls for some sizes, with memory for larger ones."""
        larger = self.roomy(self.schedule, sizes)
        return self.again(sizes, {name: max(self.most[name], larger[name]) for name in sizes})

    @staticmethod
    def roomy(schedule: Schedule, sizes: Sizes) -> Sizes:
        """Returns the sizes that memory is planned for where some are met: half as much again."""
        return {name: size + size // 2 for name, size in sizes.items()}

    def estimating(self) -> AbstractContextManager[None]:
        """Has estimates of work, which read the graph's nodes, take the sizes that were written last."""
        return deciding(Assumptions(self.sizes))

    def types(self, sizes: Sizes) -> list[TensorType]:
        """The types of the inputs, then of the outputs."""
        return [static_type(type, sizes) for type in self._types]

    def _run_sizes(self, program: SizeProgram) -> RunSizes:
        """Returns the sizes of a run, which the shapes of inputs show, and a table of a program of numbers for them.

        Raises:
            SizesError: A number that depends on sizes does not fit 64 bits.
        """
        added = [program.add(size) for type in self._types for size in type.shape]
        axes = [program.place(each).above for each in added]
        ranks = [len(value.type.shape) for value in self.schedule.inputs]
        sizes = [self.sizes[name] for name in self.names]
        return RunSizes(program.steps(), sizes, ranks, axes, self._shown())

    def _shown(self) -> list[tuple[int, ...]]:
        """The axis that shows each dim, with the values that there is memory for, as ``RunSizes`` takes it."""
        types = [value.type for value in self.schedule.inputs]
        sizes: list[Any] = [size for type in types for size in type.shape]
        dims = {d.name: d for size in sizes if isinstance(size, SizeExpr) for d in dims_of(size)}
        axes = shown_by(types)
        results: list[tuple[int, ...]] = []
        for name in self.names:
            (index, axis, factor, more), dim = axes[name][0], dims[name]
            most = self.most[name] if dim.max is None else min(dim.max, self.most[name])
            results.append((index, axis, more, dim.multiple_of, factor, dim.min, most))
        return results
