"""The kernels of a schedule with dims: one text for all sizes, the sizes that it reads, and the workgroups for some sizes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Self

from rlx.backends.base import DeviceInfo
from rlx.backends.sized_schedule import SizedSchedule, Sizes
from rlx.backends.webgpu.codegen import SizedTexts, rendered
from rlx.backends.webgpu.dispatch import Dispatch
from rlx.backends.webgpu.submission import BoundSizes
from rlx.ir.opdef import TensorType
from rlx.ir.plan import ARENA, Schedule, Value
from rlx.sizes import Assumptions, SizeExpr, deciding, dims_of, is_steady
from rlx.sizes.program import SizeProgram, upper_bound

# Bytes that values for sizes above those met may have in any case, and by the bytes of those met.
_ROOM, _SHARE = 1 << 24, 1.1
# More bytes for larger sizes of a dim that is 1: its program is seldom used for others.
_ROOM_OF_ONE = 1 << 20


class SizedKernels(SizedSchedule):
    """The kernels of a schedule with dims.

    Args:
        schedule: The calls.
        sizes: Values of dims. What is decided for them while kernels are rendered is a guard of the assumptions under way.
        info: The device.
        alignment: Every offset in the arena is a multiple of it.

    Attributes:
        arena: Where values live; there is memory for the largest sizes.
        work: Dispatches, and calls on the host, in order.

    Raises:
        UnknownSizeError: A kernel needs a size as a number, or the bytes of a value have no bound.
    """

    def __init__(self, schedule: Schedule, sizes: Sizes, info: DeviceInfo, alignment: int) -> None:
        super().__init__(schedule, sizes, with_room(schedule, sizes))
        self._first, self._info, self._alignment = dict(sizes), info, alignment
        self._steady = is_steady()
        self._texts = SizedTexts(self.names)
        self._render()

    @staticmethod
    def roomy(schedule: Schedule, sizes: Sizes) -> Sizes:
        """Returns sizes half as large again, and larger ones of dims that need little memory."""
        return with_room(schedule, SizedSchedule.roomy(schedule, sizes))

    def again(self, sizes: Sizes, most: Sizes) -> Self:
        """Returns the same kernels for other sizes, with memory for others."""
        result = super().again(sizes, most)
        result._texts = self._texts.copy()
        with deciding(Assumptions(self._first, steady=self._steady)):
            result._render()
        return result

    def _render(self) -> None:
        self.arena = self.plan(self._alignment)
        self._bound_as = [self._largest(value) for value in self.schedule.values]
        self.work = rendered(self._info, self.schedule, self.arena, self._texts, self._bound_as)
        self._texts.table.check()

    def _largest(self, value: Value) -> Value:
        """A value as it is bound: as many elements as it has at most."""
        if value.kind not in ARENA:
            return value
        count = self.nbytes(value) // value.type.dtype.itemsize
        return Value(value.id, TensorType((count,), value.type.dtype), value.kind, value.name)

    @property
    def sizes_nbytes(self) -> int:
        """Bytes of the buffer of sizes."""
        return self._texts.table.nbytes

    def bound(self, buffer: Any) -> BoundSizes:
        """Returns what depends on sizes, with the buffer that dispatches read them from.

        Raises:
            SizesError: A number that depends on sizes does not fit 64 bits.
        """
        program = SizeProgram(self.names)
        added = self._texts.table.added(program)
        items = {id(item): item for item in self.work if isinstance(item, Dispatch)}
        grids = {key: [program.add(size) for size in item.grid] for key, item in items.items()}
        nbytes = [
            program.add(type.nbytes) if isinstance(type.nbytes, SizeExpr) else None
            for type in self._types
        ]
        sizes, count = self._run_sizes(program), len(self.schedule.inputs)

        def place(register: Any) -> int:
            return -1 if register is None else program.place(register).above

        words = [(place(above), place(below)) for above, below in added]
        pairs = {key: (place(x), place(y)) for key, (x, y) in grids.items()}
        registers = [place(register) for register in nbytes]
        return BoundSizes(
            buffer, self.sizes_nbytes, sizes, words, pairs, registers[:count], registers[count:]
        )

    def static(self, sizes: Sizes) -> Schedule:
        """The schedule with the types that inputs and outputs have for some sizes, and other values as they are bound."""
        source, types = self.schedule, self.types(sizes)
        count = len(source.inputs)
        result = Schedule(self._bound_as, source.calls)
        result.inputs = [
            Value(value.id, type, value.kind, value.name)
            for value, type in zip(source.inputs, types[:count], strict=True)
        ]
        result.outputs = [self._bound_as[value.id] for value in source.outputs]
        result.output_types = types[count:]
        result.params = source.params
        return result


def with_room(schedule: Schedule, sizes: Sizes) -> Sizes:
    """Returns sizes, those of dims as large as they may be, or several times as large, that need little more memory.

    To grow takes as long as many runs, and a dim that hardly needs memory, such as a position, grows run by run.
    """
    types = Counter(value.type for value in schedule.values if value.kind in ARENA)
    shapes: list[tuple[Any, ...]] = [type.shape for type in types]
    all_sizes = [size for shape in shapes for size in shape if isinstance(size, SizeExpr)]
    highest = {dim.name: dim.max for size in all_sizes for dim in dims_of(size)}

    def nbytes(most: Sizes) -> tuple[int, int]:
        """The bytes of all values, and of the largest one: not all of them have memory at the same time."""
        bounds = [(upper_bound(type.nbytes, most) or 0, count) for type, count in types.items()]
        return sum(bound * count for bound, count in bounds), max(bounds, default=(0, 0))[0]

    result = dict(sizes)
    now = nbytes(result)
    limits = [max(_ROOM, _SHARE * number) for number in now]
    for name, size in sizes.items():
        largest = highest.get(name)
        for each in (largest, 16 * size, 4 * size):
            if each is None or each <= size:
                continue
            needed = nbytes({**result, name: each})
            if size == 1 and needed[0] > now[0] + _ROOM_OF_ONE:
                continue
            if all(number <= limit for number, limit in zip(needed, limits, strict=True)):
                result[name] = each
                break
    return result
