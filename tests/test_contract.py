"""Every member of CompiledGraph, on every device."""

import array
import ctypes
import runpy
from pathlib import Path

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.ir.dtype import DType

EXAMPLES = Path(__file__).parent.parent / "examples"


def counter_graph():
    """state + x, twice the state, and a passenger."""
    g = rlx.Graph("counter")
    state, x = g.input("state", (3, 4)), g.input("x", (3, 4))
    new = state + x * g.param("w", (4,))
    g.set_outputs([new, state * 2.0, g.sum(new, [1])])
    return g


@pytest.fixture
def compiled(device):
    with rlx.compile(counter_graph(), device, {"w": np.ones(4, np.float32)}) as result:
        yield result


A = np.arange(12, dtype=np.float32).reshape(3, 4)
ONE = np.ones((3, 4), np.float32)


def test_run_read_outputs(compiled):
    (total,) = compiled.run_read_outputs({"state": A, "x": ONE}, [2])
    np.testing.assert_array_equal(total, (A + 1).sum(1))
    everything = compiled.run_read_outputs({"state": A, "x": ONE})
    np.testing.assert_array_equal(everything[1], 2 * A)
    last, first = compiled.run_read_outputs({"state": A, "x": ONE}, (-1, 0))
    np.testing.assert_array_equal(last, total)
    np.testing.assert_array_equal(first, A + 1)
    with pytest.raises(rlx.InputError, match="no such output"):
        compiled.run_read_outputs({"state": A, "x": ONE}, [3])


def test_read_output_row(compiled):
    compiled.run({"state": A, "x": ONE})
    np.testing.assert_array_equal(compiled.read_output_row(0, 1), A[1] + 1)
    np.testing.assert_array_equal(compiled.read_output_row(1, -1), 2 * A[2])
    assert compiled.read_output_row(2, 0) == (A + 1).sum(1)[0]
    for out_idx, row in ((0, 3), (0, -4), (5, 0)):
        with pytest.raises(rlx.InputError, match="no such"):
            compiled.read_output_row(out_idx, row)


@pytest.mark.parametrize("kind", ["handle", "gpu_handle"])
def test_a_handle_feeds_every_later_run(compiled, kind):
    getattr(compiled, f"bind_{kind}")("state", A)
    read = getattr(compiled, f"read_{kind}")
    np.testing.assert_array_equal(read("state"), A)
    assert compiled.has_gpu_handle("state") is (kind == "gpu_handle")
    assert not compiled.has_gpu_handle("x")
    for step in (1.0, 2.0):
        np.testing.assert_array_equal(compiled.run({"x": step * ONE})[0], A + step)
        np.testing.assert_array_equal(compiled.run_slots(step * ONE)[0], A + step)
    with pytest.raises(rlx.InputError, match="fed by a handle"):
        compiled.run({"state": A, "x": ONE})
    with pytest.raises(rlx.InputError, match="run_slots takes every input"):
        compiled.run_slots(A, ONE)
    with pytest.raises(rlx.InputError, match="no handle"):
        compiled.read_handle("x")
    with pytest.raises(rlx.UnknownNameError, match="sate"):
        compiled.bind_handle("sate", A)
    with pytest.raises(rlx.InputError, match="does not fit"):
        compiled.bind_handle("state", A[:2])


def test_an_output_feeds_a_handle(compiled):
    compiled.bind_gpu_handle("state", 0 * A)
    compiled.set_gpu_handle_feed("state", 0)
    for _ in range(5):
        compiled.run_slots(ONE)
    np.testing.assert_array_equal(compiled.read_gpu_handle("state"), 5 * ONE)
    with pytest.raises(rlx.InputError, match="does not fit handle"):
        compiled.set_gpu_handle_feed("state", 2)
    with pytest.raises(rlx.InputError, match="no handle"):
        compiled.set_gpu_handle_feed("x", 0)


def test_a_handle_is_fed_once(compiled):
    compiled.bind_gpu_handle("state", A)
    result = compiled.run_feed_gpu_handle({"x": ONE}, "state", 0)
    np.testing.assert_array_equal(result, A + 1)
    np.testing.assert_array_equal(compiled.read_gpu_handle("state"), A + 1)
    compiled.run({"x": ONE})
    np.testing.assert_array_equal(compiled.read_gpu_handle("state"), A + 1)


def test_runs_without_waiting(compiled):
    for step in (1.0, 2.0, 3.0):
        x = step * ONE
        compiled.commit_no_wait({"state": A, "x": x})
        x[...] = -99  # the caller's array is free at once
    compiled.sync_pending()
    np.testing.assert_array_equal(compiled.read_output_row(0, 0), A[0] + 3)
    compiled.sync_pending()


