"""Every WGSL kernel by itself: it compiles within the default limits, needs no checks,
and says what is wrong with it."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from dispatches import CASES, OF_ONE_PLAN, dispatches, native, render_with, thinned
from samples import by_family, each
from selection import SELECTION
from shader_sizes import shared_bytes, shared_of, threads_of

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.webgpu import codegen, device, elementwise_wgsl, loop_bounds
from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.provider import provider_of

pytestmark = pytest.mark.webgpu

# --- every variant compiles, within what every adapter has -----------------------------------------

_BINDING = re.compile(r"@binding\((\d+)\)\s*var<storage")
_COMMENT = re.compile(r"//[^\n]*")
_FLOAT = re.compile(r"(?<![\w.])(\d+\.?\d*e\+?\d+|\d+\.\d*)f?\b", re.I)
_NAME = re.compile(r"(?<![\w.])(?:nan|inf|infinity)\b", re.I)


def not_finite(source):
    """The literals of a source that f32 can't hold, and names that stand for such; not variables."""
    names = {n for n in _NAME.findall(source) if not re.search(rf"\b(let|var|const) {n}\b", source)}
    large = [text for text in _FLOAT.findall(source) if not float(text) < 3.4028236e38]
    return [*names, *large]


def check_source(item):
    """Checks a source against the default limits; wgpu itself lets too much workgroup memory pass."""
    source = _COMMENT.sub("", item.source)
    lanes = threads_of(source)
    assert lanes, f"{item.label}: no entry point"
    assert lanes <= DEFAULT_LIMITS["max-compute-invocations-per-workgroup"], item.label
    shared = shared_of(source)
    assert shared <= DEFAULT_LIMITS["max-compute-workgroup-storage-size"], f"{item.label}: {shared}"
    bindings = sorted(map(int, _BINDING.findall(source)))
    assert bindings == list(range(len(item.values))), f"{item.label}: {bindings}"
    assert len(bindings) <= DEFAULT_LIMITS["max-storage-buffers-per-shader-stage"], item.label
    assert max(item.grid) <= DEFAULT_LIMITS["max-compute-workgroups-per-dimension"], item.label
    assert not not_finite(source), f"{item.label}: {not_finite(source)}"
    # Of elementwise kernels tests/test_trip_counts.py bounds the loops of all programs; custom ones are the user's.
    if item.call.kernel not in ("elementwise", "custom"):
        # A loop without a declaration, or with one that can't be read, is an error, too.
        assert loop_bounds.trips_of(item.source).total < loop_bounds.TOO_MANY, item.label
        assert not item.excess, item.label


@pytest.fixture
def default_device(webgpu, monkeypatch):
    """A device with no more than the default limits."""
    from rlx.backends.webgpu.device import gpu_device
    from rlx.backends.webgpu.webgpu_backend import BACKEND

    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
    return gpu_device(BACKEND.devices()[0])


