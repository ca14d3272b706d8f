"""Kernels for matrix units: which are chosen and what they take, without a device; and their results, on adapters with such units."""

import os
import re

import numpy as np
import pytest
from dispatches import PER_DIMENSION
from shader_sizes import threads_of

import rlx
from rlx import flags
from rlx.backends.registered import backend
from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.rendering import lower
from rlx.backends.webgpu.trips import trips_of
from rlx.ir.fragments import ROUNDS, Fragment, fragment_limits, fragment_params
from rlx.ir.variants import Choices
from rlx.ops.attention.tiles import PREFILL
from rlx.ops.products.integer_tiles import INTEGER
from rlx.ops.products.tiles import FRAGMENTS, MATMUL
from rlx.ops.windows.tiles import CONV
from rlx.passes.memory_plan import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler

# What adapters tell of their matrix units: multiplications, bytes of workgroup memory, threads of a workgroup.
ADAPTERS = {
    "NVIDIA": ((16, 16, 16, 32), (16, 16, 32, 32), 49152, 1024),
    "Apple": ((8, 8, 8, 32), None, 32768, 1024),
    "Intel": ((8, 16, 16, 16), (8, 16, 32, 16), 32768, 1024),
    "Mesa": ((8, 8, 8, 8), (8, 8, 8, 8), 32768, 1024),
}
SIZE = re.compile(r"shared_memory: buffer<(\d+)>")


def limits_of(name):
    halves, integers, storage, threads = ADAPTERS[name]
    found = [Fragment("f16", "f32", *halves, halves[-1])]
    if integers is not None:
        found.append(Fragment("i8", "i32", *integers, integers[-1]))
    return {
        **DEFAULT_LIMITS,
        "max-compute-workgroup-storage-size": storage,
        "max-compute-invocations-per-workgroup": threads,
        **fragment_limits(found, ("subgroup-size-control",)),
        ROUNDS: 1,
    }


def dispatches(graph, limits, variant=""):
    """The dispatches of a graph under ``precision="f16"`` within some limits."""

    def specialise(one):
        return run_pipeline(one, lambda option: option != "fold", "webgpu-f16")

    fused, _ = specialise(graph)
    choices = Choices(tuple([tuple(variant.split("="))] if variant else ()))
    schedule = Scheduler(fused, "webgpu-f16", limits, specialise, choices).run()
    plan = plan_memory(schedule)
    return [one for one in (lower(call, PER_DIMENSION, plan) for call in schedule.calls) if one]


# --- graphs ----------------------------------------------------------------------------------------------


def product(  # noqa: PLR0913 - what a product may be
    m, k, n, batch=(), left=False, right=False, act=None, bias=False, dtype="f16"
):
    g = rlx.Graph()
    a = g.input("a", (*batch, *((k, m) if left else (m, k))), dtype)
    b = g.input("b", (*batch, *((n, k) if right else (k, n))), dtype)
    turn = (*range(len(batch)), len(batch) + 1, len(batch))
    y = (g.transpose(a, turn) if left else a) @ (g.transpose(b, turn) if right else b)
    if bias:
        y = y + g.input("bias", (n,), dtype)
    g.set_outputs([y if act is None else getattr(g, act)(y)])
    return g


def gated(m, k, n, bias=False):
    g = rlx.Graph()
    x, wg, wu = (g.input(*one, "f16") for one in (("x", (m, k)), ("g", (k, n)), ("u", (k, n))))
    biases = [g.input(name, (n,), "f16") for name in ("bg", "bu")] if bias else [0.0, 0.0]
    g.set_outputs([g.silu(x @ wg + biases[0]) * (x @ wu + biases[1])])
    return g


def joined(m, k, columns):
    g = rlx.Graph()
    x = g.input("x", (m, k), "f16")
    g.set_outputs([x @ g.param(f"w{at}", (k, n), "f16") for at, n in enumerate(columns)])
    return g


def integers(a, b, signs):
    g = rlx.Graph()
    g.set_outputs([g.matmul_integer(g.input("a", a, signs[0]), g.input("b", b, signs[1]))])
    return g


