"""Runs kernels in qemu and asks its plug-in for counts before and after each (instructions.c); prints their names.

Then products by OpenBLAS, and what ONNX Runtime has of the cases. Arguments are the names of cases; all without any.
"""

import ctypes
import json
import sys

import numpy as np
from instruction_peers import PEERS, call_of

import rlx

CALLS = 2
LIBC = ctypes.CDLL(None)
RNG = np.random.default_rng(0)


def ask():
    LIBC.getpriority(77, 0)


def weights(*shape):
    return (RNG.normal(size=shape) * 0.1).astype(np.float32)


def one(name, *shapes, **attrs):
    """An operation on inputs of these shapes."""
    return lambda g: getattr(g, name)(
        *(g.input(f"x{index}", shape) for index, shape in enumerate(shapes)), **attrs
    )


def product(n):
    return lambda g: g.input("x", (n, n)) @ g.constant(weights(n, n))


def conv(channels, side, kernel, groups=1, **attrs):
    w = weights(channels, channels // groups, kernel, kernel)
    x = (1, channels, side, side)
    attrs |= {"padding": kernel // 2, "groups": groups}
    return lambda g: g.conv2d(g.input("x", x), g.constant(w), **attrs)


def halves(n):
    w = weights(n, n).astype(np.float16)
    return lambda g: g.input("x", (n, n)) @ g.cast(g.constant(w), "f32")


def integers(n):
    w = RNG.integers(-100, 100, (n, n)).astype(np.int8)
    return lambda g: g.matmul_integer(g.input("x", (n, n), "i8"), g.constant(w))


def cast(start, end):
    return lambda g: g.cast(g.input("x", (4096,), start), end)


IMAGES = (1, 16, 16, 16)
FUNCTIONS = ("exp", "tanh", "gelu", "erf", "sigmoid", "log", "sin", "silu", "softplus")
CASES = {
    **{f"product {n}": product(n) for n in (64, 128, 256, 512)},
    "product 128, weights of f16": halves(128),
    "product 256 of 8-bit integers": integers(256),
    "convolution 3x3, 32 of 28": conv(32, 28, 3),
    "convolution 5x5, 32 of 14": conv(32, 14, 5),
    "convolution 1x1, 64 of 14": conv(64, 14, 1),
    "depthwise 3x3, 32 of 28": conv(32, 28, 3, 32),
    "depthwise 5x5, 32 of 7": conv(32, 7, 5, 32),
    "attention 4 x 64 x 32": one("attention", *[(1, 4, 64, 32)] * 3),
    "softmax 64 x 256": one("softmax", (64, 256), axis=1),
    "softmax 64 x 256, first axis": one("softmax", (64, 256), axis=0),
    **{
        f"{name} 64 x 256, axis {axis}": one(name, (64, 256), **{key: (axis,) if key == "axes" else axis})
        for name, key in (("sum", "axes"), ("max", "axes"), ("cumsum", "axis"), ("argmax", "axis"))
        for axis in (0, 1)
    },
    "topk 8 of 64 x 256": lambda g: g.topk(g.input("x", (64, 256)), 8)[0],
    "transpose 64 x 256": one("transpose", (64, 256)),
    "add 4096": lambda g: g.input("x", (4096,)) + g.input("y", (4096,)),
    "max pool 2x2, 16 of 32": one("max_pool", (1, 16, 32, 32), kernel=(2, 2)),
    "linear resize, 16 of 16": one("resize", IMAGES, size=(1, 16, 32, 32), mode="linear"),
    "nearest resize, 16 of 16": one("resize", IMAGES, size=(1, 16, 32, 32), mode="nearest"),
    "rfft 8 x 1024": one("rfft", (8, 1024)),
    "f16 to f32": cast("f16", "f32"),
    "f32 to f16": cast("f32", "f16"),
    **{f"{name} 4096": one(name, (4096,)) for name in FUNCTIONS},
}  # fmt: skip


def counted(call):
    """Calls between two counts, when what the first ones prepare is there."""
    call(), call()
    ask()
    for _ in range(CALLS):
        call()
    ask()


def main():
    cases, names = sys.argv[1:] or list(CASES), []
    for name in cases:
        graph = rlx.Graph()
        graph.set_outputs([CASES[name](graph)])
        with rlx.compile(graph, "cpu", options=rlx.CompileOptions(threads=1)) as compiled:
            for view in compiled.input_views:
                view[...] = RNG.normal(size=view.shape) * 10
            counted(compiled.run_slots)
        names.append(name)
    for n in (64, 128, 256, 512):
        if f"product {n}" in cases:
            left, right, result = weights(n, n), weights(n, n), np.empty((n, n), np.float32)
            counted(lambda x=left, y=right, z=result: np.dot(x, y, out=z))
            names.append(f"OpenBLAS {n}")
    for name in cases:
        if name in PEERS:
            counted(call_of(name))
            names.append(f"ONNX Runtime {name}")
    print("names", json.dumps({"calls": CALLS, "names": names}))


if __name__ == "__main__":
    main()
