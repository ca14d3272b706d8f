"""Masked graphs: a graph for the largest shapes gives the results of one for smaller shapes, whatever the padding holds."""

import dataclasses

import numpy as np
import pytest
from samples import ALL, each, looped

import rlx
import rlx.signal.framing
from rlx.ir.opdef import REGISTRY
from rlx.ops.conformance_cases import Case
from rlx.passes.masking.analysis import study
from rlx.passes.masking.dim_sizes import LENGTHS, UnmaskableError, cut, regrouped, whole
from rlx.passes.masking.mask_rewrite import masked

pytestmark = pytest.mark.by_program

# The padded size, the smallest one, and those that are run.
UPPER, LOWEST, ASKED = 12, 7, (7, 8, 11)


def poison(dtype):
    """Returns the contents of padding: they show wherever they are seen."""
    kind = np.dtype(dtype).kind
    return {"f": np.nan, "b": True}.get(kind, 10**6 if np.dtype(dtype).itemsize > 2 else 101)


def results_of(graph, operands):
    """Computes what a graph gives by the reference."""
    with rlx.compile(graph, device="reference") as compiled:
        return [np.array(item) for item in compiled.run(operands)]


def check(graphs, operands, device, tolerance=2e-6):
    """The masked graph against the exact one."""
    result = study(graphs)
    compare(result, graphs[0], operands, results_of(graphs[-1], operands), device, tolerance)
    return result


def compare(result, largest, operands, wanted, device, tolerance):
    """The masked graph of a study against what the exact graph gives."""
    graph = masked(result)
    graph.verify()
    inputs = {LENGTHS: result.values}
    for name, array in operands.items():
        inputs[name] = np.full(largest.named(name).shape, poison(array.dtype), array.dtype)
        inputs[name][tuple(slice(size) for size in array.shape)] = array
    with rlx.compile(graph, device=device) as compiled:
        output = compiled.run(inputs)
    for first, other, axes in zip(wanted, output, result.outputs, strict=True):
        valid = cut(np.asarray(other), axes, first.shape)
        if first.dtype.kind == "f":
            scale = np.abs(first, where=np.isfinite(first), out=np.zeros_like(first)).max(initial=0)
            np.testing.assert_allclose(valid, first, tolerance, tolerance * max(scale, 1e-30))
        else:
            np.testing.assert_array_equal(valid, first)


def graphs_of(build, asked):
    results = []
    for size in (UPPER, LOWEST, asked):
        g = rlx.Graph()
        g.set_outputs(build(g, size))
        results.append(g)
    return results


def operands_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    results = {}
    for name in graph.input_names:
        type = graph.named(name)
        if type.dtype.is_float:
            results[name] = rng.standard_normal(type.shape).astype(type.dtype.numpy)
        else:
            results[name] = rng.integers(0, 2, type.shape).astype(type.dtype.numpy)
    return results


def weights(g, *shape):
    return g.constant(np.random.default_rng(len(shape)).standard_normal(shape).astype("f4"))


def x3(g, n, dtype="f32"):
    return g.input("x", (2, n, 6), dtype)


def attention(kind):
    def build(g, n):
        q = g.input("q", (2, 4, n, 8))
        k, v = g.input("k", (2, 2, n, 8)), g.input("v", (2, 2, n, 8))
        mask = {
            "custom": lambda: g.input("m", (2, n), "bool"),
            "bias": lambda: g.input("m", (2, 1, n, n)),
        }.get(kind, lambda: None)()
        return g.attention(q, k, v, mask, kind)

    return build


def cross_attention(g, n):
    q, k = g.input("q", (2, 5, 32)), g.input("k", (2, n, 32))
    return g.attention(q, k, k * 2.0, num_heads=4)


def lstm(direction, **more):
    def build(g, n):
        d = 2 if direction == "bidirectional" else 1
        x = g.input("x", (n, 3, 5))
        y, h, c = g.lstm(x, weights(g, d, 16, 5), weights(g, d, 16, 4), direction=direction, **more)
        return [y, h, c]

    return build


def lstm_of_lengths(g, n):
    x, lengths = g.input("x", (n, 2, 5)), g.constant(np.array([5, 100], np.int32))
    return g.lstm(x, weights(g, 1, 16, 5), weights(g, 1, 16, 4), seq_lens=lengths)[1]


