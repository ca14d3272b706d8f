"""ONNX models whose sizes depend on what their inputs hold: single operators, heads of detectors, speech, and loops."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

NODE, I64, BOOL = helper.make_node, TensorProto.INT64, TensorProto.BOOL


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=()):
    """The bytes of a model; outputs are names with types."""
    results = [value(name, None, kind) for name, kind in outputs.items()]
    stored = [
        numpy_helper.from_array(np.asarray(array), name) for name, array in dict(weights).items()
    ]
    graph = helper.make_graph(nodes, "model", inputs, results, stored)
    sets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()


def floats(rng, *shape):
    return rng.random(shape, np.float32)


def boxes(rng, count, size=640):
    """Boxes of a picture, as two corners."""
    middle, side = floats(rng, 1, count, 2) * size, floats(rng, 1, count, 2) * size / 8 + 4
    return np.concatenate([middle - side / 2, middle + side / 2], -1).astype(np.float32)


def one(op, inputs, outputs, weights=(), **attributes):
    """A model of one operator, by the names of all operands in order."""
    operands = [*(i.name for i in inputs), *dict(weights)]
    return model([NODE(op, operands, list(outputs), **attributes)], inputs, outputs, weights)


def suppression(most, overlap, least):
    weights = {"m": np.int64([most]), "o": np.float32([overlap]), "t": np.float32([least])}
    inputs = [value("boxes", [1, "n", 4]), value("scores", [1, "classes", "n"])]
    return one("NonMaxSuppression", inputs, {"kept": I64}, weights)


def between(rng, low, high):
    return int(rng.integers(low, high))


def _rows(rng, low, high, width):
    return floats(rng, between(rng, low, high), width)


def _flags(rng, x):
    return rng.random(len(x)) > 0.5


def _masked(rng):
    x = _rows(rng, 3000, 9000, 4)
    return {"s": floats(rng, len(x)), "x": x}


def _compressed(rng):
    x = _rows(rng, 8000, 12000, 8)
    return {"x": x, "c": _flags(rng, x)}


def _numbers(rng, low, high, count=1):
    return np.array([between(rng, low, high) for _ in range(count)])


MASKED = model(
    [
        NODE("Greater", ["s", "t"], ["c"]),
        NODE("NonZero", ["c"], ["i"]),
        NODE("Transpose", ["i"], ["it"]),
        NODE("GatherND", ["x", "it"], ["y"]),
    ],
    [value("s", ["n"]), value("x", ["n", 4])],
    {"y": TensorProto.FLOAT},
    {"t": np.float32(0.7)},
)

# Each number of frames repeated as often as its length says, from running sums: what exporters write for text to speech.
REGULATOR = model(
    [
        NODE("CumSum", ["lengths", "axis"], ["ends"]),
        NODE("ReduceMax", ["ends"], ["total"], keepdims=0),
        NODE("Range", ["zero", "total", "one"], ["frames"]),
        NODE("Unsqueeze", ["frames", "first"], ["column"]),
        NODE("GreaterOrEqual", ["column", "ends"], ["passed"]),
        NODE("Cast", ["passed"], ["number"], to=I64),
        NODE("ReduceSum", ["number", "first"], ["which"], keepdims=0),
        NODE("Gather", ["x", "which"], ["spread"], axis=0),
        NODE("MatMul", ["spread", "w"], ["product"]),
        NODE("Tanh", ["product"], ["y"]),
    ],
    [value("x", ["n", 64]), value("lengths", ["n"], I64)],
    {"y": TensorProto.FLOAT},
    {
        "axis": np.int64(0), "zero": np.int64(0), "one": np.int64(1), "first": np.int64([1]),
        "w": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8,
    },
)  # fmt: skip


def _regulated(rng):
    x = _rows(rng, 20, 90, 64)
    return {"x": x, "lengths": rng.integers(0, 9, len(x)) + 1}


def transformer_head(most=300, classes=80, least=0.6):
    """The end of a transformer that detects: the best pairs of a query and a class, and those above a score."""
    nodes = [
        NODE("Sigmoid", ["logits"], ["scores"]),
        NODE("Reshape", ["scores", "flat"], ["row"]),
        NODE("TopK", ["row", "most"], ["best", "at"], axis=-1),
        NODE("Mod", ["at", "classes"], ["labels"]),
        NODE("Div", ["at", "classes"], ["queries"]),
        NODE("Reshape", ["queries", "column"], ["wanted"]),
        NODE("Gather", ["boxes", "wanted"], ["chosen"], axis=1),
        NODE("Greater", ["best", "least"], ["kept"]),
        NODE("NonZero", ["kept"], ["places"]),
        NODE("Gather", ["places", "one"], ["rank"], axis=0),
        NODE("Gather", ["best", "rank"], ["score"], axis=1),
        NODE("Gather", ["labels", "rank"], ["label"], axis=1),
        NODE("Gather", ["chosen", "rank"], ["box"], axis=1),
    ]
    weights = {
        "flat": np.int64([1, -1]), "most": np.int64([most]), "classes": np.int64(classes),
        "column": np.int64([-1]), "least": np.float32(least), "one": np.int64(1),
    }  # fmt: skip
    inputs = [value("logits", [1, "queries_", classes]), value("boxes", [1, "queries_", 4])]
    outputs = {"score": TensorProto.FLOAT, "label": I64, "box": TensorProto.FLOAT}
    return model(nodes, inputs, outputs, weights)


def _detected(rng):
    count = between(rng, 300, 900)
    logits = (floats(rng, 1, count, 80) * 8 - 7.4).astype(np.float32)
    return {"logits": logits, "boxes": boxes(rng, count)}


def growing():
    """Rows that a loop appends, until their sum is large enough."""
    body = helper.make_graph(
        [
            NODE("Concat", ["rows", "last"], ["more"], axis=0),
            NODE("ReduceSum", ["more"], ["sum"], keepdims=0),
            NODE("MatMul", ["last", "w"], ["product"]),
            NODE("Tanh", ["product"], ["next"]),
            NODE("Less", ["sum", "limit"], ["go"]),
            NODE("Identity", ["sum"], ["sums"]),
        ],
        "body",
        [
            value("i", [], I64),
            value("c", [], BOOL),
            value("rows", ["k", 16]),
            value("last", [1, 16]),
        ],
        [
            value("go", [], BOOL),
            value("more", ["l", 16]),
            value("next", [1, 16]),
            value("sums", []),
        ],
    )
    weights = {"w": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32) / 4}
    return model(
        [NODE("Loop", ["n", "", "x", "l"], ["rows_out", "last_out", "sums_out"], body=body)],
        [value("x", ["k", 16]), value("l", [1, 16]), value("n", [], I64), value("limit", [])],
        dict.fromkeys(("rows_out", "last_out", "sums_out"), TensorProto.FLOAT),
        weights,
    )


def beam_search(beams=4, width=32, words=200):
    """Sentences that grow by a word in each trip, the best few of them, until all end."""
    rng = np.random.default_rng(1)
    body = helper.make_graph(
        [
            NODE("Gather", ["table", "word"], ["e"], axis=0),
            NODE("Add", ["state", "e"], ["added"]),
            NODE("Tanh", ["added"], ["hidden"]),
            NODE("MatMul", ["hidden", "out"], ["logits"]),
            NODE("LogSoftmax", ["logits"], ["chances"], axis=-1),
            NODE("Unsqueeze", ["score", "one"], ["column"]),
            NODE("Add", ["column", "chances"], ["totals"]),
            NODE("Reshape", ["totals", "rest"], ["flat"]),
            NODE("TopK", ["flat", "beams"], ["score2", "places"]),
            NODE("Div", ["places", "words"], ["parent"]),
            NODE("Mod", ["places", "words"], ["word2"]),
            NODE("Gather", ["ids", "parent"], ["before"], axis=0),
            NODE("Unsqueeze", ["word2", "one"], ["last"]),
            NODE("Concat", ["before", "last"], ["ids2"], axis=1),
            NODE("Gather", ["hidden", "parent"], ["state2"], axis=0),
            NODE("Equal", ["word2", "end"], ["ended"]),
            NODE("Cast", ["ended"], ["number"], to=I64),
            NODE("ReduceMin", ["number"], ["all"], keepdims=0),
            NODE("Equal", ["all", "zero"], ["go"]),
        ],
        "body",
        [
            value("i", [], I64), value("c", [], BOOL), value("word", [beams], I64),
            value("score", [beams]), value("state", [beams, width]), value("ids", [beams, "length"], I64),
        ],
        [
            value("go", [], BOOL), value("word2", [beams], I64), value("score2", [beams]),
            value("state2", [beams, width]), value("ids2", [beams, "longer"], I64),
        ],
    )  # fmt: skip
    weights = {
        "table": rng.standard_normal((words, width)).astype(np.float32),
        "out": rng.standard_normal((width, words)).astype(np.float32) / 4,
        "one": np.int64([1]), "rest": np.int64([-1]), "beams": np.int64([beams]),
        "words": np.int64(words), "end": np.int64(3), "zero": np.int64(0),
    }  # fmt: skip
    return model(
        [NODE("Loop", ["n", "", "w0", "s0", "h0", "ids0"], ["w1", "s1", "h1", "ids1"], body=body)],
        [
            value("n", [], I64), value("w0", [beams], I64), value("s0", [beams]),
            value("h0", [beams, width]), value("ids0", [beams, 1], I64),
        ],
        {"s1": TensorProto.FLOAT, "ids1": I64},
        weights,
    )  # fmt: skip


def _sentences(rng):
    return {
        "n": np.array(between(rng, 4, 40)), "w0": rng.integers(0, 200, 4),
        "s0": -np.arange(4, dtype=np.float32), "h0": floats(rng, 4, 32), "ids0": rng.integers(0, 200, (4, 1)),
    }  # fmt: skip


F = TensorProto.FLOAT
# By name: a model, and inputs that are drawn anew for each call.
MODELS = {
    "NonZero, 17,000 numbers": (
        one("NonZero", [value("x", ["n"])], {"y": I64}),
        lambda rng: {"x": (floats(rng, between(rng, 15000, 19000)) > 0.5).astype(np.float32)},
    ),
    "NonZero, matrices": (
        one("NonZero", [value("x", ["n", "m"])], {"y": I64}),
        lambda rng: {"x": (floats(rng, 130, between(rng, 100, 150)) > 0.9).astype(np.float32)},
    ),
    "Compress, rows": (
        one("Compress", [value("x", ["n", 8]), value("c", ["n"], BOOL)], {"y": F}, axis=0),
        _compressed,
    ),
    "boolean index": (MASKED, _masked),
    "Unique": (
        one("Unique", [value("x", ["n"], I64)], dict.fromkeys("abcd", I64)),
        lambda rng: {"x": rng.integers(0, 500, between(rng, 1500, 2500))},
    ),
    "Range": (
        one("Range", [value(name, [], I64) for name in "abc"], {"y": I64}),
        lambda rng: {"a": np.array(between(rng, 0, 9)), "b": np.array(between(rng, 1000, 9000)), "c": np.array(2)},
    ),
    "TopK, computed k": (
        one("TopK", [value("x", ["n"]), value("k", [1], I64)], {"v": F, "i": I64}),
        lambda rng: {"x": floats(rng, between(rng, 5000, 9000)), "k": _numbers(rng, 10, 300)},
    ),
    "Slice, computed": (
        one("Slice", [value("x", ["n", 16]), value("a", [1], I64), value("b", [1], I64)], {"y": F}),
        lambda rng: {"x": floats(rng, 2000, 16), "a": _numbers(rng, 0, 500), "b": _numbers(rng, 900, 1900)},
    ),
    "Expand, computed": (
        one("Expand", [value("x", [1, 64]), value("s", [2], I64)], {"y": F}),
        lambda rng: {"x": floats(rng, 1, 64), "s": np.array([between(rng, 50, 500), 64])},
    ),
    "transformer's detections": (transformer_head(), _detected),
    "NMS, 2,000 boxes": (
        suppression(200, 0.5, 0.25),
        lambda rng: (lambda n: {"boxes": boxes(rng, n), "scores": floats(rng, 1, 1, n)})(between(rng, 1800, 2200)),
    ),
    "NMS, 300 boxes of 80 classes": (
        suppression(100, 0.5, 0.6),
        lambda rng: {"boxes": boxes(rng, 300), "scores": floats(rng, 1, 80, 300)},
    ),
    "NMS, 8,400 boxes, no limit": (
        suppression(1 << 62, 0.5, 0.9),
        lambda rng: {"boxes": boxes(rng, 8400), "scores": floats(rng, 1, 4, 8400)},
    ),
    "length regulator": (REGULATOR, _regulated),
    "growing loop": (
        growing(),
        lambda rng: {
            "x": floats(rng, between(rng, 1, 6), 16), "l": floats(rng, 1, 16) - 0.5, "n": np.array(between(rng, 5, 60)),
            "limit": np.array(between(rng, 5, 40), np.float32),
        },
    ),
    "beam search": (beam_search(), _sentences),
}  # fmt: skip
