"""Weights and constants on a device of JAX, and arrays on their way there and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.plugin import Node
from rlx_xla.engine import jax, wide_types
from rlx_xla.program import Compilation
from rlx_xla.trace import as_stored, stored_dtype

Array = np.ndarray[Any, Any]


class PinnedArrays:
    """Weights and large constants on a device, which clones share.

    Args:
        program: The program that they belong to.
        device: JAX's device.

    Attributes:
        arrays: The arrays in the order of the program; replaced as a whole, so that a run sees all new ones or none.
    """

    def __init__(self, program: Compilation, device: Any) -> None:
        self._device = device
        self._at = {node.name: index for index, node in enumerate(program.params)}
        self._nodes = program.params
        self.arrays: list[Any] = [None] * len(program.params)
        for node in program.constants:
            self.arrays.append(self._put(node, node.attrs["value"]))
        with wide_types():
            for index, node in enumerate(program.params):
                self.arrays[index] = jax().numpy.zeros(
                    node.shape, stored_dtype(node.dtype), device=device
                )

    def _put(self, node: Node, array: Array) -> Any:
        # A copy of its own: on the CPU JAX would keep the caller's memory, which may change.
        return put(np.array(array, order="C"), node, self._device)

    def set(self, values: Mapping[str, Array]) -> int:
        """Takes new values; gives their bytes."""
        arrays = list(self.arrays)
        for name, array in values.items():
            position = self._at[name]
            arrays[position] = self._put(self._nodes[position], array)
        self.arrays = arrays
        return sum(array.nbytes for array in values.values())

    def get(self, name: str) -> Array:
        """A value, as a fresh array."""
        position = self._at[name]
        return fetched(self.arrays[position], self._nodes[position]).copy()

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(int(array.nbytes) for array in self.arrays)


def put(array: Array, node: Node, device: Any) -> Any:
    """An array on a device."""
    with wide_types():
        return jax().device_put(as_stored(array, node.dtype), device)


def fetched(array: Any, node: Node) -> Array:
    """An array of JAX in the storage of rlx; maybe JAX's own memory."""
    result = np.asarray(array)
    return result if result.dtype == node.dtype.numpy else result.view(node.dtype.numpy)
