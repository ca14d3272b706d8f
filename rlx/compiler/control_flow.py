"""Loops and branches that the host runs: their subgraphs are compiled as any graph is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx._ext.locks import TryLock
from rlx.backends.executable import Executable, RunSlots
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.segments import Control
from rlx.errors import DeviceMemoryError, SizesError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.ops.interpret import count_trip
from rlx.sizes import value_of

Load = Callable[[Graph], LoadedGraph]


class _Subgraph:
    """A loaded subgraph, as a function of arrays.

    Args:
        loaded: The subgraph.
        names: The names of its inputs.
    """

    def __init__(self, loaded: LoadedGraph, names: tuple[str, ...]) -> None:
        self._loaded, self._names = loaded, names
        self._run_slots: RunSlots | None = None
        calls = loaded.executable.compiled(TryLock("a subgraph", ""), names)
        self._run_slots = calls and calls[0]
        self._outputs = range(len(loaded.lowered.graph.outputs))

    @property
    def executable(self) -> Executable:
        """Its executable."""
        return self._loaded.executable

    def clone(self) -> _Subgraph:
        """Returns the same on memory of its own."""
        return _Subgraph(self._loaded._replace(executable=self.executable.clone()), self._names)

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Runs it. The results are views, which its next run overwrites."""
        if self._run_slots is not None:
            return self._run_slots(*arrays)
        plain = [np.require(array, None, ["C", "A"]) for array in arrays]
        return self.executable.submit(plain, self._outputs, False).wait()


class LoadedControl(ABC):
    """A loop or a branch with its subgraphs.

    Args:
        control: The node.
        subgraphs: Its subgraphs.
    """

    def __init__(self, control: Control, subgraphs: Sequence[_Subgraph]) -> None:
        self.control, self.subgraphs = control, subgraphs

    def clone(self) -> LoadedControl:
        """Returns the same on memory of its own."""
        return type(self)(self.control, [subgraph.clone() for subgraph in self.subgraphs])

    def run(self, values: dict[int, Array], sizes: dict[str, int]) -> None:
        """Computes its results, and the dims that they show.

        Args:
            values: The values of nodes that are known; it adds to them.
            sizes: The values of dims that are known; it adds to them.
        """
        control = self.control
        shown = [np.empty((value_of(dim, sizes), 0), np.uint8) for dim in control.attrs["shown"]]
        results = self.compute([values[i] for i in control.operands], shown, sizes)
        for nodes, array in zip(control.results, results, strict=True):
            values.update(dict.fromkeys(nodes, array))
        for name, result, axis in control.shown:
            sizes[name] = results[result].shape[axis]

    @abstractmethod
    def compute(
        self, operands: Sequence[Array], shown: Sequence[Array], sizes: Mapping[str, int]
    ) -> Sequence[Array]:
        """Computes its results.

        Args:
            operands: Its operands.
            shown: Arrays that show dims.
            sizes: The values of dims.
        """


class _Branch(LoadedControl):
    def compute(
        self, operands: Sequence[Array], shown: Sequence[Array], sizes: Mapping[str, int]
    ) -> Sequence[Array]:
        condition, *rest = operands
        return self.subgraphs[0 if condition else 1]([*rest, *shown])


class _Loop(LoadedControl):
    def compute(
        self, operands: Sequence[Array], shown: Sequence[Array], sizes: Mapping[str, int]
    ) -> Sequence[Array]:
        attrs = self.control.attrs
        count, (body,) = attrs["state"], self.subgraphs
        limit, going, *rest = operands
        state, others = list(rest[:count]), [*rest[count:], *shown]
        shapes = attrs["results"][count:]
        stacks = [_Rows(_shape(shape, sizes), dtype.numpy) for shape, dtype in shapes]
        number, holds = np.array(0, np.int64), np.array(True)
        trip, trips, goes_on = 0, int(limit), bool(going)
        while goes_on and trip < trips:
            count_trip()
            number[()] = trip
            results = body([number, holds, *state, *others])
            goes_on = bool(results[0])
            # Copies: the next trip writes where these stand.
            state = [array.copy() for array in results[1 : count + 1]]
            for stack, array in zip(stacks, results[count + 1 :], strict=True):
                stack.append(array)
            trip += 1
        return [*state, *(stack.joined() for stack in stacks)]


def _shape(shape: Shape, sizes: Mapping[str, int]) -> Shape:
    """A shape of what one trip gives; sizes that no trip has told are 0."""
    return tuple(
        size if isinstance(size, int) else size.value(sizes) if size.names() <= sizes.keys() else 0
        for size in shape[1:]
    )


class _Rows:
    """The results of the trips of a loop, one after the other in an array that grows.

    Args:
        shape: The shape of each, where there is none.
        dtype: The dtype.
    """

    def __init__(self, shape: Shape, dtype: Any) -> None:
        self._count = 0
        self._rows: Array = np.empty((0, *shape), dtype)

    def append(self, array: Array) -> None:
        """Copies the result of a trip.

        Raises:
            DeviceMemoryError: There is no room for it.
            SizesError: It has another shape than that of the trip before.
        """
        rows = self._rows
        if self._count and rows.shape[1:] != array.shape:
            raise SizesError(
                "the trips of a loop give results of several shapes",
                got=array.shape,
                expected=rows.shape[1:],
            )
        if self._count == len(rows):
            try:
                more = np.empty((max(8, 2 * self._count), *array.shape), array.dtype)
            except MemoryError as error:
                raise DeviceMemoryError(
                    "the host has no room for the results of a loop", got=error
                ) from None
            if self._count:
                more[: self._count] = rows
            self._rows = rows = more
        rows[self._count] = array
        self._count += 1

    def joined(self) -> Array:
        """Returns them along a new first axis."""
        return self._rows[: self._count]


def loaded_control(control: Control, load: Load) -> LoadedControl:
    """Loads the subgraphs of a loop or a branch."""
    kinds: dict[str, type[LoadedControl]] = {"loop": _Loop, "branch": _Branch}
    graphs = [value for value in control.attrs.values() if isinstance(value, Graph)]
    subgraphs = [_Subgraph(load(graph), graph.input_names) for graph in graphs]
    return kinds[control.op](control, subgraphs)
