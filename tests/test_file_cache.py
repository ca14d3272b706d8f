"""Cleaning of the user's cache folders: by size, by age, with several processes at it, and files that stay open."""

import logging
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cached_graphs import counted, mlp
from calibrations import figures, forget_variants

import rlx
from rlx import file_cache
from rlx.compiler import compile_cache
from rlx.compiler.disk import DiskCache
from rlx.cost import store, tuned
from rlx.file_cache import DAY_S

OURS = re.compile(r".+\.rlxc")


def aged(path, days):
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))


def compiled(rows, device="cpu"):
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    rlx.compile(mlp(rows=rows), device=device).close()
    return counted(before)


def test_entries_that_nothing_used_go(folder, target_device, monkeypatch):
    monkeypatch.setattr("rlx.compiler.disk._PUTS_PER_LOOK", 1)
    assert compiled(1, target_device) == {"lowered": 1, "stored": 1}
    (first,) = folder.iterdir()
    aged(first, 91)
    monkeypatch.setenv("RLX_CACHE_DAYS", "92")
    compiled(2, target_device)
    assert first.exists()
    monkeypatch.delenv("RLX_CACHE_DAYS")
    # An entry that is found counts as used now.
    assert compiled(1, target_device) == {"disk_hits": 1}
    compiled(3, target_device)
    assert first.exists()
    aged(first, 91)
    compiled(4, target_device)
    assert not first.exists()
    assert len(list(folder.iterdir())) == 3


def test_entries_of_an_older_build_go_first(folder, monkeypatch):
    """An update leaves them behind; nothing asks for them, so they are the oldest when room is needed."""
    monkeypatch.setattr("rlx.compiler.disk._PUTS_PER_LOOK", 1)
    with monkeypatch.context() as older:
        older.setattr(compile_cache, "build_digest", lambda: "0" * 64)
        for rows in (1, 2, 3):
            compiled(rows)
    left_behind = {*folder.iterdir()}
    for path in left_behind:
        aged(path, 1)
    size = sum(path.stat().st_size for path in left_behind)
    monkeypatch.setenv("RLX_CACHE_BYTES", str(size + 1))
    for rows in (1, 2, 3):
        assert compiled(rows) == {"lowered": 1, "stored": 1}
    left = {*folder.iterdir()}
    assert sum(path.stat().st_size for path in left) <= size + 1
    assert len(left - left_behind) == 3
    for rows in (1, 2, 3):
        assert compiled(rows) == {"disk_hits": 1}


def test_the_bound_of_age_that_does_not_parse(folder, monkeypatch):
    monkeypatch.setenv("RLX_CACHE_DAYS", "a week")
    with pytest.raises(rlx.InputError, match="RLX_CACHE_DAYS"):
        compiled(1)


def test_files_that_stay_open_are_no_error(tmp_path, monkeypatch, caplog):
    """A file that another process holds open, like on Windows, is removed by a later look."""
    for number in range(4):
        (tmp_path / f"{number}.rlxc").write_bytes(bytes(100))
        aged(tmp_path / f"{number}.rlxc", 10 - number)
    plain = Path.unlink

    def locked(path, **options):
        if path.name == "0.rlxc":
            raise PermissionError(13, "The process cannot access the file", str(path))
        plain(path, **options)

    with monkeypatch.context() as windows, caplog.at_level(logging.DEBUG, "rlx"):
        windows.setattr(Path, "unlink", locked)
        assert file_cache.prune(tmp_path, OURS, 90, 250) == 200
        assert DiskCache(tmp_path, 250, 90).clear() == 100
    assert [path.name for path in tmp_path.iterdir()] == ["0.rlxc"]
    assert "0.rlxc stays" in caplog.text
    assert file_cache.prune(tmp_path, OURS, 90, 50) == 0


def test_only_our_own_files_are_removed(tmp_path):
    ours = ["a.rlxc", "b.rlxc.12-34.tmp"]
    others = ["notes.txt", "a.rlxc.bak", "rlxc", "c.tmp", "d.rlxc.tmp"]
    for name in ours + others:
        (tmp_path / name).write_bytes(b"1")
        aged(tmp_path / name, 1000)
    assert file_cache.prune(tmp_path, OURS, 90) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)
    assert file_cache.prune(tmp_path / "missing", OURS, 90) == 0


