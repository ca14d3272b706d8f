"""Convolutions on the CPU: which C kernel makes which, and its calls."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlx.abi.constants import VECTOR_ELEMENTS
from rlx.abi.products import ACTIVATIONS, rounded_bytes
from rlx.abi.windows import WINDOW
from rlx.ir.dtype import DType
from rlx.ir.fragments import BF16
from rlx.ir.graph import Node
from rlx.ir.opdef import Emitter, Kernels, Step, TensorType
from rlx.ir.shape import Shape, estimated, is_sized, size, strides
from rlx.ops.declare import named_operands
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.products.matmul import Product, call_product_cpu, product_params
from rlx.ops.windows import winograd
from rlx.ops.windows.fft_conv import call_long, samples_of_block
from rlx.ops.windows.geometry import FEW, Window, collapsed, params_of, window_of, window_params
from rlx.sizes import flag

# The quarters of the lanes that a row of results has to fill for the depthwise kernel whose lanes are windows of a row, and
# elements of the shortest vector.
_FULL_ROW, _SHORTEST_VECTOR = 3, 4
# Channels with a filter each from which on they are the lanes, and channels of groups that are made as such.
_LANES, _SMALL_GROUPS = 8, (1, 2, 4)
# Windows of a block: so many, fewer for windows of many runs or of runs that may be copied, and at least so many.
_WINDOWS, _RUNS, _COPIED, _FEWEST = 192, 8192, 1 << 16, 12
# From where on tiles of bf16 gain more than it takes to round windows: channels, outputs and multiplications.
_TILE_CHANNELS, _TILE_OUTPUTS, _TILE_PRODUCTS = 128, 32, 10_000_000
# Most bytes of all rounded windows, and, for a batch that a run decides, most windows that share an element.
_MOST_ROUNDED, _MOST_SHARED = 16 << 20, 4
# Channels up to which the taps of a row make one run, and elements of such a run.
_FEW_CHANNELS, _LONGEST_RUN = 16, 2048


class LastConvolution(NamedTuple):
    """A convolution of an operand whose channels lie next to each other.

    Attributes:
        window: Its windows over three axes.
        batch: Images.
        channels: Of the operand.
        outputs: Channels of the result.
        groups: Parts that the channels are split into.
        dtype: Of all operands.
        act: The activation of the results.
    """

    window: Window
    batch: Any
    channels: int
    outputs: int
    groups: int
    dtype: DType
    act: str

    @property
    def each(self) -> tuple[int, int]:
        """Channels and outputs of a group."""
        return self.channels // self.groups, self.outputs // self.groups

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that all kernels take."""
        sizes = {"batch": self.batch, "channels": self.channels, "outputs": self.outputs}
        shared = {**sizes, "parts": self.groups, **self.window.params()}
        return {**window_params(shared), "act": ACTIVATIONS.index(self.act)}

    def call(self, emitter: Emitter, operands: list[Any], result: Any) -> None:
        """Writes the calls of the kernels that fit: x, w, bias and residual, None for those that are absent."""
        if self.channels == self.outputs and self.each[0] in _SMALL_GROUPS:
            emitter.call("depthwise_last", operands, [result], self.params)
            return
        fixed = operands[1].kind in ("param", "constant")
        share = winograd.share(self, fixed)
        by_winograd = is_sized((share,)) or share
        if fixed and emitter.limits.get(BF16) and self._suits_tiles() and not by_winograd:
            self._call_tiles(emitter, operands, result)
            return
        shared = {**self.params, "apart": 0, "begin": 0}
        tiled = {**shared, "block": winograd.block(self)} if fixed else {}
        if by_winograd:
            images = {"batch": self.batch * share}
            emitter.call("winograd_last", [*operands, operands[1]], [result], {**tiled, **images})
        if is_sized((share,)) or not share:
            joined = self._joined()
            block = {"joined": joined, "block": self._block(joined)}
            images = {"batch": self.batch * (1 - share)}
            emitter.call("conv_last", operands, [result], {**shared, **block, **images})

    def _suits_tiles(self) -> bool:
        """Returns whether it is large enough for a product of its windows in tiles of bf16."""
        whole, taps = self.batch * size(self.window.out), size(self.window.kernel)
        windows, k = estimated(whole), taps * self.channels
        wide = self.channels >= _TILE_CHANNELS and self.outputs >= _TILE_OUTPUTS
        large = windows * k * self.outputs >= _TILE_PRODUCTS
        shared = windows * taps / max(1, estimated(self.batch * size(self.window.dims)))
        fits = shared <= _MOST_SHARED or not is_sized((whole,))
        fits = fits and windows * rounded_bytes(k) <= _MOST_ROUNDED
        return bool(self.groups == 1 and self.dtype is DType.F32 and wide and large and fits)

    def _call_tiles(self, emitter: Emitter, operands: list[Any], result: Any) -> None:
        """Writes the calls of a product of windows, and what adds the residual."""
        x, w, bias, residual = operands
        windows, k = self.batch * size(self.window.out), size(self.window.kernel) * self.channels
        rows, taps, pads = None, 0, [side for pair in self.window.pads for side in pair]
        if k != self.channels or self.window.dims != self.window.out or any(pads):
            rows = emitter.temp(TensorType((windows, rounded_bytes(k)), DType.U8))
            taps = size(self.window.kernel)
            params = {name: self.params[name] for name in WINDOW.fields}
            emitter.call("round_windows", [x], [rows], params)
        act, made = ("none", emitter.temp(result.type)) if residual else (self.act, result)
        product = Product(windows, k, self.outputs, 1, (1,), (0,), (0,))
        sizes = product_params(product, self.dtype, act, transposed_b=True)
        call_product_cpu(emitter, [x, w, bias], made, {**sizes, "taps": taps}, rows)
        if residual:
            program: list[Step] = [("add", (0, 1), self.dtype, None)]
            if self.act != "none":
                program.append((self.act, (2,), self.dtype, None))
            emitter.elementwise(program, [made, residual], result, [result.type.shape] * 2)

    def _joined(self) -> int:
        """The taps of a row whose elements make one run: all or 1."""
        window, width = self.window, self.window.kernel[2]
        whole = self.groups == 1 and window.dilation[2] == 1
        few = 0 < self.channels <= _FEW_CHANNELS and self.channels * width <= _LONGEST_RUN
        return width if whole and few else 1

    def _block(self, joined: int) -> Any:
        """The windows of a block."""
        taps = size(self.window.kernel)
        most = min(_WINDOWS, _RUNS * joined // taps)
        if joined > 1:
            most = min(most, _COPIED // (taps * self.channels))
        windows = self.batch * size(self.window.out)
        most = max(_FEWEST, most // _FEWEST * _FEWEST)
        return most if is_sized((windows,)) else min(most, max(1, windows))


def suits_last(node: Node) -> bool:
    """Returns whether a convolution has enough channels or outputs to be the lanes of vectors."""
    groups, channels = node.attrs["groups"], node.inputs[1].shape[1]
    outputs = node.shape[1] // groups
    return groups >= _LANES if (channels, outputs) == (1, 1) else outputs >= FEW


def _has_full_rows(node: Node, window: Window) -> Any:
    """Returns 1 where the lanes are windows of a row, 0 where not, for planes with a filter each; a size where sizes tell."""
    flat = window.dims[0] == window.out[0] == window.kernel[0] == 1
    columns, step = window.out[2], window.stride[2]
    if node.inputs[1].shape[1] != 1 or node.dtype is not DType.F32 or not flat or step > 2:
        return 0
    # It makes four rows at a time; few long rows are left to the direct kernel.
    rows = flag(window.out[1] - 3) * flag(window.dims[2] - _SHORTEST_VECTOR + 1)
    lanes = math.ceil(columns / VECTOR_ELEMENTS) * VECTOR_ELEMENTS
    full = flag(4 * columns - (_FULL_ROW if step == 1 else 4) * lanes + 1)
    return rows * full if suits_last(node) else rows


def _is_scaling(node: Node, window: Window) -> bool:
    """Returns whether a convolution only multiplies each plane by a number."""
    single = size(window.kernel) == 1 and window.dims == window.out
    inside = not any(before or after for before, after in window.pads)
    return single and inside and node.inputs[0].shape[1] == node.shape[1] == node.attrs["groups"]


def _lower_scaling(operands: list[Any], node: Node, emitter: Emitter) -> None:
    """One pass over the elements: x * w + bias + residual, then the activation."""
    x, *others = operands
    channel = (1, node.shape[1], *(1,) * (len(node.shape) - 2))
    args = zip(others, ("mul", "add", "add"), (channel, channel, node.shape), strict=True)
    steps = [item for item in args if item[0] is not None]
    count, program = 1 + len(steps), list[Step]()
    for i, (_, name, _) in enumerate(steps):
        program.append((name, (count + i - 1 if i else 0, 1 + i), node.dtype, None))
    if (act := node.attrs.get("act", "none")) != "none":
        program.append((act, (count + len(steps) - 1,), node.dtype, None))
    shapes = [node.shape, *(shape for _, _, shape in steps)]
    emitter.elementwise(program, [x, *(value for value, _, _ in steps)], emitter.result(), shapes)


def _turned(
    emitter: Emitter, source: Any, target: Any, dtype: DType, shape: Shape, last: bool
) -> None:
    """A copy of [N, C, ...] whose channels are last, or the opposite."""
    batch, channels, places = shape[0], shape[1], size(shape[2:])
    dims = (batch, places, channels) if last else (batch, channels, places)
    image = channels * places
    steps = (image, 1, places) if last else (image, 1, channels)
    emit_strided_copy(emitter, source, target, dtype, dims, steps, strides(dims))


def _lower_last(operands: list[Any], node: Node, emitter: Emitter) -> None:
    """The kernels for channels that are last, between copies in their order."""
    window, shape = collapsed(window_of(node)), node.inputs[0].shape
    act, dtype = node.attrs.get("act", "none"), node.dtype
    sizes = shape[0], shape[1], node.shape[1], node.attrs["groups"]
    result = emitter.result()
    made = result if size(node.shape[2:]) == 1 else emitter.temp(TensorType(node.shape, dtype))
    for i, each in ((0, shape), (3, node.shape)):
        if operands[i] is not None and each[1] != 1 and size(each[2:]) != 1:
            copy = emitter.temp(TensorType(each, dtype))
            _turned(emitter, operands[i], copy, dtype, each, last=True)
            operands[i] = copy
    LastConvolution(window, *sizes, dtype, act).call(emitter, operands, made)
    if made is not result:
        _turned(emitter, made, result, dtype, node.shape, last=False)


def lower_cpu(node: Node, emitter: Emitter) -> None:
    """Writes the call of the C kernel that fits, also for a convolution with what follows it."""
    window = collapsed(window_of(node))
    operands = named_operands(node, emitter, ("x", "w", "bias", "residual"))
    if _is_scaling(node, window):
        _lower_scaling(operands, node, emitter)
        return
    act = ACTIVATIONS.index(node.attrs.get("act", "none"))
    params = {**window_params(params_of(node, window)), "act": act}
    block = samples_of_block(node, window, operands[1].kind in ("param", "constant"))
    if block:
        call_long(node, emitter, operands, params, block)
        return
    rows = _has_full_rows(node, window)
    if is_sized((rows,)) or rows:
        images = {"batch": node.shape[0] * rows}
        emitter.call("conv_depthwise", operands, [emitter.result()], {**params, **images})
    if is_sized((rows,)) or not rows:
        if suits_last(node):
            _lower_last(operands, node, emitter)
        else:
            images = {"batch": node.shape[0] * (1 - rows)}
            emitter.call("conv_direct", operands, [emitter.result()], {**params, **images})


CPU = Kernels(
    (
        *("conv_last", "depthwise_last", "winograd_last", "conv_depthwise", "conv_direct"),
        *("conv_long", "strided_copy", "matmul", "round_rows", "round_windows"),
    ),
    lower_cpu,
)