def transformer(g, n):
    """A block of attention written with products, over a flattened batch."""
    x = g.input("x", (2, n, 16))
    flat = g.reshape(x, (2 * n, 16))
    q, k, v = (
        g.transpose(g.reshape(g.matmul(flat, weights(g, 16, 16) * f), (2, n, 4, 4)), (0, 2, 1, 3))
        for f in (1.0, 0.5, 0.25)
    )
    scores = g.softmax(g.matmul(q, g.transpose(k, (0, 1, 3, 2))) / 2.0)
    y = g.reshape(g.transpose(g.matmul(scores, v), (0, 2, 1, 3)), (2, n, 16))
    return [g.layer_norm(x + y), g.mean(y, 1), y[:, 0], y[:, -1]]


BUILDS = {
    "elementwise": lambda g, n: g.sin(x3(g, n)) + g.input("row", (n, 1)),
    "matmul rows": lambda g, n: g.matmul(x3(g, n), weights(g, 6, 4)),
    "matmul inner": lambda g, n: g.matmul(g.input("a", (2, 3, n)), g.input("b", (2, n, 4))),
    "matmul both": lambda g, n: g.matmul(x3(g, n), g.transpose(x3b(g, n), (0, 2, 1))),
    "sum": lambda g, n: g.sum(x3(g, n), 1),
    "sum of all": lambda g, n: g.sum(x3(g, n)),
    "mean": lambda g, n: g.mean(x3(g, n), 1),
    "mean of all": lambda g, n: g.mean(x3(g, n)),
    "mean of two": lambda g, n: g.mean(g.input("x", (3, n, 2, n)), (1, 3), True),
    "max": lambda g, n: g.max(x3(g, n), 1),
    "min of integers": lambda g, n: g.min(x3(g, n, "i32"), 1),
    "prod": lambda g, n: g.prod(x3(g, n), 1),
    "l2": lambda g, n: g.l2(x3(g, n), 1),
    "logsumexp": lambda g, n: g.logsumexp(x3(g, n), 1),
    "argmax": lambda g, n: g.argmax(x3(g, n), 1),
    "argmin": lambda g, n: g.argmin(x3(g, n), 1, True),
    "softmax": lambda g, n: g.softmax(x3(g, n), 1),
    "log_softmax": lambda g, n: g.log_softmax(x3(g, n), 1),
    "cumsum": lambda g, n: g.cumsum(x3(g, n), 1),
    "cumsum from the end": lambda g, n: g.cumsum(x3(g, n), 1, reverse=True),
    "cumprod from the end": lambda g, n: g.cumprod(x3(g, n), 1, exclusive=True, reverse=True),
    "layer_norm": lambda g, n: g.layer_norm(x3(g, n), axis=1),
    "rms_norm": lambda g, n: g.rms_norm(x3(g, n), axis=1),
    "instance_norm": lambda g, n: g.instance_norm(g.input("x", (2, 3, n, 4))),
    "group_norm": lambda g, n: g.group_norm(g.input("x", (2, 4, n)), groups=2),
    "reshape": lambda g, n: g.reshape(x3(g, n), (2, n, 3, 2)),
    "flatten": lambda g, n: g.sin(g.reshape(x3(g, n), (2 * n, 6))),
    "flatten and back": lambda g, n: g.sum(g.reshape(g.reshape(x3(g, n), (2 * n, 6)), (2, n, 6)), 1),
    "rows of one axis": lambda g, n: g.sum(g.reshape(g.input("x", (n, 4)), (2 * n, 2)), 0),
    "sum of a joined axis": lambda g, n: g.sum(g.reshape(x3(g, n), (2 * n, 6)), 0),
    "mean of a joined axis": lambda g, n: g.mean(g.reshape(x3(g, n), (2 * n, 6)), 0),
    "transpose": lambda g, n: g.sum(g.transpose(x3(g, n), (1, 2, 0)), 0),
    "expand": lambda g, n: g.expand(g.input("x", (2, 1)), (3, 2, n)) + g.input("y", (n,)),
    "first": lambda g, n: x3(g, n)[:, 0],
    "last": lambda g, n: x3(g, n)[:, -1],
    "last three": lambda g, n: x3(g, n)[:, -3:, ::2],
    "last backwards": lambda g, n: x3(g, n)[:, -1:-4:-1],
    "without the last": lambda g, n: g.sum(x3(g, n)[:, :-1], 1),
    "without the first": lambda g, n: g.sum(x3(g, n)[:, 2:], 1),
    "every second": lambda g, n: g.sum(x3(g, n)[:, 1::2], 1),
    "narrow": lambda g, n: g.narrow(x3(g, n), 1, n - 2, 2),
    "a table": lambda g, n: x3(g, n) + g.constant(np.arange(600, dtype="f4").reshape(100, 6)[:n]),
    "concat": lambda g, n: g.concat([g.input("c", (2, 1, 6)), x3(g, n)], 1),
    "concat beside": lambda g, n: g.concat([x3(g, n), x3b(g, n)], 2),
    "pad": lambda g, n: g.pad(x3(g, n), [(0, 0), (2, 3), (0, 0)], value=2.0),
    "edge before": lambda g, n: g.pad(x3(g, n), [(0, 0), (2, 0), (0, 0)], mode="edge"),
    "reflect before": lambda g, n: g.pad(x3(g, n), [(0, 0), (3, 0), (0, 0)], mode="reflect"),
    "embedding": lambda g, n: g.gather(weights(g, 50, 4), g.input("ids", (2, n), "i64"), 0),
    "one_hot": lambda g, n: g.one_hot(g.input("ids", (2, n), "i32"), 4),
    "gather the first": lambda g, n: g.gather(x3(g, n), g.constant(np.array([0, 3], np.int32)), 1),
    "trilu": lambda g, n: g.trilu(g.input("x", (2, n, n))),
    "conv1d": lambda g, n: g.conv1d(g.input("x", (2, 3, n)), weights(g, 4, 3, 3), padding=1),
    "strided": lambda g, n: g.conv1d(
        g.input("x", (2, 3, n)), weights(g, 4, 3, 5), stride=2, padding=2
    ),
    "conv2d": lambda g, n: g.conv2d(
        g.input("x", (2, 3, n, n + 2)), weights(g, 4, 3, 3, 3), padding=((1, 1), (0, 2)), dilation=2
    ),
    "pointwise": lambda g, n: g.conv2d(g.input("x", (2, 3, n, 4)), weights(g, 4, 3, 1, 1)),
    "same padding": lambda g, n: g.conv1d(
        g.input("x", (2, 3, n + n % 2)), weights(g, 4, 3, 2), stride=2, padding=((0, n % 2),)
    ),
    "transposed": lambda g, n: g.conv_transpose1d(
        g.input("x", (2, 3, n)), weights(g, 3, 4, 4), stride=2, padding=1
    ),
    "deep": lambda g, n: g.mean(
        g.relu(
            g.conv1d(
                g.relu(g.conv1d(g.input("x", (1, 3, n)), weights(g, 4, 3, 3), padding=1)),
                weights(g, 4, 4, 3),
                stride=2,
                padding=1,
            )
        ),
        2,
    ),
    "max_pool": lambda g, n: g.max_pool(g.input("x", (2, 3, n)), 3, 2, 1),
    "avg_pool": lambda g, n: g.avg_pool(g.input("x", (2, 3, n)), 2),
    "avg_pool with padding": lambda g, n: g.avg_pool(
        g.input("x", (2, 3, n)), 3, 1, 1, count_include_pad=True
    ),
    "global_avg_pool": lambda g, n: g.global_avg_pool(g.input("x", (2, 3, n, 5))),
    "global_max_pool": lambda g, n: g.global_max_pool(g.input("x", (2, 3, n, 5))),
    "nearest": lambda g, n: g.sum(
        g.resize(g.input("x", (2, 3, n)), (2, 3, 2 * n), mode="nearest", coordinates="asymmetric",
                 nearest_mode="floor"), 2
    ),
    "stft of rows": lambda g, n: g.rfft(g.input("x", (n, 16))),
    "attention": attention("none"),
    "attention, causal": attention("causal"),
    "attention, sliding": attention("sliding:3"),
    "attention, a mask": attention("custom"),
    "attention, a bias": attention("bias"),
    "attention of a memory": cross_attention,
    "lstm": lstm("forward"),
    "lstm, reverse": lstm("reverse"),
    "lstm, both": lstm("bidirectional"),
    "lstm of lengths": lstm_of_lengths,
    "transformer": transformer,
    "frames": lambda g, n: g.mean(g.rfft(rlx.signal.framing.frame(g.input("x", (2, n)), 4, 2)), 1),
    "welch": lambda g, n: rlx.signal.welch(g.input("x", (2, 40 * n)), nperseg=32),
    "lfilter": lambda g, n: list(
        g.lfilter([0.2, 0.1, 0.3], [1.0, -0.5, 0.2], g.input("x", (2, 9 * n)))
    ),
    "sosfilt": lambda g, n: list(
        g.sosfilt(
            g.input("x", (3, n)), [[0.2, 0.1, 0.3, 1.0, -0.5, 0.2]], g.input("zi", (1, 3, 2))
        )
    ),
    "integers": lambda g, n: g.matmul_integer(x3(g, n, "i8"), g.constant(np.ones((6, 3), np.int8))),
    "one graph for two lengths": lambda g, n: [
        g.sum(g.input("a", (n, 2)), 0), g.sum(g.input("b", (2 * n, 2)), 0)
    ],
}  # fmt: skip