def test_pipelined_runs_keep_every_set(compiled):
    sets = [{"state": A + index, "x": index * ONE} for index in range(7)]
    result = compiled.run_pipelined(sets)
    assert len(result) == 7
    for index, (new, double, total) in enumerate(result):
        np.testing.assert_array_equal(new, A + 2 * index)
        np.testing.assert_array_equal(double, 2 * (A + index))
        np.testing.assert_array_equal(total, (A + 2 * index).sum(1))
    assert compiled.run_pipelined([]) == []
    with pytest.raises(rlx.InputError, match="inputs are missing"):
        compiled.run_pipelined([sets[0], {"x": ONE}])


def test_raw_bytes(device):
    g = rlx.Graph("typed")
    x = g.input("x", (2, 3), "f16")
    g.set_outputs([x * g.param("w", (3,), "f16"), g.cast(x, "i32")])
    with rlx.compile(g, device) as compiled:
        compiled.set_param_typed("w", np.float32([1, 2, 3]).tobytes(), "f32")
        data = np.arange(6, dtype=np.float16)
        (y, y_type), (z, z_type) = compiled.run_typed([("x", data.tobytes(), "f16")])
        assert (y_type, z_type) == (DType.F16, DType.I32)
        assert np.frombuffer(y, np.float16).tolist() == [0, 2, 6, 3, 8, 15]
        assert np.frombuffer(z, np.int32).tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(rlx.InputError, match="do not fill it"):
            compiled.run_typed([("x", b"123", "f16")])
        with pytest.raises(rlx.InputError, match="given twice"):
            compiled.run_typed([("x", data.tobytes(), "f16")] * 2)
        with pytest.raises(rlx.UnknownNameError, match="'v'"):
            compiled.set_param_typed("v", b"", "f32")


def test_a_param_that_was_never_set(device):
    with rlx.compile(counter_graph(), device) as compiled:
        for call in (
            lambda: compiled.run_read_outputs({"state": A, "x": ONE}, [0]),
            lambda: compiled.commit_no_wait({"state": A, "x": ONE}),
            lambda: compiled.run_pipelined([{"state": A, "x": ONE}]),
        ):
            with pytest.raises(rlx.InputError, match="never set"):
                call()


def test_what_it_is(compiled, device):
    assert str(compiled.device) == device
    assert compiled.capabilities.run_slots
    with pytest.raises(AttributeError):
        compiled.capabilities.f16 = True
    assert {"arena", "params", "staging", "peak"} <= set(compiled.memory())
    assert len(compiled.cost()) > 1
    for stage in ("graph", "fused", "schedule", "memory", "kernels"):
        assert compiled.as_text(stage)


def test_slots_and_views(compiled, device):
    first = compiled.run_slots(A, ONE)
    assert all(a is b for a, b in zip(first, rlx.run_slots(compiled, A, ONE), strict=True))
    assert not any(view.flags.writeable for view in first)
    for view, value in zip(compiled.input_views, (A, 3 * ONE), strict=True):
        view[...] = value
    np.testing.assert_array_equal(compiled.run_slots()[0], A + 3)
    raw = compiled.run_raw({"state": A, "x": ONE})
    np.testing.assert_array_equal(raw[0], A + 1)
    with pytest.raises(ValueError, match="read-only"):
        raw[0][0] = 1
    assert [y.tolist() for y in compiled(state=A, x=ONE)] == [y.tolist() for y in raw]
    if not compiled.capabilities.arena_ptr:
        with pytest.raises(rlx.CompileError, match="no arena in host memory"):
            _ = compiled.arena_ptr
        return
    for (offset, count), view in zip(compiled.output_slots, first, strict=True):
        memory = (ctypes.c_float * count).from_address(compiled.arena_ptr + offset)
        np.testing.assert_array_equal(np.frombuffer(memory, np.float32), view.reshape(-1))


class OnlyDlpack:
    """An array of a library that knows DLPack and nothing else."""

    def __init__(self, held):
        self.held = held

    def __dlpack__(self, **arguments):
        return self.held.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.held.__dlpack_device__()


def test_anything_that_holds_an_array(device):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (4,)) + g.param("w", (4,))])
    values = [1.0, 2.0, 3.0, 4.0]
    floats = np.float32(values)
    with rlx.compile(g, device, {"w": OnlyDlpack(10 * floats)}) as compiled:
        for value in (
            OnlyDlpack(floats),
            memoryview(floats),
            array.array("f", values),
            (ctypes.c_float * 4)(*values),
            floats.astype(np.float64),
        ):
            np.testing.assert_array_equal(compiled.run_slots(value)[0], 11 * floats)
            np.testing.assert_array_equal(compiled.run({"x": value})[0], 11 * floats)
        (view,) = compiled.run_slots(floats)
        shared = np.from_dlpack(view)
        assert shared.ctypes.data == view.ctypes.data
        assert not shared.flags.writeable
        compiled.run_slots(2 * floats)
        np.testing.assert_array_equal(shared, 12 * floats)


