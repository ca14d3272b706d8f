"""Files at a path are checked before they are read: kinds of files, sizes, and who can write a cache folder."""

import os
import stat
import sys

import numpy as np
import onnx
import pytest

import rlx
from rlx import files
from rlx.cli.main import main
from rlx.compiler import compile_cache
from rlx.cost import store
from rlx.ir import container

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="FIFOs and modes are of POSIX")

HUGE = 20 << 30  # bytes of a file with a hole: it takes no room on the disk


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A compile cache of the test's own."""
    result = tmp_path / "cache"
    monkeypatch.setenv("RLX_CACHE", str(result))
    compile_cache._kept.clear()
    files._refused.clear()
    yield result
    compile_cache._kept.clear()


def graph():
    g = rlx.Graph("files")
    g.set_outputs([g.input("x", (2,)) * 3.0])
    return g


def counted():
    """Compiles anew, and says what the caches did; the result is right in any case."""
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    with rlx.compile(graph(), "cpu") as cg:
        assert cg.run({"x": np.float32([1, 2])})[0].tolist() == [3, 6]
    after = rlx.cache_stats()
    return {
        name: getattr(after, name) - getattr(before, name)
        for name in ("lowered", "disk_hits", "stored", "damaged", "refused")
        if getattr(after, name) != getattr(before, name)
    }


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(HUGE)


ODD = {
    # Windows has no FIFOs among its files.
    **({"a FIFO": os.mkfifo} if hasattr(os, "mkfifo") else {}),
    "a folder": os.mkdir,
    "a device": lambda path: os.symlink("/dev/zero", path),
}

READERS = {
    "onnx": rlx.onnx.load,
    "onnx.Model": rlx.onnx.Model,
    "safetensors": rlx.safetensors.load,
    "gguf": rlx.gguf.load,
    "rlx": rlx.load_model,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("reader", READERS)
def test_named_files_that_are_none(reader, kind, tmp_path):
    path = tmp_path / "model"
    ODD[kind](path)
    with pytest.raises(rlx.ImportModelError, match=kind):
        READERS[reader](path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reader", READERS)
def test_named_files_of_zeros(reader, tmp_path):
    """A file with a hole is as long as it says, and not a byte more is read than makes sense."""
    path = tmp_path / "model"
    sparse(path)
    with pytest.raises(rlx.ImportModelError):
        READERS[reader](path)


def test_external_data_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    tensor = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="w.bin")
    helper = onnx.helper
    info = helper.make_tensor_value_info
    result = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [info("x", 1, [4])], [info("y", 1, [4])], [tensor],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    path.write_bytes(helper.make_model(result).SerializeToString())
    with pytest.raises(rlx.ImportModelError, match="external data"):
        rlx.onnx.load(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["a FIFO", "a folder"])
def test_command_line_inputs(kind, tmp_path, capsys):
    rlx.save_model(graph(), tmp_path / "m.rlx")
    ODD[kind](tmp_path / "x.npy")
    code = main(
        ["run", str(tmp_path / "m.rlx"), "--device", "cpu", "--input", f"x={tmp_path / 'x.npy'}"]
    )
    assert code
    assert kind in capsys.readouterr().err
    assert main(["devices", "--graph", str(tmp_path / "x.npy")])
    assert kind in capsys.readouterr().err


# --- cache entries ---------------------------------------------------------------------------------


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", [*ODD, "a sparse file"])
def test_entries_that_are_no_entries(kind, folder):
    assert counted() == {"lowered": 1, "stored": 1}
    (entry,) = folder.iterdir()
    entry.unlink()
    {**ODD, "a sparse file": sparse}[kind](entry)
    with pytest.warns(RuntimeWarning, match=entry.name):
        result = counted()
    # A folder can't be replaced by a file; everything else is.
    stored = {} if kind == "a folder" else {"stored": 1}
    assert result == {"lowered": 1, "damaged": 1, **stored}
    if stored:
        assert stat.S_ISREG(os.lstat(entry).st_mode)
        assert counted() == {"disk_hits": 1}


def test_links_in_the_cache_are_not_followed(folder, tmp_path):
    counted()
    (entry,) = folder.iterdir()
    raw, other = entry.read_bytes(), tmp_path / "other"
    other.write_bytes(b"mine")
    entry.unlink()
    entry.symlink_to(other)
    assert counted()["lowered"] == 1
    assert other.read_bytes() == b"mine"
    assert entry.read_bytes() == raw
    assert not entry.is_symlink()


def test_a_link_where_a_file_is_made_is_not_followed(tmp_path, monkeypatch):
    other, path = tmp_path / "other", tmp_path / "entry"
    other.write_bytes(b"mine")
    monkeypatch.setattr(container.os, "getpid", lambda: 7)
    monkeypatch.setattr(container.threading, "get_ident", lambda: 8)
    (tmp_path / "entry.7-8.tmp").symlink_to(other)
    container.write(path, b"new")
    assert (other.read_bytes(), path.read_bytes()) == (b"mine", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry", "other"]


def test_the_cache_folder_is_made_for_its_user_alone(folder):
    old = os.umask(0)
    try:
        counted()
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(folder, mode):
    counted()
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match="others can write it"):
        assert counted() == {"lowered": 1}
    assert counted() == {"lowered": 1}  # said once
    folder.chmod(0o755)
    assert counted() == {"disk_hits": 1}


def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    counted()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(RuntimeWarning, match="another user owns it"):
        assert counted() == {"lowered": 1}


@pytest.mark.timeout(20)
def test_calibrations(tmp_path, monkeypatch):
    result = tmp_path / "figures"
    monkeypatch.setenv("RLX_CALIBRATION", str(result))
    files._refused.clear()
    store.forget()
    result.mkdir(mode=0o700)
    path = store.file_of(store.meter().identity("cpu"))
    os.mkfifo(path)
    with pytest.warns(RuntimeWarning, match="a FIFO"):
        assert store.stored("cpu") is None
    store.forget()
    path.unlink()
    result.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others can write it"):
        assert store.stored("cpu") is None
    store.forget()
