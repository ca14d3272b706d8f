"""Pools of devices: results in order and once each, work shared by time, and devices that fail under it."""

import asyncio
import itertools
import threading
import time

import numpy as np
import pytest
from test_pickles import sample_model
from test_scheduler import _sleeping, _until_one_has_left

import rlx

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _graph():
    g = rlx.Graph("twice")
    g.set_outputs([g.input("x", (2, 3)) * 2.0 + g.param("b", (3,), value=np.ones(3, np.float32))])
    return g


def _expected(x):
    return x * 2 + 1


def test_map_hands_out_short_sets_of_a_list_together(monkeypatch):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (4,)) + 1.0])
    sizes = []
    with rlx.Pool(g, ["cpu"]) as pool:
        add = pool._scheduler.add
        monkeypatch.setattr(
            pool._scheduler, "add", lambda task: (sizes.append(len(task.sets)), add(task))
        )
        monkeypatch.setattr(pool._scheduler, "together", lambda: 10)
        xs = [np.full(4, index, np.float32) for index in range(95)]
        assert [y[0] for (y,) in pool.map(xs)] == [index + 1 for index in range(95)]
        assert sum(sizes) == 95
        assert max(sizes) == 10
        assert pool.report()[0].done == 95
        sizes.clear()
        # One that has no length may wait between two sets.
        assert [y[0] for (y,) in pool.map(iter(xs))] == [index + 1 for index in range(95)]
        assert set(sizes) == {1}
        # The first that can't be run is told in its place.
        got = pool.map([*xs[:13], np.zeros(3, np.float32), *xs[13:]])
        assert [next(got)[0][0] for _ in range(13)] == [index + 1 for index in range(13)]
        with pytest.raises(rlx.InputError):
            next(got)
        assert pool.run(xs[3])[0][0] == 4
    assert pool._room._inside == 0


def test_no_more_are_under_way_than_may_be(monkeypatch):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (4,)) + 1.0])
    with rlx.Pool(g, ["cpu"], max_pending=5) as pool:
        maximum, acquire = [], pool._room.acquire

        def entered(call, limit, calls=1):
            acquire(call, limit, calls)
            maximum.append(pool._room._inside)

        monkeypatch.setattr(pool._room, "acquire", entered)
        monkeypatch.setattr(pool._scheduler, "together", lambda: 100)
        xs = [np.full(4, index, np.float32) for index in range(60)]
        threads = [threading.Thread(target=lambda: list(pool.map(xs))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert 1 < max(maximum) <= 5


@pytest.mark.parametrize(
    "devices", [["cpu"], pytest.param(["cpu", "webgpu"], marks=pytest.mark.webgpu)]
)
def test_map_keeps_the_order(rng, devices):
    xs = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(200)]
    told = []
    with rlx.Pool(_graph(), devices) as pool:
        results = list(pool.map(xs, progress=told.append))
        rows = pool.report()
    for x, (y,) in zip(xs, results, strict=True):
        np.testing.assert_allclose(y, _expected(x), rtol=1e-6)
    assert sum(row.done for row in rows) == 200
    assert len(told) == 200
    assert told[-1].part == 1.0
    assert {str(row.device).partition(":")[0] for row in rows} == set(devices)


def test_all_devices_of_the_machine():
    with rlx.Pool(_graph()) as pool:
        assert rlx.Device("cpu") in pool.devices
        np.testing.assert_allclose(pool.run(X)[0], _expected(X))


def test_an_endless_iterator_is_read_as_there_is_room():
    taken = itertools.count()
    with rlx.Pool(_graph(), ["cpu"], max_pending=4) as pool:
        results = pool.map(X + index for index in taken)
        first = [next(results) for _ in range(10)]
        results.close()
    np.testing.assert_allclose(
        [y[0, 0] for (y,) in first], [_expected(index) for index in range(10)]
    )
    assert next(taken) <= 10 + 4 + 1


def test_back_pressure():
    with rlx.Pool(_graph(), ["cpu"], max_pending=2) as pool:
        pool._scheduler.workers[0].run = _sleeping(0.05)
        began = time.perf_counter()
        futures = [pool.submit(index) for index in range(4)]
        assert time.perf_counter() - began > 0.08
        assert [future.result() for future in futures] == [0, 1, 2, 3]


def test_asyncio(rng):
    xs = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(50)]

    async def awaited():
        for x in xs:
            await asyncio.sleep(0)
            yield x

    async def main(pool):
        single = await pool.run_async(xs[0])
        listed = [y async for y in pool.map_async(xs)]
        drawn = [y async for y in pool.map_async(awaited())]
        return single, listed, drawn

    with rlx.Pool(_graph(), ["cpu"], max_pending=3) as pool:
        first, listed, drawn = asyncio.run(main(pool))
    np.testing.assert_allclose(first[0], _expected(xs[0]))
    for item in (listed, drawn):
        np.testing.assert_allclose([y for (y,) in item], _expected(np.stack(xs)))


def test_models_and_files(tmp_path, rng):
    (tmp_path / "m.onnx").write_bytes(sample_model())
    rlx.save_model(_graph(), tmp_path / "g.rlx")
    x = rng.standard_normal((2, 3)).astype(np.float32)
    model = rlx.onnx.Model(tmp_path / "m.onnx", "cpu")
    for source in (tmp_path / "m.onnx", sample_model(), model):
        with rlx.Pool(source, ["cpu"]) as pool:
            np.testing.assert_allclose(pool.run(x)[0], model.run(x)[0])
    with rlx.Pool(tmp_path / "g.rlx", ["cpu"]) as pool:
        np.testing.assert_allclose(pool.run(x)[0], _expected(x))


@pytest.mark.parametrize(
    ("devices", "error", "said"),
    [
        ([], rlx.InputError, "each once"),
        (["cpu", "cpu"], rlx.InputError, "each once"),
        ("cpu", rlx.InputError, "a list of devices"),
        (["cpu", "ane"], rlx.DeviceError, "ane"),
        (["nonsense"], rlx.DeviceParseError, "nonsense"),
    ],
)
def test_devices_that_make_no_pool(devices, error, said):
    with pytest.raises(error, match=said):
        rlx.Pool(_graph(), devices)


def test_other_wrong_options():
    with pytest.raises(rlx.InputError, match="max_pending"):
        rlx.Pool(_graph(), ["cpu"], max_pending=0)
    with pytest.raises(rlx.InputError, match="params are for graphs"):
        rlx.Pool(sample_model(), ["cpu"], params={"w": X})


@pytest.mark.webgpu
def test_a_device_is_lost_in_the_middle(rng):
    """10,000 items over three devices, of which one is lost on the way: each result once, and in order."""
    names = [
        "cpu",
        *(str(device) for device in rlx.available_devices() if device.backend == "webgpu"),
    ]
    graph = _graph()
    xs = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(10_000)]
    with rlx.Pool(graph, names) as pool:
        worker = pool._scheduler.workers[-1]
        run = worker.run

        def dying(inputs):
            if worker.done > 50:
                raise rlx.DeviceLostError("the device was lost")
            return run(inputs)

        worker.run = dying
        # All take turns, whatever their speed: the slower ones would do little of such small items.
        results = []
        with pytest.warns(RuntimeWarning, match="has left"):
            _until_one_has_left(lambda: results.append(list(pool.map(xs))), [worker])
        results = results[0]
        assert worker.device not in pool.devices
    assert len(results) == len(xs)
    for x, (y,) in zip(xs, results, strict=True):
        np.testing.assert_allclose(y, _expected(x), rtol=1e-6)
