"""Models of one to three nodes made from the operators' schemas: many that make sense, and many that barely do not.

An operand or an attribute is drawn by its name where the name says what it means (``axes``, ``pads``, ``shape``), by
its type otherwise. Then something may be made hostile: a dimension of 0, an axis out of range, 2^63, a NaN.
"""

import re

import numpy as np
import onnx
from onnx.defs import OpSchema, get_all_schemas_with_history

OLDEST, NEWEST = 7, 26  # the operator sets that rlx and ONNX Runtime both read
KIND = OpSchema.AttrType
OPTIONAL, VARIADIC = (
    OpSchema.FormalParameterOption.Optional,
    OpSchema.FormalParameterOption.Variadic,
)
TYPES = {
    f"tensor({name})": np.dtype(code)
    for name, code in {
        "float": "f4", "double": "f8", "float16": "f2", "int8": "i1", "int16": "i2", "int32": "i4",
        "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "bool": "?",
    }.items()
}  # fmt: skip
# Random by nature, or with subgraphs, which tests/fuzzing.py changes.
LEFT_OUT = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    "If", "Loop", "Scan", "SequenceMap",
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
# What a text attribute may be, by operator and name or by name alone.
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
HOSTILE_INTS = (-1, 0, 1, 2, 3, 5, 7, -2, -3, 100, 1 << 20, 1 << 31, -(1 << 31), (1 << 31) - 1, 1 << 40,
                (1 << 62) + 1, (1 << 63) - 1, -(1 << 63))  # fmt: skip
