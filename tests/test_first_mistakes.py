"""Mistakes of new users: a call works as in NumPy, or a typed error says what to do."""

import inspect
import pickle

import numpy as np
import pytest
from onnx import helper
from test_onnx import info, model, node

import rlx

X = np.arange(12, dtype=np.float32).reshape(3, 4)
J = np.array([2, -1])
# j is a node of int64 with the values of J.
KEYS = (
    "[j]", "[:, j]", "[1:, j]", "[None, j]", "[j, None]", "[j, 0]", "[0, j]", "[..., j]", "[j, ::-1]",
    "[[2, 0]]", "[:, [[1], [-1]]]", "[np.array([0, 2])]", "[np.array(1)]", "[[]]", "[(0, 1),]",
)  # fmt: skip


@pytest.fixture
def g():
    return rlx.Graph("mistakes")


def test_indices_of_nodes_and_arrays(device, g):
    x, j = g.input("x", X.shape), g.input("j", J.shape, "i64")
    results = [eval(f"x{key}", {"x": x, "j": j, "np": np}) for key in KEYS]
    # Nothing but what was asked for: comparing keys builds nodes.
    assert not [item for item in g.nodes if item.op == "eq"]
    g.set_outputs(results)
    for key, item in zip(KEYS, rlx.compile(g, device).run({"x": X, "j": J}), strict=True):
        expected = eval(f"X{key}", {"X": X, "j": J, "np": np})
        np.testing.assert_array_equal(item, expected, err_msg=key)


@pytest.mark.parametrize(
    ("key", "error", "what"),
    [
        ("[x > 0, j]", rlx.GraphError, "one axis after the other"),
        ("[[True, False]]", rlx.ShapeError, "a mask of another shape"),
        ("[True]", rlx.GraphError, "not an index"),
        ("[j, j]", rlx.GraphError, "g.gather_nd"),
        ("[None, 0, :, j]", rlx.ShapeError, "too many indices"),
        ("[x]", rlx.GraphError, "g.cast"),
        ("[[0.5]]", rlx.GraphError, "integers"),
        ("['a']", rlx.GraphError, "g.gather"),
        ("[[3]]", rlx.ShapeError, "out of range"),
        ("[[-4]]", rlx.ShapeError, "out of range"),
        ("[..., ...]", rlx.ShapeError, "too many indices"),
    ],
)
def test_other_indices_are_refused(g, key, error, what):
    x, j = g.input("x", X.shape), g.input("j", J.shape, "i64")
    with pytest.raises(error, match=what):
        eval(f"x{key}", {"x": x, "j": j, "X": X})


def test_an_array_and_an_integer_apart(g):
    x, j = g.input("x", (2, 3, 4)), g.input("j", J.shape, "i64")
    assert x[0, :, 1].shape == (3,)
    with pytest.raises(rlx.GraphError, match="one axis after the other"):
        x[0, :, j]


def test_operators_as_in_numpy(device, g):
    q, f = g.input("q", (4,), "i32"), g.input("f", (4,))
    Q, F = np.int32([-7, 7, -8, 3]), np.float32([-2.5, 0.5, 3, -4])
    texts = ("q // 2", "q // -3", "7 // q", "f // 1.5", "q % 3", "f % 2", "7 % q", "~q", "q & 6", "1 | q",
             "q ^ 5", "abs(q)", "abs(f)", "(q > 0) & (f > 0)", "~(q > 0)", "(q > 0) ^ (f > 0)", "True | (q > 0)")  # fmt: skip
    g.set_outputs([eval(text, {"q": q, "f": f}) for text in texts])
    for text, item in zip(texts, rlx.compile(g, device).run({"q": Q, "f": F}), strict=True):
        np.testing.assert_array_equal(item, eval(text, {"q": Q, "f": F}), err_msg=text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x.T", r"g\.transpose"),
        ("x.sum", r"use g\.sum\(node, \.\.\.\)"),
        ("x.astype", r"g\.cast"),
        ("x.ndim", r"len\(node\.shape\)"),
        ("x.nmae", "known"),
        ("g.zeros", r"np\.zeros"),
        ("g.stack", r"g\.concat"),
        ("g.sofmax", "did you mean 'softmax'"),
    ],
)
def test_what_nodes_and_graphs_lack(g, text, hint):
    with pytest.raises(AttributeError, match=hint):
        eval(text, {"x": g.input("x", (2,)), "g": g})


