"""The differences between rlx and ONNX Runtime, with reasons; docs/explanation/differences.md tells users the same."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class AcceptedDifference(NamedTuple):
    """A difference that is accepted.

    Attributes:
        outcome: "differ" or "only rlx runs".
        ops: Operators, separated by spaces; "" for all.
        says: Found in the text of the outcome.
        why: The reason; it stands in the documentation word for word.
        when: What else has to hold for the model.
        within: How far apart the first two different numbers may be, as a part of the expected one.
    """

    outcome: str
    ops: str
    says: str
    why: str
    when: Callable[..., bool] = lambda case: True
    within: float = math.inf


def several(case):
    return len(case.ops) > 1


def empty(case):
    """An operand is empty, or may be within the model."""
    return several(case) or any(array.size == 0 for array in case.operands())


def given_empty(case):
    return any(array.size == 0 for array in case.operands())


def not_finite(case):
    """An operand is NaN or infinite, or may be within the model."""
    arrays = [array for array in case.operands() if array.dtype.kind == "f"]
    return several(case) or not all(np.isfinite(array).all() for array in arrays)


def attribute(name, value=None):
    """A node has an attribute, with a value where one is named."""

    def has_attribute(case):
        arguments = [
            item for node in case.proto.graph.node for item in node.attribute if item.name == name
        ]
        return any(value is None or item.i == value for item in arguments)

    return has_attribute


def large_alpha(case):
    """A node has a large alpha, by which the numbers of its operand are divided."""
    arguments = [
        item for node in case.proto.graph.node for item in node.attribute if item.name == "alpha"
    ]
    return any(abs(item.f) > 1e3 for item in arguments)


def gaps_with_same_padding(case):
    """Windows of a node are smaller than the distance from one to the next, and auto_pad asks for padding."""
    for node in case.proto.graph.node:
        inputs = {item.name: item for item in node.attribute}
        if {"auto_pad", "strides", "kernel_shape"} <= inputs.keys() and inputs[
            "auto_pad"
        ].s.startswith(b"SAME"):
            sizes, steps = inputs["kernel_shape"].ints, inputs["strides"].ints
            dilations = inputs["dilations"].ints if "dilations" in inputs else [1] * len(sizes)
            reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=False)]
            if any(step > n for step, n in zip(steps, reach, strict=False)):
                return True
    return False


def far_below_zero(case):
    """An operand has numbers below -3, or may have within the model."""
    arrays = [array for array in case.operands() if array.dtype.kind == "f"]
    return several(case) or any((array < -3).any() for array in arrays)


def small_bias(case):
    """A bias is so small that sums of squares beside it are small as well."""
    arguments = [
        item for node in case.proto.graph.node for item in node.attribute if item.name == "bias"
    ]
    return any(abs(item.f) < 1e-3 for item in arguments)


def no_steps(case):
    """A sequence of a recurrent layer has no steps: one of the lengths is 0."""
    return any(array.dtype == np.int32 and not array.all() for array in case.operands())


def subnormal(case):
    """An operand has numbers below the normal range."""
    arrays = [array for array in case.operands() if array.dtype.kind == "f"]
    return any(
        ((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)).any() for array in arrays
    )


def complex_signal(case):
    """A signal has two numbers a sample, or may have within the model."""
    return several(case) or any(
        array.ndim == 3 and array.shape[-1] == 2 for array in case.operands()
    )


def kept_aspect_of_negative_axes(case):
    """A node keeps the aspect ratio of axes that it counts from the end."""
    for node in case.proto.graph.node:
        inputs = {item.name: item for item in node.attribute}
        if {"axes", "keep_aspect_ratio_policy"} <= inputs.keys() and min(inputs["axes"].ints) < 0:
            return True
    return False


def huge(case):
    """An operand is not finite or near the end of its range, or may be within the model."""
    arrays = [array for array in case.operands() if array.dtype.kind == "f"]
    return several(case) or any(
        not (np.abs(array) < np.sqrt(np.finfo(array.dtype).max)).all() for array in arrays
    )


def bias_of_integers(case):
    """A node's bias is added to integers, and is NaN, infinite, or takes unsigned ones below zero."""
    biases = [
        item.f for node in case.proto.graph.node for item in node.attribute if item.name == "bias"
    ]
    integers = [array for array in case.operands() if array.dtype.kind in "iu"]
    unsigned = any(array.dtype.kind == "u" for array in integers)
    return bool(integers) and any(not abs(item) < 2**31 or unsigned for item in biases)


