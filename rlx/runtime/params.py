"""Sets params: uploads their values, and keeps them where a device may be lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.ir.dtype import DTypeLike
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.opdef import Array
from rlx.runtime.convert import from_bytes, to_array
from rlx.runtime.exclusive import exclusive
from rlx.runtime.run import choose_calls
from rlx.runtime.state import RuntimeState


class ParamMethods:
    """The methods of ``CompiledGraph`` that set params."""

    __slots__ = ()
    _state: RuntimeState

    @exclusive
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
        _set(self._state, {name: array})

    @exclusive
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
        _set(self._state, values)

    def set_param_typed(self, name: str, data: bytes, dtype: DTypeLike) -> None:
        """``set_param`` from raw bytes in row-major order.

        Args:
            name: A param of the graph.
            data: The bytes.
            dtype: Their dtype; values are converted as by ``set_param``.

        Raises:
            UnknownNameError: The graph has no param of that name.
            InputError: The bytes are too few or too many, or the dtype does not convert.
        """
        self._state.check_open()
        self.set_param(name, from_bytes(self._state.param(name), data, dtype))


def _set(state: RuntimeState, values: Mapping[str, Any]) -> None:
    state.check_open()
    arrays = {}
    for name, value in values.items():
        node = state.param(name)
        arrays[name] = to_array(value, node.shape, node.dtype, f"param {name!r}")
    kernel_set = state.target.kernel_set
    if kernel_set and KERNEL_SETS[kernel_set].on_units:
        from rlx.runtime.half_params import check_halves

        check_halves(state.graph, arrays)
    with state.span("set_param"):
        state.set_params(arrays)
    if state.executable.capabilities.can_be_lost and state.target.options.keep_params:
        for name, value in values.items():
            state.values[name] = _own(value, arrays[name])
    state.missing.difference_update(values)
    if state.was_incomplete and not state.missing:
        choose_calls(state)


def _own(value: Any, array: Array) -> Array:
    """Returns an array for ``recover``: a copy where the caller could change it."""
    shared = np.asarray(value) is array or np.may_share_memory(array, np.asarray(value))
    return array.copy() if shared and array.flags.writeable else array
