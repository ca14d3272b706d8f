"""safetensors and GGUF: what is read, and what is refused."""

import json
import struct

import model_files as files
import numpy as np
import pytest

import rlx
from rlx.importers.gguf import TYPES
from rlx.ops.block_formats import FORMATS, decode_blocks, scrambled_blocks


@pytest.fixture
def save(tmp_path):
    """Writes bytes as a file of this test and returns its path."""

    def write(raw):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bin"
        path.write_bytes(raw)
        return path

    return write


def arrays():
    rng = np.random.default_rng(3)
    kinds = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
    # Whole numbers: processors differ in what a negative float becomes as an unsigned number.
    results = {f"t.{kind}": rng.integers(-20, 20, (2, 3)).astype(kind) for kind in kinds}
    return {**results, "scalar": np.array(2.5, "f4"), "none": np.zeros((0, 4), "f4")}


# --- safetensors ------------------------------------------------------------------------------------


def test_safetensors_are_views_of_the_file(save):
    result = rlx.safetensors.load(save(files.safetensors(arrays(), {"by": "test"})))
    assert result.metadata == {"by": "test"}
    assert list(result) == list(arrays())
    for name, expected in arrays().items():
        assert result[name].dtype == expected.dtype
        np.testing.assert_array_equal(result[name], expected)
        assert not result[name].flags.writeable
    assert not result["t.f8"].flags.owndata
    assert result.dtypes["t.f2"] is rlx.DType.F16
    assert result.dtypes["t.u2"] is None


def test_safetensors_unaligned_tensors_are_copied(save):
    odd = {"a": np.uint8([1]), "b": np.float32([1, 2])}
    result = rlx.safetensors.load(save(files.safetensors(odd)))
    assert result["b"].flags.aligned
    assert result["b"].tolist() == [1, 2]


def test_safetensors_bf16_goes_into_a_param(save):
    bits = np.array([[0x3F80, 0x4000]], np.uint16)
    result = rlx.safetensors.load(save(files.safetensors({"w": bits}, bf16=("w",))))
    assert result.dtypes["w"] is rlx.DType.BF16
    g = rlx.Graph()
    g.set_outputs([g.cast(g.param("w", (1, 2), "bf16", result["w"]), "f32") + g.input("x", (1, 2))])
    with rlx.compile(g, "cpu") as cg:
        assert cg.run({"x": np.zeros((1, 2), "f4")})[0].tolist() == [[1, 2]]


