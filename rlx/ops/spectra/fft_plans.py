"""Plans and tables of Fourier transforms: Stockham passes of mixed radix, and Bluestein's convolution.

Lengths whose prime factors are at most ``LARGEST_RADIX`` run as Stockham passes of mixed radix
(Stockham 1966). Other lengths become a convolution of a power-of-two length (Bluestein 1970).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array
from rlx.resource_limits import charge

LARGEST_RADIX = 13
# Several rows are transformed side by side, one per vector lane. Fewer rows than this would leave lanes empty; longer
# rows would not stay in the second-level cache.
_FEWEST_ROWS, _LONGEST_LANES = 5, 2048


@dataclass(frozen=True)
class FftPlan:
    """The Stockham passes of one length.

    A pass of radix r at current length ``length`` (n, n/r1, n/(r1 r2), ...) and stride ``stride`` (1, r1, r1 r2, ...) reads
    ``x[q + stride * (p + i * length / r)]`` for i < r, takes a DFT of size r over i, multiplies entry j by
    ``exp(-2 pi i p j / length)`` and writes ``y[q + stride * (r * p + j)]``, for p < length / r and q < stride.

    Attributes:
        n: Length of the transform.
        radices: One per pass.
        offsets: Where the twiddle factors of each pass start in the table: entry
            ``offset + (j - 1) * length / r + p`` for j >= 1.
        count: Complex twiddle factors in all.
    """

    n: int
    radices: tuple[int, ...]
    offsets: tuple[int, ...]
    count: int

    def table(self, dtype: DType) -> Array:
        """Twiddle factors: ``count`` real parts, then ``count`` imaginary parts."""
        charge(f"[fft] the factors of length {self.n}", elements=self.count)
        parts, length = [np.zeros(0, np.complex128)], self.n
        for radix in self.radices:
            p = np.arange(length // radix)
            for j in range(1, radix):
                parts.append(np.exp(-2j * np.pi * ((p * j) % length) / length))
            length //= radix
        return _split(np.concatenate(parts), dtype)


@lru_cache(maxsize=256)
def plan(n: int) -> FftPlan | None:
    """The passes for length n; None when n has a prime factor above ``LARGEST_RADIX``."""
    radices, rest = [], n
    for radix in (4, 2, 3, 5, 7, 11, 13):
        while rest % radix == 0:
            radices.append(radix)
            rest //= radix
    if rest != 1:
        return None
    offsets, count, length = [], 0, n
    for radix in radices:
        offsets.append(count)
        count += (radix - 1) * (length // radix)
        length //= radix
    return FftPlan(n, tuple(radices), tuple(offsets), count)


def in_lanes(rows: int, n: int) -> bool:
    """Returns whether the CPU transforms several rows of length n at a time: they and their copies fit the cache."""
    return rows >= _FEWEST_ROWS and n <= _LONGEST_LANES and plan(n) is not None


def convolution_length(n: int) -> int:
    """Length of Bluestein's convolution: the power of two that holds 2n - 1 terms."""
    return 1 << (2 * n - 2).bit_length()


@lru_cache(maxsize=256)
def smooth_convolution_length(n: int) -> int:
    """The same on the CPU, where factors 3 and 5 are as quick: the least multiple of 64 of those."""
    least, limit = 2 * n - 1, convolution_length(n)
    odd = (3**b * 5**c for b in range(12) for c in range(8))
    return min(
        (m for m in (each * 64 << k for each in odd for k in range(30)) if least <= m <= limit),
        default=limit,
    )


def chirp_tables(n: int, dtype: DType, m: int = 0) -> tuple[Array, Array]:
    """Bluestein's chirp ``exp(-pi i k^2 / n)``, and the transform of its filter divided by m.

    The convolution has ``m`` points, at least 2n - 1; ``convolution_length`` by default.
    """
    m = m or convolution_length(n)
    charge(f"[fft] the factors of length {n}", elements=n + m)
    k = np.arange(n)
    # k^2 mod 2n is exact in integers, where k^2 * pi / n would lose digits.
    chirp = np.exp(-1j * np.pi * ((k * k) % (2 * n)) / n)
    taps = np.zeros(m, np.complex128)
    taps[:n] = chirp.conj()
    taps[m - n + 1 :] = chirp[1:][::-1].conj()
    return _split(chirp, dtype), _split(np.fft.fft(taps) / m, dtype)


def _split(z: Array, dtype: DType) -> Array:
    return np.concatenate([z.real, z.imag]).astype(dtype.numpy)
