# Made by script/stubs from the records of the operations. Edit those.
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rlx.ir.dtype import DTypeLike
from rlx.ir.graph import Graph, Node, Operand
from rlx.ir.opdef import HasArray, Numbers
from rlx.ops.products.block_encoders import quantize_blocks as quantize_blocks
from rlx.ops.products.block_encoders import quantize_groups as quantize_groups
from rlx.ops.products.block_formats import decode_blocks as decode_blocks

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "attention",
    "avg_pool",
    "axial_rope2d",
    "batch_norm",
    "bit_and",
    "bit_or",
    "bit_xor",
    "cast",
    "ceil",
    "celu",
    "clip",
    "concat",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "custom",
    "depth_to_space",
    "dequant_matmul",
    "dequantize",
    "dequantize_blocks",
    "div",
    "einsum",
    "elu",
    "eq",
    "erf",
    "exp",
    "exp2",
    "expand",
    "fft",
    "find_peaks",
    "flip",
    "floor",
    "fma",
    "fmod",
    "fused_matmul_bias_act",
    "gather",
    "gather_elements",
    "gather_nd",
    "ge",
    "gelu",
    "gelu_approx",
    "global_avg_pool",
    "global_lp_pool",
    "global_max_pool",
    "group_norm",
    "grouped_matmul",
    "gru",
    "gt",
    "hard_sigmoid",
    "hard_swish",
    "if_",
    "instance_norm",
    "is_inf",
    "is_nan",
    "istft",
    "l1",
    "l2",
    "l2_normalize",
    "layer_norm",
    "le",
    "leaky_relu",
    "lfilter",
    "log",
    "log1p",
    "log_mel",
    "log_mel_backward",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "lora_matmul",
    "lp_pool",
    "lstm",
    "lt",
    "matmul",
    "matmul_integer",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mod",
    "mul",
    "narrow",
    "ne",
    "neg",
    "nonzero_count",
    "one_hot",
    "pad",
    "pow",
    "prelu",
    "prod",
    "qmatmul",
    "quantize",
    "random_normal",
    "random_uniform",
    "reciprocal",
    "relu",
    "reshape",
    "resize",
    "rfft",
    "rms_norm",
    "rnn",
    "rope",
    "round",
    "rsqrt",
    "sample",
    "scan",
    "scatter_add",
    "scatter_elements",
    "scatter_nd",
    "selective_scan",
    "selu",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "slice",
    "softmax",
    "softplus",
    "softsign",
    "sort",
    "sosfilt",
    "space_to_depth",
    "split",
    "sqrt",
    "squeeze",
    "stft",
    "sub",
    "sum",
    "tan",
    "tanh",
    "tile",
    "topk",
    "transpose",
    "trilu",
    "unsqueeze",
    "welch_peaks",
    "where",
    "while_",
]

def neg(x: Operand) -> Node:
    """-x.

    Elementwise.
    """

def abs(x: Operand) -> Node:
    """Absolute value.

    Elementwise.
    """

def sign(x: Operand) -> Node:
    """-1, 0 or 1 by the sign of x; NaN for NaN.

    Elementwise.
    """

def exp(x: Operand) -> Node:
    """e to the power x.

    Elementwise.
    """

def exp2(x: Operand) -> Node:
    """2 to the power x.

    Elementwise.
    """

def log(x: Operand) -> Node:
    """Natural logarithm.

    Elementwise.
    """

def log1p(x: Operand) -> Node:
    """log(1 + x), exact near 0.

    Elementwise.
    """

def sqrt(x: Operand) -> Node:
    """Square root.

    Elementwise.
    """

def rsqrt(x: Operand) -> Node:
    """1 / sqrt(x).

    Elementwise.
    """

def reciprocal(x: Operand) -> Node:
    """1 / x.

    Elementwise.
    """

def sin(x: Operand) -> Node:
    """Sine of an angle in radians; on the GPU for |x| up to 1e5.

    Elementwise.
    """

def cos(x: Operand) -> Node:
    """Cosine of an angle in radians; on the GPU for |x| up to 1e5.

    Elementwise.
    """

def tan(x: Operand) -> Node:
    """Tangent of an angle in radians; on the GPU for |x| up to 1e5.

    Elementwise.
    """

def asin(x: Operand) -> Node:
    """Inverse sine in radians; NaN outside -1 to 1.

    Elementwise.
    """

def acos(x: Operand) -> Node:
    """Inverse cosine in radians; NaN outside -1 to 1.

    Elementwise.
    """

def atan(x: Operand) -> Node:
    """Inverse tangent in radians.

    Elementwise.
    """

def sinh(x: Operand) -> Node:
    """Hyperbolic sine.

    Elementwise.
    """

def cosh(x: Operand) -> Node:
    """Hyperbolic cosine.

    Elementwise.
    """

def tanh(x: Operand) -> Node:
    """Hyperbolic tangent.

    Elementwise.
    """

def asinh(x: Operand) -> Node:
    """Inverse hyperbolic sine.

    Elementwise.
    """

def acosh(x: Operand) -> Node:
    """Inverse hyperbolic cosine; NaN below 1.

    Elementwise.
    """

def atanh(x: Operand) -> Node:
    """Inverse hyperbolic tangent; NaN outside -1 to 1.

    Elementwise.
    """

def erf(x: Operand) -> Node:
    """Error function.

    Elementwise.
    """

def ceil(x: Operand) -> Node:
    """Least integer >= x.

    Elementwise.
    """

def floor(x: Operand) -> Node:
    """Greatest integer <= x.

    Elementwise.
    """

def round(x: Operand) -> Node:
    """Nearest integer, halves to the even one.

    Elementwise.
    """

def sigmoid(x: Operand) -> Node:
    """1 / (1 + exp(-x)).

    Elementwise.
    """

def relu(x: Operand) -> Node:
    """max(x, 0).

    Elementwise.
    """

def gelu(x: Operand) -> Node:
    """x/2 * (1 + erf(x / sqrt 2)) (Hendrycks & Gimpel 2016, arXiv:1606.08415).

    Elementwise.
    """

def gelu_approx(x: Operand) -> Node:
    """The tanh form of gelu (Hendrycks & Gimpel 2016, arXiv:1606.08415).

    Elementwise.
    """

def silu(x: Operand) -> Node:
    """x * sigmoid(x).

    Elementwise.
    """

def selu(x: Operand) -> Node:
    """The self-normalising unit s * (x if x > 0 else a * (exp(x) - 1)) (arXiv:1706.02515).

    Elementwise.
    """

def softplus(x: Operand) -> Node:
    """log(1 + exp(x)).

    Elementwise.
    """

def softsign(x: Operand) -> Node:
    """x / (1 + |x|).

    Elementwise.
    """

def hard_swish(x: Operand) -> Node:
    """x * clip(x / 6 + 1/2, 0, 1) (arXiv:1905.02244).

    Elementwise.
    """

def mish(x: Operand) -> Node:
    """x * tanh(softplus(x)) (arXiv:1908.08681).

    Elementwise.
    """

def is_nan(x: Operand) -> Node:
    """Whether x is NaN.

    Elementwise; the result is bool.
    """

def is_inf(x: Operand) -> Node:
    """Whether x is infinite.

    Elementwise; the result is bool.
    """