@looped("dtype", ["f16", "bf16", "i8", "i32", "u8"])
def test_params_keep_their_dtype(device, dtype):
    stored = DType.parse(dtype)
    g = rlx.Graph()
    g.set_outputs([g.cast(g.param("w", (6,), dtype), "f32") + g.input("x", (6,))])
    value = np.arange(6).astype(np.float32 if dtype == "bf16" else stored.numpy)
    with rlx.compile(g, device, {"w": value}) as compiled:
        zero = np.zeros(6, np.float32)
        assert compiled.run_slots(zero)[0].tolist() == list(range(6))
        raw = (value.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else value
        compiled.set_param("w", np.zeros(6, raw.dtype))
        compiled.set_param_typed("w", raw.tobytes(), dtype)
        assert compiled.run_slots(zero)[0].tolist() == list(range(6))
        if dtype != "f32":
            with pytest.raises(rlx.InputError):
                compiled.set_param("w", np.zeros(6, np.complex64))


def test_a_clone_shares_params_only(compiled):
    other = compiled.clone()
    retained = compiled.run_slots(A, ONE)
    other.run_slots(5 * A, ONE)
    np.testing.assert_array_equal(retained[0], A + 1)
    other.set_param("w", np.full(4, 2))
    np.testing.assert_array_equal(compiled.run({"state": A, "x": ONE})[0], A + 2)
    other.close()
    np.testing.assert_array_equal(compiled.run({"state": A, "x": ONE})[0], A + 2)


def test_closed(compiled):
    compiled.close()
    compiled.close()
    for call in (
        lambda: compiled.run({"state": A, "x": ONE}),
        lambda: compiled.run_slots(A, ONE),
        lambda: compiled.run_raw({}),
        lambda: compiled.run_read_outputs({}),
        lambda: compiled.read_output_row(0, 0),
        lambda: compiled.commit_no_wait({}),
        lambda: compiled.sync_pending(),
        lambda: compiled.run_pipelined([{}]),
        lambda: compiled.run_typed([]),
        lambda: compiled.bind_handle("state", A),
        lambda: compiled.read_gpu_handle("state"),
        lambda: compiled.set_gpu_handle_feed("state", 0),
        lambda: compiled.set_active_extent(None),
        lambda: compiled.set_param("w", np.ones(4)),
        lambda: compiled.set_param_typed("w", b"", "f32"),
        lambda: compiled.clone(),
        lambda: compiled.recover(),
        lambda: compiled.enable_moe_topk_capture(4),
    ):
        with pytest.raises(rlx.InputError, match="closed"):
            call()


def test_generation_moves_one_token_a_step(device):
    example = runpy.run_path(str(EXAMPLES / "07_kv_cache.py"))
    graph, prompt = example["decoder"](), [7, 30, 11]
    params = example["weights"](graph)
    with rlx.compile(graph, "reference", params) as exact:
        example["bind"](exact, graph)
        expected = list(example["generate"](exact, prompt, 8))
    with rlx.compile(graph, device, params) as compiled:
        example["bind"](compiled, graph)
        tokens = example["generate"](compiled, prompt, 8)
        results = [next(tokens), next(tokens)]
        before = compiled.bytes_moved
        results += list(tokens)
        after = compiled.bytes_moved
        assert results == expected
        cache = compiled.read_gpu_handle("k11")
        assert np.abs(cache[:10]).min() > 0
        assert not cache[10:].any()
    if device == "webgpu":
        assert after.uploaded - before.uploaded == 6 * 4
        assert after.read_back - before.read_back == 6 * 4
    assert after.copied == before.copied


MEMBERS = """device set_param set_param_typed run run_read_outputs read_output_row run_raw run_slots
input_views output_slots arena_ptr bind_handle read_handle bind_gpu_handle has_gpu_handle read_gpu_handle
set_gpu_handle_feed run_feed_gpu_handle set_active_extent commit_no_wait sync_pending run_pipelined
run_typed set_moe_resident_experts set_moe_resident_experts_per_layer enable_moe_topk_capture
take_moe_topk_capture take_moe_residency_stats clone capabilities trace close recover profile""".split()
# Members whose rows are many enough for a file of their own.
ELSEWHERE = ("test_dynamic_batch.py", "test_experts.py", "test_trace.py", "test_failures.py")


def test_every_member_is_tested(compiled):
    folder = Path(__file__).parent
    text = "".join((folder / name).read_text() for name in (Path(__file__).name, *ELSEWHERE))
    for member in MEMBERS:
        assert member in dir(compiled), member
        assert f".{member}" in text or f"_{member}" in text or "bind_{kind}" in text, member
