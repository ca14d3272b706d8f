"""lstm, gru, rnn against onnxruntime; long sequences; what they refuse."""

import numpy as np
import pytest
from onnx_oracle import run_node
from samples import looped

import rlx
from rlx.backends.cpu.layouts import Gates
from rlx.ir.dtype import DType

pytestmark = pytest.mark.by_program

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
OPTIONAL = {"lstm": ("b", "h0", "c0"), "gru": ("b", "h0"), "rnn": ("b", "h0")}


def operands(rng, op, steps, batch, inputs, hidden, direction):
    d, gates = DIRECTIONS[direction], GATES[op]
    shapes = {
        "x": (steps, batch, inputs),
        "w": (d, gates * hidden, inputs),
        "r": (d, gates * hidden, hidden),
        "b": (d, 2 * gates * hidden),
        "h0": (d, batch, hidden),
        "c0": (d, batch, hidden),
        "p": (d, 3 * hidden),
    }
    scale = 1 / np.sqrt(hidden)
    return {n: (rng.standard_normal(s) * scale).astype(np.float32) for n, s in shapes.items()}


def run(device, op, value, **attrs):
    g = rlx.Graph(op)
    nodes = {name: g.input(name, a.shape, a.dtype) for name, a in value.items()}
    g.set_outputs(getattr(g, op)(**nodes, **attrs))
    with rlx.compile(g, device=device) as cg:
        return cg.run(value)


def expect(op, value, direction, **attrs):
    order = ["x", "w", "r", "b", "seq_lens", "h0", *(["c0", "p"] if op == "lstm" else [])]
    inputs = [value.get(name) for name in order]
    attrs = {"hidden_size": value["r"].shape[2], "direction": direction, **attrs}
    return run_node(op.upper(), inputs, 3 if op == "lstm" else 2, **attrs)


def close(got, expected):
    for first, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(first, other, rtol=0, atol=2e-5)


@looped("op", GATES)
@looped("direction", DIRECTIONS)
@looped("options", [False, True])
def test_against_onnx(rng, device, op, direction, options):
    arguments = operands(rng, op, 7, 3, 6, 11, direction)
    names = ("x", "w", "r", *(OPTIONAL[op] if options else ()))
    arguments = {name: arguments[name] for name in names}
    close(run(device, op, arguments, direction=direction), expect(op, arguments, direction))


@looped("op", GATES)
@looped("direction", DIRECTIONS)
def test_lengths(rng, device, op, direction):
    arguments = operands(rng, op, 6, 4, 3, 9, direction)
    arguments = {name: arguments[name] for name in ("x", "w", "r", "b")}
    arguments["seq_lens"] = np.array([6, 2, 5, 1], np.int32)
    close(run(device, op, arguments, direction=direction), expect(op, arguments, direction))


@looped("direction", DIRECTIONS)
def test_gru_linear_before_reset(rng, device, direction):
    arguments = operands(rng, "gru", 5, 3, 4, 70, direction)
    arguments = {name: arguments[name] for name in ("x", "w", "r", "b", "h0")}
    got = run(device, "gru", arguments, direction=direction, linear_before_reset=True)
    close(got, expect("gru", arguments, direction, linear_before_reset=1))


def test_rnn_relu(rng, device):
    arguments = operands(rng, "rnn", 5, 3, 4, 20, "bidirectional")
    arguments = {name: arguments[name] for name in ("x", "w", "r", "b", "h0")}
    got = run(device, "rnn", arguments, direction="bidirectional", activation="relu")
    close(got, expect("rnn", arguments, "bidirectional", activations=["Relu", "Relu"]))


@looped(
    "attrs", [{}, {"clip": 0.2}, {"input_forget": 1}], ids=["peepholes", "clip", "input_forget"]
)
def test_lstm_extras(rng, device, attrs):
    arguments = operands(rng, "lstm", 6, 2, 4, 9, "forward")
    close(run(device, "lstm", arguments, **attrs), expect("lstm", arguments, "forward", **attrs))


