"""Calls that threads share: their work is worth waking a thread for."""

import numpy as np
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import linker, split

# A graph's kernel, the shapes of its operands, and whether several threads make it.
WORTH = [
    ("matmul", ((1, 256), (256, 256)), False),
    ("matmul", ((48, 17, 17), (48, 17, 17)), False),
    ("matmul", ((64, 256), (256, 1024)), True),
    ("matmul", ((48, 77, 1), (48, 1, 77)), True),  # stores more than it multiplies
    ("matmul_integer", ((4, 320), (320, 300)), False),
    ("matmul_integer", ((1, 512), (512, 512)), False),
    ("matmul_integer", ((1, 1024), (1024, 1024)), True),  # waits for its weights
    ("matmul_integer", ((16, 1000), (1000, 1000)), True),
    ("lstm", ((1, 1, 128), (1, 512, 128), (1, 512, 128)), False),
    ("lstm", ((1, 16, 80), (1, 256, 80), (1, 256, 64)), False),
    ("lstm", ((10, 8, 80), (1, 512, 80), (1, 512, 128)), True),
]


@looped(("op", "shapes", "shared"), WORTH)
def test_small_calls_stay_on_one_thread(op, shapes, shared, monkeypatch):
    results = []
    monkeypatch.setattr(split, "usable_cores", lambda: 8)
    monkeypatch.setattr(
        linker, "split_of", lambda call, count: results.append(split.split_of(call, count))
    )
    g = rlx.Graph()
    dtype = "i8" if op == "matmul_integer" else "f32"
    kind = {"i8": np.int8, "f32": np.float32}[dtype]
    weights = [g.constant(np.ones(shape, kind)) for shape in shapes[1:]]
    result = getattr(g, op)(g.input("x", shapes[0], dtype), *weights)
    g.set_outputs(list(result) if isinstance(result, tuple) else [result])
    with rlx.compile(g, "cpu", options=CompileOptions(threads=8)):
        assert any(results) == shared


def test_a_copy_is_shared_as_its_bytes_are_worth_it(monkeypatch):
    results = []
    monkeypatch.setattr(split, "usable_cores", lambda: 8)
    monkeypatch.setattr(linker, "split_of", lambda *args: results.append(split.split_of(*args)))
    x = (g := rlx.Graph()).input("x", (768, 768))
    g.set_outputs([g.concat([x, x[:, :17], x[:, :77]], 1)])
    with rlx.compile(g, "cpu", options=CompileOptions(threads=8)):
        # Two narrow ones, then what is concatenated.
        assert [item and item.parts for item in results] == [None, 5, 8, None, 5]


def test_taps_on_padding_are_no_work(monkeypatch):
    results = {}
    monkeypatch.setattr(split, "usable_cores", lambda: 8)

    def note(call, count):
        results[call.kernel] = split.split_of(call, count)

    monkeypatch.setattr(linker, "split_of", note)
    # 31 taps, of which at most 5 meet the line.
    g = rlx.Graph()
    w = g.constant(np.ones((32, 32, 31), np.float32))
    g.set_outputs([g.conv1d(g.input("x", (2, 32, 5)), w, padding=30, dilation=2)])
    with rlx.compile(g, "cpu", options=CompileOptions(threads=8)):
        assert results == {"conv_last": None, "strided_copy": None}
