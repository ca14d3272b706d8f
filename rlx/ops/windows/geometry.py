"""The geometry of sliding windows that convolutions and pools share: sizes, padding, reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from rlx.abi.windows import WINDOW
from rlx.dataclasses import dataclass
from rlx.errors import ShapeError
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape, as_size, same_size, size
from rlx.ops.declare import operand_names
from rlx.resource_limits import charge
from rlx.sizes import SizeExpr, ceil_divide, largest, smallest

# Minimum outputs of a group for the matrix product; for fewer, packing costs more than it gains.
FEW = 4

Pads = tuple[tuple[int, int], ...]
SAME = ("same_upper", "same_lower")
# One number, one for each axis, a (before, after) pair for each axis, or a name (`rlx.ir.opdef.NodeLike` explains).
Padding = Annotated[
    Any, 'int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"]'
]
# Kernels multiply these in 64 bits.
MOST = 2**31 - 1


def per_axis(value: Any, rank: int, *, what: str, where: str, least: int) -> tuple[int, ...]:
    """One whole number per axis from an int or a sequence of them.

    Raises:
        ShapeError: The count is wrong, or a number is below ``least`` or above 2^31 - 1.
    """
    try:
        listed = tuple(map(as_size, value)) if _is_list(value) else (as_size(value),)
    except TypeError:
        listed = ()
    if len(listed) == 1:
        listed *= rank
    if len(listed) != rank or any(not least <= item <= MOST for item in listed):
        raise ShapeError(
            f"[{where}] {what} does not fit",
            got=repr(value),
            expected=f"a whole number >= {least}, or one for each of the {rank} axes",
        )
    return listed


def as_pads(value: Any, rank: int, *, where: str) -> Pads:
    """(before, after) of each axis from an int, one int per axis, or a pair per axis.

    Raises:
        ShapeError: It is none of these, or not from 0 to 2^31 - 1.
    """
    args = list(value) if _is_list(value) else [value]
    pairs = args * rank if len(args) == 1 else args
    try:
        results = tuple(
            (as_size(p[0]), as_size(p[1])) if _is_list(p) and len(p) == 2 else (as_size(p),) * 2
            for p in pairs
        )
    except TypeError:
        results = ()
    if len(results) != rank or any(not 0 <= side <= MOST for pair in results for side in pair):
        raise ShapeError(
            f"[{where}] padding does not fit",
            got=repr(value),
            expected=f"a number >= 0, one for each of the {rank} axes, a (before, after) pair "
            "for each, or " + " or ".join(map(repr, SAME)),
            hint="one axis with different sides is ((before, after),)" if rank == 1 else None,
        )
    return results


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray)) and not isinstance(value, str)


def same_pads(
    mode: str, dims: Shape, kernel: Shape, stride: Shape, dilation: Shape, *, where: str
) -> Pads:
    """The padding that makes each result ceil(size / stride) long (ONNX's auto_pad).

    Raises:
        ShapeError: ``mode`` is not one of ``SAME``.
    """
    if mode not in SAME:
        raise ShapeError(f"[{where}] no such padding", got=repr(mode), expected=" or ".join(SAME))
    pads = []
    for n, k, s, d in zip(dims, kernel, stride, dilation, strict=True):
        total = largest((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if mode == "same_upper" else (more, less))
    return tuple(pads)


@dataclass(frozen=True)
class Window:
    """Windows over the spatial axes, one entry of each field per axis.

    Attributes:
        dims: Sizes of the operand.
        kernel: Taps of a window.
        stride: Distance between windows.
        dilation: Distance between taps.
        pads: Padding before and after.
        out: Number of windows.
    """

    dims: Shape
    kernel: Shape
    stride: Shape
    dilation: Shape
    pads: Pads
    out: Shape

    @staticmethod
    def of(
        dims: Shape,
        kernel: Shape,
        stride: Shape,
        dilation: Shape,
        pads: Pads,
        *,
        where: str,
        ceil: bool = False,
    ) -> Window:
        """The windows that fit.

        Args:
            dims: Sizes of the operand.
            kernel: Taps of a window.
            stride: Distance between windows.
            dilation: Distance between taps.
            pads: Padding before and after.
            where: The op, for messages.
            ceil: Also a window that hangs over the end, if it begins inside the operand or the
                padding before it (ONNX's ceil_mode).

        Raises:
            ShapeError: A window is larger than the padded operand.
            LimitError: A window has more taps than ``rlx.limits`` lets one call count.
        """
        charge(f"[{where}] a window of {kernel}", elements=math.prod(kernel))
        out = []
        for n, k, s, d, (a, b) in zip(dims, kernel, stride, dilation, pads, strict=True):
            reach = n + a + b - ((k - 1) * d + 1)
            if reach < 0:
                raise ShapeError(
                    f"[{where}] the kernel is larger than the padded operand",
                    got=f"kernel {kernel}, dilation {dilation}, operand {dims}, pads {pads}",
                    expected="(kernel - 1) * dilation + 1 <= size + padding on every axis",
                )
            count = (math.ceil(reach / s) if ceil else reach // s) + 1
            out.append(smallest(count, ceil_divide(n + a, s)) if ceil else count)
        # With a single window the stride has no meaning; 1 keeps kernels from using memory for a large one.
        stride = tuple(
            s if isinstance(count, SizeExpr) or count > 1 else 1
            for s, count in zip(stride, out, strict=True)
        )
        return Window(dims, kernel, stride, dilation, pads, tuple(out))

    @property
    def reach(self) -> Shape:
        """The extent of the windows from the first padded entry: the part of each axis that is read."""
        return tuple(
            (o - 1) * s + (k - 1) * d + 1
            for o, s, k, d in zip(self.out, self.stride, self.kernel, self.dilation, strict=True)
        )

    def three(self) -> Window:
        """The same windows over three axes: the missing leading ones have size 1."""
        lead = (1,) * (3 - len(self.dims))
        return Window(
            lead + self.dims,
            lead + self.kernel,
            lead + self.stride,
            lead + self.dilation,
            ((0, 0),) * len(lead) + self.pads,
            lead + self.out,
        )

    def params(self) -> dict[str, Any]:
        """Kernel parameters; ``checks`` names the axes on which a tap may meet padding."""
        return {
            "dims": self.dims,
            "kernel": self.kernel,
            "out": self.out,
            "stride": self.stride,
            "dilation": self.dilation,
            "before": tuple(before for before, _ in self.pads),
            "after": tuple(after for _, after in self.pads),
            "checks": tuple(
                int(before > 0 or reach > n)
                for (before, _), reach, n in zip(self.pads, self.reach, self.dims, strict=True)
            ),
        }


def window_params(shared: dict[str, Any]) -> dict[str, Any]:
    """Selects the C kernels' parameters of a window from those of the WGSL kernels."""
    return {
        **{name: shared[name] for name in WINDOW.fields if name != "groups"},
        "groups": shared["parts"],
    }


def windows(x: Array, window: Window, fill: float) -> Array:
    """Every window of ``x`` ``[N, C, ...]`` as ``[N, C, *out, *kernel]``: a view of the padded array.

    Args:
        x: The operand.
        window: Where the windows stand.
        fill: The value of the padding.
    """
    axes = range(len(window.dims))
    # Entries that no window reaches are cut off. Windows past the end (ceil mode) see padding.
    after = [largest(window.reach[a] - window.dims[a] - window.pads[a][0], 0) for a in axes]
    pads = [(0, 0), (0, 0), *((window.pads[a][0], after[a]) for a in axes)]
    padded = np.pad(x, pads, constant_values=fill)
    spread = tuple((window.kernel[a] - 1) * window.dilation[a] + 1 for a in axes)
    shown = np.lib.stride_tricks.sliding_window_view(padded, spread, tuple(a + 2 for a in axes))
    pick = [slice(None), slice(None)]
    pick += [slice(0, window.reach[a] - spread[a] + 1, window.stride[a]) for a in axes]
    pick += [slice(None, None, window.dilation[a]) for a in axes]
    return shown[tuple(pick)]


def tensor_axes(shape: Shape, ranks: Sequence[int], *, where: str, name: str = "x") -> Shape:
    """The spatial sizes of ``[N, C, ...]``.

    Raises:
        ShapeError: There are none, or another number of them than ``ranks`` allows.
    """
    if len(shape) - 2 not in ranks:
        raise ShapeError(
            f"[{where}] {name} has the wrong rank",
            got=shape,
            expected=" or ".join(f"[N, C{', size' * rank}]" for rank in ranks),
        )
    return shape[2:]


def window_of(node: Node) -> Window:
    """The windows of a convolution."""
    a = node.attrs
    dims, kernel = node.inputs[0].shape[2:], node.inputs[1].shape[2:]
    return Window.of(dims, kernel, a["stride"], a["dilation"], a["padding"], where=node.op)


def collapsed(window: Window) -> Window:
    """Three axes; those of a pointwise convolution are one."""
    wide = window.three()
    plain = wide.kernel == wide.stride == (1, 1, 1) and all(map(same_size, wide.dims, wide.out))
    if not plain or any(side for pair in wide.pads for side in pair):
        return wide
    line, first = (1, 1, size(wide.dims)), (1, 1, 1)
    return Window(line, first, first, first, wide.pads, line)


def params_of(node: Node, window: Window) -> dict[str, Any]:
    """Returns the parameters that all kernels of a convolution take, by their WGSL names."""
    return {
        "batch": node.shape[0],
        "channels": node.inputs[0].shape[1],
        "outputs": node.shape[1],
        "parts": node.attrs["groups"],
        **window.params(),
        "has_bias": int("bias" in operand_names(node)),
    }
