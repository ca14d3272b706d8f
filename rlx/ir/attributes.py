"""Attributes of nodes: their representation, and checks of attributes that come out of a file instead of a builder.

Files hold the attributes that inference returns: axes count from the front, a stride stands for every axis.
So a node of a file is legal when its attributes are plain values, those of its record, and inference
changes none of them. Attributes that inference never changes have a row in a table here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.errors import GraphError, listed
from rlx.ir.dtype import DType
from rlx.ir.opdef import PART, PRESENT, TensorType, lookup
from rlx.ir.view import GraphView, NodeView
from rlx.sizes import SizeExpr

# The legal types of a record's parameter, by its annotation.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "str": (str,),
}
_VALUES = frozenset((bool, int, float, str, type(None), DType))
# Kernels take their parameters as 64-bit words.
_MOST = 1 << 63
# Tuples within tuples: a program of steps has three.
_DEEPEST = 4
# Steps of a program of elementwise operations; fusion makes shorter ones.
_MAX_STEPS = 64
# The op whose attribute is such a program: passes make it, and inference reads only its last step.
_REGION = "region"


def frozen(value: Any) -> Any:
    """A value as nodes hold it: immutable and comparable, so that nodes can be compared and hashed."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.copy()
        value.setflags(write=False)
    return value


def check_attributes(node: NodeView, inputs: Mapping[str, Any]) -> None:
    """Checks a node whose inference has been done against its attributes as they stand in the file.

    Raises:
        GraphError: An attribute is missing, of another type or value, or none of the record's.
    """
    wanted = node.opdef.attributes
    if inputs.keys() != wanted.keys():
        raise GraphError(
            f"[{node.op}] the attributes are not those of the op",
            got=listed(sorted(inputs)) or "none",
            expected=", ".join(sorted(wanted)) or "none",
        )
    for name, value in inputs.items():
        annotation = wanted[name]
        if not _plain(value, annotation, 0) or not _same(node.attrs[name], value):
            raise _refused(node, name, value, annotation)
    if PRESENT in wanted:
        present, optional = node.attrs[PRESENT], node.opdef.optional
        if not isinstance(present, tuple) or present != tuple(n for n in optional if n in present):
            raise _refused(node, PRESENT, present, f"some of {', '.join(optional)}, in order")
    for name, (wrong, expected) in _RULES.get(node.op, {}).items():
        result = wrong(node, node.attrs[name])
        if result is not None:
            raise _refused(node, name, result, expected)


def _refused(node: NodeView, name: str, value: Any, expected: str) -> GraphError:
    what = f"[{node.op}] attribute {name!r}"
    return GraphError(what, got=f"{value!r:.120}", expected=expected)


def _plain(value: Any, annotation: str, depth: int) -> bool:
    """Returns whether a value is of the annotated type, and a number that kernels can take."""
    kind = type(value)
    if isinstance(value, SizeExpr):
        return annotation not in ("float", "bool", "str")
    types = _TYPES.get(annotation)
    if types is not None and kind not in types:
        return False
    if kind is int:
        return bool(-_MOST <= value < _MOST)
    if kind is tuple:
        return depth < _DEEPEST and all(_plain(item, "Any", depth + 1) for item in value)
    return kind in _VALUES or isinstance(value, np.ndarray | GraphView)


def _same(normal: Any, value: Any) -> bool:
    """Returns whether inference left a value unchanged: 1, 1.0 and True are three values."""
    if isinstance(normal, SizeExpr) and isinstance(value, SizeExpr):
        return normal.terms == value.terms
    if type(normal) is not type(value):
        return False
    if isinstance(normal, tuple):
        pairs = zip(normal, value, strict=True)
        return len(normal) == len(value) and all(_same(*pair) for pair in pairs)
    if type(normal) in _VALUES:
        return bool(normal == value or (normal != normal and value != value))
    return normal is value  # an array or a graph


def _wrong_step(node: NodeView, program: Any) -> Any:
    """The first illegal step of a program: kernels read operands by number and believe the types."""
    if not isinstance(program, tuple) or not 1 <= len(program) <= _MAX_STEPS:
        return program
    dtypes = [operand.types[0].dtype for operand in node.inputs]
    for step in program:
        if not isinstance(step, tuple) or len(step) != 4:
            return step
        name, operands, dtype, literal = step
        legal = isinstance(name, str) and isinstance(operands, tuple) and isinstance(dtype, DType)
        if not legal or not all(
            type(operand) is int and 0 <= operand < len(dtypes) for operand in operands
        ):
            return step
        if name == "literal":
            legal = not operands and _holds(dtype, literal)
        else:
            args = tuple(dtypes[operand] for operand in operands)
            legal = literal is None and _step_dtype(name, args, dtype) is dtype
        if not legal:
            return step
        dtypes.append(dtype)
    # The last step writes the result, and a number is no loop.
    return program[-1] if program[-1][0] == "literal" else None


def _holds(dtype: DType, value: Any) -> bool:
    """Returns whether a type can hold a number."""
    kind = type(value)
    if dtype is DType.BOOL:
        return kind is bool
    if dtype.is_float:
        # bf16 has the range of f32.
        limit = float(np.finfo(np.float32 if dtype is DType.BF16 else dtype.numpy).max)
        return kind is float and (not math.isfinite(value) or abs(value) <= limit)
    bounds = np.iinfo(dtype.numpy)
    return kind is int and bounds.min <= value <= bounds.max


@functools.lru_cache(1024)
def _step_dtype(name: str, operands: tuple[DType, ...], dtype: DType) -> DType | None:
    """Infers the dtype of a step's result; None if no step can be of that operation."""
    record = lookup(name)
    if not record.elementwise:
        return None
    attrs = {"dtype": dtype} if name == "cast" else {}
    result = record.infer([TensorType((), operand) for operand in operands], attrs)
    return result.dtype if isinstance(result, TensorType) else None


def _wrong_index(node: NodeView, index: Any) -> Any:
    return None if 0 <= index < len(node.inputs[0].types) else index


def _wrong_rows(node: NodeView, rows: Any) -> Any:
    shape = node.inputs[0].types[0].shape
    return None if shape and 0 <= rows <= shape[0] else rows


# Attributes that inference does not change: a check that returns the fault (None without one), and the expected value.
_RULES: Mapping[str, Mapping[str, tuple[Callable[[NodeView, Any], Any], str]]] = {
    _REGION: {"program": (_wrong_step, f"1 to {_MAX_STEPS} elementwise steps")},
    PART: {"index": (_wrong_index, "a result of the operand")},
    "leading": {"rows": (_wrong_rows, "at most the operand's rows")},
}
