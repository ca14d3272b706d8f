"""The discrete Fourier transform of any length: plans, tables and the ``fft`` record.

Lengths whose prime factors are at most ``LARGEST_RADIX`` run as Stockham passes of mixed radix
(Stockham 1966); others are turned into a convolution of a power-of-two length (Bluestein 1970).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rlx.errors import GraphError, ShapeError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.record import FLOAT_KERNELS, WEBGPU_FLOATS, op

LARGEST_RADIX = 13
NORMS = ("backward", "ortho", "forward")
_ROW_WORKGROUP = 256
_PASS_WORKGROUP = 256


@dataclass(frozen=True)
class Plan:
    """The Stockham passes of one length.

    A pass of radix r at current length ``length`` (n, n/r1, n/(r1 r2), ...) and stride ``stride``
    (1, r1, r1 r2, ...) reads ``x[q + stride * (p + i * length / r)]`` for i < r, takes a DFT of
    size r over i, multiplies entry j by ``exp(-2 pi i p j / length)`` and writes
    ``y[q + stride * (r * p + j)]``, for p < length / r and q < stride.

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
        parts, length = [np.zeros(0, np.complex128)], self.n
        for radix in self.radices:
            p = np.arange(length // radix)
            for j in range(1, radix):
                parts.append(np.exp(-2j * np.pi * ((p * j) % length) / length))
            length //= radix
        return _split(np.concatenate(parts), dtype)


@lru_cache(maxsize=256)
def plan(n: int) -> Plan | None:
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
    return Plan(n, tuple(radices), tuple(offsets), count)


def convolution_length(n: int) -> int:
    """Length of Bluestein's convolution: the power of two that holds 2n - 1 terms."""
    return 1 << (2 * n - 2).bit_length()


def chirp_tables(n: int, dtype: DType) -> tuple[Array, Array]:
    """Bluestein's chirp ``exp(-pi i k^2 / n)``, and the transform of its filter divided by m."""
    m = convolution_length(n)
    k = np.arange(n)
    # k^2 mod 2n is exact in integers, where k^2 * pi / n would lose digits.
    chirp = np.exp(-1j * np.pi * ((k * k) % (2 * n)) / n)
    taps = np.zeros(m, np.complex128)
    taps[:n] = chirp.conj()
    taps[m - n + 1 :] = chirp[1:][::-1].conj()
    return _split(chirp, dtype), _split(np.fft.fft(taps) / m, dtype)


def _split(z: Array, dtype: DType) -> Array:
    return np.concatenate([z.real, z.imag]).astype(dtype.numpy)


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    if not shape or shape[-1] % 2 or shape[-1] == 0:
        raise ShapeError(
            describe(
                "[fft] the last axis is not in block layout",
                got=shape,
                expected="[..., 2N]: N >= 1 real parts, then N imaginary parts",
                hint="g.concat([x, g.constant(zeros)], -1) for a real signal",
            )
        )
    if attrs["norm"] not in NORMS:
        raise GraphError(
            describe("[fft] no such norm", got=repr(attrs["norm"]), expected=", ".join(NORMS))
        )
    attrs["inverse"] = bool(attrs["inverse"])
    return types[0]


def _scale(n: int, inverse: bool, norm: str) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm == "backward") else 1.0


def _geometry(node: Node) -> tuple[int, int, float]:
    n = node.shape[-1] // 2
    return size(node.shape[:-1]), n, _scale(n, node.attrs["inverse"], node.attrs["norm"])


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    rows, n, scale = _geometry(node)
    if rows == 0:
        return
    direct = plan(n)
    m = 0 if direct else convolution_length(n)
    passes = direct or plan(m)
    assert passes is not None, "a power of two has a plan"
    tables = [passes.table(node.dtype), *(() if direct else chirp_tables(n, node.dtype))]
    scratch = emitter.temp(TensorType((2 * n if direct else 6 * m,), node.dtype))
    emitter.call(
        "fft",
        [emitter.operand(0), *(emitter.table(table) for table in tables)],
        [emitter.result(), scratch],
        {
            "rows": rows,
            "n": n,
            "m": m,
            "inverse": int(node.attrs["inverse"]),
            "scale": scale,
            "count": passes.count,
            "passes": len(passes.radices),
            "radices": passes.radices,
        },
    )


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    rows, n, scale = _geometry(node)
    if rows:
        inverse = int(node.attrs["inverse"])
        emit_fft(emitter, emitter.operand(0), emitter.result(), rows, n, inverse, scale)