@pytest.mark.by_program
@pytest.mark.parametrize("extent", ["kinds", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_every_source_compiles_within_the_default_limits(extent, default_device):
    """Every text; in the normal run one of each op, kernel and dtypes."""
    seen = set()
    for case in CASES:
        for dispatch in dispatches(case):
            key = dispatch.source
            if key in seen:
                continue
            seen.add(key)
            check_source(dispatch)
            kind = (
                dispatch.label,
                dispatch.access,
                tuple(value.type.dtype for value in dispatch.values),
            )
            if extent == "all" or kind not in seen:
                seen.add(kind)
                with SELECTION.sample(dispatch.label, None):
                    SELECTION.compiles(dispatch.source, dispatch.access)
                    default_device.pipelines([dispatch])
    assert len(seen) > 3000


def test_the_check_of_sources_sees_faults():
    single = next(d for case in CASES for d in dispatches(case))
    for text in ("nan", "1e39", "-inf", "x = 3.5e+40f;"):
        assert not_finite(text), text
    for text in ("info", "3.4e38", "0x1e99", "x_inf", "1e-45", "let nan = 1u; a(nan)"):
        assert not not_finite(text), text
    assert shared_bytes("array<vec4<f32>, 320>") == 5120
    assert check_source(single) is None


# --- the driver's checks change nothing -------------------------------------------------------------


@pytest.mark.parametrize("group", by_family(thinned([case for case in CASES if native(case)])))
def test_checks_change_no_bit(group, webgpu, hardware, monkeypatch):
    """On GPUs, whose compilers may fuse other products and sums with the checks, the results stay right."""

    def check(case):
        operands, results = case.operands(), []
        session = rlx.Session(webgpu, options=CompileOptions(fold=False))
        for checks in ("0", "1"):
            monkeypatch.setenv("RLX_SHADER_CHECKS", checks)
            with session.compile(case.graph()) as single:
                results.append([np.array(view) for view in single.run_slots(*operands)])
        for plain, checked in zip(*results, strict=True):
            assert hardware or plain.tobytes() == checked.tobytes()
        error, allowed = case.error(case.graph(), results[1], operands)
        assert error <= allowed, f"error {error:.3g} > {allowed:.3g}"

    each(group, check)


# --- grids: more groups than one dimension holds ----------------------------------------------------


@pytest.mark.by_program
@pytest.mark.parametrize(
    "group", by_family(thinned([case for case in OF_ONE_PLAN if native(case)]))
)
def test_folded_grids_give_the_same(group, webgpu, monkeypatch):
    """Every kernel when three groups are all that fit into a row, the last row with groups to spare."""
    grid = codegen.grid
    monkeypatch.setattr(codegen, "grid", lambda work, limit: grid(work, 3))

    def check(case):
        graph, operands = case.graph(), case.operands()
        with rlx.Session(webgpu, options=CompileOptions(fold=False)).compile(graph) as compiled:
            work = compiled._state.executable._work
            dispatched = [item for item in work if isinstance(item, codegen.Dispatch)]
            assert all(item.grid[0] <= 3 for item in dispatched)
            error, allowed = case.error(graph, compiled.run_slots(*operands), operands)
        assert error <= allowed, f"error {error:.3g} > {allowed:.3g}"

    each(group, check)


@pytest.mark.parametrize(
    ("build", "shape", "expected"),
    [
        (lambda x: x * 2.0, (65535 * 256 + 3,), lambda x: x * 2),
        (lambda x: x.graph.layer_norm(x, eps=0.0), (70001, 2), np.sign),
        (lambda x: x.graph.transpose(x), (4097, 4099), lambda x: x.T),
        (lambda x: x.graph.argmax(x, 1), (131075, 3), lambda x: x.argmax(axis=1)),
    ],
    ids=["elementwise", "layer_norm", "transpose", "argmax"],
)
def test_large_grids_are_folded(build, shape, expected, webgpu, monkeypatch):
    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
    # A row a workgroup and a vector a thread: otherwise these would have to be larger than buffers may be.
    monkeypatch.setenv("RLX_VARIANT", "rows=lanes256")
    monkeypatch.setattr(elementwise_wgsl, "_MANY", 1 << 40)
    g = rlx.Graph()
    g.set_outputs([build(g.input("x", shape))])
    # Rows of +-1 around 0, so that a normalised row is its sign.
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    if build.__code__.co_names[:2] == ("graph", "layer_norm"):
        x = np.stack([x[:, 0] + 1, -x[:, 0] - 1], axis=1)
    with rlx.compile(g, webgpu) as compiled:
        (first,) = compiled._state.executable._work
        columns, rows = first.grid
        assert columns <= 65535
        assert rows > 1
        assert f"const FOLD: u32 = {columns}u;" in first.source
        np.testing.assert_allclose(compiled.run_slots(x)[0], expected(x), rtol=1e-6)


# --- what a refused shader says ---------------------------------------------------------------------


def normed():
    """A graph of one layer_norm, and the line that it was built on."""
    g = rlx.Graph("normed")
    x = g.input("x", (3, 4))
    y = g.layer_norm(x, g.param("w", (4,)))
    line = inspect.currentframe().f_lineno - 1
    g.set_outputs([y])
    return g, f"{__file__.rsplit('/', 1)[-1]}:{line}"


REFUSED = {
    "not WGSL": lambda text: f"{text}\nfn broken( {{ return 1; }}\n",
    "wrong type": lambda text: text.replace("let mean = ", "let mean: u32 = "),
    "no entry point": lambda text: text.replace("fn main", "fn other"),
    "too many lanes": lambda text: re.sub(r"workgroup_size\(\d+\)", "workgroup_size(2048)", text),
    "other bindings": lambda text: text.replace("@binding(2)", "@binding(7)"),
}


@pytest.mark.parametrize("checks", ["0", "1"])
@pytest.mark.parametrize("fault", REFUSED)
def test_a_refused_shader_is_shown(fault, checks, webgpu, monkeypatch):
    monkeypatch.setenv("RLX_VERIFY", "0")  # which would see other bindings itself
    monkeypatch.setenv("RLX_SHADER_CHECKS", checks)
    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
    render = codegen.render
    render_with(monkeypatch, lambda *arguments: REFUSED[fault](render(*arguments)))
    g, place = normed()
    with pytest.raises(rlx.CompileError) as caught:
        rlx.compile(g, webgpu, params={"w": np.ones(4, "f4")})
    text = str(caught.value)
    assert "the WGSL of kernel layer_norm/norm_rows was refused" in text
    assert place in text
    # The numbered source.
    assert re.search(r"\n +2 const N: u32 = 4u;", text)
    assert re.search(r"\n +\d+ @compute @workgroup_size", text)
    # The device is as good as before.
    render_with(monkeypatch, render)
    with rlx.compile(g, webgpu, params={"w": np.ones(4, "f4")}) as compiled:
        assert compiled.run_slots(np.zeros((3, 4), "f4"))[0].tolist() == [[0.0] * 4] * 3


def test_pipelines_made_side_by_side(webgpu, monkeypatch):
    """Many at once, whatever this machine has: equal ones once, and a refused one tells which it is."""
    monkeypatch.setattr(device.os, "cpu_count", lambda: 8)
    render, result = codegen.render, []
    make = device.GpuDevice._make
    monkeypatch.setattr(
        device.GpuDevice, "_make", lambda self, item: result.append(item.source) or make(self, item)
    )
    for break_it in (True, False):
        g = rlx.Graph()
        x = g.input("x", (3, 41))
        normed = [g.softmax(x * float(index)) for index in range(6)] + [
            g.layer_norm(x),
            g.cumsum(x, 1),
        ]
        g.set_outputs([g.concat([*normed, *normed], 0)])
        fault = REFUSED["wrong type"] if break_it else str
        render_with(monkeypatch, lambda *arguments, fault=fault: fault(render(*arguments)))
        if break_it:
            with pytest.raises(rlx.CompileError, match="kernel layer_norm/norm_rows was refused"):
                rlx.compile(g, webgpu)
            continue
        with rlx.compile(g, webgpu) as compiled, rlx.compile(g, "reference") as exact:
            value = np.random.default_rng(0).normal(size=(3, 41)).astype(np.float32)
            for first, other in zip(
                compiled.run({"x": value}), exact.run({"x": value}), strict=True
            ):
                np.testing.assert_allclose(first, other, 1e-4, 1e-5)
    assert len(result) == len(set(result)), "a pipeline was made twice"


def test_everything_has_a_label(webgpu, monkeypatch):
    """A driver's messages and captures name what they are about."""
    monkeypatch.setenv("RLX_WEBGPU_HOT", "0")  # only Python's calls can be watched
    g, _ = normed()
    with rlx.compile(g, webgpu, params={"w": np.ones(4, "f4")}) as compiled:
        executable = compiled._state.executable
        assert executable._arena.label == "arena"
        assert executable._builder.staging.label == "staging"
        assert [buffer.label for buffer in executable._constants.buffers.values()] == ["param w"]
        ((pipeline, group, _, _),) = executable._batches.current[0]
        assert pipeline.label == group.label == "layer_norm/norm_rows"
        device, seen = executable._gpu.device, []
        result = device.create_command_encoder

        def spy(**arguments):
            encoder = result(**arguments)
            begin = encoder.begin_compute_pass
            seen.append(encoder.label)
            encoder.begin_compute_pass = lambda **own: seen.append(own["label"]) or begin(**own)
            return encoder

        executable._gpu.device.create_command_encoder = spy
        try:
            compiled.run_slots(np.zeros((3, 4), "f4"))
        finally:
            del device.create_command_encoder
        assert len(seen) >= 2
        assert all(seen[:2])  # wgpu-py itself makes one for the read-back


def test_a_validation_error_names_the_kernel(webgpu):
    """A driver that refuses to bind a kernel names it."""
    wgpu = provider_of("webgpu").module()
    g, _ = normed()
    with rlx.compile(g, webgpu, params={"w": np.ones(4, "f4")}) as compiled:
        executable = compiled._state.executable
        (first,) = executable._work
        pieces = [executable._batches._resource(value, first) for value in first.values]
        pieces[0] = (pieces[0][0], 1, pieces[0][2])
        with pytest.raises(wgpu.GPUError, match="layer_norm/norm_rows"):
            executable._gpu.bind(first, pieces)


# --- memory that the device has not -----------------------------------------------------------------

MIB = 1 << 20


def tensor_above(g):
    g.set_outputs([g.sum(g.input("wide", (33, MIB)))])
    return "max-storage-buffer-binding-size", 33 * 4 * MIB, 128 * MIB, "test_shaders.py:"


def param_above(g):
    g.set_outputs([g.sum(g.input("x", (1,)) * g.param("weights", (33, MIB)))])
    return "max-storage-buffer-binding-size", 33 * 4 * MIB, 128 * MIB, "weights"


def arena_above(g):
    wide = g.input("wide", (30, MIB))
    g.set_outputs([wide + 1.0, g.exp(wide)])
    return "max-buffer-size", 3 * 30 * 4 * MIB + 256, 256 * MIB, "largest value wide"


@pytest.mark.parametrize("build", [tensor_above, param_above, arena_above])
def test_more_than_a_limit(build, webgpu, monkeypatch):
    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
    g = rlx.Graph()
    texts = build(g)
    with pytest.raises(rlx.DeviceMemoryError) as caught:
        rlx.compile(g, webgpu)
    said(caught, *texts)


def said(caught, limit, got, maximum, where):
    text = str(caught.value)
    for part in (limit, f"{got} bytes", f"at most {maximum} bytes", where, "smaller batches"):
        assert part in text, text
