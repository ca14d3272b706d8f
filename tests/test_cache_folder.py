"""The cache folder: damaged and foreign entries, its size, files that writers left, and folders that can't be used."""

import os
import random
import time
import warnings

import numpy as np
import pytest
from cached_graphs import counted, mlp

import rlx
from rlx.compiler import compile_cache
from rlx.compiler.disk import DiskCache


def mutated(raw, rng):
    """One way that a file is damaged."""
    kind = rng.choice(["flip", "truncate", "extend", "zero", "swap"])
    damaged = bytearray(raw)
    index = rng.randrange(len(raw))
    if kind == "flip":
        damaged[index] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        del damaged[index:]
    elif kind == "extend":
        damaged += rng.randbytes(rng.randrange(1, 200))
    elif kind == "zero":
        damaged[index : index + 64] = bytes(len(damaged[index : index + 64]))
    else:
        other = rng.randrange(len(raw))
        damaged[index], damaged[other] = damaged[other], damaged[index]
    return bytes(damaged)


def test_damaged_entries_are_made_again(folder):
    params, x = {"w": np.eye(8, dtype=np.float32)}, {"x": np.ones((4, 8), np.float32)}
    expected = rlx.compile(mlp(), device="cpu", params=params).run(x)[0]
    (entry,) = folder.iterdir()
    raw = entry.read_bytes()
    rng = random.Random(0)
    tried = 0
    while tried < 200:
        damaged = mutated(raw, rng)
        if damaged == raw:
            continue
        tried += 1
        entry.write_bytes(damaged)
        compile_cache._kept.clear()
        before = rlx.cache_stats()
        with pytest.warns(RuntimeWarning) as said:
            result = rlx.compile(mlp(), device="cpu", params=params)
        assert len(said) == 1
        assert entry.name in str(said[0].message)
        assert said[0].filename == __file__
        assert counted(before) == {"damaged": 1, "lowered": 1, "stored": 1}
        assert entry.read_bytes() == raw
        np.testing.assert_array_equal(result.run(x)[0], expected)


def test_the_folder_is_bounded(folder, monkeypatch):
    for rows in range(1, 5):
        rlx.compile(mlp(rows=rows), device="cpu")
        time.sleep(0.02)
    sizes = {path: path.stat().st_size for path in folder.iterdir()}
    first, second = sorted(sizes, key=lambda path: path.stat().st_mtime)[:2]
    compile_cache._kept.clear()
    rlx.compile(mlp(rows=1), device="cpu")  # used last, so the second is now the oldest
    monkeypatch.setenv("RLX_CACHE_BYTES", str(sum(sizes.values())))
    stray = folder / "notes.txt"
    stray.write_text("not an entry")
    compile_cache._kept.clear()
    rlx.compile(mlp(rows=7), device="cpu")
    left = set(folder.iterdir())
    assert sum(p.stat().st_size for p in left - {stray}) <= sum(sizes.values())
    assert first in left
    assert second not in left
    assert stray in left
    monkeypatch.setenv("RLX_CACHE_BYTES", "100")
    before = rlx.cache_stats()
    rlx.compile(mlp(rows=8), device="cpu")
    assert counted(before) == {"lowered": 1}


def test_clear_cache(folder):
    rlx.compile(mlp(), device="cpu")
    (entry,) = folder.iterdir()
    size = entry.stat().st_size
    stray = folder / "notes.txt"
    stray.write_text("not an entry")
    assert rlx.clear_cache() == size
    assert list(folder.iterdir()) == [stray]
    before = rlx.cache_stats()
    rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"lowered": 1, "stored": 1}


def test_a_folder_where_nothing_may_be_written(tmp_path, monkeypatch, caplog):
    compile_cache._kept.clear()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "file" / "below"))
    before = rlx.cache_stats()
    with caplog.at_level("DEBUG", logger="rlx"), warnings.catch_warnings():
        warnings.simplefilter("error")
        rlx.compile(mlp(), device="cpu")
        rlx.compile(mlp(), device="cpu")
        assert rlx.clear_cache() == 0
    assert counted(before) == {"lowered": 1, "memory_hits": 1}
    assert "nothing is stored" in caplog.text


def test_files_left_by_writers_that_died_are_removed(folder):
    folder.mkdir()
    old, new = (folder / f"{number * 64}.rlxc.1-{number}.tmp" for number in "12")
    for path in (old, new):
        path.write_bytes(b"part")
    os.utime(old, (1, 1))
    rlx.compile(mlp(), device="cpu")
    assert not old.exists()
    assert new.exists()


def test_the_folder_is_not_looked_through_at_every_entry(folder, monkeypatch):
    looks = []
    plain = DiskCache._prune
    monkeypatch.setattr(DiskCache, "_prune", lambda self: looks.append(1) or plain(self))
    disk = DiskCache(folder, 10_000, 90)
    for number in range(130):
        disk.put(f"{number:064}", bytes(10))
    assert len(looks) == 3
    # Files that others stored meanwhile are seen at the latest when the own share fills the folder.
    (folder / f"{'f' * 64}.rlxc").write_bytes(bytes(9_000))
    os.utime(folder / f"{'f' * 64}.rlxc", (1, 1))
    for number in range(130, 260):
        disk.put(f"{number:064}", bytes(10))
    assert not (folder / f"{'f' * 64}.rlxc").exists()
    assert disk.nbytes() == 2_600
    disk.put("a" * 64, bytes(9_000))
    assert disk.nbytes() <= 10_000
