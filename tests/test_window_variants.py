"""Every variant of the GPU kernels that work on windows: convolutions, pools, resizing."""

import numpy as np
import pytest
from samples import looped, without_units

import rlx
from rlx.ir.variants import DEFAULTS
from rlx.ops.resize.plane import RESIZE
from rlx.ops.resize.taps import pattern, taps
from rlx.ops.windows import strips
from rlx.ops.windows.tiles import CONV, LEAST_PARTITION, MAX_STEPS, ConvProblem, partitions, steps

# x, w, attributes.
CONVOLUTIONS = (
    ((2, 16, 9, 12), (40, 16, 3, 3), {"padding": 1}),
    ((3, 5, 11, 10), (33, 5, 3, 3), {"padding": 1, "stride": 2}),
    ((1, 3, 21, 23), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((2, 48, 6, 6), (70, 48, 1, 1), {}),
    ((3, 21, 7, 7), (65, 21, 1, 1), {}),
    ((2, 32, 8, 8), (16, 32, 1, 1), {"stride": 2}),
    ((2, 12, 10, 9), (24, 6, 2, 5), {"groups": 2, "padding": ((2, 0), (1, 3)), "dilation": 2}),
    ((2, 64, 41), (34, 64, 9), {"padding": 4}),
    ((1, 7, 130), (12, 7, 31), {"padding": ((15, 0),)}),
    ((1, 6, 4, 7, 9), (20, 6, 3, 3, 3), {"padding": 1}),
    ((1, 300, 4, 5), (30, 300, 3, 3), {"padding": 1}),
)

# The same for groups of few outputs.
DEPTHWISE = (
    ((2, 6, 9, 12), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((2, 6, 10, 11), (6, 1, 3, 3), {"padding": ((0, 2), (2, 1)), "groups": 6, "stride": 2}),
    ((1, 8, 17, 16), (8, 1, 5, 5), {"padding": 2, "groups": 8, "stride": (1, 2)}),
    ((2, 4, 12, 20), (8, 1, 3, 4), {"groups": 4, "dilation": (2, 3), "padding": 2}),
    ((2, 6, 8, 8), (3, 6, 3, 3), {"padding": 1}),
    ((1, 4, 5, 9, 8), (4, 1, 3, 3, 3), {"padding": 1, "groups": 4}),
    ((2, 5, 64), (5, 1, 31), {"padding": 15, "groups": 5}),
)
# x, attributes.
POOLS = (
    ((2, 3, 12, 16), {"kernel": 3, "stride": 2, "padding": 1}),
    ((2, 3, 13, 11), {"kernel": 2}),
    ((1, 4, 9, 10), {"kernel": (3, 2), "stride": 1, "padding": (1, 0)}),
    ((1, 2, 12, 21), {"kernel": 3, "stride": 2, "dilation": (2, 3), "padding": 2}),
    ((1, 3, 9, 15), {"kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ((1, 2, 6, 8, 12), {"kernel": 3, "stride": (1, 1, 2), "padding": 1}),
    ((2, 3, 50), {"kernel": 7, "stride": 3}),
)


def convolution(x, w, attrs):
    g = rlx.Graph()
    shapes = {"x": x, "w": w, "b": w[:1]}
    g.set_outputs(
        [getattr(g, f"conv{len(x) - 2}d")(*(g.input(*item) for item in shapes.items()), **attrs)]
    )
    return g, shapes


def check(g, shapes, device, rng, least=3e-6):
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    with rlx.compile(g, device) as compiled, rlx.compile(g, "reference") as exact:
        for got, expected in zip(compiled.run(feeds), exact.run(feeds), strict=True):
            assert got.shape == expected.shape
            assert np.linalg.norm(got - expected) <= least * np.linalg.norm(expected)
        return compiled.as_text("schedule")


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in without_units(CONV)])
@looped("case", CONVOLUTIONS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_convolution_variant(variant, case, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"conv={variant}")
    text = check(*convolution(*case), webgpu, rng)
    tile = next(v.params for v in CONV.variants if v.name == variant)
    assert ("= conv(" if variant == "plain" else f"bm={tile['bm']} bn={tile['bn']}") in text


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in strips.DIRECT.variants])
@looped("case", DEPTHWISE, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_variant_of_few_outputs(variant, case, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"conv_direct={variant}")
    text = check(*convolution(*case), webgpu, rng)
    assert ("conv_direct(" if variant == "plain" else "conv_strips(") in text


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in strips.POOL.variants])
@looped("case", POOLS, ids=str)
def test_every_pool_variant(variant, case, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"pool={variant}")
    x = rng.normal(size=case[0]).astype(np.float32)
    x.flat[5], x.flat[31], x.flat[60] = np.nan, np.inf, -np.inf
    g = rlx.Graph()
    node = g.input("x", case[0])
    pooled = [g.max_pool(node, **case[1])]
    pooled += [g.avg_pool(node, count_include_pad=padded, **case[1]) for padded in (False, True)]
    g.set_outputs(pooled)
    with rlx.compile(g, webgpu) as compiled, rlx.compile(g, "reference") as exact:
        for got, expected in zip(compiled.run({"x": x}), exact.run({"x": x}), strict=True):
            np.testing.assert_allclose(got, expected, 1e-5, 1e-6)
        text = compiled.as_text("schedule")
    assert ("= pool(" if variant == "plain" else "pool_strips(") in text


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("variant", [v.name for v in RESIZE.variants])
@looped("mode", ["nearest", "linear", "cubic"])
@looped("size", [(64, 40), (16, 80), (18, 33), (96, 40)])
def test_every_resize_variant(variant, mode, size, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"resize={variant}")
    g = rlx.Graph()
    coordinates = "asymmetric" if size == (64, 40) else "half_pixel"
    g.set_outputs([g.resize(g.input("x", (2, 32, 20)), (2, *size), mode, coordinates=coordinates)])
    x = rng.normal(size=(2, 32, 20)).astype(np.float32)
    # Elements under a tap of weight 0 are not read.
    x[1, 7, 9] = np.inf
    with rlx.compile(g, webgpu) as compiled, rlx.compile(g, "reference") as exact:
        got, expected = compiled.run({"x": x})[0], exact.run({"x": x})[0]
        text = compiled.as_text("schedule")
    np.testing.assert_allclose(got, expected, 2e-5, 2e-5)
    steady = variant == "pattern" and size in ((64, 40), (16, 80))
    assert ("interpolate_plane(" in text) == steady


