"""ONNX files as bytes: what the reader makes of good ones, of damaged ones, and of paths that lead elsewhere."""

import os
import tracemalloc
from dataclasses import fields

import numpy as np
import onnx
import pytest
from fuzzing import small_model
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import bytes_changed
from onnx import helper, numpy_helper
from samples import looped

import rlx
from rlx.importers.onnx import schema, wire
from rlx.importers.onnx.tensors import to_array

TYPES = ["f4", "u1", "i1", "u2", "i2", "i4", "i8", "?", "f2", "f8", "u4", "u8"]


def parse(record, data):
    return schema.read(record, wire.FileSpan(memoryview(data), 0))


def test_tables_name_the_fields_of_the_records():
    for record, table in schema.TABLES.items():
        assert {f.name for f in table.values()} == {f.name for f in fields(record)}, record


def test_field_numbers_are_those_of_the_onnx_package():
    names = {
        "StringEntry": "StringStringEntryProto", "Opset": "OperatorSetIdProto", "ValueInfo": "ValueInfoProto",
        "TensorProto": "TensorProto", "Attribute": "AttributeProto", "NodeDef": "NodeProto",
        "GraphDef": "GraphProto", "Function": "FunctionProto", "ModelDef": "ModelProto",
    }  # fmt: skip
    theirs = {
        "element": "data_type", "floats": "float_data", "int32s": "int32_data", "raw": "raw_data",
        "strings": "string_data", "int64s": "int64_data", "doubles": "double_data",
        "uint64s": "uint64_data", "external": "external_data", "location": "data_location",
        "ref": "ref_attr_name", "op": "op_type", "attributes": "attribute", "nodes": "node",
        "initializers": "initializer", "inputs": "input", "outputs": "output",
        "sparse": "sparse_initializer", "opsets": "opset_import", "functions": "functions",
        "defaults": "attribute_proto",
    }  # fmt: skip
    for record, table in schema.TABLES.items():
        if record.__name__ not in names:
            continue
        fields = getattr(onnx, names[record.__name__]).DESCRIPTOR.fields_by_number
        for number, item in table.items():
            want = item.name if record.__name__ == "Attribute" else theirs.get(item.name, item.name)
            want = {"ref": "ref_attr_name"}.get(want, want)
            assert fields[number].name == want, (record, number)


@looped("dtype", TYPES)
@looped("raw", [True, False], ids=["raw", "fields"])
@looped("shape", [(2, 3), (), (0, 4), (1,)])
def test_tensors_come_back(dtype, raw, shape):
    rng = np.random.default_rng(0)
    array = (rng.standard_normal(shape) * 50).astype(dtype)
    if raw:
        proto = numpy_helper.from_array(np.asarray(array), "t")
    else:
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        proto = helper.make_tensor("t", code, shape, array.ravel())
    result, element = to_array(parse(schema.TensorProto, proto.SerializeToString()), None)
    assert element.numpy == array.dtype
    np.testing.assert_array_equal(result, array)
    assert result.shape == shape
    assert not result.flags.writeable


def test_bfloat16_comes_as_bits():
    import ml_dtypes

    array = np.array([1.5, -2.0, np.inf]).astype(ml_dtypes.bfloat16)
    for proto in (
        numpy_helper.from_array(array, "t"),
        helper.make_tensor("t", onnx.TensorProto.BFLOAT16, (3,), array.astype(np.float32)),
    ):
        result, element = to_array(parse(schema.TensorProto, proto.SerializeToString()), None)
        assert element.name == "bfloat16"
        np.testing.assert_array_equal(result, array.view(np.uint16))


def test_weights_are_views_of_the_mapped_file(tmp_path):
    """Four times eight MiB of weights cost no copy."""
    weight = np.zeros((2048, 4096), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "large",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2048])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    tracemalloc.start()
    g = rlx.onnx.load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert g.param_names == ("w",)
    # An address that is not a multiple of four is copied once; nothing more.
    assert peak < weight.nbytes * 1.1
    np.testing.assert_array_equal(g.param_values["w"], weight)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_packed_integers_come_back(values):
    proto = onnx.TensorProto(int64_data=values)
    result = parse(schema.TensorProto, proto.SerializeToString()).int64s
    assert (result is None and not values) or result.tolist() == values


