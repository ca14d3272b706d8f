"""Pools of devices: results in order and once each, work shared by time, and devices that fail under it."""

import asyncio
import itertools
import threading
import time
import warnings

import numpy as np
import pytest
from test_pickles import sample_model

import rlx
from rlx.many.lanes import Item, Lane, Lanes

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _graph():
    g = rlx.Graph("twice")
    g.set_outputs([g.input("x", (2, 3)) * 2.0 + g.param("b", (3,), value=np.ones(3, np.float32))])
    return g


def _expected(x):
    return x * 2 + 1


class Fake:
    """Lanes of functions in place of devices."""

    def __init__(self, **functions):
        self.closed = []
        self.lanes = Lanes(
            [
                Lane(rlx.Device(name), function, lambda name=name: self.closed.append(name))
                for name, function in functions.items()
            ],
            "the pool",
        )

    def add(self, inputs):
        from concurrent.futures import Future

        item = Item(inputs, Future())
        self.lanes.add(item)
        return item.future

    def done(self):
        return {str(lane.device): lane.done for lane in self.lanes.lanes}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.lanes.close()


def _sleeping(seconds):
    def run(at):
        time.sleep(seconds)
        return at

    return run


def _all(fake, count):
    futures = [fake.add(at) for at in range(count)]
    return [future.result() for future in futures]


def _let_go(event, fake):
    event.set()
    fake.lanes._threads[0].join(10)


def _until_one_has_left(work, lanes):
    """Does some work again and again; devices take turns by chance."""
    deadline = time.monotonic() + 60
    while True:
        work()
        if any(lane.left is not None for lane in lanes):
            return
        assert time.monotonic() < deadline


# --- the queue ---------------------------------------------------------------------------------------


def test_work_is_shared_by_time():
    with Fake(a=_sleeping(0.004), b=_sleeping(0.02)) as fake:
        futures = [fake.add(at) for at in range(120)]
        assert [future.result() for future in futures] == list(range(120))
        done = fake.done()
    # 5 to 1 if sleeps were exact, which they are not on a busy machine.
    assert done["a"] + done["b"] == 120
    assert done["a"] > 2 * done["b"] > 0


def test_a_slow_device_leaves_the_last_item_to_a_fast_one():
    with Fake(fast=_sleeping(0.002), slow=_sleeping(0.5)) as fake:
        for _ in range(2):  # the second item of a device tells its time
            for future in [fake.add(at) for at in range(40)]:
                future.result()
        began, before = time.perf_counter(), fake.done()["slow"]
        assert before >= 2
        for at in range(5):  # the slow one is free
            assert fake.add(at).result() == at
        assert fake.done()["slow"] == before
        assert time.perf_counter() - began < 0.4


def test_a_first_item_that_takes_long_does_not_keep_a_fast_device_from_work():
    """A driver compiles kernels while the first item is run. Once it judged the device by that, and left it out."""
    first = threading.Event()

    def compiling(at):
        time.sleep(0.0005 if first.is_set() else 0.5)
        first.set()
        return at

    with Fake(gpu=compiling, cpu=_sleeping(0.005)) as fake:
        assert _all(fake, 300) == list(range(300))
        first_round = fake.done()["gpu"]
        assert _all(fake, 100) == list(range(100))
        assert fake.done()["gpu"] - first_round > 50


def test_a_lost_device_leaves_and_its_item_is_done_elsewhere():
    calls, lock = [], threading.Lock()

    def note(at):
        with lock:
            calls.append(at)
        time.sleep(0.001)
        return at

    def lost(at):
        if len(calls) > 20:
            raise rlx.DeviceLostError("gone")
        return note(at)

    with Fake(a=note, b=lost, c=note) as fake:
        with pytest.warns(RuntimeWarning, match=r"b has left the pool \(DeviceLostError: gone\)"):
            found = _all(fake, 300)
    assert found == list(range(300))
    assert sorted(calls) == list(range(300))  # each once
    assert sorted(fake.closed) == ["a", "b", "c"]


