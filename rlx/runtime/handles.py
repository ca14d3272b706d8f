"""Handles: inputs that keep their value from run to run, in host or device memory, and outputs that feed them.

An input has memory of its own for as long as the executable lives. A handle is that memory with a value
that stays: runs take no argument for it, and after each run it may take over an output without the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.errors import InputError, describe
from rlx.ir.opdef import Array
from rlx.runtime.fit import fit
from rlx.runtime.loaded import Loaded, Part
from rlx.runtime.owning import owned
from rlx.runtime.runs import Runs


class Handles(Part):
    """The part of ``CompiledGraph`` that deals with handles.

    Args:
        loaded: The graph.
        runs: Makes runs.
    """

    __slots__ = ("_runs",)

    def __init__(self, loaded: Loaded, runs: Runs) -> None:
        super().__init__(loaded)
        self._runs = runs

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
        return self._loaded.executable.read_input(self._handle(name))

    @owned
    def read_gpu_handle(self, name: str) -> Array:
        """The value that a device handle holds now: the one read-back that it costs."""
        return self._loaded.executable.read_input(self._handle(name))

    def has_gpu_handle(self, name: str) -> bool:
        """Whether an input is a device handle."""
        self._loaded.input(name)
        return self._loaded.bound.get(name) == "device"

    @owned
    def set_gpu_handle_feed(self, name: str, out_idx: int) -> None:
        """After each run a handle takes an output, on the device.

        Args:
            name: A bound handle.
            out_idx: An output of its shape and dtype.

        Raises:
            InputError: There is no such handle or output, or they differ in shape or dtype.
        """
        self._loaded.open()
        self._loaded.feeds[self._feed(name, out_idx)] = out_idx
        self._loaded.executable.set_feeds(list(self._loaded.feeds.items()))

    @owned
    def run_feed_gpu_handle(self, inputs: Mapping[str, Any], name: str, out_idx: int) -> Array:
        """Runs, lets a handle take an output this once, and returns that output.

        Raises:
            InputError: See ``set_gpu_handle_feed``.
        """
        self._loaded.open()
        feeds = {**self._loaded.feeds, self._feed(name, out_idx): out_idx}
        self._loaded.executable.set_feeds(list(feeds.items()))
        try:
            return self._runs.read_outputs(inputs, [out_idx])[0]
        finally:
            self._loaded.executable.set_feeds(list(self._loaded.feeds.items()))

    # -----------------------------------------------------------------------------------------------

    def _bind(self, name: str, array: Any, kind: str) -> None:
        self._loaded.open()
        index, node = self._loaded.input(name), self._loaded.graph.named(name)
        value = fit(array, node.shape, node.dtype, f"handle {name!r}")
        self._loaded.executable.write_input(index, value)
        self._loaded.bound[name] = kind
        self._loaded.executable.set_resident(
            [self._loaded.names.index(bound) for bound in self._loaded.bound]
        )

    def _handle(self, name: str) -> int:
        self._loaded.open()
        index = self._loaded.input(name)
        if name not in self._loaded.bound:
            raise InputError(
                describe(
                    f"input {name!r} is no handle",
                    got=", ".join(self._loaded.bound) or "none bound",
                    hint="cg.bind_handle(name, array) or cg.bind_gpu_handle(name, array) first",
                )
            )
        return index

    def _feed(self, name: str, out_idx: int) -> int:
        index = self._handle(name)
        output = self._loaded.graph.outputs[self._loaded.output(out_idx)]
        if output.type != self._loaded.graph.named(name).type:
            raise InputError(
                describe(
                    f"output {out_idx} does not fit handle {name!r}",
                    got=output.type,
                    expected=self._loaded.graph.named(name).type,
                )
            )
        return index