def test_replaced_files_are_removed_at_any_age(tmp_path):
    """On Windows a file that was mapped when it was replaced stays beside the new one until nobody maps it."""
    for name in ("a.rlxc", "a.rlxc.12-34.old", "a.rlxc.12-35.tmp"):
        (tmp_path / name).write_bytes(b"1")
    assert file_cache.prune(tmp_path, OURS, 90) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.rlxc", "a.rlxc.12-35.tmp"]


def test_a_clock_that_was_set_back_removes_nothing(tmp_path):
    (tmp_path / "a.rlxc").write_bytes(b"12")
    assert file_cache.prune(tmp_path, OURS, 90, now=lambda: 0.0) == 2


def test_an_entry_whose_use_can_not_be_noted_is_used(folder, monkeypatch):
    """A folder on a read-only disk serves what it has."""
    compiled(1)

    def refused(path):
        raise PermissionError(30, "Read-only file system", str(path))

    monkeypatch.setattr(os, "utime", refused)
    assert compiled(1) == {"disk_hits": 1}


MANY = """
import sys
from pathlib import Path
from rlx.compiler import disk
disk._PUTS_PER_LOOK = 1
kept = disk.DiskCache(Path(sys.argv[1]), 20_000, 90)
for number in range(150):
    name = f"{sys.argv[2]}{number:063}"
    assert kept.put(name, bytes(1000)), number
    kept.nbytes()
print("done")
"""


def test_processes_that_remove_at_once(tmp_path):
    """Every put of every process looks through the folder and removes what is too much."""
    folder = tmp_path / "kept"
    command = [sys.executable, "-W", "error", "-c", MANY, str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*command, name], **pipes) for name in "abc"]
    for item in started:
        out, err = item.communicate(timeout=120)
        assert out.strip() == "done", err
    files = list(folder.iterdir())
    # Each may have stored one entry after the others looked.
    assert 1 <= len(files) <= 20 + len(started)
    assert all(path.stat().st_size == 1000 for path in files)


# --- figures of devices ------------------------------------------------------------------------------


@pytest.fixture
def speeds(tmp_path, monkeypatch):
    """A folder of figures of its own, and nothing in memory."""
    place = tmp_path / "speeds"
    monkeypatch.setenv("RLX_CALIBRATION", str(place))
    store.forget()
    forget_variants()
    yield place
    store.forget()
    forget_variants()


def test_versions_keep_figures_side_by_side(speeds, target_device):
    """Two programs with their own rlx don't measure anew at each start, and neither warns."""
    here = store.meter().identity(target_device)
    other = replace(here, rlx_version="0.0.1")
    for first in (here, other):
        assert store.save(store.file_of(first), figures(first))
    assert len(list(speeds.iterdir())) == 2
    store.forget()
    assert store.stored(target_device).identity == here
    # Another driver of the same GPU takes the place of the one before.
    assert store.file_of(replace(here, driver="newer")) == store.file_of(here)


def test_figures_that_nothing_used_go(speeds):
    here = store.meter().identity("cpu")
    older = [store.file_of(replace(here, rlx_version=version)) for version in ("0.0.1", "0.0.2")]
    for path in older:
        assert store.save(path, figures(here))
    variants = older[0].with_suffix(".variants.json")
    variants.write_text("{}")
    foreign = speeds / "notes-202611230900.json"
    foreign.write_text("{}")
    for path in (older[0], variants, foreign):
        aged(path, 91)
    tuned.store_variants("cpu", {})
    assert not older[0].exists()
    assert not variants.exists()
    assert older[1].exists()
    assert foreign.exists()


def test_figures_that_are_used_stay(speeds):
    here = store.meter().identity("cpu")
    path = store.file_of(here)
    assert store.save(path, figures(here))
    tuned.store_variants("cpu", {"f": (((1.0,), "v"),)})
    for item in speeds.iterdir():
        aged(item, 89)
    store.forget()
    forget_variants()
    assert store.stored("cpu") is not None
    assert tuned.stored_variants("cpu")
    assert all(time.time() - path.stat().st_mtime < 100 for path in speeds.iterdir())


def test_a_file_that_the_user_named_has_no_neighbours(tmp_path, monkeypatch):
    monkeypatch.setenv("RLX_CALIBRATION", str(tmp_path / "figures.json"))
    neighbour = tmp_path / f"cpu-{'0' * 12}-{'0' * 8}.json"
    neighbour.write_text("{}")
    aged(neighbour, 1000)
    here = store.meter().identity("cpu")
    assert store.save(store.file_of(here), figures(here))
    assert neighbour.exists()
