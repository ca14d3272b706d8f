"""Branches and loops inside one another, with every kind of state.

What a graph with control flow means is written down here once more, in plain Python.
"""

from __future__ import annotations

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.ir import content
from rlx.ir import verify as verifying
from rlx.ir.dtype import DType, store, widen

pytestmark = pytest.mark.by_program

MODES = {
    "default": CompileOptions(),
    "no reuse": CompileOptions(reuse_memory=False),
    "plain": CompileOptions(fuse=False, fold=False, cse=False, dce=False),
}


@pytest.fixture(params=MODES)
def options(request):
    return MODES[request.param]


def subgraph(name, build, *types):
    """A graph of inputs of those (shape, dtype)s, and what ``build`` makes of them."""
    g = rlx.Graph(name)
    g.set_outputs(build(g, *(g.input(f"x{index}", *type) for index, type in enumerate(types))))
    return g


def compile_and_run(g, device, options, inputs, times=2):
    """The outputs; a second run finds what the first left in memory."""
    with rlx.Session(device, options=options).compile(g) as compiled:
        for _ in range(times):
            result = compiled.run(inputs)
    return result


def close(got, expected, dtype="f32"):
    dtype = DType.parse(dtype)
    assert got.dtype == dtype.numpy
    if dtype.is_float:
        tolerance = {DType.F32: 1e-5, DType.F16: 4e-3, DType.BF16: 3e-2}[dtype]
        np.testing.assert_allclose(widen(got, dtype), expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, expected)


# --- if ------------------------------------------------------------------------------------------------

VECTOR = ((3,), "f32")
FLAG = ((), "bool")


def branches(depth):
    """An ``if_`` of that many levels: each condition adds its own power of two, or halves."""

    def side(level, taken):
        def build(g, x, *flags):
            y = x + float(2**level) if taken else x * 0.5
            if not flags:
                return [y, y * 2.0]
            return g.if_(flags[0], side(level + 1, True), side(level + 1, False), y, *flags[1:])

        flags = [FLAG] * (depth - level)
        return subgraph(f"{taken} at {level}", build, VECTOR, *flags)

    g = rlx.Graph(f"{depth} branches")
    x = g.input("x", *VECTOR)
    flags = [g.input(f"f{index}", *FLAG) for index in range(depth + 1)]
    g.set_outputs(g.if_(flags[0], side(0, True), side(0, False), x, *flags[1:]))
    return g


@looped("depth", [0, 1, 2])
def test_nested_branches(depth, device, options):
    x = np.float32([1, -2, 3])
    g = branches(depth)
    with rlx.Session(device, options=options).compile(g) as compiled:
        for bits in range(2 ** (depth + 1)):
            flags = [bool(bits >> index & 1) for index in range(depth + 1)]
            y = x
            for level, taken in enumerate(flags):
                y = y + 2**level if taken else y * 0.5
            inputs = {"x": x, **{f"f{index}": np.array(f) for index, f in enumerate(flags)}}
            got = compiled.run(inputs)
            close(got[0], y)
            close(got[1], 2 * y)


@pytest.mark.parametrize("verify", [False, True])
def test_a_graph_on_both_sides_of_many_branches_is_compiled_once(device, monkeypatch, verify):
    """Two copies at each of fifteen levels would be 32,768."""
    monkeypatch.setenv("RLX_VERIFY", str(int(verify)))
    side = subgraph("innermost", lambda g, x: [x + 1.0], VECTOR)
    for level in range(15):
        side = subgraph(
            f"level {level}",
            lambda g, x, inner=side: [g.if_(g.sum(x) > 0.0, inner, inner, x)],
            VECTOR,
        )
    checked, verified = [], verifying._verify
    monkeypatch.setattr(verifying, "_verify", lambda *args: (checked.append(1), verified(*args)))
    hashed, hash_of = [], content._hash
    monkeypatch.setattr(content, "_hash", lambda *args: hashed.append(1) or hash_of(*args))
    g = rlx.Graph("deep")
    x = g.input("x", *VECTOR)
    g.set_outputs([g.if_(g.sum(x) > 0.0, side, side, x)])
    with rlx.compile(g, device) as compiled:
        close(compiled.run([1, 2, 3])[0], [2, 3, 4])
    assert len(checked) < 5000
    assert len(hashed) < 1000


