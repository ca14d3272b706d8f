"""Sizes, signs and kernels that the samples of the records leave out.

Faults that were planted there (tests/planted/README.md) were found by no other test.
"""

import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.by_program


def check(device, build, *operands, tolerance=0.0):
    """The results on a device against those of the reference."""
    g = rlx.Graph()
    dtypes = {"float32": "f32", "int32": "i32"}
    feeds = {f"x{index}": operand for index, operand in enumerate(operands)}
    inputs = [g.input(name, a.shape, dtypes[str(a.dtype)]) for name, a in feeds.items()]
    result = build(g, *inputs)
    g.set_outputs(result if isinstance(result, tuple | list) else [result])
    with rlx.compile(g, device) as compiled, rlx.compile(g, "reference") as exact:
        for got, expected in zip(compiled.run(feeds), exact.run(feeds), strict=True):
            np.testing.assert_allclose(got, expected, tolerance, tolerance)


def test_few_of_many(device, rng):
    """An odd number of elements: the last of the heap has a sibling."""
    x = rng.normal(size=(6, 200)).astype(np.float32)
    for k in (1, 2, 3, 5, 7, 8, 99, 100, 199):
        for largest in (True, False):
            check(device, lambda g, x, k=k, largest=largest: g.topk(x, k, largest=largest), x)


def test_remainders_of_either_sign(device):
    sides = np.arange(-9, 10)
    x, y = (a.reshape(-1) for a in np.meshgrid(sides, sides[sides != 0]))
    for dtype in (np.float32, np.int32):
        for name in ("mod", "fmod"):
            check(
                device,
                lambda g, x, y, name=name: getattr(g, name)(x, y),
                x.astype(dtype),
                y.astype(dtype),
            )


@pytest.mark.parametrize("kind", ["none", "causal", "sliding:70"])
def test_few_queries_of_no_whole_vectors(kind, device, rng):
    """Several blocks of keys, and a largest score that comes late."""
    q, k, v = (
        rng.normal(size=(2, 2, *item)).astype(np.float32) for item in ((3, 6), (200, 6), (200, 5))
    )
    k *= np.linspace(0.5, 3, 200, dtype=np.float32)[:, None]
    check(device, lambda g, *x: g.attention(*x, kind=kind), q, k, v, tolerance=2e-5)


@pytest.mark.webgpu
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_reductions_without_tiles(op, webgpu, monkeypatch, rng):
    """The rule takes this kernel for nothing to read alone."""
    monkeypatch.setenv("RLX_VARIANT", "reduce=plain")
    for shape, axis in (((3, 1000), 1), ((700, 9), 0), ((2, 70, 33), 1), ((5, 20000), 1)):
        x = rng.normal(size=shape).astype(np.float32)
        check(webgpu, lambda g, x, axis=axis: getattr(g, op)(x, axis), x, tolerance=1e-4)


@pytest.mark.webgpu
def test_regions_of_many_operands(webgpu, monkeypatch, rng):
    """A device with the default limits binds 8 buffers at a time, the result among them."""
    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
    operands = [rng.normal(size=(4, 33)).astype(np.float32) for _ in range(12)]
    check(webgpu, lambda g, *x: sum(x[1:], x[0]), *operands, tolerance=1e-5)
