"""Every variant of the GPU kernels that work on windows: convolutions, pools, resizing."""

import numpy as np
import pytest

import rlx
from rlx.ir.variants import DEFAULTS
from rlx.ops.conv_tiles import CONV, LEAST_SHARE, MOST_STEPS, Problem, shares, steps

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


def convolution(x, w, attrs):
    g = rlx.Graph()
    shapes = {"x": x, "w": w, "b": w[:1]}
    g.set_outputs(
        [getattr(g, f"conv{len(x) - 2}d")(*(g.input(*one) for one in shapes.items()), **attrs)]
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
@pytest.mark.parametrize("variant", [v.name for v in CONV.variants])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_convolution_variant(variant, case, webgpu, monkeypatch, rng):
    monkeypatch.setenv("RLX_VARIANT", f"conv={variant}")
    text = check(*convolution(*case), webgpu, rng)
    tile = next(v.params for v in CONV.variants if v.name == variant)
    assert ("= conv(" if variant == "plain" else f"bm={tile['bm']} bn={tile['bn']}") in text


def test_the_rule_of_convolutions():
    def name(outputs, windows, length=576, groups=1, limits=DEFAULTS):
        legal = CONV.legal(Problem(outputs, windows, length, groups), limits)
        return CONV.rule(Problem(outputs, windows, length, groups), legal).name

    assert name(64, 32 * 56 * 56) == "large"
    assert name(32, 32 * 56 * 56) == "flat"
    assert name(256, 32 * 14 * 14, 2304) == "medium"
    assert name(64, 56 * 56) == "small"
    tight = {**DEFAULTS, "max-compute-workgroup-storage-size": 8192}
    assert name(64, 32 * 56 * 56, limits=tight) == "small"
    far = Problem(64, 100000, 576, 1, near=False)
    assert [v.name for v in CONV.legal(far, DEFAULTS)] == ["plain"]
    for variant in CONV.variants:
        assert variant.fits(DEFAULTS)


@pytest.mark.parametrize("kernel", [(1, 1, 1), (1, 3, 3), (1, 7, 7), (1, 1, 9), (3, 3, 3), (1, 1, 31),
                                    (1, 2, 80), (1, 5, 5), (2, 2, 2)])  # fmt: skip
@pytest.mark.parametrize("channels", [1, 3, 64, 301])
def test_shares_of_convolutions_cover_the_sums(kernel, channels):
    step = steps(kernel)
    length = channels * int(np.prod(kernel))
    assert kernel[2] % step.piece == 0
    assert 1 <= step.piece * step.lines <= MOST_STEPS
    for variant in CONV.variants:
        for windows in (1, 49, 3136):
            count, each = shares(Problem(64, windows, length, 1), variant, step)
            lines = length // step.piece
            assert (count - 1) * each < lines <= count * each
            assert each % step.lines == 0
            assert count == 1 or each * step.piece >= LEAST_SHARE // 2