def emit_fft(
    emitter: Emitter, source: Any, target: Any, rows: int, n: int, inverse: int, scale: float
) -> None:
    """``rows`` transforms of any length on WebGPU."""
    if plan(n) is not None:
        emit_passes(emitter, source, target, rows, n, inverse, scale)
        return
    m = convolution_length(n)
    chirp, taps = (emitter.table(table) for table in chirp_tables(n, DType.F32))
    a, b = (emitter.temp(TensorType((rows, 2 * m), DType.F32)) for _ in range(2))

    def stage(name: str, inputs: list[Any], output: Any, count: int) -> None:
        emitter.call(
            "fft_chirp",
            inputs,
            [output],
            {"stage": name, "rows": rows, "n": n, "m": m, "inverse": inverse, "scale": scale},
            math.ceil(rows * count / _PASS_WORKGROUP),
        )

    stage("spread", [source, chirp], a, m)
    emit_passes(emitter, a, b, rows, m, 0, 1.0)
    stage("filter", [b, taps], a, m)
    emit_passes(emitter, a, b, rows, m, 1, 1.0)
    stage("gather", [b, chirp], target, n)


def emit_passes(
    emitter: Emitter, source: Any, target: Any, rows: int, n: int, inverse: int, scale: float
) -> None:
    """The Stockham passes of ``rows`` transforms on WebGPU.

    In workgroup memory where two copies of a row fit, else one dispatch per pass.
    """
    passes = plan(n)
    assert passes is not None
    table = emitter.table(passes.table(DType.F32))
    common = {"rows": rows, "n": n, "count": passes.count, "inverse": inverse}
    if 16 * n <= emitter.limits["max-compute-workgroup-storage-size"]:
        per_group = max(1, min(rows, _ROW_WORKGROUP // n))
        emitter.call(
            "fft_rows",
            [source, table],
            [target],
            {
                **common,
                "scale": scale,
                "per_group": per_group,
                "radices": passes.radices,
                "offsets": passes.offsets,
            },
            math.ceil(rows / per_group),
        )
        return
    spare = emitter.temp(TensorType((rows, 2 * n), DType.F32))
    last, length, stride, current = len(passes.radices) - 1, n, 1, source
    for at, (radix, offset) in enumerate(zip(passes.radices, passes.offsets, strict=True)):
        # Alternates so that the last pass writes the target.
        output = target if (last - at) % 2 == 0 else spare
        emitter.call(
            "fft_pass",
            [current, table],
            [output],
            {
                **common,
                "radix": radix,
                "length": length,
                "stride": stride,
                "offset": offset,
                "first": int(at == 0),
                "last": int(at == last),
                "scale": scale if at == last else 1.0,
            },
            math.ceil(rows * (n // radix) / _PASS_WORKGROUP),
        )
        current, length, stride = output, length // radix, stride * radix


def error_bound(n: int, dtype: DType) -> float:
    """Largest ||out - ref|| / ||ref|| of a transform of length n."""
    ulp = 2.0**-29 if dtype is DType.F64 else 1.0
    # The half types are computed in f32; storing the result rounds it once more.
    rounding = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8}.get(dtype, 0.0)
    return (4e-7 * math.log2(n) + 2e-7) * ulp + rounding


_SIZES = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    11,
    13,
    16,
    17,
    60,
    97,
    128,
    256,
    360,
    1000,
    1009,
    2048,
    4096,
    6561,
)


@op(
    infer=_infer,
    flops=lambda node: (
        5.0 * size(node.shape) / 2 * max(1.0, math.log2(max(1, node.shape[-1] // 2)))
    ),
    cpu=Kernels(("fft",), _lower_cpu),
    webgpu=Kernels(("fft_rows", "fft_pass", "fft_chirp"), _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    webgpu_dtypes=WEBGPU_FLOATS,
    bound=lambda node: error_bound(node.shape[-1] // 2, node.dtype),
    samples=(
        *(Sample(((3, 2 * n),)) for n in _SIZES),
        *(Sample(((2, 2 * n),), {"inverse": True}) for n in (1, 5, 8, 17, 256, 4096)),
        *(
            Sample(((2, 30),), {"norm": norm, "inverse": inverse})
            for norm in ("ortho", "forward")
            for inverse in (False, True)
        ),
        Sample(((1, 2),)),
        Sample(((0, 16),)),
        Sample(((2, 0, 16),)),
        Sample(((700, 32),)),
        Sample(((512, 512),), bench=True),
    ),
)
def fft(x: Array, inverse: bool = False, norm: Any = "backward") -> Array:
    """1-D discrete Fourier transform over the last axis, any length N >= 1.

    Args:
        x: ``[..., 2N]`` in block layout: N real parts, then N imaginary parts.
        inverse: The inverse transform.
        norm: NumPy's: "backward" scales the inverse by 1/N, "ortho" both by 1/sqrt(N), "forward"
            the forward one by 1/N.

    Returns:
        The transform in the same layout. Error: ||out - ref|| / ||ref|| <= 4e-7 log2 N + 2e-7 in f32.
    """
    n = x.shape[-1] // 2
    z = x[..., :n] + 1j * x[..., n:]
    y = np.fft.ifft(z, norm=norm) if inverse else np.fft.fft(z, norm=norm)
    return np.concatenate([y.real, y.imag], -1)