def x3b(g, n):
    return g.input("y", (2, n, 6))


@looped("asked", ASKED)
@looped("name", BUILDS)
def test_the_padded_graph_gives_the_results_of_the_exact_one(device, name, asked):
    graphs = graphs_of(BUILDS[name], asked)
    check(graphs, operands_of(graphs[-1]), device, 2e-5)


REFUSED = {
    "concat behind": (
        lambda g, n: g.concat([x3(g, n), g.input("c", (2, 1, 6))], 1),
        "appends to padding along axis 1",
    ),
    "sort": (lambda g, n: g.sort(g.input("x", (3, n))), "a different k for different shapes"),
    "reflect behind": (
        lambda g, n: g.pad(x3(g, n), [(0, 0), (0, 1), (0, 0)], mode="reflect"),
        "mixes the elements along axis 1",
    ),
    "flip": (lambda g, n: g.flip(x3(g, n), 1), "slices axis 1 at different places"),
    "the middle": (lambda g, n: x3(g, n)[:, n // 2], "slices axis 1 at different places"),
    "nearest of another size": (
        lambda g, n: g.resize(
            g.input("x", (1, 2, n)), (1, 2, 2 * n + 1), scales=(1.0, 1.0, 2.0), mode="nearest",
            coordinates="asymmetric", nearest_mode="floor",
        ),
        "mixes the elements along axis 2",
    ),
    "linear": (
        lambda g, n: g.resize(g.input("x", (1, 2, n)), (1, 2, 2 * n), mode="linear"),
        "mixes the elements along axis 2",
    ),
    "lengths inside": (
        lambda g, n: g.reshape(g.transpose(x3(g, n), (0, 2, 1)), (2, 6 * n)) * 2.0
        + g.reshape(g.input("y", (2, n, 6)), (2, 6 * n)),
        "stand in different orders",
    ),
    "topk": (
        lambda g, n: g.topk(g.input("x", (3, n)), 2)[0],
        "mixes the elements along axis 1",
    ),
    "reflect far": (
        lambda g, n: g.pad(g.pad(x3(g, n), [(0, 0), (6, 0), (0, 0)], mode="reflect"),
                           [(0, 0), (20, 0), (0, 0)], mode="wrap"),
        "mixes the elements along axis 1",
    ),
    "keys before queries": (
        lambda g, n: g.attention(
            g.input("q", (1, 2, n, 8)), g.input("k", (1, 2, 20, 8)), g.input("v", (1, 2, 20, 8)),
            kind="causal",
        ),
        "by their distance",
    ),
    "other numbers": (
        lambda g, n: x3(g, n) * float(n),
        "holds different numbers for different shapes",
    ),
    "other nodes": (
        lambda g, n: g.sin(x3(g, n)) if n > 8 else x3(g, n),
        "different nodes for different shapes",
    ),
    "another operation": (
        lambda g, n: g.sin(x3(g, n)) if n > 8 else g.cos(x3(g, n)),
        "a different node for different shapes",
    ),
    "another attribute": (
        lambda g, n: g.max_pool(g.input("x", (1, 2, n)), 2 + (n > 8), 1),
        "a different kernel for different shapes",
    ),
    "a mean of half floats": (
        lambda g, n: g.mean(x3(g, n, "f16"), 1),
        "divides by a length in f16",
    ),
    "average at the end": (
        lambda g, n: g.avg_pool(g.input("x", (2, 3, n)), 3, 1, 1),
        "mixes the elements along axis 2",
    ),
    "unequal lengths": (
        lambda g, n: [
            g.sum(g.input("a", (n, 2)), 0), g.sum(g.input("b", (n if n != 8 else 9, 2)), 0)
        ],
        "two lengths are equal for some shapes",
    ),
    "a random tensor": (
        lambda g, n: g.random_normal((2, n), seed=g.input("seed", (), "u32")),
        "a different shape for different shapes",
    ),
}  # fmt: skip


@looped("name", REFUSED)
def test_what_sees_padding_is_refused_with_the_node(name):
    build, reason = REFUSED[name]
    with pytest.raises(UnmaskableError, match=reason):
        study(graphs_of(build, 8))


def resized(case, sizes):
    """The same case with other sizes of some axes."""
    shapes = [list(shape) for shape in case.sample.shapes]
    for (operand, axis), size in sizes.items():
        shapes[operand][axis] = size
    sample = dataclasses.replace(case.sample, shapes=tuple(map(tuple, shapes)), values=None)
    return dataclasses.replace(case, sample=sample)


def ways(shapes):
    """Axes that vary together: each alone, and all of one size."""
    every = [(index, axis) for index, shape in enumerate(shapes) for axis in range(len(shape))]
    for place in every:
        yield (place,)
    for size in {size for shape in shapes for size in shape if size > 1}:
        same = tuple((index, axis) for index, axis in every if shapes[index][axis] == size)
        if len(same) > 1:
            yield same


def samples_of(opdef):
    """One case for each shape and attributes of an op's records that are small."""
    for number, sample in enumerate(opdef.samples):
        small = all(0 < np.prod(shape, dtype=int) < 4000 for shape in sample.shapes)
        if sample.shapes and small and not sample.bench:
            dtype = next(d for d in (rlx.DType.F32, *opdef.accepts) if d in opdef.accepts)
            yield Case(opdef, sample, sample.dtypes or (dtype,) * len(sample.shapes), number)


def try_ways(case, tried):
    for places in ways(case.sample.shapes):
        size = case.sample.shapes[places[0][0]][places[0][1]]
        results = []
        try:
            for more in (4, 0, 1):
                results.append(resized(case, dict.fromkeys(places, size + more)))
            graphs = [item.graph() for item in results]
            result = study(graphs)
        except (rlx.RlxError, UnmaskableError, ValueError, IndexError):
            continue
        values = results[-1].operands()
        operands = {f"x{index}": np.asarray(value) for index, value in enumerate(values)}
        dtypes = {name: graphs[-1].named(name).dtype.numpy for name in graphs[-1].input_names}
        operands = {name: operands[name].astype(dtypes[name]) for name in dtypes}
        try:
            expected = results_of(graphs[-1], operands)
        except rlx.RlxError:
            continue  # random operands do not suit every operation
        compare(result, graphs[0], operands, expected, "reference", 1e-4)
        tried[0] += 1


def test_every_operation_keeps_its_results_wherever_its_rule_allows_padding():
    """All samples of all records, each with every axis longer than it was."""
    tried = [0]
    cases = [
        case
        for opdef in REGISTRY.values()
        if opdef.name not in ("input", "param", "constant", "custom")
        for case in samples_of(opdef)
    ]
    # Normally every second one: they are in the order of the operations, with several of each.
    each(cases if ALL else cases[::2], lambda case: try_ways(case, tried))
    assert tried[0] > (1500 if ALL else 750), tried


def test_axes_of_a_reshape():
    batch, length, fixed = whole((2, 2)), whole((8, 5)), whole((6, 6))
    joined = regrouped((batch, length, fixed), [(16, 10), (6, 6)])
    assert [[f.sizes for f in axis] for axis in joined] == [[(2, 2), (8, 5)], [(6, 6)]]
    back = regrouped(joined, [(2, 2), (8, 5), (3, 3), (2, 2)])
    assert back == (batch, length, whole((3, 3)), whole((2, 2)))
    for wrong in ([(6, 6), (8, 5), (2, 2)], [(4, 4), (4, 2), (6, 6)], [(2, 2), (6, 6), (8, 5)]):
        with pytest.raises(UnmaskableError):
            regrouped((batch, length, fixed), wrong)
