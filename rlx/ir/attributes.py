"""What a node's attributes look like: asked of nodes that come out of a file, not from a builder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlx.errors import GraphError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import TensorType, lookup

# What a parameter of a record may hold, by its annotation.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "int | None": (int, type(None)),
}
_ANY = (bool, int, float, str, type(None), DType, Graph, np.ndarray)
# Which operands are there: inference adds it where some may be absent.
_ADDED = frozenset({"present"})

# The op whose attribute is a program of others: passes make it, and infer only its last step.
_REGION = "region"


def check_attributes(node: Node) -> None:
    """Checks that a node has the attributes of its record, each of the type that is annotated there.

    Inference checks what an attribute says; builders see to its type, and to all of them being there.

    Args:
        node: A node whose inference has been done.

    Raises:
        GraphError: An attribute is missing, of another type, or none of the record's.
    """
    operands = {text.rstrip("?*") for text in node.opdef.operands}
    wanted = {
        name: parameter.annotation
        for name, parameter in node.opdef.signature.parameters.items()
        if name not in operands
    }
    given = node.attrs.keys() - _ADDED
    if given != wanted.keys():
        raise GraphError(
            describe(
                f"[{node.op}] other attributes than it has",
                got=", ".join(sorted(given)) or "none",
                expected=", ".join(sorted(wanted)) or "none",
            )
        )
    if node.op == _REGION:
        _check_program(node)
    for name, value in node.attrs.items():
        annotation = wanted.get(name, "Any")
        if not _fits(value, annotation):
            raise GraphError(
                describe(f"[{node.op}] attribute {name!r}", got=repr(value), expected=annotation)
            )


def _fits(value: Any, annotation: str) -> bool:
    types = _TYPES.get(annotation)
    if types is not None:
        return isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if isinstance(value, tuple):
        return all(_fits(item, "Any") for item in value)
    return isinstance(value, _ANY)


def _check_program(node: Node) -> None:
    """Infers every step: kernels read operands by number and believe the types."""
    types = [TensorType((), operand.dtype) for operand in node.inputs]
    for name, operands, dtype, literal in node.attrs["program"]:
        if name == "literal":
            legal = isinstance(dtype, DType) and isinstance(literal, (bool, int, float))
        else:
            record = lookup(name)
            legal = record.elementwise and all(at in range(len(types)) for at in operands)
            attrs = {"dtype": dtype} if name == "cast" else {}
            given = [types[at] for at in operands] if legal else []
            legal = legal and record.infer(given, attrs) == TensorType((), dtype)
        if not legal:
            step = (name, operands, dtype, literal)
            raise GraphError(describe(f"[{_REGION}] not a step", got=repr(step)))
        types.append(TensorType((), dtype))
