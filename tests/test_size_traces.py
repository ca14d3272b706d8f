"""Calls lowered for sizes that are known only at a call, beside calls lowered for numbers.

A size raises where code reads it unasked, so that lowering a sample with dims finds every conversion that nobody thought of. What
lowering assumed is kept as guards; where these hold, the calls have to be those of numbers.
"""

import pytest
from dim_samples import ALONE, WAYS, dims_of, small, with_shapes
from samples import ALL, SIZED_BY_DATA, by_op, each

import rlx
from rlx.backends.base import CompileOptions
from rlx.compiler import lowering
from rlx.compiler.target import Target
from rlx.ir.plan import HOST
from rlx.ir.static_sizes import inferred_anew, with_sizes
from rlx.sizes import Assumptions, Ratio, SizeExpr, deciding

pytestmark = pytest.mark.per_op

# Other calls, with the same results: positions are counted in the graph where they were constants, lines of an
# interpolation are not joined, copies of one frame keep their axes, and those of two sizes that happen to be equal are not
# left out. An input of a fixed shape is updated in place. Convolutions have calls of two kernels, one of which has work.
OTHER_CALLS = {
    "trilu", "sample", "draw_token", "dim", "qmatmul", "resize", "interpolate", "interpolate_plane", "frame_peaks", "istft", "rope", "update",
    "update_slice", "conv_last",
    *(f"{kind}conv{axes}d" for kind in ("", "fused_", "turned_") for axes in (1, 2, 3)),
}  # fmt: skip


# Parameters of texts that serve several lengths: registers and loads of a lane, as many as the longest needs.
OTHER_PARAMETERS = {"held", "loads"}


def at(value, sizes):
    """A parameter for values of dims."""
    if isinstance(value, SizeExpr | Ratio):
        return value.value(sizes)
    return tuple(at(item, sizes) for item in value) if isinstance(value, tuple | list) else value


def is_left_empty(value, sizes):
    """Returns whether a value whose size varies has no entries at these sizes."""
    shape = () if value is None else value.type.shape
    return any(isinstance(size, SizeExpr) and at(size, sizes) == 0 for size in shape)


def calls(schedule, sizes):
    """The calls of a schedule for values of dims."""

    def operand(value):
        if value is None:
            return None
        array = None if value.array is None else value.array.tobytes()
        return value.kind, value.type.dtype, at(value.type.shape, sizes), array

    return [
        (
            call.kernel,
            [operand(value) for value in call.inputs],
            [operand(value) for value in call.outputs if not is_left_empty(value, sizes)],
            {
                name: at(value, sizes)
                for name, value in call.params.items()
                if name not in {"function", *OTHER_PARAMETERS}
            },
            at(call.work, sizes),
            call.in_place,
        )
        for call in schedule.calls
        # Calls that have nothing to do at these sizes stand beside those that make the result.
        if 0 not in (at(call.params.get("outer"), sizes), at(call.params.get("batch"), sizes))
        and not any(is_left_empty(value, sizes) for value in call.inputs)
    ]


def has_ones(graph, sizes):
    """Returns whether an axis whose size varies has no entry or one: such sizes have programs of their own."""
    shapes = (type.shape for node in graph.nodes for type in node.types)
    return any(isinstance(size, SizeExpr) and at(size, sizes) < 2 for s in shapes for size in s)


def check(case, target):
    if case.opdef.name in SIZED_BY_DATA:
        return
    for way in WAYS:
        shapes = dims_of(case, way)
        if all(isinstance(size, int) for shape in shapes for size in shape):
            continue
        try:
            graph = with_shapes(case, shapes).graph()
        except rlx.GraphError:
            continue  # tests/test_dim_samples.py says which may refuse dims
        own = {name: int(name[1:]) for name in graph.dims}
        assumptions = Assumptions(own)
        with deciding(assumptions):
            try:
                lowered = lowering.lower(inferred_anew(graph), target)
            except rlx.UnknownSizeError:
                assert case.opdef.name in ALONE
                continue
        assert assumptions.hold(own)
        if any(call.kernel == HOST for call in lowered.schedule.calls):
            continue  # refused when the kernels are rendered
        for sizes in (
            own,
            *({n: max(v - less, v // 2) for n, v in own.items()} for less in (1, 2, 40)),
        ):
            held = graph.assumptions.hold(sizes) and assumptions.hold(sizes)
            if not held or has_ones(graph, sizes) or case.opdef.name in OTHER_CALLS:
                continue
            static = lowering.lower(with_sizes(graph, sizes), target)
            got, wanted = calls(lowered.schedule, sizes), calls(static.schedule, {})
            assert got == wanted, f"{way} {sizes}"


@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
@pytest.mark.parametrize("group", by_op(small()))
def test_calls(group, device, monkeypatch, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    # The plan of memory needs numbers.
    monkeypatch.setattr(lowering, "_plan", lambda *_: None)
    target = Target.of(rlx.Device(device), CompileOptions())
    each(group if ALL else group[:6], lambda case: check(case, target))
