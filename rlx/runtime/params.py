"""Sets params: uploads their values, and keeps them where a device may be lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.backends.base import set_params
from rlx.ir.dtype import DTypeLike
from rlx.ir.opdef import Array
from rlx.runtime.fit import fit, from_bytes
from rlx.runtime.half_params import check_half
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
            InputError: Wrong shape, a dtype that does not convert, or numbers that a product in half
                precision can't hold.
        """
        self._set({name: array})

    @owned
    def set_params(self, values: Mapping[str, Any]) -> None:
        """Uploads several weights; faster than one after the other.

        Clones have all of them from their next run on, or, after an error, none.

        Args:
            values: Params by name, each as ``set_param`` takes it.

        Raises:
            UnknownNameError: The graph has no param of one of the names.
            InputError: A wrong shape, or a dtype that does not convert.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (2,)) * g.param("a", (2,)) + g.param("b", (2,))])
            >>> with rlx.compile(g, "cpu") as cg:
            ...     cg.set_params({"a": [2.0, 3.0], "b": [1.0, 1.0]})
            ...     cg.run({"x": np.ones(2, np.float32)})[0].tolist()
            [3.0, 4.0]
        """
        self._set(values)

    def _set(self, values: Mapping[str, Any]) -> None:
        loaded = self._loaded
        loaded.open()
        fitted = {}
        for name, array in values.items():
            node = loaded.param(name)
            fitted[name] = fit(array, node.shape, node.dtype, f"param {name!r}")
            if name in loaded.rounded:
                check_half(fitted[name], node.dtype, f"param {name!r}")
        set_params(loaded.executable, fitted)
        for name, array in values.items():
            self._keep(name, array, fitted[name])
        loaded.missing.difference_update(values)
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