def no_scale(case):
    """A scale is 0 or not finite."""
    arrays = [array for array in case.operands() if array.dtype.kind == "f"]
    return any(
        ((array == 0) | ~np.isfinite(array) | ~np.isfinite(1 / array)).any() for array in arrays
    )


def clip_of_zero(case):
    """A node clips its sums to 0."""
    return any(
        item.name == "clip" and item.f == 0
        for node in case.proto.graph.node
        for item in node.attribute
    )


def long_integers(case):
    """An operand has integers that f32 does not hold."""
    arrays = [array for array in case.operands() if array.dtype.kind in "iu"]
    return any((np.abs(array.astype("f8")) > 1 << 24).any() for array in arrays)


def of_f16(case):
    """An operand is of f16, or may be within the model."""
    return several(case) or any(array.dtype == np.float16 for array in case.operands())


REDUCTIONS = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare ArgMax ArgMin"
)
NORMS = "LayerNormalization RMSNormalization GroupNormalization InstanceNormalization BatchNormalization"
POOLS = "AveragePool MaxPool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool"
WINDOWS = "HannWindow HammingWindow BlackmanWindow"
APPROXIMATED = "Sigmoid Tanh Gelu Erf Swish SwiGLU Mish Softplus LSTM GRU RNN"
# Two nearly equal operands may give different results.
JUMPS = (
    "Gelu Cos Sin ArgMax ArgMin Hardmax TopK Unique NonZero Ceil Floor Round Sign Cast CastLike Less LessOrEqual Greater "
    "GreaterOrEqual Equal IsNaN IsInf Mod Acos Asin Acosh Atanh Log Sqrt Tan Reciprocal Div Pow ReduceLogSum Celu "
    "QuantizeLinear DynamicQuantizeLinear MeanVarianceNormalization LpNormalization Not And Or Xor Where Compress "
    "Size Shape NonMaxSuppression ThresholdedRelu Shrink OneHot ReduceLogSumExp " + NORMS
)