def logical_not(x: Operand) -> Node:
    """Not x.

    Elementwise; the result is bool.
    """

def add(a: Operand, b: Operand) -> Node:
    """a + b.

    Elementwise, with NumPy broadcasting.
    """

def sub(a: Operand, b: Operand) -> Node:
    """a - b.

    Elementwise, with NumPy broadcasting.
    """

def mul(a: Operand, b: Operand) -> Node:
    """a * b.

    Elementwise, with NumPy broadcasting.
    """

def div(a: Operand, b: Operand) -> Node:
    """a / b; integers are truncated toward zero, and give 0 for b = 0.

    Elementwise, with NumPy broadcasting.
    """

def mod(a: Operand, b: Operand) -> Node:
    """Remainder with the sign of b (Python's %); integers give 0 for b = 0.

    Elementwise, with NumPy broadcasting.
    """

def fmod(a: Operand, b: Operand) -> Node:
    """Remainder with the sign of a (C's fmod); integers give 0 for b = 0.

    Elementwise, with NumPy broadcasting.
    """

def maximum(a: Operand, b: Operand) -> Node:
    """The larger of a and b; NaN where either is.

    Elementwise, with NumPy broadcasting.
    """

def minimum(a: Operand, b: Operand) -> Node:
    """The smaller of a and b; NaN where either is.

    Elementwise, with NumPy broadcasting.
    """

def pow(a: Operand, b: Operand) -> Node:
    """a to the power b; an integer to a negative power is 0, or 1 or -1 for a = 1 or -1.

    Elementwise, with NumPy broadcasting.
    """

def atan2(a: Operand, b: Operand) -> Node:
    """Angle of the point (b, a) in radians, -pi to pi.

    Elementwise, with NumPy broadcasting.
    """

def bit_and(a: Operand, b: Operand) -> Node:
    """Bitwise and.

    Elementwise, with NumPy broadcasting.
    """

def bit_or(a: Operand, b: Operand) -> Node:
    """Bitwise or.

    Elementwise, with NumPy broadcasting.
    """

def bit_xor(a: Operand, b: Operand) -> Node:
    """Bitwise exclusive or.

    Elementwise, with NumPy broadcasting.
    """

def shift_left(a: Operand, b: Operand) -> Node:
    """a << b; 0 where b is not below the bits of the type.

    Elementwise, with NumPy broadcasting.
    """

def shift_right(a: Operand, b: Operand) -> Node:
    """a >> b; signed types keep the sign.

    Elementwise, with NumPy broadcasting.
    """

def logical_and(a: Operand, b: Operand) -> Node:
    """a and b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def logical_or(a: Operand, b: Operand) -> Node:
    """a or b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def logical_xor(a: Operand, b: Operand) -> Node:
    """Either a or b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def eq(a: Operand, b: Operand) -> Node:
    """Whether a == b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def ne(a: Operand, b: Operand) -> Node:
    """Whether a != b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def lt(a: Operand, b: Operand) -> Node:
    """Whether a < b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def le(a: Operand, b: Operand) -> Node:
    """Whether a <= b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def gt(a: Operand, b: Operand) -> Node:
    """Whether a > b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def ge(a: Operand, b: Operand) -> Node:
    """Whether a >= b.

    Elementwise, with NumPy broadcasting; the result is bool.
    """

def prelu(a: Operand, b: Operand) -> Node:
    """x where x >= 0, slope * x below (arXiv:1502.01852).

    Elementwise, with NumPy broadcasting.
    """

def fma(a: Operand, b: Operand, c: Operand) -> Node:
    """a * b + c.

    Elementwise, with NumPy broadcasting.
    """

def where(cond: Operand, a: Operand, b: Operand) -> Node:
    """``a`` where ``cond`` is true, ``b`` elsewhere, with NumPy broadcasting of all three.

    Args:
        cond: bool.
        a: Any dtype.
        b: The dtype of ``a``.
    """

def cast(x: Operand, dtype: DTypeLike) -> Node:
    """``x`` converted to ``dtype``: floats to integers truncate toward zero, anything to bool is != 0.

    A float outside the integer's range gives an unspecified value, as in C and NumPy.
    """

def leaky_relu(x: Operand, alpha: float = 0.01) -> Node:
    """X where x >= 0, alpha * x below."""

def elu(x: Operand, alpha: float = 1.0) -> Node:
    """X where x > 0, alpha * (exp(x) - 1) below (arXiv:1511.07289)."""

def celu(x: Operand, alpha: float = 1.0) -> Node:
    """X where x > 0, alpha * (exp(x / alpha) - 1) below (arXiv:1704.07483)."""

def hard_sigmoid(x: Operand, alpha: float = 0.2, beta: float = 0.5) -> Node:
    """Alpha * x + beta, held between 0 and 1."""

def clip(x: Operand, min: Operand | None = None, max: Operand | None = None) -> Node:
    """``x`` held between two numbers: min(max(x, min), max); None leaves a side open.

    Args:
        x: Any numbers.
        min: A number, or a node that broadcasts to ``x``.
        max: The same; where it is below ``min`` the result is ``max``.
    """

def reshape(x: Operand, shape: int | Iterable[int]) -> Node:
    """``x`` under another shape of as many elements, in row-major order; one dimension may be -1."""

def transpose(x: Operand, perm: Sequence[int] | None = None) -> Node:
    """The axes of ``x`` in another order; without ``perm`` they are reversed."""

def narrow(x: Operand, axis: int, start: int, length: int) -> Node:
    """``length`` entries of one axis from ``start`` on.

    Args:
        x: Any shape of rank >= 1.
        axis: The axis that is cut; counts from the end when negative.
        start: First entry; counts from the end when negative.
        length: Number of entries.
    """