def test_bad_inputs_are_the_callers():
    def run(at):
        if at % 3 == 0:
            raise rlx.InputError("no such input")
        return at

    with Fake(a=run, b=run) as fake:
        futures = [fake.add(at) for at in range(30)]
        errors = [future.exception() for future in futures]
        assert [isinstance(error, rlx.InputError) for error in errors] == [
            at % 3 == 0 for at in range(30)
        ]
        assert all(lane.left is None for lane in fake.lanes.lanes)


def test_errors_everywhere_are_the_items_and_errors_of_one_device_are_its_own():
    def bad(at):
        if at < 0:
            raise ValueError("negative")
        return at

    def broken(at):
        raise OSError("broken driver")

    with Fake(a=bad, b=bad) as fake:
        for _ in range(8):
            assert isinstance(fake.add(-1).exception(), ValueError)
        assert all(lane.left is None for lane in fake.lanes.lanes)
    with Fake(a=_sleeping(0.002), b=broken) as fake:
        with pytest.warns(RuntimeWarning, match="b has left"):
            _until_one_has_left(lambda: _all(fake, 40), fake.lanes.lanes)


def test_all_devices_are_lost():
    def lost(at):
        time.sleep(0.002)
        raise rlx.DeviceLostError(f"gone at {at}")

    with Fake(a=lost, b=lost) as fake:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            futures = [fake.add(at) for at in range(2)]
            errors = [future.exception() for future in futures]
        assert all(isinstance(error, rlx.DeviceFallbackError) for error in errors)
        assert any(len(error.attempts) == 2 for error in errors)
        with pytest.raises(rlx.DeviceFallbackError, match="no device of the pool is left"):
            fake.add(0)


def test_an_item_whose_last_device_leaves_is_answered():
    """It has failed at one device and waits for the other, which is then lost under another item."""
    began, go = threading.Event(), threading.Event()

    def small(at):
        if at == "large":
            raise rlx.DeviceMemoryError("no room")
        return at

    def dying(at):
        began.set()
        go.wait(10)
        raise rlx.DeviceLostError("gone")

    with Fake(b=dying) as fake:
        first = fake.add("any")
        began.wait(10)
        fake.lanes.lanes.append(Lane(rlx.Device("a"), small, lambda: None))
        large = Item("large", type(first)(), [(rlx.Device("a"), rlx.DeviceMemoryError("no room"))])
        fake.lanes.add(large)
        with pytest.warns(RuntimeWarning, match="b has left"):
            _let_go(go, fake)
        assert isinstance(large.future.exception(0), rlx.DeviceFallbackError)


def test_what_waits_for_another_device_ends_with_the_pool():
    began, go = threading.Event(), threading.Event()

    def busy(at):
        began.set()
        go.wait(10)
        return at

    def small(at):
        began.wait(10)
        raise rlx.DeviceMemoryError("no room")

    fake = Fake(a=busy, b=small)
    futures = [fake.add(at) for at in range(2)]
    began.wait(10)
    closing = threading.Thread(target=fake.lanes.close)
    time.sleep(0.1)
    closing.start()
    time.sleep(0.05)
    go.set()
    closing.join(10)
    assert not closing.is_alive()
    for future in futures:
        assert future.done() or future.cancel()


@pytest.mark.filterwarnings("error")
def test_warnings_that_are_errors_end_no_thread():
    def lost(at):
        raise rlx.DeviceLostError("gone")

    with Fake(a=_sleeping(0.001), b=lost) as fake:
        assert _all(fake, 100) == list(range(100))
        assert _all(fake, 100) == list(range(100))


def test_too_large_for_one_device():
    def small(at):
        if at > 5:
            raise rlx.DeviceMemoryError("no room")
        return at

    with Fake(a=small, b=_sleeping(0.001)) as fake:
        assert fake.add(9).result() == 9
        assert all(lane.left is None for lane in fake.lanes.lanes)


