"""Turns a reference function into an op record, and a record into a builder method.

The decorated function is the specification: its name is the op's, its docstring the documentation,
its parameters the builder's. A parameter annotated ``Array`` is an operand, ``Array | None`` an
operand that may be absent, ``Sequence[Array]`` a list of them; every other one is an attribute.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, GraphError, ShapeError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Attrs, Infer, OpDef, TensorType, register

_OPERAND = {"Array": "", "Array | None": "?", "Sequence[Array]": "*"}


def op(
    *, name: str = "", free: Sequence[str] = (), **fields: Any
) -> Callable[[Callable[..., Array]], OpDef]:
    """Registers the decorated reference function as an operation.

    Args:
        name: The op's name, where it is not the function's (``slice`` is taken in Python).
        free: Operands whose dtype need not be that of the others (indices, masks).
        **fields: Fields of ``OpDef`` other than those read off the function.

    Returns:
        A decorator that gives the record.
    """

    def decorate(function: Callable[..., Array]) -> OpDef:
        signature = inspect.signature(function)
        operands = tuple(
            parameter.name + _OPERAND[parameter.annotation]
            for parameter in signature.parameters.values()
            if parameter.annotation in _OPERAND
        )
        called = name or function.__name__
        fields["infer"] = _checked(called, operands, frozenset(free), fields["infer"])
        return register(
            OpDef(
                name=called,
                doc=inspect.getdoc(function) or "",
                signature=signature,
                operands=operands,
                reference=function,
                **fields,
            )
        )

    return decorate


def _checked(name: str, operands: tuple[str, ...], free: frozenset[str], infer: Infer) -> Infer:
    """Inference with the check that every record shares: operands that must agree in dtype do."""

    def checked(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
        names = _given(operands, attrs, len(types))
        bound = [(n, t) for n, t in zip(names, types, strict=True) if n not in free]
        for operand, type in bound[1:]:
            if type.dtype is not bound[0][1].dtype:
                raise DTypeError(
                    describe(
                        f"[{name}] operands {bound[0][0]!r} and {operand!r} differ in dtype",
                        got=f"{bound[0][1].dtype} and {type.dtype}",
                        expected="one dtype",
                        hint="add g.cast(...) to one of them",
                    )
                )
        return infer(types, attrs)

    checked.free = free  # type: ignore[attr-defined]  # read back by the builder
    return checked


def _given(operands: tuple[str, ...], attrs: Attrs, count: int) -> list[str]:
    """The parameter name of each operand of a node."""
    if operands and operands[-1].endswith("*"):
        return [operands[-1][:-1]] * count
    present = attrs.get("present")
    names = [n.rstrip("?") for n in operands]
    if present is not None:
        names = [
            n for n, text in zip(names, operands, strict=True) if text[-1] != "?" or n in present
        ]
    if len(names) != count:
        raise GraphError(describe("wrong number of operands", got=count, expected=names))
    return names


def bind_reference(node: Node, arrays: Sequence[Array]) -> dict[str, Any]:
    """Arguments of the reference function for a node."""
    opdef = node.opdef
    attrs = {k: v for k, v in node.attrs.items() if k != "present"}
    if opdef.operands and opdef.operands[-1].endswith("*"):
        return {opdef.operands[-1][:-1]: list(arrays), **attrs}
    return {
        **dict(zip(_given(opdef.operands, node.attrs, len(arrays)), arrays, strict=True)),
        **attrs,
    }


def evaluate(node: Node, arrays: Sequence[Array]) -> Array:
    """What a node means: its reference on float64 copies of the operands, rounded once.

    Args:
        node: The node.
        arrays: Its operands, in their storage dtypes.

    Returns:
        The result, in the node's dtype and shape.
    """
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    with np.errstate(all="ignore"):
        result = np.asarray(node.opdef.reference(**bind_reference(node, wide)))
        result = result.astype(node.dtype.numpy)
    if result.shape != node.shape:
        raise ShapeError(
            describe(
                f"[{node.op}] the reference gives another shape than inference",
                where=node.where(),
                got=result.shape,
                expected=node.shape,
            )
        )
    return np.asarray(result, order="C")


def build(opdef: OpDef, graph: Graph, *args: Any, **kwargs: Any) -> Node:
    """Adds a node from the arguments of a builder call, promoting numbers and arrays.

    Raises:
        GraphError: The arguments do not fit the signature, or the node is not legal.
    """
    try:
        bound = opdef.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise GraphError(
            describe(f"[{opdef.name}] {error}", expected=f"{opdef.name}{show_signature(opdef)}")
        ) from None
    bound.apply_defaults()
    free: frozenset[str] = opdef.infer.free  # type: ignore[attr-defined]
    given: list[tuple[str, Any]] = []
    for text in opdef.operands:
        name = text.rstrip("?*")
        value = bound.arguments.pop(name)
        if text.endswith("*"):
            if isinstance(value, Node):
                raise GraphError(
                    describe(f"[{opdef.name}] {name!r} must be a list of nodes", got=repr(value))
                )
            given += [(name, item) for item in value]
        elif value is not None:
            given.append((name, value))
        elif not text.endswith("?"):
            raise GraphError(describe(f"[{opdef.name}] operand {name!r} is missing"))
    like = next((v.dtype for n, v in given if isinstance(v, Node) and n not in free), None)
    nodes = [
        graph.as_node(value, None if name in free else like, where=opdef.name)
        for name, value in given
    ]
    attrs = dict(bound.arguments)
    if any(text.endswith("?") for text in opdef.operands):
        names = {name for name, _ in given}
        attrs["present"] = tuple(
            t[:-1] for t in opdef.operands if t.endswith("?") and t[:-1] in names
        )
    return graph.add_node(opdef, nodes, attrs)


def show_signature(opdef: OpDef) -> str:
    """The builder's parameters as text: ``(x, axis=-1)``."""
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in opdef.signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


def attach(opdef: OpDef) -> Callable[..., Node]:
    """Makes the builder method of ``Graph`` and returns the function of ``rlx.ops``."""

    def method(self: Graph, *args: Any, **kwargs: Any) -> Node:
        return build(opdef, self, *args, **kwargs)

    def function(*args: Any, **kwargs: Any) -> Node:
        values = [*args, *kwargs.values()]
        flat = [i for v in values for i in (v if isinstance(v, (list, tuple)) else [v])]
        graph = next((i.graph for i in flat if isinstance(i, Node)), None)
        if graph is None:
            raise GraphError(
                describe(f"[{opdef.name}] rlx.ops.{opdef.name} needs a node among its arguments")
            )
        return build(opdef, graph, *args, **kwargs)

    for made, extra in ((method, ["self"]), (function, [])):
        made.__name__ = opdef.name
        made.__qualname__ = opdef.name
        made.__doc__ = opdef.doc
        parameters = [
            *(inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in extra),
            *(
                p.replace(annotation=inspect.Parameter.empty)
                for p in opdef.signature.parameters.values()
            ),
        ]
        setattr(made, "__signature__", inspect.Signature(parameters))  # noqa: B010 - not a field of functions
    setattr(Graph, opdef.name, method)
    return function


def same_dtype(types: Sequence[TensorType]) -> DType:
    """The dtype of the first operand."""
    return types[0].dtype


FLOAT_KERNELS = frozenset({DType.F32, DType.F64})
WEBGPU_FLOATS = frozenset({DType.F32})
