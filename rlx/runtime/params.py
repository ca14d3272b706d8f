"""Sets params: uploads their values, and keeps them where a device may be lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.dtype import DTypeLike
from rlx.ir.opdef import Array
from rlx.runtime.fit import fit, from_bytes
from rlx.runtime.loaded import Part
from rlx.runtime.owning import owned


class Params(Part):
    """The part of ``CompiledGraph`` that sets params."""

    __slots__ = ()

    @owned
    def set_param(self, name: str, array: Any) -> None:
        """Uploads a weight.

        Clones have it from their next run on; those that run meanwhile end with the old values. No run
        sees a part of it.

        Args:
            name: A param of the graph.
            array: Its value: the declared shape; a float of another width is converted, also to bf16,
                which may be given in storage (uint16) as well.

        Raises:
            UnknownNameError: The graph has no param of that name.
            InputError: Wrong shape, or a dtype that does not convert.
        """
        loaded = self._loaded
        loaded.open()
        node = loaded.param(name)
        value = fit(array, node.shape, node.dtype, f"param {name!r}")
        loaded.executable.set_param(name, value)
        self._keep(name, array, value)
        loaded.missing.discard(name)
        if not loaded.missing:
            loaded.use(loaded.executable)

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
        self._loaded.open()
        self.set_param(name, from_bytes(self._loaded.param(name), data, dtype))

    def _keep(self, name: str, given: Any, value: Array) -> None:
        """Keeps a value for ``recover``, apart from an array that its owner may change."""
        loaded = self._loaded
        if loaded.capabilities.can_be_lost and loaded.target.options.keep_params:
            shared = np.asarray(given) is value or np.may_share_memory(value, np.asarray(given))
            loaded.values[name] = value.copy() if shared and value.flags.writeable else value
