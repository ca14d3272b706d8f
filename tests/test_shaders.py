"""Every WGSL kernel by itself: it compiles within the default limits, keeps to its memory, needs no checks."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from dispatches import CASES, dispatches, native, thinned

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.executable import padded
from rlx.backends.webgpu.mirror import device_bytes
from rlx.passes.memory import plan_memory

pytestmark = pytest.mark.webgpu

# --- every variant compiles, within what every adapter has -----------------------------------------

_WORKGROUP = re.compile(r"@workgroup_size\(([^)]*)\)")
_SHARED = re.compile(r"var<workgroup>\s+\w+\s*:\s*([^;]+);")
_BINDING = re.compile(r"@binding\((\d+)\)\s*var<storage")
_COMMENT = re.compile(r"//[^\n]*")
_FLOAT = re.compile(r"(?<![\w.])(\d+\.?\d*e\+?\d+|\d+\.\d*)f?\b", re.I)
_NAME = re.compile(r"(?<![\w.])(?:nan|inf|infinity)\b", re.I)
_BYTES = {"f32": 4, "i32": 4, "u32": 4, "vec2": 2, "vec3": 4, "vec4": 4}


def shared_bytes(kind):
    """Bytes of a WGSL type in workgroup memory."""
    kind = kind.replace(" ", "")
    if found := re.fullmatch(r"array<(.+),(\d+)u?>", kind):
        return shared_bytes(found[1]) * int(found[2])
    if found := re.fullmatch(r"(vec\d)<(.+)>", kind):
        return _BYTES[found[1]] * shared_bytes(found[2])
    return _BYTES[kind]


def not_finite(source):
    """The literals of a source that f32 can't hold, and names that stand for such; not variables."""
    names = {n for n in _NAME.findall(source) if not re.search(rf"\b(let|var|const) {n}\b", source)}
    large = [text for text in _FLOAT.findall(source) if not float(text) < 3.4028236e38]
    return [*names, *large]


def check_source(one):
    """What the default limits ask of a source."""
    source = _COMMENT.sub("", one.source)
    lanes = [int(np.prod([int(n) for n in size.split(",")])) for size in _WORKGROUP.findall(source)]
    assert lanes, f"{one.label}: no entry point"
    assert max(lanes) <= DEFAULT_LIMITS["max-compute-invocations-per-workgroup"], one.label
    shared = sum(shared_bytes(kind) for kind in _SHARED.findall(source))
    assert shared <= DEFAULT_LIMITS["max-compute-workgroup-storage-size"], f"{one.label}: {shared}"
    bindings = sorted(map(int, _BINDING.findall(source)))
    assert bindings == list(range(len(one.values))), f"{one.label}: {bindings}"
    assert len(bindings) <= DEFAULT_LIMITS["max-storage-buffers-per-shader-stage"], one.label
    assert max(one.grid) <= DEFAULT_LIMITS["max-compute-workgroups-per-dimension"], one.label
    assert not not_finite(source), f"{one.label}: {not_finite(source)}"


@pytest.fixture
def default_device(webgpu, monkeypatch):
    """A device with no more than the default limits."""
    from rlx.backends.webgpu.backend import BACKEND
    from rlx.backends.webgpu.device import gpu_device

    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
    return gpu_device(BACKEND.devices()[0])


