"""``rlx.onnx.Model`` with many lengths: buckets of them, their results, and what ``report`` says."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from samples import looped

import rlx
from rlx.compiler import compile_cache, signed_cache
from rlx.passes.masking.dim_sizes import UnmaskableError
from rlx.serving.bucket_padding import Bucket
from rlx.serving.model_buckets import bucket_of

WIDTH, HEADS = 16, 4


def encoder(pooled="mean"):
    """A block of attention over ids of ``[batch, length]``, its shapes worked out within the model."""
    rng = np.random.default_rng(0)
    names, nodes, values = iter(range(1000)), [], []

    def weight(array):
        name = f"w{next(names)}"
        values.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(op, *inputs, **attrs):
        name = f"t{next(names)}"
        nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    def random(*shape):
        return weight(rng.standard_normal(shape).astype("f4") / 4)

    x = node("Gather", random(50, WIDTH), "ids")
    shape = node("Shape", x)
    heads = node(
        "Concat",
        node("Slice", shape, weight([0]), weight([2])),
        weight(np.array([HEADS, WIDTH // HEADS])),
        axis=0,
    )
    q, k, v = (
        node("Transpose", node("Reshape", node("MatMul", x, random(WIDTH, WIDTH)), heads), perm=p)
        for p in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    )
    scores = node("Softmax", node("MatMul", q, k), axis=-1)
    y = node("Transpose", node("MatMul", scores, v), perm=(0, 2, 1, 3))
    y = node("Add", node("Reshape", y, shape), x)
    scale = random(WIDTH)
    nodes.append(helper.make_node("LayerNormalization", [y, scale], ["y"]))
    if pooled == "mean":
        nodes.append(helper.make_node("ReduceMean", ["y", weight([1])], ["pooled"], keepdims=0))
    else:  # the greatest of all positions
        means = node("ReduceMean", "y", weight([2]), keepdims=0)
        nodes.append(helper.make_node("TopK", [means, weight([3])], ["pooled", "at"], axis=1))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "encoder",
        [info("ids", TensorProto.INT64, ("batch", "length"))],
        [info("y", TensorProto.FLOAT, None), info("pooled", TensorProto.FLOAT, None)],
        values,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return model.SerializeToString()


RAW = encoder()


def ids(length, batch=1):
    return {"ids": np.random.default_rng(length).integers(0, 50, (batch, length))}


def agree(result, wanted, tolerance=1e-5):
    assert [item.shape for item in result] == [item.shape for item in wanted]
    for first, other in zip(result, wanted, strict=True):
        assert first.dtype == other.dtype
        np.testing.assert_allclose(first, other, tolerance, tolerance * np.abs(other).max())


def test_two_hundred_lengths(device):
    """They equal the results of exact shapes; few graphs are compiled."""
    lengths = np.random.default_rng(7).integers(1, 200, 200 if device == "cpu" else 40)
    with (
        rlx.onnx.Model(RAW, device) as model,
        rlx.onnx.Model(RAW, "cpu", buckets=None) as exact,
    ):
        for length in map(int, lengths):
            agree(model.run(ids(length)), exact.run(ids(length)))
        report = model.report()
        print(report.compiles, "graphs were compiled for", len(set(lengths)), "lengths")
        assert report.compiles <= 28
        assert exact.report().compiles >= len(set(lengths))
        assert sum(executable.bucket for executable in report.executables) >= 8


def test_results_of_padded_runs_are_the_callers(device):
    """They are neither views of a larger array nor of memory that the next run writes."""
    with rlx.onnx.Model(RAW, device, buckets={"length": [64]}) as model:
        y, pooled = model.run(ids(40))
        before = y.copy()
        model.run(ids(41))
        np.testing.assert_array_equal(y, before)
        assert all(item.flags.c_contiguous for item in (y, pooled))
        assert all(item.flags.owndata for item in (y, pooled)) or y.base.nbytes == y.nbytes


def test_automatic_buckets_cover_every_size_once():
    size, seen = 1, 0
    while size < 5000:
        low, high = bucket_of(size)
        assert (low, seen + 1) == (size, size)
        assert all(bucket_of(item) == (low, high) for item in (low, (low + high) // 2, high))
        assert high <= 1.25 * low
        size, seen = high + 1, high


def test_the_first_shapes_are_compiled_as_they_are():
    with rlx.onnx.Model(RAW, "cpu") as model:
        for length in (33, 34, 35, 36, 35):
            model.run(ids(length))
        report = model.report()
    assert [
        (executable.bucket, executable.shapes, executable.dims[1])
        for executable in report.executables
    ] == [
        (False, 1, ("length", 33, 33)),
        (False, 1, ("length", 34, 34)),
        (True, 2, ("length", 33, 40)),
    ]
    assert str(report).splitlines()[0].startswith("3 compiled, 2 more")
    assert "length 33 to 40: bucket, 2 sets" in str(report)
    assert "first sets of shapes" in str(report)


def test_a_batch_that_varies_alone_keeps_the_length():
    with rlx.onnx.Model(RAW, "cpu") as model:
        for batch in (10, 11, 12, 13):
            model.run(ids(20, batch))
        dims = [executable.dims for executable in model.report().executables if executable.bucket]
    assert dims == [
        (("batch", 11, 12), ("length", 20, 20)),
        (("batch", 13, 14), ("length", 20, 20)),
    ]


def test_two_dimensions_that_vary():
    with (
        rlx.onnx.Model(RAW, "cpu") as model,
        rlx.onnx.Model(RAW, "reference", buckets=None) as exact,
    ):
        for batch, length in ((2, 20), (9, 33), (10, 37), (9, 40), (3, 34)):
            agree(model.run(ids(length, batch)), exact.run(ids(length, batch)))
        assert model.report().compiles == 4


def test_listed_buckets(monkeypatch):
    with rlx.onnx.Model(RAW, "cpu", buckets={"length": [32, 64]}) as model:
        wanted = rlx.onnx.Model(RAW, "reference", buckets=None)
        for length in (5, 32, 33, 64, 2, 65, 1):
            agree(model.run(ids(length)), wanted.run(ids(length)))
        executables = model.report().executables
        assert {executable.dims[1][1:] for executable in executables if executable.bucket} == {
            (1, 32),
            (33, 64),
        }
        (exact,) = (executable for executable in executables if executable.dims[1][1] == 65)
        assert exact.reason == "length of 65 is in no bucket"


def test_prewarm_compiles_listed_buckets():
    with rlx.onnx.Model(RAW, "cpu", buckets={"length": [32, 64]}, capacity=2) as model:
        sets = [{"batch": 1, "length": n} for n in (10, 20, 40, 50)]
        assert model.prewarm(sets).result() == 2
        model.run(ids(20))
        assert model.report().compiles == 2
        assert model.report().lengths == 4, "one for each set"


def test_prewarm_compiles_exact_shapes_of_an_automatic_model():
    with rlx.onnx.Model(RAW, "cpu") as model:
        assert model.prewarm([{"batch": 1, "length": n} for n in (33, 34, 35, 36)]).result() == 4
        assert not any(executable.bucket for executable in model.report().executables)
        model.run(ids(35))
        assert model.report().compiles == 4


def test_compile_gives_an_executable_of_just_these_shapes():
    with rlx.onnx.Model(RAW, "cpu", buckets={"length": [64]}) as model:
        model.run(ids(40))
        compiled = model.compile(ids(40))
        assert compiled.run(ids(40))[0].shape == (1, 40, WIDTH)
        assert model.compile(ids(40)) is compiled


def test_where_masks_do_not_help_every_size_is_compiled_and_the_report_says_why():
    raw = encoder("topk")
    with (
        rlx.onnx.Model(raw, "cpu") as model,
        rlx.onnx.Model(raw, "reference", buckets=None) as exact,
    ):
        for length in range(20, 30):
            agree(model.run(ids(length)), exact.run(ids(length)))
        report = model.report()
    assert report.compiles == 10
    reasons = {executable.reason for executable in report.executables[2:]}
    assert len(reasons) == 1
    assert "mixes the elements along axis" in reasons.pop()
    assert report.lengths <= 2, "it is not tried again for every size"


def table(rows):
    """Ids of ``[length]`` plus a table of positions with so many rows: longer inputs make no sense."""
    values = np.random.default_rng(1).standard_normal((rows, 4)).astype("f4")
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=0, end=1),
        helper.make_node("Slice", ["table", "zero", "shape"], ["begin"]),
        helper.make_node("Add", ["x", "begin"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "positions",
        [info("x", TensorProto.FLOAT, ("length", 4))],
        [info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(values, "table"),
            numpy_helper.from_array(np.array([0]), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return model.SerializeToString(), values


@looped("buckets", ["auto", {"length": [64, 112]}])
def test_sizes_near_the_end_of_what_a_model_takes(buckets):
    """Their bucket ends beyond: they are compiled as they are, and run."""
    raw, values = table(101)
    with rlx.onnx.Model(raw, "cpu", buckets=buckets) as model:
        for length in (40, 41, 42, 99, 100, 101, 98, 43):
            x = np.ones((length, 4), np.float32)
            np.testing.assert_array_equal(model.run({"x": x})[0], x + values[:length])
        reasons = {
            executable.dims[0][1]: executable.reason for executable in model.report().executables
        }
        assert "can't be made" in reasons[99]
        with pytest.raises(rlx.RlxError):
            model.run({"x": np.ones((102, 4), np.float32)})


def test_lengths_that_do_not_fit_leave_their_bucket_to_others(monkeypatch):
    before = Bucket.fit

    def odd(self, key, build):
        if key[0][0][1][1] % 2:
            raise UnmaskableError("odd")
        return before(self, key, build)

    monkeypatch.setattr(Bucket, "fit", odd)
    with rlx.onnx.Model(RAW, "cpu", buckets={"length": [64]}) as model:
        for length in (40, 41, 43, 45, 42):
            model.run(ids(length))
        assert [(executable.bucket, executable.reason) for executable in model.report().executables] == [
            (False, "odd"), (False, "odd"), (False, "odd"), (True, "")
        ]  # fmt: skip


def test_many_threads(device):
    calls = 40 if device == "cpu" else 8
    with (
        rlx.onnx.Model(RAW, device) as model,
        rlx.onnx.Model(RAW, "reference", buckets=None, capacity=100) as exact,
    ):
        wanted = {length: exact.run(ids(length)) for length in range(20, 60)}

        def work(seed):
            for length in map(int, np.random.default_rng(seed).integers(20, 60, calls)):
                agree(model.run(ids(length)), wanted[length])
            return calls

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(work, range(4))) == 4 * calls


def test_few_executables_are_kept():
    with rlx.onnx.Model(RAW, "cpu", capacity=2) as model:
        for length in (33, 34, 35, 50, 100, 35):
            model.run(ids(length))
        assert len(model.report().executables) == 2
        assert model.report().compiles == 6, "the bucket of 35 was forgotten"


def test_recover_and_close():
    with rlx.onnx.Model(RAW, "cpu", buckets={"length": [64]}) as model:
        first = model.run(ids(40))
        model.recover()
        assert model.report().executables == ()
        agree(model.run(ids(40)), first)
        other = model.clone()
        agree(other.run(ids(40)), first)
        assert [executable.bucket for executable in other.report().executables] == [True]
        other.close()
    with pytest.raises(rlx.InputError, match="closed"):
        model.run(ids(40))


@looped(
    "buckets,error,text",
    [
        ("many", rlx.InputError, "option buckets"),
        (True, rlx.InputError, "option buckets"),
        ({"lenght": [8]}, rlx.UnknownNameError, "did you mean.*length"),
        ({"length": []}, rlx.InputError, "the buckets of dimension 'length'"),
        ({"length": [8, 4]}, rlx.InputError, "the least first"),
        ({"length": [0, 4]}, rlx.InputError, "whole numbers"),
        ({"length": [1.5]}, rlx.InputError, "whole numbers"),
        ({"length": 64}, rlx.InputError, "64"),
    ],
)
def test_wrong_buckets(buckets, error, text):
    with pytest.raises(error, match=text):
        rlx.onnx.Model(RAW, "cpu", buckets=buckets)


def test_the_masked_graph_is_kept_in_the_cache_folder(monkeypatch, tmp_path):
    """It is compiled from there like any other."""
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(signed_cache, "key_file", lambda: tmp_path / "user" / "cache-key")
    signed_cache._key.cache_clear()
    lowered = []
    for _ in range(2):
        compile_cache._kept.clear()
        with rlx.onnx.Model(RAW, "cpu", buckets={"length": [64]}) as model:
            before = rlx.cache_stats()
            model.run(ids(40))
            lowered.append(rlx.cache_stats().lowered - before.lowered)
    signed_cache._key.cache_clear()
    compile_cache._kept.clear()
    assert lowered == [1, 0]


def test_cancelling_leaves_no_half_made_bucket():
    token = rlx.CancelToken()
    model = rlx.onnx.Model(RAW, "cpu", buckets={"length": [64]}, cancel=token)
    token.cancel()
    with pytest.raises(rlx.CancelledError):
        model.run(ids(40))
    assert model.report().executables == ()


def test_no_warnings_from_what_padding_holds():
    """Zeros in the padding may divide by zero; nobody is told."""
    with warnings.catch_warnings(), rlx.onnx.Model(RAW, "cpu", buckets={"length": [64]}) as model:
        warnings.simplefilter("error")
        model.run(ids(3))
