"""Products of one row by packed weights in one kernel: what joins them, and what they give."""

import threading

import numpy as np
import pytest

import rlx
from rlx.backends.registry import backend
from rlx.ops.block_formats import decode_blocks, scrambled_blocks

pytestmark = pytest.mark.by_program

K = 256
SCHEMES = {"q": "Q4_K", "k": "Q5_0", "v": "Q6_K", "gate": "Q4_0", "up": "Q8_0", "down": "Q4_K"}
ROWS = {"q": 64, "k": 32, "v": 32, "gate": 256, "up": 256, "down": 256}
WEIGHTS = {name: scrambled_blocks(SCHEMES[name], n, K) for name, n in ROWS.items()}


def product(g, x, name):
    packed = WEIGHTS[name].astype(np.uint8)
    return g.dequant_matmul(x, g.constant(packed, "u8"), SCHEMES[name])


def ops_of(compiled):
    text = compiled.as_text("fused").partition("\n#")[0]
    return [line.split(" = ")[1].split()[0] for line in text.splitlines() if " = " in line]


@pytest.fixture
def x(rng):
    return rng.standard_normal((1, K)).astype(np.float32)


def weights(name):
    return decode_blocks(WEIGHTS[name].astype(np.uint8), SCHEMES[name]).T


def block(rows):
    """A norm, products by three weights, gated ones, and the sum with what came in."""
    g = rlx.Graph()
    x, norm = g.input("x", (rows, K)), g.constant(np.linspace(0.5, 1.5, K), "f32")
    first = g.rms_norm(x, norm, 1e-5)
    outputs = [product(g, first, name) for name in "qkv"]
    second = g.rms_norm(x, norm, 1e-5, 1) * 1.0
    inner = g.gelu(product(g, second, "gate")) * product(g, second, "up")
    g.set_outputs([*outputs, x + product(g, inner, "down")])
    return g


def test_one_row_takes_a_kernel_for_what_belongs_together(webgpu, x):
    with rlx.compile(block(1), webgpu) as joined:
        ops = ops_of(joined)
        results = joined.run({"x": x})
    assert ops.count("packed_products") == 3
    assert "dequant_matmul" not in ops
    with rlx.compile(block(1), webgpu, options=rlx.CompileOptions(fuse=False)) as apart:
        assert "packed_products" not in ops_of(apart)
        for got, expected in zip(results, apart.run({"x": x}), strict=True):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(got / scale, expected / scale, atol=2e-6)


@pytest.mark.parametrize("rows", [2, 40])
def test_more_rows_stay_as_they_are(webgpu, rows):
    with rlx.compile(block(rows), webgpu) as compiled:
        assert "packed_products" not in ops_of(compiled)


def test_cpu_has_no_use_for_it(x):
    with rlx.compile(block(1), "cpu") as compiled:
        assert "packed_products" not in ops_of(compiled)


def turn(x, angles, style):
    """Pairs of the last axis as complex numbers, times others of length 1."""
    half = len(angles)
    pairs = x.reshape(*x.shape[:-1], *((2, half) if style == "neox" else (half, 2)))
    axis = -2 if style == "neox" else -1
    numbers = (np.take(pairs, 0, axis) + 1j * np.take(pairs, 1, axis)) * np.exp(1j * angles)
    return np.stack([numbers.real, numbers.imag], axis).reshape(x.shape)


