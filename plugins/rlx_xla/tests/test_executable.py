"""The contract of executables, and additions of the package: arrays on the device, precision, bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlx_xla
from conftest import DEVICE

import rlx
import rlx.testing

X = np.arange(12, dtype=np.float32).reshape(4, 3)
W = np.array([[1, 0], [0, 1], [1, 1]], np.float32)


def product(**options):
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", (4, 3)) @ g.param("w", (3, 2))])
    return rlx.compile(g, DEVICE, {"w": W}, rlx.CompileOptions(**options))


@pytest.mark.parametrize("promise", rlx.testing.PROMISES, ids=lambda item: item.name)
def test_promise(promise):
    promise.check(DEVICE)


def test_outputs_stay_on_the_device_and_inputs_come_from_there():
    with product() as cg:
        before = cg.bytes_moved
        (y,) = rlx_xla.run_on_device(cg, jnp.asarray(X))
        assert isinstance(y, jax.Array)
        (z,) = rlx_xla.run_on_device(cg, jnp.ones((4, 3), jnp.float32) * y[0, 0])
        assert cg.bytes_moved == before
        np.testing.assert_allclose(np.asarray(y), X @ W)
        np.testing.assert_allclose(np.asarray(z), np.full((4, 3), 2.0) @ W)


def test_an_argument_may_change_while_its_run_goes_on():
    g = rlx.Graph("chain")
    x = g.input("x", (400, 400))
    y = x
    for _ in range(8):
        y = y @ x
    g.set_outputs([y])
    with rlx.compile(g, DEVICE) as cg:
        x = np.eye(400, dtype=np.float32)
        (y,) = rlx_xla.run_on_device(cg, x)
        x[...] = 0
        np.testing.assert_array_equal(np.asarray(y), np.eye(400))


def test_what_has_dlpack_is_taken():
    class DlpackArray:
        """An array that can be had by DLPack alone."""

        def __init__(self, array):
            self._array = array

        def __dlpack__(self, **arguments):
            return self._array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

    with product() as cg:
        np.testing.assert_allclose(cg.run_slots(DlpackArray(X))[0], X @ W)


def test_an_array_on_the_device_of_another_shape_is_refused():
    with product() as cg, pytest.raises(rlx.InputError, match="input 0 does not fit"):
        cg.run_slots(jnp.zeros((4, 4), jnp.float32))


def test_arguments_may_change_as_soon_as_a_run_was_begun():
    with product() as cg:
        x = X.copy()
        cg.commit_no_wait({"x": x})
        x[...] = 99
        cg.input_views[0][...] = 99
        cg.sync_pending()
        np.testing.assert_allclose(cg.run_slots(X)[0], X @ W)


def test_a_large_handle_gives_its_memory_to_the_output_that_feeds_it():
    g = rlx.Graph("cache")
    cache, step = g.input("cache", (1 << 19,)), g.input("step", ())
    g.set_outputs([cache + step])
    with rlx.compile(g, DEVICE) as cg:
        cg.bind_gpu_handle("cache", np.zeros(1 << 19, np.float32))
        cg.set_gpu_handle_feed("cache", 0)
        for _ in range(3):
            cg.run_slots(np.float32(2))
        assert cg.read_gpu_handle("cache")[-1] == 6
        (retained,) = rlx_xla.run_on_device(cg, np.float32(1))
        cg.run_slots(np.float32(1))
        assert float(retained[0]) == 7
        assert cg.read_gpu_handle("cache")[-1] == 8
        assert cg.read_output_row(0, 5) == 8


@pytest.mark.parametrize("dtype", ["i64", "f64", "bf16", "f16", "u8", "bool"])
def test_dtypes_go_in_and_out(dtype):
    kind = rlx.DType.parse(dtype)
    g = rlx.Graph(dtype)
    x = g.input("x", (5,), kind)
    g.set_outputs([g.flip(x)])
    arguments = np.array([0, 1, 1, 0, 1]).astype(kind.numpy)
    if dtype == "i64":
        arguments = arguments + 2**40
    with rlx.compile(g, DEVICE) as cg:
        result = cg.run_slots(arguments)[0]
        assert result.dtype == kind.numpy
        np.testing.assert_array_equal(result, arguments[::-1])


def test_the_flag_for_64_bits_stays_as_it_was():
    g = rlx.Graph("wide")
    g.set_outputs([g.input("x", (3,), "i64") * 3])
    before = jax.config.jax_enable_x64
    with rlx.compile(g, DEVICE) as cg:
        assert cg.run_slots(np.array([2**40, 1, 2]))[0][0] == 3 * 2**40
    assert jax.config.jax_enable_x64 == before
    assert jnp.arange(3).dtype == jnp.int32


@pytest.mark.parametrize("precision", ["tf32", "bf16", "f16"])
def test_a_precision_rounds_operands_of_products(precision):
    g = rlx.Graph("precise")
    g.set_outputs([g.input("a", (64, 64)) @ g.input("b", (64, 64))])
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    exact = a.astype(np.float64) @ b

    def error(wanted):
        with rlx.Session(DEVICE, precision=wanted).compile(g) as cg:
            return np.max(np.abs(cg.run_slots(a, b)[0] - exact)) / np.max(np.abs(exact))

    assert error("f32") < 1e-6
    assert error(precision) < 2e-2
    if precision in ("bf16", "f16"):
        assert error(precision) > 1e-5


def test_f32_is_f32_whatever_the_program_asks_of_jax():
    g = rlx.Graph("f32")
    g.set_outputs([g.input("a", (64, 64)) @ g.input("b", (64, 64))])
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    with jax.default_matmul_precision("bfloat16"), rlx.compile(g, DEVICE) as cg:
        exact = a.astype(np.float64) @ b
        assert np.max(np.abs(cg.run_slots(a, b)[0] - exact)) < 1e-5 * np.max(np.abs(exact))


def test_the_last_of_updates_that_meet_stays():
    g = rlx.Graph("scatter")
    x, position, new = g.input("x", (4,)), g.input("at", (5,), "i32"), g.input("new", (5,))
    g.set_outputs([g.scatter_elements(x, position, new, 0)])
    with rlx.compile(g, DEVICE) as cg:
        arguments = np.zeros(4, np.float32), np.array([1, 1, -1, 1, 3], np.int32), np.arange(5)
        result = cg.run_slots(arguments[0], arguments[1], arguments[2].astype(np.float32))[0]
    assert result.tolist() == [0, 3, 0, 4]


def _loop(trips):
    below, body = rlx.Graph("below"), rlx.Graph("body")
    below.set_outputs([below.input("n", (), "i32") < trips])
    body.set_outputs([body.input("n", (), "i32") + 1])
    g = rlx.Graph("loop")
    g.set_outputs([g.while_(below, body, g.input("n", (), "i32"))])
    return g


def test_loops_are_bounded():
    options = rlx.CompileOptions(max_iterations=10)
    with rlx.compile(_loop(10), DEVICE, options=options) as cg:
        assert cg.run_slots(np.int32(0))[0] == 10
    with (
        rlx.compile(_loop(10**9), DEVICE, options=options) as cg,
        pytest.raises(rlx.InputError, match="more trips"),
    ):
        cg.run_slots(np.int32(0))


def test_trips_of_inner_loops_count():
    inner = _loop(5)
    body = rlx.Graph("outer")
    body.input("total", (), "i32")
    body.input("start", (), "i32")
    below, step = rlx.Graph("below"), rlx.Graph("step")
    below.set_outputs([below.input("n", (), "i32") < 5])
    step.set_outputs([step.input("n", (), "i32") + 1])
    result = body.while_(below, step, body.named("start"))
    body.set_outputs([body.named("total") + result])
    g = rlx.Graph("scan")
    g.set_outputs([g.scan(body, 1, g.input("total", (), "i32"), g.input("starts", (4,), "i32"))])
    starts = np.zeros(4, np.int32)
    assert inner.outputs
    for limit, right in ((24, True), (23, False)):  # 4 trips of the scan, 5 of the loop in each
        with rlx.compile(g, DEVICE, options=rlx.CompileOptions(max_iterations=limit)) as cg:
            if right:
                assert cg.run_slots(np.int32(0), starts)[0] == 20
            else:
                with pytest.raises(rlx.InputError, match="more trips"):
                    cg.run_slots(np.int32(0), starts)


def test_an_extent_runs_on_a_power_of_two_of_rows():
    g = rlx.Graph("rows")
    x = g.input("x", (64, 3))
    g.set_outputs([g.softmax(x @ g.param("w", (3, 5)))])
    w, x = np.ones((3, 5), np.float32), np.random.default_rng(1).random((64, 3), np.float32)
    with rlx.compile(g, DEVICE, {"w": w}) as cg:
        whole = cg.run_slots(x)[0].copy()
        before = cg.bytes_moved.read_back
        for actual, upper in ((5, 8), (8, 8), (33, 64)):
            cg.set_active_extent((actual, 64))
            np.testing.assert_allclose(cg.run_slots(x)[0][:actual], whole[:actual], rtol=1e-6)
            assert cg.bytes_moved.read_back - before == upper * 5 * 4
            before = cg.bytes_moved.read_back


def test_what_depends_on_params_alone_is_computed_once():
    g = rlx.Graph("prepared")
    w = g.param("w", (3, 3))
    g.set_outputs([g.input("x", (2, 3)) @ g.exp(g.transpose(w))])
    w = np.random.default_rng(2).random((3, 3), np.float32)
    x = np.ones((2, 3), np.float32)
    with rlx.compile(g, DEVICE, {"w": w}) as cg:
        assert "exponential" not in cg.as_text("kernels")
        np.testing.assert_allclose(cg.run_slots(x)[0], x @ np.exp(w.T), rtol=1e-5)
        np.testing.assert_array_equal(cg.clone().run_slots(x)[0], cg.run_slots(x)[0])


def test_a_limit_of_memory_counts_temporaries():
    with product(memory_limit=1 << 20) as cg:
        assert cg.memory()["peak"] < 1 << 20
    with pytest.raises(rlx.DeviceMemoryError, match="memory_limit"):
        product(memory_limit=100)


def test_a_large_constant_is_no_part_of_the_program():
    table = np.arange(1 << 16, dtype=np.float32)
    g = rlx.Graph("table")
    g.set_outputs([g.gather(g.constant(table), g.input("at", (2,), "i32"))])
    with rlx.compile(g, DEVICE) as cg:
        assert cg.run_slots(np.array([3, -1], np.int32))[0].tolist() == [3, 65535]
        assert len(cg.as_text("kernels")) < 1 << 16


def test_operands_that_are_known_stand_beside_others():
    """References write into arrays that they make of an operand: of a constant, what is traced."""
    g = rlx.Graph("gradient")
    spec = np.random.default_rng(3).random((2, 16), np.float32)
    filters = np.random.default_rng(4).random((3, 5), np.float32)
    dy = np.ones((2, 3), np.float32)
    result = g.log_mel_backward(g.constant(spec), g.constant(filters), g.input("dy", (2, 3)))
    g.set_outputs([result])
    with rlx.compile(g, DEVICE) as cg, rlx.compile(g, "cpu") as expected:
        np.testing.assert_allclose(cg.run_slots(dy)[0], expected.run_slots(dy)[0], rtol=1e-4)
