"""An executable with prepared params: computed once from other params, when these are set."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from rlx.backends.base import Capabilities, CompileOptions, Executable, set_params
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import Preparation
from rlx.ir.rewrite import joined

# Most bytes of all values of preparations that are computed at once: their memory comes on top of the weights.
_TOGETHER_BYTES = 16 << 20


class KeptParams(Protocol):
    """Where prepared params are kept that were computed from the weights of one file."""

    def get(self, target: str, names: Sequence[str]) -> Mapping[str, Array] | None:
        """Params by name, for a target; None where they are not there."""

    def put(self, target: str, values: Mapping[str, Array]) -> None:
        """Keeps params."""


_of_graphs: weakref.WeakKeyDictionary[Graph, KeptParams] = weakref.WeakKeyDictionary()


def keep_prepared(graph: Graph, kept: KeptParams) -> None:
    """Says where the params are kept that are prepared from the values attached to a graph, which stay as they are."""
    _of_graphs[graph] = kept


def prepared_of(graph: Graph) -> KeptParams | None:
    """Where the prepared params of a graph are kept; None for nowhere."""
    return _of_graphs.get(graph)


@contextmanager
def keeping(
    executable: Executable, kept: KeptParams | None, target: Callable[[], str]
) -> Iterator[None]:
    """Takes prepared params from where they are kept, and keeps those that are missing there.

    Args:
        executable: Its params are set inside this context, to the values that ``kept`` is for.
        kept: Where they are; None for nowhere.
        target: What the executable is for, as a text.
    """
    if kept is None or not isinstance(executable, PreparedExecutable):
        yield
        return
    preparing = executable.preparing
    preparing.kept_in = kept, target()
    try:
        yield
    finally:
        preparing.kept_in = None


class Preparing:
    """Computes prepared params on the CPU; keeps the values that they are computed from.

    Preparations are compiled when their params are complete, many at a time, and dropped when they have run: what they
    needed is large, and weights are seldom set twice.

    Args:
        preparations: What is computed.
        kept: Params that the executable reads as well.
        options: What the graph is compiled with.

    Attributes:
        reads: By name of a param, the preparation that reads it.
        kept_in: Where to look for what would be computed, and for which target; None for nowhere.
    """

    def __init__(
        self,
        preparations: Sequence[Preparation],
        kept: frozenset[str],
        options: CompileOptions,
    ) -> None:
        self.kept, self._options = kept, options
        self.reads = {name: one for one in preparations for name in one.graph.input_names}
        self._constant = [one for one in preparations if not one.graph.input_names]
        self._values: dict[str, Array] = {}
        self.kept_in: tuple[KeptParams, str] | None = None

    def given(self, values: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Takes values of params; gives the prepared params that have new ones, some at a time."""
        for name, array in values.items():
            self._values[name] = array.copy() if array.flags.writeable else array
        ready = {id(self.reads[name]): self.reads[name] for name in values}
        yield from self._run(
            one for one in ready.values() if self._values.keys() >= set(one.graph.input_names)
        )

    def at_once(self) -> Iterator[dict[str, Array]]:
        """Prepared params that depend on no other param, with their values, some at a time."""
        return self._run(self._constant)

    def _run(self, preparations: Iterable[Preparation]) -> Iterator[dict[str, Array]]:
        """What preparations give."""
        for some in _together(preparations):
            names = [name for one in some for name in one.names]
            kept, target = self.kept_in or (None, "")
            found = None if kept is None else kept.get(target, names)
            if found is None:
                found = dict(zip(names, self._computed(some), strict=True))
                if kept is not None:
                    kept.put(target, found)
            yield dict(found)

    def _computed(self, preparations: Sequence[Preparation]) -> list[Array]:
        from rlx.backends.host import compile_host

        graph = joined([one.graph for one in preparations])
        program = compile_host(graph, self._options)
        given = (self._values[name] for name in graph.input_names)
        return [np.asarray(value) for value in program.run_slots(*given)]

    def read(self, name: str) -> Array:
        """A param's value."""
        return self._values[name].copy()

    @property
    def nbytes(self) -> int:
        """Host memory held."""
        return sum(value.nbytes for value in self._values.values())


def _together(preparations: Iterable[Preparation]) -> Iterator[list[Preparation]]:
    """Preparations that are compiled as one graph: a compile costs more than the nodes of small ones."""
    some: list[Preparation] = []
    nbytes = 0
    for one in preparations:
        own = sum(type.nbytes for node in one.graph.nodes for type in node.types)
        if some and nbytes + own > _TOGETHER_BYTES:
            yield some
            some, nbytes = [], 0
        some.append(one)
        nbytes += own
    if some:
        yield some


class PreparedExecutable:
    """An executable with prepared params, which callers see with the original ones.

    Args:
        inner: The executable, which knows the prepared ones.
        preparing: Computes those; clones share it, as they share the params.
    """

    def __init__(self, inner: Executable, preparing: Preparing) -> None:
        self._inner, self.preparing = inner, preparing
        self.capabilities: Capabilities = inner.capabilities

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def run_slots(self) -> Callable[..., tuple[Array, ...]]:
        """The inner executable's: prepared params add no cost to runs."""
        return self._inner.run_slots

    def set_param(self, name: str, array: Array) -> None:
        """Uploads a weight, and what is computed from it."""
        self.set_params({name: array})

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Sets several weights and recomputes what depends on them. Every run sees all new values or none."""
        preparing = self.preparing
        found = {
            name: array
            for name, array in values.items()
            if name not in preparing.reads or name in preparing.kept
        }
        read = {name: array for name, array in values.items() if name in preparing.reads}
        for made in preparing.given(read):
            found |= made
        set_params(self._inner, found)

    def read_param(self, name: str) -> Array:
        """The weight as it was set."""
        if name in self.preparing.reads:
            return self.preparing.read(name)
        return self._inner.read_param(name)

    def clone(self) -> PreparedExecutable:
        """The same on an arena of its own."""
        return PreparedExecutable(self._inner.clone(), self.preparing)

    def memory(self) -> dict[str, int]:
        """With the host memory of what was prepared from, as ``prepared``."""
        return {**self._inner.memory(), "prepared": self.preparing.nbytes}
