"""Sealed entries of the cache: what has this user's seal is used as it is, and nothing else is looked into."""

import contextlib
import hashlib
import json
import os
import pickle
import random
import stat
import subprocess
import sys
import types

import numpy as np
import pytest
from cached_graphs import compiled_twice, counted, mlp
from test_cache_folder import mutated

import rlx
from rlx.compiler import compile_cache, signed_cache
from rlx.ir import container
from rlx.ir.content import OpaqueError

posix = pytest.mark.skipif(
    not hasattr(os, "geteuid"), reason="Windows has access lists in place of modes"
)


@pytest.fixture(autouse=True)
def key(tmp_path, monkeypatch):
    """A key of its own."""
    path = tmp_path / "user" / "cache-key"
    monkeypatch.setattr(signed_cache, "key_file", lambda: path)
    signed_cache._key.cache_clear()
    yield path
    signed_cache._key.cache_clear()


@posix
def test_the_key_is_this_users_alone(folder, key):
    rlx.compile(mlp(), device="cpu")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    for spoil in (lambda: key.chmod(0o640), lambda: key.parent.chmod(0o777)):
        signed_cache._key.cache_clear()
        assert signed_cache.sealed_entries() is not None
        spoil()
        signed_cache._key.cache_clear()
        # The folder is refused aloud, once.
        with (
            pytest.warns(RuntimeWarning, match="not used")
            if key.parent.stat().st_mode & 0o022
            else contextlib.nullcontext()
        ):
            assert signed_cache.sealed_entries() is None
        key.parent.chmod(0o700)
        key.unlink()


@pytest.mark.parametrize("damage", ["empty", "short", "long", "unreadable"])
def test_a_damaged_key_is_said_once_and_replaced(folder, key, monkeypatch, damage):
    rlx.compile(mlp(), device="cpu")
    old, real = key.read_bytes(), signed_cache.read_regular
    key.write_bytes({"empty": b"", "short": b"short", "long": bytes(33)}.get(damage, old))
    failing = [damage == "unreadable"]

    def read(path, *args, **kwargs):
        if failing.pop() if failing else False:
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(signed_cache, "read_regular", read)
    signed_cache._key.cache_clear()
    with pytest.warns(RuntimeWarning, match="a new one is made") as told:
        assert signed_cache.sealed_entries() is not None
    assert signed_cache.sealed_entries() is not None
    assert len(told) == 1
    assert len(key.read_bytes()) == 32
    assert key.read_bytes() != old
    assert [path.name for path in key.parent.iterdir()] == [key.name]
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"lowered": 1, "stored": 1}


@posix
def test_a_key_that_is_a_link_is_not_read(folder, key, tmp_path):
    (tmp_path / "mine").write_bytes(bytes(32))
    key.parent.mkdir(mode=0o700)
    key.symlink_to(tmp_path / "mine")
    assert signed_cache.sealed_entries() is None


def test_without_a_key_nothing_is_kept(folder, key):
    key.parent.write_bytes(b"a file where the key's folder would be")
    assert signed_cache.sealed_entries() is None
    _, _, done = compiled_twice(mlp(), "cpu")
    assert done == {"lowered": 1}
    assert not folder.exists()


def test_another_users_entries_are_not_found(folder, key):
    rlx.compile(mlp(), device="cpu")
    (theirs,) = folder.iterdir()
    raw = theirs.read_bytes()
    key.write_bytes(os.urandom(32))
    signed_cache._key.cache_clear()
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"lowered": 1, "stored": 1}
    (mine,) = set(folder.iterdir()) - {theirs}
    # Nor where they are put in the place of one's own.
    mine.write_bytes(raw)
    compile_cache._kept.clear()
    before = rlx.cache_stats()
    with pytest.warns(RuntimeWarning, match="its seal does not match"):
        rlx.compile(mlp(), device="cpu")
    assert counted(before) == {"refused": 1, "lowered": 1, "stored": 1}


