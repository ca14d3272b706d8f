"""Runs of graphs with dims on the CPU: sizes that change without Python, threads that follow them, clones, handles."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rlx
from rlx.backends.cpu import linker, split
from rlx.compiler.sized import SizedExecutable
from rlx.ir.static_sizes import with_sizes

N, M = rlx.Dim("n"), rlx.Dim("m", max=3000, multiple_of=3)


def network(last=8):
    """Products, rows and sums of two inputs whose sizes depend on each other."""
    g = rlx.Graph("network")
    x, y = g.input("x", (N, last)), g.input("y", (M // 3 + 1, last))
    rows = g.layer_norm(x) @ np.float32(np.arange(8 * 4).reshape(8, 4) / 32) if last == 8 else x
    sums = g.softmax(g.concat([x, y], 0), axis=0)
    g.set_outputs([g.tanh(rows) * 2.0, sums, g.sum(x, axes=0) + g.sum(y, axes=0), g.dim(sums, 0)])
    return g


def arrays(n, m):
    rng = np.random.default_rng(n + m)
    return [rng.standard_normal((rows, 8)).astype(np.float32) for rows in (n, m // 3 + 1)]


def expected(n, m, **options):
    options = rlx.CompileOptions(**options)
    static = with_sizes(network(), {"n": n, "m": m})
    with rlx.compile(static, device="cpu", options=options) as cg:
        return cg.run(dict(zip("xy", arrays(n, m), strict=True)))


def same(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.fixture
def refused(monkeypatch):
    """Refuses changes of sizes by Python from a call on."""

    def refuse():
        def resize(*_):
            raise AssertionError("Python changes the sizes")

        monkeypatch.setattr(SizedExecutable, "resize", resize)

    return refuse


def test_sizes_change_without_python(refused):
    sizes = [(n, m) for n in (5, 2, 9, 40, 5) for m in (6, 3, 30)]
    wanted = {size: expected(*size) for size in sizes}
    with rlx.compile(network(), device="cpu") as cg:
        cg.run_slots(*arrays(40, 30))
        refused()
        for size in sizes:
            inputs = dict(zip("xy", arrays(*size), strict=True))
            views = cg.run_slots(*inputs.values())
            same(views, wanted[size])
            assert not any(view.flags.writeable for view in views)
            assert [view.shape for view in cg.input_views] == [a.shape for a in inputs.values()]
        for size in sizes[::-1]:
            same(cg.run(dict(zip("xy", arrays(*size), strict=True))), wanted[size])
        for view, array in zip(cg.input_views, arrays(*sizes[0]), strict=True):
            view[...] = array
        same(cg.run_slots(), wanted[sizes[0]])


def test_zero_and_one_are_sizes_as_others(refused):
    g = rlx.Graph("rows")
    x = g.input("x", (N, 8))
    g.set_outputs([g.layer_norm(x) @ np.ones((8, 3), np.float32), g.tanh(x) + x[:, :1]])
    inputs = {n: arrays(n, 3)[0] for n in (0, 1, 2, 40)}
    wanted = {}
    for n, array in inputs.items():
        with rlx.compile(with_sizes(g, {"n": n}), device="cpu") as cg:
            wanted[n] = cg.run({"x": array})
    with rlx.compile(g, device="cpu") as cg, cg.clone() as other:
        same(cg.run_slots(inputs[1]), wanted[1])
        same(cg.run_slots(inputs[0]), wanted[0])
        clone = cg.clone()  # of a program whose sizes are 0
        for n in (1, 40, 0, 2):
            same(clone.run_slots(inputs[n]), wanted[n])
        # Empty results are told from others.
        assert len(other._state.sized._ranges) == 1
        assert len(clone._state.sized._ranges) == 2
        assert not clone._state.sized._programs
        refused()
        for each in (cg, clone):
            for n in (2, 0, 1, 40):
                same(each.run_slots(inputs[n]), wanted[n])


def test_ranges_change_without_python(refused):
    """Empty results have a program of their own."""
    sizes = [(40, 30), (0, 6), (0, 3), (7, 6)]
    wanted = {size: expected(*size) for size in sizes}
    with rlx.compile(network(), device="cpu") as cg:
        for size in sizes * 2:
            same(cg.run_slots(*arrays(*size)), wanted[size])
        sized = cg._state.sized
        assert len(sized._ranges) > 1
        refused()
        for size in sizes * 2:
            same(cg.run_slots(*arrays(*size)), wanted[size])
            assert dict(sized._now.sizes) == dict(zip("nm", size, strict=True))
            same(cg.run(dict(zip("xy", arrays(*size), strict=True))), wanted[size])
        assert cg.read_output_row(1, 0).shape == (8,)


def test_handles_and_params_reach_other_ranges():
    g = rlx.Graph("sums")
    bias, x = g.input("bias", (2,)), g.input("x", (N, 2))
    g.set_outputs([g.sum(x, axes=0) + bias, x @ g.param("w", (2, 2))])
    with rlx.compile(g, device="cpu", params={"w": np.eye(2)}) as cg:
        sizes = (0, 40, 3000, 0, 40)
        ones = {n: np.ones((n, 2), np.float32) for n in sizes}
        for n in sizes * 2:
            cg.run_slots(np.zeros(2, np.float32), ones[n])
        assert len(cg._state.sized._ranges) > 1
        for value in (5, 7):
            cg.bind_handle("bias", np.full(2, value))
            cg.set_param("w", np.eye(2) * value)
            for n in sizes:
                sums, products = cg.run_slots(ones[n])
                assert sums.tolist() == [n + value] * 2
                assert products.tolist() == [[value] * 2] * n


def test_an_input_that_was_empty_is_read():
    g, k = rlx.Graph("rest"), rlx.Dim("k")
    x, y, rest = g.input("x", (N,)), g.input("y", (k,)), g.input("rest", (N - k,))
    g.set_outputs([g.sum(x) + g.sum(y), rest * 2.0])
    with rlx.compile(g, device="cpu") as cg:
        for n, few in ((70, 70), (70, 30), (70, 70), (60, 59), (70, 0)):
            ones = [np.ones(size, np.float32) for size in (n, few, n - few)]
            total, doubled = cg.run_slots(*ones)
            assert total == n + few
            assert doubled.tolist() == [2.0] * (n - few)
            assert cg.run(dict(zip(("x", "y", "rest"), ones, strict=True)))[1].shape == (n - few,)


def test_what_tells_one_from_other_sizes_has_a_range_for_one():
    batch, length = rlx.Dim("batch"), rlx.Dim("length")
    g = rlx.Graph("products")
    x = g.input("x", (batch, length, 8))
    g.set_outputs([x @ g.transpose(x, (0, 2, 1)), g.sum(x, axes=0)])
    with rlx.compile(g, device="cpu") as cg:
        for rows, columns in ((1, 5), (1, 9), (3, 9), (1, 300), (2, 2), (1, 1)):
            shape = rows, columns, 8
            x = np.random.default_rng(columns).standard_normal(shape).astype(np.float32)
            with rlx.compile(
                with_sizes(g, {"batch": rows, "length": columns}), device="cpu"
            ) as static:
                same(cg.run({"x": x}), static.run({"x": x}))
        assert cg._state.sized._apart
        assert not cg._state.sized._programs


def test_arrays_that_do_not_fit_change_nothing():
    x, y = arrays(5, 6)
    with rlx.compile(network(), device="cpu") as cg:
        wanted = [array.copy() for array in cg.run_slots(x, y)]
        for wrong in (
            (x, y[:, :4]),
            (x[:, :4], y),
            (x[0], y),
            (x,),
            (x, np.zeros((1002, 8), np.float32)),
        ):
            with pytest.raises(rlx.InputError):
                cg.run_slots(*wrong)
            assert [view.shape for view in cg.input_views] == [(5, 8), (3, 8)]
        for other in ((x.tolist(), y), (x.astype(np.float64), y), (np.asfortranarray(x), y)):
            same(cg.run_slots(*other), wanted)
        same(cg.run_slots(x[:3].astype(np.float64), y), expected_of_part(x[:3], y))


def expected_of_part(x, y):
    with rlx.compile(with_sizes(network(), {"n": len(x), "m": 3 * len(y) - 3}), device="cpu") as cg:
        return cg.run({"x": x, "y": y})


def test_memory_grows():
    with rlx.compile(network(), device="cpu") as cg:
        before = cg.memory()["arena"]
        for size in ((200, 6), (7, 900), (201, 903), (3, 3)):
            same(cg.run_slots(*arrays(*size)), expected(*size))
        assert cg.memory()["arena"] > before


def test_numbers_that_do_not_fit_are_errors():
    g = rlx.Graph("powers")
    x = g.input("x", (N,))
    g.set_outputs([x + 1.0, g.dim(x, 0), g.dim(x, 0) + x.shape[0] ** 8])
    with rlx.compile(g, device="cpu") as cg:
        for n in (3, 300, 50, 301, 3):
            if n >= 300:
                with pytest.raises(rlx.SizesError, match="a number beyond 64 bits for 30"):
                    cg.run_slots(np.ones(n, np.float32))
            else:
                got = cg.run_slots(np.ones(n, np.float32))
                assert (got[1], got[2]) == (n, n + n**8)
                assert got[0].tolist() == [2.0] * n


def test_threads_follow_the_sizes(monkeypatch):
    monkeypatch.setattr(split, "usable_cores", lambda: 4)
    cgs = [
        rlx.compile(network(), device="cpu", options=rlx.CompileOptions(threads=threads))
        for threads in (1, 4)
    ]
    calls = cgs[1]._state.sized._now.executable._sized
    fields = {(number, name): above for number, name, _, above, _ in calls.places}
    threads = [above for (_, name), above in fields.items() if name == "threads"]
    assert threads
    few, many = (calls.table.numbers(threads, n, 300) for n in (4, 1 << 20))
    assert set(few) == {1}
    assert max(many) == 4
    for n in (4, 3000, 40_000, 5, 2):
        first, second = (cg.run_slots(*arrays(n, 3000)) for cg in cgs)
        same(first, second)
        same(first, expected(n, 3000, threads=4))
    assert not cgs[1]._state.sized._programs


def test_splits_are_those_of_static_graphs(monkeypatch):
    monkeypatch.setattr(split, "usable_cores", lambda: 4)
    g = rlx.Graph("rows")
    y = g.layer_norm(g.input("x", (N, 64))) @ np.ones((64, 48), np.float32)
    g.set_outputs([g.softmax(y), g.transpose(g.exp(y), (1, 0))])
    options, found = rlx.CompileOptions(threads=4), []
    with rlx.compile(g, device="cpu", options=options) as cg:
        calls = cg._state.sized._now.executable._sized
    places = {(number, name): above for number, name, _, above, _ in calls.places}

    def seen(call, count):
        found.append(split.split_of(call, count))
        return found[-1]

    monkeypatch.setattr(linker, "split_of", seen)
    for n in (5, 60, 100, 333, 3000, 40_000):
        found.clear()
        rlx.compile(with_sizes(g, {"n": n}), device="cpu", options=options).close()
        for number, static in enumerate(found):
            named = [places[number, name] for name in ("parts", "threads")]
            parts, threads = calls.table.numbers(named, n)
            assert threads == (1 if static is None else static.threads)
            assert static is None or parts == static.parts
    assert None not in found


def test_threads_share_rows_of_lengths_that_vary():
    g = rlx.Graph("rows")
    g.set_outputs([g.layer_norm(g.input("x", (N, M)))])
    options = rlx.CompileOptions(threads=2)
    with rlx.compile(g, device="cpu", options=options) as cg:
        for n, m in ((600, 300), (3, 3), (40, 3000), (2000, 99)):
            x = np.random.default_rng(n).standard_normal((n, m)).astype(np.float32)
            (got,) = cg.run_slots(x)
            with rlx.compile(with_sizes(g, {"n": n, "m": m}), device="cpu") as static:
                same([got], static.run(x))
        assert len(cg._state.sized._ranges) == 1
        assert not cg._state.sized._programs


def test_one_row_has_the_program_of_others_beside_rows_of_one():
    g = rlx.Graph("rows of one")
    x, y = g.input("x", (N, 6)), g.input("y", (N,))
    rows = g.where(g.lt(x, g.constant(0.5)), g.input("row", (1, 6)), x)
    g.set_outputs([rows, y * g.constant(np.float32([3]))])
    with rlx.compile(g, device="cpu") as cg:
        for n in (9, 1, 2):
            x, y, row = (
                np.random.default_rng(n).random(s, np.float32) for s in ((n, 6), n, (1, 6))
            )
            same(cg.run_slots(x, y, row), [np.where(x < 0.5, row, x), y * 3])
        assert len(cg._state.sized._ranges) == 1


def test_handles_stay_when_other_sizes_change(refused):
    g = rlx.Graph("sums")
    total, x = g.input("total", (M,)), g.input("x", (N, M))
    g.set_outputs([total + g.sum(x, axes=0), g.exp(x)])
    with rlx.compile(g, device="cpu") as cg:
        cg.bind_handle("total", np.zeros(6))
        cg.set_gpu_handle_feed("total", 0)
        cg.run_slots(np.ones((50, 6), np.float32))
        refused()
        for n in (2, 7, 3):
            cg.run_slots(np.ones((n, 6), np.float32))
            cg.run({"x": np.ones((n + 1, 6), np.float32)})
        assert cg.read_handle("total").tolist() == [50.0 + 5 + 15 + 7] * 6
        with pytest.raises(rlx.InputError, match="where other inputs say m = 6"):
            cg.run_slots(np.ones((2, 9), np.float32))


def test_params_of_clones_reach_the_next_run():
    g = rlx.Graph("scaled")
    g.set_outputs([g.input("x", (N, 2)) @ g.param("w", (2, 2))])
    with rlx.compile(g, device="cpu", params={"w": np.eye(2)}) as cg:
        clone = cg.clone()
        for factor, n in enumerate((3, 3, 5, 200, 1, 3)):
            for each in (cg, clone):
                each.set_param("w", np.eye(2) * factor)
                for other in (cg, clone):
                    x = np.ones((n, 2), np.float32)
                    assert other.run_slots(x)[0].tolist() == [[factor] * 2] * n
                    assert other.run({"x": x})[0].tolist() == [[factor] * 2] * n


def test_clones_in_threads():
    sizes = [(n, m) for n in (4, 11, 60) for m in (3, 24)]
    wanted = {size: expected(*size) for size in sizes}
    with rlx.compile(network(), device="cpu") as cg:

        def runs(clone, seed):
            for k in np.random.default_rng(seed).integers(0, len(sizes), 60):
                same(clone.run_slots(*arrays(*sizes[k])), wanted[sizes[k]])

        clones = [cg.clone() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(runs, clone, i) for i, clone in enumerate(clones)]:
                done.result()


def test_many_dims(refused):
    dims = [rlx.Dim(f"d{i}", max=50) for i in range(9)]
    g = rlx.Graph("many")
    inputs = [g.input(f"x{i}", (dim, dims[i - 1])) for i, dim in enumerate(dims)]
    g.set_outputs([g.sum(x) for x in inputs])
    rng = np.random.default_rng(0)
    with rlx.compile(g, device="cpu") as cg:
        for step in range(20):
            sizes = [int(k) for k in rng.integers(2, 51, 9)]
            taken = [np.ones((n, sizes[i - 1]), np.float32) for i, n in enumerate(sizes)]
            got = cg.run_slots(*taken)
            assert [float(value) for value in got] == [float(array.size) for array in taken]
            if step == 0:
                refused()


def test_an_input_that_nothing_reads_has_its_size():
    g = rlx.Graph("unread")
    x = g.input("x", (N, 2))
    g.input("spare", (N, M))
    g.set_outputs([x * 2.0])
    with rlx.compile(g, device="cpu") as cg:
        for n, m in ((3, 6), (5, 9), (2, 9)):
            cg.run_slots(np.ones((n, 2), np.float32), np.ones((n, m), np.float32))
            assert [view.shape for view in cg.input_views] == [(n, 2), (n, m)]


def test_values_that_were_empty_have_places_of_their_own(device):
    """Views of values that are empty when their program is made point to where the values go later."""
    g = rlx.Graph("apart")
    a, x, y = g.input("a", (3,)), g.input("x", (N, 2)), g.input("y", (rlx.Dim("k"), 2))
    g.set_outputs([a * 2.0, x + 1.0, g.sum(y, axes=0), y * 3.0])
    rng = np.random.default_rng(0)
    with rlx.compile(g, device) as cg:
        for n, m in ((0, 0), (1, 0), (0, 2), (3, 4), (50, 0), (0, 50), (200, 300), (0, 1), (1, 0)):
            inputs = [rng.random(shape, np.float32) for shape in ((3,), (n, 2), (m, 2))]
            wanted = inputs[0] * 2, inputs[1] + 1, inputs[2].sum(0), inputs[2] * 3
            for results in (cg.run(dict(zip("axy", inputs, strict=True))), cg.run_slots(*inputs)):
                for result, right in zip(results, wanted, strict=True):
                    np.testing.assert_allclose(result, right, 1e-5, err_msg=f"{n}, {m}")
