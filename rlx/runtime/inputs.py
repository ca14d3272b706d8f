"""Named inputs of a run: checked, converted, and put into the input views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlx.backends.arguments import apart
from rlx.backends.base import fill
from rlx.errors import InputError, describe, listed
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
        fill(self._loaded.executable, self.taken(inputs))

    def taken(self, inputs: Any) -> list[tuple[int, Array]]:
        """Named inputs as arrays that fit, by their positions.

        Raises:
            UnknownNameError: See ``fill``.
            InputError: See ``fill``.
        """
        found = self._checked(inputs)
        self._loaded.complete()
        return found

    def some(self, inputs: Any) -> list[tuple[int, Array]]:
        """``taken``, of any of the inputs: the others are on the device already."""
        found = self._checked(inputs, every=False)
        self._loaded.complete()
        return found

    def sets(self, list_of_inputs: Iterable[Any]) -> list[list[Array]]:
        """The arguments of several runs; those in memory that a run writes to are copied.

        Raises:
            UnknownNameError: See ``fill``.
            InputError: See ``fill``.
        """
        views = self._loaded.executable.output_views
        found = [
            [apart(value, views) for _, value in self._checked(inputs)] for inputs in list_of_inputs
        ]
        if found:
            self._loaded.complete()
        return found

    def _checked(self, inputs: Any, every: bool = True) -> list[tuple[int, Array]]:
        """Checks and converts named inputs, every one of them or some; gives them by position."""
        loaded = self._loaded
        loaded.open()
        if not isinstance(inputs, Mapping):
            inputs = self._alone(inputs)
        for name in inputs:
            loaded.input(name)
            if name in loaded.bound:
                hint = "bind it again to change it"
                raise InputError(describe(f"input {name!r} is fed by a handle", hint=hint))
        if every:
            self._all_there(inputs)
        nodes = [loaded.graph.named(name) for name in loaded.names]
        given = [at for at, name in enumerate(loaded.names) if name in inputs]

        def fitted(at: int, value: Any) -> Array:
            name, type = loaded.names[at], nodes[at].type
            return fit(value, type.shape, type.dtype, f"input {name!r}")

        found = [(at, fitted(at, inputs[loaded.names[at]])) for at in given]
        # Check again: converting an input may run the caller's code, which can change an earlier array.
        for at, value in found:
            if value.shape != nodes[at].shape:
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
                    hint=f"missing: {listed(missing)}",
                )
            )
