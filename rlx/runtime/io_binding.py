"""Handles, feeds and the active extent: settings that runs keep until they are changed.

An input has memory of its own for as long as the executable lives. A handle is that memory with a value
that stays: runs take no argument for it, and after each run it may take over an output without the host.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlx.backends.arguments import as_array
from rlx.errors import InputError, UnsupportedOpError
from rlx.ir.opdef import Array
from rlx.ir.states import states_of, why_no_state
from rlx.runtime.bind_inputs import bind_all
from rlx.runtime.convert import to_array
from rlx.runtime.exclusive import exclusive
from rlx.runtime.run import execute, rebind
from rlx.runtime.state import RuntimeState

if TYPE_CHECKING:
    from rlx.passes.dynamic_batch import DynamicRows


def extent_of(state: RuntimeState, actual: int, upper: int) -> DynamicRows:
    """Returns how runs compute ``actual`` of ``upper`` rows; clones share what was lowered."""
    from rlx.compiler.lowering import fewer_rows
    from rlx.passes.dynamic_batch import dynamic_rows_of

    if upper not in state.extents:
        state.extents[upper] = dynamic_rows_of(state.lowered.graph, actual, upper)
    return fewer_rows(state.extents[upper], state.target, actual)


class IoBindingMethods:
    """The methods of ``CompiledGraph`` that bind handles, feeds and rows."""

    __slots__ = ()
    _state: RuntimeState

    @exclusive
    def bind_handle(self, name: str, array: Any) -> None:
        """Gives an input a value that feeds every later run, in host-visible memory.

        Args:
            name: An input of the graph; runs no longer take it.
            array: Its value.

        Raises:
            UnknownNameError: The graph has no input of that name.
            InputError: The array does not fit, or the graph updates the input (``g.update``) and can't do so in place.
        """
        _bind(self._state, name, array, "host")

    @exclusive
    def bind_gpu_handle(self, name: str, array: Any) -> None:
        """``bind_handle`` with the value resident on the device: no run uploads it again."""
        _bind(self._state, name, array, "device")

    @exclusive
    def read_handle(self, name: str) -> Array:
        """Returns the value that a handle holds now. For a device handle that costs one read-back.

        Raises:
            InputError: No handle is bound to that input.
        """
        state = self._state
        index = _handle(state, name)
        with state.span("read_handle"):
            return state.executable.read_input(index)

    read_gpu_handle = read_handle

    def has_gpu_handle(self, name: str) -> bool:
        """Returns whether an input is a device handle."""
        self._state.input(name)
        return self._state.handles.get(name) == "device"

    @exclusive
    def set_gpu_handle_feed(self, name: str, out_idx: int) -> None:
        """Has a handle take an output after each run, on the device.

        Args:
            name: A bound handle.
            out_idx: An output of its shape and dtype.

        Raises:
            InputError: There is no such handle or output, they differ in shape or dtype, or the graph updates the handle
                itself (``g.update``).
        """
        rebind(self._state, feeds=_feeds_with(self._state, name, out_idx))

    @exclusive
    def run_feed_gpu_handle(self, inputs: Mapping[str, Any], name: str, out_idx: int) -> Array:
        """Runs, lets a handle take an output this once, and returns that output.

        Raises:
            InputError: See ``set_gpu_handle_feed``.
        """
        state = self._state
        before = state.binding.feeds
        rebind(state, feeds=_feeds_with(state, name, out_idx))
        try:
            outputs = [state.output(out_idx)]
            return execute(state, "run_read_outputs", bind_all(state, inputs), outputs, True)[0]
        finally:
            rebind(state, feeds=before)

    @exclusive
    def set_active_extent(self, extent: tuple[int, int] | None) -> None:
        """Makes later runs compute fewer rows than the graph was compiled for.

        Each input whose leading axis is ``upper`` counts as ``actual`` rows, and so does all that is
        computed from them row by row; arrays keep their shapes. The caller promises that rows are
        independent. Rows past ``actual`` of inputs are not read where that saves something, and those
        of outputs are unspecified. Nothing is compiled on a GPU: it dispatches fewer workgroups. Where
        an op allows no other number of rows the whole is computed; ``as_text("schedule")`` says so.

        Args:
            extent: ``(actual, upper)``; None computes everything again.

        Raises:
            InputError: It is no pair of whole numbers, ``actual`` is not in 0 to ``upper``, or no
                input has ``upper`` rows.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (8, 2)) * 2.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> cg.set_active_extent((3, 8))
            >>> cg.run({"x": np.ones((8, 2), np.float32)})[0][:3].tolist()
            [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
        """
        state = self._state
        state.check_open()
        if extent is None:
            rebind(state, extent=None)
            return
        if state.sized is not None:
            hint = "runs compute as many rows as their arrays have"
            raise InputError(f"graph {state.graph.name!r} has dims", hint=hint)
        actual, upper = _rows(extent)
        leading = {state.graph.named(name).shape[:1] for name in state.names}
        if not 0 <= actual <= upper or (upper,) not in leading:
            sizes = sorted(shape[0] for shape in leading if shape)
            raise InputError(
                "no such extent",
                got=f"{actual} of {upper} rows",
                expected=f"0 to upper, and an upper of {sizes or 'no input with rows'}",
                hint="upper is the leading axis of the inputs that hold rows",
            )
        rows = extent_of(state, actual, upper) if actual < upper else None
        try:
            rebind(state, extent=rows)
        except (UnsupportedOpError, TypeError):  # a call that can't be linked for many sizes
            if rows is None:
                raise
            every = state.extents[upper]
            every.ranges = False
            every.schedules.clear()
            rebind(state, extent=extent_of(state, actual, upper))

    @exclusive
    def set_sizes(self, /, **sizes: int) -> None:
        """Chooses the sizes of later runs without arguments, and of ``input_views``, of a graph with dims.

        Runs with arguments take the sizes of these.

        Args:
            **sizes: A value of each dim.

        Raises:
            InputError: The graph has other dims, a dim does not take its value, or a handle has another size.

        Example:
            >>> import rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (rlx.Dim("n"),)) + 1.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> cg.set_sizes(n=3)
            >>> cg.run_slots()[0].tolist()
            [1.0, 1.0, 1.0]
        """
        state = self._state
        state.check_open()
        if state.sized is None:
            raise InputError(f"graph {state.graph.name!r} has no dims", got=", ".join(sizes))
        state.sized.resize(state.sized.input_sizes.check(sizes))


def _bind(state: RuntimeState, name: str, array: Any, kind: str) -> None:
    state.check_open()
    index, node = state.input(name), state.graph.named(name)
    reason = why_no_state(state.graph, name)
    if reason is not None:
        raise InputError(
            f"input {name!r} can't be a handle: the graph updates it, and can't do so in place",
            got=reason,
            hint="read the result of the update (g.update) instead",
        )
    shape = node.shape
    if state.sized is not None:
        array = as_array(array)
        state.sized.input_sizes.values({index: array.shape})
        shape = array.shape
    value = to_array(array, shape, node.dtype, f"handle {name!r}")
    with state.span("bind_handle"):
        state.executable.write_input(index, value)
    state.handles[name] = kind
    feeds = {
        **dict(state.binding.feeds),
        **{i: o for i, o in state.lowered.state_feeds if i == index},
    }
    residents = tuple(sorted({*state.binding.residents, index}))
    rebind(state, residents=residents, feeds=tuple(feeds.items()))


def _handle(state: RuntimeState, name: str) -> int:
    """Returns the position of a handle."""
    state.check_open()
    index = state.input(name)
    if name not in state.handles:
        raise InputError(
            f"input {name!r} is no handle",
            got=", ".join(state.handles) or "none bound",
            hint="cg.bind_handle(name, array) or cg.bind_gpu_handle(name, array) first",
        )
    return index


def _feeds_with(state: RuntimeState, name: str, out_idx: int) -> tuple[tuple[int, int], ...]:
    """Returns the feeds of a graph with one more."""
    index, pos = _handle(state, name), state.output(out_idx)
    if any(each.position == index for each in states_of(state.graph)):
        raise InputError(
            f"handle {name!r} takes no output",
            got=f"output {out_idx}",
            hint="the graph updates it in place (g.update), and each run begins with its new value",
        )
    output, handle = state.graph.outputs[pos], state.graph.named(name)
    with state.graph.deciding():
        fits = output.type == handle.type
    if not fits:
        raise InputError(
            f"output {out_idx} does not fit handle {name!r}", got=output.type, expected=handle.type
        )
    return tuple({**dict(state.binding.feeds), index: pos}.items())


def _rows(extent: Any) -> tuple[int, int]:
    try:
        actual, upper = (operator.index(count) for count in extent)
    except (TypeError, ValueError):
        raise InputError(
            "not an extent", got=repr(extent), expected="(actual, upper) or None"
        ) from None
    return actual, upper
