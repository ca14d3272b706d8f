"""Packs weights in the order in which the kernels of products read them, for the variant that the processor runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rlx._ext import cpu as compiled
from rlx._ext.cpu import variants
from rlx.abi.constants import LONG_ACROSS
from rlx.abi.products import SCHEMES
from rlx.abi.recurrent import CELLS
from rlx.backends.cpu.layouts import (
    BlockPanels,
    BytePairs,
    BytePanels,
    Gates,
    Layout,
    Panels,
    TapPanels,
    Transposed,
)
from rlx.backends.cpu.transformed import Spectra, TileFilters
from rlx.backends.cpu.weights import Weight, Weights
from rlx.backends.executable import sharing_now
from rlx.ir.dtype import HALVES
from rlx.ir.plan import KernelCall, Schedule, Value
from rlx.ir.shape import size


def variant_of(kernel: str, isa: str) -> str:
    """Returns the variant of an instruction set's kernel for this processor; "" without one.

    Args:
        kernel: Its name without the variant.
        isa: The instruction set.
    """
    kernels = compiled.kernels(isa)
    return next((each for each in variants(isa) if f"{kernel}_{each}" in kernels), "")


# Kinds of values that have memory of their own, which clones share.
FIXED = ("param", "constant")
# Elements of a weight below which packing gains nothing where kernels read it as fast as it is. What they would
# widen, transpose or rearrange in every call is always packed.
_LEAST = 1024
# Vectors of a panel of a recurrence's weights, or of those in pairs (kernels/recurrent/recurrent.h, products/rounded.h).
_VECTORS = 4


def _widths(isa: str, itemsize: int) -> tuple[int, int]:
    """Columns of a panel, and elements of a vector, of so many bytes each."""
    width, vectors = compiled.panel(isa)
    return vectors * width // itemsize, width // itemsize


def _matrices(call: KernelCall) -> int:
    """Returns the number of matrices in the weight of a product; 0 for a weight that can't be packed."""
    weight, each = call.inputs[1], call.params["k"] * call.params["n"]
    assert weight is not None
    return 0 if not each or weight.type.size % each else weight.type.size // each


def _matmul(call: KernelCall, isa: str) -> dict[int, Layout]:
    p, weight, count = call.params, call.inputs[1], _matrices(call)
    if not count or weight is None:
        return {}
    # One column of numbers of the kernel's own type is read as it is.
    if p["n"] == 1 and weight.type.dtype not in HALVES:
        return {}
    dtype, widths = weight.type.dtype, _widths(isa, call.outputs[0].type.dtype.itemsize)
    if "dilation" in call.node.attrs:  # the weight of a convolution, [n, channels, taps]
        channels = weight.type.shape[1]
        taps = p["k"] // channels
        return {1: TapPanels(dtype, 1, p["n"], channels, taps, taps, *widths)}
    return {1: Panels(dtype, count, p["k"], p["n"], bool(p["transposed_b"]), *widths)}


def _gated(call: KernelCall, isa: str) -> dict[int, Layout]:
    p, weights = call.params, call.inputs[1:3]
    # One flag stands for both.
    if not p["k"] or any(weight is None or weight.kind not in FIXED for weight in weights):
        return {}
    dtype = call.outputs[0].type.dtype
    widths = _widths(isa, dtype.itemsize)
    return dict.fromkeys((1, 2), Panels(dtype, 1, p["k"], p["n"], False, *widths))


def _grouped(call: KernelCall, isa: str) -> dict[int, Layout]:
    p, dtype = call.params, call.outputs[0].type.dtype
    if not p["k"]:
        return {}
    widths = _widths(isa, dtype.itemsize)
    return {1: Panels(dtype, p["experts"], p["k"], p["n"], False, *widths)}


def _integer(call: KernelCall, isa: str) -> dict[int, Layout]:
    p, count = call.params, _matrices(call)
    if not count:
        return {}
    deep = 8 if variant_of(call.kernel, isa) == "mmla" else 4
    return {1: BytePanels(bool(p["b_signed"]), count, p["k"], p["n"], *_widths(isa, 4), deep)}


def _blocks(first: int, k: int, weights: Iterable[tuple[int, int]]) -> dict[int, Layout]:
    """Panels for the quantised operands from ``first`` on, of such schemes and rows; one flag stands for all."""
    results = {i: BlockPanels(SCHEMES[at], n, k) for i, (at, n) in enumerate(weights, first)}
    return dict(results) if all(layout.nbytes for layout in results.values()) else {}


def _dequant(call: KernelCall, isa: str) -> dict[int, Layout]:
    p = call.params
    # Panels of 16 rows may not hold rows of two experts.
    whole = p["experts"] == 0 or p["n"] % 16 == 0
    return _blocks(1, p["k"], [(p["scheme"], p["n"] * max(p["experts"], 1))] if whole else [])


def _dequant_joined(call: KernelCall, isa: str) -> dict[int, Layout]:
    return _blocks(2, call.params["k"], zip(call.params["schemes"], call.params["n"], strict=True))


def _some_rows(call: KernelCall, isa: str) -> dict[int, Layout]:
    p = call.params
    # A table that is decoded as a whole is read as it is.
    return _blocks(0, p["k"], [(p["scheme"], p["table"])] if p["index_bytes"] else [])


