"""The discrete Fourier transform of any length: the ``fft`` record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from rlx.errors import GraphError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import estimated, size
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.spectra.fft_plans import chirp_tables, in_lanes, plan, smooth_convolution_length
from rlx.ops.spectra.fft_webgpu import KERNELS, Transforms, emit_fft
from rlx.sizes import pinned

Norm = Literal["backward", "ortho", "forward"]
NORMS: tuple[Norm, ...] = get_args(Norm)


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = types[0].shape
    if not shape or shape[-1] % 2 or shape[-1] == 0:
        raise ShapeError(
            "[fft] the last axis is not in block layout",
            got=shape,
            expected="[..., 2N]: N >= 1 real parts, then N imaginary parts",
            hint="g.concat([x, g.constant(zeros)], -1) for a real signal",
        )
    if attrs["norm"] not in NORMS:
        raise GraphError("[fft] no such norm", got=repr(attrs["norm"]), expected=", ".join(NORMS))
    attrs["inverse"] = bool(attrs["inverse"])
    return types[0]


def _scale(n: int, inverse: bool, norm: str) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse == (norm == "backward") else 1.0


def _geometry(node: Node) -> tuple[int, int, float]:
    n = pinned(node.shape[-1]) // 2
    return size(node.shape[:-1]), n, _scale(n, node.attrs["inverse"], node.attrs["norm"])


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    rows, n, scale = _geometry(node)
    direct = plan(n)
    m = 0 if direct else smooth_convolution_length(n)
    passes = direct or plan(m)
    assert passes is not None, "a product of 2, 3 and 5 has a plan"
    tables = [passes.table(node.dtype), *(() if direct else chirp_tables(n, node.dtype, m))]
    lanes = in_lanes(rows, n)
    emitter.call(
        "fft",
        [emitter.operand(0), *(emitter.table(table) for table in tables)],
        [emitter.result()],
        {
            "rows": rows,
            "n": n,
            "m": m,
            "inverse": int(node.attrs["inverse"]),
            "scale": scale,
            "twiddle_count": passes.count,
            "lanes": int(lanes),
            "passes": len(passes.radices),
            "radices": passes.radices,
        },
    )


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    rows, n, scale = _geometry(node)
    transforms = Transforms(rows, n, bool(node.attrs["inverse"]), scale)
    emit_fft(emitter, emitter.operand(0), emitter.result(), transforms)


def error_bound(n: int, dtype: DType) -> float:
    """Largest ||out - ref|| / ||ref|| of a transform of length n."""
    ulp = 2.0**-29 if dtype is DType.F64 else 1.0
    # The half types are computed in f32; storing the result rounds it once more.
    rounding = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8}.get(dtype, 0.0)
    return (4e-7 * math.log2(n) + 2e-7) * ulp + rounding


_SIZES = (*range(1, 9), 11, 13, 16, 17, 60, 97, 128, 256, 360, 1000, 1009, 2048, 4096, 6561)


@op(
    infer=_infer,
    flops=lambda node: (
        5.0 * size(node.shape) / 2 * max(1.0, math.log2(max(1, estimated(node.shape[-1]) // 2)))
    ),
    cpu=Kernels(("fft",), _lower_cpu),
    webgpu=Kernels(KERNELS, _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    bound=lambda node: error_bound(node.shape[-1] // 2, node.dtype),
    samples=lambda: (
        *(Sample(((3, 2 * n),)) for n in _SIZES),
        # Several rows at a time: whole groups of them and what is left.
        *(Sample(((37, 2 * n),)) for n in (1, 6, 16, 35, 45, 77, 143, 200, 400, 1000)),
        *(Sample(((5, 2 * n),), {"inverse": True, "norm": "ortho"}) for n in (30, 64)),
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
def fft(x: Array, inverse: bool = False, norm: Norm = "backward") -> Array:
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
