"""Kernels write nowhere but to their values, and read nothing that nobody wrote.

Every value has memory of its own with a guard behind it. All of it is set to a pattern before a run; the
guards, the inputs and the weights must be intact after it. On WebGPU a value is padded to whole vectors,
which kernels may fill; on the CPU it ends with its last byte.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from dispatches import OF_ONE_PLAN, native, of_each_kernel, render_with, thinned, usual
from random_graphs import random_graph
from samples import ALL, by_op, each, looped
from test_half import HALF

import rlx
from rlx._ext import cpu
from rlx.backends.base import CompileOptions
from rlx.backends.webgpu import codegen
from rlx.backends.webgpu.dispatch import padded
from rlx.backends.webgpu.runs import Batches
from rlx.device.names import info_of
from rlx.ops.windows import winograd
from rlx.passes.memory_plan import plan_memory

pytestmark = pytest.mark.per_op

GUARD = 256
POISON = 0xFF  # a NaN in every float type, so what is read before it is written shows too
OPTIONS = CompileOptions(reuse_memory=False, fold=False)


def on_device(value):
    """Bytes of a value in GPU memory, with its padding."""
    return padded(value.type)


def in_host(value):
    """Bytes of a value in host memory."""
    return value.type.nbytes


def gaps(compiled, nbytes):
    """(start, end, the value before) of all memory between values."""
    schedule, plan = compiled._state.lowered.schedule, compiled._state.lowered.plan
    ends = sorted((s.offset, nbytes(schedule.values[key]), key) for key, s in plan.slots.items())
    starts = [offset for offset, _, _ in ends[1:]] + [plan.nbytes]
    return [
        (offset + size, start, schedule.values[index])
        for (offset, size, index), start in zip(ends, starts, strict=True)
    ]


def check_gaps(memory, result, case):
    for start, end, value in result:
        assert end - start >= GUARD
        hit = np.flatnonzero(memory[start:end] != POISON)
        assert not hit.size, (
            f"{case}: {hit.size} bytes behind {value} ({value.name}, {value.type}) were written, "
            f"the first {hit[0]} bytes behind its end"
        )


def check_inputs(memory, compiled, before):
    """Kernels leave the graph's inputs alone, but for states, which are not in the arena."""
    for value in compiled._state.lowered.schedule.inputs:
        if value.kind == "state":
            continue
        start = compiled._state.lowered.plan.slots[value.id].offset
        part = slice(start, start + value.type.nbytes)
        np.testing.assert_array_equal(memory[part], before[part], err_msg=value.name)


@pytest.fixture
def guarded(monkeypatch):
    """Guards between values, which a GPU's bindings cover."""
    monkeypatch.delenv("RLX_SHADER_CHECKS", raising=False)
    planned = functools.partial(plan_memory, guard=GUARD)
    monkeypatch.setattr("rlx.compiler.lowering.plan_memory", planned)

    # A driver may drop what is written behind a binding, and hide the fault.
    def resource(self, value, dispatch):
        stored = value.id in self._plan.slots
        return (*self._place(value), on_device(value) + (GUARD if stored else 0))

    monkeypatch.setattr(Batches, "_resource", resource)


def run_poisoned(compiled, operands):
    """A run on a GPU whose arena held the pattern: its results, and the arena after it."""
    executable = compiled._state.executable
    queue, arena = executable._gpu.queue, executable._arena
    executable._host.memory[:] = POISON
    queue.write_buffer(arena, 0, np.full(arena.size, POISON, np.uint8))
    return compiled.run_slots(*operands), np.frombuffer(queue.read_buffer(arena), np.uint8)


@pytest.mark.webgpu
@pytest.mark.by_program
@pytest.mark.parametrize("group", by_op(thinned([case for case in OF_ONE_PLAN if native(case)])))
def test_webgpu(group, webgpu, guarded):
    each(group, lambda case: check_webgpu(case, rlx.Session(webgpu, options=OPTIONS)))


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("case", HALF, ids=str)
def test_webgpu_half_precision(case, webgpu, guarded):
    if "shader-f16" not in info_of(rlx.Device.parse(webgpu)).features:
        with pytest.raises(rlx.CompileError, match="no half-precision arithmetic"):
            rlx.Session(webgpu, precision="f16").compile(case.graph())
        return
    check_webgpu(case, rlx.Session(webgpu, precision="f16", options=OPTIONS))


def check_webgpu(case, session):
    graph, operands = case.graph(), case.operands()
    with session.compile(graph) as compiled:
        got, memory = run_poisoned(compiled, operands)
        check_gaps(memory, gaps(compiled, on_device), case)
        check_inputs(memory, compiled, compiled._state.executable._host.memory)
        error, allowed = case.error(graph, got, operands)
    assert error <= allowed, f"{case} reads what nobody wrote: error {error:.3g} > {allowed:.3g}"


@pytest.mark.parametrize("group", by_op(thinned(every=True)))
def test_cpu(group, guarded):
    """The usual cases, and on every instruction set every kernel."""
    few = of_each_kernel(group)

    each(
        usual(group, few),
        lambda case: check_cpu(case, cpu.isas() if id(case) in few else cpu.isas()[:1]),
    )