@given(st.binary(max_size=200))
def test_any_bytes_are_a_model_or_a_typed_error(data):
    with pytest.raises(rlx.RlxError):
        rlx.onnx.load(data)


def test_every_truncation_is_a_typed_error():
    data = small_model().SerializeToString()
    for end in range(len(data)):
        try:
            rlx.onnx.load(data[:end], dims={"n": 2})
        except rlx.RlxError:
            continue
        # Only the end of the operator sets may be left out at the very end.
        pytest.fail(f"a model cut at {end} of {len(data)} bytes was taken")


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_mutated_small_model_is_taken_or_refused(random):
    rng = np.random.default_rng(random.getrandbits(32))
    try:
        g = rlx.onnx.load(bytes_changed(small_model().SerializeToString(), rng), dims={"n": 2})
    except rlx.RlxError:
        return
    g.verify()


def _external(tmp_path, **entries):
    model = small_model()
    tensor = model.graph.initializer[0]
    (tmp_path / "inside").mkdir(exist_ok=True)
    (tmp_path / "secret.bin").write_bytes(tensor.raw_data)
    (tmp_path / "inside" / "w.bin").write_bytes(b"\0" * 16 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path = tmp_path / "inside" / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read_at_its_offset(tmp_path):
    path = _external(tmp_path, location="w.bin", offset="16", length="48")
    w, x = np.arange(12, dtype=np.float32).reshape(4, 3) - 5, np.ones((2, 4), np.float32)
    (y,) = rlx.onnx.Model(path, device="cpu").run({"x": x})
    np.testing.assert_allclose(y, np.maximum(x @ w, 0) + 1)


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ({"location": "../secret.bin"}, "outside the model's folder"),
        ({"location": "link.bin"}, "outside the model's folder"),
        ({"location": "linked/secret.bin"}, "outside the model's folder"),
        ({"location": "/etc/hostname"}, "not a relative path"),
        ({"location": "..\\secret.bin"}, "not a relative path"),
        ({"location": "w\0.bin"}, "not a relative path"),
        ({"location": ""}, "not a relative path"),
        ({"location": "none.bin"}, "no such file"),
        ({"location": "."}, "no such file"),
        ({"location": "x" * 5000}, "not a path"),
        ({"location": "w.bin", "offset": "17"}, "does not fit"),
        ({"location": "w.bin", "offset": "-4"}, "does not fit"),
        ({"location": "w.bin", "offset": "x"}, "can't be read"),
        ({"location": "w.bin", "length": "4"}, "does not fit"),
        ({"location": "w.bin", "offset": str(2**70)}, "does not fit"),
    ],
)
def test_external_data_stays_in_the_folder(tmp_path, entries, what):
    path = _external(tmp_path, **entries)
    os.symlink(tmp_path / "secret.bin", path.parent / "link.bin")
    os.symlink(tmp_path, path.parent / "linked")
    with pytest.raises(rlx.ImportModelError, match=what):
        rlx.onnx.load(path, dims={"n": 2})


def test_bytes_have_no_external_data(tmp_path):
    path = _external(tmp_path, location="w.bin")
    with pytest.raises(rlx.ImportModelError, match="by its path"):
        rlx.onnx.load(path.read_bytes(), dims={"n": 2})


def test_files_that_are_none(tmp_path):
    (tmp_path / "empty.onnx").touch()
    for path in ("empty.onnx", "none.onnx", ""):
        with pytest.raises(rlx.ImportModelError):
            rlx.onnx.load(tmp_path / path)


def test_messages_that_nest_without_end():
    data = b""
    for _ in range(200):  # graph -> node -> attribute -> graph ...
        attribute = b"\x32" + _size(data) + data
        node = b"\x2a" + _size(attribute) + attribute
        data = b"\x0a" + _size(node) + node
    with pytest.raises(rlx.ImportModelError, match="nest too deeply"):
        rlx.onnx.load(b"\x3a" + _size(data) + data)


def _size(data):
    value, result = len(data), bytearray()
    while True:
        result.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(result)
