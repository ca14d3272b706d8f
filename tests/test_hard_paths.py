"""Caches, models and reports in folders whose paths are hard to get right, and files that are replaced while they are used."""

import gc
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx import files
from rlx.compiler import compile_cache
from rlx.ir import container

# Longer than the 260 characters of old functions of Windows; each part is as long as most file systems take.
PARTS = {
    "not ASCII": ("größe 大きさ", "размер"),
    "long": ("a" * 200, "b" * 200),
    "spaces": ("two  words ", "100% 'quoted' & (more)"),
}
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(params=PARTS)
def folder(request, tmp_path):
    """A folder with such a path."""
    parts = [part.strip() for part in PARTS[request.param]]
    result = tmp_path.joinpath(*parts)
    result.mkdir(parents=True)
    return result


def graph(scale=2.0):
    g = rlx.Graph("größe")
    w = g.param("w", (3, 5))
    g.param_values["w"] = np.full((3, 5), scale, np.float32)
    g.set_outputs([g.input("x", (4, 3)) @ w])
    return g


def ran(g):
    with rlx.compile(g, "cpu") as compiled:
        return compiled.run({"x": ROWS})[0]


def test_the_cache_folder(folder, monkeypatch):
    monkeypatch.setenv("RLX_CACHE", str(folder / "kept"))
    compile_cache._kept.clear()
    first = ran(graph())
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    np.testing.assert_array_equal(ran(graph()), first)
    after = rlx.cache_stats()
    compile_cache._kept.clear()
    assert after.disk_hits == before.disk_hits + 1
    assert list((folder / "kept").iterdir())


def test_a_model_of_rlx(folder):
    path = folder / "modèle.rlx"
    rlx.save_model(graph(), path)
    np.testing.assert_array_equal(ran(rlx.load_model(path, check=True)), ran(graph()))
    with pytest.raises(rlx.RlxError) as error:
        rlx.load_model(folder)
    assert folder.name in str(error.value)


def test_a_model_of_onnx_with_weights_beside_it(folder):
    onnx = pytest.importorskip("onnx")
    w = np.random.default_rng(0).normal(size=(3, 500)).astype(np.float32)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", (4, 3)), ("y", (4, 500)))
    ]
    weight = onnx.numpy_helper.from_array(w, "w")
    result = onnx.helper.make_graph([node], "größe", ends[:1], ends[1:], [weight])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(result, opset_imports=[opset], ir_version=9)
    (folder / "gewichte.bin").write_bytes(w.tobytes())
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="gewichte.bin")
    path = folder / "modèle.onnx"
    path.write_bytes(model.SerializeToString())
    (y,) = rlx.onnx.Model(path, device="cpu").run({"x": ROWS})
    np.testing.assert_allclose(y, ROWS @ w, 1e-4, 1e-4)


def test_weights_of_safetensors(folder):
    path = folder / "gewichte.safetensors"
    about = {"w": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, ROWS.nbytes]}}
    head = json.dumps(about).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + ROWS.tobytes())
    np.testing.assert_array_equal(rlx.safetensors.load(path)["w"], ROWS)


