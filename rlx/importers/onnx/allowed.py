"""The legal values of operators' attributes, if their documentation lists them by name or operator.

Runtimes interpret other values differently, so the file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlx.errors import ImportModelError
from rlx.importers.onnx.schema import Attribute

# 0 or 1, in every operator that has one.
FLAGS = frozenset(
    "align_corners allowzero antialias causal ceil_mode center_point_box channels_last count_include_pad "
    "detect_negative detect_positive do_rotary exclude_outside exclusive fmod input_forget interleaved inverse "
    "is_bidirectional is_causal is_inner_broadcast keepdims largest layout linear_before_reset new_axis "
    "noop_with_empty_axes one_class onesided past_present_share_buffer periodic reverse rotary_interleaved "
    "saturate select_last_index sorted spatial storage_order training_mode transA transB transBatchA "
    "transBatchB unidirectional upper".split()
)
_SCATTER = ("none", "add", "mul", "max", "min")
_LOSS = ("none", "mean", "sum")
# Texts, by name or by operator and name.
TEXTS: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""),
    "kernel_type": ("LINEAR", "POLY", "RBF", "SIGMOID"),
    "norm": ("MAX", "L1", "L2"),
    "post_transform": ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"),
    "aggregate_function": ("AVERAGE", "SUM", "MIN", "MAX"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "padding_mode": ("zeros", "border", "reflection"),
    "round_mode": ("up", "down", "nearest"),
    "BitShift.direction": ("LEFT", "RIGHT"),
    "DepthToSpace.mode": ("DCR", "CRD"),
    **{f"{op}.direction": ("forward", "reverse", "bidirectional") for op in ("GRU", "LSTM", "RNN")},
    "NegativeLogLikelihoodLoss.reduction": _LOSS,
    "Pad.mode": ("constant", "reflect", "edge", "wrap"),
    "RoiAlign.coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    "RoiAlign.mode": ("avg", "max"),
    "ScatterElements.reduction": _SCATTER,
    "ScatterND.reduction": _SCATTER,
    "SoftmaxCrossEntropyLoss.reduction": _LOSS,
    "SpaceToDepth.mode": ("DCR", "CRD"),
    "TensorScatter.mode": ("linear", "circular"),
}
# Integers: a test, and what it asks for.
_POSITIVE: tuple[Callable[[int], bool], str] = (lambda i: i > 0, "at least 1")
_NOT_NEGATIVE: tuple[Callable[[int], bool], str] = (lambda i: i >= 0, "at least 0")
_PADDED = (
    "AveragePool", "Conv", "ConvInteger", "ConvTranspose", "FusedConv", "LpPool", "MaxPool", "NhwcMaxPool",
    "QLinearAveragePool", "QLinearConv",
)  # fmt: skip
_SIZES = (
    "blocksize group hidden_size kernel_shape num_groups num_outputs offset_group strides dilations LRN.size "
    "num_heads kv_num_heads MatMulNBits.block_size MatMulNBits.K MatMulNBits.N n_targets targets LpPool.p "
    "GlobalLpPool.p"
).split()
INTEGERS: dict[str, tuple[Callable[[int], bool], str]] = {
    **dict.fromkeys(_SIZES, _POSITIVE),
    **{f"{op}.pads": _NOT_NEGATIVE for op in _PADDED},
    "RotaryEmbedding.num_heads": _NOT_NEGATIVE,
    "block_size": _NOT_NEGATIVE,
    "TreeEnsemble.post_transform": (lambda i: 0 <= i < 5, "0 to 4"),
    "TreeEnsemble.aggregate_function": (lambda i: 0 <= i < 4, "0 to 3"),
    "smooth_softmax": (lambda i: i in (-1, 0, 1), "-1, 0 or 1"),
    "qk_output": (lambda i: i in (0, 1, 2), "0, 1 or 2"),
    "local_window_size": (lambda i: i == -1 or i > 0, "-1 or at least 1"),
    "LpNormalization.p": (lambda i: i in (1, 2), "1 or 2"),
} | {name: (lambda i: i in (0, 1), "0 or 1") for name in FLAGS}


def check(op: str, attributes: Mapping[str, Attribute]) -> None:
    """Refuses attributes of an operator that mean nothing.

    Raises:
        ImportModelError: An attribute has a value that its operator does not define.
    """
    for name, attribute in attributes.items():
        texts = TEXTS.get(f"{op}.{name}", TEXTS.get(name))
        if texts is not None and attribute.s is not None:
            text = bytes(attribute.s.view).decode(errors="replace")
            if text not in texts:
                raise _wrong(name, repr(text), ", ".join(map(repr, texts)))
        known = INTEGERS.get(f"{op}.{name}", INTEGERS.get(name))
        if known is None:
            continue
        good, expected = known
        result = [] if attribute.i is None else [attribute.i]
        if attribute.ints is not None:
            result += attribute.ints.tolist()
        for number in result:
            if not good(int(number)):
                raise _wrong(name, number, expected)


def _wrong(name: str, got: object, expected: str) -> ImportModelError:
    return ImportModelError(f"attribute {name!r} has no such value", got=got, expected=expected)
