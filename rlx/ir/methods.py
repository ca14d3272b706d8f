"""Methods of ``Graph`` that are named after operations: there once the operation is imported, which may be now."""

from __future__ import annotations

from typing import Any

from rlx.errors import did_you_mean
from rlx.ir.opdef import REGISTRY


class Methods(type):
    """The type of ``Graph``: a method that is not there yet may be that of an operation."""

    def __getattr__(cls, name: str) -> Any:
        if not name.startswith("_") and name in REGISTRY:
            record = REGISTRY[name]  # importing it adds the method
            if not record.internal:
                return type.__getattribute__(cls, name)
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), *method_names()})


def method_names() -> list[str]:
    """Names of the methods of all operations."""
    return [name for name, record in REGISTRY.items() if not record.internal]


# The counterparts of names of NumPy and PyTorch that graphs and nodes lack.
_ELSEWHERE = {
    "T": "g.transpose({x})",
    **dict.fromkeys(("mT", "permute", "swapaxes"), "g.transpose({x}, perm)"),
    **dict.fromkeys(("array", "asarray"), "g.constant(array)"),
    **dict.fromkeys(("astype", "to", "type"), "g.cast({x}, dtype)"),
    **dict.fromkeys(("dim", "ndim"), "len({x}.shape)"),
    **dict.fromkeys(("size", "numel"), "math.prod({x}.shape)"),
    **dict.fromkeys(("flatten", "ravel"), "g.reshape({x}, (-1,))"),
    "view": "g.reshape({x}, shape)",
    "eye": "g.constant(np.eye(n, dtype=np.float32))",
    "full": "g.constant(np.full(shape, value, np.float32))",
    "ones": "g.constant(np.ones(shape, np.float32))",
    "zeros": "g.constant(np.zeros(shape, np.float32))",
    "stack": "g.concat([g.unsqueeze(one, (0,)) for one in nodes], 0)",
    **dict.fromkeys(("cat", "concatenate"), "g.concat(nodes, axis)"),
    "dot": "a @ b",
    "norm": "g.l2({x}, axes)",
    "std": "g.sqrt of g.mean of squares",
    "var": "g.mean of squares",
    "take": "g.gather({x}, indices, axis)",
    **dict.fromkeys(("item", "numpy", "tolist"), "the outputs of a run"),
    "output": "g.set_outputs([...])",
    "compile": "rlx.compile(g, device)",
    "run": "rlx.compile(g, device).run({{...}})",
}


def hint_of(kind: type, name: str, x: str) -> str:
    """Returns a hint for a name that graphs or nodes lack, with ``x`` as the name of an operand."""
    if name in _ELSEWHERE:
        return f"use {_ELSEWHERE[name].format(x=x)}"
    if name in REGISTRY and not REGISTRY[name].internal:
        return f"use g.{name}({x}, ...)"
    return did_you_mean(name, [item for item in dir(kind) if not item.startswith("_")])


def absent(kind: type, name: str) -> str:
    """Returns the message for a method that graphs lack."""
    text = f"a Graph has no {name!r}"
    return text if name.startswith("_") else f"{text}; {hint_of(kind, name, 'x')}"