@looped("dtype", ["f16", "bf16", "bool", "i8", "u8", "i64", "u32", "f64"])
def test_branches_of_every_dtype(dtype, device, options):
    """Operands come through as they are: also types that a device moves but does not compute."""
    first, second = ([1, 0, 1, 1, 0], [0, 0, 1, 0, 1])
    parsed = DType.parse(dtype)
    a, b = (store(np.array(v, np.float64), parsed) for v in (first, second))
    kind = ((5,), dtype)
    then = subgraph("then", lambda g, a, b: [a, g.concat([a, b], 0)], kind, kind)
    other = subgraph("else", lambda g, a, b: [b, g.concat([b, a], 0)], kind, kind)
    g = rlx.Graph()
    g.set_outputs(g.if_(g.input("c", *FLAG), then, other, g.input("a", *kind), g.input("b", *kind)))
    with rlx.Session(device, options=options).compile(g) as compiled:
        for c, pair in ((True, (a, b)), (False, (b, a))):
            got = compiled.run({"c": np.array(c), "a": a, "b": b})
            assert got[0].tobytes() == pair[0].tobytes()
            assert got[1].tobytes() == np.concatenate(pair).tobytes()


def test_a_branch_of_constants_and_of_an_operand_twice(device, options):
    then = subgraph("then", lambda g, x: [g.constant(np.float32([7, 8, 9])), x, x], VECTOR)
    other = subgraph("else", lambda g, x: [x, g.constant(np.zeros(3, "f4")), x + 1.0], VECTOR)
    g = rlx.Graph()
    x = g.input("x", *VECTOR)
    g.set_outputs(g.if_(g.sum(x) > 0.0, then, other, x))
    for sign in (1, -1):
        x = sign * np.float32([1, 2, 3])
        got = compile_and_run(g, device, options, {"x": x})
        expected = ([7, 8, 9], x, x) if sign > 0 else (x, [0, 0, 0], x + 1)
        for a, b in zip(got, expected, strict=True):
            close(a, b)


# --- while ---------------------------------------------------------------------------------------------

COUNT = ((), "i32")


def countdown(body, *state, max_trips=None):
    """A loop of as many trips as the input ``n`` says: ``body(g, *state)`` gives the new state."""
    below = subgraph("more", lambda g, n, *rest: [n > 0], COUNT, *state)
    step = subgraph("step", lambda g, n, *rest: [n - 1, *body(g, *rest)], COUNT, *state)
    g = rlx.Graph("countdown")
    operands = [g.input(f"s{index}", *kind) for index, kind in enumerate(state)]
    g.set_outputs(g.while_(below, step, g.input("n", *COUNT), *operands, max_trips=max_trips))
    return g


@looped("trips", [0, 1, 2, 5])
def test_a_loop_that_swaps_its_state(trips, device, options):
    g = countdown(lambda g, a, b, c: [b, c, a + b], VECTOR, VECTOR, VECTOR)
    a, b, c = (np.float32([value, value + 0.5, -value]) for value in (1, 2, 3))
    got = compile_and_run(g, device, options, {"n": np.int32(trips), "s0": a, "s1": b, "s2": c})
    for _ in range(trips):
        a, b, c = b, c, a + b
    assert got[0] == 0
    for item, expected in zip(got[1:], (a, b, c), strict=True):
        close(item, expected)


@looped(("trips", "most"), [(0, 0), (3, 0), (3, 2), (2, 3), (0, 5)])
def test_at_most_so_many_trips(trips, most, device, options):
    g = countdown(lambda g, x: [x * 2.0], VECTOR, max_trips=most)
    x = np.float32([1, 2, 3])
    n, y = compile_and_run(g, device, options, {"n": np.int32(trips), "s0": x})
    ran = min(trips, most)
    assert n == trips - ran
    close(y, x * 2**ran)


@looped("dtype", ["f16", "bf16", "bool", "i8", "i64"])
def test_loops_with_narrow_state(dtype, device, options):
    kind = ((5,), dtype)
    if dtype == "bool":
        g = countdown(lambda g, a, b: [g.logical_xor(a, b), a], kind, kind)
    else:
        g = countdown(lambda g, a, b: [a + b, a], kind, kind)
    parsed = DType.parse(dtype)
    a, b = (store(np.float64(v), parsed) for v in ([1, 0, 1, 1, 0], [0, 1, 1, 0, 1]))
    got = compile_and_run(g, device, options, {"n": np.int32(5), "s0": a, "s1": b})
    a, b = widen(a, parsed), widen(b, parsed)
    for _ in range(5):
        a, b = (a ^ b if dtype == "bool" else a + b), a
    close(got[1], a, dtype)
    close(got[2], b, dtype)


