"""Named inputs of a run: checked, converted, and put into the input views."""

from __future__ import annotations

from collections.abc import Mapping
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

    def fill(self, inputs: Mapping[str, Any]) -> None:
        """Puts named inputs into the input views.

        Raises:
            UnknownNameError: A name is not an input.
            InputError: One does not fit or is missing, or a param was never set.
        """
        found = self.apart(inputs)
        self._loaded.complete()
        views = self._loaded.executable.input_views
        for at, value in found:
            views[at][...] = value

    def apart(self, inputs: Mapping[str, Any]) -> list[tuple[int, Array]]:
        """Named inputs by position; values that are views of inputs, which runs write to, are copied."""
        views = self._loaded.executable.input_views
        return [
            (at, value.copy() if any(_overlap(value, view) for view in views) else value)
            for at, value in self._checked(inputs)
        ]

    def _checked(self, inputs: Mapping[str, Any]) -> list[tuple[int, Array]]:
        """Checks and converts named inputs, without copying them into the views yet."""
        loaded = self._loaded
        loaded.open()
        if not isinstance(inputs, Mapping):
            got, expected = type(inputs).__name__, "a mapping of names to arrays"
            raise InputError(describe("the inputs of a run", got=got, expected=expected))
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


def _overlap(value: Array, view: Array) -> bool:
    """Whether a value may be (in) the memory of an input's view; most have memory of their own."""
    return value is view or (value.base is not None and np.may_share_memory(value, view))