TABLE = (
    # --- other numbers ---
    AcceptedDifference("differ", "", "^sign of zero",
               "The sign of a result that is zero is not promised."),
    AcceptedDifference("differ", JUMPS, "^(values|NaN or infinity)",
               "Where an operation jumps (comparisons, rounding, positions, domains that end), the last bit of what "
               "stands before it decides.", when=several),
    AcceptedDifference("differ", "Unique NonZero Compress NonMaxSuppression", "^shape",
               "Where an operation jumps (comparisons, rounding, positions, domains that end), the last bit of what "
               "stands before it decides.", when=several),
    AcceptedDifference("differ", "ReduceMax ReduceMin ArgMax ArgMin Hardmax TopK Max Min MaxPool GlobalMaxPool Clip Relu Unique Sort NonMaxSuppression",
               "^(NaN or infinity|values)",
               "NaN counts as the largest and the smallest number, as in NumPy; in ONNX Runtime it depends on its place.", when=not_finite),
    AcceptedDifference("differ", REDUCTIONS, r"^shape|^values: -?9223372036854775808|^NaN or infinity: nan, not (0\.0|-?inf)",
               "Reductions of an empty tensor follow NumPy: the axes that are named are reduced, and the mean of nothing "
               "is NaN; ONNX Runtime leaves axes out and gives 0.", when=empty),
    AcceptedDifference("differ", REDUCTIONS + " Pow Cast CastLike", r"^values: \S*\d{9}.*, u?int|not -?\d{9}.*, u?int",
               "A float out of the range of an integer type has no integer; processors differ."),
    AcceptedDifference("differ", "Unique", "^shape", "NaN counts as the largest and the smallest number, as in NumPy; in ONNX Runtime it depends on its place.", when=not_finite),
    AcceptedDifference("differ", "TopK", "^values", "TopK is sorted, also where the file does not ask for it.", when=attribute("sorted", 0)),
    AcceptedDifference("differ", "LSTM GRU RNN", "^values.*not 0.0 ", "A sequence of no steps leaves its initial state as its last one.",
               when=no_steps),
    AcceptedDifference("differ", "LSTM GRU RNN", "^values", "A sequence of no steps leaves its initial state as its last one.",
               when=lambda case: several(case) and no_steps(case)),
    AcceptedDifference("differ", "Softmax LogSoftmax", "^(NaN or infinity|values)", "The softmax of a row with an infinite number is NaN, as in NumPy.", when=not_finite),
    AcceptedDifference("differ", "MeanVarianceNormalization", "^(NaN or infinity|values)", "MeanVarianceNormalization adds 1e-9 to the deviation, as the standard says: equal numbers give 0, not NaN."),
    AcceptedDifference("differ", "QLinearMatMul QLinearConv QuantizeLinear DequantizeLinear", "^(values|NaN or infinity)", "Quantisation by a scale of 0 or one that is not finite has no meaning.", when=no_scale),
    AcceptedDifference("differ", "MaxPool", "^values.*int8", "ONNX Runtime's MaxPool of 8-bit integers reads other windows where strides of the axes differ.", when=attribute("strides")),
    AcceptedDifference("differ", "DFT STFT", "^NaN or infinity",
               "A NaN in a signal reaches those results that its path through the transform reaches.", when=not_finite),
    AcceptedDifference("differ", "STFT", "^shape", "A complex signal has a whole spectrum, also where onesided is 1, its default.", when=complex_signal),
    AcceptedDifference("differ", "Resize", "^shape", "Negative indices count from the end wherever indices are taken.", when=kept_aspect_of_negative_axes),
    AcceptedDifference("differ", WINDOWS, "^(values|NaN or infinity)",
               "Windows are computed in f64; ONNX Runtime computes them in f32, and one of a single sample is NaN there."),
    AcceptedDifference("differ", "GroupNormalization Shrink Gelu DFT STFT Selu LpNormalization Resize GridSample RoiAlign", "^values.*float64",
               "Operations on f64 are computed in f64; ONNX Runtime computes some in f32, or with constants rounded to f32.", within=1e-3),
    AcceptedDifference("differ", "Shrink", "^values.*int",
               "What an integer becomes whose bias is NaN, or takes it out of its type, is not defined.", when=bias_of_integers),
    AcceptedDifference("differ", NORMS + " LpNormalization", "^values",
               "Norms of rows that are nearly constant divide a rounding error by its own size.", within=0.1),
    AcceptedDifference("differ", NORMS, "^values",
               "A variance of numbers whose squares overflow is found without their squares; ONNX Runtime's is infinite.", when=huge),
    AcceptedDifference("differ", "Gemm", "^values",
               "A product over no terms is 0, and Gemm adds beta times its third operand to it; ONNX Runtime leaves beta out.", when=empty),
    AcceptedDifference("differ", "MatMulInteger ConvInteger QLinearMatMul QLinearConv", "^values",
               "A product of 8-bit integers over no terms is 0; ONNX Runtime leaves the result as its memory was.", when=empty),
    AcceptedDifference("differ", "AveragePool LpPool MaxPool", "^(shape|values)",
               "Padding by auto_pad takes dilations into account, as the standard says; ONNX Runtime does not for average and norm pools.", when=attribute("dilations")),
    AcceptedDifference("differ", "LpPool MaxPool AveragePool", "^values",
               "Windows that are smaller than their distance are not padded by auto_pad, and begin at the first element; "
               "pools of ONNX Runtime begin later.", when=gaps_with_same_padding),
    AcceptedDifference("differ", "LSTM GRU RNN", "^values",
               "An operand without elements adds nothing to the states of a recurrence; ONNX Runtime leaves what its memory held.",
               when=given_empty),
    AcceptedDifference("differ", "Celu Elu Selu", "^values",
               "exp(x) - 1 is computed without cancelling, where alpha is large beside x.", when=large_alpha),
    AcceptedDifference("differ", "NonMaxSuppression", "^shape",
               "A box whose score is NaN is not taken; ONNX Runtime takes it where a threshold is given.", when=not_finite),
    AcceptedDifference("differ", "LRN", "^values",
               "Powers of small numbers are as precise as those of large ones; ONNX Runtime's LRN loses digits.", when=small_bias, within=0.05),
    AcceptedDifference("differ", "Gelu", "^values",
               "gelu of numbers far below 0 is computed without cancelling: 1 + erf(x) is nearly 0 there.", when=far_below_zero, within=0.5),
    AcceptedDifference("differ", "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", "^NaN or infinity",
               "Subnormal weights of classes count as 0, and a mean over weights of 0 is NaN.", when=subnormal),
    AcceptedDifference("differ", "ReduceLogSum Log", "^NaN or infinity: -inf", "The logarithm of a subnormal number is that of 0.", when=subnormal),
    AcceptedDifference("differ", "Gemm", "^values",
               "Subnormal operands count as 0, also where alpha brings their product into the normal range.", when=subnormal),
    AcceptedDifference("differ", "DynamicQuantizeLinear", "^values",
               "The scale of a tensor of zeros is 0, as the formula says; ONNX Runtime gives 1."),
    AcceptedDifference("differ", "OneHot", "^values",
               "Fractional indices of OneHot are cut to integers, as the standard says; ONNX Runtime looks for equal numbers."),
    AcceptedDifference("differ", "Celu Elu Selu", "^NaN or infinity",
               "Where alpha of an activation is 0 or NaN, positive numbers stay as they are."),
    AcceptedDifference("differ", "Dropout", "^values.*bool",
               "The mask of a Dropout that drops nothing is true; ONNX Runtime gives false in old operator sets."),
    AcceptedDifference("differ", "Split", "^(shape|values)",
               "A Split into more parts than it has outputs gives the first parts."),
    AcceptedDifference("differ", "Squeeze", "^shape",
               "Squeeze with an empty list of axes takes no axis away; ONNX Runtime takes all of size 1."),
    AcceptedDifference("differ", "Resize Upsample", "^values",
               "A Resize whose scale gives the size that there was interpolates; ONNX Runtime copies."),
    AcceptedDifference("differ", "ReduceLogSumExp ReduceLogSum", "^values.*int",
               "Logarithms of sums of integers are computed in f64, and cut to integers."),
    AcceptedDifference("differ", "ReduceLogSum ReduceSum ReduceMean Sum Mean", "^values",
               "Where large numbers cancel in a sum, what is left depends on the order in which they are added.", when=huge),
    AcceptedDifference("differ", "Pow", "^values", "Integers beyond 2**24 are rounded as exponents of f32.", when=long_integers),
    AcceptedDifference("differ", "LSTM GRU RNN", "^values", "A clip of 0 or less does not clip.", when=clip_of_zero),
    AcceptedDifference("differ", "QuantizeLinear", "^values.*int",
               "A quotient of f16 numbers is rounded once, to an integer; ONNX Runtime rounds it to f16 first.", when=of_f16),
    AcceptedDifference("differ", "", "^NaN or infinity",
               "Numbers near the end of the range overflow on the way, in an order that differs.", when=huge),
    AcceptedDifference("differ", "", "^values.*float64",
               "Operations on f64 are computed in f64; ONNX Runtime computes some in f32, or with constants rounded to f32.", within=1e-6),
    AcceptedDifference("differ", "Dropout", "^values", "A Dropout in training draws other random numbers."),
    AcceptedDifference("differ", "GridSample RoiAlign", "^values.*float16", "Places between pixels are computed in the type of the images, also in f16."),
    AcceptedDifference("differ", NORMS, "^NaN or infinity", "Norms of f64 are computed in f64, and equal numbers have a variance of exactly 0; ONNX Runtime may find a negative one."),
    AcceptedDifference("differ", APPROXIMATED, "^values", "ONNX Runtime approximates some functions; near 0 its results have fewer right digits.", within=1e-2),
    AcceptedDifference("differ", APPROXIMATED, r"^values: -?[\d.]+e-\d+, not -?(0\.0|[\d.]+e-\d+) ", "ONNX Runtime approximates some functions; near 0 its results have fewer right digits."),
    AcceptedDifference("differ", "GridSample", "^values", "A bicubic GridSample with padding by the border or by reflection moves the point into the image first, and takes its neighbours then.", when=attribute("padding_mode")),
    AcceptedDifference("differ", REDUCTIONS, "^values", "Reductions of an empty tensor follow NumPy: the axes that are named are reduced, and the mean of nothing "
               "is NaN; ONNX Runtime leaves axes out and gives 0.", when=given_empty),
    AcceptedDifference("differ", "GridSample RoiAlign", "^values", "Places that are not numbers, or far outside of an image, are no places in it.", when=huge),
    AcceptedDifference("differ", "Mod", "^values.*int64", "Remainders of 64-bit integers are exact; ONNX Runtime computes those of fmod in f64.", when=attribute("fmod", 1)),
    AcceptedDifference("differ", "ConvTranspose", "^shape", "With auto_pad a ConvTranspose gives size times stride, as the standard says; ONNX Runtime gives less where windows are smaller than strides.", when=attribute("auto_pad")),
    # --- what only rlx runs ---
    AcceptedDifference("only rlx runs", "Shape Size", "indices element out of data bounds", "An operation is not run where nothing needs its numbers, and its operands are not looked at."),
    AcceptedDifference("only rlx runs", "NonZero", "Incompatible dimensions", "A number that is not 0 has one place; the inference of shapes in ONNX Runtime leaves it none."),
    AcceptedDifference("only rlx runs", "DeformConv", "Bias B must be 1D", "A bias of any rank is taken that has one number for each channel."),
    AcceptedDifference("only rlx runs", "NonMaxSuppression", "iou_threshold must be in range",
               "A threshold of NonMaxSuppression is looked at where boxes may be taken; ONNX Runtime always refuses one beyond 0 to 1."),
    AcceptedDifference("only rlx runs", "Squeeze", "same length as the 'input' tensor",
               "Squeeze with an empty list of axes takes no axis away; ONNX Runtime takes all of size 1."),
    AcceptedDifference("only rlx runs", "RoiAlign", "must be finite", "Places that are not numbers, or far outside of an image, are no places in it."),
    AcceptedDifference("only rlx runs", "MatMul", "IsPrimitiveDataType", "Integer matrices of all types are multiplied."),
    AcceptedDifference("only rlx runs", "BatchNormalization", "NumDimensions|th dimension != ", "One number may come as a tensor of one element of any rank, and a list as one number."),
    AcceptedDifference("only rlx runs", POOLS, "out_size >= 0|ComputeOutputSize", "A pool whose windows hang over the end has as many as begin inside."),
    AcceptedDifference("only rlx runs", POOLS, "padding values must be non-negative", "auto_pad adds nothing where strides are longer than windows; ONNX Runtime computes a padding below 0 and refuses it."),
    AcceptedDifference("only rlx runs", "QLinearConv", "ComputeOutputScale", "One number may come as a tensor of one element of any rank, and a list as one number."),
    AcceptedDifference("only rlx runs", "", "output size . not in allowed", "A BatchNormalization in training mode may give its first output alone."),
    AcceptedDifference("only rlx runs", "BatchNormalization MelWeightMatrix", "expected to have rank|must be scalar|be scalar", "One number may come as a tensor of one element of any rank, and a list as one number."),
    AcceptedDifference("only rlx runs", "Tile", "supported maximum of 4294967296 bytes", "Nothing repeated any number of times is nothing; ONNX Runtime counts the repeats alone."),
    AcceptedDifference("only rlx runs", "Clip", "min_ <= max_", "A Clip whose least number is above the largest gives the largest."),
    AcceptedDifference("only rlx runs", "DFT", "greater than zero", "Operations on empty tensors give what NumPy gives.", when=empty),
    AcceptedDifference("only rlx runs", "Pad ScatterElements ScatterND Reshape PRelu " + REDUCTIONS + " " + POOLS, "", "Operations on empty tensors give what NumPy gives.", when=empty),
    AcceptedDifference("only rlx runs", "MaxUnpool", "output dimension is not positive", "Operations on empty tensors give what NumPy gives."),
    AcceptedDifference("only rlx runs", "ConvTranspose", "Dimension mismatch in unification|Incompatible dimensions", "Any output padding and output shape of a ConvTranspose is met with zeros or by cutting off.", when=attribute("output_shape")),
    AcceptedDifference("only rlx runs", "DeformConv MaxUnpool AffineGrid RotaryEmbedding Col2Im QLinearConv BatchNormalization",
               "at least one element|IsValidQuantParam|Dimension mismatch in unification|expected to have the same shape|must only contain positive values|must be positive|is not positive|Offset channel count|expected to have rank", "Operations on empty tensors give what NumPy gives.", when=empty),
    AcceptedDifference("differ", NORMS, "^shape", "Operations on empty tensors give what NumPy gives.", when=empty),
    AcceptedDifference("only rlx runs", "ReverseSequence", "Invalid time_axis|Invalid batch_axis", "Sequences may be reversed along any axis."),
    AcceptedDifference("only rlx runs", NORMS, "Missing Input", "Operations on empty tensors give what NumPy gives.", when=empty),
    AcceptedDifference("only rlx runs", "PRelu", "Attempting to broadcast|BroadcastIterator|Incompatible dimensions", "The slopes of a PRelu may be a list of one for each channel."),
    AcceptedDifference("only rlx runs", "MelWeightMatrix", "InsertedPrecisionFreeCast", "Operands of mixed types are taken where the schema allows them; ONNX Runtime's own expansion of some operators is ill-typed."),
    AcceptedDifference("only rlx runs", "Conv ConvTranspose ConvInteger QLinearConv DeformConv MaxPool AveragePool LpPool MaxUnpool Col2Im", "has incorrect size",
               "An empty list of strides, dilations, pads or kernel sizes is the same as none."),
    AcceptedDifference("only rlx runs", "Pad CenterCropPad", "PadImpl|ParseData type mismatch|pad.cc|Pad reflect",
               "Pad takes all types, 32-bit axes, and mirrors an axis of a single element as NumPy does."),
    AcceptedDifference("only rlx runs", "Pad", "zero effective input extent", "Pad crops an axis to nothing in any mode."),
    AcceptedDifference("only rlx runs", "LSTM GRU RNN", "clip_ > 0", "A clip of 0 or less does not clip."),
    AcceptedDifference("only rlx runs", "LSTM GRU RNN ReverseSequence", "sequence_lens|sequence length", "Lengths of sequences are held between 0 and the number of steps."),
    AcceptedDifference("only rlx runs", "Dropout", "ratio", "The ratio of a Dropout that drops nothing is not looked at."),
    AcceptedDifference("only rlx runs", "MatMulInteger", "QuantParamSupported", "A zero point may be given for every row or column."),
    AcceptedDifference("only rlx runs", "MelWeightMatrix", "CreateMelWeightMatrix", "Edges of a mel matrix may lie past half the sample rate: what is past it has no bins."),
    AcceptedDifference("only rlx runs", "RoiAlign", "batch_indices value", "A region that reads nothing may be of any image."),
    AcceptedDifference("only rlx runs", "MaxUnpool", "smaller than minimum", "The result of MaxUnpool may be smaller along an axis than what was pooled."),
    AcceptedDifference("only rlx runs", "ConvTranspose", "Bias shape is not compatible", "One number may come as a tensor of one element of any rank, and a list as one number."),
    AcceptedDifference("only rlx runs", "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", "expected to have rank 1|rank must be 1", "One number may come as a tensor of one element of any rank, and a list as one number."),
    AcceptedDifference("only rlx runs", "Scatter ScatterElements ScatterND", r"out of data bounds.*\[0,-1\]", "Nothing may be scattered into nothing."),
    AcceptedDifference("only rlx runs", "RoiAlign", "SafeInt", "Regions far outside of an image are sampled as they are."),
    AcceptedDifference("only rlx runs", "Compress", "rank >= 1", "One number may come as a tensor of one element of any rank, and a list as one number."),
    AcceptedDifference("only rlx runs", "Gemm", "bias shape", "A third operand of Gemm that beta = 0 takes away is not looked at.", when=attribute("beta")),
    AcceptedDifference("only rlx runs", "Col2Im", "positive multiple", "Operations on empty tensors give what NumPy gives."),
    AcceptedDifference("only rlx runs", "Clip Dropout Range Trilu TopK CumSum CumProd HannWindow HammingWindow BlackmanWindow NonMaxSuppression Upsample Pad Resize ConstantOfShape OneHot DequantizeLinear QuantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger TensorScatter Reshape Expand Tile DFT STFT",
               "scalar|has rank|must have rank|1D|1-D|one element|size 1|valid input shape|one-dim|IsScalar|single element",
               "One number may come as a tensor of one element of any rank, and a list as one number."),
    AcceptedDifference("only rlx runs", "Div Mod", "by zero",
               "Integers divided by zero give 0."),
    AcceptedDifference("only rlx runs", "Mod", "fmod",
               "Mod of floats without fmod has the sign of the divisor."),
    AcceptedDifference("only rlx runs", POOLS + " MaxUnpool", "pads_?\\[|[Pp]ad should be smaller",
               "Padding may be as wide as a window: a window of padding alone gives the least number, 0 or NaN."),
    AcceptedDifference("only rlx runs", "", r"Type Error: Type parameter|INVALID_GRAPH.*Type Error|bound to different types",
               "Operands of mixed types are taken where the schema allows them; ONNX Runtime's own expansion of some operators is ill-typed."),
    AcceptedDifference("only rlx runs", "Resize Upsample", "upsamplebase|ScalesValidation|exclude_outside|antialias|scales|sizes",
               "Any axes are resized in any mode, also upwards and downwards at once."),
    AcceptedDifference("only rlx runs", "Resize", "Tensor type mismatch",
               "The region of a Resize may be in any type of float."),
    AcceptedDifference("only rlx runs", "LRN", "lrn|SafeInt|Failed to allocate",
               "LRN takes any rank, size, alpha and beta."),
    AcceptedDifference("only rlx runs", "RNN GRU LSTM", "hidden_size|activations",
               "The hidden size is that of the weights, and one list of activations serves both directions."),
    AcceptedDifference("only rlx runs", "Split", "Invalid num_outputs|does not match num_outputs|Neither 'split'|Mismatch between number of splits",
               "A Split without sizes is into as many parts as it has outputs, in every operator set, and trailing parts may have no output."),
    AcceptedDifference("only rlx runs", "Split", "evenly splittable",
               "The last part of a Split may be smaller in every operator set."),
    AcceptedDifference("only rlx runs", "ScatterND ScatterElements", "dimension has size 0",
               "Nothing may be scattered into nothing."),
    AcceptedDifference("only rlx runs", "Max Min Sum Mean", "shape was false|same shape",
               "Max and Min broadcast in every operator set."),
    AcceptedDifference("only rlx runs", "Flatten Gather Concat Split Softmax LogSoftmax Hardmax ArgMax ArgMin Squeeze Unsqueeze TopK OneHot " + REDUCTIONS, "axis|axes|attribute k",
               "Negative axes and k = 0 are taken in every operator set."),
    AcceptedDifference("only rlx runs", "Slice GatherND GatherElements ScatterND", "scalars|rank larger",
               "A scalar may be sliced along no axes."),
    AcceptedDifference("only rlx runs", WINDOWS, "greater than 0",
               "A window of no samples is empty."),
    AcceptedDifference("only rlx runs", "Conv ConvInteger QLinearConv", "Dilation not supported",
               "Dilated convolutions may have auto_pad."),
    AcceptedDifference("only rlx runs", "ConvTranspose", "output_padding|output_shape",
               "Any output padding and output shape of a ConvTranspose is met with zeros or by cutting off."),
    AcceptedDifference("only rlx runs", "Conv ConvInteger QLinearConv ConvTranspose", "auto_pad == AutoPadType|simultaneously with auto_pad",
               "Pads of zero may stand beside auto_pad."),
    AcceptedDifference("only rlx runs", "BatchNormalization", "number of op outputs|spatial|scale",
               "A BatchNormalization in training mode may give its first output alone."),
    AcceptedDifference("only rlx runs", "OptionalGetElement OptionalHasElement Optional", "",
               "A tensor may stand where an optional is asked for, in every operator set."),
    AcceptedDifference("only rlx runs", "MeanVarianceNormalization", "No valid axes",
               "No axes to normalise over is each element by itself."),
    AcceptedDifference("only rlx runs", "MaxUnpool TensorScatter OneHot", "[Ii]ndex value out of bounds|wi >= 0|write_ind|must be non-negative",
               "Negative indices count from the end wherever indices are taken."),
    AcceptedDifference("only rlx runs", "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss " + NORMS + " " + POOLS, r"Invalid Target shape|at least 1|Reshape|SetOutputSize|Unsupported pooling size|requested_shape",
               "Operations on empty tensors give what NumPy gives."),
    AcceptedDifference("only rlx runs", "Gather", "indices element out of data bounds",
               "Indices are checked where they are read. For an empty result none is.", empty),
    AcceptedDifference("only rlx runs", "Cast CastLike", "saturate|round_mode",
               "Attributes of casts to 8-bit floats are ignored in other casts."),
    AcceptedDifference("only rlx runs", "STFT", "OutputMLValue|tensor.cc",
               "STFT without a window and a frame length takes the signal's length."),
    AcceptedDifference("only rlx runs", NORMS, "broadcastable|less than 3|less than the requested k",
               "Norms take any rank, and broadcast their scales and biases."),
    AcceptedDifference("only rlx runs", "GridSample", "not supported, expect",
               "The names of GridSample's modes of old and new operator sets are both taken."),
    AcceptedDifference("only rlx runs", "GridSample", "must be non-empty",
               "Operations on empty tensors give what NumPy gives.", when=given_empty),
    AcceptedDifference("only rlx runs", "Transpose", "Invalid attribute perm",
               "Negative axes and k = 0 are taken in every operator set."),
    AcceptedDifference("only rlx runs", "RotaryEmbedding", "num_heads",
               "The number of heads is that of the operand where it has four axes."),
    AcceptedDifference("only rlx runs", "QuantizeLinear DequantizeLinear", "IsPrimitiveDataType|precision",
               "The scale may be of another float type than the operand."),
)  # fmt: skip


def accepted(case, outcome, text):
    """The row that names an outcome, or None."""
    for row in TABLE:
        named = not row.ops or not set(row.ops.split()).isdisjoint(case.ops)
        if (
            row.outcome == outcome
            and named
            and re.search(row.says, text)
            and row.when(case)
            and _near(text, row.within)
        ):
            return row
    return None


def _near(text, part):
    numbers = re.search(r": (\S+), not (\S+) at ", text)
    if part == math.inf or numbers is None:
        return part == math.inf
    result, expected = map(float, numbers.groups())
    return abs(result - expected) <= part * max(abs(result), abs(expected))