def attention(q, k, v, mask=None, dtype="f16", **attrs):
    g = rlx.Graph()
    operands = [g.input(name, shape, dtype) for name, shape in zip("qkv", (q, k, v), strict=True)]
    if mask is not None:
        operands.append(g.input("m", mask, "bool" if attrs["kind"] == "custom" else dtype))
    g.set_outputs([g.attention(*operands, **attrs)])
    return g


def convolution(x, w, bias=True, dtype="f16", **attrs):
    g = rlx.Graph()
    operands = [g.input("x", x, dtype), g.input("w", w, dtype)]
    if bias:
        operands.append(g.input("b", (w[0],), dtype))
    g.set_outputs([getattr(g, f"conv{len(x) - 2}d")(*operands, **attrs)])
    return g


def random_products(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        m, k, n = (int(rng.choice([rng.integers(17, 140), 8 * rng.integers(3, 18)])) for _ in "mkn")
        batch = ((), (3,), (2, 2))[rng.integers(3)]
        left, right = (bool(one) for one in rng.integers(0, 2, 2))
        act = (None, "relu", "gelu")[rng.integers(3)]
        bias = bool(rng.integers(2)) and not batch
        yield {
            "m": m,
            "k": k,
            "n": n,
            "batch": batch,
            "left": left,
            "right": right,
            "act": act,
            "bias": bias,
        }


PRODUCTS = list(random_products(26, 12))
ATTENTIONS = (
    (((1, 1, 40, 8),) * 3, {}),
    (((1, 2, 70, 64), (1, 2, 130, 64), (1, 2, 130, 64)), {"kind": "causal"}),
    (((2, 2, 17, 6), (2, 1, 70, 6), (2, 1, 70, 5)), {}),
    (((1, 2, 90, 40), (1, 2, 70, 40), (1, 2, 70, 72)), {"kind": "causal"}),
    (((1, 200, 64), (1, 200, 32), (1, 200, 32)), {"num_heads": 4, "num_kv_heads": 2, "kind": "sliding:50"}),
    (((2, 33, 2, 20), (2, 66, 2, 20), (2, 66, 2, 30)), {"layout": "bshd", "softcap": 2.0}),
    (((2, 2, 40, 8), (2, 2, 75, 8), (2, 2, 75, 8), (2, 75)), {"kind": "custom"}),
    (((2, 2, 40, 8), (2, 2, 75, 8), (2, 2, 75, 8), (2, 1, 40, 75)), {"kind": "bias"}),
    (((1, 2, 40, 16), (1, 2, 3, 16), (1, 2, 3, 16)), {"kind": "causal"}),
    (((1, 1, 33, 64), (1, 1, 200, 64), (1, 1, 200, 64)), {"scale": 3.0}),
)  # fmt: skip
CONVOLUTIONS = (
    ((1, 16, 9, 8), (16, 16, 3, 3), {"padding": 1}),
    ((2, 20, 9, 11), (33, 20, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 16, 9, 11), (18, 16, 1, 1), {"bias": False}),
    ((1, 40, 37), (24, 40, 5), {"padding": 2, "dilation": 2}),
    ((2, 32, 7, 6), (48, 16, 3, 2), {"groups": 2, "padding": (1, 0)}),
    ((1, 9, 5, 6, 7), (10, 9, 2, 3, 2), {"padding": 1}),
    ((1, 128, 4, 4), (16, 128, 3, 3), {"padding": 1}),
)
INTEGERS = (((40, 36), (36, 68)), ((3, 20, 132), (3, 132, 200)), ((33, 260), (260, 40)))
SIGNS = [(a, b) for a in ("i8", "u8") for b in ("i8", "u8")]


# --- without a device -----------------------------------------------------------------------------------


def test_the_largest_fragments_of_a_known_size_are_taken():
    found = [
        Fragment("f16", "f16", 16, 16, 16, 32, 32),
        Fragment("f16", "f32", 16, 8, 8, 32, 32),
        Fragment("f16", "f32", 16, 16, 16, 32, 32),
        Fragment("f16", "f32", 32, 32, 32, 8, 32),
    ]
    fixed = fragment_params(fragment_limits(found, ()))
    assert fixed == {"fm": 16, "fn": 16, "fk": 16, "lanes": 32, "sized": 0}
    # One whose subgroups may have several sizes can be used only where a kernel can ask for a size.
    asked = fragment_params(fragment_limits(found, ("subgroup-size-control",)))
    assert asked == {"fm": 32, "fn": 32, "fk": 32, "lanes": 32, "sized": 1}
    assert fragment_params(fragment_limits((), ())) == {}


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_kind_of_product_has_a_tile_on_every_adapter(name):
    limits = limits_of(name)
    graphs = [product(100, 64, 72), product(100, 64, 72, right=True), gated(70, 64, 72), joined(40, 64, (32, 48)),
              attention(*(((1, 2, 70, 64),) * 3)), convolution((1, 32, 20, 20), (48, 32, 3, 3), padding=1)]  # fmt: skip
    if ADAPTERS[name][1] is not None:
        graphs.append(integers((64, 64), (64, 64), ("u8", "i8")))
    for graph in graphs:
        text = "".join(one.source for one in dispatches(graph, limits))
        assert "subgroupMatrixMultiplyAccumulate" in text, graph.nodes[-1].op


@pytest.mark.parametrize("name", ADAPTERS)
def test_tiles_keep_to_what_an_adapter_has(name):
    limits = limits_of(name)
    graphs = [(product(**one), MATMUL) for one in PRODUCTS]
    graphs += [(gated(70, 65, 72, True), MATMUL), (joined(40, 66, (31, 48, 9)), MATMUL)]
    graphs += [(attention(*shapes, **attrs), PREFILL) for shapes, attrs in ATTENTIONS]
    graphs += [(convolution(x, w, **attrs), CONV) for x, w, attrs in CONVOLUTIONS]
    graphs += [(integers(*shapes, ("u8", "u8")), INTEGER) for shapes in INTEGERS]
    met = set()
    for graph, family in graphs:
        for variant in family.variants:
            if not variant.name.startswith("fragments"):
                continue
            for one in dispatches(graph, limits, f"{family.name}={variant.name}"):
                sizes = SIZE.findall(one.source)
                if sizes:
                    met.add((family.name, variant.name))
                    assert int(sizes[0]) <= limits["max-compute-workgroup-storage-size"], variant
                    assert threads_of(one.source) <= limits["max-compute-invocations-per-workgroup"]
                    assert trips_of(one.source).total < 65_535
    kinds = {"matmul", "attention", "conv"} | ({"matmul_integer"} if ADAPTERS[name][1] else set())
    assert {family for family, _ in met} == kinds


def test_f32_is_rounded_only_where_the_compile_asks_for_it():
    plain = rlx.Graph()
    plain.set_outputs([plain.input("a", (256, 256)) @ plain.input("b", (256, 256))])
    asked = limits_of("NVIDIA")
    for limits, units in ((asked, True), ({**asked, ROUNDS: 0}, False), (DEFAULT_LIMITS, False)):
        (one,) = dispatches(plain, limits)
        assert ("subgroupMatrix" in one.source) == units
    for one in dispatches(product(256, 256, 256), DEFAULT_LIMITS):
        assert "subgroupMatrix" not in one.source


def test_every_tile_of_products_fits_some_adapter():
    for variant in (*FRAGMENTS, *(v for v in CONV.variants if v.name.startswith("fragments"))):
        assert any(variant.fits(limits_of(name)) for name in ADAPTERS), variant


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(ATTENTIONS)))
def test_attention_of_halves_without_matrix_units(webgpu, at):
    shapes, attrs = ATTENTIONS[at]
    check_attention(webgpu, shapes, attrs, 2e-3)


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(CONVOLUTIONS)))
def test_convolution_of_halves_without_matrix_units(webgpu, at):
    check_convolution(webgpu, *CONVOLUTIONS[at])