def slice(
    x: Operand,
    starts: Sequence[int],
    stops: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Node:
    """Python's slicing over the named axes (all leading ones by default), negative steps included."""

def expand(x: Operand, shape: int | Iterable[int]) -> Node:
    """``x`` repeated along its axes of size 1 to ``shape`` (NumPy's ``broadcast_to``)."""

def concat(xs: Sequence[Operand], axis: int) -> Node:
    """The operands one after the other along ``axis``; the other dimensions are equal."""

def gather(x: Operand, indices: Operand, axis: int = 0) -> Node:
    """Entries of one axis picked by an integer tensor; the axis is replaced by the indices' shape.

    Args:
        x: Any shape of rank >= 1.
        indices: i32 or i64, any shape; negative ones count from the end. One out of range is an
            ``InputError`` on the CPU; WebGPU, which can't tell, takes the nearest entry.
        axis: The axis that is picked from.
    """

def gather_elements(x: Operand, indices: Operand, axis: int) -> Node:
    """One entry along ``axis`` for every entry of ``indices`` (NumPy's ``take_along_axis``).

    Args:
        x: Any shape of rank >= 1.
        indices: i32 or i64 of the same rank; no dimension but ``axis`` is larger than that of ``x``.
        axis: The axis that the indices number; negative indices count from its end.
    """

def gather_nd(x: Operand, indices: Operand, batch_dims: int = 0) -> Node:
    """Slices of ``x`` picked by index tuples, which stand along the last axis of ``indices``.

    Args:
        x: Any shape.
        indices: i32 or i64 ``[*batch, ..., depth]``: each tuple names a slice of the first ``depth``
            axes after the batch.
        batch_dims: Leading axes that both operands share.

    Returns:
        ``[*indices.shape[:-1], *x.shape[batch_dims + depth:]]``.
    """

def scatter_elements(
    x: Operand,
    indices: Operand,
    updates: Operand,
    axis: int,
    reduction: Literal["none", "add", "mul", "min", "max"] | None = None,
) -> Node:
    """``x`` with entries replaced along ``axis`` at places that ``indices`` name.

    Args:
        x: Any shape of rank >= 1.
        indices: i32 or i64 of the same rank; no dimension but ``axis`` is larger than that of ``x``.
            Negative ones count from the end; one out of range is an ``InputError`` on the CPU and
            is left out on WebGPU.
        updates: One value for every index.
        axis: The axis that the indices number.
        reduction: None replaces (the last of several updates of one place wins), "add", "mul", "min"
            and "max" combine with what is there, in order.
    """

def scatter_nd(
    x: Operand,
    indices: Operand,
    updates: Operand,
    reduction: Literal["none", "add", "mul", "min", "max"] | None = None,
) -> Node:
    """``x`` with slices replaced at the index tuples along the last axis of ``indices``.

    Args:
        x: Any shape.
        indices: i32 or i64 ``[..., depth]``.
        updates: ``[*indices.shape[:-1], *x.shape[depth:]]``.
        reduction: As in ``scatter_elements``.
    """

def scatter_add(x: Operand, indices: Operand, updates: Operand, axis: int = 0) -> Node:
    """``scatter_elements`` that adds: every update is added to the entry that its index names."""

def split(x: Operand, sizes: Sequence[int], axis: int) -> tuple[Node, ...]:
    """``x`` cut along ``axis`` into parts of the given sizes.

    Args:
        x: Any shape of rank >= 1.
        sizes: Length of each part; their sum is the length of the axis.
        axis: The axis that is cut.

    Returns:
        A tuple of as many results as there are sizes.
    """

def squeeze(x: Operand, axes: int | Iterable[int] | None = None) -> Node:
    """``x`` without the named axes, which are of size 1 (all such axes by default)."""

def unsqueeze(x: Operand, axes: int | Iterable[int]) -> Node:
    """``x`` with axes of size 1 put in; ``axes`` number them in the result."""

def flip(x: Operand, axes: int | Iterable[int] | None = None) -> Node:
    """``x`` in reverse along ``axes`` (all of them by default)."""

def tile(x: Operand, repeats: int | Sequence[int]) -> Node:
    """``x`` repeated as a whole, ``repeats[i]`` times along axis i (NumPy's ``tile``)."""

def depth_to_space(x: Operand, block: int, mode: Literal["dcr", "crd"] = "dcr") -> Node:
    """Channels spread over blocks of pixels: [N, C, H, W] -> [N, C / b^2, H b, W b].

    Args:
        x: ``[N, C, H, W]``.
        block: The block's side b.
        mode: Order of the channels: "dcr" (block row, block column, channel) or "crd".
    """

def space_to_depth(x: Operand, block: int) -> Node:
    """Blocks of pixels gathered into channels: the inverse of ``depth_to_space`` (dcr)."""

def pad(
    x: Operand,
    pads: Sequence[Sequence[int]],
    mode: Literal["constant", "reflect", "edge", "wrap"] = "constant",
    value: float = 0,
) -> Node:
    """``x`` with entries added before and after each axis.

    Args:
        x: Any shape.
        pads: One (before, after) pair per axis; a negative number takes entries away.
        mode: "constant" (``value``), "reflect" (mirrored, the edge not repeated), "edge" (the edge
            repeated) or "wrap" (from the other side), as NumPy's ``pad``.
        value: What "constant" adds.
    """

def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: DTypeLike = "i32",
) -> Node:
    """The constant start, start + step, ... below ``stop`` (NumPy's ``arange``)."""

def one_hot(
    indices: Operand,
    depth: int,
    axis: int = -1,
    values: Sequence[float] = (0, 1),
    dtype: DTypeLike = "f32",
) -> Node:
    """Each index as a vector of ``depth`` numbers that is 1 at the index and 0 elsewhere.

    Args:
        indices: i32 or i64; negative ones count from the end; one out of range gives all 0.
        depth: Number of classes.
        axis: Where the new axis stands in the result.
        values: What stands for (0, 1).
        dtype: dtype of the result.
    """

def trilu(x: Operand, k: int = 0, upper: bool = True) -> Node:
    """The upper or lower triangle of the last two axes, 0 elsewhere.

    Args:
        x: ``[..., rows, columns]``.
        k: The diagonal that bounds it: 0 the main one, positive ones above it.
        upper: The triangle above it, else below.
    """

def random_uniform(
    shape: int | Iterable[int],
    seed: Operand,
    stream: int = 0,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike = "f32",
) -> Node:
    """Uniform random numbers from ``low`` to below ``high``, the same bits on every device.

    Args:
        shape: Shape of the result.
        seed: 0 to 2^64 - 1, or an integer node for numbers that change from run to run.
        stream: Different streams of one seed are independent.
        low: Least value.
        high: Bound above.
        dtype: dtype of the result.
    """

def random_normal(
    shape: int | Iterable[int],
    seed: Operand,
    stream: int = 0,
    mean: float = 0.0,
    scale: float = 1.0,
    dtype: DTypeLike = "f32",
) -> Node:
    """Normal random numbers, the same bits on every device; |z| reaches 6.2.

    The quantile function is tabulated with 256 points an octave of the tail and interpolated in
    integers; an error of z is below 2e-6.

    Args:
        shape: Shape of the result.
        seed: 0 to 2^64 - 1, or an integer node for numbers that change from run to run.
        stream: Different streams of one seed are independent.
        mean: Mean.
        scale: Standard deviation.
        dtype: dtype of the result.
    """

def sample(
    logits: Operand,
    seed: Operand,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    stream: int = 0,
) -> Node:
    """A token drawn for every row of logits, in i32.

    Args:
        logits: ``[..., tokens]``.
        seed: As in ``random_uniform``.
        temperature: Divides the logits; 0 takes the largest.
        top_k: Keep the k most likely tokens and those as likely as the k-th; 0 keeps all.
        top_p: Keep the most likely tokens that together reach this probability.
        stream: As in ``random_uniform``.
    """

def resize(
    x: Operand,
    size: int | Iterable[int],
    mode: Literal["nearest", "linear", "cubic"] = "nearest",
    coordinates: Literal["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"] = "half_pixel",
    nearest_mode: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    extrapolation_value: float = 0.0,
    roi: Sequence[float] | None = None,
    scales: Sequence[float] | None = None,
    antialias: bool = False,
) -> Node:
    """``x`` resized by interpolation along each axis whose size changes (ONNX's Resize).

    Args:
        x: Any shape; only "nearest" takes other than floats.
        size: The new size of every axis.
        mode: nearest, linear or cubic.
        coordinates: How results and entries correspond: half_pixel, half_pixel_symmetric,
            pytorch_half_pixel, align_corners, asymmetric or tf_crop_and_resize.
        nearest_mode: round_prefer_floor, round_prefer_ceil, floor or ceil.
        cubic_coeff_a: Parameter of the cubic kernel; -0.75 as in PyTorch, -0.5 as in TensorFlow.
        exclude_outside: Whether taps outside x weigh nothing; otherwise the edge is repeated.
        extrapolation_value: Stands where tf_crop_and_resize reaches outside x.
        roi: For tf_crop_and_resize: the first, then the last position on every axis, from 0 to 1.
        scales: New entries per old one of every axis, in place of size / size of x, where the new
            size is a rounded product.
        antialias: Whether shrinking (linear, cubic) widens the filter.
    """

