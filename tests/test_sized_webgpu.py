"""Programs for ranges of sizes on WebGPU: texts, the buffer of sizes, memory that grows, and how few shaders are made."""

import gc

import numpy as np
import pytest

import rlx
from rlx._ext.program import RunSizes
from rlx._ext.webgpu_hot import HostViews
from rlx.backends.base import CompileOptions
from rlx.backends.webgpu import sized_kernels
from rlx.backends.webgpu.dispatch import UNIFORM, Dispatch
from rlx.backends.webgpu.size_table import SizeTable
from rlx.backends.webgpu.sized_kernels import SizedKernels
from rlx.compiler.lowering import lower_sized
from rlx.compiler.target import Target
from rlx.ir.static_sizes import with_sizes
from rlx.sizes import Assumptions, Dim, Ratio, deciding
from rlx.sizes.program import SizeProgram

WIDTH, HEADS, WORDS = 32, 2, 50
RNG = np.random.default_rng(0)
N = Dim("n", max=2000)


def layer(g, x, n, number, params):
    """A transformer's layer."""

    def param(name, *shape):
        name = f"{name}{number}"
        params[name] = np.float32(RNG.standard_normal(shape) / np.sqrt(shape[0]))
        return g.param(name, shape)

    def heads(y):
        return g.transpose(g.reshape(y, (n, HEADS, WIDTH // HEADS)), (1, 0, 2))

    y = g.layer_norm(x, param("scale", WIDTH), param("shift", WIDTH))
    q, k, v = (heads(y @ param(name, WIDTH, WIDTH)) for name in "qkv")
    weights = g.softmax(q @ g.transpose(k, (0, 2, 1)) * 0.25, axis=-1)
    y = g.reshape(g.transpose(weights @ v, (1, 0, 2)), (n, WIDTH))
    x = x + y @ param("o", WIDTH, WIDTH)
    y = g.gelu(x @ param("up", WIDTH, 2 * WIDTH) + param("bias", 2 * WIDTH))
    return x + y @ param("down", 2 * WIDTH, WIDTH)


def transformer(layers=2):
    params = {"words": np.float32(RNG.standard_normal((WORDS, WIDTH)))}
    g = rlx.Graph("transformer")
    x = g.gather(g.param("words", (WORDS, WIDTH)), g.input("tokens", (N,), "i32"), axis=0)
    for number in range(layers):
        x = layer(g, x, N, number, params)
    g.set_outputs([x, g.mean(x, axes=0)])
    return g, params


def tokens(n):
    return RNG.integers(0, WORDS, n).astype(np.int32)


def ranges(cg):
    return cg._state.sized._ranges


def dispatches(cg):
    return [item for item in cg._state.sized._now.executable._work if isinstance(item, Dispatch)]


@pytest.fixture(scope="module")
def sized(webgpu):
    g, params = transformer()
    with rlx.compile(g, device=webgpu, params=params) as cg:
        yield cg, g, params


# --- texts -----------------------------------------------------------------------------------------


def resolved(render, table=None, assumptions=None):
    with deciding(assumptions or Assumptions({"n": 12})):
        return (table or SizeTable(["n"])).resolved(render)


def test_sizes_in_a_text():
    result = resolved(
        lambda: (
            f"const M: u32 = {N}u;\nconst S: f32 = {Ratio(1, N)};\nconst L: i32 = {N - 20};\n"
            f"let a = M * 2u + {N * 4}u; // {N + 1} of M\n"
            f"let b = S + {N}.0 + f32(L);\n"
            "for (; i < M; i++) { } // trips: M / 4\n"
            "let c = x.M;\n"
        )
    )
    assert result.text == (
        "let a = sizes[0].x * 2u + sizes[0].y; // n + 1 of n\n"
        "let b = bitcast<f32>(sizes[0].z) + f32(i32(sizes[0].x)) + f32(i32(sizes[0].w));\n"
        "for (; i < sizes[0].x; i++) { } // trips: size_0 / 4\n"
        "let c = x.M;\n"
    )
    assert (result.vectors, result.trips) == (1, {"size_0": N})


def test_numbers_of_wgsl_are_pinned():
    assumptions = Assumptions({"n": 12})
    result = resolved(
        lambda: f"var<workgroup> a: array<vec4<f32>, {N}>; // {N}\n", None, assumptions
    )
    assert result.text == "var<workgroup> a: array<vec4<f32>, 12>; // n\n"
    assert list(map(str, assumptions.guards)) == ["n - 12 == 0"]


@pytest.mark.parametrize(
    "text", ["let w{} = 1u;", "let a = 1{}u;", "let a = {}.5;", "let a = b.{};"]
)
def test_other_texts_of_sizes_are_refused(text):
    with pytest.raises(rlx.UnknownSizeError, match="a kernel needs the text of a size"):
        resolved(lambda: text.format(N))


def test_equal_sizes_have_one_place():
    table = SizeTable(["n"])
    first = resolved(lambda: f"{N * 2 + 2}u {-N}", table)
    second = resolved(lambda: f"{-N} {(N + 1) * 2}u {Ratio(1, N)}", table)
    assert first.text == "sizes[0].x i32(sizes[0].y)"
    assert second.text == "i32(sizes[0].y) sizes[0].x bitcast<f32>(sizes[0].z)"
    program = SizeProgram(["n"])
    added = table.added(program)
    places = [
        [-1 if part is None else program.place(part).above for part in pair] for pair in added
    ]
    sizes = RunSizes(program.steps(), [4], [], [], [])
    views = HostViews((), (), (), sizes, places)
    assert views.words[:2].view(np.int32).tolist() == [10, -4]
    assert views.words[2:3].view(np.float32).tolist() == [0.25]
    with pytest.raises(rlx.DeviceMemoryError, match="counts further than a GPU does"):
        views.resize((1 << 31,))
    assert (sizes.now, views.words[0]) == ((4,), 10)
    views.resize((0,))
    assert views.words[:2].tolist() == [2, 0]
    assert np.isnan(views.words[2:3].view(np.float32)[0])


def texts(layers, target):
    """The kernels of a transformer."""
    assumptions = Assumptions({"n": 70})
    lowered = lower_sized(transformer(layers)[0], target, assumptions)
    with deciding(assumptions):
        kernels = SizedKernels(lowered.schedule, {"n": 70}, target.info, 256)
    return [item.source for item in kernels.work]


def test_equal_layers_share_texts(webgpu):
    target = Target.of(rlx.Device(webgpu), CompileOptions())
    two, three = texts(2, target), texts(3, target)
    assert len(three) > len(two)
    assert set(two) == set(three)


def test_only_what_reads_sizes_binds_them(webgpu):
    g = rlx.Graph("both")
    g.set_outputs([g.input("x", (N, 3)) * 2.0, g.softmax(g.input("y", (4, 8)))])
    with rlx.compile(g, device=webgpu) as cg:
        reads = {item.call.kernel: item.reads_sizes for item in dispatches(cg)}
        assert reads == {"elementwise": True, "softmax_rows": False}
        bound = {item.access[-1] == UNIFORM for item in dispatches(cg) if "sizes[" in item.source}
        assert bound == {True}


# --- runs ------------------------------------------------------------------------------------------


def test_one_program_serves_many_lengths(sized, monkeypatch):
    cg, g, params = sized
    others = rlx.compile(g, device="cpu", params=params)
    for n in (67, 65):
        cg.run({"tokens": tokens(n)})
    count, made = len(ranges(cg)), []
    library = type(cg._state.sized._now.executable._gpu.provider)
    plain = library.shader_module
    monkeypatch.setattr(library, "shader_module", lambda *a: made.append(a[2]) or plain(*a))
    for n in (*range(65, 80), 127, 101, 66):
        if n % 4:
            given = tokens(n)
            for got, wanted in zip(cg.run({"tokens": given}), others.run(given), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, strict=True)
    assert len(ranges(cg)) == count
    assert not made
    assert not cg._state.sized._programs


def test_results_are_those_of_a_static_graph(sized):
    cg, g, params = sized
    for n in (66, 126):
        given = tokens(n)
        with rlx.compile(with_sizes(g, {"n": n}), device=cg.device, params=params) as static:
            (rows, mean), (wanted, of_columns) = cg.run(given), static.run(given)
            np.testing.assert_array_equal(rows, wanted, strict=True)
            # A driver may round a division by a number that it knows otherwise.
            np.testing.assert_allclose(mean, of_columns, rtol=3e-7, atol=1e-8, strict=True)


def test_memory_grows_for_larger_sizes(webgpu, monkeypatch):
    monkeypatch.setattr(sized_kernels, "_ROOM", 0)  # as if all of it were much
    g = rlx.Graph("rows")
    g.set_outputs([g.softmax(g.input("x", (Dim("n"), 8))) + 1.0])
    with rlx.compile(g, device=webgpu) as cg:
        arenas = {}
        for rows in (70, 80, 105, 70, 106, 150):
            x = np.float32(RNG.standard_normal((rows, 8)))
            e = np.exp(x)
            wanted = e / e.sum(1, keepdims=True) + 1
            np.testing.assert_allclose(cg.run_slots(x)[0], wanted, rtol=1e-5, strict=True)
            arenas[rows] = cg.memory()["arena"]
        assert len(ranges(cg)) == 1
        assert cg.bytes_moved.uploaded == 8 * 4 * sum((70, 80, 105, 70, 106, 150))
        # A growth leaves room for half as much again: 105 rows behind 70, 159 behind 106.
        assert arenas[70] == arenas[80] == arenas[105] < arenas[106] == arenas[150]


def test_little_memory_is_taken_at_once(webgpu):
    """A dim with a maximum has room for it, another one for sixteen times its usual size, 64."""
    for dim, most in ((Dim("n", max=3000), 3000), (Dim("n"), 16 * 64)):
        g = rlx.Graph("rows")
        g.set_outputs([g.softmax(g.input("x", (dim, 8)))])
        with rlx.compile(g, device=webgpu) as cg:
            arenas = []
            for rows in (70, 150):
                cg.run(np.zeros((rows, 8), np.float32))
                arenas.append(cg.memory()["arena"])
            assert arenas[0] == arenas[1] >= 2 * most * 8 * 4
            assert len(ranges(cg)) == 1


def test_programs_for_other_sizes_share_params(webgpu):
    g, n = rlx.Graph("shared"), Dim("n", max=100)
    w = g.param("w", (8, 8))
    g.set_outputs([g.softmax(g.input("x", (n, 8)) @ (w * 2.0 + g.transpose(w, (1, 0))))])
    weights = [np.float32(RNG.standard_normal((8, 8))) for _ in range(3)]
    given = {rows: np.float32(RNG.standard_normal((rows, 8))) for rows in (64, 3, 67)}

    def check(cg, w):
        for rows, x in given.items():
            e = np.exp(x.astype(np.float64) @ (w * 2.0 + w.T))
            np.testing.assert_allclose(cg.run(x)[0], e / e.sum(1, keepdims=True), 1e-4, 1e-6)
            assert cg.run(x)[0].shape == (rows, 8)

    with rlx.compile(g, device=webgpu, params={"w": weights[0]}) as cg:
        cg.run(given[64])
        alone = cg.memory()["params"]
        check(cg, weights[0])
        assert len(ranges(cg)) > 1
        assert cg.memory()["params"] == alone
        buffers = {
            tuple(map(id, item.executable._constants.buffers.values())) for item in ranges(cg)
        }
        assert len(buffers) == 1
        with cg.clone() as clone:
            for w in weights[1:]:
                cg.set_params({"w": w})
                check(cg, w)
                check(clone, w)
        # The bytes count for another program when the first one is gone.
        del clone
        cg._state.sized._drop(ranges(cg).pop(0))
        gc.collect()
        check(cg, weights[2])
        assert cg.memory()["params"] == alone


def test_runs_under_way_keep_their_results(sized):
    cg, _, _ = sized
    given = [tokens(n) for n in (65, 70, 66, 70)]
    wanted = [[item.copy() for item in cg.run(one)] for one in given]
    for got, one in zip(cg.run_pipelined([{"tokens": t} for t in given]), wanted, strict=True):
        for a, b in zip(got, one, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


def test_other_sizes_cost_no_python(sized, monkeypatch):
    cg, _, _ = sized
    assert cg._state.sized._now.executable._factory.hot
    given = [tokens(n) for n in (66, 70, 65, 67)]
    wanted = [[item.copy() for item in cg.run(one)] for one in given]
    monkeypatch.setattr(type(cg._state.sized), "resize", None)
    moved = cg.bytes_moved
    for one, expected in zip(given * 2, wanted * 2, strict=True):
        for results in (cg.run_slots(one), cg.run({"tokens": one})):
            for a, b in zip(results, expected, strict=True):
                np.testing.assert_array_equal(a, b, strict=True)
    assert cg._state.sized.sizes == {"n": 67}
    # Sizes are no values: they count as nothing.
    assert cg.bytes_moved.uploaded - moved.uploaded == 2 * 2 * 4 * (66 + 70 + 65 + 67)
    # What Python prepared for other sizes follows.
    monkeypatch.undo()
    assert cg.run_read_outputs({"tokens": given[0]}, [1])[0].tolist() == wanted[0][1].tolist()


def test_transfers_of_values_that_vary_and_that_do_not(webgpu):
    g, n = rlx.Graph("transfers"), Dim("n", max=100)
    x, b, y = g.input("x", (n, 3)), g.input("b", (3,)), g.input("y", (n,), "i8")
    g.set_outputs([x + b, g.sum(x), b * 2.0, y + y, g.sum(x, axes=0)])
    with rlx.compile(g, device=webgpu) as cg, rlx.compile(g, device="cpu") as cpu:
        cg.bind_gpu_handle("b", np.float32([1, 2, 3]))
        for n in (90, 2, 3, 0, 31, 64, 1, 5):
            x, y = np.float32(RNG.integers(-9, 9, (n, 3))), np.int8(RNG.integers(-9, 9, n))
            wanted = cpu.run({"x": x, "y": y, "b": [1, 2, 3]})
            for got in (
                cg.run({"x": x, "y": y}),
                cg.run_slots(x, y),
                cg.run_read_outputs({"x": x, "y": y}),
                cg.run_pipelined([{"x": x, "y": y}] * 3)[2],
            ):
                for a, e in zip(got, wanted, strict=True):
                    np.testing.assert_array_equal(a, e, strict=True)
            some = cg.run_read_outputs({"x": x, "y": y}, [4, 2, 3])
            for a, e in zip(some, (wanted[4], wanted[2], wanted[3]), strict=True):
                np.testing.assert_array_equal(a, e, strict=True)


def test_clones_handles_and_profiles(sized):
    cg, _, _ = sized
    wanted = cg.run(tokens(70))[0].shape
    with cg.clone() as clone:
        assert clone.run(tokens(70))[0].shape == wanted
        clone.bind_gpu_handle("tokens", np.zeros(90, np.int32))
        assert clone.run({})[0].shape == (90, WIDTH)
        clone.bind_gpu_handle("tokens", np.zeros(66, np.int32))
        assert clone.run({})[0].shape == (66, WIDTH)
        assert clone.read_handle("tokens").shape == (66,)
    profile = cg.profile({"tokens": tokens(77)}, runs=1)
    assert {row.name for row in profile.rows} >= {"softmax", "layer_norm"}
    assert cg.run(tokens(71))[0].shape == (71, WIDTH)


def conv(g, n, m):
    x = g.input("x", (2, 3, n, m))
    y = g.relu(g.conv2d(x, np.float32(RNG.standard_normal((4, 3, 3, 3))), padding=1))
    return g.max_pool(y, (2, 2))


def recurrent(g, n, m):
    weights = (np.float32(RNG.standard_normal((1, 24, k))) / 4 for k in (5, 8))
    return g.gru(g.input("x", (n, m, 5)), *weights)[0]


def attention(g, n, m):
    return g.attention(*(g.input(name, (m, 2, n, 16)) for name in "qkv"), kind="causal")


@pytest.mark.parametrize("build", [conv, recurrent, attention])
def test_two_sizes_vary(build, webgpu):
    g = rlx.Graph("two")
    g.set_outputs([build(g, Dim("n"), Dim("m"))])
    with rlx.compile(g, device=webgpu) as cg, rlx.compile(g, device="reference") as exact:
        for n, m in ((11, 6), (9, 7), (30, 5), (13, 4)):
            shapes = [type.shape for type in cg._state.sized.input_sizes.types({"n": n, "m": m})]
            given = [np.float32(RNG.standard_normal(shape)) for shape in shapes]
            got, wanted = cg.run_slots(*given)[0], exact.run_slots(*given)[0]
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, strict=True)
        assert not cg._state.sized._programs


def test_few_keys_take_one_kernel_of_the_program_for_many(webgpu):
    g, n = rlx.Graph("keys"), Dim("n", max=2048)
    shapes = {"q": (1, 6, 1, 64), "k": (1, 2, n, 64), "v": (1, 2, n, 64)}
    g.set_outputs([g.attention(*(g.input(*item) for item in shapes.items()))])
    cg = rlx.compile(g, device=webgpu, options=rlx.CompileOptions(profile=True))
    with cg, rlx.compile(g, device="reference") as exact:
        for count, calls in ((700, 2), (1, 1), (161, 1), (512, 1), (513, 2), (2048, 2)):
            types = cg._state.sized.input_sizes.types({"n": count})
            given = [np.float32(RNG.standard_normal(type.shape)) for type in types]
            assert sum(row.calls for row in cg.profile(dict(zip("qkv", given)), 1).rows) == calls
            np.testing.assert_allclose(cg.run_slots(*given), exact.run_slots(*given), 1e-5, 1e-6)
        assert not cg._state.sized._programs


def test_kernels_that_need_numbers_say_so(webgpu):
    g = rlx.Graph("state")
    x = g.input("x", (Dim("n", max=40), 3))
    body = rlx.Graph("sum")
    total = body.input("total", (3,)) + body.input("row", (3,))
    body.set_outputs([total, total])
    g.set_outputs([g.scan(body, 1, np.zeros(3, np.float32), x)[0]])
    with rlx.compile(g, device=webgpu) as cg:
        assert cg.run(np.ones((5, 3)))[0].tolist() == [5.0] * 3
        assert not ranges(cg)
        assert "is known only when the graph runs" in cg.as_text("fused")