def test_a_node_is_no_number(g):
    x = g.input("x", ())
    for function in (float, int, len):
        with pytest.raises(rlx.NodeValueError, match="before its graph runs") as error:
            function(x)
        assert isinstance(error.value, TypeError)
    assert not hasattr(x, "__array__")
    assert np.array([x, x], object).shape == (2,)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("split(x, 3, 0)", "'sizes'"),
        ("split(x, 0, [3, 3])", "'sizes'"),
        ("split(x, (3.0, 3), 0)", "'sizes'"),
        ("split(x, [3, 3], 'a')", "'axis'"),
        ("random_uniform(7, (3, 4))", r"the shape comes first"),
        ("random_normal(7, [3])", r"the shape comes first"),
        ("random_uniform((3,), 1.5)", "seed"),
        ("random_uniform((3,), 1, 0.0, 1.0)", "'stream'"),
        ("random_uniform((3,), 1, low='a')", "'low'"),
        ("random_uniform((3,), 1, high=None)", "'high'"),
        ("concat(0, [x, x])", r"concat\(xs, axis\)"),
        ("pad(x, 1)", r"pad\(x, pads"),
        ("topk(x, 'k')", "'k'"),
        ("cumsum(x, None)", "'axis'"),
        ("sum(x, 'b')", "'axes'"),
        ("slice(x, 0, 1)", "'starts'"),
        ("arange('a')", "'start'"),
        ("conv2d(x, x, stride=1.5)", "'stride'"),
    ],
)
def test_arguments_of_the_wrong_kind(g, text, what):
    x = g.input("x", (6, 4))
    with pytest.raises(rlx.GraphError, match=what):
        eval(f"g.{text}", {"g": g, "x": x})


# --- models ---


def unknown(place):
    """A model with an operator that there is not, in a place."""
    strange = helper.make_node("Reluu", ["x"], ["s"], name="act_7")
    inputs = [info("x", ["n", 4])]
    if place == "graph":
        return model([strange], inputs, ["s"])
    if place == "domain":
        return model([node("Relu", "x", "s", domain="none.such")], inputs, ["s"])
    if place == "function":
        function = helper.make_function(
            "own", "F", ["x"], ["s"], [strange], [helper.make_opsetid("", 18)]
        )
        call = node("F", "x", "y", domain="own")
        sets = [helper.make_opsetid("own", 1)]
        return model([call], inputs, ["y"], functions=[function], sets=sets)
    branch = helper.make_graph([strange], "b", [], [info("s", ["n", 4])])
    other = helper.make_graph([node("Neg", "x", "o")], "o", [], [info("o", ["n", 4])])
    nodes = [node("ReduceMax", "x", "m", keepdims=0), node("Less", "m zero", "c"),
             helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)]  # fmt: skip
    return model(nodes, inputs, ["y"], {"zero": np.float32(0)})


@pytest.mark.parametrize("place", ["graph", "domain", "function", "branch"])
def test_unknown_operators_are_refused_when_a_model_is_made(place):
    for _ in range(2):  # the cache folder does not know it either
        with pytest.raises(rlx.UnsupportedOpError, match="1 nodes can't be imported"):
            rlx.onnx.Model(unknown(place), "cpu")


def test_all_unknown_operators_are_listed():
    nodes = [node("Reluu", "x", "a"), node("Reluu", "a", "b"), node("Softmaxx", "b", "y")]
    nodes.append(node("Spare", "x", "unused"))
    with pytest.raises(
        rlx.UnsupportedOpError, match=r"3 nodes(.|\n)*2 x Reluu(.|\n)*1 x Softmaxx"
    ) as error:
        rlx.onnx.Model(model(nodes, [info("x", [2])], ["y"]), "cpu")
    assert "Spare" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"hello world, not a model", "another kind of file"),
        (b"GGUF\x03\0\0\0", "rlx.gguf.load"),
        (b"PK\x03\x04aaaaaaaaaaaaaaaaaaa", "PyTorch"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"<!DOCTYPE html><html>", "failed download"),
        (b'\x40\0\0\0\0\0\0\0{"w": {}}', "safetensors"),
        (b"\x18\0\0\0ORTM\0\0\0\0", "ONNX Runtime"),
        (model([node("Relu", "x", "y")], [info("x", [2])], ["y"])[:40], "damaged"),
    ],
)
def test_files_that_are_not_onnx(tmp_path, content, what):
    path = tmp_path / "junk.onnx"
    path.write_bytes(content)
    for use in (lambda: rlx.onnx.Model(path, "cpu"), lambda: rlx.onnx.load(path)):
        with pytest.raises(rlx.ImportModelError, match="not an ONNX model") as error:
            use()
        assert str(path) in str(error.value)
        assert what in str(error.value)


@pytest.mark.parametrize(
    "load",
    [
        lambda p: rlx.onnx.Model(p, "cpu"),
        rlx.onnx.load,
        rlx.load_model,
        rlx.safetensors.load,
        rlx.gguf.load,
    ],
)
def test_files_that_can_not_be_read_are_errors_of_the_system_too(tmp_path, load):
    missing = tmp_path / "none.bin"
    with pytest.raises(rlx.ModelNotFoundError) as error:
        load(missing)
    assert isinstance(error.value, rlx.ImportModelError)
    assert isinstance(error.value, FileNotFoundError)
    assert error.value.errno == 2
    assert "none.bin" in str(error.value)
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value)
    with pytest.raises(rlx.ImportModelError):
        load(tmp_path)


