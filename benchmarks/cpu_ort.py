"""ONNX Runtime on the CPU: a workload as a session with bound operands and results."""

import math
from functools import partial

import numpy as np
from ort_builds import BUILDS as SHARED
from ort_builds import OrtModel
from work_streams import chain_of

from rlx.ops import decode_blocks

CONTRIBUTED = "com.microsoft"
# Operators of attention and RMS norms came with this set.
OPSET = 23


def session_of(model, threads):
    """A session that uses so many threads, in its own way of waiting."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Right sums of u8 times i8 on processors without VNNI, where they would saturate.
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def ways(work, threads):
    """Ways to run the workload, by name; each makes ``(call, outputs)`` of it."""
    kind, settings = work.peer
    builds = WAYS.get(kind, {"": BUILDS[kind]} if kind in BUILDS else {})
    return {
        f"ORT {name}".strip(): partial(_prepared, work, build, settings, threads)
        for name, build in builds.items()
    }


def _prepared(work, build, settings, threads):
    import onnxruntime as ort

    m = OrtModel(work.values)
    m.feeds = {name: value for name, value in work.values.items() if name not in work.weights}
    # A node that wants other operands than these says so in feeds.
    named = {
        name: m.constant(value) if name in work.weights else name
        for name, value in work.values.items()
    }
    results = build(m, named, **settings)
    if results is None:
        raise ValueError("it has no such model")
    results = [results] if isinstance(results, str) else results
    session = session_of(m.bytes(results, OPSET), threads)
    feeds = {name: np.ascontiguousarray(feed) for name, feed in m.feeds.items()}
    binding = session.io_binding()
    for name, feed in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(feed))
    stored = [
        ort.OrtValue.ortvalue_from_numpy(np.empty_like(item)) for item in session.run(None, feeds)
    ]
    for name, feed in zip(results, stored, strict=True):
        binding.bind_ortvalue_output(name, feed)

    def call():
        session.run_with_iobinding(binding)

    return call, lambda: m.back([item.numpy() for item in stored])


def _linear(m, v, act, residual):
    result = m.add("Add", [m.add("MatMul", [v["a"], v["w"]]), v["b"]])
    result = m.add("Gelu", [result]) if act else result
    return m.add("Add", [result, v["r"]]) if residual else result


def _half_weights(m, v):
    # ONNX Runtime widens constants when the session is made.
    wide = m.constant(m.values["w"].astype(np.float32))
    return m.add("MatMul", [v["a"], wide])


# The factor of the sums of the int8 workload.
INT8_SCALE = np.array(0.01 * 0.02, np.float32)


def _int8(m, v):
    product = m.add("Cast", [m.add("MatMulInteger", [v["a"], v["w"]])], to=1)
    return m.add("Mul", [product, m.constant(INT8_SCALE)])


def _unsigned(m, v):
    """The same product of unsigned bytes that count from 128, which it may have faster kernels for."""
    m.feeds = {"a": (m.feeds["a"].astype(np.int16) + 128).astype(np.uint8)}
    zero = m.constant(np.array(128, np.uint8))
    product = m.add("Cast", [m.add("MatMulInteger", [v["a"], v["w"], zero])], to=1)
    return m.add("Mul", [product, m.constant(INT8_SCALE)])


def _widened(m, v):
    """The same product in f32, whose sums stay exact up to 2^24."""
    wide = m.constant(m.values["w"].astype(np.float32) * INT8_SCALE)
    return m.add("MatMul", [m.add("Cast", [v["a"]], to=1), wide])


BLOCK = 32


def _dequant(m, v, scheme):
    """Its own kernel for blocks of weights, with the same numbers in its own order.

    Products are those of f32, as those of rlx are; a level that rounds x to 8 bits has other results.
    """
    x, packed = m.values["x"], m.values["w"]
    n, k = len(packed), x.shape[1]
    blocks = packed.reshape(n, k // BLOCK, -1)
    scales = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    bits = {"Q4_0": 4, "Q8_0": 8}[scheme]
    # Numbers that count from the middle, as both formats have them.
    whole = decode_blocks(packed, scheme).reshape(n, k // BLOCK, BLOCK)
    safe = np.where(scales == 0, 1, scales)
    counts = (np.rint(whole / safe) + (1 << (bits - 1))).astype(np.uint8)
    if bits == 4:
        counts = counts[..., ::2] | (counts[..., 1::2] << 4)
    return m.add(
        "MatMulNBits",
        [v["x"], m.constant(counts), m.constant(scales.reshape(n, k // BLOCK))],
        domain=CONTRIBUTED,
        K=k,
        N=n,
        bits=bits,
        block_size=BLOCK,
    )


def _decoded(m, v, scheme):
    """The same product by weights of f32."""
    whole = decode_blocks(m.values["w"], scheme).reshape(len(m.values["w"]), -1)
    return m.add("MatMul", [v["x"], m.constant(np.ascontiguousarray(whole.T, np.float32))])


def _nodes(m, v, causal, group):
    if not causal:
        return SHARED["attention"](m, v, causal=False, group=group)
    q, k = m.values["q"].shape[-2], m.values["k"].shape[-2]
    hidden = np.where(np.arange(k) > np.arange(q)[:, None] + (k - q), -np.inf, 0)
    scale = m.constant(np.array([1 / math.sqrt(m.values["q"].shape[-1])], np.float32))
    transposed = m.add("Transpose", [v["k"]], perm=[0, 1, 3, 2])
    scores = m.add("Mul", [m.add("MatMul", [v["q"], transposed]), scale])
    seen = m.add("Add", [scores, m.constant(hidden.astype(np.float32))])
    return m.add("MatMul", [m.add("Softmax", [seen], axis=-1), v["v"]])


def _attention(m, v, causal, group):
    return m.add("Attention", [v["q"], v["k"], v["v"]], is_causal=int(causal))


def _multi_head(m, v, causal, group):
    """Its contributed operator, fed in the layout that it wants."""
    if group > 1:
        return None
    heads = m.values["q"].shape[1]
    m.feeds = {
        name: feed.transpose(0, 2, 1, 3).reshape(len(feed), feed.shape[2], -1)
        for name, feed in m.feeds.items()
    }
    shape = m.values["q"].shape

    def back(results):
        b, h, s, d = shape
        return [results[0].reshape(b, s, h, d).transpose(0, 2, 1, 3)]

    m.back = back
    return m.add(
        "MultiHeadAttention",
        [v["q"], v["k"], v["v"]],
        domain=CONTRIBUTED,
        num_heads=heads,
        unidirectional=int(causal),
    )


class _Numbers:
    """The namespace of ``chain_of`` that makes nodes."""

    def __init__(self, m, name):
        self.m, self.name = m, name

    def _with(self, kind, other):
        if not isinstance(other, _Numbers):
            other = _Numbers(self.m, self.m.constant(np.array(other, np.float32)))
        return _Numbers(self.m, self.m.add(kind, [self.name, other.name]))

    def __add__(self, other):
        return self._with("Add", other)

    def __sub__(self, other):
        return self._with("Sub", other)

    def __mul__(self, other):
        return self._with("Mul", other)

    def tanh(self, x):
        """The node of the same name."""
        return _Numbers(self.m, self.m.add("Tanh", [x.name]))

    def maximum(self, x, y):
        """The node of nearly the same name."""
        return x._with("Max", y)


def _chain(m, v):
    x, y = (_Numbers(m, v[name]) for name in ("x", "y"))
    return chain_of(x, x, y).name


def _resize(m, v, factor):
    scales = m.constant(np.array([1, 1, factor, factor], np.float32))
    return m.add("Resize", [v["x"], "", scales], mode="linear")


def _lstm(m, v, hidden):
    operands = [v["x"], v["w"], v["r"], v["b"], "", v["h0"], v["c0"]]
    return m.add("LSTM", operands, results=3, hidden_size=hidden)


def _gru(m, v, hidden):
    operands = [v["x"], v["w"], v["r"], v["b"], "", v["h0"]]
    return m.add("GRU", operands, results=2, hidden_size=hidden, linear_before_reset=1)


_UNARY = {"exp": "Exp", "tanh": "Tanh", "erf": "Erf", "gelu": "Gelu", "sigmoid": "Sigmoid"}
_BINARY = {"add": "Add", "mul": "Mul", "maximum": "Max"}

BUILDS = SHARED | {
    "linear": _linear,
    "half_weights": _half_weights,
    "chain": _chain,
    "unary": lambda m, v, kind: m.add(_UNARY[kind], [v["x"]]),
    "binary": lambda m, v, kind: m.add(_BINARY[kind], [v["x"], v["y"]]),
    "rms_norm": lambda m, v: m.add("RMSNormalization", [v["x"], v["w"]], epsilon=1e-6),
    "cumsum": lambda m, v, axis: m.add("CumSum", [v["x"], m.constant(np.array(axis))]),
    "resize": _resize,
    "lstm": _lstm,
    "gru": _gru,
}
# Where it has several kernels, the fastest one is the peer.
WAYS = {
    "attention": {"nodes": _nodes, "Attention": _attention, "MultiHeadAttention": _multi_head},
    "int8": {"i8": _int8, "u8": _unsigned, "f32": _widened},
    "dequant": {"MatMulNBits": _dequant, "f32": _decoded},
}
