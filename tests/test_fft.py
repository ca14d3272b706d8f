"""The Fourier transform of large and awkward lengths, within the bound that its documentation gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.ops.spectra.fft_plans import LARGEST_RADIX, convolution_length, plan
from rlx.ops.spectra.fft_tiles import POINTS, FftProblem, halves, tile

pytestmark = pytest.mark.by_program

LARGE_LIMITS = {
    "max-compute-workgroup-storage-size": 49152,
    "max-compute-invocations-per-workgroup": 1024,
}

# Powers of two, primes, and what is between: Stockham passes of every radix, and Bluestein's convolution.
QUICK = (1 << 16, 65537)
LARGE = (
    1 << 17,
    1 << 20,
    3 << 18,
    99991,
    131071,
    1000003,
    3**12,
    5**8,
    7**6,
    11**5,
    13**5,
    100000,
    2 * 49999,
)
LENGTHS = [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in LARGE)]
DEVICES = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)], indirect=True
)


def bound(n):
    """The documented bound in f32."""
    return 4e-7 * math.log2(n) + 2e-7


def blocks(z):
    """Complex numbers in block layout."""
    return np.concatenate([z.real, z.imag], -1).astype(np.float32)


def complexes(x):
    """Block layout as complex numbers in double precision."""
    half = x.shape[-1] // 2
    return x[..., :half].astype(np.float64) + 1j * x[..., half:]


def graph(n, rows=1, **attrs):
    g = rlx.Graph(f"fft {n}")
    g.set_outputs([g.fft(g.input("x", (rows, 2 * n)), **attrs)])
    return g


def error(got, expected):
    return np.linalg.norm(complexes(got) - expected) / np.linalg.norm(expected)


@pytest.fixture
def limited(monkeypatch):
    """WebGPU with no more than the default limits."""
    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")


@DEVICES
@looped("inverse", [False, True], ids=["forward", "inverse"])
@looped("n", LENGTHS)
def test_noise(n, inverse, device, limited, rng):
    z = rng.standard_normal((1, n)) + 1j * rng.standard_normal((1, n))
    x = blocks(z)
    with rlx.compile(graph(n, inverse=inverse), device) as compiled:
        assert not compiled.host_fallbacks
        (got,) = compiled.run_slots(x)
        result = error(got, (np.fft.ifft if inverse else np.fft.fft)(complexes(x)))
    assert result <= bound(n), f"{result:.3g} > {bound(n):.3g}"


@DEVICES
@pytest.mark.parametrize("n", LENGTHS)
def test_there_and_back(n, device, limited, rng):
    x = blocks(rng.standard_normal((1, n)) + 1j * rng.standard_normal((1, n)))
    g = rlx.Graph()
    g.set_outputs([g.fft(g.fft(g.input("x", x.shape), norm="ortho"), inverse=True, norm="ortho")])
    with rlx.compile(g, device) as compiled:
        result = error(compiled.run_slots(x)[0], complexes(x))
    assert result <= 2 * bound(n), f"{result:.3g}"


@DEVICES
@pytest.mark.parametrize("n", LENGTHS)
def test_one_frequency(n, device, limited):
    """All energy in one bin: what leaks into the others is rounding, however far the bin is out."""
    position = n - n // 3
    phase = (np.arange(n) * position) % n
    x = blocks(np.exp(2j * np.pi * phase / n)[None])
    with rlx.compile(graph(n), device) as compiled:
        (got,) = compiled.run_slots(x)
        expected = np.zeros((1, n), np.complex128)
        expected[0, position] = n
        assert int(np.argmax(np.abs(complexes(got)))) == position
        # Storing the signal in f32 rounds it too.
        assert error(got, expected) <= bound(n) + 2.0**-24


@DEVICES
@pytest.mark.parametrize("n", QUICK)
def test_an_impulse_is_flat(n, device, limited):
    x = np.zeros((1, 2 * n), np.float32)
    x[0, 0] = 1
    with rlx.compile(graph(n), device) as compiled:
        (got,) = compiled.run_slots(x)
        assert error(got, np.ones((1, n))) <= bound(n)


@DEVICES
@looped(("n", "rows"), [(65536, 3), (65537, 2), (4099, 5), (14641, 3), (8192, 9)])
def test_rows_are_apart(n, rows, device, limited, rng):
    """Each of several rows has its own transform; one of NaN leaves the others alone."""
    z = rng.standard_normal((rows, n)) + 1j * rng.standard_normal((rows, n))
    x = blocks(z)
    x[1, 7] = np.nan
    with rlx.compile(graph(n, rows), device) as compiled:
        (got,) = compiled.run_slots(x)
        assert np.isnan(complexes(got[1])).all()
        for row in (r for r in range(rows) if r != 1):
            assert error(got[row : row + 1], np.fft.fft(complexes(x[row : row + 1]))) <= bound(n)


@pytest.mark.webgpu
@looped("limits", ["", "1"], ids=["own", "default"])
@looped("way", ["rows", "columns", "passes"])
@looped(("n", "rows"), [(1024, 5), (1000, 3), (484, 40), (2028, 2), (509, 3)])
@looped("inverse", [False, True])
def test_every_way(n, rows, way, limits, inverse, webgpu, monkeypatch, rng):
    """Each variant that can do a length gives the same, from one row or many, to and fro."""
    monkeypatch.setenv("RLX_VARIANT", f"fft={way}")
    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", limits)
    x = blocks(rng.standard_normal((rows, n)) + 1j * rng.standard_normal((rows, n)))
    with rlx.compile(graph(n, rows, inverse=inverse), webgpu) as compiled:
        result = compiled.as_text("schedule")
        (got,) = compiled.run_slots(x)
    assert error(got, (np.fft.ifft if inverse else np.fft.fft)(complexes(x))) <= bound(n)
    assert ("fft_pass" in result) == (way == "passes")
    if plan(n):
        assert result.count("= fft_tile") == {"rows": 1, "columns": 2, "passes": 0}[way]


@looped("n", [*range(1, 300), 360, 1000, 4096, 6561, 8192, 8640, 65536, 1 << 20])
def test_tiles_fit(n):
    """Passes make up the length, and a workgroup has room for its transforms."""
    for limits in ({}, LARGE_LIMITS):
        problem = FftProblem(7, n, limits)
        for item in (tile(n, 7, limits), *(halves(problem) or ())):
            if item is None:
                continue
            assert math.prod(item.radices) == item.n
            assert item.storage <= limits.get("max-compute-workgroup-storage-size", 16384)
            assert item.threads * item.count <= limits.get(
                "max-compute-invocations-per-workgroup", 256
            )
            # No thread has more than it has registers for.
            per_pass = (r * -(-(item.n // r) // item.threads) for r in item.radices)
            assert max(per_pass) <= 2 * POINTS
        if plan(n) and n <= 4096:
            assert tile(n, 7, limits) or halves(problem)


def test_the_lengths_take_both_ways():
    """These lengths cover every radix, and the convolution for what has a large prime factor."""
    radices = {r for n in (*QUICK, *LARGE) if (result := plan(n)) for r in result.radices}
    assert radices == {2, 3, 4, 5, 7, 11, 13}
    assert max(radices) == LARGEST_RADIX
    assert plan(65537) is None
    for n in (2, 3, 17, 65537, 1000003):
        m = convolution_length(n)
        assert m & (m - 1) == 0
        assert m >= 2 * n - 1
        assert m < 8 * n
