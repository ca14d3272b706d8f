"""Random networks of ONNX operations in f16 or f64, of the kinds that transformers and convolutional networks are made of."""

import numpy as np
from onnx import helper, numpy_helper

LARGEST = 3e4


class RandomNetwork:
    """A random network; the same seed gives the same operations and values in every type.

    Args:
        seed: The seed.
        dtype: np.float16 or np.float64. Weights and inputs are numbers of f16 in both.
    """

    def __init__(self, seed, dtype):
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)
        self.element = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes, self.weights, self.inputs, self.feeds = [], [], [], {}
        self.convolutional = bool(self.rng.integers(2))
        self.shape = (2, int(self.rng.integers(2, 5)), 6, 5) if self.convolutional else (2, 5, 8)
        self.values = [self.input(self.shape) for _ in range(int(self.rng.integers(1, 3)))]

    def name(self):
        return f"v{len(self.nodes)}_{len(self.weights)}"

    def numbers(self, shape, scale):
        return (self.rng.standard_normal(shape) * scale).astype(np.float16)

    def input(self, shape):
        name = f"x{len(self.inputs)}"
        scale = float(self.rng.choice([1.0, 50.0, 3000.0]))
        arguments = np.clip(self.numbers(shape, scale).astype(np.float64), -LARGEST, LARGEST)
        if self.rng.integers(2):
            arguments.reshape(-1)[self.rng.integers(arguments.size)] = LARGEST
        self.feeds[name] = arguments.astype(np.float16)
        self.inputs.append(helper.make_tensor_value_info(name, self.element, shape))
        return name

    def weight(self, value, dtype=None):
        name = f"w{len(self.weights)}"
        value = np.asarray(value)
        value = (
            value.astype(np.float16).astype(self.dtype) if dtype is None else value.astype(dtype)
        )
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def op(self, kind, *operands, **attrs):
        name = self.name()
        self.nodes.append(helper.make_node(kind, list(operands), [name], **attrs))
        return name

    def axes(self):
        return [2, 3] if self.convolutional else [-1]

    def mean(self, x):
        return self.op("ReduceMean", x, self.weight(self.axes(), np.int64), keepdims=1)

    def square(self, x):
        if self.rng.integers(2):
            return self.op("Mul", x, x)
        kind = self.rng.choice([self.dtype, np.dtype(np.float32), np.dtype(np.int64)])
        return self.op("Pow", x, self.weight(2, kind))

    def normed(self, x, centred):
        x = self.op("Sub", x, self.mean(x)) if centred else x
        deviation = self.op("Sqrt", self.op("Add", self.mean(self.square(x)), self.weight(1e-3)))
        if self.rng.integers(2):
            return self.op("Div", x, deviation)
        return self.op("Mul", x, self.op("Reciprocal", deviation))

    def attention(self, x):
        if self.convolutional:
            return x
        weights = [self.weight(self.numbers((8, 8), 0.5)) for _ in range(3)]
        q, k, v = (self.op("MatMul", x, w) for w in weights)
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 2, 1]))
        scores = self.op("Mul", scores, self.weight(0.05))
        if self.rng.integers(2):
            mask = np.where(self.rng.random((5, 5)) < 0.2, -np.inf, 0)
            np.fill_diagonal(mask, 0)
            scores = self.op("Add", scores, self.weight(mask))
        return self.op("MatMul", self.op("Softmax", scores, axis=-1), v)

    def product(self, x):
        if not self.convolutional:
            y = self.op("MatMul", x, self.weight(self.numbers((8, 8), 0.4)))
            return self.op("Add", y, self.weight(self.numbers((8,), 1.0)))
        c = self.shape[1]
        filters = self.weight(self.numbers((c, c, 3, 3), 0.3))
        return self.op("Conv", x, filters, self.weight(self.numbers((c,), 1.0)), pads=[1, 1, 1, 1])

    def activation(self, x):
        kind = self.rng.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "erf", "cubic", "swish"])
        if kind == "erf":
            inner = self.op("Erf", self.op("Div", x, self.weight(1.4142)))
            return self.op(
                "Mul", self.op("Mul", x, self.op("Add", inner, self.weight(1))), self.weight(0.5)
            )
        if kind == "cubic":
            cube = self.op("Mul", self.op("Pow", x, self.weight(3)), self.weight(0.0447))
            inner = self.op("Tanh", self.op("Mul", self.op("Add", x, cube), self.weight(0.798)))
            return self.op(
                "Mul", self.op("Mul", x, self.weight(0.5)), self.op("Add", inner, self.weight(1))
            )
        if kind == "swish":
            return self.op("Mul", x, self.op("Sigmoid", x))
        return self.op(kind, x)

    def two(self, x):
        return self.op(
            str(self.rng.choice(["Add", "Sub", "Mul"])), x, str(self.rng.choice(self.values))
        )

    def scaled(self, x):
        number = float(self.rng.choice([0.001, 0.1, 3.0, 60.0]))
        return self.op(str(self.rng.choice(["Mul", "Div"])), x, self.weight(number))

    def moved(self, x):
        shape = self.weight([2, -1], np.int64)
        back = self.weight(self.shape, np.int64)
        flat = self.op("Reshape", x, shape)
        both = self.op("Concat", flat, flat, axis=1)
        first = self.op(
            "Slice",
            both,
            self.weight([0], np.int64),
            self.weight([int(np.prod(self.shape[1:]))], np.int64),
            self.weight([1], np.int64),
        )
        return self.op("Reshape", first, back)

    def pooled(self, x):
        if not self.convolutional:
            return self.op(
                "Div",
                x,
                self.op(
                    "Add", self.op("ReduceL2", x, self.weight([-1], np.int64)), self.weight(1e-3)
                ),
            )
        kind = str(self.rng.choice(["MaxPool", "AveragePool"]))
        return self.op(kind, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def kept(self, x):
        if self.convolutional:
            c = self.shape[1]
            first, zero = self.weight(np.ones(c)), self.weight(np.zeros(c))
            return self.op("InstanceNormalization", x, first, zero)
        return self.op("LayerNormalization", x, self.weight(np.ones(8)), axis=-1)

    def model(self):
        """The network as the bytes of a model, and arrays of f16 for its inputs."""
        steps = [
            lambda x: self.normed(x, False), lambda x: self.normed(x, True), self.attention, self.product,
            self.activation, self.two, self.scaled, self.moved, self.pooled, self.kept, self.square,
        ]  # fmt: skip
        x = self.values[0]
        for _ in range(int(self.rng.integers(3, 9))):
            x = steps[self.rng.integers(len(steps))](x)
            self.values.append(x)
        # Brought back to the range of f16, as the last norm of a network does.
        outputs = [self.normed(x, False)]
        if self.rng.integers(2):
            outputs.append(self.op("Mul", str(self.rng.choice(self.values[1:])), self.weight(1)))
        infos = [helper.make_tensor_value_info(name, self.element, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, infos, self.weights)
        result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return result.SerializeToString(), self.feeds
