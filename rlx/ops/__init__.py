"""Every operation as a function over nodes: ``rlx.ops.gelu(x)`` is ``x.graph.gelu(x)``.

An operation is imported when it is first named: ``rlx.ir.op_index`` says where its record is. Type checkers read
``__init__.pyi`` in place of this file; `script/stubs` makes both of the records.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from rlx.ir.op_index import INTERNAL, MODULE_OF

# Not ops but NumPy functions: they make and read the packed weights of the dequant ops.
_OTHERS = {
    "quantize_blocks": "rlx.ops.products.block_encoders",
    "quantize_groups": "rlx.ops.products.block_encoders",
    "decode_blocks": "rlx.ops.block_formats",
}


def __getattr__(name: str) -> Any:
    from rlx.errors import did_you_mean

    if name in _OTHERS:
        return getattr(import_module(_OTHERS[name]), name)
    if name == "__path__" or (name.startswith("_") and name != "__all__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rlx.ops.declare import FUNCTIONS

    if name not in FUNCTIONS:
        if name in MODULE_OF and name not in INTERNAL:
            import_module(MODULE_OF[name])
        elif find_spec(f"{__name__}.{name}") is not None:
            # ``from rlx.ops import placeholders`` asks for an attribute first; then it imports the module.
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        else:
            from rlx.ir.opdef import REGISTRY

            REGISTRY.load_all()  # those of programs and plug-ins are among them
    if name == "__all__":
        return sorted(FUNCTIONS)
    if name not in FUNCTIONS:
        raise AttributeError(f"rlx.ops has no op {name!r}; {did_you_mean(name, FUNCTIONS)}")
    return FUNCTIONS[name]


def __dir__() -> list[str]:
    return [*globals(), *_OTHERS, *__getattr__("__all__")]


class _Ops(ModuleType):
    """This module: where an operation has the name of a family's package, the name is the operation's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in MODULE_OF and name not in INTERNAL):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Ops
