"""Predictor: a model loaded once in a worker, which takes batches of any number of rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.compiler.model_file import load_model
from rlx.device.names import Device, DeviceLike
from rlx.errors import InputError, UnknownNameError, did_you_mean, printable
from rlx.ir.opdef import Array
from rlx.runtime.session import Session
from rlx.serving.onnx_model import Model

# The prefix of output columns of graphs, whose outputs have no names.
_OUTPUT = "output{}"


class Predictor:
    """A model that maps a batch of rows to a batch of rows; ``Dataset.map_batches`` takes the class.

    It loads the model once. A model of any number of rows runs a batch whole. For other models a batch is cut into
    pieces of the rows that it takes, and the last piece is filled up with copies of its last row, whose results are
    thrown away.

    Args:
        path: A file of ``rlx.save_model`` (``.rlx``) or an ONNX model. Each node of a cluster needs it at that path. The
            bytes of an ONNX model are taken as well.
        device: Where it runs.
        rows: Rows of a piece. None: as many as the model is written for; where that is free, those of the batch.
        columns: By the name of an input, the column that it comes from. Other inputs come from the column of their name;
            a model of one input takes the only column of a batch by any name.
        fixed: By name, inputs that are the same for all rows.
        keep: Columns that are passed on beside the outputs.
        options: How the model is compiled.

    Attributes:
        rows: Rows of a piece; None where they follow the batch.
        inputs: Names of the inputs that come from columns.
        outputs: Names of the output columns: those of the model; ``output0`` and so on of a graph.

    Raises:
        RlxError: The model can't be read or compiled; or the device is not here.
        UnknownNameError: ``columns`` or ``fixed`` names no input.
        InputError: ``rows`` is not what the model is written for.

    Example:
        >>> import os, tempfile, numpy as np, rlx, rlx.ray
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (4, 3)) * 2.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "twice.rlx")
        ...     _ = rlx.save_model(g, path)
        ...     predict = rlx.ray.Predictor(path, "cpu", keep=["id"])
        >>> found = predict({"x": np.ones((6, 3), np.float32), "id": np.arange(6)})
        >>> found["output0"].shape, found["id"].shape
        ((6, 3), (6,))
        >>> predict.close()
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes,
        device: DeviceLike = "auto",
        *,
        rows: int | None = None,
        columns: Mapping[str, str] | None = None,
        fixed: Mapping[str, Any] | None = None,
        keep: Sequence[str] = (),
        options: CompileOptions | None = None,
    ) -> None:
        self._model = _loaded(path, device, options)
        self._columns, self._keep = dict(columns or {}), tuple(keep)
        names = self._model.inputs
        for name in (*self._columns, *(fixed or {})):
            if name not in names:
                what = f"the model has no input {name!r}"
                raise UnknownNameError(what, hint=did_you_mean(name, names))
        self._fixed = {name: np.asarray(value) for name, value in (fixed or {}).items()}
        self.inputs = tuple(name for name in names if name not in self._fixed)
        self.outputs = self._model.outputs
        own = self._model.rows(self.inputs)
        if rows is not None and (rows < 1 or own not in (None, rows)):
            expected = ">= 1" if own is None else f"{own}, which the model is written for"
            raise InputError("rows of a piece", got=rows, expected=expected)
        self.rows = own if own is not None else rows

    def __call__(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a batch.

        Args:
            batch: Columns by name; the first axis of each is the rows.

        Returns:
            Columns of outputs, and those to keep, with as many rows: arrays of their own, which later calls leave alone.

        Raises:
            InputError: A column is missing, or has other rows; or what it holds does not fit the model.
        """
        inputs = {name: self._column(batch, name) for name in self.inputs}
        count = _rows_of(inputs)
        results: list[list[Array]] = [[] for _ in self.outputs]
        # An empty batch is run as well: it is what tells the shapes of the columns.
        for start in range(0, max(count, 1), self.rows or max(count, 1)):
            piece = {
                name: value[start : start + (self.rows or count)] for name, value in inputs.items()
            }
            for name, parts, part in zip(self.outputs, results, self._piece(piece), strict=True):
                parts.append(part)
                if part.shape[:1] != (_rows_of(piece),):
                    self._refuse(name)
        outputs = {
            name: parts[0] if len(parts) == 1 else np.concatenate(parts)
            for name, parts in zip(self.outputs, results, strict=True)
        }
        return {
            **{name: self._column_to_keep(batch, name, count) for name in self._keep},
            **outputs,
        }

    def close(self) -> None:
        """Frees the model."""
        self._model.close()

    @property
    def device(self) -> Device | None:
        """The device; None before "auto" has chosen."""
        return self._model.device

    def _piece(self, piece: Mapping[str, Array]) -> list[Array]:
        count = _rows_of(piece)
        size = self.rows or max(count, 1)
        filled = {name: _filled(value, size) for name, value in piece.items()}
        outputs = self._model.run({**filled, **self._fixed})
        # A copy where rows are cut off: a view would hold the memory of all.
        return [
            output[:count].copy() if output.ndim and len(output) == size != count else output
            for output in outputs
        ]

    def _column(self, batch: Mapping[str, Array], name: str) -> Array:
        column = self._columns.get(name, name)
        if column not in batch and len(self.inputs) == 1 and name not in self._columns:
            others = [item for item in batch if item not in self._keep]
            column = others[0] if len(others) == 1 else column
        if column not in batch:
            listed = ", ".join(map(repr, batch)) or "no column"
            raise InputError(
                f"a batch has no column {column!r}",
                got=listed,
                hint="map inputs by columns={input: column}, or fix their values by fixed={input: value}",
            )
        array = np.asarray(batch[column])
        if array.dtype == object:
            raise InputError(
                f"the rows of column {column!r} have different shapes",
                hint="pad them to one shape before the model",
            )
        return array

    def _column_to_keep(self, batch: Mapping[str, Array], name: str, count: int) -> Array:
        if name not in batch:
            listed = ", ".join(map(repr, batch)) or "no column"
            raise InputError(f"a batch has no column {name!r} to keep", got=listed)
        if len(batch[name]) != count:
            what = f"column {name!r} to keep has other rows than the inputs"
            raise InputError(what, got=len(batch[name]), expected=count)
        return batch[name]

    def _refuse(self, name: str) -> None:
        raise InputError(
            f"output {name!r} does not have a row for each row of the inputs",
            hint="only models whose first axis is the batch, in all inputs and outputs, can be mapped over rows; "
            "fixed={input: value} takes inputs that have none",
        )


def _rows_of(columns: Mapping[str, Array]) -> int:
    counts = {name: len(column) if column.ndim else None for name, column in columns.items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        listed = (
            ", ".join(f"{printable(name)}: {count}" for name, count in counts.items()) or "no input"
        )
        raise InputError("columns of a batch", got=listed, expected="the same rows in each")
    return next(iter(counts.values())) or 0


def _filled(array: Array, size: int) -> Array:
    """An array with so many rows: its last one again, zeros where there is none."""
    missing = size - len(array)
    if not missing:
        return array
    last = array[-1:] if len(array) else np.zeros((1, *array.shape[1:]), array.dtype)
    return np.concatenate([array, np.repeat(last, missing, axis=0)])


class _Graph:
    """A graph on a device, as a predictor uses it."""

    def __init__(
        self, path: str | os.PathLike[str], device: DeviceLike, options: CompileOptions | None
    ) -> None:
        graph = load_model(path)
        self._compiled = Session(device, options=options).compile(graph)
        self._shapes = {name: graph.named(name).shape for name in graph.input_names}
        self.inputs = tuple(graph.input_names)
        self.outputs = tuple(map(_OUTPUT.format, range(len(graph.outputs))))
        self.run, self.close = self._compiled.run, self._compiled.close

    @property
    def device(self) -> Device:
        return self._compiled.device

    def rows(self, inputs: Sequence[str]) -> int | None:
        """Rows of inputs, which are those of the graph; None where they are a dim."""
        results = {self._shapes[name][:1] for name in inputs}
        if len(results) == 1 and (only := results.pop()):
            return only[0] if isinstance(only[0], int) else None
        listed = (
            ", ".join(f"{printable(name)}: {list(self._shapes[name])}" for name in inputs)
            or "no input"
        )
        raise InputError(
            "inputs of a graph that is mapped over rows", got=listed, expected="equal first axes"
        )


class _Onnx:
    """An ONNX model, as a predictor uses it."""

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes,
        device: DeviceLike,
        options: CompileOptions | None,
    ) -> None:
        self._model = Model(path, device, options=options)
        self.inputs = tuple(port.name for port in self._model.inputs)
        self.outputs = tuple(self._model.output_names)
        self.run, self.close = self._model.run, self._model.close

    @property
    def device(self) -> Device | None:
        return self._model.device

    def rows(self, inputs: Sequence[str]) -> int | None:
        """Rows that the file states; None where any of the inputs leaves them open."""
        ports = [port for port in self._model.inputs if port.name in inputs]
        results = {port.dims[0] if port.dims else None for port in ports}
        sizes = {size for size in results if isinstance(size, int)}
        return sizes.pop() if len(sizes) == 1 == len(results) else None


def _loaded(
    path: str | os.PathLike[str] | bytes, device: DeviceLike, options: CompileOptions | None
) -> _Graph | _Onnx:
    if not isinstance(path, bytes) and Path(path).suffix.lower() == ".rlx":
        return _Graph(path, device, options)
    return _Onnx(path, device, options)