# --- on adapters with matrix units ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def units():
    """A device with matrix units; without one the tests are left out, or fail where one is required."""
    for info in backend("dawn").devices():
        if info.fragments:
            return f"dawn:{info.index}"
    reason = "no adapter with matrix units: Mesa 26, through script/portable fragments, has one"
    if flags.REQUIRE_FRAGMENTS.get():
        pytest.fail(f"RLX_REQUIRE_FRAGMENTS is set: {reason}")
    pytest.skip(reason)


@pytest.fixture
def smallest(monkeypatch):
    """Makes small tiles: software takes minutes to compile large ones. GPUs take what their rules choose."""

    def force(device):
        if backend("dawn").devices()[int(device.partition(":")[2] or 0)].software:
            families = ("matmul", "matmul_integer", "conv")
            monkeypatch.setenv(
                "RLX_VARIANT", ",".join(f"{name}=fragments_tiny" for name in families)
            )

    return force


def on_units(device, graph, arrays, precision="f16"):
    compiled = rlx.Session(device, precision=precision).compile(graph)
    try:
        assert "subgroupMatrixMultiplyAccumulate" in compiled.as_text("kernels")
        return [np.array(one, np.float64) for one in compiled.run_slots(*arrays)]
    finally:
        compiled.close()


def draw(rng, shapes):
    return [rng.standard_normal(shape).astype(np.float16) for shape in shapes]


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(PRODUCTS)))
def test_products(units, smallest, rng, at):
    smallest(units)
    graph = product(**PRODUCTS[at])
    arrays = draw(rng, [node.shape for node in graph.nodes if node.op == "input"])
    wide = [array.astype(np.float32) for array in arrays]
    (found,), spec = on_units(units, graph, arrays), PRODUCTS[at]
    a, b = (
        np.swapaxes(x, -1, -2) if turned else x
        for x, turned in zip(wide[:2], (spec["left"], spec["right"]), strict=True)
    )
    # The product is rounded before the bias where the two are not one kernel.
    wanted = a @ b + (wide[2] if spec["bias"] else 0.0)
    if spec["act"] == "relu":
        wanted = np.maximum(wanted, 0)
    elif spec["act"] == "gelu":
        g = rlx.Graph()
        g.set_outputs([g.gelu(g.input("x", wanted.shape))])
        wanted = rlx.compile(g, "cpu").run_slots(wanted.astype(np.float32))[0]
    assert np.abs(found - wanted).max() <= 2e-3 * np.abs(a @ b).max()


