"""The programs that an executable of a graph with dims keeps, and the params that they have in common."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

import numpy as np

from rlx.backends.executable import Binding, Executable, Moved, SizedProgram
from rlx.compiler.loading import LoadedGraph
from rlx.ir.opdef import Array

if TYPE_CHECKING:
    from rlx._ext.program import ServedProgram, SizedRuns, SizeSteps

Values = Mapping[str, int]


class SharedParams:
    """The params that the programs of an executable and of its clones have in common.

    Attributes:
        values: The last value of each param.
        count: How many values were set so far.
        set_at: By param, the count when its last value was set.
        readers: Compiled runs that look after new values first.
    """

    def __init__(self) -> None:
        self.values: dict[str, Array] = {}
        self.set_at: dict[str, int] = {}
        self.count = 0
        self.readers: WeakSet[SizedRuns] = WeakSet()

    def set(self, values: Mapping[str, Array]) -> None:
        """Keeps values."""
        self.count += 1
        for name, array in values.items():
            # Another object each time, which nobody writes to: a device that has this very object has the value.
            self.values[name] = array.copy() if _may_change(array) else array.view()
            self.values[name].flags.writeable = False
            self.set_at[name] = self.count
        for runs in tuple(self.readers):
            runs.stale()

    def since(self, count: int) -> dict[str, Array]:
        """Returns the values that were set later."""
        return {name: self.values[name] for name, at in self.set_at.items() if at > count}


def _may_change(array: Array) -> bool:
    """Returns whether an array, or one that it is a view of, can be written."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


class KeptProgram:
    """A program, which serves the sizes that it has now or a range of sizes.

    Attributes:
        serves: Tells whether it serves values of the dims, in their order; None for a program of single sizes.
        own: The same for the dims that vary in it.
        fixed: The values of the other dims.
        loaded: The lowered graph with its executable.
        params: How many values of params it has seen.
        binding: The binding that it has.
    """

    def __init__(
        self,
        sizes: Values,
        loaded: LoadedGraph,
        serves: SizeSteps | None = None,
        own: SizeSteps | None = None,
        fixed: Values = MappingProxyType({}),
    ) -> None:
        self._sizes, self.loaded, self.params, self.serves = sizes, loaded, 0, serves
        self.own, self.fixed = own, fixed
        self.binding = Binding()

    def clone(self) -> KeptProgram:
        """Returns a program with a clone of its executable."""
        loaded = self.loaded._replace(executable=self.executable.clone())
        result = KeptProgram(self.sizes, loaded, self.serves, self.own, self.fixed)
        result.params = self.params
        return result

    @property
    def executable(self) -> Executable:
        """Its executable."""
        return self.loaded.executable

    @property
    def sizes(self) -> Values:
        """The sizes that it has now."""
        if self.serves is None:
            return self._sizes
        return {**self.fixed, **cast(SizedProgram, self.executable).sizes}

    def compiled(self) -> ServedProgram | None:
        """Returns the compiled program of its runs; None where the device has none."""
        executable = self.executable
        able = executable.capabilities.sized_programs
        return cast(SizedProgram, executable).program(self.own) if able else None


def resize(program: KeptProgram, sizes: Values) -> Moved:
    """Gives a program of a range other sizes; returns the bytes that an executable moved which is closed for that."""
    executable, moved = cast(SizedProgram, program.executable), Moved(0, 0, 0)
    own = {name: size for name, size in sizes.items() if name not in program.fixed}
    if executable.fits(own):
        executable.resize(own)
    else:
        grown, moved = executable.grown(own), executable.moved()
        executable.close()
        program.loaded, program.binding = program.loaded._replace(executable=grown), Binding()
    return moved
