"""Binds named inputs of a run: checks them, converts them, and puts them in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlx.backends.arguments import as_array, copy_if_overlapping
from rlx.errors import InputError, listed
from rlx.ir.opdef import Array
from rlx.runtime.convert import to_array
from rlx.runtime.state import RuntimeState


def bind_all(state: RuntimeState, inputs: Any) -> list[Array]:
    """Returns an array for each input that takes an argument, in order.

    Args:
        state: The graph.
        inputs: Values by name; a graph that takes one input may be given that input's value instead.

    Raises:
        UnknownNameError: A name is not an input.
        InputError: One does not fit or is missing, or a param was never set.
    """
    exact = None if state.sized is None else state.sized.exact(inputs)
    if exact is None:
        arrays = _convert(state, inputs, complete=True)
        exact = [arrays[i] for i in state.arguments]
    state.check_open()
    state.check_params()
    return exact


def bind_some(state: RuntimeState, inputs: Any) -> list[Array | None]:
    """Returns ``bind_all``, with None for each input that is not given.

    Raises:
        UnknownNameError: See ``bind_all``.
        InputError: See ``bind_all``.
    """
    arrays = _convert(state, inputs, complete=False)
    state.check_params()
    return [arrays.get(i) for i in state.arguments]


def bind_batches(state: RuntimeState, batches: Iterable[Any]) -> list[list[Array]]:
    """Returns ``bind_all`` of several runs; arrays in memory that a run writes to are copied.

    Raises:
        UnknownNameError: See ``bind_all``.
        InputError: See ``bind_all``.
    """
    views = state.executable.output_views
    return [
        [copy_if_overlapping(array, views) for array in bind_all(state, inputs)]
        for inputs in batches
    ]


def _convert(state: RuntimeState, inputs: Any, complete: bool) -> dict[int, Array]:
    """Checks and converts named inputs; returns them by position."""
    state.check_open()
    if not isinstance(inputs, Mapping):
        inputs = _single_input(state, inputs)
    for name in inputs:
        state.input(name)
        if name in state.handles:
            hint = "bind it again to change it"
            raise InputError(f"input {name!r} is fed by a handle", hint=hint)
    if complete:
        _check_complete(state, inputs)
    values = {i: inputs[name] for i, name in enumerate(state.names) if name in inputs}
    if state.sized is not None:
        values = {i: as_array(value) for i, value in values.items()}
    types = state.input_types(values)

    def converted(index: int, value: Any) -> Array:
        type = types[index]
        return to_array(value, type.shape, type.dtype, f"input {state.names[index]!r}")

    arrays = {i: converted(i, value) for i, value in values.items()}
    # Check again: converting an input may run the caller's code, which can change an earlier array.
    for index, array in arrays.items():
        if array.shape != types[index].shape:
            converted(index, array)
    return arrays


def _single_input(state: RuntimeState, value: Any) -> Mapping[str, Any]:
    """Names the only input of a graph, which was given without its name."""
    wanted = [name for name in state.names if name not in state.handles]
    if len(wanted) != 1 or value is None:
        names = ", ".join(f"{name!r}: ..." for name in wanted)
        raise InputError(
            "the inputs of a run",
            got=type(value).__name__,
            expected=f"a mapping of names to arrays: {{{names}}}",
        )
    return {wanted[0]: value}


def _check_complete(state: RuntimeState, inputs: Mapping[str, Any]) -> None:
    wanted = [name for name in state.names if name not in state.handles]
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise InputError(
            "inputs are missing",
            got=", ".join(inputs) or "none",
            expected=", ".join(wanted),
            hint=f"missing: {listed(missing)}",
        )