@pytest.mark.parametrize("extent", ["kinds", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_every_source_compiles_within_the_default_limits(extent, default_device):
    """Every text; in the normal run one of each op, kernel and dtypes."""
    seen = set()
    for case in CASES:
        for one in dispatches(case):
            key = one.source
            if key in seen:
                continue
            seen.add(key)
            check_source(one)
            kind = one.label, one.access, tuple(value.type.dtype for value in one.values)
            if extent == "all" or kind not in seen:
                seen.add(kind)
                default_device.pipeline(one)
    assert len(seen) > 3000


def test_the_check_of_sources_sees_faults():
    one = next(d for case in CASES for d in dispatches(case))
    for text in ("nan", "1e39", "-inf", "x = 3.5e+40f;"):
        assert not_finite(text), text
    for text in ("info", "3.4e38", "0x1e99", "x_inf", "1e-45", "let nan = 1u; a(nan)"):
        assert not not_finite(text), text
    assert shared_bytes("array<vec4<f32>, 320>") == 5120
    assert check_source(one) is None


# --- sentinels: nothing is written outside a value -------------------------------------------------

GUARD = 256
POISON = 0xFF  # a NaN in every float type, so what is read before it is written shows too


def guarded(monkeypatch):
    """Every value has memory of its own and a guard behind it, which its binding covers."""
    from rlx.backends.webgpu.executable import WebGpuExecutable

    monkeypatch.setattr(
        "rlx.runtime.session.plan_memory", functools.partial(plan_memory, guard=GUARD)
    )
    place = WebGpuExecutable._place

    # A driver may drop what is written behind a binding, and hide the fault.
    def resource(self, value, dispatch):
        buffer, offset = place(self, value)
        held = value.id not in self._fixed.buffers
        return buffer, offset, padded(device_bytes(value.type)) + (GUARD if held else 0)

    monkeypatch.setattr(WebGpuExecutable, "_resource", resource)


def gaps(schedule, plan, nbytes):
    """(start, end, the value before) of all memory between values."""
    ends = sorted((s.offset, nbytes(schedule.values[at]), at) for at, s in plan.slots.items())
    starts = [offset for offset, _, _ in ends[1:]] + [plan.nbytes]
    return [
        (offset + size, start, schedule.values[at])
        for (offset, size, at), start in zip(ends, starts, strict=True)
    ]


def check_gaps(memory, found, case):
    for start, end, value in found:
        assert end - start >= GUARD
        hit = np.flatnonzero(memory[start:end] != POISON)
        assert not hit.size, (
            f"{case}: {hit.size} bytes behind {value} ({value.name}, {value.type}) were written, "
            f"the first {hit[0]} bytes behind its end"
        )


def check_inputs(memory, schedule, plan, before):
    """Kernels leave the graph's inputs alone."""
    for value in schedule.inputs:
        slot = plan.slots[value.id]
        part = slice(slot.offset, slot.offset + device_bytes(value.type))
        np.testing.assert_array_equal(memory[part], before[part], err_msg=value.name)


UNSHARED = CompileOptions(reuse_memory=False, fold=False)


@pytest.mark.parametrize("case", thinned([case for case in CASES if native(case)]))
def test_sentinels_stay_intact(case, webgpu, monkeypatch):
    monkeypatch.delenv("RLX_SHADER_CHECKS", raising=False)
    guarded(monkeypatch)
    graph, operands = case.graph(), case.operands()
    with rlx.Session(webgpu, options=UNSHARED).compile(graph) as compiled:
        executable = compiled._executable
        queue, arena = executable._gpu.queue, executable._arena
        executable._mirror.inputs[:] = POISON
        queue.write_buffer(arena, 0, np.full(arena.size, POISON, np.uint8))
        got = compiled.run_slots(*operands)
        error, allowed = case.error(graph, got, operands)
        memory = np.frombuffer(queue.read_buffer(arena), np.uint8)
        schedule, plan = compiled._schedule, compiled._plan
        found = gaps(schedule, plan, lambda value: padded(device_bytes(value.type)))
        check_gaps(memory, found, case)
        check_inputs(memory, schedule, plan, executable._mirror.inputs)
    assert error <= allowed, f"{case} reads what nobody wrote: error {error:.3g} > {allowed:.3g}"


def test_sentinels_see_a_write_out_of_bounds(webgpu, monkeypatch):
    """The test above is worth something: a kernel that goes one element too far is caught."""
    from rlx.backends.webgpu import lower

    guarded(monkeypatch)
    g = rlx.Graph()
    g.set_outputs([g.layer_norm(g.input("x", (3, 4)))])
    render = lower.render
    monkeypatch.setattr(
        lower,
        "render",
        lambda name, context: render(name, context).replace("y[base + i]", "y[base + i + 4u]"),
    )
    case = next(case for case in CASES if case.opdef.name == "layer_norm")
    with rlx.Session(webgpu, options=UNSHARED).compile(g) as compiled:
        executable = compiled._executable
        queue, arena = executable._gpu.queue, executable._arena
        queue.write_buffer(arena, 0, np.full(arena.size, POISON, np.uint8))
        compiled.run_slots(np.ones((3, 4), "f4"))
        memory = np.frombuffer(queue.read_buffer(arena), np.uint8)
        found = gaps(compiled._schedule, compiled._plan, lambda v: padded(device_bytes(v.type)))
    with pytest.raises(AssertionError, match="were written"):
        check_gaps(memory, found[1:], case)


# --- the driver's checks change nothing -------------------------------------------------------------


@pytest.mark.parametrize("case", thinned([case for case in CASES if native(case)]))
def test_checks_change_no_bit(case, webgpu, monkeypatch):
    operands, results = case.operands(), []
    for checks in ("0", "1"):
        monkeypatch.setenv("RLX_SHADER_CHECKS", checks)
        with rlx.Session(webgpu, options=CompileOptions(fold=False)).compile(case.graph()) as one:
            results.append([np.array(view) for view in one.run_slots(*operands)])
    for plain, checked in zip(*results, strict=True):
        assert plain.tobytes() == checked.tobytes(), case