def test_patterns_of_taps():
    def pattern_of(n, count, mode="linear", coordinates="half_pixel", **more):
        result = taps(
            n, count, count / n, mode, coordinates, "floor", -0.75, False, (0.0, 1.0), False
        )
        return pattern(*result, n)

    assert pattern_of(16, 32) == (
        2,
        (-1, 0, 1, 2),
        (
            ((0, 0.25), (1, 0.75)),
            ((1, 0.75), (2, 0.25)),
            ((1, 0.25), (2, 0.75)),
            ((2, 0.75), (3, 0.25)),
        ),
    )
    assert pattern_of(16, 32, coordinates="asymmetric").taps[0] == ((0, 1.0),)
    assert pattern_of(16, 8, "nearest").step == 8
    assert pattern_of(16, 33) is None
    assert pattern_of(16, 48, coordinates="align_corners") is None
    assert pattern_of(2, 4) is None


def test_the_rule_of_strips():
    def name(planes, out, kernel=(1, 3, 3), stride=(1, 1, 1)):
        problem = strips.StripProblem(planes, out, kernel, stride, (1, 1, 1))
        return strips.DIRECT.rule(problem, strips.DIRECT.legal(problem, DEFAULTS)).name

    assert name(8192, (1, 56, 56)) == "block"
    assert name(8192, (1, 56, 56), stride=(1, 2, 2)) == "strip"
    assert name(64, (1, 56, 56)) == "strip"
    assert name(8192, (1, 1, 500), (1, 1, 31)) == "strip"
    assert name(8192, (1, 56, 56), (1, 40, 40)) == "plain"


def test_the_rule_of_convolutions():
    def name(outputs, windows, length=576, groups=1, limits=DEFAULTS):
        legal = CONV.legal(ConvProblem(outputs, windows, length, groups), limits)
        return CONV.rule(ConvProblem(outputs, windows, length, groups), legal).name

    assert name(64, 32 * 56 * 56) == "large"
    assert name(32, 32 * 56 * 56) == "flat"
    assert name(96, 32 * 56 * 56) == "flat"
    assert name(128, 32 * 56 * 56) == "large"
    assert name(256, 32 * 14 * 14, 2304) == "large"  # its sums can be split
    assert name(128, 7500, 64) == "medium"
    assert name(64, 56 * 56) == "small"
    tight = {**DEFAULTS, "max-compute-workgroup-storage-size": 8192}
    assert name(64, 32 * 56 * 56, limits=tight) == "small"
    far = ConvProblem(64, 100000, 576, 1, near=False)
    assert [v.name for v in CONV.legal(far, DEFAULTS)] == ["plain"]
    for variant in without_units(CONV):
        assert variant.fits(DEFAULTS)


@looped("kernel", [(1, 1, 1), (1, 3, 3), (1, 7, 7), (1, 1, 9), (3, 3, 3), (1, 1, 31),
                                    (1, 2, 80), (1, 5, 5), (2, 2, 2)])  # fmt: skip
@looped("channels", [1, 3, 64, 301])
def test_partitions_of_convolutions_cover_the_sums(kernel, channels):
    step = steps(kernel)
    length = channels * int(np.prod(kernel))
    assert kernel[2] % step.piece == 0
    assert 1 <= step.piece * step.lines <= MAX_STEPS
    for variant in without_units(CONV):
        for windows in (1, 49, 3136):
            count, taken = partitions(ConvProblem(64, windows, length, 1), variant, step)
            lines = length // step.piece
            assert (count - 1) * taken < lines <= count * taken
            assert taken % step.lines == 0
            assert count == 1 or taken * step.piece >= LEAST_PARTITION // 2


@pytest.mark.webgpu
def test_fewer_images_than_were_compiled(webgpu, rng):
    """The first workgroups make the first images, whatever the kernel."""
    g = rlx.Graph()
    x = g.input("x", (24, 8, 12, 16))
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((40, 8, 3, 3), (8, 1, 3, 3))]
    dense = g.conv2d(x, g.constant(weights[0]), padding=1)
    apart = g.conv2d(x, g.constant(weights[1]), padding=1, groups=8)
    g.set_outputs(
        [dense, apart, g.max_pool(x, 3, 2, padding=1), g.resize(x, (24, 8, 24, 32), "linear")]
    )
    values = rng.normal(size=(24, 8, 12, 16)).astype(np.float32)
    with rlx.compile(g, webgpu) as compiled:
        text = compiled.as_text("schedule")
        for kernel in ("conv_tiles", "conv_strips", "pool_strips"):
            assert kernel in text
        whole = [y.copy() for y in compiled.run({"x": values})]
        compiled.set_active_extent((7, 24))
        for got, expected in zip(compiled.run({"x": values}), whole, strict=True):
            np.testing.assert_array_equal(got[:7], expected[:7])