def weights(executable):
    """The memory of all params and constants, packed or not."""
    by_id = executable._weights._by_id
    return [block.memory for weight in by_id.values() for block in weight._blocks.values()]


def check_cpu(case, isas):
    """A case on some instruction sets, of which the first is the one that is used where none is asked for."""
    graph, operands = case.graph(), case.operands()
    expected = case.expected(graph, operands)
    for isa in isas:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RLX_CPU_ISA", isa)
            with rlx.Session("cpu", options=OPTIONS).compile(graph) as compiled:
                got = check_guards(compiled, operands, case)
        error, allowed = case.difference(graph, got, expected)
        assert error <= allowed, (
            f"{case} on {isa} reads what nobody wrote: {error:.3g} > {allowed:.3g}"
        )


def check_guards(compiled, operands, case):
    """A run of a graph on the CPU whose arena held the pattern: its results."""
    executable = compiled._state.executable
    executable._arena[:] = POISON
    fixed = [memory.copy() for memory in weights(executable)]
    for view, operand in zip(compiled.input_views, operands, strict=True):
        view[...] = operand
    got = [view.copy() for view in compiled.run_slots()]
    check_gaps(executable._arena, gaps(compiled, in_host), case)
    # The bytes before the first value align the arena.
    block = executable._arena.base
    assert not block[: executable.arena() - block.ctypes.data].any(), case
    for view, operand in zip(compiled.input_views, operands, strict=True):
        assert view.tobytes() == np.asarray(operand, view.dtype).tobytes()
    for memory, before in zip(weights(executable), fixed, strict=True):
        np.testing.assert_array_equal(memory, before)
    return got


@looped("isa", cpu.isas())
@looped("seed", range(12))
def test_tiles_of_convolutions(seed, isa, guarded, monkeypatch):
    """They are made where weights are known, which no case has: its operands are inputs."""
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    monkeypatch.setattr(winograd, "_SAVED", 1 << 30)
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2]))
    channels, outputs = groups * int(rng.integers(1, 40)), groups * int(rng.integers(4, 40))
    shape = (int(rng.integers(1, 3)), channels, *(int(n) for n in rng.integers(1, 23, 2)))
    g, threads = rlx.Graph(), int(rng.choice([1, 3]))
    w = rng.normal(size=(outputs, channels // groups, 3, 3)).astype(np.float32)
    y = g.conv2d(g.input("x", shape), g.param("w", w.shape), padding=1, groups=groups)
    added = [y.shape] if seed % 2 else []
    g.set_outputs([g.relu(y + g.input("more", *added)) if added else y])
    options = CompileOptions(reuse_memory=False, fold=False, threads=threads)
    operands = [rng.normal(size=item).astype(np.float32) for item in (shape, *added)]
    with rlx.compile(g, "cpu", {"w": w}, options) as compiled:
        assert "winograd_last" in compiled.as_text("schedule")
        got = check_guards(compiled, operands, f"seed {seed}")
    with rlx.compile(g, "reference", {"w": w}) as exact:
        expected = exact.run_slots(*operands)[0]
    np.testing.assert_allclose(got[0], expected, 0, 1e-5 * np.abs(expected).max())


@pytest.mark.webgpu
def test_a_write_out_of_bounds_is_seen(webgpu, guarded, monkeypatch):
    """The tests above are worth something: a kernel that goes one vector too far is caught."""
    render = codegen.render

    def wrong(name, context):
        return render(name, context).replace("y[e] =", "y[e + 4u] =")

    render_with(monkeypatch, wrong)
    g = rlx.Graph()
    g.set_outputs([g.gather(g.input("x", (3, 4)), g.constant(np.int32([2, 0, 1])))])
    with rlx.Session(webgpu, options=OPTIONS).compile(g) as compiled:
        _, memory = run_poisoned(compiled, [np.ones((3, 4), "f4")])
        result = gaps(compiled, on_device)
    with pytest.raises(AssertionError, match="first 0 bytes behind"):
        check_gaps(memory, result, "gather")


SEEDS = range(300 if ALL else 20)


@looped("seed", SEEDS)
def test_random_graphs_cpu(seed, guarded):
    """Fused regions and everything between them."""
    graph, inputs, params = random_graph(seed)
    with rlx.Session("cpu", options=OPTIONS).compile(graph, params) as compiled:
        compiled._state.executable._arena[:] = POISON
        compiled.run(inputs)
        check_gaps(compiled._state.executable._arena, gaps(compiled, in_host), seed)


@pytest.mark.webgpu
@looped("seed", SEEDS)
def test_random_graphs_webgpu(seed, webgpu, guarded):
    graph, inputs, params = random_graph(seed)
    with rlx.Session(webgpu, options=OPTIONS).compile(graph, params) as compiled:
        _, memory = run_poisoned(compiled, [inputs[name] for name in graph.input_names])
        check_gaps(memory, gaps(compiled, on_device), seed)
        check_inputs(memory, compiled, compiled._state.executable._host.memory)
