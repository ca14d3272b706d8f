"""Weights above what a kernel can bind are read in parts."""

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.device.names import info_of
from rlx.ops import quantize_blocks
from rlx.passes.large_weights import split_large

pytestmark = pytest.mark.by_program


def close(got, expected):
    np.testing.assert_allclose(got, expected, 1e-4, 1e-3)


def table_of(kind):
    """A graph that reads a weight of 300 to 800 kB, and its values."""
    rng, g = np.random.default_rng(5), rlx.Graph()
    ids = np.array([[0, -1, 3, 699], [-700, 344, 345, 620]], np.int32)
    x = g.input("x", (3, 320))
    feeds = {"x": rng.normal(size=(3, 320)).astype(np.float32)}
    if kind == "right":
        out = g.gelu(x @ g.param("w", (320, 501)) + 1.0)
    elif kind == "transposed":
        out = x @ g.transpose(g.param("w", (501, 320)), (1, 0))
    elif kind == "left":
        out = g.param("w", (501, 320)) @ g.transpose(x, (1, 0))
    elif kind == "batched":
        out = g.unsqueeze(x, 1) @ g.param("w", (3, 320, 130))
    elif kind == "constant":
        out = x @ g.expand(g.constant(rng.normal(size=(320, 1)).astype(np.float32)), (320, 501))
    elif kind.startswith("rows"):
        axis = int(kind[-1])
        out = g.gather(
            g.param("w", (150, 700) if axis else (700, 150)), g.input("ids", (2, 4), "i32"), axis
        )
        feeds["ids"] = ids
    else:
        packed = quantize_blocks(rng.normal(size=(700, 768)).astype(np.float32), "Q8_0")
        w = g.param("w", packed.shape, "u8")
        if kind == "packed rows":
            rows = g.input("ids", (2, 4), "i32")
            out = g.dequantize_blocks(w, "Q8_0", rows=rows)
            feeds["ids"] = np.abs(ids) % 700
        else:
            out = g.dequant_matmul(g.input("y", (2, 768)), w, "Q8_0")
            feeds["y"] = rng.normal(size=(2, 768)).astype(np.float32)
        feeds["w"] = packed
    g.set_outputs([out])
    inputs = {p.name: p.type for p in g.nodes if p.op == "param"}
    for name, type in inputs.items():
        feeds.setdefault(name, rng.normal(size=type.shape).astype(np.float32))
    return g, feeds


KINDS = [
    "right", "transposed", "left", "batched", "constant", "rows 0", "rows 1", "packed rows", "packed",
]  # fmt: skip


@looped("kind", KINDS)
def test_large_weights_are_read_in_parts(kind, device):
    g, feeds = table_of(kind)
    notes = []
    parts = split_large(g, 100_000, notes)
    assert len(notes) == 1
    assert notes[0].step == "split"
    wide = [node for node in parts.nodes if node.op in ("copy", "slice")]
    assert wide
    assert all(node.type.nbytes <= 100_000 for node in wide)
    params = {name: feeds.pop(name) for name in g.param_names}
    inputs = {name: feeds[name] for name in g.input_names}
    with rlx.compile(g, "reference", params) as whole, rlx.compile(parts, device, params) as split:
        for got, expected in zip(split.run(inputs), whole.run(inputs), strict=True):
            close(got, expected)


def test_small_weights_stay_whole():
    g, _ = table_of("right")
    notes = []
    assert split_large(g, 1_000_000, notes) is g
    assert not notes


@pytest.mark.webgpu
def test_a_weight_above_the_binding_limit_runs(webgpu):
    limit = info_of(rlx.Device.parse(webgpu)).limits["max-storage-buffer-binding-size"]
    if limit > 256 << 20:
        limit = 0  # this GPU needs no parts, and the test below runs on it all the same
    n = 4099
    k = max(limit // (4 * n) + 5, 64)
    g = rlx.Graph()
    x = g.input("x", (2, k))
    g.set_outputs(
        [x @ g.param("w", (k, n)), x @ g.expand(g.constant(np.ones((k, 1), "f4")), (k, n))]
    )
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, k)).astype("f4"), rng.normal(size=(k, n)).astype("f4")
    with rlx.compile(g, webgpu, {"w": values[1]}) as compiled:
        result, sums = compiled.run({"x": values[0]})
        assert ("split: " in compiled.as_text("fused")) == bool(limit)
    close(result, values[0] @ values[1])
    close(sums, np.repeat(values[0].sum(1, keepdims=True), n, 1))