@pytest.mark.parametrize("op", GATES)
def test_batch_first(rng, op):
    arguments = operands(rng, op, 5, 3, 4, 6, "bidirectional")
    arguments = {name: arguments[name] for name in ("x", "w", "r", *OPTIONAL[op])}
    y, *states = run("cpu", op, arguments, direction="bidirectional")
    transposed = {
        n: a.transpose(1, 0, 2) if n in ("x", "h0", "c0") else a for n, a in arguments.items()
    }
    transposed = {n: np.ascontiguousarray(a) for n, a in transposed.items()}
    got = run("cpu", op, transposed, direction="bidirectional", layout="batch_first")
    close(got, [y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in states)])


@looped("op", GATES)
def test_long_sequences(rng, device, op):
    # Split over many dispatches on WebGPU.
    arguments = operands(rng, op, 400, 1, 2, 100, "reverse")
    arguments = {name: arguments[name] for name in ("x", "w", "r", "b")}
    close(run(device, op, arguments, direction="reverse"), expect(op, arguments, "reverse"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@looped("op", GATES)
@looped("hidden", [24, 33, 64, 70])
def test_weights_that_stay_are_packed_once(rng, op, hidden, dtype):
    """Weights as params give what weights as inputs give, also after they are set again."""
    for steps, batch, direction in ((1, 1, "forward"), (1, 7, "reverse"), (5, 3, "bidirectional")):
        more = {"linear_before_reset": True} if op == "gru" and batch == 3 else {}
        first, second = (
            {
                name: array.astype(dtype)
                for name, array in operands(rng, op, steps, batch, 5, hidden, direction).items()
                if name in ("x", "w", "r", "b")
            }
            for _ in range(2)
        )
        g = rlx.Graph(op)
        nodes = {name: g.param(name, a.shape, a.dtype) for name, a in first.items() if name != "x"}
        x = g.input("x", first["x"].shape, dtype)
        g.set_outputs(getattr(g, op)(x, **nodes, direction=direction, **more))
        with rlx.compile(g, "cpu", {name: first[name] for name in nodes}) as cg:
            for value in (first, second):
                for name in nodes:
                    cg.set_param(name, value[name])
                result = cg.run({"x": value["x"]})
                expected = run("reference", op, value, direction=direction, **more)
                for left, other in zip(result, expected, strict=True):
                    np.testing.assert_allclose(left, other, rtol=0, atol=2e-5)


@pytest.mark.parametrize("products", [(96,), (66, 33), (64, 32), (1, 1)])
def test_packed_weights_are_unpacked_again(rng, products):
    layout = Gates(DType.F32, 2, 7, products, 64)
    plain = rng.standard_normal((2, sum(products), 7)).astype(np.float32)
    memory, result = np.zeros(layout.nbytes, np.uint8), np.empty_like(plain)
    layout.pack(plain, memory)
    layout.unpack(memory, result)
    np.testing.assert_array_equal(result, plain)


def test_errors():
    g = rlx.Graph("refused")
    x, w, r = g.input("x", (5, 2, 3)), g.input("w", (1, 16, 3)), g.input("r", (1, 16, 4))
    with pytest.raises(rlx.ShapeError, match="w has the wrong shape"):
        g.lstm(x, g.input("w2", (1, 12, 3)), r)
    with pytest.raises(rlx.ShapeError, match="r has the wrong shape"):
        g.lstm(x, w, g.input("r2", (1, 15, 4)))
    with pytest.raises(rlx.ShapeError, match="h0 has the wrong shape"):
        g.lstm(x, w, r, h0=g.input("h0", (2, 1, 4)))
    with pytest.raises(rlx.ShapeError, match="wrong rank"):
        g.lstm(g.input("flat", (5, 3)), w, r)
    with pytest.raises(rlx.UnknownNameError, match="forward"):
        g.lstm(x, w, r, direction="foward")
    with pytest.raises(rlx.UnknownNameError, match="seq_first"):
        g.gru(x, w, r, layout="time_first")
    with pytest.raises(rlx.UnknownNameError, match="tanh"):
        g.rnn(x, w, r, activation="tan")
    with pytest.raises(rlx.DTypeError, match="seq_lens"):
        g.lstm(x, w, r, seq_lens=g.input("s", (2,)))
