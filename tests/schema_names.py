"""The meanings of ONNX operands and attributes by name: shapes, texts, numbers that make sense."""

import numpy as np
import onnx

TYPES = {
    f"tensor({name})": np.dtype(code)
    for name, code in {
        "float": "f4", "double": "f8", "float16": "f2", "int8": "i1", "int16": "i2", "int32": "i4",
        "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "bool": "?",
    }.items()
}  # fmt: skip

# Shapes of operands: a letter is a size, "4H" four times one, "*S" several axes, "2" is 2, "." a scalar.
LAYOUTS = {
    "Attention": "BHSE BHTE BHTE ST BHPE BHPE",
    "AffineGrid": "N23 4",
    "BatchNormalization": "NC*S C C C C",
    "Col2Im": "N4CL 2 2",
    "Compress": "*B M",
    "Conv": "NC*S OC*K O",
    "ConvInteger": "NC*S OC*K . .",
    "ConvTranspose": "NC*S CO*K O",
    "DFT": "BS1 . .",
    "DepthToSpace": "N4CHW",
    "DequantizeLinear": "*B . .",
    "Det": "*BMM",
    "DynamicQuantizeLinear": "*B",
    "Einsum": "IJ JK",
    "GRU": "TNI D3HI D3HH D6H N DNH",
    "Gemm": "MK KN N",
    "GridSample": "NCHW NPQ2",
    "GroupNormalization": "NC*S C C",
    "InstanceNormalization": "NC*S C C",
    "LRN": "NC*S",
    "LSTM": "TNI D4HI D4HH D8H N DNH DNH D3H",
    "LayerNormalization": "*BC C C",
    "LinearAttention": "BHSE BHSE BHSV",
    "LpPool": "NC*S",
    "MatMul": "*BMK *BKN",
    "MatMulInteger": "*BMK *BKN . .",
    "MaxPool": "NC*S",
    "AveragePool": "NC*S",
    "MaxRoiPool": "NCHW R5",
    "MaxUnpool": "NC*S NC*S 4",
    "MeanVarianceNormalization": "NCHW",
    "NegativeLogLikelihoodLoss": "NC*S N*S C",
    "NonMaxSuppression": "BL4 BCL . . .",
    "OneHot": "*B . 2",
    "PRelu": "NC*S C1",
    "QLinearConv": "NC*S . . OC*K . . . . O",
    "QLinearMatMul": "*BMK . . *BKN . . . .",
    "QuantizeLinear": "*B . .",
    "RMSNormalization": "*BC C",
    "RNN": "TNI DHI DHH D2H N DNH",
    "Range": ". . .",
    "Resize": "NC*S 8 4 4",
    "ReverseSequence": "TN*B N",
    "RoiAlign": "NCHW R4 R",
    "RotaryEmbedding": "BHS2F BSF BSF",
    "STFT": "BS1 . F .",
    "SoftmaxCrossEntropyLoss": "NC*S N*S C",
    "SpaceToDepth": "NC2H2W",
    "TensorScatter": "BHSE BHUE B",
    "Trilu": "*BMN .",
    "Upsample": "NCHW 4",
    "Where": "*B *B *B",
}
# The values that a text attribute may have, by operator and name or by name alone.
TEXTS = {
    "auto_pad": ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    "direction": ("forward", "reverse", "bidirectional"),
    "BitShift.direction": ("LEFT", "RIGHT"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "NegativeLogLikelihoodLoss.reduction": ("none", "mean", "sum"),
    "SoftmaxCrossEntropyLoss.reduction": ("none", "mean", "sum"),
    "approximate": ("none", "tanh"),
    "equation": ("ij,jk->ik", "ij,jk", "ij,ij->i", "ii->i", "...j,jk->...k", "ij->ji", "ij,jk->"),
    "padding_mode": ("zeros", "border", "reflection"),
    "coordinate_transformation_mode": (
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize", "half_pixel_symmetric",
    ),
    "RoiAlign.coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "mode": ("nearest", "linear", "cubic"),
    "Pad.mode": ("constant", "reflect", "edge", "wrap"),
    "DepthToSpace.mode": ("DCR", "CRD"),
    "SpaceToDepth.mode": ("DCR", "CRD"),
    "GridSample.mode": ("bilinear", "nearest", "bicubic", "linear", "cubic"),
    "RoiAlign.mode": ("avg", "max"),
    "TensorScatter.mode": ("linear", "circular"),
    "activations": ("Sigmoid", "Tanh", "Relu"),
}  # fmt: skip


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def integers(rng, low, high, count):
    """``count`` integers of [low, high]."""
    return [int(integer) for integer in rng.integers(low, high + 1, count)]


# --- what names mean --------------------------------------------------------------------------------


def _axis(rng, shapes, *_):
    return int(rng.integers(-max(shapes.rank, 1), max(shapes.rank, 1)))


def _axes(rng, shapes, *_):
    count = int(rng.integers(0, shapes.rank + 1))
    chosen = rng.permutation(max(shapes.rank, 1))[:count]
    return [int(item) - (shapes.rank if rng.random() < 0.3 else 0) for item in chosen]


def _each(low, high):
    return lambda rng, shapes, *_: integers(rng, low, high, shapes.rank)


def _spatial(low, high, times=1):
    return lambda rng, shapes, *_: integers(rng, low, high, times * shapes.spatial)


def _one(low, high):
    return lambda rng, shapes, shape=(): np.full(
        shape if shape in ((), (1,)) else (), rng.integers(low, high + 1)
    )


def _target(rng, shapes, *_):
    """A shape that often holds as many elements."""
    dims = [int(item) for item in rng.permutation(shapes.first)] if shapes.rank else []
    match rng.integers(5):
        case 0:
            return [-1]
        case 1 if len(dims) > 1:
            return [dims[0], -1]
        case 2:
            return [1, *shapes.first]
        case 3 if dims:
            return [0, *shapes.first[1:]]
        case _:
            return dims


def _indices(rng, shapes, shape):
    high = min([dim for dim in shapes.first if dim], default=1)
    return rng.integers(-high if rng.random() < 0.3 else 0, high, shape or ())


def _real_sizes(rng, shapes, *_):
    return [float(pick(rng, (1.0, 1.0, 2.0, 0.5, 1.5, 3.0))) for _ in range(shapes.rank)]


ROLES = {
    "axes": _axes, "axis": lambda *arguments: np.array(_axis(*arguments)), "shape": _target,
    "starts": _each(-3, 3), "ends": _each(-3, 6), "steps": lambda rng, s, *_: [pick(rng, (1, 1, 2, -1, -2)) for _ in range(s.rank)],
    "repeats": _each(0, 3), "pads": lambda rng, s, *_: integers(rng, -1 if rng.random() < 0.3 else 0, 2, 2 * s.rank),
    "K": lambda rng, *_: integers(rng, 0, 3, 1), "k": _one(-2, 3), "depth": _one(1, 5), "size": _one(0, 9),
    "indices": _indices, "split": lambda rng, s, *_: integers(rng, 0, 2, 2), "scales": _real_sizes,
    "sizes": _each(1, 6), "roi": lambda rng, s, *_: [0.0] * s.rank + [1.0] * s.rank, "start": _one(-3, 3), "limit": _one(-5, 9), "delta": _one(-2, 3),
    "image_shape": lambda rng, s, *_: integers(rng, 3, 5, 2), "block_shape": lambda rng, s, *_: [2, 2], "sequence_lens": lambda rng, s, shape: integers(rng, 0, max(s.first[0] if s.first else 1, 1), shape[0] if shape else 1),
    "frame_step": _one(1, 3), "frame_length": _one(1, 4), "dft_length": _one(1, 9), "target": _indices, "labels": _indices,
    "max_output_boxes_per_class": _one(0, 4), "write_indices": _indices, "output_shape": _each(1, 9), "position_ids": _indices,
    "num_mel_bins": _one(1, 5), "sample_rate": _one(8000, 8000), "lower_edge_hertz": _one(0, 50), "upper_edge_hertz": _one(3000, 4000), "I": _indices, "batch_indices": lambda rng, s, shape: np.zeros(shape),
}  # fmt: skip
NOT_ROLES = {("OneHot", "indices"), ("TopK", "k")}
ELEMENT_CODES = tuple(onnx.helper.np_dtype_to_tensor_dtype(item) for item in TYPES.values())
INT_ATTRIBUTES = {
    "axis": _axis, "batch_axis": lambda rng, s: int(rng.integers(2)), "time_axis": lambda rng, s: int(rng.integers(2)),
    "to": lambda rng, s: pick(rng, ELEMENT_CODES), "dtype": lambda rng, s: pick(rng, ELEMENT_CODES),
    "output_datatype": lambda rng, s: pick(rng, ELEMENT_CODES), "output_dtype": lambda rng, s: pick(rng, (*ELEMENT_CODES, 0, 0)),
    "group": lambda rng, s: pick(rng, (1, 1, 1, 2)), "blocksize": lambda rng, s: pick(rng, (1, 2, 2, 3)),
    "hidden_size": lambda rng, s: s.sizes.get("H", 1), "num_outputs": lambda rng, s: pick(rng, (1, 2, 3)), "k": lambda rng, s: pick(rng, (0, 1, -1, 2)),
    "start": lambda rng, s: int(rng.integers(-4, 4)), "end": lambda rng, s: int(rng.integers(-4, 5)), "size": lambda rng, s: pick(rng, (1, 3, 5, 2)),
    "stash_type": lambda rng, s: 1, "num_groups": lambda rng, s: pick(rng, (1, 1, 2)), "layout": lambda rng, s: pick(rng, (0, 0, 0, 1)),
    "block_size": lambda rng, s: pick(rng, (0, 0, 2)), "training_mode": lambda rng, s: pick(rng, (0, 0, 0, 1)), "batch_dims": lambda rng, s: pick(rng, (0, 0, 1)),
    "ignore_index": lambda rng, s: pick(rng, (0, -1, 100)),
}  # fmt: skip
# Other integers than flags.
NUMBERS = {
    "p": (1, 2, 2, 3), "q_num_heads": (1, 2), "kv_num_heads": (1, 2), "num_heads": (1, 2), "sampling_ratio": (0, 1, 2),
    "output_height": (1, 2, 3), "output_width": (1, 2, 3), "qk_matmul_output_mode": (0, 1, 2, 3),
    "left_window_size": (-1, 0, 1, 2), "right_window_size": (-1, 0, 1, 2),
}  # fmt: skip
INTS_ATTRIBUTES = {
    "axes": _axes, "perm": lambda rng, s: [int(item) for item in rng.permutation(s.rank)], "kernel_shape": _spatial(1, 3),
    "strides": _spatial(1, 3), "dilations": _spatial(1, 2), "pads": _spatial(0, 2, 2), "output_padding": _spatial(0, 1), "output_shape": _spatial(3, 9),
    "split": lambda rng, s: integers(rng, 0, 2, 2), "starts": _each(-3, 3), "ends": _each(-3, 6), "pooled_shape": lambda rng, s: [2, 2],
}  # fmt: skip