def test_external_data_that_is_not_there(tmp_path):
    tensor = helper.make_tensor("w", 1, [2], [1.0, 2.0])
    tensor.ClearField("float_data")
    tensor.data_location = 1
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "none.bin"
    graph = helper.make_graph(
        [node("Add", "x w", "y")], "g", [info("x", [2])], [info("y", [2])], [tensor]
    )
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    path.write_bytes(result.SerializeToString())
    with pytest.raises(FileNotFoundError, match="no such file"):
        rlx.onnx.load(path)


def test_a_model_is_no_path():
    with pytest.raises(rlx.ImportModelError, match="a path, bytes"):
        rlx.onnx.Model(5, "cpu")


def test_a_wrong_rank_does_not_bind_dimensions():
    inputs = [info("a", ["n", 4]), info("b", ["n", 4])]
    with rlx.onnx.Model(model([node("Add", "a b", "y")], inputs, ["y"]), "cpu") as result:
        with pytest.raises(rlx.InputError) as error:
            result.run({"a": np.ones(4, np.float32), "b": np.ones((2, 4), np.float32)})
        assert "with" not in str(error.value)
        with pytest.raises(rlx.InputError, match=r"input 'b' (.|\n)*with \{'n': 3\}"):
            result.run({"a": np.ones((3, 4), np.float32), "b": np.ones((2, 4), np.float32)})


def test_options_and_calls_of_onnx_runtime():
    data = model([node("Relu", "x", "y")], [info("x", [2])], ["y"])
    for option, hint in (("providers", "rlx.available_devices"), ("sess_options", "CompileOptions"),
                         ("devcie", "did you mean 'device'")):  # fmt: skip
        with pytest.raises(rlx.InputError, match=hint):
            rlx.onnx.Model(data, **{option: None})
    with rlx.onnx.Model(data, "cpu") as result:
        for call in ((None, {"x": X}), (["y"], {"x": X})):
            with pytest.raises(rlx.InputError, match=r"model\.run\(\{name: array"):
                result.run(*call)


# --- devices, life, help ---


@pytest.mark.parametrize(
    ("name", "line"),
    [("cuda", "plugins/rlx_xla[cuda]"), ("CUDA:1", "plugins/rlx_xla[cuda]"), ("mlx", "plugins/rlx_mlx"),
     ("xla", "plugins/rlx_xla'"), ("ane", "entry point")],
)  # fmt: skip
def test_a_device_of_a_package_that_is_not_installed(g, name, line):
    g.set_outputs([g.input("x", (2,)) * 2.0])
    from rlx.backends.registry import backend_names

    if rlx.Device.parse(name).backend in backend_names():
        pytest.skip("it is installed")
    with pytest.raises(rlx.DeviceUnavailableError) as error:
        rlx.compile(g, name)
    text = str(error.value)
    assert line in text
    there = text.split("expected: one of ")[1].split("\n")[0].split(", ")
    assert there == list(dict.fromkeys(device.backend for device in rlx.available_devices()))


def test_use_after_close(device):
    g = rlx.Graph("closed")
    g.set_outputs([g.input("x", (2,)) * g.param("w", (2,), value=np.float32([1, 2]))])
    cg = rlx.compile(g, device)
    retained = cg.run_slots
    cg.close()
    cg.close()
    x = np.ones(2, np.float32)
    uses = [
        lambda: cg.run({"x": x}), lambda: cg.run_slots(x), lambda: retained(x), lambda: cg(x=x),
        lambda: cg.set_param("w", x), cg.clone, lambda: cg.submit({"x": x}), lambda: cg.run_raw({"x": x}),
        lambda: pickle.dumps(cg), lambda: cg.run_pipelined([{"x": x}]),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(rlx.ClosedError):
            use()
    assert issubclass(rlx.ClosedError, rlx.InputError)
    result = rlx.onnx.Model(model([node("Relu", "x", "y")], [info("x", [2])], ["y"]), device)
    result.close()
    for use in (
        lambda: result.run(x),
        lambda: result.submit(x),
        result.recover,
        lambda: result.prewarm([{}]),
    ):
        with pytest.raises(rlx.ClosedError):
            use()


def test_use_of_a_pool_or_a_cache_after_close():
    g = rlx.Graph("closed")
    g.set_outputs([g.input("x", (2,)) * 2.0])
    x = np.ones(2, np.float32)
    pool, cache = rlx.Pool(g, devices=["cpu"]), rlx.CompileCache("cpu", 2)
    for item in (pool, cache):
        item.close()
        item.close()
    uses = (
        lambda: pool.run(x),
        lambda: pool.submit(x),
        lambda: list(pool.map([x])),
        lambda: cache.get_or_compile("key", lambda: g),
    )
    for use in uses:
        with pytest.raises(rlx.ClosedError, match="is closed"):
            use()


def test_run_slots_has_help(device):
    assert "in declaration order" in rlx.CompiledGraph.run_slots.__doc__
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,)) * 2.0])
    with rlx.compile(g, device) as cg:
        assert "input_views" in inspect.getdoc(cg.run_slots)
        x = np.ones(2, np.float32)
        assert rlx.CompiledGraph.run_slots(cg, x)[0].tolist() == [2, 2]