@pytest.mark.webgpu
def test_gated_and_joined_products(units, smallest, rng, monkeypatch):
    smallest(units)
    monkeypatch.setenv(
        "RLX_VARIANT",
        os.environ.get("RLX_VARIANT", "").replace(
            "matmul=fragments_tiny", "matmul=fragments_tiny_paired"
        ),
    )
    arrays = draw(rng, [(40, 33), (33, 44), (33, 44), (44,), (44,)])
    (found,) = on_units(units, gated(40, 33, 44, True), arrays)
    x, wg, wu, bg, bu = (array.astype(np.float64) for array in arrays)
    gate = x @ wg + bg
    assert (
        np.abs(found - gate / (1 + np.exp(-gate)) * (x @ wu + bu)).max()
        <= 4e-3 * np.abs(found).max()
    )


@pytest.mark.webgpu
def test_several_weights_of_one_operand(units, smallest, rng):
    smallest(units)
    columns = (24, 40, 7)
    graph, arrays = joined(36, 48, columns), draw(rng, [(36, 48), *((48, n) for n in columns)])
    params = {f"w{at}": array for at, array in enumerate(arrays[1:])}
    compiled = rlx.Session(units, precision="f16").compile(graph, params)
    assert "subgroupMatrixMultiplyAccumulate" in compiled.as_text("kernels")
    for found, weight in zip(compiled.run_slots(arrays[0]), arrays[1:], strict=True):
        wanted = arrays[0].astype(np.float64) @ weight.astype(np.float64)
        assert np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max()
    compiled.close()


