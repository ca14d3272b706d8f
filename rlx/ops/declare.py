"""Turns a reference function into an op record, and a record into a builder method.

The decorated function is the specification: its name is the op's, its docstring the documentation,
its parameters the builder's. A parameter annotated ``Array`` is an operand, ``Array | None`` an
operand that may be absent, ``Sequence[Array]`` or ``*xs: Array`` a list of them; every other one is an attribute.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.errors import MALFORMED, DTypeError, GraphError, InputError, RlxError, ShapeError
from rlx.ir.dtype import ALL, DType, store, widen
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import (
    PRESENT,
    REGISTRY,
    Array,
    Attrs,
    Emitter,
    Kernels,
    OpDef,
    TensorType,
    register,
)
from rlx.sizes import SizeExpr

# The functions of ``rlx.ops``, by the names of the operations that are imported.
FUNCTIONS: dict[str, Callable[..., Any]] = {}
_OPERAND = {"Array": "", "Array | None": "?", "Sequence[Array]": "*"}


def op(
    *, name: str = "", free: Sequence[str] = (), **fields: Any
) -> Callable[[Callable[..., Any]], OpDef]:
    """Registers the decorated reference function as an operation.

    Args:
        name: The op's name, where it is not the function's (``slice`` is taken in Python).
        free: Operands whose dtype need not be that of the others (indices, masks).
        **fields: Fields of ``OpDef`` other than those read off the function. ``webgpu_dtypes`` are by default
            those of ``dtypes`` that WGSL has.

    Returns:
        A decorator that gives the record.
    """

    def decorate(function: Callable[..., Any]) -> OpDef:
        signature = inspect.signature(function)
        operands = tuple(
            p.name + ("*" if p.kind is p.VAR_POSITIONAL else _OPERAND[p.annotation])
            for p in signature.parameters.values()
            if p.annotation in _OPERAND
        )
        called = name or function.__name__
        infer = fields.pop("infer")
        samples = fields.pop("samples", ())
        fields.setdefault("webgpu_dtypes", fields.get("dtypes", ALL) & WEBGPU_DTYPES)
        record: OpDef

        def checked(
            types: Sequence[TensorType], attrs: dict[str, Any]
        ) -> TensorType | tuple[TensorType, ...]:
            check_dtypes(record, types, attrs)
            return infer(types, attrs)

        record = OpDef(
            name=called,
            doc=inspect.getdoc(function) or "",
            signature=signature,
            operands=operands,
            infer=infer if called == PART else checked,
            reference=function,
            free=frozenset(free),
            make_samples=samples if callable(samples) else lambda: samples,
            **fields,
        )
        register(record)
        if not record.internal:
            FUNCTIONS[record.name] = attach(record)
        return record

    return decorate


def composite(
    expand: Callable[..., Any], *, name: str = "", free: Sequence[str] = (), **fields: Any
) -> Callable[[Callable[..., Any]], OpDef]:
    """Registers an operation that others express: a reference, and how its nodes are added.

    Args:
        expand: Called as ``expand(graph, **parameters)`` with the parameters of the reference:
            operands as nodes (None for an absent one, a list for a list), attributes as given or by
            default. It checks them and returns the result, or a tuple of results.
        name: The op's name, where it is not the function's.
        free: Operands whose dtype need not be that of the others.
        **fields: ``dtypes``, ``samples``, ``tolerance`` of ``OpDef``.

    Returns:
        A decorator for the reference function: NumPy arrays, float64 inside, with the attributes as
        the caller gave them.
    """

    def decorate(function: Callable[..., Any]) -> OpDef:
        called = name or function.__name__

        def nothing(*args: Any) -> Any:
            raise GraphError("a graph holds no node of a composite", got=called)

        record = op(name=called, free=free, infer=nothing, flops=nothing, expand=expand, **fields)
        return record(function)

    return decorate


def check_dtypes(opdef: OpDef, types: Sequence[TensorType], attrs: Attrs) -> None:
    """The check that every record shares: the main operand's dtype, which the others must have.

    Raises:
        DTypeError: The op does not take it, or two operands differ.
    """
    bound = _bound(opdef.operands, opdef.free, attrs.get(PRESENT), len(types))
    if not bound:
        return
    main = types[bound[0]].dtype
    if main not in opdef.accepts:
        raise DTypeError(
            f"[{opdef.name}] {_operand_names_of(opdef.operands, attrs, len(types))[bound[0]]!r} can't be {main}",
            got=main,
            expected=", ".join(sorted(map(str, opdef.accepts))),
            hint="add g.cast(...) in front",
        )
    for i in bound[1:]:
        if types[i].dtype is not main:
            names = _operand_names_of(opdef.operands, attrs, len(types))
            raise DTypeError(
                f"[{opdef.name}] operands {names[bound[0]]!r} and {names[i]!r} differ in dtype",
                got=f"{main} and {types[i].dtype}",
                expected="one dtype",
                hint="add g.cast(...) to one of them",
            )


def operand_names(node: Node) -> list[str]:
    """The parameter name of each operand of a node."""
    return _operand_names_of(node.opdef.operands, node.attrs, len(node.inputs))


def named_operands(node: Node, emitter: Emitter, names: Sequence[str]) -> list[Any]:
    """The values of operands by name, None for an absent one."""
    indices = {name: i for i, name in enumerate(operand_names(node))}
    return [emitter.operand(indices[name]) if name in indices else None for name in names]


def one_call(kernel: str, params: Callable[[Node], dict[str, Any]]) -> Kernels:
    """The kernels of an operation that a single call makes, of all operands and results."""

    def lower(node: Node, emitter: Emitter) -> None:
        operands = [emitter.operand(i) for i in range(len(node.inputs))]
        emitter.call(kernel, operands, emitter.results(), params(node))

    return Kernels((kernel,), lower)


def main_dtype(node: Node) -> DType:
    """The dtype that decides which kernels a node needs: that of its main operand, else its own."""
    opdef = node.opdef
    index = _bound(opdef.operands, opdef.free, node.attrs.get(PRESENT), len(node.inputs))
    return node.inputs[index[0]].dtype if index else node.dtype


def _operand_names_of(operands: tuple[str, ...], attrs: Attrs, count: int) -> list[str]:
    """The parameter name of each operand of a node; a list of operands stands last."""
    return list(_names(operands, attrs.get(PRESENT), count))


@functools.lru_cache(4096)
def _bound(
    operands: tuple[str, ...], free: frozenset[str], present: tuple[str, ...] | None, count: int
) -> tuple[int, ...]:
    """The positions of the operands of a node that share one dtype."""
    names = _names(operands, present, count)
    return tuple(i for i, name in enumerate(names) if name not in free)


@functools.lru_cache(4096)
def _names(
    operands: tuple[str, ...], present: tuple[str, ...] | None, count: int
) -> tuple[str, ...]:
    """See ``_given``. Most nodes of a graph are of few forms, so that each form is looked at once."""
    names = [
        text.rstrip("?*")
        for text in operands
        if text[-1] != "?" or present is None or text[:-1] in present
    ]
    if operands and operands[-1].endswith("*"):
        names = names[:-1] + [names[-1]] * (count - len(names) + 1)
    if len(names) != count:
        raise GraphError("wrong number of operands", got=count, expected=names)
    return tuple(names)


def bind_reference(opdef: OpDef, attrs: Attrs, arrays: Sequence[Any]) -> dict[str, Any]:
    """Arguments of a record's reference function, or with nodes for operands of its expansion."""
    bound: dict[str, Any] = {k: v for k, v in attrs.items() if k != PRESENT}
    listed = opdef.operands[-1][:-1] if opdef.operands and opdef.operands[-1][-1] == "*" else None
    if listed:
        bound[listed] = []
    for name, array in zip(
        _operand_names_of(opdef.operands, attrs, len(arrays)), arrays, strict=True
    ):
        if name == listed:
            bound[name].append(array)
        else:
            bound[name] = array
    return bound


