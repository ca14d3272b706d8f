"""Random single-node graphs: sizes as models have them, and a case that ONNX Runtime, NumPy or SciPy can run too."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# Sizes of dimensions in models: powers of two and their neighbours, image sides, token counts, widths, primes.
SIZES = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 16, 17, 20, 24, 28, 31, 32, 37, 40, 48, 49, 50, 56, 60, 64, 65, 77),
    *(80, 96, 100, 101, 112, 120, 127, 128, 144, 160, 192, 196, 197, 200, 224, 240, 250, 256, 257, 300, 320, 384),
    *(400, 480, 500, 512, 577, 600, 640, 768, 960, 1000, 1024, 1280, 1500, 1536, 2048, 3072, 4096, 8192, 16000),
)  # fmt: skip
FEWEST_ELEMENTS, MAX_ELEMENTS = 2**8, 2**21
OPSET = 22


@dataclass(frozen=True)
class Constant:
    """An operand that belongs to the model."""

    value: np.ndarray


@dataclass(frozen=True)
class DrawnCase:
    """A graph of one node and what runs it.

    Attributes:
        name: The operator, its shapes and attributes.
        family: Its family.
        model: The ONNX model; None where ``graph`` makes the graph by hand.
        feeds: Inputs by name.
        others: Calls of NumPy or SciPy that do the same, by name; each gives the results.
        graph: Makes the graph where there is no model.
        tolerance: Of the largest error, by the largest result.
    """

    name: str
    family: str
    model: bytes | None
    feeds: dict
    others: dict[str, Callable] = field(default_factory=dict)
    graph: Callable | None = None
    tolerance: float = 2e-3


class Draw:
    """Random choices that a seed repeats.

    Args:
        seed: The seed.
    """

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self.choice, self.chance = self._random.choice, lambda part: self._random.random() < part
        self.sample, self.between = self._random.sample, self._random.randint

    def elements(self, limit=MAX_ELEMENTS):
        """About how many elements, evenly over the orders of magnitude."""
        low, high = math.log(FEWEST_ELEMENTS), math.log(limit)
        return math.exp(low + (high - low) * self._random.random())

    def size(self, limit, least=1):
        """A size within bounds."""
        fitting = [size for size in SIZES if least <= size <= limit]
        return self.choice(fitting) if fitting else least

    def shape(self, rank=None, most=MAX_ELEMENTS, least=1):
        """A shape of about as many elements as ``elements`` says."""
        rank = rank or self.choice([1, 2, 2, 3, 3, 4, 4])
        left = self.elements(most)
        dims = []
        for index in range(rank - 1):
            # The rest can be as large as this dimension on average.
            dims.append(self.size(max(least, left ** (1.6 / (rank - index))), least))
            left /= dims[-1]
        dims.append(self.size(max(least, left), least))
        self._random.shuffle(dims)
        return tuple(dims)

    def images(self, most=MAX_ELEMENTS, channels=None, spatial=2, smallest=1):
        """Shape of a batch of images, or of signals with one spatial dimension: batch, channels, then sides."""
        batch = self.choice([1, 1, 1, 2, 4, 8, 16])
        left = max(self.elements(most) / batch, 8.0)
        channels = channels or self.size(min(1024, left ** self._random.uniform(0.2, 0.9)))
        side = max(smallest, int((left / channels) ** (1 / spatial)))
        sides = [self.size(max(smallest, side * 1.3), smallest) for _ in range(spatial)]
        if self.chance(0.7):
            sides = [sides[0]] * spatial
        return (batch, channels, *sides)

    def floats(self, shape, low=None, high=None):
        """Normal numbers, or even ones between bounds."""
        if low is not None:
            return self._numbers.uniform(low, high, shape).astype(np.float32)
        return self._numbers.standard_normal(shape).astype(np.float32)

    def integers(self, shape, low, high, dtype=np.int64):
        """Integers from ``low`` to ``high`` - 1."""
        return self._numbers.integers(low, high, shape).astype(dtype)

    def axes(self, rank):
        """Some axes: any, more often one."""
        count = self.choice([1, 1, 1, 2, 2, 3])
        return sorted(self.sample(range(rank), min(count, rank)))


def node(family, kind, *operands, others=None, outputs=1, domain="", tolerance=2e-3, **attributes):
    """A case of one ONNX node.

    Args:
        family: Its family.
        kind: The operator.
        operands: An array is fed, a ``Constant`` belongs to the model, None is an absent operand.
        others: Calls of NumPy or SciPy by name.
        outputs: How many results.
        domain: Of the operator.
        tolerance: See ``DrawnCase``.
        attributes: Of the node; None leaves one out.
    """
    from onnx import helper, numpy_helper

    attributes = {name: value for name, value in attributes.items() if value is not None}
    names, feeds, constants, said = [], {}, [], []
    for index, operand in enumerate(operands):
        value = operand.value if isinstance(operand, Constant) else operand
        name = "" if value is None else f"x{index}"
        names.append(name)
        if value is None:
            continue
        said.append(
            "x".join(map(str, value.shape)) + ("c" if isinstance(operand, Constant) else "")
        )
        if isinstance(operand, Constant):
            constants.append(numpy_helper.from_array(np.array(value, order="C"), name))
        else:
            feeds[name] = np.array(value, order="C")
    results = [f"y{index}" for index in range(outputs)]
    result = helper.make_node(kind, names, results, domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(feed.dtype), feed.shape)
        for name, feed in feeds.items()
    ]
    outs = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([result], "case", inputs, outs, constants)
    versions = [helper.make_opsetid("", OPSET)]
    if domain:
        versions.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    more = " ".join(f"{name}={value}" for name, value in attributes.items())
    title = f"{kind} {' '.join(said)} {more}".strip()
    return DrawnCase(title, family, model.SerializeToString(), feeds, others or {}, None, tolerance)