def sum(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """Sum over ``axes`` (all of them by default), in the operand's dtype; integers wrap."""

def mean(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """Mean over ``axes`` (all of them by default); NaN over no elements."""

def max(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """Largest element over ``axes`` (all of them by default); NaN where there is one."""

def min(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """Smallest element over ``axes`` (all of them by default); NaN where there is one."""

def prod(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """Product over ``axes`` (all of them by default), in the operand's dtype; integers wrap."""

def logsumexp(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """log(sum(exp(x))) over ``axes`` (all of them by default), without overflow."""

def l1(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """Sum of absolute values over ``axes`` (all of them by default)."""

def l2(x: Operand, axes: int | Iterable[int] | None = None, keepdims: bool = False) -> Node:
    """Square root of the sum of squares over ``axes`` (all of them by default)."""

def nonzero_count(
    x: Operand,
    axes: int | Iterable[int] | None = None,
    keepdims: bool = False,
) -> Node:
    """How many elements are not 0 (or are true) over ``axes`` (all of them by default), in i32."""

def argmax(x: Operand, axis: int, keepdims: bool = False, select_last: bool = False) -> Node:
    """Position of the largest element along ``axis``, in i32; the first NaN where there is one.

    Args:
        x: Any shape of rank >= 1.
        axis: The axis that is searched.
        keepdims: Keep the axis, with size 1.
        select_last: Of equal elements take the last instead of the first.
    """

def argmin(x: Operand, axis: int, keepdims: bool = False, select_last: bool = False) -> Node:
    """Position of the smallest element along ``axis``; otherwise as ``argmax``."""

def cumsum(x: Operand, axis: int, exclusive: bool = False, reverse: bool = False) -> Node:
    """Running sum along ``axis``.

    Args:
        x: Any shape of rank >= 1; integers wrap.
        axis: The axis that is summed along.
        exclusive: Leave an element out of its own sum.
        reverse: Start from the end.
    """

def cumprod(x: Operand, axis: int, exclusive: bool = False, reverse: bool = False) -> Node:
    """Running product along ``axis``; otherwise as ``cumsum``."""

def softmax(x: Operand, axis: int = -1) -> Node:
    """exp(x - max) / sum along ``axis``; a row of all -inf gives NaN, as in NumPy."""

def log_softmax(x: Operand, axis: int = -1) -> Node:
    """The logarithm of ``softmax`` along ``axis``, computed as x - max - log(sum(exp(x - max)))."""

def topk(x: Operand, k: int, axis: int = -1, largest: bool = True) -> tuple[Node, Node]:
    """The k largest (or smallest) entries along ``axis`` in order, and their positions.

    Args:
        x: Any shape of rank >= 1.
        k: How many, at most the length of the axis.
        axis: The axis that is searched.
        largest: False takes the smallest.

    Returns:
        (values, indices): of x's dtype and i32, with k entries along ``axis``. Ties go to the lower
        index; NaN comes last.
    """

def sort(x: Operand, axis: int = -1, descending: bool = False) -> Node:
    """``x`` in order along ``axis``; NaN comes last either way."""

def argsort(x: Operand, axis: int = -1, descending: bool = False) -> Node:
    """Positions, in i32, that put ``x`` in order along ``axis``; equal entries keep their order."""

def layer_norm(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    axis: int = -1,
    eps: float = 1e-05,
) -> Node:
    """(x - mean) / sqrt(var + eps) * weight + bias over ``axis`` to the last (arXiv:1607.06450).

    Args:
        x: Any shape of rank >= 1.
        weight: Shape of the normalised axes, or None for 1.
        bias: Shape of the normalised axes, or None for 0.
        axis: First normalised axis.
        eps: Added to the variance, which is the biased one.
    """

def rms_norm(x: Operand, weight: Operand | None = None, eps: float = 1e-06, axis: int = -1) -> Node:
    """X / sqrt(mean(x^2) + eps) * weight over ``axis`` to the last (arXiv:1910.07467).

    Args:
        x: Any shape of rank >= 1.
        weight: Shape of the normalised axes, or None for 1.
        eps: Added to the mean square.
        axis: First normalised axis.
    """

def group_norm(
    x: Operand,
    groups: int,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-05,
) -> Node:
    """Normalisation over groups of channels and everything behind them (arXiv:1803.08494).

    Args:
        x: ``[N, C, ...]``.
        groups: A divisor of C.
        weight: ``[C]``, or None for 1.
        bias: ``[C]``, or None for 0.
        eps: Added to the variance.
    """

def instance_norm(
    x: Operand,
    weight: Operand | None = None,
    bias: Operand | None = None,
    eps: float = 1e-05,
) -> Node:
    """Normalisation of every channel of every sample by itself (arXiv:1607.08022); x ``[N, C, ...]``."""

def batch_norm(
    x: Operand,
    scale: Operand,
    bias: Operand,
    mean: Operand,
    var: Operand,
    eps: float = 1e-05,
) -> Node:
    """(x - mean) / sqrt(var + eps) * scale + bias with given statistics (arXiv:1502.03167).

    Args:
        x: ``[N, C, ...]``.
        scale: ``[C]``.
        bias: ``[C]``.
        mean: ``[C]``, gathered in training.
        var: ``[C]``, gathered in training.
        eps: Added to the variance.
    """

def l2_normalize(x: Operand, axis: int = -1, eps: float = 1e-12) -> Node:
    """X / max(||x||, eps), the Euclidean norm taken along ``axis``."""

def matmul(a: Operand, b: Operand) -> Node:
    """Matrix product over the last two axes, the others broadcast (NumPy's ``matmul``).

    Args:
        a: ``[..., m, k]`` or ``[k]``.
        b: ``[..., k, n]`` or ``[k]``.
    """

def fused_matmul_bias_act(
    x: Operand,
    w: Operand,
    bias: Operand,
    act: Literal["none", "relu", "gelu", "gelu_approx", "silu", "sigmoid", "tanh", "hard_swish"] = "none",
) -> Node:
    """act(x @ w + bias) in one kernel.

    Args:
        x: ``[..., k]``.
        w: ``[k, n]``.
        bias: ``[n]``.
        act: none, relu, gelu, gelu_approx, silu, sigmoid, tanh or hard_swish.
    """

def grouped_matmul(x: Operand, w: Operand, idx: Operand) -> Node:
    """Each row times the matrix of its expert: y[m] = x[m] @ w[idx[m]].

    Args:
        x: ``[M, K]``.
        w: ``[E, K, N]``, one matrix per expert.
        idx: i32 or i64 ``[M]``, 0 to E - 1. One out of range is an ``InputError`` on the CPU; WebGPU
            takes the nearest expert.

    Returns:
        ``[M, N]``.
    """

def lora_matmul(x: Operand, w: Operand, a: Operand, b: Operand, scale: float = 1.0) -> Node:
    """X @ w + scale * (x @ a) @ b: a matrix with a low-rank update (arXiv:2106.09685).

    Args:
        x: ``[..., K]``.
        w: ``[K, N]``.
        a: ``[K, R]``.
        b: ``[R, N]``.
        scale: Weight of the update.
    """

def matmul_integer(a: Operand, b: Operand) -> Node:
    """Product of i8 or u8 matrices in i32, exact; otherwise as ``matmul``."""

def qmatmul(
    a: Operand,
    b: Operand,
    a_scale: Operand,
    b_scale: Operand,
    a_zero_point: Operand = 0,
    b_zero_point: Operand = 0,
) -> Node:
    """Product of quantised matrices: sum of (a - za) sa (b - zb) sb, summed in exact integers.

    Args:
        a: i8 or u8 ``[..., M, K]``.
        b: i8 or u8 ``[..., K, N]``.
        a_scale: A number, or one per row ``[M]``; a node or an array.
        b_scale: A number, or one per column ``[N]``.
        a_zero_point: The integer that stands for 0 in ``a``: a number or ``[M]``.
        b_zero_point: The same for ``b``: a number or ``[N]``.

    Returns:
        f32 ``[..., M, N]``.
    """

def quantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand = 0,
    axis: int | None = None,
    dtype: DTypeLike = "i8",
) -> Node:
    """round(x / scale) + zero_point, held within the range of an 8-bit type.

    Args:
        x: Any shape.
        scale: A number, or one per entry of ``axis``; a node or an array.
        zero_point: The integer that stands for 0; the same shapes.
        axis: The axis that has scales of its own; None for one scale.
        dtype: "i8" or "u8".
    """

def dequantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand = 0,
    axis: int | None = None,
    dtype: DTypeLike = "f32",
) -> Node:
    """(x - zero_point) * scale: the inverse of ``quantize``, but for its rounding."""

def dequant_matmul(
    x: Operand,
    packed: Operand,
    scheme: str,
    scales: Operand | None = None,
    zeros: Operand | None = None,
) -> Node:
    """X @ W^T with block-quantised weights W, which stay packed in memory.

    Args:
        x: f32, f16 or bf16 ``[..., K]``.
        packed: u8 ``[N, bytes of a row]``: W ``[N, K]`` row by row in blocks along K, as a GGUF file
            holds it (``quantize_blocks`` makes such arrays).
        scheme: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K or Q8_K; or int4 (two
            codes a byte, the low half first) or int8 with scales of their own.
        scales: For int4 and int8: f32 or f16 ``[N, K / group]``, the group 16, 32, 64, 128 or 256.
        zeros: For int4 and int8: u8, f32 or f16 of the same shape, the code that stands for 0; 8 and
            128 if absent. A weight is (code - zero) * scale, codes unsigned.

    Returns:
        ``[..., N]``.
    """

def dequantize_blocks(
    packed: Operand,
    scheme: str,
    scales: Operand | None = None,
    zeros: Operand | None = None,
    rows: Operand | None = None,
) -> Node:
    """The f32 weights of packed blocks, or of some rows of them (an embedding look-up).

    Args:
        packed: u8 ``[..., bytes of a row]``.
        scheme: As for ``dequant_matmul``.
        scales: As there: ``[..., K / group]``.
        zeros: As there.
        rows: i32 or i64, any shape, with packed ``[V, bytes of a row]``: only these rows are decoded.
            Negative ones count from the end. One out of range is an ``InputError`` on the CPU;
            WebGPU takes the nearest row.

    Returns:
        f32 ``[..., K]``, or ``[*rows.shape, K]``. For the GGUF formats the very values that ggml
        computes.
    """

def einsum(equation: str, *xs: Operand) -> Node:
    """Sum of products over the axes that an equation names (NumPy's ``einsum``).

    Operands are joined from left to right, each pair by one batched product of matrices.

    Args:
        equation: One letter per axis, operands separated by commas, the result behind ``->``. A letter
            that the result lacks is summed over; one that an operand repeats takes its diagonal;
            ``...`` stands for axes that are broadcast.
        xs: The operands.
    """

def conv1d(
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Node:
    """Convolution (cross-correlation, as in ONNX) over 1 of 1 spatial axes.

    y[n, o, p] = bias[o] + sum over c, k of x[n, c, p * stride - before + k * dilation] * w[o, c, k]

    Args:
        x: ``[N, C, W]``.
        w: ``[O, C / groups, KW]``.
        bias: ``[O]``, or None for 0.
        stride: Distance between windows; an int or one per axis.
        padding: Zeros around x: an int, one per axis, a (before, after) pair per axis, or
            "same_upper" or "same_lower" for results of ceil(size / stride).
        dilation: Distance between taps; an int or one per axis.
        groups: Parts that the channels are split into; a part of x meets its part of w only.

    Returns:
        ``[N, O, ...]``, each size floor((size + before + after - (K - 1) * dilation - 1) / stride) + 1.
    """

def conv2d(
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Node:
    """Convolution (cross-correlation, as in ONNX) over 2 of 2 spatial axes.

    y[n, o, p] = bias[o] + sum over c, k of x[n, c, p * stride - before + k * dilation] * w[o, c, k]

    Args:
        x: ``[N, C, H, W]``.
        w: ``[O, C / groups, KH, KW]``.
        bias: ``[O]``, or None for 0.
        stride: Distance between windows; an int or one per axis.
        padding: Zeros around x: an int, one per axis, a (before, after) pair per axis, or
            "same_upper" or "same_lower" for results of ceil(size / stride).
        dilation: Distance between taps; an int or one per axis.
        groups: Parts that the channels are split into; a part of x meets its part of w only.

    Returns:
        ``[N, O, ...]``, each size floor((size + before + after - (K - 1) * dilation - 1) / stride) + 1.
    """

def conv3d(
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Node:
    """Convolution (cross-correlation, as in ONNX) over 3 of 3 spatial axes.

    y[n, o, p] = bias[o] + sum over c, k of x[n, c, p * stride - before + k * dilation] * w[o, c, k]

    Args:
        x: ``[N, C, D, H, W]``.
        w: ``[O, C / groups, KD, KH, KW]``.
        bias: ``[O]``, or None for 0.
        stride: Distance between windows; an int or one per axis.
        padding: Zeros around x: an int, one per axis, a (before, after) pair per axis, or
            "same_upper" or "same_lower" for results of ceil(size / stride).
        dilation: Distance between taps; an int or one per axis.
        groups: Parts that the channels are split into; a part of x meets its part of w only.

    Returns:
        ``[N, O, ...]``, each size floor((size + before + after - (K - 1) * dilation - 1) / stride) + 1.
    """

def conv_transpose1d(
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Node:
    """Transposed convolution over 1 spatial axes (ONNX's ConvTranspose).

    The gradient of ``conv1d`` with respect to its operand: entry p of x adds x[n, c, p] * w[c, o, k]
    to the result at p * stride - before + k * dilation.

    Args:
        x: ``[N, C, W]``.
        w: ``[C, O / groups, KW]``.
        bias: ``[O]``, or None for 0.
        stride: Distance in the result between the kernels of neighbours; an int or one per axis.
        padding: What is cut off the result: an int, one per axis, a (before, after) pair per axis, or
            "same_upper" or "same_lower" for results of size * stride.
        output_padding: Entries added at the end of each axis; an int or one per axis.
        dilation: Distance between taps; an int or one per axis.
        groups: Parts that the channels are split into.

    Returns:
        ``[N, O, ...]``, each size stride * (size - 1) + (K - 1) * dilation + 1 + output_padding -
        before - after.
    """

def conv_transpose2d(
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Node:
    """Transposed convolution over 2 spatial axes (ONNX's ConvTranspose).

    The gradient of ``conv2d`` with respect to its operand: entry p of x adds x[n, c, p] * w[c, o, k]
    to the result at p * stride - before + k * dilation.

    Args:
        x: ``[N, C, H, W]``.
        w: ``[C, O / groups, KH, KW]``.
        bias: ``[O]``, or None for 0.
        stride: Distance in the result between the kernels of neighbours; an int or one per axis.
        padding: What is cut off the result: an int, one per axis, a (before, after) pair per axis, or
            "same_upper" or "same_lower" for results of size * stride.
        output_padding: Entries added at the end of each axis; an int or one per axis.
        dilation: Distance between taps; an int or one per axis.
        groups: Parts that the channels are split into.

    Returns:
        ``[N, O, ...]``, each size stride * (size - 1) + (K - 1) * dilation + 1 + output_padding -
        before - after.
    """

def max_pool(
    x: Operand,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Node:
    """The largest element of each window; NaN where there is one. Padding never wins.

    Args:
        x: ``[N, C, ...]`` with one to three spatial axes.
        kernel: Size of a window; an int or one per axis.
        stride: Distance between windows; the kernel by default, so that they do not overlap.
        padding: An int, one per axis, a (before, after) pair per axis, "same_upper" or "same_lower".
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a window may hang over the end; it has to begin inside x or its padding.

    Returns:
        ``[N, C, ...]``, sizes as of a convolution, rounded up with ``ceil_mode``.
    """

def avg_pool(
    x: Operand,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Node:
    """The mean of each window.

    Args:
        x: ``[N, C, ...]`` with one to three spatial axes.
        kernel: Size of a window; an int or one per axis.
        stride: Distance between windows; the kernel by default.
        padding: An int, one per axis, a (before, after) pair per axis, "same_upper" or "same_lower".
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a window may hang over the end; it has to begin inside x or its padding.
        count_include_pad: Whether padding counts as zeros, or not at all. What hangs over the padding
            never counts.

    Returns:
        ``[N, C, ...]``, sizes as of ``max_pool``.
    """

def lp_pool(
    x: Operand,
    kernel: int | Sequence[int],
    p: float = 2,
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | Literal["same_upper", "same_lower"] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Node:
    """The norm (sum of abs(x) ** p) ** (1 / p) of each window.

    Args:
        x: ``[N, C, ...]`` with one to three spatial axes.
        kernel: Size of a window; an int or one per axis.
        p: The exponent, greater than 0.
        stride: Distance between windows; the kernel by default.
        padding: Zeros around x: an int, one per axis, a (before, after) pair per axis, "same_upper"
            or "same_lower".
        dilation: Distance between the elements of a window.
        ceil_mode: Whether a window may hang over the end; it has to begin inside x or its padding.

    Returns:
        ``[N, C, ...]``, sizes as of ``max_pool``.
    """

def global_max_pool(x: Operand) -> Node:
    """The largest element of each plane: ``[N, C, ...]`` to ``[N, C, 1, ...]``; NaN wins."""

def global_avg_pool(x: Operand) -> Node:
    """The mean of each plane: ``[N, C, ...]`` to ``[N, C, 1, ...]``."""

def global_lp_pool(x: Operand, p: float = 2) -> Node:
    """(sum of abs(x) ** p) ** (1 / p) of each plane: ``[N, C, ...]`` to ``[N, C, 1, ...]``."""

def attention(
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    kind: str = "none",
    num_heads: int | None = None,
    head_dim: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    num_kv_heads: int | None = None,
    layout: Literal["bhsd", "bshd"] = "bhsd",
) -> Node:
    """softmax(q k^T * scale + mask) v per head; the score matrix is never stored.

    Args:
        q: ``[B, Sq, H*D]``, or ``[B, H, Sq, D]`` (``[B, Sq, H, D]`` with ``layout="bshd"``).
        k: The same with Sk and the key-value heads.
        v: As ``k``; its head size may differ.
        mask: bool ``[B, Sk]``, True where visible, for ``kind="custom"``; float, broadcastable to
            ``[B, H, Sq, Sk]``, added to the scores, for ``kind="bias"``.
        kind: none, causal (offset by Sk - Sq), sliding:W (keys in [q - W, q]), custom or bias.
        num_heads: Needed for rank 3.
        head_dim: Checked against q where given.
        scale: 1 / sqrt(D) where None.
        softcap: c * tanh(score / c) before masking.
        num_kv_heads: Fewer heads of k and v, each shared by H / num_kv_heads query heads.
        layout: Axis order of rank 4 operands.

    A row that sees no key gives zeros.
    """

def rope(
    x: Operand,
    cos: Operand,
    sin: Operand,
    n_rot: int | None = None,
    style: Literal["neox", "gptj"] = "neox",
) -> Node:
    """Pairs of the last axis rotated by angles that depend on the position.

    Args:
        x: ``[..., positions, D]``.
        cos: Cosines, broadcast to ``[..., positions, n_rot / 2]``.
        sin: Sines, likewise.
        n_rot: How many entries are rotated, even; the rest stays as it is. None: all.
        style: Which entries make a pair: "neox" i and i + n_rot / 2, "gptj" 2i and 2i + 1.
    """

def axial_rope2d(
    x: Operand,
    height: int,
    width: int,
    theta: float = 10000.0,
    style: Literal["neox", "gptj"] = "neox",
) -> Node:
    """Rotary embedding of an image grid: half of the pairs turn with the row, half with the column.

    Args:
        x: ``[..., height * width, D]``, positions in row-major order, D divisible by 4.
        height: Rows of the grid.
        width: Columns.
        theta: Base of the frequencies theta^(-4i / D).
        style: As in ``rope``.
    """

def lstm(
    x: Operand,
    w: Operand,
    r: Operand,
    b: Operand | None = None,
    h0: Operand | None = None,
    c0: Operand | None = None,
    seq_lens: Operand | None = None,
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    layout: Literal["seq_first", "batch_first"] = "seq_first",
    p: Operand | None = None,
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Node, Node, Node]:
    """Long short-term memory (Hochreiter & Schmidhuber 1997), with ONNX's gates i, o, f, c.

    D is 2 for "bidirectional", else 1; H the number of hidden units.

    Args:
        x: ``[T, B, I]``; ``[B, T, I]`` with layout "batch_first".
        w: ``[D, 4 * H, I]``, weights of the inputs.
        r: ``[D, 4 * H, H]``, recurrent weights.
        b: ``[D, 8 * H]``, biases of the inputs, then the recurrent ones; None for 0.
        h0: ``[D, B, H]`` (batch_first: ``[B, D, H]``), hidden state before the first step, or None.
        c0: The same for the cell state.
        seq_lens: Integers ``[B]``: steps of each sequence; None for T. y is 0 after them, and the
            reverse direction begins at the last of them. Without any, the states stay.
        direction: forward, reverse or bidirectional.
        layout: seq_first or batch_first.
        p: ``[D, 3 * H]``, peephole weights of the gates i, o, f, or None.
        clip: Largest magnitude of what goes into an activation; 0 for no bound.
        input_forget: Whether the forget gate is 1 - i.

    Returns:
        y ``[T, D, B, H]`` (batch_first: ``[B, T, D, H]``) and the last h and c, of the shape of h0.
    """

def gru(
    x: Operand,
    w: Operand,
    r: Operand,
    b: Operand | None = None,
    h0: Operand | None = None,
    seq_lens: Operand | None = None,
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    layout: Literal["seq_first", "batch_first"] = "seq_first",
    linear_before_reset: bool = False,
    clip: float = 0.0,
) -> tuple[Node, Node]:
    """Gated recurrent unit (arXiv:1406.1078), with ONNX's gates z, r, h.

    D is 2 for "bidirectional", else 1; H the number of hidden units.

    Args:
        x: ``[T, B, I]``; ``[B, T, I]`` with layout "batch_first".
        w: ``[D, 3 * H, I]``, weights of the inputs.
        r: ``[D, 3 * H, H]``, recurrent weights.
        b: ``[D, 6 * H]``, biases of the inputs, then the recurrent ones; None for 0.
        h0: ``[D, B, H]`` (batch_first: ``[B, D, H]``), hidden state before the first step, or None.
        seq_lens: Integers ``[B]``: steps of each sequence; None for T. y is 0 after them, and the
            reverse direction begins at the last of them. Without any, the states stay.
        direction: forward, reverse or bidirectional.
        layout: seq_first or batch_first.
        linear_before_reset: Whether the reset gate acts on the recurrent product (as in cuDNN and
            PyTorch) instead of on the state.
        clip: Largest magnitude of what goes into an activation; 0 for no bound.

    Returns:
        y ``[T, D, B, H]`` (batch_first: ``[B, T, D, H]``) and the last h, of the shape of h0.
    """

def rnn(
    x: Operand,
    w: Operand,
    r: Operand,
    b: Operand | None = None,
    h0: Operand | None = None,
    seq_lens: Operand | None = None,
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    layout: Literal["seq_first", "batch_first"] = "seq_first",
    activation: Literal["tanh", "relu"] = "tanh",
    clip: float = 0.0,
) -> tuple[Node, Node]:
    """Simple recurrent layer: h = activation(x @ w^T + h @ r^T + biases) (Elman 1990).

    D is 2 for "bidirectional", else 1; H the number of hidden units.

    Args:
        x: ``[T, B, I]``; ``[B, T, I]`` with layout "batch_first".
        w: ``[D, H, I]``, weights of the inputs.
        r: ``[D, H, H]``, recurrent weights.
        b: ``[D, 2 * H]``, biases of the inputs, then the recurrent ones; None for 0.
        h0: ``[D, B, H]`` (batch_first: ``[B, D, H]``), hidden state before the first step, or None.
        seq_lens: Integers ``[B]``: steps of each sequence; None for T. y is 0 after them, and the
            reverse direction begins at the last of them. Without any, the states stay.
        direction: forward, reverse or bidirectional.
        layout: seq_first or batch_first.
        activation: tanh or relu.
        clip: Largest magnitude of what goes into the activation; 0 for no bound.

    Returns:
        y ``[T, D, B, H]`` (batch_first: ``[B, T, D, H]``) and the last h, of the shape of h0.
    """

def selective_scan(
    x: Operand,
    delta: Operand,
    a: Operand,
    b: Operand,
    c: Operand,
    d: Operand | None = None,
) -> Node:
    """The recurrence of Mamba (arXiv:2312.00752, section 3): a linear state space model per channel.

    h = exp(delta * a) * h + delta * b * x, from h = 0; y = sum over the states of c * h, plus d * x. A
    state of 0 adds 0, also where the exponential overflows.

    Args:
        x: ``[B, L, D]``: L steps of D channels.
        delta: ``[B, L, D]``, step sizes.
        a: ``[D, N]``, what makes the N states of a channel decay.
        b: ``[B, L, N]``, how x enters the states.
        c: ``[B, L, N]``, how the states make y.
        d: ``[D]``, how x goes straight to y, or None for 0.

    Returns:
        y, ``[B, L, D]``.
    """

def if_(cond: Operand, then_graph: Graph, else_graph: Graph, *xs: Operand) -> Any:
    """The results of one of two subgraphs.

    The CPU computes only the branch that is taken. WebGPU computes both and selects, since skipping one
    would mean reading the condition back.

    Args:
        cond: A bool scalar.
        then_graph: Taken when it is true.
        else_graph: Taken when it is false; results of the same shapes and dtypes.
        *xs: Operands of both.

    Returns:
        One result, or a tuple of them.

    Example:
        >>> import rlx
        >>> double, half = rlx.Graph("double"), rlx.Graph("half")
        >>> double.set_outputs([double.input("x", (2,)) * 2.0])
        >>> half.set_outputs([half.input("x", (2,)) * 0.5])
        >>> g = rlx.Graph()
        >>> x = g.input("x", (2,))
        >>> g.if_(g.sum(x) > 0.0, double, half, x).shape
        (2,)
    """

def while_(cond_graph: Graph, body_graph: Graph, *xs: Operand, max_trips: int | None = None) -> Any:
    """State that a subgraph changes for as long as another says so.

    Args:
        cond_graph: State -> a bool scalar, asked before each trip.
        body_graph: State -> state of the same shapes and dtypes.
        *xs: The state at the start.
        max_trips: Stop after this many trips in any case; None for no bound.

    Returns:
        The state at the end: one result, or a tuple of them.

    Example:
        >>> import rlx
        >>> below, double = rlx.Graph("below 100"), rlx.Graph("double")
        >>> below.set_outputs([below.max(below.input("x", (2,))) < 100.0])
        >>> double.set_outputs([double.input("x", (2,)) * 2.0])
        >>> g = rlx.Graph()
        >>> g.while_(below, double, g.input("x", (2,))).shape
        (2,)
    """

def scan(body_graph: Graph, carried: int, *xs: Operand, reverse: bool = False) -> Any:
    """A subgraph run along the first axis of sequences, with state carried from step to step.

    Args:
        body_graph: (state, one entry of every sequence) -> (state, results of the step).
        carried: How many of the operands are state.
        *xs: The state at the start, then the sequences, of one length.
        reverse: Go from the last entry to the first; results keep their entries' places.

    Returns:
        The state at the end, then the steps' results stacked along a new first axis: one result, or a
        tuple of them.

    Example:
        >>> import rlx
        >>> body = rlx.Graph("running sum")
        >>> total = body.input("total", (3,)) + body.input("x", (3,))
        >>> body.set_outputs([total, total])
        >>> g = rlx.Graph()
        >>> last, sums = g.scan(body, 1, g.input("start", (3,)), g.input("xs", (5, 3)))
        >>> sums.shape
        (5, 3)
    """

def fft(
    x: Operand,
    inverse: bool = False,
    norm: Literal["backward", "ortho", "forward"] = "backward",
) -> Node:
    """1-D discrete Fourier transform over the last axis, any length N >= 1.

    Args:
        x: ``[..., 2N]`` in block layout: N real parts, then N imaginary parts.
        inverse: The inverse transform.
        norm: NumPy's: "backward" scales the inverse by 1/N, "ortho" both by 1/sqrt(N), "forward"
            the forward one by 1/N.

    Returns:
        The transform in the same layout. Error: ||out - ref|| / ||ref|| <= 4e-7 log2 N + 2e-7 in f32.
    """

def rfft(x: Operand, norm: Literal["backward", "ortho", "forward"] = "backward") -> Node:
    """The one-sided discrete Fourier transform of real samples over the last axis, any length.

    Args:
        x: ``[..., n]``, n >= 1.
        norm: NumPy's: "backward" does not scale, "ortho" scales by 1/sqrt(n), "forward" by 1/n.

    Returns:
        ``[..., 2 (n // 2 + 1)]``: the real parts of the bins 0 to n // 2, then their imaginary
        parts. The error is that of ``fft``.
    """

def welch_peaks(spec: Operand, k: int, n_segments: int) -> Node:
    """The k strongest bins of Welch's averaged periodogram (Welch 1967).

    Args:
        spec: f32 ``[outer, 2 * n_fft]``, spectra in block layout; ``n_segments`` consecutive rows
            are the segments of one signal.
        k: Bins kept, at most ``n_fft // 2 + 1``.
        n_segments: Segments per signal; divides ``outer``.

    Returns:
        f32 ``[outer / n_segments, 2 * k]``: (bin, power) pairs, power descending, ties to the lower
        bin. Power is the mean over the segments of w * (re^2 + im^2), w = 1 for the first and the
        last bin and 2 between (one-sided).
    """

def log_mel(spec: Operand, filters: Operand, floor_axes: Literal["last", "all"] = "last") -> Node:
    """Log-mel features of spectra, as speech models take them (Radford et al. 2022, appendix).

    Args:
        spec: f32 ``[..., 2 * n_fft]`` in block layout.
        filters: f32 ``[n_mels, n_fft // 2 + 1]``.
        floor_axes: Where the maximum for the floor is taken: "last" per frame, "all" over everything.

    Returns:
        f32 ``[..., n_mels]``: (max(L, max(L) - 8) + 4) / 4 with L = log10(max(filters @ power, 1e-10)).
    """

def log_mel_backward(
    spec: Operand,
    filters: Operand,
    dy: Operand,
    floor_axes: Literal["last", "all"] = "last",
) -> Node:
    """Gradient of ``log_mel`` with respect to the spectrum, the maximum held constant.

    Args:
        spec: f32 ``[..., 2 * n_fft]`` in block layout.
        filters: f32 ``[n_mels, n_fft // 2 + 1]``.
        dy: f32 ``[..., n_mels]``, gradient of the result of ``log_mel``.
        floor_axes: As for ``log_mel``.

    Returns:
        f32 like ``spec``. With m = filters @ power, dm = dy / (4 ln(10) m), and 0 where the clamp or
        the floor decided; d re = 2 re (dm @ filters), d im the same; 0 in the upper bins.
    """

def sosfilt(
    x: Operand,
    sos: Numbers,
    zi: Operand | None = None,
    count: Operand | None = None,
) -> tuple[Node, Node]:
    """A cascade of second-order sections along the last axis (``scipy.signal.sosfilt``).

    Args:
        x: ``[..., n]``.
        sos: ``[sections, 6]`` numbers: b0, b1, b2, 1, a1, a2 of each section.
        zi: ``[sections, ..., 2]``, the state before the first sample; 0 when absent.
        count: i32 ``[1]``: how many samples, 0 to n, are filtered; all when absent. The results after
            them are 0, and the state is the one after the last of them.

    Returns:
        The filtered signal, like ``x``, and the state after the last sample, like ``zi``. The CPU
        recurses in double precision; WebGPU in f32, with an error of about 1e-7 / (1 - r)^2 for
        poles of radius r.
    """

def lfilter(
    b: Numbers,
    a: Numbers,
    x: Operand,
    zi: Operand | None = None,
    count: Operand | None = None,
) -> tuple[Node, Node]:
    """A recursive filter along the last axis (``scipy.signal.lfilter``).

    Args:
        b: Numerator coefficients.
        a: Denominator coefficients; a[0] is not 0.
        x: ``[..., n]``.
        zi: ``[..., max(len(a), len(b)) - 1]``, the state before the first sample; 0 when absent.
        count: i32 ``[1]``: how many samples, 0 to n, are filtered; all when absent. The results after
            them are 0, and the state is the one after the last of them.

    Returns:
        The filtered signal, like ``x``, and the state after the last sample, like ``zi``. Precision
        is that of ``sosfilt``; high orders are better filtered in sections.
    """

def find_peaks(
    x: Operand,
    height: float | tuple[float | None, float | None] | None = None,
    distance: float | None = None,
    prominence: float | tuple[float | None, float | None] | None = None,
    width: float | tuple[float | None, float | None] | None = None,
    max_peaks: int | None = None,
) -> tuple[Node, Node, Node]:
    """Local maxima along the last axis, as ``scipy.signal.find_peaks`` defines them.

    A maximum is a sample, or the middle of a run of equal samples, with smaller neighbours on both
    sides. The conditions are applied in the order of the parameters.

    Args:
        x: ``[..., n]``.
        height: Least value of a peak, or a pair (least, largest).
        distance: Least distance between peaks, >= 1; smaller peaks go first, of equal ones the
            earlier.
        prominence: Least drop on both sides before a larger sample, or a pair.
        width: Least width in samples at half the prominence, or a pair.
        max_peaks: Peaks that the result has room for; all that could be by default.

    Returns:
        Indices i32 ``[..., max_peaks]`` in rising order, -1 where there is no peak; the number of
        peaks found i32 ``[...]``, which may be more than there is room for; their prominences.
    """

def custom(name: str, inputs: Sequence[Operand], attrs: Mapping[str, Any] | None = None) -> Any:
    """An operation registered with ``rlx.register_custom_op``.

    Args:
        name: The name it is registered under.
        inputs: A list of operands.
        attrs: Its attributes, a dict of numbers and strings.

    Returns:
        One result, or a tuple of them.

    Raises:
        UnknownNameError: Nothing is registered under the name.

    Example:
        >>> import rlx
        >>> _ = rlx.register_custom_op("square", shape=lambda x: x, numpy=lambda x: x * x)
        >>> g = rlx.Graph()
        >>> g.custom("square", [g.input("x", (2, 3))]).shape
        (2, 3)
    """

def stft(
    x: Operand,
    n_fft: int,
    hop: int,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    pad_mode: Literal["reflect", "constant", "edge"] = "reflect",
) -> Node:
    """Short-time Fourier transform along the last axis; see ``rlx.signal.stft``.

    Args:
        x: ``[..., samples]``.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        window: A name, a tuple of a name and its parameters, or ``n_fft`` samples.
        center: Whether frame f is centred on sample f * hop.
        pad_mode: How ``center`` continues x: "reflect", "constant" or "edge".

    Returns:
        ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.
    """

def istft(
    spec: Operand,
    n_fft: int,
    hop: int,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    length: int | None = None,
) -> Node:
    """The signal of a short-time Fourier transform; see ``rlx.signal.istft``.

    Args:
        spec: ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next, at most ``n_fft``.
        window: The window of the ``stft``.
        center: The ``center`` of the ``stft``.
        length: Samples wanted.

    Returns:
        ``[..., length]``.
    """