def test_a_cancelled_item_is_not_done():
    began, go = threading.Event(), threading.Event()
    seen = []

    def run(at):
        began.set()
        go.wait(10)
        seen.append(at)
        return at

    with Fake(a=run) as fake:
        first = fake.add(0)
        began.wait(10)
        second, third = fake.add(1), fake.add(2)
        assert second.cancel()
        go.set()
        assert (first.result(), third.result()) == (0, 2)
    assert seen == [0, 2]


# --- pools -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "devices", [["cpu"], pytest.param(["cpu", "webgpu"], marks=pytest.mark.webgpu)]
)
def test_map_keeps_the_order(rng, devices):
    xs = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(200)]
    told = []
    with rlx.Pool(_graph(), devices) as pool:
        found = list(pool.map(xs, progress=told.append))
        rows = pool.report()
    for x, (y,) in zip(xs, found, strict=True):
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
        results = pool.map(X + at for at in taken)
        first = [next(results) for _ in range(10)]
        results.close()
    np.testing.assert_allclose([y[0, 0] for (y,) in first], [_expected(at) for at in range(10)])
    assert next(taken) <= 10 + 4 + 1


def test_back_pressure():
    with rlx.Pool(_graph(), ["cpu"], max_pending=2) as pool:
        pool._lanes.lanes[0].run = _sleeping(0.05)
        began = time.perf_counter()
        futures = [pool.submit(at) for at in range(4)]
        assert time.perf_counter() - began > 0.08
        assert [future.result() for future in futures] == [0, 1, 2, 3]


def test_an_error_in_map_stands_in_its_place(rng):
    items = [X, X, np.zeros((5, 5), np.float32), X]
    with rlx.Pool(_graph(), ["cpu"]) as pool:
        results = pool.map(items)
        assert len(next(results)) == len(next(results)) == 1
        with pytest.raises(rlx.InputError):
            next(results)
        np.testing.assert_allclose(pool.run({"x": X})[0], _expected(X))  # it goes on


def test_asyncio(rng):
    xs = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(50)]

    async def awaited():
        for x in xs:
            await asyncio.sleep(0)
            yield x

    async def main(pool):
        one = await pool.run_async(xs[0])
        listed = [y async for y in pool.map_async(xs)]
        drawn = [y async for y in pool.map_async(awaited())]
        return one, listed, drawn

    with rlx.Pool(_graph(), ["cpu"], max_pending=3) as pool:
        one, listed, drawn = asyncio.run(main(pool))
    np.testing.assert_allclose(one[0], _expected(xs[0]))
    for found in (listed, drawn):
        np.testing.assert_allclose([y for (y,) in found], _expected(np.stack(xs)))


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
    pool = rlx.Pool(_graph(), ["cpu"])
    pool.close()
    pool.close()
    with pytest.raises(rlx.InputError, match="closed"):
        pool.run(X)


@pytest.mark.webgpu
def test_a_device_is_lost_in_the_middle(rng):
    """10,000 items over three devices, of which one is lost on the way: each result once, and in order."""
    names = ["cpu", *(str(one) for one in rlx.available_devices() if one.backend == "webgpu")]
    graph = _graph()
    xs = [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(10_000)]
    with rlx.Pool(graph, names) as pool:
        lane = pool._lanes.lanes[-1]
        run = lane.run

        def dying(inputs):
            if lane.done > 50:
                raise rlx.DeviceLostError("the device was lost")
            return run(inputs)

        lane.run = dying
        # All take turns, whatever their speed: the slower ones would do little of such small items.
        found = []
        with pytest.warns(RuntimeWarning, match="has left"):
            _until_one_has_left(lambda: found.append(list(pool.map(xs))), [lane])
        found = found[0]
        assert lane.device not in pool.devices
    assert len(found) == len(xs)
    for x, (y,) in zip(xs, found, strict=True):
        np.testing.assert_allclose(y, _expected(x), rtol=1e-6)