def _rounded(call: KernelCall, isa: str) -> dict[int, Layout]:
    p = call.params
    columns = _VECTORS * _widths(isa, 4)[1]
    return {1: BytePairs(1, p["k"], (p["n"],), columns)} if p["k"] else {}


def _conv_last(call: KernelCall, isa: str) -> dict[int, Layout]:
    p, dtype = call.params, call.outputs[0].type.dtype
    groups, taps = p["groups"], size(p["kernel"])
    sizes = p["outputs"] // groups, p["channels"] // groups
    layout = TapPanels(dtype, groups, *sizes, taps, p["joined"], *_widths(isa, dtype.itemsize))
    return {1: layout} if layout.stride else {}


def _depthwise_last(call: KernelCall, isa: str) -> dict[int, Layout]:
    channels, dtype = call.params["channels"], call.outputs[0].type.dtype
    lanes = _widths(isa, dtype.itemsize)[1]
    columns = -(-channels // lanes) * lanes
    taps, each = size(call.params["kernel"]), channels // call.params["groups"]
    return {1: TapPanels(dtype, 1, channels, each, taps, 1, columns, lanes)}


def _conv_transpose(call: KernelCall, isa: str) -> dict[int, Layout]:
    weight, groups = call.inputs[1], call.params["groups"]
    assert weight is not None
    channels, *rest = weight.type.shape
    if not weight.type.size:
        return {}
    return {1: Transposed(weight.type.dtype, groups, channels // groups, size(tuple(rest)))}


def _conv_long(call: KernelCall, isa: str) -> dict[int, Layout]:
    p, weight = call.params, call.inputs[4]
    assert weight is not None
    taps = p["kernel"][2]
    # Beside the plain ones, operand 1, which blocks that are not finite are made from.
    return {4: Spectra(weight.type.size // taps, taps, LONG_ACROSS * p["block"])}


def _winograd_last(call: KernelCall, isa: str) -> dict[int, Layout]:
    p = call.params
    groups = p["groups"]
    sizes = p["channels"] // groups, p["outputs"] // groups
    # Beside the plain ones, operand 1, which results that are not finite are made from.
    return {4: TileFilters(groups, *sizes, *_widths(isa, 4))}


def _recurrence(call: KernelCall, isa: str) -> dict[int, Layout]:
    p, weight = call.params, call.inputs[1]
    assert weight is not None
    gates, hidden = weight.type.shape[1] // p["hidden"], p["hidden"]
    # The third gate of a gru multiplies another state than the first two.
    products = (2 * hidden, hidden) if gates == CELLS["gru"] else (gates * hidden,)
    dtype = weight.type.dtype
    if p["narrow"]:
        columns = _VECTORS * _widths(isa, 4)[1]
        return {1: BytePairs(p["directions"], hidden, products, columns)}
    columns = _VECTORS * _widths(isa, dtype.itemsize)[1]
    return {1: Gates(dtype, p["directions"], hidden, products, columns)}


# Which operands a kernel can read packed, and in which layout.
READERS: Mapping[str, Callable[[KernelCall, str], dict[int, Layout]]] = {
    "matmul": _matmul, "gated_product": _gated, "grouped_matmul": _grouped, "conv_last": _conv_last,
    "depthwise_last": _depthwise_last, "winograd_last": _winograd_last, "conv_long": _conv_long, "conv_transpose": _conv_transpose,
    "matmul_integer": _integer, "dequant_matmul": _dequant, "dequant_products": _dequant_joined,
    "dequantize_blocks": _some_rows, "recurrence": _recurrence, "rounded_matmul": _rounded,
}  # fmt: skip


def layouts_of(call: KernelCall, isa: str) -> dict[int, Layout]:
    """The operands of a call that may be packed, with their layouts."""
    reader = READERS.get(call.kernel)
    return reader(call, isa) if reader else {}


def weights_for(schedule: Schedule, isa: str) -> Weights:
    """Memory for the params and constants of a schedule; programs of one graph share the params."""
    reads: dict[int, list[Layout | None]] = {}
    for call in schedule.calls:
        layouts = layouts_of(call, isa)
        for i, value in enumerate(call.inputs):
            if value is not None and value.kind in FIXED:
                reads.setdefault(value.id, []).append(layouts.get(i))
    results = {}
    for value in schedule.values:
        if value.kind in FIXED:
            results[value.id] = _weight(value, reads.get(value.id, ()))
    names = {name: value.id for name, value in schedule.params.items()}
    return Weights(results, names, lasting=sharing_now() is not None)


def _weight(value: Value, reads: Sequence[Layout | None]) -> Weight:
    """Packed once where all who read it can do so; beside it where a product of many elements can."""
    wanted = [layout for layout in reads if layout is not None]
    # Kernels that do not transform tiles read weights that are not packed almost as fast.
    wanted.sort(key=lambda layout: not isinstance(layout, TileFilters))
    if not wanted:
        return Weight(value)
    plain = isinstance(wanted[0], Panels) and value.type.dtype not in HALVES
    if plain and size(value.type.shape) < _LEAST:
        return Weight(value)
    return Weight(value, wanted[0], any(layout != wanted[0] for layout in reads))
