"""Results of the kernels for matrix units, on adapters that have some."""

import os

import half_graphs
import numpy as np
import pytest

import rlx
from rlx import flags
from rlx.backends.registry import backend


@pytest.fixture(scope="module")
def units():
    """A device with matrix units; without one the tests are left out, or fail where one is required."""
    for info in backend("dawn").devices():
        if info.fragments:
            return f"dawn:{info.index}"
    reason = "no adapter with matrix units: Mesa 26, which script/portable units installs beside this system, has one"
    if flags.REQUIRE_FRAGMENTS.get():
        pytest.fail(f"RLX_REQUIRE_FRAGMENTS is set: {reason}")
    pytest.skip(reason)


@pytest.fixture
def smallest(monkeypatch):
    """Makes small tiles: software takes minutes to compile large ones. GPUs take what their rules choose."""

    def force(device):
        if backend("dawn").devices()[int(device.partition(":")[2] or 0)].software:
            families = ("matmul", "matmul_integer", "grouped_matmul", "conv", "dequant")
            monkeypatch.setenv(
                "RLX_VARIANT", ",".join(f"{name}=fragments_tiny" for name in families)
            )

    return force


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(half_graphs.PRODUCTS)))
def test_products(units, smallest, rng, at):
    smallest(units)
    graph = half_graphs.product(**half_graphs.PRODUCTS[at])
    arrays = half_graphs.draw(rng, [node.shape for node in graph.nodes if node.op == "input"])
    wide = [array.astype(np.float32) for array in arrays]
    (result,), spec = half_graphs.on_units(units, graph, arrays), half_graphs.PRODUCTS[at]
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
    assert np.abs(result - wanted).max() <= 2e-3 * np.abs(a @ b).max()


@pytest.mark.webgpu
def test_gated_and_joined_products(units, smallest, rng, monkeypatch):
    smallest(units)
    few = os.environ.get("RLX_VARIANT", "")
    paired = few.replace("matmul=fragments_tiny", "matmul=fragments_tiny_paired")
    monkeypatch.setenv("RLX_VARIANT", paired)
    arrays = half_graphs.draw(rng, [(40, 33), (33, 44), (33, 44), (44,), (44,)])
    (result,) = half_graphs.on_units(units, half_graphs.gated(40, 33, 44, True), arrays)
    x, wg, wu, bg, bu = (array.astype(np.float64) for array in arrays)
    gate = x @ wg + bg
    wanted = gate / (1 + np.exp(-gate)) * (x @ wu + bu)
    assert np.abs(result - wanted).max() <= 4e-3 * np.abs(result).max()


@pytest.mark.webgpu
def test_several_weights_of_one_operand(units, smallest, rng):
    smallest(units)
    columns = (24, 40, 7)
    graph = half_graphs.joined(36, 48, columns)
    arrays = half_graphs.draw(rng, [(36, 48), *((48, n) for n in columns)])
    params = {f"w{index}": array for index, array in enumerate(arrays[1:])}
    compiled = rlx.Session(units, precision="f16").compile(graph, params)
    assert "subgroupMatrixMultiplyAccumulate" in compiled.as_text("kernels")
    for slot, weight in zip(compiled.run_slots(arrays[0]), arrays[1:], strict=True):
        wanted = arrays[0].astype(np.float64) @ weight.astype(np.float64)
        assert np.abs(slot - wanted).max() <= 1e-3 * np.abs(wanted).max()
    compiled.close()


@pytest.mark.webgpu
@pytest.mark.parametrize(("m", "k", "n", "experts", "dtype"), half_graphs.EXPERTS)
def test_rows_by_their_experts(units, smallest, rng, m, k, n, experts, dtype):
    smallest(units)
    x, w = half_graphs.draw(rng, [(m, k), (experts, k, n)])
    idx = rng.integers(0, experts - 1, m).astype(np.int32)
    arrays = [x.astype(dtype.replace("f", "float")), w.astype(dtype.replace("f", "float")), idx]
    (result,) = half_graphs.on_units(units, half_graphs.by_expert(m, k, n, experts, dtype), arrays)
    expected = np.einsum("mk,mkn->mn", x.astype(np.float64), w[idx].astype(np.float64))
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())