@pytest.mark.webgpu
@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("shapes", INTEGERS)
def test_products_of_bytes_are_exact(units, smallest, rng, shapes, signs):
    smallest(units)
    types = [np.int8 if sign == "i8" else np.uint8 for sign in signs]
    arrays = [
        rng.integers(np.iinfo(type).min, np.iinfo(type).max + 1, shape).astype(type)
        for type, shape in zip(types, shapes, strict=True)
    ]
    (found,) = on_units(units, integers(*shapes, signs), arrays, "f32")
    assert np.array_equal(found, np.matmul(*(array.astype(np.int32) for array in arrays)))


def check_attention(device, shapes, attrs, tolerance, fragments=False):
    rng = np.random.default_rng(5)
    masked = attrs.get("kind") == "custom"
    arrays = draw(rng, shapes[:3])
    if len(shapes) > 3:
        arrays.append(rng.random(shapes[3]) < 0.6 if masked else draw(rng, shapes[3:])[0])
    graph = attention(*shapes, **attrs)
    if fragments:
        (found,) = on_units(device, graph, arrays)
    else:
        found = rlx.Session(device, precision="f16").compile(graph).run_slots(*arrays)[0]
    wide = [x if x.dtype == bool else x.astype(np.float32) for x in arrays]
    (wanted,) = rlx.compile(attention(*shapes, dtype="f32", **attrs), "cpu").run_slots(*wide)
    assert np.abs(np.float64(found) - wanted).max() <= tolerance


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(ATTENTIONS)))
def test_attention(units, at):
    check_attention(units, *ATTENTIONS[at], 2e-3, fragments=True)


@pytest.mark.webgpu
def test_scores_that_grow_along_the_keys(units):
    # Every block of keys has larger scores than the one before: the sums are scaled each time.
    shape = (1, 1, 40, 16)
    graph, keys = attention(shape, (1, 1, 200, 16), (1, 1, 200, 16), scale=1.0), np.arange(200)
    q, k, v = (
        np.zeros(shape, np.float16),
        np.zeros((2, 1, 1, 200, 16), np.float16)[0],
        draw(np.random.default_rng(1), [(1, 1, 200, 16)])[0],
    )
    q[..., 0], k[..., 0] = 1, keys / 4
    (found,) = on_units(units, graph, [q, k, v])
    weights = np.exp(keys / 4 - keys.max() / 4)
    wanted = weights @ v[0, 0].astype(np.float64) / weights.sum()
    assert np.abs(found - wanted).max() <= 2e-3


def check_convolution(device, x, w, attrs, fragments=False):
    rng = np.random.default_rng(6)
    shapes = [x, w] + ([(w[0],)] if attrs.get("bias", True) else [])
    arrays = draw(rng, shapes)
    graph = convolution(x, w, **attrs)
    if fragments:
        (found,) = on_units(device, graph, arrays)
    else:
        found = rlx.Session(device, precision="f16").compile(graph).run_slots(*arrays)[0]
    wide = [array.astype(np.float32) for array in arrays]
    (wanted,) = rlx.compile(convolution(x, w, dtype="f32", **attrs), "cpu").run_slots(*wide)
    assert np.abs(np.float64(found) - wanted).max() <= 1e-3 * np.abs(wanted).max()


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(CONVOLUTIONS)))
def test_convolutions(units, smallest, at):
    smallest(units)
    check_convolution(units, *CONVOLUTIONS[at], fragments=True)


