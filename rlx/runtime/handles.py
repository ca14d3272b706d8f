"""Handles: inputs that keep their value from run to run, in host or device memory, and outputs that feed them.

An input has memory of its own for as long as the executable lives. A handle is that memory with a value
that stays: runs take no argument for it, and after each run it may take over an output without the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlx._ext.owner import Owner
from rlx.backends.base import Executable
from rlx.errors import InputError, UnknownNameError, describe, did_you_mean
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.runtime.fit import fit
from rlx.runtime.owning import owned


class Handles:
    """The part of ``CompiledGraph`` that deals with handles."""

    __slots__ = ()

    _executable: Executable
    _graph: Graph
    _owner: Owner
    _names: tuple[str, ...]
    _bound: dict[str, str]
    _feeds: dict[int, int]

    # What CompiledGraph itself has.
    if TYPE_CHECKING:

        def _open(self) -> None: ...

        def _run_read_outputs(self, inputs: Mapping[str, Any], indices: Any) -> list[Array]: ...

    @owned
    def bind_handle(self, name: str, array: Any) -> None:
        """Gives an input a value that feeds every later run, in host-visible memory.

        Args:
            name: An input of the graph; runs no longer take it.
            array: Its value.

        Raises:
            UnknownNameError: The graph has no input of that name.
            InputError: The array does not fit.
        """
        self._bind(name, array, "host")

    @owned
    def bind_gpu_handle(self, name: str, array: Any) -> None:
        """``bind_handle`` with the value resident on the device: no run uploads it again."""
        self._bind(name, array, "device")

    @owned
    def read_handle(self, name: str) -> Array:
        """The value that a handle holds now.

        Raises:
            InputError: No handle is bound to that input.
        """
        return self._executable.read_input(self._handle(name))

    @owned
    def read_gpu_handle(self, name: str) -> Array:
        """The value that a device handle holds now: the one read-back that it costs."""
        return self._executable.read_input(self._handle(name))

    def has_gpu_handle(self, name: str) -> bool:
        """Whether an input is a device handle."""
        self._input(name)
        return self._bound.get(name) == "device"

    @owned
    def set_gpu_handle_feed(self, name: str, out_idx: int) -> None:
        """After each run a handle takes an output, on the device.

        Args:
            name: A bound handle.
            out_idx: An output of its shape and dtype.

        Raises:
            InputError: There is no such handle or output, or they differ in shape or dtype.
        """
        self._open()
        self._feeds[self._feed(name, out_idx)] = out_idx
        self._executable.set_feeds(list(self._feeds.items()))

    @owned
    def run_feed_gpu_handle(self, inputs: Mapping[str, Any], name: str, out_idx: int) -> Array:
        """Runs, lets a handle take an output this once, and returns that output.

        Raises:
            InputError: See ``set_gpu_handle_feed``.
        """
        self._open()
        feeds = {**self._feeds, self._feed(name, out_idx): out_idx}
        self._executable.set_feeds(list(feeds.items()))
        try:
            return self._run_read_outputs(inputs, [out_idx])[0]
        finally:
            self._executable.set_feeds(list(self._feeds.items()))

    # -----------------------------------------------------------------------------------------------

    def _input(self, name: str) -> int:
        if name not in self._names:
            raise UnknownNameError(
                describe(
                    f"graph {self._graph.name!r} has no input named {name!r}",
                    hint=did_you_mean(name, self._names),
                )
            )
        return self._names.index(name)

    def _bind(self, name: str, array: Any, kind: str) -> None:
        self._open()
        index, node = self._input(name), self._graph.named(name)
        value = fit(array, node.shape, node.dtype, f"handle {name!r}")
        self._executable.write_input(index, value)
        self._bound[name] = kind
        self._executable.set_resident([self._names.index(bound) for bound in self._bound])

    def _handle(self, name: str) -> int:
        self._open()
        index = self._input(name)
        if name not in self._bound:
            raise InputError(
                describe(
                    f"input {name!r} is no handle",
                    got=", ".join(self._bound) or "none bound",
                    hint="cg.bind_handle(name, array) or cg.bind_gpu_handle(name, array) first",
                )
            )
        return index

    def _feed(self, name: str, out_idx: int) -> int:
        index = self._handle(name)
        outputs = self._graph.outputs
        if not -len(outputs) <= out_idx < len(outputs):
            raise InputError(
                describe("no such output", got=out_idx, expected=f"0 to {len(outputs) - 1}")
            )
        if outputs[out_idx].type != self._graph.named(name).type:
            raise InputError(
                describe(
                    f"output {out_idx} does not fit handle {name!r}",
                    got=outputs[out_idx].type,
                    expected=self._graph.named(name).type,
                )
            )
        return index
