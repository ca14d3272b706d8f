"""The rows of the CompiledGraph table beyond run and run_slots, on every device."""

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DType


def counter_graph():
    """state + x, twice the state, and a passenger."""
    g = rlx.Graph("counter")
    state, x = g.input("state", (3, 4)), g.input("x", (3, 4))
    new = state + x * g.param("w", (4,))
    g.set_outputs([new, state * 2.0, g.sum(new, [1])])
    return g


@pytest.fixture
def compiled(device):
    with rlx.compile(counter_graph(), device, {"w": np.ones(4, np.float32)}) as found:
        yield found


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
    found = compiled.run_feed_gpu_handle({"x": ONE}, "state", 0)
    np.testing.assert_array_equal(found, A + 1)
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
    sets = [{"state": A + at, "x": at * ONE} for at in range(7)]
    found = compiled.run_pipelined(sets)
    assert len(found) == 7
    for at, (new, double, total) in enumerate(found):
        np.testing.assert_array_equal(new, A + 2 * at)
        np.testing.assert_array_equal(double, 2 * (A + at))
        np.testing.assert_array_equal(total, (A + 2 * at).sum(1))
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