@pytest.mark.parametrize("style", ["neox", "gptj"])
def test_heads_turn_and_rows_go_into_their_states(webgpu, rng, x, style):
    """A step of attention: queries and keys turn, and keys and values are written where they belong."""
    size, room = 16, 5
    g = rlx.Graph()
    row, position = g.input("x", (1, K)), g.input("position", (), "i64")
    states = [g.input(name, (room, 2, size)) for name in ("keys", "values")]
    h = g.rms_norm(row, g.constant(np.ones(K), "f32"), 1e-5)
    q, k, v = (g.reshape(product(g, h, name), (1, -1, size)) for name in "qkv")
    angles = np.arange(room)[:, None] * 0.3 ** np.arange(size // 2)
    place = g.read_size(position, max=room - 1)
    cos, sin = (
        g.unsqueeze(g.narrow(g.constant(function(angles), "f32"), 0, place, 1), 1)
        for function in (np.cos, np.sin)
    )
    q, k = (g.rope(item, cos, sin, None, style) for item in (q, k))
    g.set_outputs([q, *(g.update(state, new, place) for state, new in zip(states, (k, v)))])

    compiled = rlx.compile(g, webgpu)
    assert "took turned heads" in compiled.as_text("fused")
    before = {
        name: rng.standard_normal((room, 2, size)).astype(np.float32) for name in ("keys", "values")
    }
    for name, array in before.items():
        compiled.bind_gpu_handle(name, array)
    for at in (3, 0):
        got, keys, values = compiled.run({"x": x, "position": np.int64(at)})
        normed = x / np.sqrt(np.mean(x.astype("f8") ** 2) + 1e-5)
        plain = {name: (normed @ weights(name)).reshape(1, -1, size) for name in "qkv"}
        turned = {name: turn(plain[name], angles[at], style) for name in "qk"}
        before["keys"][at], before["values"][at] = turned["k"][0], plain["v"][0]
        for result, expected in (
            (got, turned["q"]),
            (keys, before["keys"]),
            (values, before["values"]),
        ):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(result / scale, expected / scale, atol=1e-5)
    # One call makes the row in the states, three where its ten buffers are too many. Others copy cosines, sines, and the
    # states that are outputs.
    calls = compiled.as_text("schedule")
    limits = backend(rlx.Device.parse(webgpu).backend).devices()[0].limits
    few = limits["max-storage-buffers-per-shader-stage"] < 10
    assert [calls.count(name) for name in ("= packed_gemv", "= strided_copy")] == [
        3 if few else 1,
        4,
    ], calls
    compiled.close()


def check(graph, device, arrays, states=()):
    """Results are those of the reference, also where states are bound."""
    with rlx.compile(graph, "reference", options=rlx.CompileOptions(fuse=False)) as exact:
        expected = exact.run(arrays)
    given = {name: array for name, array in arrays.items() if name not in states}
    with rlx.compile(graph, device) as compiled:
        for name in states:
            compiled.bind_gpu_handle(name, arrays[name])
        text = compiled.as_text("fused")
        for got, want in zip(compiled.run(given), expected, strict=True):
            scale = np.abs(want).max()
            np.testing.assert_allclose(got / scale, want / scale, atol=1e-5)
    return text


def normed(g, x):
    return g.rms_norm(x, g.constant(np.linspace(0.5, 1.5, K), "f32"), 1e-5)


def test_a_row_that_is_also_an_output_is_written_there(webgpu, x, rng):
    g = rlx.Graph()
    row, state, at = g.input("x", (1, K)), g.input("state", (5, 2, 16)), g.input("at", (), "i64")
    h = normed(g, row)
    present = g.reshape(product(g, h, "k"), (1, 2, 16))
    place = g.read_size(at, max=4)
    g.set_outputs([present, product(g, h, "v"), g.update(state, present, place)])
    arrays = {"x": x, "at": np.int64(3), "state": rng.standard_normal((5, 2, 16)).astype("f4")}
    assert "took norm and packed products" in check(g, webgpu, arrays, ["state"])


def test_parts_of_one_product_go_into_two_states(webgpu, x, rng):
    g = rlx.Graph()
    row, at = g.input("x", (1, K)), g.input("at", (), "i64")
    keys, values = (g.input(name, (4, 32)) for name in ("keys", "values"))
    both = product(g, normed(g, row), "q")  # 64 entries: a key and a value
    place = g.read_size(at, max=3)
    halves = (g.narrow(both, 1, begin, 32) for begin in (0, 32))
    g.set_outputs([g.update(s, new, place) for s, new in zip((keys, values), halves)])
    arrays = {name: rng.standard_normal((4, 32)).astype("f4") for name in ("keys", "values")}
    for place in (0, 3):
        check(g, webgpu, {"x": x, "at": np.int64(place), **arrays}, ["keys", "values"])


def test_two_rows_go_into_one_state(webgpu, x, rng):
    g = rlx.Graph()
    row, state, at = g.input("x", (1, K)), g.input("state", (6, 32)), g.input("at", (), "i64")
    h = normed(g, row)
    first, place = g.input("first", (6, 32)), g.read_size(at, max=2)
    once = g.update(state, product(g, h, "k"), 2 * place)
    g.set_outputs([g.update(once, product(g, h, "v"), 2 * place + 1), g.exp(first)])
    arrays = {name: rng.standard_normal((6, 32)).astype("f4") for name in ("state", "first")}
    check(g, webgpu, {"x": x, "at": np.int64(1), **arrays}, ["state"])


@pytest.mark.parametrize("shapes", [((1, K), (5, 64)), ((K,), (1, 64)), ((1, K), (1, 1, 64))])
def test_sums_that_repeat_the_product(webgpu, rng, shapes):
    g = rlx.Graph()
    x, r = (g.input(name, shape) for name, shape in zip("xr", shapes))
    g.set_outputs([product(g, x, "q") + r])
    arrays = {n: rng.standard_normal(s).astype("f4") for n, s in zip("xr", shapes)}
    check(g, webgpu, arrays)


def test_a_norm_with_more_readers_than_one_call_has(webgpu, x):
    g = rlx.Graph()
    h = normed(g, g.input("x", (1, K)))
    g.set_outputs([product(g, h, name) for name in ("q", "k", "v", "gate")])
    check(g, webgpu, {"x": x})


def test_a_norm_that_is_also_an_output(webgpu, x):
    g = rlx.Graph()
    h = normed(g, g.input("x", (1, K)))
    g.set_outputs([h, product(g, h, "q"), product(g, h, "k")])
    check(g, webgpu, {"x": x})


@pytest.mark.parametrize("kind", ["cut", "reversed", "angles of heads"])
def test_what_is_no_rotation(webgpu, rng, x, kind):
    g = rlx.Graph()
    h = normed(g, g.input("x", (1, K)))
    q, k, v = (product(g, h, name) for name in "qkv")
    signs = g.constant(np.array([[-1.0], [1.0]]), "f32")
    results = []
    for index, part in enumerate((q, k)):
        pairs = g.reshape(part, (-1, 2, 8))
        heads = pairs.shape[0]
        if kind == "cut":
            crossed = g.slice(pairs, (0,), (1,), axes=(1,))
        elif kind == "reversed":
            crossed = g.slice(pairs, (1, 7), (-3, -9), axes=(1, 2), steps=(-1, -1))
        else:
            crossed = g.slice(pairs, (1,), (-3,), axes=(1,), steps=(-1,))
        shape = (heads, 1, 1) if kind == "angles of heads" else (1, 8)
        cos, sin = (g.input(f"{name}{index}", shape) for name in ("cos", "sin"))
        results.append(pairs * cos + crossed * (sin * signs))
    g.set_outputs([*results, v])
    drawn = {n.name: rng.standard_normal(n.shape).astype("f4") for n in g.nodes if n.op == "input"}
    text = check(g, webgpu, {**drawn, "x": x})
    assert "took turned heads" not in text


def test_weights_change_between_runs_of_several_submissions(webgpu):
    """A run of many kernels is submitted in parts; new weights are for all parts of a run or for none."""
    g = rlx.Graph()
    x = g.input("x", (256,))
    w, y = g.param("w", (256,)), x
    for index in range(120):  # one kernel each: a sum over all separates them
        y = g.cumsum(y, 0) * 0.0 + w * float(index % 3 == 0) + y * float(index % 3 != 0)
    g.set_outputs([y])
    with rlx.compile(g, webgpu, {"w": np.zeros(256, "f4")}) as compiled:
        assert compiled.as_text("schedule").count(" = ") > 2 * 48
        again, wrong, stop = compiled.clone(), [], threading.Event()

        def run():
            while not stop.is_set():
                (got,) = again.run({"x": np.ones(256, np.float32)})
                if len(np.unique(got)) != 1:
                    wrong.append(np.unique(got))

        thread = threading.Thread(target=run)
        thread.start()
        for value in range(60):
            compiled.set_params({"w": np.full(256, value, "f4")})
        stop.set()
        thread.join()
        assert not wrong
        again.close()


def test_every_half_is_widened_exactly(target_device):
    """Subnormal ones, infinities and NaN, too; some devices unpack them in one instruction."""
    table, g = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 64), rlx.Graph()
    w, x = g.param("w", table.shape, "f16"), g.input("x", (1, 64))
    rows = g.cast(g.gather(w, g.input("i", (1024,), "i32"), axis=0), "f32")
    g.set_outputs([rows, x @ g.transpose(g.cast(w, "f32"))])
    sparse = np.where(np.isfinite(table) & (np.arange(64) == 5), table, np.float16(0))
    compiled = rlx.compile(g, target_device)
    compiled.set_param("w", table)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(
            compiled.run({"x": np.zeros((1, 64)), "i": np.arange(1024)})[0],
            table.astype(np.float32),
        )
    compiled.set_param("w", sparse)
    got = compiled.run({"x": np.full((1, 64), 2.0**14), "i": np.arange(1024)})[1]
    np.testing.assert_array_equal(got[0], sparse[:, 5].astype(np.float32) * 2.0**14)
