"""Control flow: a branch, a loop while a condition holds, and a loop along an axis, with subgraphs.

A subgraph is a ``Graph`` of its own: its inputs, in declaration order, are given the operands, and its outputs are the results.
It has no params and sees nothing of the graph around it: what it needs is passed as an operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlx.errors import GraphError
from rlx.ir.dtype import ALL, DType, store
from rlx.ir.graph import Graph, Node
from rlx.ir.input_sizes import computes_sizes
from rlx.ir.opdef import NO_F64, Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.rewrite import subgraphs
from rlx.ops import placeholders
from rlx.ops.declare import op
from rlx.ops.elementwise import records
from rlx.ops.interpret import count_trip, interpret
from rlx.ops.movement.strided import emit_strided_copy
from rlx.sizes import pinned

# The samples' subgraphs are made of their records.
_NEEDED = (records, placeholders)
_COUNTER = TensorType((1,), DType.I32)
# Calls that a GPU makes of a scan at most: each trip's are listed one by one.
_MAX_STEPS = 1 << 16


def _steps(graph: Graph) -> int:
    """Nodes that a graph computes, each as often as its scans go around."""
    result = 0
    for node in graph.nodes:
        inner = subgraphs(node)
        trips = node.inputs[-1].shape[0] if node.op == "scan" else 1
        result += trips * sum(map(_steps, inner)) if inner else 1
    return result


def _too_long(node: Node) -> str | None:
    steps = _steps(node.attrs["body_graph"]) * node.inputs[-1].shape[0]
    return f"{steps} steps of a scan, one dispatch each" if steps > _MAX_STEPS else None


def _check(name: str, graph: Any, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """The types of a subgraph's outputs, once its inputs are known to fit.

    Raises:
        GraphError: It is not a graph, has params, or takes something else.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"[{name}] a subgraph", got=repr(graph), expected="a rlx.Graph")
    graph.verify()
    if computes_sizes(graph):
        raise GraphError(
            f"[{name}] subgraph {graph.name!r} computes sizes",
            expected="sizes that are known when it begins",
            hint="read them in the graph around it",
        )
    taken = tuple(graph.named(n).type for n in graph.input_names)
    if graph.param_names or taken != tuple(types):
        raise GraphError(
            f"[{name}] subgraph {graph.name!r} does not take the operands",
            got=f"operands {', '.join(map(str, types))}; "
            f"inputs {', '.join(map(str, taken))}; {len(graph.param_names)} params",
            expected="one input per operand, of its shape and dtype, and no params",
        )
    return tuple(node.type for node in graph.outputs)