def collatz():
    """Trips of the Collatz sequence: a branch inside a loop whose length its values decide."""
    half = subgraph("half", lambda g, n: [n / 2], COUNT)
    triple = subgraph("triple", lambda g, n: [n * 3 + 1], COUNT)
    body = subgraph(
        "body", lambda g, n, k: [g.if_(g.eq(g.mod(n, 2), 0), half, triple, n), k + 1], COUNT, COUNT
    )
    more = subgraph("more", lambda g, n, k: [n > 1], COUNT, COUNT)
    g = rlx.Graph("collatz")
    g.set_outputs(g.while_(more, body, g.input("n", *COUNT), g.constant(0)))
    return g


def test_a_branch_in_a_loop(device, options):
    with rlx.Session(device, options=options).compile(collatz()) as compiled:
        for n, trips in ((27, 111), (1, 0), (6, 8)):
            assert [int(v) for v in compiled.run({"n": np.int32(n)})] == [1, trips]


def test_a_loop_in_a_loop(device, options):
    """The inner loop runs as often as the outer one's counter says: sums of 0 + 1 + ... + n - 1."""
    inner_more = subgraph("inner more", lambda g, k, x: [k > 0], COUNT, VECTOR)
    inner = subgraph("inner", lambda g, k, x: [k - 1, x + 1.0], COUNT, VECTOR)

    def body(g, n, x):
        _, grown = g.while_(inner_more, inner, n - 1, x)
        return [n - 1, grown]

    g = rlx.Graph()
    more = subgraph("more", lambda g, n, x: [n > 0], COUNT, VECTOR)
    outer = subgraph("outer", body, COUNT, VECTOR)
    g.set_outputs(g.while_(more, outer, g.input("n", *COUNT), g.input("x", *VECTOR)))
    x = np.float32([1, 2, 3])
    for n in (0, 1, 6):
        close(
            compile_and_run(g, device, options, {"n": np.int32(n), "x": x})[1], x + n * (n - 1) / 2
        )


# --- scan ----------------------------------------------------------------------------------------------


def scanned(body, carried, *types, reverse=False):
    g = rlx.Graph("scanned")
    operands = [g.input(f"x{index}", *kind) for index, kind in enumerate(types)]
    g.set_outputs(g.scan(body, carried, *operands, reverse=reverse))
    return g


@looped("reverse", [False, True])
@looped("length", [0, 1, 6])
def test_a_scan_that_swaps_its_state(length, reverse, device, options):
    body = subgraph("body", lambda g, a, b, x: [b, a + x, a, b * x], VECTOR, VECTOR, VECTOR)
    g = scanned(body, 2, VECTOR, VECTOR, ((length, 3), "f32"), reverse=reverse)
    rng = np.random.default_rng(length)
    a, b, xs = (rng.standard_normal(s).astype("f4") for s in ((3,), (3,), (length, 3)))
    got = compile_and_run(g, device, options, {"x0": a, "x1": b, "x2": xs})
    rows = {}
    for index in reversed(range(length)) if reverse else range(length):
        rows[index] = a, b * xs[index]
        a, b = b, a + xs[index]
    close(got[0], a)
    close(got[1], b)
    for part in range(2):
        expected = np.array([rows[index][part] for index in range(length)]).reshape(length, 3)
        close(got[2 + part], expected)


@looped("dtype", ["f16", "bf16", "bool", "i8", "u8", "i64"])
@looped("width", [1, 3, 5])
def test_scans_with_narrow_state(width, dtype, device, options):
    """Rows that begin in the middle of a word, written one by one."""
    kind, parsed = ((width,), dtype), DType.parse(dtype)
    combine = (lambda g, a, b: g.logical_xor(a, b)) if dtype == "bool" else lambda g, a, b: a + b
    body = subgraph("body", lambda g, s, x: [combine(g, s, x), s], kind, kind)
    g = scanned(body, 1, kind, ((4, width), dtype))
    rng = np.random.default_rng(width)
    start, xs = (store(np.float64(rng.integers(0, 2, s)), parsed) for s in ((width,), (4, width)))
    got = compile_and_run(g, device, options, {"x0": start, "x1": xs})
    state, rows = widen(start, parsed), []
    for x in widen(xs, parsed):
        rows.append(state)
        state = state ^ x if dtype == "bool" else state + x
    close(got[0], state, dtype)
    close(got[1], np.array(rows), dtype)