HOSTILE_REALS = (0.0, -0.0, -1.0, 1e-40, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
HOSTILE_TEXTS = ("", "x", "NONE", "é", "i" * 300, "...", "->", "same_upper")


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def integers(rng, low, high, count):
    """``count`` integers of [low, high]."""
    return [int(one) for one in rng.integers(low, high + 1, count)]


def _schemas():
    """Versions of each operator that has a tensor operand or result, by name."""
    found = {}
    for schema in get_all_schemas_with_history():
        plain = schema.domain == "" and schema.since_version <= NEWEST
        if plain and schema.name not in LEFT_OUT:
            found.setdefault(schema.name, []).append(schema)
    return {name: sorted(found[name], key=lambda one: one.since_version) for name in sorted(found)}


SCHEMAS = _schemas()
NAMES = [
    name
    for name, found in SCHEMAS.items()
    if any(one.since_version >= OLDEST or not one.deprecated for one in found)
]


class Model:
    """A model being made: nodes, what they read, and the values fed.

    Attributes:
        proto: The model.
        feeds: Arrays by name.
        ops: Names of its operators in order.
        opset: Version of the operator set.
    """

    def __init__(self, rng, only=None):
        self.rng, self.feeds, self.ops = rng, {}, []
        self._nodes, self._weights, self._infos = [], [], []
        self._hostile = rng.random() < 0.4
        schema = self._versioned(only or pick(rng, NAMES))
        results = self._node(schema, None)
        for _ in range(int(rng.choice(3, p=(0.7, 0.2, 0.1)))):
            tensors = [one for one in results if one[1] is not None]
            if not tensors:
                break
            results = self._follow(pick(rng, tensors)) or results
        names = [one[0] for one in results]
        graph = onnx.helper.make_graph(
            self._nodes,
            "schema",
            self._infos,
            [onnx.ValueInfoProto(name=n) for n in names],
            self._weights,
        )
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        self.proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def operands(self):
        """All arrays that the model is given."""
        return [
            *map(onnx.numpy_helper.to_array, self.proto.graph.initializer),
            *self.feeds.values(),
        ]

    def _versioned(self, name):
        """A version of an operator's schema; the first one chosen decides the model's operator set."""
        versions = SCHEMAS[name]
        if not self.ops:
            usable = [
                (max(one.since_version, OLDEST), after - 1, one)
                for one, after in zip(
                    versions, [*(v.since_version for v in versions[1:]), NEWEST + 1]
                )
                if after > OLDEST and not one.deprecated
            ]
            # Of an operator's versions the newest is as frequent as all others.
            first, last, schema = usable[-1] if self.rng.random() < 0.5 else pick(self.rng, usable)
            self.opset = int(self.rng.integers(first, last + 1))
            return schema
        known = [one for one in versions if one.since_version <= self.opset]
        return known[-1] if known else None

    def _follow(self, given):
        """A node that reads a result of the node before."""
        for _ in range(8):
            schema = self._versioned(pick(self.rng, NAMES))
            if (
                schema
                and not schema.deprecated
                and schema.inputs
                and _types(schema, schema.inputs[0]).get(given[1])
            ):
                return self._node(schema, given)
        return None

    def _node(self, schema, given):
        """Adds a node; its outputs as (name, type or None, shape or None)."""
        rng, number = self.rng, len(self._nodes)
        self.ops.append(schema.name)
        bound = {}
        if given is not None:
            bound[schema.inputs[0].type_str] = given[1]
            shapes = Shapes(rng, schema.name, given[2])
        else:
            shapes = Shapes(rng, schema.name)
        names = [given[0]] if given is not None else []
        params = _expanded(schema, rng)
        dtypes = [np.dtype("f4")] * len(names)
        for at, param in enumerate(params):
            if at < len(names):
                continue
            if param.option == OPTIONAL and rng.random() < 0.4:
                names.append("")
                continue
            kind = bound.get(param.type_str)
            if kind is None:
                kind = bound[param.type_str] = _type(rng, schema, param)
            if kind is None:
                # Sequences and optionals: a tensor in their place is refused.
                kind = "tensor(float)"
            dtypes.append(TYPES[kind])
            array = self._operand(schema.name, param.name, TYPES[kind], shapes, at)
            names.append(self._held(array, f"x{number}_{at}", param.name))
        while names and not names[-1] and len(names) > schema.min_input:
            names.pop()
        least, most = schema.min_output, schema.max_output
        count = int(rng.integers(max(least, 1), min(most, 4) + 1))
        if rng.random() < 0.6:
            count = max(least, 1)
        outputs = [f"y{number}_{at}" for at in range(count)]
        node = onnx.helper.make_node(schema.name, names, outputs)
        node.attribute.extend(self._attributes(schema, shapes))
        self._nodes.append(node)
        found = []
        for at, name in enumerate(outputs):
            param = schema.outputs[min(at, len(schema.outputs) - 1)]
            kind = bound.get(param.type_str, param.type_str)
            found.append((name, kind if kind in TYPES else None, shapes.first))
        return found

    def _held(self, array, name, role):
        """An operand as an initializer or an input."""
        if self.rng.random() < (0.8 if role in ROLES else 0.4):
            self._weights.append(onnx.numpy_helper.from_array(array, name))
            return name
        dims = list(array.shape)
        if self.rng.random() < 0.3:
            dims = [None if self.rng.random() < 0.5 else dim for dim in dims]
        code = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self._infos.append(onnx.helper.make_tensor_value_info(name, code, dims))
        self.feeds[name] = array
        return name

    # --- operands ---

    def _operand(self, *given):
        return np.asarray(self._drawn(*given))

    def _drawn(self, op, role, dtype, shapes, at):
        rng = self.rng
        shape = shapes.of(at)
        if self._hostile and rng.random() < 0.15:
            shape = _hostile_shape(rng, shape)
        if role in ROLES and dtype.kind in "iuf" and (op, role) not in NOT_ROLES:
            values = np.asarray(ROLES[role](rng, shapes, shape))
            if self._hostile and rng.random() < 0.25:
                values = self._spoiled(values)
            with np.errstate(all="ignore"):
                return values.astype(dtype)
        return self._values(dtype, shape)

    def _spoiled(self, values):
        rng = self.rng
        match rng.integers(4):
            case 0:
                return values[:-1] if values.ndim else values[None]
            case 1:
                return np.append(values, values[-1:] if values.size and values.ndim else 1)
            case 2:
                return np.zeros((0,), np.int64)
            case _:
                flat = values.astype(object).ravel()
                if flat.size:
                    flat[int(rng.integers(flat.size))] = pick(rng, HOSTILE_INTS)
                return np.array([int(one) for one in flat], np.int64).reshape(values.shape)

    def _values(self, dtype, shape):
        rng = self.rng
        if dtype.kind == "b":
            return rng.random(shape) < 0.5
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            wide = self._hostile and rng.random() < 0.2
            low, high = (info.min, info.max) if wide else (max(-9, info.min), 9)
            return rng.integers(low, high, shape, dtype, endpoint=True)
        values = np.asarray(rng.standard_normal(shape) * pick(rng, (1.0, 1.0, 3.0, 10.0)))
        style = rng.integers(6)
        if style == 0:
            values = np.round(values)
        elif style == 1:
            values = np.abs(values)
        if self._hostile and rng.random() < 0.3 and values.size:
            flat = values.ravel()
            for _ in range(int(rng.integers(1, 4))):
                flat[int(rng.integers(flat.size))] = pick(rng, HOSTILE_REALS)
            values = flat.reshape(shape)
        with np.errstate(all="ignore"):
            return values.astype(dtype)

    # --- attributes ---

    def _attributes(self, schema, shapes):
        rng = self.rng
        for name in sorted(schema.attributes):
            declared = schema.attributes[name]
            if not declared.required and rng.random() < 0.55:
                continue
            value = self._attribute(schema.name, name, declared.type, shapes)
            if value is not None:
                yield value

    def _attribute(self, op, name, kind, shapes):
        rng, make = self.rng, onnx.helper.make_attribute
        hostile = self._hostile and rng.random() < 0.25
        code = KIND_CODES.get(kind)
        if kind == KIND.INT:
            meant = INT_ATTRIBUTES.get(name, lambda *_: pick(rng, NUMBERS.get(name, (0, 1))))
            return make(name, pick(rng, HOSTILE_INTS) if hostile else int(meant(rng, shapes)))
        if kind == KIND.FLOAT:
            real = pick(rng, (1.0, 0.5, 1e-5, 0.1, 2.0, -0.5, 0.0))
            return make(name, pick(rng, HOSTILE_REALS) if hostile else real)
        if kind == KIND.STRING:
            known = TEXTS.get(f"{op}.{name}", TEXTS.get(name, ("x",)))
            return make(name, pick(rng, HOSTILE_TEXTS) if hostile else pick(rng, known))
        if kind == KIND.INTS:
            values = INTS_ATTRIBUTES.get(name, lambda *_: integers(rng, 0, 3, 2))(rng, shapes)
            if hostile:
                values = [
                    int(one) for one in np.atleast_1d(self._spoiled(np.array(values, np.int64)))
                ]
            return make(name, values, attr_type=code)
        if kind == KIND.FLOATS:
            return make(name, [0.5, 1.0][: int(rng.integers(3))], attr_type=code)
        if kind == KIND.STRINGS:
            known = TEXTS.get(name, ("x",))
            return make(
                name, [pick(rng, known) for _ in range(int(rng.integers(4)))], attr_type=code
            )
        if kind == KIND.TENSOR:
            dtype = pick(rng, [*TYPES.values()])
            return make(
                name,
                onnx.numpy_helper.from_array(
                    self._values(dtype, pick(rng, ((), (1,), (2,), (1,))))
                ),
            )
        return None


KIND_CODES = {
    KIND.INTS: onnx.AttributeProto.INTS,
    KIND.FLOATS: onnx.AttributeProto.FLOATS,
    KIND.STRINGS: onnx.AttributeProto.STRINGS,
}


class Shapes:
    """The shapes of a node's operands, as its layout says.

    Attributes:
        first: Shape of the first operand.
    """

    def __init__(self, rng, op, given=None):
        self.rng = rng
        self.layout = LAYOUTS.get(op, "").split()
        self.sizes = {"D": 1 if rng.random() < 0.7 else 2}
        self.many = {}
        if given is not None:
            self.first = given
        elif self.layout:
            self.first = self._laid(self.layout[0])
        else:
            self.first = _shape(rng)

    @property
    def rank(self):
        return len(self.first)

    @property
    def spatial(self):
        return max(self.rank - 2, 0)

    def of(self, at):
        if at == 0:
            return self.first
        if at < len(self.layout):
            return self._laid(self.layout[at])
        return _related(self.rng, self.first)

    def _laid(self, text):
        if text == ".":
            return ()
        found = ()
        for times, many, letter, number in re.findall(r"(\d?)(\*?)([A-Z])|(\d)", text):
            if number:
                found += (int(number),)
            elif many:
                # Kernels have as many axes as what they run over.
                key = "S" if letter == "K" else letter
                if key not in self.many:
                    self.many[key] = tuple(
                        integers(
                            self.rng,
                            1,
                            7,
                            self.rng.integers(1, 4) if key == "S" else self.rng.integers(0, 3),
                        )
                    )
                found += (
                    self.many[key]
                    if letter != "K"
                    else tuple(integers(self.rng, 1, 3, len(self.many[key])))
                )
            else:
                if letter not in self.sizes:
                    self.sizes[letter] = int(
                        self.rng.choice((1, 2, 3, 4, 5, 0), p=(0.25, 0.25, 0.2, 0.15, 0.12, 0.03))
                    )
                found += (self.sizes[letter] * int(times or 1),)
        return found


def _shape(rng):
    rank = int(rng.choice(6, p=(0.1, 0.2, 0.25, 0.2, 0.2, 0.05)))
    return tuple(
        int(rng.choice((1, 2, 3, 4, 6, 0), p=(0.2, 0.25, 0.22, 0.2, 0.08, 0.05)))
        for _ in range(rank)
    )


def _related(rng, shape):
    """A shape that often broadcasts with another."""
    match rng.integers(6):
        case 0 | 1 | 2:
            return shape
        case 3:
            return tuple(1 if rng.random() < 0.5 else dim for dim in shape)
        case 4:
            return shape[int(rng.integers(len(shape) + 1)) :]
        case _:
            return _shape(rng)


def _hostile_shape(rng, shape):
    if not shape or rng.random() < 0.3:
        return _shape(rng)
    made = list(shape)
    at = int(rng.integers(len(made)))
    match rng.integers(4):
        case 0:
            made[at] = 0
        case 1:
            made[at] += 1
        case 2:
            del made[at]
        case _:
            made.insert(at, 1)
    return tuple(made)


def _types(schema, param):
    """The tensor types a parameter may have that NumPy knows."""
    return {kind: True for kind in param.types if kind in TYPES}


def _type(rng, schema, param):
    kinds = sorted(_types(schema, param))
    if not kinds:
        return None
    return "tensor(float)" if "tensor(float)" in kinds and rng.random() < 0.5 else pick(rng, kinds)


def _expanded(schema, rng):
    """The parameters of a node: a variadic one several times."""
    found = []
    for param in schema.inputs:
        found += [param] * (int(rng.integers(1, 4)) if param.option == VARIADIC else 1)
    return found


# --- what names mean --------------------------------------------------------------------------------


def _axis(rng, shapes, *_):
    return int(rng.integers(-max(shapes.rank, 1), max(shapes.rank, 1)))


def _axes(rng, shapes, *_):
    count = int(rng.integers(0, shapes.rank + 1))
    chosen = rng.permutation(max(shapes.rank, 1))[:count]
    return [int(one) - (shapes.rank if rng.random() < 0.3 else 0) for one in chosen]


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
    dims = [int(one) for one in rng.permutation(shapes.first)] if shapes.rank else []
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
    "axes": _axes, "axis": lambda *given: np.array(_axis(*given)), "shape": _target,
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
ELEMENT_CODES = tuple(onnx.helper.np_dtype_to_tensor_dtype(one) for one in TYPES.values())
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
    "axes": _axes, "perm": lambda rng, s: [int(one) for one in rng.permutation(s.rank)], "kernel_shape": _spatial(1, 3),
    "strides": _spatial(1, 3), "dilations": _spatial(1, 2), "pads": _spatial(0, 2, 2), "output_padding": _spatial(0, 1), "output_shape": _spatial(3, 9),
    "split": lambda rng, s: integers(rng, 0, 2, 2), "starts": _each(-3, 3), "ends": _each(-3, 6), "pooled_shape": lambda rng, s: [2, 2],
}  # fmt: skip