def test_a_trace(folder):
    path = folder / "läufe.json"
    with rlx.compile(graph(), "cpu") as compiled, compiled.trace(path):
        compiled.run({"x": ROWS})
    assert json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def test_a_command_writes_its_report(folder):
    """``rlx bench`` runs each contestant in a process of its own, which is given paths."""
    path, report = folder / "modèle.rlx", folder / "bericht.json"
    rlx.save_model(graph(), path)
    command = [sys.executable, "-m", "rlx", "bench", str(path), "--devices", "cpu", "--json"]
    command += ["--seconds", "1e-5"]
    env = {**os.environ, "RLX_CACHE": str(folder / "kept")}
    with report.open("wb") as out:
        done = subprocess.run(command, env=env, stdout=out, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(report.read_text(encoding="utf-8"))["model"] == str(path)


def _in_another_process(path, folder):
    os.environ["RLX_CACHE"] = str(folder)
    return ran(rlx.load_model(path)), rlx.cache_stats().disk_hits


def test_processes_that_are_spawned(folder):
    path, retained = folder / "modèle.rlx", folder / "kept"
    rlx.save_model(graph(), path)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for hits in (0, 1):
            result, seen = pool.apply(_in_another_process, (path, retained))
            np.testing.assert_array_equal(result, ran(graph()))
            assert seen == hits


def test_a_model_is_replaced_while_it_is_used(tmp_path):
    """A loaded model keeps its weights; they are read from the file as they are needed."""
    path = tmp_path / "model.rlx"
    rlx.save_model(graph(2.0), path)
    first = rlx.load_model(path)
    rlx.save_model(graph(3.0), path)
    np.testing.assert_array_equal(ran(first), ran(graph(2.0)))
    second = rlx.load_model(path)
    np.testing.assert_array_equal(ran(second), ran(graph(3.0)))
    for scale in (4.0, 5.0):
        rlx.save_model(graph(scale), path)
        np.testing.assert_array_equal(ran(rlx.load_model(path)), ran(graph(scale)))
    np.testing.assert_array_equal(ran(first), ran(graph(2.0)))
    del first, second
    gc.collect()  # a graph refers to itself
    rlx.save_model(graph(6.0), path)
    assert [path.name for path in Path(tmp_path).iterdir()] == ["model.rlx"]


@pytest.mark.skipif(os.name != "nt", reason="only Windows can forbid that a file is renamed")
def test_a_file_that_another_program_has_open(tmp_path):
    path = tmp_path / "model.rlx"
    rlx.save_model(graph(2.0), path)
    with open(path, "rb"), pytest.raises(rlx.FileInUseError, match="can't be replaced") as result:
        rlx.save_model(graph(3.0), path)
    assert "another name" in str(result.value)
    assert isinstance(result.value, PermissionError)
    assert [path.name for path in tmp_path.iterdir()] == ["model.rlx"]
    np.testing.assert_array_equal(ran(rlx.load_model(path)), ran(graph(2.0)))


class Windows:
    """The behaviour of Windows with files that are in use, on any system.

    Attributes:
        mapped: Files that are mapped: they can be renamed, and neither removed nor replaced.
        held: Files that are open in a way that forbids renaming, too.
    """

    def __init__(self, monkeypatch):
        self.mapped, self.held = set(), set()
        replace, rename, unlink = os.replace, os.rename, Path.unlink

        def allowed(used, path):
            if Path(path).exists() and Path(path).stat().st_ino in used:
                raise PermissionError(13, "The process cannot access the file", str(path))

        def replaced(result, path):
            allowed(self.held, result)
            allowed(self.mapped | self.held, path)
            replace(result, path)

        def renamed(result, path):
            allowed(self.held, result)
            assert not Path(path).exists()
            rename(result, path)

        def removed(path, missing_ok=False):
            allowed(self.mapped | self.held, path)
            unlink(path, missing_ok)

        monkeypatch.setattr(os, "replace", replaced)
        monkeypatch.setattr(os, "rename", renamed)
        monkeypatch.setattr(Path, "unlink", removed)
        monkeypatch.setattr(files, "_MAPPED_STAY", True)


@pytest.mark.skipif(os.name == "nt", reason="it stands in for Windows elsewhere")
def test_files_are_put_aside_while_they_are_mapped(tmp_path, monkeypatch):
    system, path = Windows(monkeypatch), tmp_path / "model.rlx"
    texts = [b"one", b"two", b"three", b"four"]

    def names():
        return sorted(path.name.split(".")[-1] for path in tmp_path.iterdir())

    for index, text in enumerate(texts):
        container.write(path, text)
        assert path.read_bytes() == text
        assert names() == ["old"] * index + ["rlx"]
        system.mapped.add(path.stat().st_ino)
    retained = [path.read_bytes() for path in tmp_path.glob("*.old")]
    assert sorted(retained) == sorted(texts[:-1])  # whoever has mapped one keeps it
    system.held.add(path.stat().st_ino)
    with pytest.raises(rlx.FileInUseError, match="can't be replaced"):
        container.write(path, b"five")
    assert path.read_bytes() == b"four"
    assert names() == ["old"] * 3 + ["rlx"]
    system.mapped.clear()
    system.held.clear()
    container.write(path, b"six")
    assert path.read_bytes() == b"six"
    assert names() == ["rlx"]
    assert files.read_regular(path, 3) == b"six"


@pytest.mark.skipif(os.name == "nt", reason="it stands in for Windows elsewhere")
def test_the_old_file_comes_back_when_the_new_one_fails(tmp_path, monkeypatch):
    system, path = Windows(monkeypatch), tmp_path / "model.rlx"
    container.write(path, b"one")
    system.mapped.add(path.stat().st_ino)
    replace = os.replace

    def fails(result, place):
        if not path.exists() and str(result).endswith(".tmp"):
            raise OSError(28, "No space left on device")
        replace(result, place)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space"):
        container.write(path, b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["model.rlx"]
    assert path.read_bytes() == b"one"
