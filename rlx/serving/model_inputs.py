"""The inputs of an ONNX model: the arrays of a run, and the shapes of later runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.backends.arguments import as_array
from rlx.errors import InputError, UnknownNameError, did_you_mean, listed
from rlx.importers.onnx.elements import NARROW
from rlx.importers.onnx.source import ModelSource, Port, bind
from rlx.ir.casting import check_array, converted
from rlx.ir.dtype import DType
from rlx.ir.extended import bits, name_of
from rlx.ir.opdef import Array
from rlx.runtime.convert import to_array


def arrays_of(source: ModelSource, inputs: Mapping[str, Any] | Any) -> dict[str, Array]:
    """The inputs of a run as arrays of the model's types.

    Args:
    source: The model.
    inputs: An array for every input by name, and for defaults of the file that it replaces; of a model of one
    input, that alone.

    Raises:
    InputError: An input is missing, or does not fit the model.
    UnknownNameError: There is no such input.
    """
    inputs = _by_name(source, inputs, "arrays")
    ports = {port.name: port for port in source.given(inputs)}
    for name in inputs:
        if name not in ports:
            known = (port.name for port in (*source.inputs, *source.defaults))
            raise UnknownNameError(
                f"{source.label} has no input named {name!r}", hint=did_you_mean(name, known)
            )
    missing = [name for name in ports if name not in inputs]
    if missing:
        raise InputError(f"{source.label}: inputs are missing", got=listed(missing))
    bound: dict[str, int] = {}
    return {name: _array(port, inputs[name], bound) for name, port in ports.items()}


def values_of(source: ModelSource, values: Mapping[str, Any]) -> dict[str, Array]:
    """Inputs that are fixed, as arrays.

    Raises:
        UnknownNameError: There is no such input.
        InputError: A value does not fit.
    """
    ports = {port.name: port for port in (*source.inputs, *source.defaults)}
    for name in values:
        if name not in ports:
            raise UnknownNameError(
                f"{source.label} has no input named {name!r}", hint=did_you_mean(name, ports)
            )
    return {name: _array(ports[name], value, {}) for name, value in values.items()}


def stand_ins(source: ModelSource, item: Mapping[str, Any] | Any) -> dict[str, Array]:
    """Inputs for a compile: arrays of zeros where shapes are given.

    Args:
        source: The model.
        item: By name, sizes of symbolic dimensions, and shapes or arrays of inputs. Of a model of one input, its shape
            alone.

    Returns:
        An array for every input.

    Raises:
        InputError: A dimension has no size, or a shape is none.
        UnknownNameError: There is no such input or dimension.
    """
    item = _by_name(source, item, "shapes")
    ports = {port.name: port for port in source.given(item)}
    inputs = {name: item[name] for name in item if name in ports}
    known = {dim for port in ports.values() for dim in port.dims or () if isinstance(dim, str)}
    dims = {name: size for name, size in item.items() if name not in ports}
    for name in dims:
        if name not in known:
            raise UnknownNameError(
                f"{source.label} has no input and no dimension named {name!r}",
                hint=did_you_mean(name, {*ports, *known}),
            )
    shapes = bind(source, dims, inputs)
    contents = {name for name, value in inputs.items() if hasattr(value, "__array__")}
    for name in inputs.keys() - contents:
        shapes[name] = _shape(name, inputs[name])
    arrays = {
        name: inputs[name] if name in contents else np.zeros(shapes[name], port.element.numpy)
        for name, port in ports.items()
    }
    return arrays_of(source, arrays)


def _by_name(source: ModelSource, inputs: Mapping[str, Any] | Any, what: str) -> Mapping[str, Any]:
    """Returns inputs by name; a model of one input takes the bare value too.

    Raises:
        InputError: It stands alone, and there are several inputs.
    """
    if isinstance(inputs, Mapping):
        return inputs
    if len(source.inputs) != 1:
        raise InputError(
            f"{source.label} takes {len(source.inputs)} inputs",
            got=type(inputs).__name__,
            expected=f"a dict of {what} by name: {listed(p.name for p in source.inputs)}",
        )
    return {source.inputs[0].name: inputs}


def _shape(name: str, value: Any) -> tuple[int, ...]:
    listed = value if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(size, int | np.integer) and 0 <= size for size in listed):
        raise InputError(
            f"the shape of input {name!r}", got=repr(value), expected="whole numbers >= 0"
        )
    return tuple(int(size) for size in listed)


def _array(port: Port, value: Any, bound: dict[str, int]) -> np.ndarray[Any, Any]:
    """One input as an array of the model's type, its shape checked against the others'."""
    element, where = port.element, f"input {port.name!r}"
    if element in NARROW and name_of(getattr(value, "dtype", None)) == element.extended:
        # Graphs hold integers by their value, and floats by their code.
        value = value if element.bits and element.name[0] != "f" else bits(np.asarray(value))
    array = as_array(value)
    if port.element.dtype is DType.BF16:
        array = to_array(array, array.shape, DType.BF16, where)
    else:
        check_array(array, array.shape, port.element.name, where)
        array = converted(array, port.element.numpy, where)
    if port.dims is not None:
        before = {dim: bound[dim] for dim in port.dims if isinstance(dim, str) and dim in bound}
        fits = len(port.dims) == array.ndim
        for dim, size in zip(port.dims, array.shape, strict=True) if fits else ():
            known = bound.setdefault(dim, size) if isinstance(dim, str) else dim
            fits = fits and known == size
        if not fits:
            raise InputError(
                f"input {port.name!r} has the wrong shape",
                got=array.shape,
                expected=f"{port.dims}" + (f" with {before}" if before else ""),
            )
    return np.ascontiguousarray(array) if array.ndim else array


def carried(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An input as graphs hold it: numbers of uint64 as the bits of int64."""
    return array.view(np.int64) if array.dtype == np.uint64 else array