@pytest.mark.webgpu
@pytest.mark.parametrize("signs", half_graphs.SIGNS)
@pytest.mark.parametrize("shapes", half_graphs.INTEGERS)
def test_products_of_bytes_are_exact(units, smallest, rng, shapes, signs):
    smallest(units)
    types = [np.int8 if sign == "i8" else np.uint8 for sign in signs]
    arrays = [
        rng.integers(np.iinfo(type).min, np.iinfo(type).max + 1, shape).astype(type)
        for type, shape in zip(types, shapes, strict=True)
    ]
    (result,) = half_graphs.on_units(units, half_graphs.integers(*shapes, signs), arrays, "f32")
    assert np.array_equal(result, np.matmul(*(array.astype(np.int32) for array in arrays)))


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(half_graphs.ATTENTIONS)))
def test_attention(units, at):
    half_graphs.check_attention(units, *half_graphs.ATTENTIONS[at], 2e-3, fragments=True)


@pytest.mark.webgpu
def test_scores_that_grow_along_the_keys(units):
    # Every block of keys has larger scores than the one before: the sums are scaled each time.
    shape = (1, 1, 40, 16)
    graph = half_graphs.attention(shape, (1, 1, 200, 16), (1, 1, 200, 16), scale=1.0)
    keys = np.arange(200)
    q, k = np.zeros(shape, np.float16), np.zeros((1, 1, 200, 16), np.float16)
    (v,) = half_graphs.draw(np.random.default_rng(1), [(1, 1, 200, 16)])
    q[..., 0], k[..., 0] = 1, keys / 4
    (result,) = half_graphs.on_units(units, graph, [q, k, v])
    weights = np.exp(keys / 4 - keys.max() / 4)
    wanted = weights @ v[0, 0].astype(np.float64) / weights.sum()
    assert np.abs(result - wanted).max() <= 2e-3


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(half_graphs.CONVOLUTIONS)))
def test_convolutions(units, smallest, at):
    smallest(units)
    half_graphs.check_convolution(units, *half_graphs.CONVOLUTIONS[at], fragments=True)


@pytest.mark.webgpu
def test_infinities_and_nan_pass(units, smallest):
    smallest(units)
    a, b = np.ones((20, 32), np.float16), np.ones((32, 24), np.float16)
    a[3, 5], a[4, 6], b[7, 2] = np.inf, np.nan, -np.inf
    (result,) = half_graphs.on_units(units, half_graphs.product(20, 32, 24), [a, b])
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(np.isnan(result), np.isnan(wanted))
    assert np.array_equal(result[np.isfinite(wanted)], wanted[np.isfinite(wanted)])
    assert np.array_equal(np.isposinf(result), np.isposinf(wanted))


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(4))
def test_operands_of_f32_are_rounded_and_sums_are_not(units, smallest, rng, at):
    smallest(units)
    spec = {**half_graphs.PRODUCTS[at], "act": None, "bias": False, "dtype": "f32"}
    graph = half_graphs.product(**spec)
    arrays = [rng.standard_normal(n.shape, np.float32) for n in graph.nodes if n.op == "input"]
    (result,) = half_graphs.on_units(units, graph, arrays)
    rounded = [array.astype(np.float16).astype(np.float64) for array in arrays]
    turned = (spec["left"], spec["right"])
    a, b = (np.swapaxes(x, -1, -2) if t else x for x, t in zip(rounded, turned, strict=True))
    # Far closer to the product of rounded operands than f16 could tell.
    assert np.abs(result - a @ b).max() <= 1e-5 * np.abs(a @ b).max()


@pytest.mark.webgpu
@pytest.mark.parametrize("at", [1, 4, 7])
def test_attention_of_f32_on_matrix_units(units, at):
    shapes, attrs = half_graphs.ATTENTIONS[at]
    rng = np.random.default_rng(8)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = half_graphs.attention(*shapes, dtype="f32", **attrs)
    (result,) = half_graphs.on_units(units, graph, arrays)
    (wanted,) = rlx.compile(graph, "cpu").run_slots(*arrays)
    assert np.abs(result - wanted).max() <= 4e-3