_W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
_BODY = bytes(8)
WRONG_SAFETENSORS = {
    "empty": (b"", "is empty"),
    "short": (b"abc", "cut short"),
    "length": (struct.pack("<Q", 99) + b"{}", "does not fit the file"),
    "not JSON": (files.safetensors_raw("{"), "not JSON"),
    "not UTF-8": (files.safetensors_raw(b'{"\xff":1}'), "not JSON"),
    "nested": (files.safetensors_raw("[" * 100_000), "not JSON"),
    "not an object": (files.safetensors_raw("[]"), "not a JSON object"),
    "twice in all": (files.safetensors_raw('{"a": {}, "b": {}, "a": {}}'), "occurs twice"),
    "half characters": (files.safetensors_raw('{"\\ud800": {}}'), "not JSON"),
    "no number": (files.safetensors_raw('{"a": NaN}'), "not JSON"),
    "metadata": (files.safetensors_raw('{"__metadata__": {"a": 1}}'), "table of texts"),
    "twice": (files.safetensors_raw('{"a": 1, "a": 1}'), "occurs twice"),
    "hole": (files.safetensors_raw(json.dumps({"a": {**_W, "data_offsets": [4, 12]}}), bytes(12)), "a hole"),
    "overlap": (files.safetensors_raw(json.dumps({"a": _W, "b": _W}), _BODY), "overlap"),
    "rest": (files.safetensors_raw(json.dumps({"a": _W}), bytes(9)), "belong to no tensor"),
}  # fmt: skip
# One tensor of the file; it is "a".
UNREADABLE_SAFETENSORS = {
    "entry": (files.safetensors_raw('{"a": 3}'), "not described"),
    "type": (files.safetensors_raw(json.dumps({"a": {**_W, "dtype": "F8_E4M3"}}), _BODY), "got: F8_E4M3"),
    "type list": (files.safetensors_raw(json.dumps({"a": {**_W, "dtype": [1]}}), _BODY), "can't be read"),
    "shape": (files.safetensors_raw(json.dumps({"a": {**_W, "shape": [-2]}}), _BODY), "not a shape"),
    "bool size": (files.safetensors_raw(json.dumps({"a": {**_W, "shape": [True, 2]}}), _BODY), "not a shape"),
    "huge": (files.safetensors_raw(json.dumps({"a": {**_W, "shape": [2**62, 2**62]}}), _BODY), "not a shape"),
    "axes": (files.safetensors_raw(json.dumps({"a": {**_W, "shape": [1] * 70}}), _BODY), "not a shape"),
    "size": (files.safetensors_raw(json.dumps({"a": {**_W, "shape": [3]}}), _BODY), "bytes do not fit"),
    "outside": (files.safetensors_raw(json.dumps({"a": _W}), _BODY[1:]), "outside of the file"),
    "backwards": (files.safetensors_raw(json.dumps({"a": {**_W, "data_offsets": [8, 0]}}), _BODY), "outside"),
    "bool": (files.safetensors_raw(json.dumps({"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}), b"\2"),
             "neither 0 nor 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_SAFETENSORS)
def test_wrong_safetensors_are_refused(save, case):
    raw, message = WRONG_SAFETENSORS[case]
    with pytest.raises(rlx.ImportModelError) as error:
        rlx.safetensors.load(save(raw))
    assert message in str(error.value)


@pytest.mark.parametrize("case", UNREADABLE_SAFETENSORS)
def test_one_unreadable_tensor_is_refused_when_it_is_asked_for(save, case):
    raw, message = UNREADABLE_SAFETENSORS[case]
    result = rlx.safetensors.load(save(raw))
    assert (list(result), list(result.dtypes), list(result.refused)) == ([], [], ["a"])
    assert "a" in result
    for ask in (result.__getitem__, result.get):
        with pytest.raises(rlx.ImportModelError) as error:
            ask("a")
        assert message in str(error.value)
    assert result.get("b") is None
    with pytest.raises(rlx.UnknownNameError, match="no entry 'aa'\n  hint: did you mean 'a'"):
        result["aa"]


def test_the_tensors_beside_an_unreadable_one_are_read(save):
    entries = {
        "first": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
        "narrow": {"dtype": "F8_E5M2", "shape": [4], "data_offsets": [2, 6]},
        "nowhere": {"dtype": "U8", "shape": [1]},
        "last": {"dtype": "U8", "shape": [3], "data_offsets": [7, 10]},
        "cut off": {"dtype": "U8", "shape": [5], "data_offsets": [10, 15]},
    }
    result = rlx.safetensors.load(
        save(files.safetensors_raw(json.dumps(entries), bytes(range(12))))
    )
    assert {name: array.tolist() for name, array in result.items()} == {
        "first": [0, 1],
        "last": [7, 8, 9],
    }
    assert list(result.refused) == ["narrow", "nowhere", "cut off"]


def test_safetensors_take_what_the_package_takes(save):
    header = '{"__metadata__": null, "a": {"x": {"y": [1, null]}, "x": 2, "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    result = rlx.safetensors.load(save(files.safetensors_raw(header, _BODY)))
    assert (result.metadata, result["a"].tolist()) == ({}, [0, 0])
    header = '{"__metadata__": {"by": "me", "by": "you"}}'
    assert rlx.safetensors.load(save(files.safetensors_raw(header))).metadata == {"by": "you"}


@pytest.mark.parametrize("load", [rlx.safetensors.load, rlx.gguf.load])
def test_a_file_that_is_not_there(load, tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(rlx.ImportModelError, match="can't be opened"):
            load(path)


# --- GGUF -------------------------------------------------------------------------------------------

METADATA = {
    "general.architecture": "test",
    "a.u8": np.uint8(7), "a.i8": np.int8(-7), "a.u16": np.uint16(7), "a.i16": np.int16(-7),
    "a.u32": 7, "a.i32": np.int32(-7), "a.u64": np.uint64(2**63), "a.i64": np.int64(-(2**62)),
    "a.f32": 0.5, "a.f64": np.float64(0.1), "a.bool": True,
    "a.texts": ["x", "", "é"], "a.numbers": np.float32([1, 2]), "a.bools": np.array([True, False]),
    "a.nested": [["p"], ["q", "r"]], "a.none": [],
}  # fmt: skip


def all_blocks():
    results = {f"w.{kind}": files.blocks(scrambled_blocks(kind, 3, 512), kind) for kind in FORMATS}
    plain = {f"w.{kind}": (np.arange(6).reshape(2, 3) - 2).astype(kind)
             for kind in ("f4", "f2", "f8", "i1", "i4", "i8")}  # fmt: skip
    bf16 = ("BF16", (2,), np.array([0x3F80, 0xC000], "<u2").tobytes())
    return {**results, **plain, "w.bf16": bf16, "none": np.zeros((0, 4), "f4")}


@pytest.mark.parametrize(("version", "alignment"), [(2, None), (3, None), (3, 64), (3, 8)])
def test_gguf_metadata_and_tensors(save, version, alignment):
    result = rlx.gguf.load(save(files.gguf(METADATA, all_blocks(), version, alignment)))
    for key, expected in METADATA.items():
        got = result.metadata[key]
        if isinstance(expected, np.ndarray):
            np.testing.assert_array_equal(got, expected)
        else:
            assert got == expected
            assert type(got) in (int, float, bool, str, list)
    for kind in FORMATS:
        tensor, raw = result.tensors[f"w.{kind}"], scrambled_blocks(kind, 3, 512)
        assert (tensor.shape, tensor.type, tensor.dtype) == ((3, 512), kind, None)
        np.testing.assert_array_equal(tensor.packed, raw)
        assert not tensor.packed.flags.owndata
        expected = decode_blocks(raw, kind).astype("f4")
        np.testing.assert_array_equal(tensor.dequantized(), expected)
        with pytest.raises(rlx.ImportModelError, match="no plain elements"):
            tensor.array()
    for kind in ("f4", "f2", "f8", "i1", "i4", "i8"):
        tensor = result.tensors[f"w.{kind}"]
        assert tensor.array().dtype == np.dtype(kind)
        assert tensor.dequantized().tolist() == [[-2, -1, 0], [1, 2, 3]]
    assert result.tensors["w.f2"].dequantized().dtype == np.float32
    assert not result.tensors["w.f4"].dequantized().flags.owndata
    assert result.tensors["w.bf16"].dequantized().tolist() == [1, -2]
    assert result.tensors["none"].array().shape == (0, 4)
    assert repr(result).startswith("<gguf.File test: ")


def test_many_texts_stay_in_the_file(save):
    texts = [f"é{i}" * (i % 3) for i in range(5000)]
    got = rlx.gguf.load(save(files.gguf({"many": texts}, {}))).metadata["many"]
    assert not isinstance(got, list)
    assert (len(got), got[4], got[-1], got[7:9]) == (5000, texts[4], texts[-1], texts[7:9])
    assert got == texts
    assert got != texts[1:]
    assert repr(got) == repr(texts)
    with pytest.raises(IndexError):
        got[5000]
    wrong = files.gguf({"many": texts}, {}).replace("é4999".encode(), b"\xff\xff4999", 1)
    with pytest.raises(rlx.ImportModelError, match="UTF-8"):
        rlx.gguf.load(save(wrong)).metadata["many"]


def test_gguf_equals_the_gguf_package(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_uint32("test.count", 5)
    writer.add_array("test.names", ["a", "b"])
    writer.add_tensor("plain", np.float32([[1, 2, 3]]))
    packed = {kind: scrambled_blocks(kind, 2, 256) for kind in FORMATS if kind != "Q8_K"}
    for kind, raw in packed.items():
        writer.add_tensor(kind, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    result = rlx.gguf.load(path)
    assert result.metadata["test.count"] == 5
    assert result.metadata["test.names"] == ["a", "b"]
    assert result.tensors["plain"].array().tolist() == [[1, 2, 3]]
    for kind, raw in packed.items():
        np.testing.assert_array_equal(result.tensors[kind].packed, raw)
    assert {result.tensors[kind].type for kind in packed} == set(packed)


@pytest.mark.parametrize("place", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
@pytest.mark.parametrize("kind", FORMATS)
def test_products_by_packed_tensors(save, kind, place, request):
    place = request.getfixturevalue("webgpu") if place == "webgpu" else place
    raw = files.gguf({}, {"w": files.blocks(scrambled_blocks(kind, 3, 512), kind)})
    tensor, g = rlx.gguf.load(save(raw)).tensors["w"], rlx.Graph()
    w = g.param("w", tensor.packed.shape, "u8", tensor.packed)
    g.set_outputs([g.dequant_matmul(g.input("x", (2, 512)), w, tensor.type)])
    x = np.float32(np.sin(np.arange(1024))).reshape(2, 512)
    with rlx.compile(g, place) as cg:
        (y,) = cg.run({"x": x})
    expected = x.astype("f8") @ decode_blocks(tensor.packed, kind).T
    # The scales of a block differ by 2^15, and so do the terms of a sum.
    assert np.linalg.norm(y - expected) <= 1e-5 * np.linalg.norm(expected)


def _bad(keys=b"", entries=b"", counts=(0, 1), body=bytes(64), version=3, magic=b"GGUF"):
    front = struct.pack("<4sIQQ", magic, version, *counts) + keys + entries
    return front + bytes(-len(front) % 32) + body


def _entry(name="w", sizes=(8,), kind=0, offset=0):
    packed = struct.pack(f"<{len(sizes)}Q", *sizes)
    return (
        files.text(name) + struct.pack("<I", len(sizes)) + packed + struct.pack("<IQ", kind, offset)
    )


_KEY = files.text("a")
WRONG_GGUF = {
    "empty": (b"", "is empty"),
    "short": (b"GGUF", "cut short"),
    "magic": (_bad(magic=b"GGML", counts=(0, 0)), "not a GGUF file"),
    "version": (_bad(version=1, counts=(0, 0)), "unsupported version"),
    "big endian": (_bad(version=3 << 24, counts=(0, 0)), "big-endian"),
    "counts": (_bad(counts=(2**40, 0)), "cut short"),
    "key length": (_bad(struct.pack("<Q", 2**63)), "cut short"),
    "key twice": (_bad(2 * (_KEY + files.value(1)), counts=(0, 2)), "a key occurs twice"),
    "value type": (_bad(_KEY + struct.pack("<I", 13)), "no such type of value"),
    "array": (_bad(_KEY + struct.pack("<IIQ", 9, 8, 2**60)), "cut short"),
    "array of numbers": (_bad(_KEY + struct.pack("<IIQ", 9, 10, 2**60)), "cut short"),
    "array type": (_bad(_KEY + struct.pack("<IIQ", 9, 77, 1)), "no such type of value"),
    "depth": (_bad(_KEY + struct.pack("<I", 9) + 9 * struct.pack("<IQ", 9, 1)), "too deep"),
    "alignment": (files.gguf({}, {}, alignment=48), "no power of two"),
    "alignment type": (files.gguf({"general.alignment": "8"}, {}), "no power of two"),
    "tensor twice": (_bad(entries=2 * _entry(), counts=(2, 0)), "a tensor occurs twice"),
    "axes": (_bad(entries=_entry(sizes=(1,) * 5), counts=(1, 0)), "too many axes"),
    "overlap": (_bad(entries=_entry() + _entry("v"), counts=(2, 0)), "tensors overlap"),
}  # fmt: skip

# One tensor of the file; it is "w".
UNREADABLE_GGUF = {
    "type": (_bad(entries=_entry(kind=16), counts=(1, 0)), "got: IQ2_XXS"),
    "type number": (_bad(entries=_entry(kind=999), counts=(1, 0)), "number 999"),
    "shape": (_bad(entries=_entry(sizes=(2**40, 2**40)), counts=(1, 0)), "not a shape"),
    "block": (_bad(entries=_entry(sizes=(33,), kind=2), counts=(1, 0)), "whole number of blocks"),
    "outside": (_bad(entries=_entry(sizes=(17,)), counts=(1, 0)), "outside of the file"),
    "offset": (_bad(entries=_entry(offset=8), counts=(1, 0)), "not aligned"),
    "name": (_bad(entries=_entry(name=b"w\xff"), counts=(1, 0)), "not UTF-8"),
}  # fmt: skip
# One value of the file; "a" is its key, or begins it.
UNREADABLE_VALUES = {
    "key": (_bad(files.text(b"a\xff") + files.value(1)), "not UTF-8"),
    "bool": (_bad(_KEY + struct.pack("<IB", 7, 2)), "neither 0 nor 1"),
    "bools": (_bad(_KEY + struct.pack("<IIQ4s", 9, 7, 4, b"\0\1\2\1")), "neither 0 nor 1"),
    "text": (_bad(_KEY + struct.pack("<I", 8) + files.text(b"\xff")), "not UTF-8"),
    "texts": (_bad(_KEY + struct.pack("<IIQ", 9, 8, 2) + files.text("b") + files.text(b"\xff")), "not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_GGUF)
def test_wrong_gguf_is_refused(save, case):
    raw, message = WRONG_GGUF[case]
    with pytest.raises(rlx.ImportModelError) as error:
        rlx.gguf.load(save(raw))
    assert message in str(error.value)


@pytest.mark.parametrize("case", UNREADABLE_GGUF)
def test_one_unreadable_gguf_tensor_is_refused_when_it_is_asked_for(save, case):
    raw, message = UNREADABLE_GGUF[case]
    result = rlx.gguf.load(save(raw)).tensors
    (name,) = result.refused
    with pytest.raises(rlx.ImportModelError) as error:
        result[name]
    assert name.startswith("w")
    assert message in str(error.value)


@pytest.mark.parametrize("case", UNREADABLE_VALUES)
def test_one_unreadable_value_is_refused_when_it_is_asked_for(save, case):
    raw, message = UNREADABLE_VALUES[case]
    result = rlx.gguf.load(save(raw)).metadata
    (key,) = result.refused
    assert key.startswith("a")
    assert key in result
    for ask in (result.__getitem__, result.get):
        with pytest.raises(rlx.ImportModelError) as error:
            ask(key)
        assert message in str(error.value)


def test_what_stands_beside_unreadable_entries_is_read(save):
    keys = [_KEY + struct.pack("<I", 8) + files.text(b"\xff"), files.text("b") + files.value(5)]
    entries = _entry("narrow", kind=16) + _entry("w", (4,)) + _entry("far", offset=2**40)
    result = rlx.gguf.load(save(_bad(b"".join(keys), entries, (3, 2))))
    assert (dict(result.metadata), list(result.metadata.refused)) == ({"b": 5}, ["a"])
    assert result.tensors["w"].array().tolist() == [0, 0, 0, 0]
    assert list(result.tensors.refused) == ["narrow", "far"]
    assert repr(result) == "<gguf.File ?: 1 keys, 1 tensors>"
    raw = _bad(files.text("general.alignment") + struct.pack("<I", 8) + files.text(b"\xff"))
    with pytest.raises(rlx.ImportModelError, match="not UTF-8"):
        rlx.gguf.load(save(raw))


def test_every_type_has_a_meaning():
    names = {dtype.name for dtype in rlx.DType}
    assert all(name in FORMATS or name in names for name in TYPES.values())
