"""Params that are computed from other params once, when these are set, instead of in every run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.plan import Preparation
from rlx.ir.rewrite import joined
from rlx.threads import mapped

if TYPE_CHECKING:
    from rlx.compiler.lowered_module import LoweredModule

# Most bytes of all values of preparations that are computed at once: their memory comes on top of the weights.
_TOGETHER_BYTES = 128 << 20
ReadParam = Callable[[str], Array]


class ParamTransform(Protocol):
    """A translation from the params of a graph to those of its executable. Clones share it, as they share the params."""

    @property
    def nbytes(self) -> int:
        """Host memory held."""

    def apply(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the executable's params that have new values.

        Args:
            values: New values by name.
        """

    def read(self, name: str, read: ReadParam) -> Array:
        """Returns a copy of a param.

        Args:
            name: The param of the graph.
            read: Reads a param of the executable.
        """


class WeightCache(Protocol):
    """A store of precomputed params of the weights of one file."""

    def get(self, target: str, names: Sequence[str]) -> Mapping[str, Array] | None:
        """Returns params by name, for a target; None where they are not stored."""

    def put(self, target: str, values: Mapping[str, Array]) -> None:
        """Stores params."""


_caches: weakref.WeakKeyDictionary[Graph, WeightCache] = weakref.WeakKeyDictionary()


def use_weight_cache(graph: Graph, cache: WeightCache) -> None:
    """Stores the params that are precomputed from the values attached to a graph. Those values never change."""
    _caches[graph] = cache


def weight_cache_of(graph: Graph) -> WeightCache | None:
    """Returns the store of a graph's precomputed params; None where there is none."""
    return _caches.get(graph)


def shared_params(lowered: LoweredModule) -> dict[str, str]:
    """Returns a text for each param of a lowered graph: equal texts are equal values of the same params."""
    results = {name: f"param {name}" for name in lowered.graph.param_names}
    for preparation in lowered.preparations:
        for index, name in enumerate(preparation.names):
            results.pop(name, None)
            with suppress(OpaqueError):  # functions have no text
                results[name] = f"{index} of {content_hash(preparation.graph)}"
    return results


class PrecomputedParams:
    """Computes params on the CPU. It keeps the values that they are computed from, and those that nothing reads.

    Preparations are compiled when their params are complete, many at a time, and dropped when they have run: they need
    much memory, and weights are seldom set twice.

    Args:
        preparations: The computations.
        kept: The params of the executable.
        options: The options of the graph.
    """

    def __init__(
        self, preparations: Sequence[Preparation], kept: frozenset[str], options: CompileOptions
    ) -> None:
        self._kept, self._options = kept, options
        self._readers = {
            name: preparation
            for preparation in preparations
            for name in preparation.graph.input_names
        }
        self._constant = [
            preparation for preparation in preparations if not preparation.graph.input_names
        ]
        self._values: dict[str, Array] = {}
        self._cache: tuple[WeightCache, str] | None = None

    def constants(self) -> dict[str, Array]:
        """Returns the params that depend on no other param."""
        return self._compute(self._constant)

    def apply(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """See ``ParamTransform``."""
        result = {name: array for name, array in values.items() if name in self._kept}
        ready: dict[int, Preparation] = {}
        for name, array in values.items():
            if name in self._readers or name not in self._kept:
                self._values[name] = array.copy() if array.flags.writeable else array
        for name in values:
            reader = self._readers.get(name)
            if reader is not None and self._values.keys() >= set(reader.graph.input_names):
                ready[id(reader)] = reader
        return result | self._compute(ready.values())

    def read(self, name: str, read: ReadParam) -> Array:
        """See ``ParamTransform``."""
        return self._values[name].copy() if name in self._values else read(name)

    @property
    def nbytes(self) -> int:
        """Host memory held."""
        return sum(value.nbytes for value in self._values.values())

    @contextmanager
    def cached(self, cache: WeightCache | None, target: Callable[[], str]) -> Iterator[None]:
        """Takes params from a store inside the ``with``, and adds those that are missing there.

        Args:
            cache: The store of the values that are set; None for none.
            target: Returns a text of what the graph is compiled for.
        """
        if cache is None or not (self._readers or self._constant):
            yield
            return
        self._cache = cache, target()
        try:
            yield
        finally:
            self._cache = None

    def _compute(self, preparations: Iterable[Preparation]) -> dict[str, Array]:
        result: dict[str, Array] = {}
        for some in _together(preparations):
            names = [name for item in some for name in item.names]
            cache, target = self._cache or (None, "")
            values = None if cache is None else cache.get(target, names)
            if values is None:
                values = dict(zip(names, self._run(some), strict=True))
                if cache is not None:
                    cache.put(target, values)
            result |= values
        return result

    def _run(self, preparations: Sequence[Preparation]) -> list[Array]:
        from rlx.backends.host import compile_host

        graph = joined([preparation.graph for preparation in preparations])
        given = [self._values[name] for name in graph.input_names]
        # Those of a file may stand at any byte.
        aligned = partial(np.require, requirements=["C", "A"])
        arrays = mapped(aligned, given, sum(array.nbytes for array in given))
        executable = compile_host(graph, self._options)
        # No copies: the arrays keep the arena, which nothing else uses.
        return executable.submit(arrays, range(len(graph.outputs)), False).wait()


def _together(preparations: Iterable[Preparation]) -> Iterator[list[Preparation]]:
    """Groups preparations that are compiled as one graph: a compile costs more than the nodes of small ones."""
    some: list[Preparation] = []
    nbytes = 0
    for preparation in preparations:
        own = sum(type.nbytes for node in preparation.graph.nodes for type in node.types)
        if some and nbytes + own > _TOGETHER_BYTES:
            yield some
            some, nbytes = [], 0
        some.append(preparation)
        nbytes += own
    if some:
        yield some