def _run(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """A subgraph by references, on operands that may have been widened."""
    inputs = {
        name: store(np.asarray(array), graph.named(name).dtype)
        for name, array in zip(graph.input_names, arrays, strict=True)
    }
    return interpret(graph, inputs)


def _copy(emitter: Emitter, source: Any, target: Any, type: TensorType, **rows: Any) -> None:
    dims = (type.size,)
    emit_strided_copy(emitter, source, target, type.dtype, dims, (1,), (1,), **rows)


def _nested_flops(graph: Graph) -> float:
    return sum(node.opdef.flops(node) for node in graph.nodes)


# --- if ------------------------------------------------------------------------------------------------


def _infer_if(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    if types[0] != TensorType((), DType.BOOL):
        raise GraphError("[if_] the condition", got=types[0], expected="a bool scalar")
    then, other = (_check("if_", attrs[n], types[1:]) for n in ("then_graph", "else_graph"))
    if then != other:
        raise GraphError("[if_] the branches give different results", got=f"{then} and {other}")
    return then


def _operands(node: Node, emitter: Emitter, start: int = 0) -> list[Any]:
    return [emitter.operand(i) for i in range(start, len(node.inputs))]


def _lower_if_cpu(node: Node, emitter: Emitter) -> None:
    operands, results = _operands(node, emitter, 1), emitter.results()

    def side(name: str) -> None:
        made = emitter.inline(node.attrs[name], operands)
        for value, target, type in zip(made, results, node.types, strict=True):
            _copy(emitter, value, target, type)

    if node.attrs["then_graph"] is node.attrs["else_graph"]:
        side("then_graph")  # two copies at each of many levels would be too many
    else:
        emitter.choose(emitter.operand(0), partial(side, "then_graph"), partial(side, "else_graph"))


def _lower_if_webgpu(node: Node, emitter: Emitter) -> None:
    # A dispatch can't be skipped without reading the condition back, so both sides are computed.
    operands, results = _operands(node, emitter, 1), emitter.results()
    condition = emitter.operand(0)
    sides = {node.attrs[n]: None for n in ("then_graph", "else_graph")}
    both = [emitter.inline(side, operands) for side in sides]
    if len(both) == 1:
        for value, target, type in zip(both[0], results, node.types, strict=True):
            _copy(emitter, value, target, type)
        return
    for then, other, target, type in zip(*both, results, node.types, strict=True):
        program = (("where", (0, 1, 2), type.dtype, None),)
        shapes = ((), type.shape, type.shape)
        emitter.elementwise(program, [condition, then, other], target, shapes)


def _step(*programs: Sequence[Any], types: Sequence[TensorType], outputs: Sequence[int]) -> Graph:
    """A small subgraph for a sample: nodes as (op, operands, attributes), numbered after the inputs."""
    g = Graph("step")
    nodes = [g.input(f"x{i}", type.shape, type.dtype) for i, type in enumerate(types)]
    for name, operands, *rest in programs:
        if name == "number":
            nodes.append(g.constant(*operands))
        else:
            nodes.append(
                g.add_node(name, [nodes[operand] for operand in operands], rest[0] if rest else {})
            )
    g.set_outputs([nodes[output] for output in outputs])
    return g


def _type(*shape: int, dtype: DType = DType.F32) -> TensorType:
    return TensorType(shape, dtype)


_A = _type(2, 3)
_E = _type(0, 3)
_IF_SAMPLES = tuple(
    Sample(
        ((), type.shape, type.shape),
        {
            "then_graph": _step(("add", (0, 1)), types=(type, type), outputs=(2, 0)),
            "else_graph": _step(("mul", (0, 1)), ("exp", (2,)), types=(type, type), outputs=(3, 1)),
        },
        dtypes=(DType.BOOL, DType.F32, DType.F32),
        values=(np.array(taken), np.full(type.shape, 0.5), np.full(type.shape, 0.25)),
    )
    for taken in (True, False)
    for type in (_A, _E, _type(1))
)


@op(
    free=("cond", "xs"),
    infer=_infer_if,
    flops=lambda node: max(
        map(_nested_flops, {node.attrs["then_graph"], node.attrs["else_graph"]})
    ),
    cpu=Kernels(("jump", "jump_unless", "strided_copy"), _lower_if_cpu),
    webgpu=Kernels(("strided_copy",), _lower_if_webgpu),
    webgpu_dtypes=ALL,
    # The results are selected element by element, even where the branches only move them.
    host_reason=lambda node: NO_F64 if DType.F64 in {t.dtype for t in node.types} else None,
    samples=_IF_SAMPLES,
    tolerance={DType.F32: 1e-5},  # that of the subgraph's functions
)
def if_(cond: Array, then_graph: Graph, else_graph: Graph, *xs: Array) -> Any:
    """The results of one of two subgraphs.

    The CPU computes only the branch that is taken. WebGPU computes both and selects, since skipping one
    would mean reading the condition back.

    Args:
        cond: A bool scalar.
        then_graph: Taken when it is true.
        else_graph: Taken when it is false; results of the same shapes and dtypes.
        *xs: Operands of both.

    Returns:
        One result, or a tuple of them.

    Example:
        >>> import rlx
        >>> double, half = rlx.Graph("double"), rlx.Graph("half")
        >>> double.set_outputs([double.input("x", (2,)) * 2.0])
        >>> half.set_outputs([half.input("x", (2,)) * 0.5])
        >>> g = rlx.Graph()
        >>> x = g.input("x", (2,))
        >>> g.if_(g.sum(x) > 0.0, double, half, x).shape
        (2,)
    """
    return tuple(_run(then_graph if cond else else_graph, xs))


# --- loops ---------------------------------------------------------------------------------------------


def _store_state(
    emitter: Emitter, results: Sequence[Any], state: Sequence[Any], types: Sequence[TensorType]
) -> None:
    """New state over the old; a result that is another one's old state is kept aside first."""
    moved = []
    for value, target, type in zip(results, state, types, strict=True):
        if value is not target and any(value is old for old in state):
            retained = emitter.temp(type)
            _copy(emitter, value, retained, type)
            value = retained
        moved.append(value)
    for value, target, type in zip(moved, state, types, strict=True):
        if value is not target:
            _copy(emitter, value, target, type)


def _infer_while(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    if _check("while_", attrs["cond_graph"], types) != (TensorType((), DType.BOOL),):
        raise GraphError("[while_] cond_graph", expected="one output, a bool scalar")
    result = _check("while_", attrs["body_graph"], types)
    if result != tuple(types) or not types:
        raise GraphError(
            "[while_] the body changes the types of the state", got=result, expected=types
        )
    trips = attrs["max_trips"]
    if trips is not None and (not isinstance(trips, int | np.integer) or trips < 0):
        raise GraphError("[while_] max_trips", got=trips, expected=">= 0, or None")
    return result


def _lower_while(node: Node, emitter: Emitter) -> None:
    # The results themselves carry the state.
    state = list(emitter.results())
    for source, target, type in zip(_operands(node, emitter), state, node.types, strict=True):
        _copy(emitter, source, target, type)

    def condition() -> Any:
        return emitter.inline(node.attrs["cond_graph"], state)[0]

    def body() -> None:
        result = emitter.inline(node.attrs["body_graph"], state)
        _store_state(emitter, result, state, node.types)

    emitter.repeat(node.attrs["max_trips"], body, condition)


_COUNT = _type(dtype=DType.I32)
_BELOW = _step(("number", (10, DType.I32)), ("lt", (0, 2)), types=(_COUNT, _A), outputs=(3,))
_GROW = _step(
    ("number", (3, DType.I32)), ("add", (0, 2)), ("add", (1, 1)),
    types=(_COUNT, _A), outputs=(3, 4),
)  # fmt: skip


@op(
    free=("xs",),
    infer=_infer_while,
    flops=lambda node: _nested_flops(node.attrs["body_graph"]) * (node.attrs["max_trips"] or 16),
    cpu=Kernels(("jump", "jump_unless", "next_trip", "strided_copy"), _lower_while),
    host_reason=lambda node: "the number of trips is only known as it runs",
    webgpu_dtypes=frozenset(),
    samples=lambda: (
        *(
            Sample(
                ((), (2, 3)),
                {"cond_graph": _BELOW, "body_graph": _GROW, "max_trips": trips},
                dtypes=(DType.I32, DType.F32),
                values=(np.array(start), np.ones((2, 3))),
            )
            for start, trips in ((0, None), (10, None), (0, 2), (0, 0), (4, 100))
        ),
        Sample(
            ((), (0, 3)),
            {
                "cond_graph": _step(
                    ("number", (2, DType.I32)), ("lt", (0, 2)), types=(_COUNT, _E), outputs=(3,)
                ),
                "body_graph": _step(
                    ("number", (1, DType.I32)), ("add", (0, 2)), types=(_COUNT, _E), outputs=(3, 1)
                ),
            },
            dtypes=(DType.I32, DType.F32),
            values=(np.array(1), np.ones((0, 3))),
        ),
    ),
)
def while_(cond_graph: Graph, body_graph: Graph, *xs: Array, max_trips: int | None = None) -> Any:
    """State that a subgraph changes for as long as another says so.

    Args:
        cond_graph: State -> a bool scalar, asked before each trip.
        body_graph: State -> state of the same shapes and dtypes.
        *xs: The state at the start.
        max_trips: Stop after this many trips in any case; None for no bound.

    Returns:
        The state at the end: one result, or a tuple of them.

    Example:
        >>> import rlx
        >>> below, double = rlx.Graph("below 100"), rlx.Graph("double")
        >>> below.set_outputs([below.max(below.input("x", (2,))) < 100.0])
        >>> double.set_outputs([double.input("x", (2,)) * 2.0])
        >>> g = rlx.Graph()
        >>> g.while_(below, double, g.input("x", (2,))).shape
        (2,)
    """
    state: list[Array] = list(xs)
    trips = 0
    while (max_trips is None or trips < max_trips) and _run(cond_graph, state)[0]:
        count_trip()
        state = _run(body_graph, state)
        trips += 1
    return tuple(state)


def _infer_scan(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    carried = int(attrs["carried"])
    state, sequences = tuple(types[:carried]), types[carried:]
    lengths = {type.shape[:1] for type in sequences}
    if not 0 <= carried <= len(types) or len(lengths) != 1 or lengths == {()}:
        raise GraphError(
            "[scan] needs sequences of one length behind the carried state",
            got=f"{carried} carried of {', '.join(map(str, types))}",
        )
    rows = [TensorType(type.shape[1:], type.dtype) for type in sequences]
    result = _check("scan", attrs["body_graph"], [*state, *rows])
    if result[:carried] != state:
        raise GraphError("[scan] the body changes the state's types", got=result, expected=state)
    attrs.update(carried=carried, reverse=bool(attrs["reverse"]))
    (length,) = lengths.pop()
    stacked = tuple(TensorType((length, *t.shape), t.dtype) for t in result[carried:])
    if not result:
        raise GraphError("[scan] the body has no results")
    return (*state, *stacked)


def _lower_scan(node: Node, emitter: Emitter) -> None:
    carried, reverse = node.attrs["carried"], node.attrs["reverse"]
    length = node.inputs[-1].shape[0]
    operands, results = _operands(node, emitter), list(emitter.results())
    state, types = results[:carried], node.types[:carried]
    for source, target, type in zip(operands, state, types, strict=False):
        _copy(emitter, source, target, type)
    if length == 0:
        return
    pos = emitter.temp(_COUNTER)
    start = emitter.table(np.array([pinned(length) - 1 if reverse else 0], np.int32))
    _copy(emitter, start, pos, _COUNTER)

    def body() -> None:
        rows = []
        for value, operand in zip(operands[carried:], node.inputs[carried:], strict=True):
            type = TensorType(operand.shape[1:], operand.dtype)
            rows.append(emitter.temp(type))
            _copy(emitter, value, rows[-1], type, counter=pos, source_advance=type.size)
        result = emitter.inline(node.attrs["body_graph"], [*state, *rows])
        for value, target, type in zip(
            result[carried:], results[carried:], node.types[carried:], strict=True
        ):
            row = TensorType(type.shape[1:], type.dtype)
            _copy(emitter, value, target, row, counter=pos, target_advance=row.size)
        _store_state(emitter, result[:carried], state, types)
        step = (("literal", (), DType.I32, -1 if reverse else 1), ("add", (0, 1), DType.I32, None))
        emitter.elementwise(step, [pos], pos, ((1,),))

    emitter.repeat(length, body)


_SUM = _step(("add", (0, 1)), ("mul", (2, 1)), types=(_type(3), _type(3)), outputs=(2, 3))
_SWAP = _step(("add", (0, 2)), types=(_type(3), _type(3), _type(3)), outputs=(1, 3, 3))
_FLAGS = _step(
    ("logical_xor", (0, 1)),
    types=(_type(3, dtype=DType.BOOL), _type(3, dtype=DType.BOOL)),
    outputs=(2, 2),
)


@op(
    free=("xs",),
    infer=_infer_scan,
    flops=lambda node: _nested_flops(node.attrs["body_graph"]) * node.inputs[-1].shape[0],
    cpu=Kernels(("next_trip", "jump", "strided_copy"), _lower_scan),
    webgpu=Kernels(("strided_copy", "strided_copy_narrow"), _lower_scan),
    webgpu_dtypes=ALL,
    host_reason=_too_long,
    samples=lambda: (
        *(
            Sample(
                ((3,), (n, 3)),
                {"body_graph": _SUM, "carried": 1, "reverse": reverse},
                dtypes=(DType.F32, DType.F32),
            )
            for reverse in (False, True)
            for n in (1, 5, 0)
        ),
        Sample(((3,), (3,), (4, 3)), {"body_graph": _SWAP, "carried": 2}, dtypes=(DType.F32,) * 3),
        Sample(((3,), (5, 3)), {"body_graph": _FLAGS, "carried": 1}, dtypes=(DType.BOOL,) * 2),
    ),
)
def scan(body_graph: Graph, carried: int, *xs: Array, reverse: bool = False) -> Any:
    """A subgraph run along the first axis of sequences, with state carried from step to step.

    Args:
        body_graph: (state, one entry of every sequence) -> (state, results of the step).
        carried: How many of the operands are state.
        *xs: The state at the start, then the sequences, of one length.
        reverse: Go from the last entry to the first; results keep their entries' places.

    Returns:
        The state at the end, then the steps' results stacked along a new first axis: one result, or a
        tuple of them.

    Example:
        >>> import rlx
        >>> body = rlx.Graph("running sum")
        >>> total = body.input("total", (3,)) + body.input("x", (3,))
        >>> body.set_outputs([total, total])
        >>> g = rlx.Graph()
        >>> last, sums = g.scan(body, 1, g.input("start", (3,)), g.input("xs", (5, 3)))
        >>> sums.shape
        (5, 3)
    """
    state, sequences = list(xs[:carried]), xs[carried:]
    length = len(sequences[0])
    outputs = [node.type for node in body_graph.outputs][carried:]
    # In storage, which is what a step gives: bf16 is carried in integers.
    stacked = [np.zeros((length, *type.shape), type.dtype.numpy) for type in outputs]
    for i in reversed(range(length)) if reverse else range(length):
        count_trip()
        result = _run(body_graph, [*state, *(s[i] for s in sequences)])
        state = result[:carried]
        for target, value in zip(stacked, result[carried:], strict=True):
            target[i] = value
    return (*state, *stacked)
