"""An ONNX model that runs on arrays of any shape: lowered and compiled once per set of shapes."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from rlx._ext.owner import Owner
from rlx.backends.arguments import as_array
from rlx.backends.base import CompileOptions
from rlx.device.names import Device
from rlx.errors import InputError, UnknownNameError, describe, did_you_mean
from rlx.importers.onnx.load import Lowered, Port, lower, open_model
from rlx.importers.onnx.values import NeedsValueError
from rlx.ir.casting import check_array, converted
from rlx.ir.dtype import DType
from rlx.lru import Lru
from rlx.many.caches import CompileCache
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.fit import fit
from rlx.runtime.owning import owned


class Model:
    """An ONNX model on a device.

    Each new set of input shapes is lowered and compiled when it is first run, and kept. Where a shape
    within the model depends on what an input holds (the target of a Reshape, the number of trips of a
    Loop), the model is compiled anew for new contents of that input, too.

    Args:
        path: The file, or its contents.
        device: A device, its name, or "auto".
        capacity: Compiled graphs that are kept.
        options: How graphs are compiled.

    Attributes:
        inputs: What ``run`` takes: name, element type and dimensions of each.
        output_names: Names of what it returns.

    Raises:
        ImportModelError: The file can't be read.
        UnsupportedOpError: An input is of a type that rlx lacks.
        DeviceError: There is no such device here.

    Example:
        ``docs/guides/onnx.md`` runs one. A file that is not there:

        >>> import rlx
        >>> try:
        ...     rlx.onnx.Model("missing.onnx", device="cpu")
        ... except rlx.ImportModelError as error:
        ...     print(str(error).splitlines()[0])
        the model can't be read
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes,
        device: Device | str = "auto",
        *,
        capacity: int = 16,
        options: CompileOptions | None = None,
    ) -> None:
        self._source = open_model(path)
        self._cache = CompileCache(device, capacity, options=options)
        self._lowered: Lru[Hashable, Lowered] = Lru(capacity, None)
        # Inputs whose values determine shapes. They are discovered during lowering.
        self._fixed: set[str] = set()
        # The graph of the last run, if its inputs and outputs are just the model's.
        self._last: CompiledGraph | None = None
        self._owner = Owner("this rlx.onnx.Model", "give each thread a Model of its own")

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What ``run`` takes."""
        return self._source.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what ``run`` returns."""
        return self._source.outputs

    @property
    def fixed_inputs(self) -> frozenset[str]:
        """Inputs whose contents decided a shape in a run so far: new contents are compiled anew."""
        return frozenset(self._fixed)

    @owned
    def run(self, inputs: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
        """Runs the model.

        Args:
            inputs: An array for every input, of any shape that the model takes.

        Returns:
            The outputs in the file's order, in the model's own types: bfloat16 as its bits in uint16, floats of
            8 and 4 bits as their codes in uint8, integers of 4 and 2 bits in int8 and uint8. Inputs are taken in
            the same form.

        Raises:
            InputError: An input is missing, or does not fit the model.
            UnknownNameError: There is no such input.
            ImportModelError: The model makes no sense for these shapes.
            UnsupportedOpError: Nodes can't be imported; all of them are listed.
            BusyError: A call is under way, in another thread or further up in this one.
        """
        if self._last is not None:
            again = self._last._runs.run_fitting(inputs)
            if again is not None:
                return again
        arrays = self._arrays(inputs)
        compiled, lowered = self._compiled(arrays)
        self._last = compiled if self._is_plain(lowered) else None
        given = {name: _carried(arrays[name]) for name in lowered.graph.input_names}
        found = compiled.run(given)
        return [
            array if array.dtype == element.numpy else array.astype(element.numpy)
            for array, element in zip(found, lowered.elements, strict=True)
        ]

    @owned
    def compile(self, inputs: Mapping[str, Any]) -> CompiledGraph:
        """The compiled graph that ``run`` would run on these inputs.

        Raises:
            RlxError: As ``run``.
        """
        return self._compiled(self._arrays(inputs))[0]

    @owned
    def close(self) -> None:
        """Frees what was compiled. Closing twice does nothing."""
        self._last = None
        self._cache.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _is_plain(self, lowered: Lowered) -> bool:
        """Whether a graph takes and gives the model's arrays as they are."""
        graph = lowered.graph
        ports = {port.name: port.element.numpy for port in self.inputs}
        held = {name: graph.named(name).dtype.numpy for name in graph.input_names}
        made = zip(graph.outputs, lowered.elements, strict=True)
        same = all(node.dtype.numpy == element.numpy for node, element in made)
        return same and held == ports and not self._fixed

    def _compiled(
        self, arrays: Mapping[str, np.ndarray[Any, Any]]
    ) -> tuple[CompiledGraph, Lowered]:
        key, lowered = self._lower(arrays)
        return self._cache.get_or_compile(key, lambda: lowered.graph), lowered

    def _lower(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> tuple[Hashable, Lowered]:
        """The graph for inputs, and the key of all inputs that it is for."""
        while True:
            key = tuple(
                (name, array.shape, array.tobytes() if name in self._fixed else None)
                for name, array in arrays.items()
            )
            lowered = self._lowered.get(key)
            if lowered is None:
                shapes = {n: a.shape for n, a in arrays.items() if n not in self._fixed}
                values = {n: a for n, a in arrays.items() if n in self._fixed}
                try:
                    lowered = lower(self._source, shapes, values)
                except NeedsValueError as error:
                    self._fixed |= error.names
                    continue
                self._lowered.put(key, lowered, 0)
            return key, lowered

    def _arrays(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        ports = {port.name: port for port in self.inputs}
        for name in inputs:
            if name not in ports:
                raise UnknownNameError(
                    describe(
                        f"{self._source.label} has no input named {name!r}",
                        hint=did_you_mean(name, ports),
                    )
                )
        missing = [name for name in ports if name not in inputs]
        if missing:
            raise InputError(
                describe(f"{self._source.label}: inputs are missing", got=", ".join(missing))
            )
        bound: dict[str, int] = {}
        return {name: _array(port, inputs[name], bound) for name, port in ports.items()}


def _carried(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An input as graphs hold it: numbers of uint64 as the bits of int64."""
    return array.view(np.int64) if array.dtype == np.uint64 else array


def _array(port: Port, given: Any, bound: dict[str, int]) -> np.ndarray[Any, Any]:
    """One input as an array of the model's type, its shape checked against the others'."""
    array, where = as_array(given), f"input {port.name!r}"
    if port.element.dtype is DType.BF16:
        array = fit(array, array.shape, DType.BF16, where)
    else:
        check_array(array, array.shape, port.element.name, where)
        array = converted(array, port.element.numpy, where)
    if port.dims is not None:
        fits = len(port.dims) == array.ndim
        for dim, size in zip(port.dims, array.shape, strict=False):
            known = bound.setdefault(dim, size) if isinstance(dim, str) else dim
            fits = fits and known == size
        if not fits:
            raise InputError(
                describe(
                    f"input {port.name!r} has another shape",
                    got=array.shape,
                    expected=f"{port.dims}" + (f" with {bound}" if bound else ""),
                )
            )
    return np.ascontiguousarray(array) if array.ndim else array