@pytest.mark.webgpu
def test_infinities_and_nan_pass(units, smallest):
    smallest(units)
    a = np.ones((20, 32), np.float16)
    b = np.ones((32, 24), np.float16)
    a[3, 5], a[4, 6], b[7, 2] = np.inf, np.nan, -np.inf
    (found,) = on_units(units, product(20, 32, 24), [a, b])
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(found[np.isfinite(wanted)], wanted[np.isfinite(wanted)])
    assert np.array_equal(np.isposinf(found), np.isposinf(wanted))


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(4))
def test_operands_of_f32_are_rounded_and_sums_are_not(units, smallest, rng, at):
    smallest(units)
    spec = {**PRODUCTS[at], "act": None, "bias": False, "dtype": "f32"}
    graph = product(**spec)
    arrays = [rng.standard_normal(n.shape, np.float32) for n in graph.nodes if n.op == "input"]
    (found,) = on_units(units, graph, arrays)
    rounded = [array.astype(np.float16).astype(np.float64) for array in arrays]
    turned = (spec["left"], spec["right"])
    a, b = (np.swapaxes(x, -1, -2) if t else x for x, t in zip(rounded, turned, strict=True))
    # Far closer to the product of rounded operands than f16 could tell.
    assert np.abs(found - a @ b).max() <= 1e-5 * np.abs(a @ b).max()


@pytest.mark.webgpu
@pytest.mark.parametrize("at", [1, 4, 7])
def test_attention_of_f32_on_matrix_units(units, at):
    shapes, attrs = ATTENTIONS[at]
    rng = np.random.default_rng(8)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = attention(*shapes, dtype="f32", **attrs)
    (found,) = on_units(units, graph, arrays)
    (wanted,) = rlx.compile(graph, "cpu").run_slots(*arrays)
    assert np.abs(found - wanted).max() <= 4e-3


@pytest.mark.webgpu
@pytest.mark.parametrize("at", [0, 3, 6])
def test_convolution_of_f32_on_matrix_units(units, smallest, at):
    smallest(units)
    x, w, attrs = CONVOLUTIONS[at]
    rng = np.random.default_rng(9)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (x, w, (w[0],))]
    graph = convolution(x, w, dtype="f32", **attrs)
    (found,) = on_units(units, graph, arrays)
    rounded = [array.astype(np.float16).astype(np.float32) for array in arrays[:2]]
    (wanted,) = rlx.compile(graph, "cpu").run_slots(*rounded, arrays[2])
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_a_known_weight_is_turned_once(rng):
    g = rlx.Graph()
    x, w = g.input("x", (1, 16, 9, 9), "f16"), g.param("w", (16, 16, 3, 3), "f16")
    g.set_outputs([g.conv2d(x, w, padding=1)])
    fused, _ = run_pipeline(g, lambda option: True, "webgpu-units")
    assert [node.op for node in fused.nodes if "conv" in node.op] == ["turned_conv2d"]
    # The order is that of taps, and the graph means the same.
    arrays = draw(rng, [(1, 16, 9, 9), (16, 16, 3, 3)])
    found = rlx.compile(fused, "reference", {"w": arrays[1]}).run_slots(arrays[0])[0]
    wanted = rlx.compile(g, "reference", {"w": arrays[1]}).run_slots(arrays[0])[0]
    assert np.array_equal(found, wanted)


@pytest.mark.webgpu
def test_convolutions_of_known_weights(units, smallest, rng):
    smallest(units)
    g = rlx.Graph()
    x, w = g.input("x", (2, 20, 9, 11), "f16"), g.param("w", (24, 20, 3, 3), "f16")
    g.set_outputs([g.conv2d(x, w, padding=1, stride=2)])
    arrays = draw(rng, [(2, 20, 9, 11), (24, 20, 3, 3)])
    compiled = rlx.Session(units, precision="f16").compile(g, {"w": arrays[1]})
    text = compiled.as_text("kernels")
    assert "subgroupMatrixMultiplyAccumulate" in text
    assert "strided_copy" not in text
    found = np.array(compiled.run_slots(arrays[0])[0], np.float64)
    wide = [array.astype(np.float32) for array in arrays]
    plain = convolution(
        (2, 20, 9, 11), (24, 20, 3, 3), bias=False, dtype="f32", padding=1, stride=2
    )
    (wanted,) = rlx.compile(plain, "cpu").run_slots(*wide)
    assert np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max()
    compiled.close()
