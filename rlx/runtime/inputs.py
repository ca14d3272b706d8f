"""Named inputs of a run: checked, converted, and put into the input views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import InputError, describe
from rlx.ir.opdef import Array
from rlx.runtime.fit import fit
from rlx.runtime.loaded import Loaded


class Inputs:
    """Takes the named inputs of a ``CompiledGraph``.

    Args:
        loaded: The graph.
    """

    __slots__ = ("_loaded",)

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded

    def fill(self, inputs: Any) -> None:
        """Puts named inputs into the input views.

        Args:
            inputs: Values by name; a graph that takes one input may be given that input's value instead.

        Raises:
            UnknownNameError: A name is not an input.
            InputError: One does not fit or is missing, or a param was never set.
        """
        found = self._checked(inputs)
        self._loaded.complete()
        views = self._loaded.executable.input_views
        for at, value in [(at, _apart(value, views)) for at, value in found]:
            views[at][...] = value

    def sets(self, list_of_inputs: Iterable[Any]) -> list[list[Array]]:
        """The arguments of several runs; those in memory that a run writes to are copied.

        Raises:
            UnknownNameError: See ``fill``.
            InputError: See ``fill``.
        """
        views = self._loaded.executable.output_views
        found = [
            [_apart(value, views) for _, value in self._checked(inputs)]
            for inputs in list_of_inputs
        ]
        if found:
            self._loaded.complete()
        return found

    def _checked(self, inputs: Any) -> list[tuple[int, Array]]:
        """Checks and converts named inputs; gives them by position."""
        loaded = self._loaded
        loaded.open()
        if not isinstance(inputs, Mapping):
            inputs = self._alone(inputs)
        for name in inputs:
            loaded.input(name)
            if name in loaded.bound:
                hint = "bind it again to change it"
                raise InputError(describe(f"input {name!r} is fed by a handle", hint=hint))
        self._all_there(inputs)
        views = loaded.executable.input_views
        nodes = [loaded.graph.named(name) for name in loaded.names]
        given = [at for at, name in enumerate(loaded.names) if name in inputs]

        def fitted(at: int, value: Any) -> Array:
            name, dtype = loaded.names[at], nodes[at].dtype
            return fit(value, views[at].shape, dtype, f"input {name!r}")

        found = [(at, fitted(at, inputs[loaded.names[at]])) for at in given]
        # Check again: converting an input may run the caller's code, which can change an earlier array.
        for at, value in found:
            if value.shape != views[at].shape:
                fitted(at, value)
        return found

    def _alone(self, value: Any) -> Mapping[str, Any]:
        """The only input of a graph, given without its name."""
        wanted = [name for name in self._loaded.names if name not in self._loaded.bound]
        if len(wanted) != 1 or value is None:
            names = ", ".join(f"{name!r}: ..." for name in wanted)
            raise InputError(
                describe(
                    "the inputs of a run",
                    got=type(value).__name__,
                    expected=f"a mapping of names to arrays: {{{names}}}",
                )
            )
        return {wanted[0]: value}

    def _all_there(self, inputs: Mapping[str, Any]) -> None:
        loaded = self._loaded
        wanted = [name for name in loaded.names if name not in loaded.bound]
        missing = [name for name in wanted if name not in inputs]
        if missing:
            raise InputError(
                describe(
                    "inputs are missing",
                    got=", ".join(inputs) or "none",
                    expected=", ".join(wanted),
                    hint="missing: " + ", ".join(missing),
                )
            )


def _apart(value: Array, views: Sequence[Array]) -> Array:
    """A value, or a copy if it may be (in) the memory of a view; most values have memory of their own."""
    for view in views:
        if value is view or (value.base is not None and np.may_share_memory(value, view)):
            return value.copy()
    return value