class RunsCode:
    """Runs code when it is read."""

    ran = []

    def __reduce__(self):
        return RunsCode.ran.append, (1,)


def test_what_has_no_seal_is_not_read(folder, key):
    """The checksums of all of these hold."""
    rlx.compile(mlp(), device="cpu")
    (entry,) = folder.iterdir()
    stored = container.read(entry)
    pickled = np.frombuffer(pickle.dumps(RunsCode()), np.uint8)
    changed = stored.arrays[0].copy()
    changed[len(changed) // 2] ^= 1
    wrong = {
        "another record": (signed_cache.KIND, stored.data, [pickled]),
        "one bit": (signed_cache.KIND, stored.data, [changed]),
        "another seal": (signed_cache.KIND, {"seal": "0" * 64}, stored.arrays),
        "a seal that is none": (signed_cache.KIND, {"seal": None}, stored.arrays),
        "no seal": (signed_cache.KIND, {}, stored.arrays),
        "another kind": ("model", stored.data, stored.arrays),
        "no record": (signed_cache.KIND, stored.data, []),
        "two records": (signed_cache.KIND, stored.data, [*stored.arrays, pickled]),
    }
    for what, (kind, data, arrays) in wrong.items():
        entry.write_bytes(container.dump(kind, data, arrays))
        compile_cache._kept.clear()
        before = rlx.cache_stats()
        with pytest.warns(RuntimeWarning, match=entry.name) as said:
            rlx.compile(mlp(), device="cpu")
        assert len(said) == 1, what
        assert said[0].filename == __file__
        done = counted(before)
        assert done.pop("refused", 0) + done.pop("damaged", 0) == 1, what
        assert done == {"lowered": 1, "stored": 1}, what
    assert not RunsCode.ran


def divided(raw, places):
    """A container with the same bytes of all arrays, which are said to begin elsewhere. Its checksums hold."""
    body = 96 + int.from_bytes(raw[16:24], "little")
    said = json.loads(raw[96:body])
    header = json.dumps({**said, "arrays": places(said["arrays"])}).encode()
    header += b" " * (-(96 + len(header)) % 64)
    sizes = len(header), 96 + len(header) + len(raw) - body
    front = raw[:16] + b"".join(size.to_bytes(8, "little") for size in sizes) + raw[32:64]
    return front + hashlib.sha256(front + header).digest() + header + raw[body:]


def test_arrays_that_are_divided_in_another_way_are_not_read(folder, key):
    """Weights are data of other people: what stands in them must not become the record."""
    entries = signed_cache.sealed_entries()
    name, weights = entries.name("weights"), np.zeros(8192, np.uint8)
    attack = pickle.dumps(RunsCode())
    weights[: len(attack)] = np.frombuffer(attack, np.uint8)
    assert entries.put(name, {"weights": weights})
    np.testing.assert_array_equal(entries.get(name)["weights"], weights)
    (entry,) = folder.iterdir()
    raw = entry.read_bytes()
    for places in (
        lambda stored: stored[::-1],
        lambda stored: stored[1:],
        lambda stored: [[stored[1][0], "|u1", [len(attack)]]],
        lambda stored: [*stored, stored[1]],
    ):
        entry.write_bytes(divided(raw, places))
        assert container.read(entry).arrays  # it is a whole container
        with pytest.warns(RuntimeWarning, match="its seal does not match"):
            assert entries.get(name) is None
    assert not RunsCode.ran
    entry.write_bytes(divided(raw, lambda stored: stored))
    np.testing.assert_array_equal(entries.get(name)["weights"], weights)


def test_damage_is_found(folder):
    params, x = {"w": np.eye(8, dtype=np.float32)}, {"x": np.ones((4, 8), np.float32)}
    expected = rlx.compile(mlp(), device="cpu", params=params).run(x)[0]
    (entry,) = folder.iterdir()
    raw, rng = entry.read_bytes(), random.Random(1)
    for _ in range(100):
        damaged = mutated(raw, rng)
        if damaged == raw:
            continue
        entry.write_bytes(damaged)
        compile_cache._kept.clear()
        before = rlx.cache_stats()
        with pytest.warns(RuntimeWarning, match=entry.name):
            result = rlx.compile(mlp(), device="cpu", params=params)
        assert counted(before) == {"damaged": 1, "lowered": 1, "stored": 1}
        np.testing.assert_array_equal(result.run(x)[0], expected)


def test_long_graphs(folder):
    """Nodes refer to each other: written as they are, they would nest as deep as the graph is long."""
    g = rlx.Graph("chain")
    x = g.input("x", (3,))
    for index in range(3000):
        x = g.sin(x) if index % 2 else g.cumsum(x, 0)
    g.set_outputs([x])
    first, second, done = compiled_twice(g, "cpu")
    assert done == {"disk_hits": 1}
    inputs = {"x": np.float32([0.1, 0.2, 0.3])}
    np.testing.assert_array_equal(first.run(inputs)[0], second.run(inputs)[0])


def test_what_can_not_be_sealed(folder):
    entries = signed_cache.sealed_entries()
    with pytest.raises(OpaqueError, match="at most"):
        entries.put(entries.name("large"), np.zeros(signed_cache.MAX_BYTES + 1, np.uint8))
    with pytest.raises(OpaqueError):
        entries.put(entries.name("code"), lambda: 3)
    g = rlx.Graph()
    node = g.input("x", (2,))
    g.nodes.clear()
    with pytest.raises(OpaqueError):
        entries.put(entries.name("lost"), node)
    assert not folder.exists() or not list(folder.iterdir())


def test_records_come_back_as_they_were(folder):
    entries = signed_cache.sealed_entries()
    g = mlp()
    body = rlx.Graph("body")
    body.set_outputs([body.input("y", (2,)) * 0.5])
    retained = np.arange(5.0)
    record = {
        "graph": g,
        "node": g.nodes[2],
        "body": body,
        "types": tuple(node.type for node in g.nodes),
        "items": types.MappingProxyType({"a": 1}),
        "array": retained,
        "elsewhere": (elsewhere := np.arange(3)),
        "large": (large := np.arange(5000.0).reshape(2, 50, 50).transpose(2, 0, 1)),
        "strided": (strided := np.arange(9000, dtype=np.int16)[::3]),
        "empty": np.zeros((0, 4)),
    }
    name = entries.name("record")
    assert entries.put(name, record, lambda item: "there" if item is elsewhere else None)
    result = entries.get(name, {"there": elsewhere}.__getitem__)
    assert result["node"] is result["graph"].nodes[2]
    assert result["graph"].to_json() == g.to_json()
    assert [node.source for node in result["graph"].nodes] == [node.source for node in g.nodes]
    assert [node.fixed for node in result["graph"].nodes] == [node.fixed for node in g.nodes]
    assert result["graph"].named("w") is result["graph"].nodes[1]
    result["graph"].verify()
    assert result["types"] == record["types"]
    assert dict(result["items"]) == {"a": 1}
    np.testing.assert_array_equal(result["array"], retained)
    assert result["elsewhere"] is elsewhere
    for name, item in (("large", large), ("strided", strided), ("empty", np.zeros((0, 4)))):
        np.testing.assert_array_equal(result[name], item, strict=True)
    assert entries.get(entries.name("absent")) is None


MAKES_A_KEY = """
import sys
from pathlib import Path
from rlx.compiler import signed_cache
print(signed_cache._key(Path(sys.argv[1])).hex())
"""


def test_processes_that_make_the_key_at_once(tmp_path):
    path = tmp_path / "user" / "cache-key"
    command = [sys.executable, "-c", MAKES_A_KEY, str(path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    results = {item.communicate(timeout=120)[0].strip() for item in started}
    assert results == {path.read_bytes().hex()}
    assert [item.name for item in path.parent.iterdir()] == [path.name]