def call_with(
    function: Callable[..., Any], signature: inspect.Signature, arguments: Mapping[str, Any]
) -> Any:
    """Calls a function with arguments by name, where one may be a starred list."""
    named = {name: arguments[name] for name in signature.parameters if name in arguments}
    bound = inspect.BoundArguments(signature, named)
    return function(*bound.args, **bound.kwargs)


def evaluate(node: Node, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Evaluates a node on operands in their storage dtypes: its reference on float64 copies, rounded once."""
    dtypes = [operand.dtype for operand in node.inputs]
    return evaluate_reference(node.opdef, node.attrs, dtypes, arrays, node.types)


def evaluate_reference(
    opdef: OpDef,
    attrs: Attrs,
    dtypes: Sequence[DType],
    arrays: Sequence[Array],
    types: Sequence[TensorType],
) -> tuple[Array, ...]:
    """Runs a record's reference; see ``evaluate``.

    Args:
        opdef: The record.
        attrs: Attributes, normalised by inference (of a composite: as given).
        dtypes: dtypes of the operands.
        arrays: The operands in their storage dtypes.
        types: The types that the results have to have.
    """
    wide = [widen(a, dtype) for a, dtype in zip(arrays, dtypes, strict=True)]
    with np.errstate(all="ignore"):
        bound = bind_reference(opdef, attrs, wide)
        try:
            result = call_with(opdef.reference, opdef.signature, bound)
        except (IndexError, ValueError) as error:
            if isinstance(error, RlxError) or opdef.name == "custom":
                raise
            # NumPy refuses values here; shapes and dtypes have been checked.
            raise InputError(f"[{opdef.name}] a value is out of range", got=error) from error
        listed = result if isinstance(result, tuple) else (result,)
        return stored_results(opdef.name, listed, types)


def stored_results(
    what: str, output: Sequence[Any], types: Sequence[TensorType]
) -> tuple[Array, ...]:
    """Casts the results of a NumPy function, named in messages, to the types that the rule of its operation states.

    Raises:
        ShapeError: There are more or fewer of them, or one has another shape.
    """
    if len(output) != len(types):
        text = f"[{what}] the NumPy function gives more or fewer results than the rule"
        raise ShapeError(text, got=len(output), expected=len(types))
    # A number that is too large becomes infinity.
    with np.errstate(all="ignore"):
        pairs = zip(output, types, strict=True)
        results = [store(np.asarray(item), type.dtype) for item, type in pairs]
    for result, type in zip(results, types, strict=True):
        # Sizes that the values decide have no number in the rule.
        pairs_of = zip(result.shape, type.shape, strict=False)
        fits = all(isinstance(size, SizeExpr) or got == size for got, size in pairs_of)
        if len(result.shape) != len(type.shape) or not fits:
            text = f"[{what}] the NumPy function's shape differs from the rule's"
            raise ShapeError(text, got=result.shape, expected=type.shape)
    return tuple(results)


def build(opdef: OpDef, graph: Graph, *args: Any, **kwargs: Any) -> Any:
    """Adds a node from the arguments of a builder call, promoting numbers and arrays.

    Returns:
        The node; a tuple of nodes where the op has several results.

    Raises:
        GraphError: The arguments do not fit the signature, or the node is not legal.
    """
    try:
        with graph.deciding():
            return _built(opdef, graph, args, kwargs)
    except MALFORMED as error:
        if isinstance(error, RlxError | MemoryError) or opdef.name == "custom":
            raise
        # Python refuses arguments that no check covers.
        raise GraphError(
            f"[{opdef.name}] an argument does not fit",
            got=f"{type(error).__name__}: {error}",
            expected=f"{opdef.name}{show_signature(opdef)}",
        ) from error


def _built(opdef: OpDef, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    REGISTRY[opdef.name]  # waits for another thread that imports the operation's module
    attrs = _arguments(opdef, args, kwargs)
    arguments: list[tuple[str, Any]] = []
    operands, optional = opdef.operand_kinds, opdef.optional
    for name, kind in operands:
        value = attrs.pop(name)
        if kind == "*":
            if isinstance(value, Node):
                raise GraphError(
                    f"[{opdef.name}] {name!r} must be a list of nodes", got=repr(value)
                )
            arguments += [(name, item) for item in value]
        elif value is not None:
            arguments.append((name, value))
        elif kind != "?":
            raise GraphError(f"[{opdef.name}] operand {name!r} is missing")
    like = next(
        (v.dtype for n, v in arguments if isinstance(v, Node) and n not in opdef.free), None
    )
    nodes = [
        graph.as_node(value, None if name in opdef.free else like, where=opdef.name)
        for name, value in arguments
    ]
    annotations = opdef.attributes
    for name, value in attrs.items():
        _check_whole(opdef.name, name, value)
        known = ARGUMENTS.get(annotations[name])
        if known is not None and not known[0](value):
            raise GraphError(
                f"[{opdef.name}] argument {name!r}",
                got=f"{value!r:.60}",
                expected=known[1],
                hint=f"{opdef.name}{show_signature(opdef)}",
            )
    if optional:
        there = {name for name, _ in arguments}
        attrs[PRESENT] = tuple([name for name in optional if name in there])
    if opdef.expand is not None:
        check_dtypes(opdef, [node.type for node in nodes], attrs)
        absent = dict.fromkeys(optional)
        return opdef.expand(graph, **{**absent, **bind_reference(opdef, attrs, nodes)})
    node = graph.add_node(opdef, nodes, attrs)
    if len(node.types) == 1:
        return node
    return tuple(graph.add_node(PART, [node], {"index": i}) for i in range(len(node.types)))


def _arguments(opdef: OpDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a builder call by name, defaults among them, in the order of the signature.

    ``inspect.Signature.bind`` does the same in ten times as long; it is asked where arguments do not fit, or where the
    operation takes any number of them.

    Raises:
        GraphError: They do not fit.
    """
    defaults, needed = opdef.defaults
    if len(args) <= len(defaults):
        arguments = dict(zip(defaults, args, strict=False))
        results = {**defaults, **arguments, **kwargs}
        there = all([name in kwargs for name in needed[len(args) :]])
        if len(results) == len(defaults) and there and arguments.keys().isdisjoint(kwargs):
            return results
    try:
        bound = opdef.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise GraphError(
            f"[{opdef.name}] {error}", expected=f"{opdef.name}{show_signature(opdef)}"
        ) from None
    bound.apply_defaults()
    return dict(bound.arguments)


# Whole numbers of attributes fit 64 bits: kernels take them so, and so does NumPy.
_WHOLE = range(-(1 << 63), 1 << 63)


def _check_whole(op: str, name: str, value: Any) -> None:
    if isinstance(value, (tuple, list)):
        for item in value:
            _check_whole(op, name, item)
    elif isinstance(value, int) and value not in _WHOLE:
        raise GraphError(
            f"[{op}] attribute {name!r}", got=value, expected="a whole number of 64 bits"
        )


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, np.ndarray)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real | SizeExpr) or (
        isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "fiu"
    )


