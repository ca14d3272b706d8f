# pyright: strict
"""Uses that type checkers have to take without a word, and the types that they have to find."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, assert_type

import numpy as np
from numpy.typing import NDArray

import rlx
from rlx import Graph, Node, ops

Mode = Literal["nearest", "linear"]


def operands(g: Graph, x: Node, weights: NDArray[np.float32], index: np.int64) -> list[Node]:
    """An operand is a node, a number, an array or nested lists."""
    return [
        g.add(x, 1),
        g.add(x, 0.5),
        g.add(True, x),
        g.add(x, weights),
        g.add(x, index),
        g.add(x, [1.0, 2.0]),
        g.add(x, ((1, 2), (3, 4))),
        g.layer_norm(x, weights, None),
        g.where(x > 0.0, x, weights),
        g.gather(x, [0, 1], axis=-1),
    ]


def operators(x: Node, weights: NDArray[np.float32], index: int) -> list[Node]:
    """Operators of Python make nodes, and indices are those of NumPy's basic indexing."""
    assert_type(x @ weights, Node)
    assert_type(-x, Node)
    assert_type(2.0 * x, Node)
    assert_type(x == 0.0, Node)
    return [
        x + x,
        x - 1,
        1 - x,
        x / 2.0,
        x**2,
        2**x,
        x < 1,
        x >= weights,
        x[..., 1:],
        x[index, None, ::-1],
    ]


def parameters(g: Graph, x: Node, axes: Sequence[int], mode: Mode) -> None:
    """Axes and sizes are numbers or sequences of them, dtypes names or objects, choices texts."""
    assert_type(g.sum(x), Node)
    assert_type(g.sum(x, axes, keepdims=True), Node)
    assert_type(g.reshape(x, (2, -1)), Node)
    assert_type(g.reshape(x, x.shape), Node)
    assert_type(g.cast(x, "f16"), Node)
    assert_type(g.cast(x, rlx.DType.F16), Node)
    assert_type(g.cast(x, np.float16), Node)
    assert_type(g.conv2d(x, x, stride=(2, 1), padding="same_upper"), Node)
    assert_type(g.max_pool(x, 2, padding=((0, 1), (1, 0))), Node)
    assert_type(g.resize(x, (1, 2, 8, 8), mode=mode), Node)
    assert_type(g.pad(x, [[1, 1], [0, 0]], "reflect"), Node)
    assert_type(g.attention(x, x, x, kind="sliding:4", scale=None), Node)
    assert_type(g.clip(x, 0, x), Node)
    assert_type(g.einsum("ij,jk->ik", x, x), Node)
    assert_type(g.random_normal((2, 3), seed=7), Node)


def results(g: Graph, x: Node) -> None:
    """Operations with several results give tuples."""
    values, indices = g.topk(x, 3)
    assert_type(values, Node)
    assert_type(indices, Node)
    y, h, c = g.lstm(x, x, x)
    assert_type((y, h, c), tuple[Node, Node, Node])
    assert_type(g.split(x, [1, 1], 0), tuple[Node, ...])
    filtered, state = g.sosfilt(x, np.ones((1, 6)))
    assert_type((filtered, state), tuple[Node, Node])
    assert_type(ops.gelu(x), Node)
    assert_type(rlx.ops.topk(x, k=2), tuple[Node, Node])


def whole(path: Path) -> NDArray[Any]:
    """A program from the first graph to files, devices and models."""
    g = rlx.Graph("mlp")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 3), value=np.ones((4, 3), np.float32))
    g.set_outputs([g.gelu(x @ w)])
    assert_type(g.outputs[0].shape, tuple[int, ...])
    n = rlx.Dim("n", max=100)
    rows = g.pad(g.reshape(g.input("rows", (n, 4)), (2 * n, 2)), [(n, 1), (0, 0)])
    g.arange(n + 1, dtype="i64")
    g.set_outputs([*g.outputs, g.narrow(rows, 0, n, n // 2), g.dim(rows, 0)])
    with rlx.compile(g, device="auto") as compiled:
        outputs = compiled.run({"x": np.ones((2, 4), np.float32)})
        (again,) = compiled.run_slots(np.ones((2, 4), np.float32))
    assert_type(rlx.signal.stft(x, n_fft=64, hop=32), Node)
    spectrum: NDArray[Any] = rlx.signal.stft(np.ones(400, np.float32), 64, 32, device="cpu")
    rlx.save_model(g, path, devices=["cpu"])
    model = rlx.onnx.Model("model.onnx", device="cpu")
    results: list[NDArray[Any]] = model.run({"x": again})
    for device in rlx.available_devices():
        print(device, rlx.is_available(device))
    return np.concatenate([outputs[0], spectrum, results[0]])