def test_a_scan_in_a_scan(device, options):
    """Row sums and running sums of a matrix, the inner loop along the columns."""
    inner = subgraph("inner", lambda g, s, x: [s + x, s + x], ((), "f32"), ((), "f32"))

    def body(g, total, row):
        last, running = g.scan(inner, 1, g.constant(0.0), row)
        return [total + last, last, running]

    outer = subgraph("outer", body, ((), "f32"), ((5,), "f32"))
    x = np.random.default_rng(0).standard_normal((4, 5)).astype("f4")
    g = scanned(outer, 1, ((), "f32"), ((4, 5), "f32"))
    total, lasts, running = compile_and_run(g, device, options, {"x0": np.float32(1), "x1": x})
    close(total, 1 + x.sum(dtype="f8"))
    close(lasts, x.sum(1, dtype="f8"))
    close(running, np.cumsum(x, 1, dtype="f8"))


def deep():
    """A scan whose step branches, one branch being a loop: all three in one another."""
    more = subgraph("more", lambda g, k, x: [k > 0], COUNT, VECTOR)
    double = subgraph("double", lambda g, k, x: [k - 1, x * 2.0], COUNT, VECTOR)
    grow = subgraph("grow", lambda g, k, x: [g.while_(more, double, k, x)[1]], COUNT, VECTOR)
    keep = subgraph("keep", lambda g, k, x: [g.neg(x)], COUNT, VECTOR)

    def body(g, x, k):
        y = g.if_(k > 0, grow, keep, k, x)
        return [y, y]

    return scanned(subgraph("body", body, VECTOR, COUNT), 1, VECTOR, ((6,), "i32"))


def test_all_three_nested(device, options):
    x, ks = np.float32([1, -2, 3]), np.int32([1, 0, 2, -1, 3, 0])
    last, rows = compile_and_run(deep(), device, options, {"x0": x, "x1": ks})
    for k, row in zip(ks, rows, strict=True):
        x = x * 2.0**k if k > 0 else -x
        close(row, x)
    close(last, x)


@pytest.mark.webgpu
def test_loops_of_unknown_length_run_on_the_host(webgpu):
    for g in (deep(), collatz()):
        with rlx.compile(g, webgpu) as compiled:
            assert any("number of trips" in text for text in compiled.host_fallbacks)
        with pytest.raises(rlx.UnsupportedOpError, match="number of trips"):
            rlx.compile(g, webgpu, options=CompileOptions(allow_host_fallback=False))
    with rlx.compile(branches(2), webgpu) as compiled:
        assert not compiled.host_fallbacks


# --- subgraphs that do not fit -------------------------------------------------------------------------


def same(*types):
    return subgraph("same", lambda g, *xs: list(xs), *types)


def truth(*types):
    return subgraph("truth", lambda g, *xs: [g.constant(True)], *types)


def with_param():
    return subgraph("weighted", lambda g, x: [x * g.param("w", (3,))], VECTOR)


WIDER = ((4,), "f32")
WRONG = {
    "not a graph": (lambda g, x, c: g.if_(c, same(VECTOR), 3, x), "expected: a rlx.Graph"),
    "if: operand": (lambda g, x, c: g.if_(c, same(WIDER), same(VECTOR), x), r"operands f32\[3\]"),
    "if: count": (lambda g, x, c: g.if_(c, same(VECTOR), same(VECTOR), x, x), "operands"),
    "if: results": (
        lambda g, x, c: g.if_(c, same(VECTOR), truth(VECTOR), x), "different results",
    ),
    "if: condition": (lambda g, x, c: g.if_(x, same(VECTOR), same(VECTOR), x), "a bool scalar"),
    "if: param": (lambda g, x, c: g.if_(c, with_param(), same(VECTOR), x), "1 params"),
    "while: condition": (
        lambda g, x, c: g.while_(same(VECTOR), same(VECTOR), x), "one output, a bool scalar",
    ),
    "while: state": (
        lambda g, x, c: g.while_(
            truth(VECTOR), subgraph("b", lambda g, x: [g.cast(x, "i32")], VECTOR), x
        ),
        "changes the types of the state",
    ),
    "while: trips": (
        lambda g, x, c: g.while_(truth(VECTOR), same(VECTOR), x, max_trips=-1), "max_trips",
    ),
    "scan: sequences": (lambda g, x, c: g.scan(same(VECTOR), 1, x), "sequences of one length"),
    "scan: scalar": (lambda g, x, c: g.scan(same(FLAG), 0, c), "sequences of one length"),
    "scan: row": (lambda g, x, c: g.scan(same(VECTOR), 0, x), r"operands f32\[\]"),
    "scan: carried": (lambda g, x, c: g.scan(same(VECTOR), 5, x), "5 carried"),
    "no outputs": (lambda g, x, c: g.if_(c, rlx.Graph("empty"), same(VECTOR), x), "output"),
}  # fmt: skip


