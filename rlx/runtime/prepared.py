"""An executable some of whose params are computed from others when those are set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.backends.base import Capabilities, Executable
from rlx.backends.host import compile_host
from rlx.ir.opdef import Array
from rlx.passes.hoist import Preparation


class Preparing:
    """Preparations compiled for the CPU, with the values of the params that they read.

    Args:
        preparations: What is computed.
        kept: Params that the executable reads as well.

    Attributes:
        reads: By name of a param, the preparation that reads it.
    """

    def __init__(self, preparations: Sequence[Preparation], kept: frozenset[str]) -> None:
        self.kept = kept
        self.reads: dict[str, int] = {}
        self._names = [one.names for one in preparations]
        self._programs = [compile_host(one.graph) for one in preparations]
        self._inputs = [one.graph.input_names for one in preparations]
        self._missing = [set(one.graph.input_names) for one in preparations]
        for at, one in enumerate(preparations):
            self.reads |= dict.fromkeys(one.graph.input_names, at)

    def given(self, name: str, array: Array) -> list[tuple[str, Array]]:
        """Takes a param's value; returns the prepared params that have a new one."""
        at = self.reads[name]
        program = self._programs[at]
        program.write_input(self._inputs[at].index(name), array)
        self._missing[at].discard(name)
        if self._missing[at]:
            return []
        return list(zip(self._names[at], program.run_slots(), strict=True))

    def read(self, name: str) -> Array:
        """A param's value."""
        at = self.reads[name]
        return self._programs[at].read_input(self._inputs[at].index(name))

    @property
    def nbytes(self) -> int:
        """Host memory held."""
        return sum(program.memory()["peak"] for program in self._programs)


class PreparedExecutable:
    """The executable, with the original params to the outside.

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
        """The executable's own: preparing costs runs nothing."""
        return self._inner.run_slots

    def set_param(self, name: str, array: Array) -> None:
        """Uploads a weight, and what is computed from it."""
        preparing = self._preparing
        if name not in preparing.reads or name in preparing.kept:
            self._inner.set_param(name, array)
        if name in preparing.reads:
            for prepared, value in preparing.given(name, array):
                self._inner.set_param(prepared, np.asarray(value))

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
