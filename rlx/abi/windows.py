"""Signatures of convolutions and pools (kernels/windows)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from rlx.abi.constants import (
    CONV_COLUMNS,
    LANE_MASK_BYTES,
    LONG_ACROSS,
    PANEL,
    PLANE_SLACK,
    POOL_STRIP,
    TEAM,
    VECTOR_ELEMENTS,
    WINOGRAD_POINTS,
    WINOGRAD_TILE,
)
from rlx.abi.products import ACTIVATION, PACKING
from rlx.abi.signature import (
    FLOATS,
    INT,
    INT3,
    INTS,
    LINKED,
    Group,
    Parallel,
    Scratch,
    Signature,
    choice,
)
from rlx.sizes import ceil_divide, smallest

# Multiplications of a block of tiles for each thread of a team at least. They take about 10 us.
_TASK_PRODUCTS = 1 << 19
# Windows over three axes: planes of the operand and of the result in groups, and sizes by axis.
WINDOW = Group(
    "rlx_window",
    {
        "batch": INT, "channels": INT, "outputs": INT, "groups": INT, "dims": INT3, "kernel": INT3, "out": INT3,
        "stride": INT3, "dilation": INT3, "before": INT3, "after": INT3,
    },
)  # fmt: skip

# The divisor of a pool's sums: 1, the elements inside, or those and the padding.
DIVISORS = ("no", "inside", "padded")

_OPERANDS = {"x": "T", "weight": "T", "bias": "T?", "residual": "T?"}
_EPILOGUE = {"act": ACTIVATION}
_PACKED = {"packing": PACKING, "packed_stride": LINKED}
# Results as columns of a wider matrix: its columns, 0 for those of the results alone, and the first that is written. There
# is no residual then.
_PLACED = {"apart": INT, "begin": INT}


def _padded(p: Any) -> Any:
    """Elements of the padded planes of a group, their rows apart by phase of the stride (window_layout in C)."""
    sizes = zip(p.out, p.stride, p.kernel, p.dilation, strict=True)
    reach = [
        (out - 1) * stride + (taps - 1) * dilation + 1 for out, stride, taps, dilation in sizes
    ]
    step = p.stride[2]
    plane = reach[0] * reach[1] * step * ceil_divide(reach[2], step) + PLANE_SLACK
    return p.channels // p.groups * plane + PLANE_SLACK


def _runs(p: Any) -> Any:
    """Elements of a run of zeros, and of the runs of a block of windows, where some may be copied."""
    copied = p.block * prod(p.kernel) * p.channels if p.joined > 1 else 0
    return p.joined * p.channels + 1 + copied


def _long(p: Any) -> Any:
    """Elements of two blocks, of the spectra of a group's channels, and of its filters."""
    channels = p.channels // p.groups
    return 2 * LONG_ACROSS * p.block * (2 + channels + channels * (p.outputs // p.groups))


def _points(block: int, elements: int) -> int:
    """Elements of the tiles of a block at all points, of so many channels or outputs."""
    row = ceil(elements / VECTOR_ELEMENTS) * VECTOR_ELEMENTS
    return WINOGRAD_POINTS * (block * row + VECTOR_ELEMENTS)


def tiles_of(batch: int, out: Sequence[int], dilation: Sequence[int]) -> int:
    """Tiles of a convolution with 3x3 filters, of all images.

    The results of a tile are as far apart as the elements of a dilated filter.
    """
    each = zip(out[1:], dilation[1:], strict=True)
    return batch * prod(ceil(n / (WINOGRAD_TILE * apart)) * apart for n, apart in each)


def _tile_blocks(p: Any) -> Any:
    """Blocks of tiles, which threads share where there are many."""
    return ceil_divide(tiles_of(p.batch, p.out, p.dilation), p.block)


def _tile_tasks(p: Any) -> Any:
    """Threads of a team that a block of tiles is worth. Each waits three times for the others."""
    products = WINOGRAD_POINTS * p.block * (p.channels // p.groups) * (p.outputs // p.groups)
    return smallest(TEAM, products // _TASK_PRODUCTS)


def _lane_masks(p: Any) -> Any:
    # Masks of two vectors, for every vector of 4 elements or more and every tap of a row.
    return 2 * ceil_divide(p.out[2], 4) * p.kernel[2] * LANE_MASK_BYTES // 2


def _phase(p: Any) -> int:
    """Elements of a line of a strip of windows that belong to one phase of the stride, at most."""
    reach = (min(p.out[2], POOL_STRIP) - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1
    phase: int = ceil(reach / p.stride[2])
    return phase


def _pool(name: str, doc: str, types: tuple[str, ...]) -> Signature:
    return Signature(
        name,
        doc,
        {"window": WINDOW, "divide": choice("DIVIDE", *DIVISORS)},
        {"x": "T"},
        {"y": "T"},
        {
            "lines": Scratch(
                "T",
                lambda p: (2 * p.stride[2] + 1) * (max(_phase(p), POOL_STRIP) + VECTOR_ELEMENTS),
            ),
            "places": Scratch("i64", lambda p: p.kernel[2] + 3 * p.out[1]),
            "counts": Scratch("T", lambda p: p.out[2] + VECTOR_ELEMENTS),
        },
        types,
        parallel=Parallel(),
    )


KERNELS = (
    Signature(
        "conv_last",
        "Windows whose channels lie next to each other times weights, an output in each lane.",
        {"window": WINDOW, "joined": INT, "block": INT, **_PLACED, **_PACKED, **_EPILOGUE},
        _OPERANDS,
        {"y": "T"},
        {
            "table": Scratch("i64", lambda p: p.block * prod(p.kernel) // p.joined),
            "work": Scratch("T", lambda p: p.block * CONV_COLUMNS + PANEL),
            "runs": Scratch("T", _runs),
        },
        FLOATS,
        parallel=Parallel(parts=4),
        flushes=True,
    ),
    Signature(
        "depthwise_last",
        "Groups of few channels and as many outputs, an output in each lane; channels lie next to each other.",
        {"window": WINDOW, **_PACKED, **_EPILOGUE},
        _OPERANDS,
        {"y": "T"},
        {
            "taps": Scratch("i64", lambda p: 2 * prod(p.kernel)),
            # A line of zeros.
            "zeros": Scratch("T", lambda p: p.dims[2] * p.channels),
            "weights": Scratch("T", lambda p: prod(p.kernel) * p.channels * (p.channels // p.groups)),
        },
        FLOATS,
        parallel=Parallel(parts=4),
        flushes=True,
    ),
    Signature(
        "winograd_last",
        "3x3 filters, windows next to each other: tiles of results by products of transformed tiles and weights.",
        {"window": WINDOW, "block": INT, **_PLACED, **_PACKED, **_EPILOGUE},
        {**_OPERANDS, "filters": "T"},
        {"y": "T"},
        {
            "elements": Scratch("T", lambda p: _points(p.block, p.channels // p.groups)),
            "products": Scratch("T", lambda p: _points(p.block, p.outputs // p.groups)),
        },
        ("f32",),
        # Large blocks that are fewer than threads are made by a team each.
        parallel=Parallel(parts=2, most=lambda p: p.groups * _tile_blocks(p), tasks=_tile_tasks),
        flushes=True,
    ),
    Signature(
        "winograd_filters",
        "3x3 filters at the points of tiles, which are packed: matrices of so many elements for each tap, then point.",
        {"groups": INT, "count": INT},
        {"taps": "T"},
        {"points": "T"},
        types=("f32",),
        alone="Threads share the weights of a graph: each packs some of them.",
    ),
    Signature(
        "round_windows",
        "Windows whose channels lie next to each other as rows in bf16, which products in tiles read.",
        {"window": WINDOW},
        {"x": "T"},
        {"rows": "u8"},
        {"row": Scratch("T", lambda p: ceil_divide(prod(p.kernel) * p.channels, 256) * 256)},
        ("f32",),
        parallel=Parallel(),
    ),
    Signature(
        "conv_direct",
        "Groups of few outputs: each tap added to a row of results.",
        {"window": WINDOW, **_EPILOGUE},
        _OPERANDS,
        {"y": "T"},
        {"planes": Scratch("T", _padded), "offsets": Scratch("i64", lambda p: prod(p.kernel))},
        FLOATS,
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "conv_depthwise",
        "One filter for each plane, whose windows are one or two columns apart.",
        {"window": WINDOW, **_EPILOGUE},
        _OPERANDS,
        {"y": "T"},
        {"zeros": Scratch("T", lambda p: p.dims[2]), "masks": Scratch("u8", _lane_masks)},
        ("f32",),
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "conv_transpose",
        "A transposed convolution; the window is that of the convolution that it transposes, seen from the result.",
        {"window": WINDOW, "block": INT, **_PACKED},
        {"x": "T", "weight": "T", "bias": "T?"},
        {"y": "T"},
        {
            "weights": Scratch("T", lambda p: max(p.outputs // p.groups * prod(p.kernel) * (p.channels // p.groups), 1)),
            "products": Scratch("T", lambda p: max(p.block * prod(p.kernel) * prod(p.out), 1)),
            "panel": Scratch("T", lambda p: PANEL),
        },
        FLOATS,
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "conv_long",
        "A long filter along one axis, by Fourier transforms of blocks of 16 * block samples.",
        {
            "window": WINDOW, **_EPILOGUE, "packing": PACKING, "block": INT, "twiddle_count": INT, "passes": INT,
            "radices": INTS,
        },
        {**_OPERANDS, "filters": "T", "twiddles": "T", "cross": "T", "small": "T"},
        {"y": "T"},
        {"blocks": Scratch("T", _long)},
        ("f32",),
        parallel=Parallel(),
        flushes=True,
    ),
    _pool("pool_max", "The maximum of each window; NaN is larger than any number.", (*FLOATS, "i32")),
    _pool("pool_sum", "The sum of each window, or its mean.", FLOATS),
)  # fmt: skip