def _are_whole(value: Any) -> bool:
    if isinstance(value, Node | str | bytes | dict) or not isinstance(value, Iterable):
        return False
    # An iterator is read once, by who takes its numbers.
    return isinstance(value, Iterator) or all(map(_is_whole, value))


_LIST = "a list of whole numbers"
# The checks of arguments, by the annotations of parameters; arguments of other annotations are checked where they are used.
ARGUMENTS: Mapping[object, tuple[Callable[[Any], bool], str]] = {
    "int": (_is_whole, "a whole number"),
    "int | None": (lambda value: value is None or _is_whole(value), "a whole number, or None"),
    "float": (_is_real, "a number"),
    "float | None": (lambda value: value is None or _is_real(value), "a number, or None"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "Sequence[int]": (_are_whole, _LIST),
    "Sequence[int] | None": (lambda value: value is None or _are_whole(value), f"{_LIST}, or None"),
    "PerAxis": (lambda value: _is_whole(value) or _are_whole(value), f"a whole number, or {_LIST}"),
    "Axes": (lambda v: v is None or _is_whole(v) or _are_whole(v), f"an axis, {_LIST}, or None"),
}


def show_signature(opdef: OpDef) -> str:
    """The builder's parameters as text: ``(x, axis=-1)``."""
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in opdef.signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


def attach(opdef: OpDef) -> Callable[..., Any]:
    """Makes the builder method of ``Graph`` and returns the function of ``rlx.ops``."""

    def method(self: Graph, *args: Any, **kwargs: Any) -> Any:
        return build(opdef, self, *args, **kwargs)

    def function(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        flat = [i for v in values for i in (v if isinstance(v, (list, tuple)) else [v])]
        graph = next((i.graph for i in flat if isinstance(i, Node)), None)
        if graph is None:
            raise GraphError(
                f"[{opdef.name}] rlx.ops.{opdef.name} needs a node among its arguments"
            )
        return build(opdef, graph, *args, **kwargs)

    for item, extra in ((method, ["self"]), (function, [])):
        item.__name__ = opdef.name
        item.__qualname__ = opdef.name
        item.__doc__ = opdef.doc
        parameters = [
            *(inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in extra),
            *(
                p.replace(annotation=inspect.Parameter.empty)
                for p in opdef.signature.parameters.values()
            ),
        ]
        setattr(item, "__signature__", inspect.Signature(parameters))  # noqa: B010 - not a field of functions
    setattr(Graph, opdef.name, method)
    return function


FLOAT_KERNELS = frozenset({DType.F32, DType.F64})
# The types that WGSL has, and those that kernels make of two words.
WEBGPU_DTYPES = frozenset({DType.F32, DType.I32, DType.U32, DType.I64, DType.BOOL})
