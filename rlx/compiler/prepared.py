"""An executable with prepared params: computed once from other params, when these are set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends.base import Capabilities, CompileOptions, Executable, set_params
from rlx.backends.host import compile_host
from rlx.ir.opdef import Array
from rlx.passes.hoist import Preparation


class Preparing:
    """Computes prepared params on the CPU; keeps the values that they are computed from.

    Each preparation is compiled when its params are complete and dropped when it has run: what it needed
    is large, and weights are seldom set twice.

    Args:
        preparations: What is computed.
        kept: Params that the executable reads as well.
        options: What the graph is compiled with.

    Attributes:
        reads: By name of a param, the preparation that reads it.
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

    def given(self, name: str, array: Array) -> list[tuple[str, Array]]:
        """Takes a param's value; returns the prepared params that have a new one."""
        self._values[name] = array.copy() if array.flags.writeable else array
        one = self.reads[name]
        needed = one.graph.input_names
        if any(other not in self._values for other in needed):
            return []
        program = compile_host(one.graph, self._options)
        found = program.run_slots(*(self._values[other] for other in needed))
        return list(zip(one.names, found, strict=True))

    def at_once(self) -> list[tuple[str, Array]]:
        """Prepared params that depend on no other param, with their values."""
        found: list[tuple[str, Array]] = []
        for one in self._constant:
            program = compile_host(one.graph, self._options)
            found += zip(one.names, program.run_slots(), strict=True)
        return found

    def read(self, name: str) -> Array:
        """A param's value."""
        return self._values[name].copy()

    @property
    def nbytes(self) -> int:
        """Host memory held."""
        return sum(value.nbytes for value in self._values.values())


class PreparedExecutable:
    """An executable with prepared params, which callers see with the original ones.

    Args:
        inner: The executable, which knows the prepared ones.
        preparing: Computes those; clones share it, as they share the params.
    """

    def __init__(self, inner: Executable, preparing: Preparing) -> None:
        self._inner, self._preparing = inner, preparing
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
        preparing = self._preparing
        found = {}
        for name, array in values.items():
            if name not in preparing.reads or name in preparing.kept:
                found[name] = array
            if name in preparing.reads:
                made = preparing.given(name, array)
                found |= {prepared: np.asarray(value) for prepared, value in made}
        set_params(self._inner, found)

    def read_param(self, name: str) -> Array:
        """The weight as it was set."""
        if name in self._preparing.reads:
            return self._preparing.read(name)
        return self._inner.read_param(name)

    def clone(self) -> PreparedExecutable:
        """The same on an arena of its own."""
        return PreparedExecutable(self._inner.clone(), self._preparing)

    def memory(self) -> dict[str, int]:
        """With the host memory of what was prepared from, as ``prepared``."""
        return {**self._inner.memory(), "prepared": self._preparing.nbytes}