@looped("fault", WRONG)
def test_subgraphs_that_do_not_fit(fault):
    build, says = WRONG[fault]
    g = rlx.Graph()
    x, c = g.input("x", *VECTOR), g.input("c", *FLAG)
    count = len(g.nodes)
    with pytest.raises(rlx.GraphError, match=says):
        build(g, x, c)
    assert len(g.nodes) == count


def test_nodes_of_another_graph_are_refused():
    g = rlx.Graph()
    x = g.input("x", *VECTOR)
    with pytest.raises(rlx.GraphError):
        subgraph("reaches out", lambda inner, y: [y + x], VECTOR)


# --- as text -------------------------------------------------------------------------------------------


@looped("make", [deep, collatz, lambda: branches(2)], ids=["deep", "collatz", "if"])
def test_json_round_trip_of_subgraphs(make, device):
    g = make()
    text = g.to_json()
    again = rlx.Graph.from_json(text)
    assert again.to_json() == text
    assert str(again) == str(g)
    rng = np.random.default_rng(0)
    inputs = {}
    for name in g.input_names:
        node = g.named(name)
        inputs[name] = store(np.abs(rng.standard_normal(node.shape)) * 3 + 1, node.dtype)
    with rlx.compile(g, device) as first, rlx.compile(again, device) as other:
        for a, b in zip(first.run(inputs), other.run(inputs), strict=True):
            np.testing.assert_array_equal(a, b)


def test_json_keeps_the_constants_of_subgraphs():
    """Every dtype, bit by bit, also NaN and what is empty."""
    stored = [
        store(np.array([1.5, 0, np.nan, -np.inf]), DType.parse(t)) for t in ("f32", "f16", "f64")
    ]
    stored += [np.array([[1, 2, 255]], np.uint8), np.array(2**62), np.zeros((0, 3), np.bool_)]
    bits = np.array([0x3FC0, 0x7FC1], np.uint16)

    def build(g, x):
        return [x, *(g.constant(array) for array in stored), g.constant(bits, "bf16")]

    g = rlx.Graph()
    same = subgraph("same", build, VECTOR)
    g.set_outputs(g.if_(g.input("c", *FLAG), same, same, g.input("x", *VECTOR)))
    again = rlx.Graph.from_json(g.to_json())
    with rlx.compile(again, "reference") as compiled:
        got = compiled.run({"c": np.array(True), "x": np.zeros(3, "f4")})[1:]
    for a, b in zip(got, [*stored, bits], strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def test_stacked_results_of_a_scan_keep_their_memory_from_trip_to_trip(device):
    """Read by another node, they are no outputs: what an earlier trip wrote must outlive the next."""
    body = rlx.Graph("step")
    state = body.input("state", (2, 4, 8, 8))
    row, other = body.input("row", (2, 4, 8)), body.input("other", (2, 4, 8))
    new = state + body.unsqueeze(row, (3,)) * body.unsqueeze(other, (2,))
    body.set_outputs([new, body.matmul(body.reshape(row, (2, 4, 1, 8)), new)])
    g = rlx.Graph()
    rows = [g.transpose(g.input(n, (2, 4, 5, 8)), (2, 0, 1, 3)) for n in ("rows", "others")]
    last, result = g.scan(body, 1, g.input("start", (2, 4, 8, 8)), *rows)
    g.set_outputs([g.transpose(result, (1, 2, 0, 3, 4)), last])
    rng = np.random.default_rng(3)
    inputs = {n: rng.standard_normal(g.named(n).shape).astype("f4") for n in g.input_names}
    want = rlx.compile(g, "reference").run(inputs)
    with rlx.compile(g, device) as compiled:
        for item, expected in zip(compiled.run(inputs), want, strict=True):
            # Sums of at most 40 products of numbers around 1.
            np.testing.assert_allclose(item, expected, rtol=1e-5, atol=1e-5)
