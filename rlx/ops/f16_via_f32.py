"""Lowers a node of f16 by kernels of f32: its operands are widened before them, and the result is rounded after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Emitter, TensorType


class _Widened:
    """An emitter whose operands of f16, and whose result, are temporaries of f32; all else is the emitter's own."""

    def __init__(self, node: Node, emitter: Emitter) -> None:
        self._node, self._emitter = node, emitter
        self._operands: dict[int, Any] = {}
        self._result = emitter.temp(TensorType(node.shape, DType.F32))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emitter, name)

    def operand(self, index: int) -> Any:
        """See ``Emitter``."""
        type = self._node.inputs[index].type
        if type.dtype is not DType.F16:
            return self._emitter.operand(index)
        if index not in self._operands:
            wide = self._emitter.temp(TensorType(type.shape, DType.F32))
            # Whole: an operand, such as a weight, has other rows than the result.
            _cast(self._emitter, self._emitter.operand(index), wide, DType.F32, type.shape, 0)
            self._operands[index] = wide
        return self._operands[index]

    def result(self) -> Any:
        """See ``Emitter``."""
        return self._result

    def finish(self) -> None:
        """Rounds the result."""
        _cast(self._emitter, self._result, self._emitter.result(), DType.F16, self._node.shape)


def lower_widened(node: Node, emitter: Emitter, lower: Callable[[Node, Emitter], None]) -> None:
    """Lowers a node of f32 or f16 with one result by ``lower``, which writes the calls of f32 kernels."""
    if node.dtype is not DType.F16:
        lower(node, emitter)
        return
    wide = _Widened(node, emitter)
    lower(node, wide)
    wide.finish()


def _cast(
    emitter: Emitter, value: Any, to: Any, dtype: DType, shape: tuple[int, ...], unit: int = 1
) -> None:
    emitter.elementwise((("cast", (0,), dtype, None),), [value], to, (shape,), unit)
