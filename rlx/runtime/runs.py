"""Ways of running named inputs: fresh arrays, views, chosen outputs, raw bytes, no wait, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlx.backends.base import run_fresh
from rlx.errors import InputError, describe, listed
from rlx.ir.dtype import DType, DTypeLike
from rlx.ir.opdef import Array
from rlx.runtime.fit import from_bytes
from rlx.runtime.inputs import Inputs
from rlx.runtime.loaded import Loaded, Part
from rlx.runtime.owning import owned


class Runs(Part):
    """The part of ``CompiledGraph`` that runs named inputs.

    Args:
        loaded: The graph.
        inputs: Takes the inputs.
    """

    __slots__ = ("_inputs",)

    def __init__(self, loaded: Loaded, inputs: Inputs) -> None:
        super().__init__(loaded)
        self._inputs = inputs

    @owned
    def run(self, inputs: Mapping[str, Any] | Any) -> list[Array]:
        """Runs on named inputs and returns fresh arrays, one per output.

        A value of another dtype is converted by NumPy's casting rule "same_kind": to the same kind of number, or
        from integers to floats. Floats are rounded. Values that the dtype can't hold are errors.

        The CPU reads large arrays that fit where they are, and keeps references to them until the next run by
        name or ``close``; ``docs/guides/running.md`` says who sees that.

        Args:
            inputs: One array per input of the graph, by name. A graph that takes one input may be given its
                array alone.

        Returns:
            The outputs, which later runs leave alone.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: An input is missing or has the wrong shape, a dtype that does not convert, a finite
                number that would become infinite, or an integer that would be rounded; or a param was never
                set.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (2,)) + 1.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> cg.run({"x": np.zeros(2, np.float32)})
            [array([1., 1.], dtype=float32)]
            >>> cg.run([0.5, 1.5])
            [array([1.5, 2.5], dtype=float32)]
        """
        found = self._run_fitting(inputs)
        if found is None:
            found = run_fresh(self._loaded.executable, self._inputs.taken(inputs))
        return found

    @owned
    def run_fitting(self, inputs: Any) -> list[Array] | None:
        """``run`` where every input fits as it is and the device has a short way for that; else None."""
        return self._run_fitting(inputs)

    def _run_fitting(self, inputs: Any) -> list[Array] | None:
        loaded = self._loaded
        named = getattr(loaded.executable, "run_named", None)
        if named is None or loaded.missing:
            return None
        found: list[Array] | None = named(loaded.names, inputs)
        return found

    @owned
    def run_raw(self, inputs: Mapping[str, Any] | Any) -> list[Array]:
        """Runs on named inputs and returns read-only views, valid until the next run.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: See ``run``.
        """
        self._inputs.fill(inputs)
        return list(self._loaded.executable.run_slots())

    @owned
    def run_read_outputs(
        self, inputs: Mapping[str, Any], indices: Iterable[int] | None = None
    ) -> list[Array]:
        """Runs and reads back only the chosen outputs; the others never leave the device.

        Args:
            inputs: One array per input that is no handle.
            indices: Numbers of outputs; all of them by default.

        Returns:
            Fresh arrays in the order of ``indices``.

        Raises:
            InputError: There is no such output; or see ``run``.
        """
        return self.read_outputs(inputs, indices)

    def read_outputs(self, inputs: Mapping[str, Any], indices: Iterable[int] | None) -> list[Array]:
        """``run_read_outputs`` for a caller that holds the owner."""
        loaded = self._loaded
        wanted = range(len(loaded.graph.outputs)) if indices is None else indices
        chosen = [loaded.output(at) for at in wanted]
        self._inputs.fill(inputs)
        return [view.copy() for view in loaded.executable.run_outputs(chosen)]

    @owned
    def read_output_row(self, out_idx: int, row: int) -> Array:
        """One row of an output of the last run, without reading the rest.

        Args:
            out_idx: Number of the output.
            row: Position along its first axis; counts from the end when negative.

        Raises:
            InputError: There is no such output or row.
        """
        self._loaded.open()
        output = self._loaded.output(out_idx)
        shape = self._loaded.graph.outputs[output].shape
        if not shape or not -shape[0] <= row < shape[0]:
            raise InputError(describe("no such row", got=row, expected=f"a row of {shape}"))
        return self._loaded.executable.read_row(output, row % shape[0])

    @owned
    def commit_no_wait(self, inputs: Mapping[str, Any] | Any) -> None:
        """Enqueues a run and returns; ``sync_pending`` waits for it. Inputs may be reused at once.

        Raises:
            InputError: See ``run``.
        """
        self._inputs.fill(inputs)
        self._loaded.executable.submit()

    @owned
    def sync_pending(self) -> None:
        """Waits for every run that was enqueued, also by ``run_gpu``.

        The outputs are then those of the last ``commit_no_wait``.
        """
        self._loaded.open()
        self._loaded.executable.wait()

    @owned
    def run_pipelined(self, list_of_inputs: Sequence[Mapping[str, Any]]) -> list[list[Array]]:
        """Many runs with one wait at the end.

        Args:
            list_of_inputs: One set of named inputs per run.

        Returns:
            Every run's outputs, as fresh arrays.

        Raises:
            InputError: See ``run``; nothing has run then.
        """
        sets = self._inputs.sets(list_of_inputs)
        if not sets:
            return []
        return self._loaded.executable.run_many(sets)

    # --- raw bytes -----------------------------------------------------------------------------------

    def run_typed(
        self, inputs: Sequence[tuple[str, bytes, DTypeLike]]
    ) -> list[tuple[bytes, DType]]:
        """Raw bytes in, raw bytes out.

        Args:
            inputs: ``(name, bytes, dtype)`` of every input that is no handle.

        Returns:
            ``(bytes, dtype)`` of every output, in its declared dtype.

        Raises:
            UnknownNameError: A name that is not an input.
            InputError: The bytes are too few or too many; or see ``run``.
        """
        names = [name for name, _, _ in inputs]
        for name in names:
            self._loaded.input(name)
        if len(set(names)) < len(names):
            raise InputError(describe("an input is given twice", got=listed(names)))
        found = self.run(
            {name: from_bytes(self._loaded.graph.named(name), data, d) for name, data, d in inputs}
        )
        dtypes = [node.dtype for node in self._loaded.graph.outputs]
        return [(array.tobytes(), dtype) for array, dtype in zip(found, dtypes, strict=True)]
