"""ONNX models that were read before: the second start of a program finds their graphs, and only those of the same file."""

import os

import numpy as np
import onnx
import pytest
from cached_graphs import counted
from onnx import TensorProto, helper, numpy_helper
from python_process import run_python

import rlx
from rlx.compiler import compile_cache, signed_cache
from rlx.importers.onnx import external, schema
from rlx.serving import import_cache


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder and a key of its own, and nothing in memory."""
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(signed_cache, "key_file", lambda: tmp_path / "user" / "cache-key")
    signed_cache._key.cache_clear()
    compile_cache._kept.clear()
    yield tmp_path / "kept"
    compile_cache._kept.clear()
    signed_cache._key.cache_clear()


def weights(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "w": rng.standard_normal((4, 3, 3, 3), np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        "scale": rng.standard_normal(4).astype(np.float32),
        "mean": rng.standard_normal(4).astype(np.float32),
        "var": rng.random(4, np.float32) + 0.5,
        "table": rng.standard_normal((64, 8)).astype(np.float16),
    }


def as_floats(array, name):
    """A tensor with its floats one by one, as some exporters write them."""
    return helper.make_tensor(name, TensorProto.FLOAT, array.shape, array.ravel())


def network(form=numpy_helper.from_array, seed=0, name="net"):
    """A convolution, a norm that is folded into it, and a table: what is computed when weights are set among it."""
    stored = weights(seed)
    tensors = [
        (numpy_helper.from_array if a.dtype == np.float16 else form)(a, n)
        for n, a in stored.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="convolution", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "b", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
        helper.make_node("Gather", ["table", "at"], ["z"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", 5]),
        helper.make_tensor_value_info("at", TensorProto.INT64, [2]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        helper.make_tensor_value_info("z", TensorProto.FLOAT16, None),
    ]
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def given(n=2, h=6):
    x = np.random.default_rng(1).standard_normal((n, 3, h, 5)).astype(np.float32)
    return {"x": x, "at": np.array([3, 60])}


def run(path, inputs, device="cpu"):
    """Outputs of a new model, and what the caches did."""
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    with rlx.onnx.Model(path, device=device) as model:
        result = model.run(inputs)
        model.run(inputs)
    return result, counted(before)


def same(first, other):
    for a, b in zip(first, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.parametrize("form", [numpy_helper.from_array, as_floats], ids=["bytes", "floats"])
def test_the_second_start(tmp_path, target_device, form, monkeypatch):
    path = tmp_path / "net.onnx"
    onnx.save(network(form), path)
    first, done = run(path, given(), target_device)
    assert done == {"imported": 1, "lowered": 1, "stored": 1}
    with monkeypatch.context() as patch:
        # None of it is done again.
        for what in (
            "importers.onnx.load.lower",
            "importers.onnx.schema.read",
            "compiler.lowering.lower",
        ):
            patch.setattr(f"rlx.{what}", lambda *_, what=what: pytest.fail(what))
        patch.setattr(rlx.Graph, "verify", lambda _: pytest.fail("verify"))
        second, done = run(path, given(), target_device)
    assert done == {"import_hits": 1, "disk_hits": 1}
    same(first, second)
    reference, _ = run(path, given(), "reference")
    np.testing.assert_allclose(second[0], reference[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(second[1], weights()["table"][[3, 60]])


def test_weights_stay_in_the_model(tmp_path, folder):
    """Cached models are smaller than their weights, which are read from the model itself."""
    stored = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    for name, form in (("bytes", numpy_helper.from_array), ("floats", as_floats)):
        path = tmp_path / f"{name}.onnx"
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "product",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 512])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [form(stored, "w")],
        )
        onnx.save(helper.make_model(graph, ir_version=10), path)
        x = {"x": np.ones((1, 512), np.float32)}
        first, _ = run(path, x)
        second, done = run(path, x)
        assert done == {"import_hits": 1, "disk_hits": 1}
        same(first, second)
    assert sum(path.stat().st_size for path in folder.iterdir()) < stored.nbytes // 8


def test_models_that_differ_are_told_apart(tmp_path):
    path = tmp_path / "net.onnx"
    first = network().SerializeToString()
    path.write_bytes(first)
    stat = path.stat()
    result, _ = run(path, given())
    # The same size, the same time: the contents count.
    changed = bytearray(first)
    index = first.index(weights()["b"].tobytes())
    changed[index : index + 4] = np.float32(7).tobytes()
    path.write_bytes(changed)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other, done = run(path, given())
    assert done == {"imported": 1, "disk_hits": 1}, "a graph that is equal but for its weights"
    assert not np.array_equal(result[0], other[0])
    expected, _ = run(bytes(changed), given(), "reference")
    np.testing.assert_allclose(other[0], expected[0], rtol=1e-4, atol=1e-5)
    path.write_bytes(first)
    again, done = run(path, given())
    assert done == {"import_hits": 1, "disk_hits": 1}
    same(result, again)


def test_shapes_names_and_options_are_told_apart(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    run(path, given())
    result, done = run(path, given(3, 4))
    assert done == {"import_hits": 1, "disk_hits": 1}, (
        "the same dims, and a range that has these sizes"
    )
    assert result[0].shape == (3, 4, 4, 5)
    result, done = run(path, given(1, 4))
    assert done == {"imported": 1, "lowered": 1, "stored": 1}, "a size of 1 is fixed"
    assert result[0].shape == (1, 4, 4, 5)
    # Messages name the file.
    other = tmp_path / "other.onnx"
    other.write_bytes(path.read_bytes())
    with rlx.onnx.Model(other, device="cpu") as model:
        assert "other.onnx: Gather" in model.compile(given()).as_text("schedule")
    with rlx.onnx.Model(path, device="cpu") as model:
        assert "net.onnx: Gather" in model.compile(given()).as_text("schedule")
    options = rlx.CompileOptions(fuse=False)
    before = rlx.cache_stats()
    with rlx.onnx.Model(path, device="cpu", options=options) as model:
        model.run(given())
    assert counted(before) == {"import_hits": 1, "lowered": 1, "stored": 1}


def test_bytes_and_file_objects(tmp_path):
    raw = network().SerializeToString()
    first, done = run(raw, given())
    assert done["imported"] == 1
    second, done = run(memoryview(bytearray(raw)), given())
    assert done == {"import_hits": 1, "disk_hits": 1}
    same(first, second)


def resized():
    """A model whose shapes depend on what an input holds."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "reshape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_inputs_whose_values_decide_shapes(tmp_path):
    path = tmp_path / "reshape.onnx"
    onnx.save(resized(), path)
    x = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (3, 2), (2, 3)):
        (result,), done = run(path, {"x": x, "shape": np.array(shape)})
        assert result.shape == shape
    assert done == {"import_hits": 1, "disk_hits": 2}, "the graph, and its two segments"
    with rlx.onnx.Model(path, device="cpu") as model:
        model.run({"x": x, "shape": np.array((6, 1))})


