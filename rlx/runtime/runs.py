"""Ways of running beside ``run`` and ``run_slots``: chosen outputs, raw bytes, no wait, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx._ext.owner import Owner
from rlx.backends.base import Executable
from rlx.errors import InputError, UnknownNameError, describe, did_you_mean
from rlx.ir.dtype import DType, DTypeLike
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.runtime.fit import from_bytes
from rlx.runtime.owning import owned


class Runs:
    """The part of ``CompiledGraph`` with the less usual ways of running."""

    __slots__ = ()

    _executable: Executable
    _graph: Graph
    _owner: Owner
    _names: tuple[str, ...]

    # What CompiledGraph itself has.
    if TYPE_CHECKING:

        def _open(self) -> None: ...

        def _fill(self, inputs: Mapping[str, Any]) -> None: ...

        def _apart(self, inputs: Mapping[str, Any]) -> list[tuple[int, Array]]: ...

        def _complete(self) -> None: ...

        def set_param(self, name: str, array: Any) -> None:
            """See ``CompiledGraph.set_param``."""

        def run(self, inputs: Mapping[str, Any]) -> list[Array]:
            """See ``CompiledGraph.run``."""

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
        return self._run_read_outputs(inputs, indices)

    def _run_read_outputs(
        self, inputs: Mapping[str, Any], indices: Iterable[int] | None
    ) -> list[Array]:
        count = len(self._graph.outputs)
        chosen = list(range(count)) if indices is None else [self._output(at) for at in indices]
        self._fill(inputs)
        return [view.copy() for view in self._executable.run_outputs(chosen)]

    @owned
    def read_output_row(self, out_idx: int, row: int) -> Array:
        """One row of an output of the last run, without reading the rest.

        Args:
            out_idx: Number of the output.
            row: Position along its first axis; counts from the end when negative.

        Raises:
            InputError: There is no such output or row.
        """
        self._open()
        output = self._output(out_idx)
        shape = self._graph.outputs[output].shape
        if not shape or not -shape[0] <= row < shape[0]:
            raise InputError(describe("no such row", got=row, expected=f"a row of {shape}"))
        return self._executable.read_row(output, row % shape[0])

    @owned
    def commit_no_wait(self, inputs: Mapping[str, Any]) -> None:
        """Enqueues a run and returns; ``sync_pending`` waits for it. Inputs may be reused at once.

        Raises:
            InputError: See ``run``.
        """
        self._fill(inputs)
        self._executable.submit()

    @owned
    def sync_pending(self) -> None:
        """Waits for every run that was enqueued; the outputs are then those of the last one."""
        self._open()
        self._executable.wait()

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
        sets = [[value for _, value in self._apart(inputs)] for inputs in list_of_inputs]
        if not sets:
            return []
        self._complete()
        return self._executable.run_many(sets)

    # --- raw bytes -----------------------------------------------------------------------------------

    def set_param_typed(self, name: str, data: bytes, dtype: DTypeLike) -> None:
        """``set_param`` from raw bytes in row-major order.

        Args:
            name: A param of the graph.
            data: The bytes.
            dtype: What they hold; converted as ``set_param`` does.

        Raises:
            UnknownNameError: The graph has no param of that name.
            InputError: The bytes are too few or too many, or the dtype does not convert.
        """
        self._open()
        names = self._graph.param_names
        if name not in names:
            raise UnknownNameError(
                describe(
                    f"graph {self._graph.name!r} has no param named {name!r}",
                    hint=did_you_mean(name, names),
                )
            )
        self.set_param(name, from_bytes(self._graph.named(name), data, dtype))

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
        for name, _, _ in inputs:
            if name not in self._names:
                raise UnknownNameError(
                    describe(
                        f"graph {self._graph.name!r} has no input named {name!r}",
                        hint=did_you_mean(name, self._names),
                    )
                )
        names = [name for name, _, _ in inputs]
        if len(set(names)) < len(names):
            raise InputError(describe("an input is given twice", got=", ".join(names)))
        found = self.run(
            {name: from_bytes(self._graph.named(name), data, d) for name, data, d in inputs}
        )
        dtypes = [node.dtype for node in self._graph.outputs]
        return [(array.tobytes(), dtype) for array, dtype in zip(found, dtypes, strict=True)]

    # -----------------------------------------------------------------------------------------------

    def _output(self, out_idx: int) -> int:
        count = len(self._graph.outputs)
        if not -count <= out_idx < count:
            raise InputError(describe("no such output", got=out_idx, expected=f"0 to {count - 1}"))
        return out_idx % count
