"""Models of one to three nodes made from the operators' schemas: many that make sense, and many that barely do not.

An operand or an attribute is drawn by its name where the name says what it means (``axes``, ``pads``, ``shape``), by
its type otherwise. Then something may be made hostile: a dimension of 0, an axis out of range, 2^63, a NaN.
"""

import re

import numpy as np
import onnx
from onnx.defs import OpSchema, get_all_schemas_with_history
from schema_names import (
    INT_ATTRIBUTES,
    INTS_ATTRIBUTES,
    LAYOUTS,
    NOT_ROLES,
    NUMBERS,
    ROLES,
    TEXTS,
    TYPES,
    integers,
    pick,
)

OLDEST, NEWEST = 7, 26  # the operator sets that rlx and ONNX Runtime both read
KIND = OpSchema.AttrType
OPTIONAL, VARIADIC = (
    OpSchema.FormalParameterOption.Optional,
    OpSchema.FormalParameterOption.Variadic,
)
# Random by nature, or with subgraphs, which tests/fuzzing.py changes.
LEFT_OUT = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    "If", "Loop", "Scan", "SequenceMap",
}  # fmt: skip

HOSTILE_INTS = (-1, 0, 1, 2, 3, 5, 7, -2, -3, 100, 1 << 20, 1 << 31, -(1 << 31), (1 << 31) - 1, 1 << 40,
                (1 << 62) + 1, (1 << 63) - 1, -(1 << 63))  # fmt: skip
HOSTILE_REALS = (0.0, -0.0, -1.0, 1e-40, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
HOSTILE_TEXTS = ("", "x", "NONE", "é", "i" * 300, "...", "->", "same_upper")


def _schemas():
    """Versions of each operator that has a tensor operand or result, by name."""
    results = {}
    for schema in get_all_schemas_with_history():
        plain = schema.domain == "" and schema.since_version <= NEWEST
        if plain and schema.name not in LEFT_OUT:
            results.setdefault(schema.name, []).append(schema)
    return {
        name: sorted(results[name], key=lambda item: item.since_version) for name in sorted(results)
    }


SCHEMAS = _schemas()
NAMES = [
    name
    for name, schema in SCHEMAS.items()
    if any(item.since_version >= OLDEST or not item.deprecated for item in schema)
]


class SchemaModel:
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
            tensors = [result for result in results if result[1] is not None]
            if not tensors:
                break
            results = self._follow(pick(rng, tensors)) or results
        names = [result[0] for result in results]
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
                (max(version.since_version, OLDEST), after - 1, version)
                for version, after in zip(
                    versions, [*(v.since_version for v in versions[1:]), NEWEST + 1]
                )
                if after > OLDEST and not version.deprecated
            ]
            # Of an operator's versions the newest is as frequent as all others.
            first, last, schema = usable[-1] if self.rng.random() < 0.5 else pick(self.rng, usable)
            self.opset = int(self.rng.integers(first, last + 1))
            return schema
        known = [version for version in versions if version.since_version <= self.opset]
        return known[-1] if known else None

    def _follow(self, value):
        """A node that reads a result of the node before."""
        for _ in range(8):
            schema = self._versioned(pick(self.rng, NAMES))
            if (
                schema
                and not schema.deprecated
                and schema.inputs
                and _types(schema, schema.inputs[0]).get(value[1])
            ):
                return self._node(schema, value)
        return None

    def _node(self, schema, value):
        """Adds a node; its outputs as (name, type or None, shape or None)."""
        rng, number = self.rng, len(self._nodes)
        self.ops.append(schema.name)
        bound = {}
        if value is not None:
            bound[schema.inputs[0].type_str] = value[1]
            shapes = Shapes(rng, schema.name, value[2])
        else:
            shapes = Shapes(rng, schema.name)
        names = [value[0]] if value is not None else []
        params = _expanded(schema, rng)
        dtypes = [np.dtype("f4")] * len(names)
        for index, param in enumerate(params):
            if index < len(names):
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
            array = self._operand(schema.name, param.name, TYPES[kind], shapes, index)
            names.append(self._held(array, f"x{number}_{index}", param.name))
        while names and not names[-1] and len(names) > schema.min_input:
            names.pop()
        least, limit = schema.min_output, schema.max_output
        count = int(rng.integers(max(least, 1), min(limit, 4) + 1))
        if rng.random() < 0.6:
            count = max(least, 1)
        outputs = [f"y{number}_{index}" for index in range(count)]
        node = onnx.helper.make_node(schema.name, names, outputs)
        node.attribute.extend(self._attributes(schema, shapes))
        self._nodes.append(node)
        results = []
        for index, name in enumerate(outputs):
            param = schema.outputs[min(index, len(schema.outputs) - 1)]
            kind = bound.get(param.type_str, param.type_str)
            results.append((name, kind if kind in TYPES else None, shapes.first))
        return results

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

    def _operand(self, *arguments):
        return np.asarray(self._drawn(*arguments))

    def _drawn(self, op, role, dtype, shapes, index):
        rng = self.rng
        shape = shapes.of(index)
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
                return np.array([int(item) for item in flat], np.int64).reshape(values.shape)

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
                    int(item) for item in np.atleast_1d(self._spoiled(np.array(values, np.int64)))
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

    def __init__(self, rng, op, value=None):
        self.rng = rng
        self.layout = LAYOUTS.get(op, "").split()
        self.sizes = {"D": 1 if rng.random() < 0.7 else 2}
        self.many = {}
        if value is not None:
            self.first = value
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

    def of(self, index):
        if index == 0:
            return self.first
        if index < len(self.layout):
            return self._laid(self.layout[index])
        return _related(self.rng, self.first)

    def _laid(self, text):
        if text == ".":
            return ()
        results = ()
        for times, many, letter, number in re.findall(r"(\d?)(\*?)([A-Z])|(\d)", text):
            if number:
                results += (int(number),)
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
                results += (
                    self.many[key]
                    if letter != "K"
                    else tuple(integers(self.rng, 1, 3, len(self.many[key])))
                )
            else:
                if letter not in self.sizes:
                    self.sizes[letter] = int(
                        self.rng.choice((1, 2, 3, 4, 5, 0), p=(0.25, 0.25, 0.2, 0.15, 0.12, 0.03))
                    )
                results += (self.sizes[letter] * int(times or 1),)
        return results


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
    results = list(shape)
    index = int(rng.integers(len(results)))
    match rng.integers(4):
        case 0:
            results[index] = 0
        case 1:
            results[index] += 1
        case 2:
            del results[index]
        case _:
            results.insert(index, 1)
    return tuple(results)


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
    results = []
    for param in schema.inputs:
        results += [param] * (int(rng.integers(1, 4)) if param.option == VARIADIC else 1)
    return results