def test_weights_in_other_files_are_never_kept(tmp_path, folder):
    """They may change while the model stays as it is."""
    path = tmp_path / "net.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    first, done = run(path, given())
    assert done["imported"] == 1
    second, done = run(path, given())
    assert done["imported"] == 1
    assert "import_hits" not in done
    same(first, second)
    (tmp_path / "weights.bin").unlink()
    onnx.save(
        network(seed=1), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    third, _ = run(path, given())
    assert not np.array_equal(first[0], third[0])


def test_large_models_are_not_digested(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    monkeypatch.setattr(import_cache, "MAX_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr(import_cache, "digest_of", lambda _: pytest.fail("digested"))
    run(path, given())
    _, done = run(path, given())
    assert done == {"imported": 1, "disk_hits": 1}


def test_params_that_are_set_later_are_prepared_anew(tmp_path, target_device):
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    run(path, given(), target_device)
    compile_cache._kept.clear()
    with rlx.onnx.Model(path, device=target_device) as model:
        compiled = model.compile(given())
        before = compiled.run(given())
        other = weights(1)
        compiled.set_params({name: other[name] for name in ("scale", "mean", "var")})
        after = compiled.run(given())
    assert not np.array_equal(before[0], after[0])
    stored = {**weights(), **{name: other[name] for name in ("scale", "mean", "var")}}
    changed = network()
    for tensor in changed.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(stored[tensor.name], tensor.name))
    expected, _ = run(changed.SerializeToString(), given(), "reference")
    np.testing.assert_allclose(after[0], expected[0], rtol=1e-4, atol=1e-5)


def test_clones_and_recovery(tmp_path, target_device):
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    first, _ = run(path, given(), target_device)
    compile_cache._kept.clear()
    with rlx.onnx.Model(path, device=target_device) as model, model.clone() as other:
        same(first, model.run(given()))
        same(first, other.run(given()))
        model.recover()
        same(first, model.run(given()))


def test_bad_models_are_refused_as_ever(tmp_path, folder):
    for raw in (b"", b"\x08", b"no model", network().SerializeToString()[:-40]):
        for _ in range(2):
            with pytest.raises(rlx.ImportModelError):
                rlx.onnx.Model(raw, device="cpu").run(given())


def test_a_damaged_entry_is_made_again(tmp_path, folder):
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    first, _ = run(path, given())
    for entry in list(folder.iterdir()):
        raw = bytearray(entry.read_bytes())
        raw[len(raw) // 2] ^= 1
        entry.write_bytes(raw)
        with pytest.warns(RuntimeWarning, match=entry.name) as said:
            second, done = run(path, given())
        assert [item.filename for item in said] == [__file__]
        assert done.pop("damaged") == 1
        same(first, second)
        _, done = run(path, given())
        assert done == {"import_hits": 1, "disk_hits": 1}


def test_nothing_is_kept_where_the_cache_is_off(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("RLX_CACHE", "off")
    path = tmp_path / "net.onnx"
    onnx.save(network(), path)
    for _ in range(2):
        _, done = run(path, given())
        assert done == {"imported": 1, "lowered": 1}
    assert not folder.exists()
    assert not (tmp_path / "user").exists()


def test_digests_of_pieces():
    raw = np.random.default_rng(0).bytes(3 * import_cache._PIECE + 5)
    seen = {import_cache.digest_of(memoryview(raw))}
    assert import_cache.digest_of(memoryview(bytes(raw))) in seen
    for index in (0, import_cache._PIECE, len(raw) - 1):
        changed = bytearray(raw)
        changed[index] ^= 1
        seen.add(import_cache.digest_of(memoryview(changed)))
    seen |= {
        import_cache.digest_of(memoryview(raw)[:index])
        for index in (0, 1, import_cache._PIECE, len(raw) - 1)
    }
    assert len(seen) == 8


SECOND_PROCESS = """
import sys, numpy as np, rlx
from rlx.compiler import signed_cache
from pathlib import Path
signed_cache.key_file = lambda: Path(sys.argv[2])
held = dict(np.load(sys.argv[3]))
found = rlx.onnx.Model(sys.argv[1], device="cpu").run(held)
stats = rlx.cache_stats()
unread = [name for name in sys.modules if name.startswith("rlx.importers.onnx.ops.")]
print(found[0].tobytes().hex(), stats.imported, stats.import_hits, stats.disk_hits, len(unread))
"""


def test_another_process_finds_it(tmp_path):
    path, inputs = tmp_path / "net.onnx", tmp_path / "inputs.npz"
    onnx.save(network(), path)
    np.savez(inputs, **given())
    arguments = ("-c", SECOND_PROCESS, path, tmp_path / "user/key", inputs)
    results = [run_python(*arguments).stdout.split() for _ in range(2)]
    assert results[0][0] == results[1][0]
    assert results[0][1:4] == ["1", "0", "0"]
    # The second one imports none of the modules that turn ONNX nodes into nodes.
    assert results[1][1:] == ["0", "1", "1", "0"]


def test_tensors_anywhere_are_looked_at():
    """Tensors in another file may be anywhere."""
    outside = schema.TensorProto(name="t", location=1)
    body = schema.GraphDef(nodes=[schema.NodeDef(attributes=[schema.Attribute(t=outside)])])
    inside = [
        schema.GraphDef(initializers=[outside]),
        body,
        schema.GraphDef(nodes=[schema.NodeDef(attributes=[schema.Attribute(g=body)])]),
        schema.GraphDef(nodes=[schema.NodeDef(attributes=[schema.Attribute(graphs=[body])])]),
        schema.GraphDef(nodes=[schema.NodeDef(attributes=[schema.Attribute(tensors=[outside])])]),
    ]
    for graph in inside:
        assert list(external._of_graph(graph)) == [outside]
    assert not list(external._of_graph(schema.GraphDef(nodes=[schema.NodeDef()])))