@pytest.mark.webgpu
@pytest.mark.parametrize("at", [0, 3, 6])
def test_convolution_of_f32_on_matrix_units(units, smallest, at):
    smallest(units)
    x, w, attrs = half_graphs.CONVOLUTIONS[at]
    rng = np.random.default_rng(9)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (x, w, (w[0],))]
    graph = half_graphs.convolution(x, w, dtype="f32", **attrs)
    (result,) = half_graphs.on_units(units, graph, arrays)
    rounded = [array.astype(np.float16).astype(np.float32) for array in arrays[:2]]
    (wanted,) = rlx.compile(graph, "cpu").run_slots(*rounded, arrays[2])
    assert np.abs(result - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.webgpu
def test_convolutions_of_known_weights(units, smallest, rng):
    smallest(units)
    g = rlx.Graph()
    x, w = g.input("x", (2, 20, 9, 11), "f16"), g.param("w", (24, 20, 3, 3), "f16")
    g.set_outputs([g.conv2d(x, w, padding=1, stride=2)])
    arrays = half_graphs.draw(rng, [(2, 20, 9, 11), (24, 20, 3, 3)])
    compiled = rlx.Session(units, precision="f16").compile(g, {"w": arrays[1]})
    text = compiled.as_text("kernels")
    assert "subgroupMatrixMultiplyAccumulate" in text
    assert "strided_copy" not in text
    result = np.array(compiled.run_slots(arrays[0])[0], np.float64)
    wide = [array.astype(np.float32) for array in arrays]
    plain = half_graphs.convolution(
        (2, 20, 9, 11), (24, 20, 3, 3), bias=False, dtype="f32", padding=1, stride=2
    )
    (wanted,) = rlx.compile(plain, "cpu").run_slots(*wide)
    assert np.abs(result - wanted).max() <= 1e-3 * np.abs(wanted).max()
    compiled.close()


@pytest.mark.webgpu
@pytest.mark.parametrize("shape", [(33, 64), (40, 30), (24, 48)])
def test_one_value_in_two_shapes(units, smallest, rng, shape):
    smallest(units)
    g = rlx.Graph()
    x = g.input("x", shape, "f16")
    g.set_outputs([x @ g.reshape(x, shape[::-1])])
    (arguments,) = half_graphs.draw(rng, [shape])
    (result,) = half_graphs.on_units(units, g, [arguments])
    wanted = arguments.astype(np.float64) @ arguments.reshape(shape[::-1]).astype(np.float64)
    assert np.abs(result - wanted).max() <= 1e-3 * np.abs(wanted).max()


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(half_graphs.PACKED)))
def test_weights_in_blocks(units, smallest, at):
    smallest(units)
    graph, arrays = half_graphs.packed(*half_graphs.PACKED[at])
    (result,) = half_graphs.on_units(units, graph, arrays)
    (wanted,) = rlx.compile(graph, "cpu").run_slots(*arrays)
    assert np.abs(result - wanted).max() <= 2e-3 * np.abs(wanted).max()


@pytest.mark.webgpu
def test_fewer_images(units, smallest):
    smallest(units)
    half_graphs.check_fewer_images(units)


def test_weights_beyond_a_half_are_refused(units, smallest):
    smallest(units)
    g = rlx.Graph()
    g.set_outputs([g.input("x", (64, 64)) @ g.param("w", (64, 64))])
    with rlx.Session(units, precision="f16").compile(g) as compiled:
        with pytest.raises(rlx.InputError, match="f16 can't hold"):
            compiled.set_param("w", np.full((64, 64), 7e4, np.float32))
        compiled.set_param("w", np.eye(64, dtype=np.float32))
        x = np.ones((64, 64), np.float32)
        np.testing.assert_allclose(compiled.run({"x": x})[0], x)
