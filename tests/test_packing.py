"""Lowered graphs as containers and back: every op whole, and nothing that is no such file."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from dispatches import planned_as
from samples import ALL

import rlx
from rlx.backends.base import CompileOptions
from rlx.compiler.loading import programmed
from rlx.compiler.lowering import derive, lower
from rlx.compiler.plan_codec import KIND, MalformedError, pack, sources_of, unpack
from rlx.compiler.target import Target
from rlx.device import Device
from rlx.ir import container
from rlx.ir.graph import Graph, Node
from rlx.ir.notes import Note
from rlx.ops.conformance_cases import cases

# --- every op, packed and unpacked -----------------------------------------------------------------


def same(a, b, seen):
    """Returns whether two records hold the same, field by field: a field that packing forgets shows here."""
    if (id(a), id(b)) in seen:
        return True
    seen.add((id(a), id(b)))
    assert type(a) is type(b), (a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Node):
        return all(same(getattr(a, n), getattr(b, n), seen) for n in Node.__slots__ if n != "opdef")
    if isinstance(a, Graph):
        return all(same(getattr(a, n), getattr(b, n), seen) for n in vars(a))
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(same(a[key], b[key], seen) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(*pair, seen) for pair in zip(a, b, strict=True))
    if dataclasses.is_dataclass(a):
        names = [field.name for field in dataclasses.fields(a)]
        return all(same(getattr(a, name), getattr(b, name), seen) for name in names)
    return a == b or (a != a and b != b)


def few_cases(device):
    """Each sample of each op once: the first of each op on every device, the others on the devices in turn."""
    results, seen = {}, set()
    for case in cases():
        if case.opdef.name != "custom":
            results.setdefault((case.opdef.name, case.number), case)
    for index, case in enumerate(results.values()):
        if ALL or case.opdef.name not in seen or index % 2 == (device == "cpu"):
            yield case
        seen.add(case.opdef.name)


def test_every_op_is_packed_whole(target_device):
    target = Target.of(Device.parse(target_device), CompileOptions(fold=False))
    chosen = list(few_cases(target_device))
    assert len(chosen) > 500
    for case in chosen:
        graph = planned_as(case.graph())
        lowered = lower(graph, target)
        sources = sources_of(graph)
        data, arrays = pack(lowered, sources)
        stored = container.load(container.dump(KIND, data, arrays))
        result = derive(graph, target, unpack(stored.data, stored.arrays, sources))
        assert same(lowered, result, set()), case


def test_calls_and_shaders_are_not_packed(webgpu):
    """A file has no place for them: they are made again of the graph."""
    target = Target.of(Device.parse(webgpu), CompileOptions())
    graph = rlx.Graph("layer")
    graph.set_outputs([graph.tanh(graph.input("x", (4, 8)) @ graph.param("w", (8, 8))) * 0.5])
    lowered = programmed(lower(graph, target), target)
    (source, *_) = (item.source for item in lowered.program.work)
    sources = sources_of(graph)
    data, arrays = pack(lowered, sources)
    text = container.dump(KIND, data, arrays).decode(errors="replace")
    assert "fn main" in source
    assert "fn main" not in text
    assert "@group" not in text
    result = derive(graph, target, unpack(data, arrays, sources))
    assert result.program is None
    again = programmed(result, target).program
    assert [item.source for item in again.work] == [item.source for item in lowered.program.work]


def test_notes_are_packed_as_they_are():
    """Names of nodes may hold any character, and what looks like the line of another node."""
    target = Target.of(Device.parse("cpu"), CompileOptions())
    graph = rlx.Graph("named")
    x = graph.input("x", (4,))
    odd = graph.exp(x)
    odd.name = f"a\0b\x1ec <- {x.source}0"
    graph.set_outputs([graph.tanh(odd) + odd])
    lowered, sources = lower(graph, target), sources_of(graph)
    extra = dataclasses.replace(lowered, notes=(*lowered.notes, Note.of("dce", "dropped ", odd)))
    result = unpack(*pack(extra, sources), sources)
    assert result.notes == extra.notes
    assert list(map(str, result.notes)) == list(map(str, extra.notes))
    elsewhere = [f"other.py:{index}" if line else "" for index, line in enumerate(sources)]
    moved = unpack(*pack(extra, sources), elsewhere).notes[-1]
    assert str(moved) == f"dce: dropped {odd.label} <- other.py:{sources.index(odd.source)}"


def test_unpack_refuses_what_is_no_packed_graph():
    for data in (None, {}, [], 1, {"types": [[[1], "f99"]]}):
        with pytest.raises(MalformedError):
            unpack(data, [], [])


# --- the container ---------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [container.read, container.mapped], ids=["read", "mapped"])
def test_container(tmp_path, read):
    arrays = [
        np.arange(5, dtype=np.int8),
        np.float32([[1, np.nan], [-0.0, np.inf]]),
        np.zeros((0, 3), np.int64),
        np.arange(6, dtype=">f8").reshape(2, 3).T,
        np.array(True),
        np.arange(3, dtype=np.uint16),
    ]
    path = tmp_path / "some.rlx"
    container.write(path, container.dump("model", {"a": [1, None, "ü"]}, arrays))
    result = read(path)
    assert (result.kind, result.data) == ("model", {"a": [1, None, "ü"]})
    for item, array in zip(result.arrays, arrays, strict=True):
        assert item.shape == array.shape
        np.testing.assert_array_equal(item, array)
        assert not item.flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == ["some.rlx"]
    raw = path.read_bytes()
    assert raw.index(arrays[1].tobytes()) % container.ALIGNMENT == 0


def test_arrays_of_a_mapped_file_are_not_read(tmp_path):
    path = tmp_path / "large.rlx"
    raw = bytearray(container.dump("model", {}, [np.zeros(1 << 16, np.float32)]))
    raw[-1] = 1  # damage in the array: found by whoever reads it all
    path.write_bytes(raw)
    assert container.mapped(path).arrays[0][0] == 0
    for check in (lambda: container.mapped(path, check=True), lambda: container.read(path)):
        with pytest.raises(container.ContainerError, match="arrays' checksum"):
            check()
    path.write_bytes(b"")
    with pytest.raises(container.ContainerError, match="empty"):
        container.mapped(path)


def test_container_of_another_version():
    raw = bytearray(container.dump("model", {}, []))
    raw[8] = 2
    with pytest.raises(container.ContainerError, match="unsupported version"):
        container.load(bytes(raw))


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["a"]), np.zeros(1, "c16")])
def test_container_takes_numbers_only(array):
    with pytest.raises(container.ContainerError, match="not an array"):
        container.dump("model", {}, [array])


@pytest.mark.parametrize("place", [[0, "|O8", [1]], [-8, "<f8", [1]], [0, "<f8", [9]], [0, "<f8"]])
def test_container_with_wrong_places(place, monkeypatch):
    """Checksums that hold say nothing about the one who wrote them."""
    dumps = container.json.dumps

    def forged(header, **options):
        return dumps({**header, "arrays": [place]}, **options)

    monkeypatch.setattr(container.json, "dumps", forged)
    raw = container.dump("model", {}, [np.zeros(8)])
    with pytest.raises(container.ContainerError, match="malformed"):
        container.load(raw)
