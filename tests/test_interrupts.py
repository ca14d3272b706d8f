"""Calls of pools and models that signal handlers and cancellations cut off: nothing of them stays."""

import asyncio
import functools
import gc
import logging
import random
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest
from test_model_threads import RAW

import rlx

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="POSIX signals")


class Storm:
    """Interrupts and cancels calls at random times, and counts what stays."""

    def __init__(self, seed):
        self.random, self.inputs, self.futures = random.Random(seed), [], []
        self.interrupts = 0
        # A function that an interrupt calls in place of raising an exception; None where it raises one.
        self.cut = None
        # Empty once the exception was raised. Python drops one that is raised in a finalizer.
        self.armed = []

    def array(self):
        result = np.full((3, 8), 0.25, np.float32)
        self.inputs.append(weakref.ref(result))
        return result

    def arrays(self):
        while self.armed:
            yield self.array()

    def interrupt(self, call, limit):
        """Makes a call, into which a signal handler raises an exception."""
        armed, go = self.armed, threading.Lock()
        go.acquire()

        def handler(*_):
            if not armed:
                return
            armed.clear()
            if self.cut is None:
                raise KeyboardInterrupt
            self.interrupts += 1
            self.cut()

        def sends(seconds, main):
            go.acquire()
            time.sleep(seconds)
            signal.pthread_kill(main, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, handler)
        after = self.random.random() * limit
        sender = threading.Thread(target=sends, args=(after, threading.get_ident()))
        sender.start()
        try:
            armed.append(True)
            go.release()
            call()
        except KeyboardInterrupt:
            self.interrupts += 1
        except asyncio.CancelledError:
            pass  # an event loop that was cut off
        finally:
            armed.clear()
            sender.join()
            signal.signal(signal.SIGUSR1, before)

    def in_a_loop(self, main):
        """Runs a coroutine. An interrupt cancels it, as Ctrl-C does: asyncio itself is not safe from exceptions."""

        async def whole():
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            self.cut = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                await main()
            finally:
                self.cut = lambda: None

        self.cut = lambda: None
        try:
            asyncio.run(whole())
        finally:
            self.cut = None

    # --- ways of calling -------------------------------------------------------------------------

    def mapping(self, pool):
        for _ in pool.map(self.arrays()):
            pass

    def listing(self, pool):
        for _ in range(50):
            for _ in pool.map([self.array() for _ in range(20)]):
                pass

    def running(self, thing):
        while self.armed:
            thing.run(self.array())

    def submitting(self, thing):
        while self.armed:
            future = thing.submit(self.array())
            self.futures.append(weakref.ref(future))
            if self.random.random() < 0.5:
                future.cancel()
            else:
                try:
                    future.result(self.random.choice([None, 0.0001]))
                except (TimeoutError, CancelledError):
                    pass

    def awaiting(self, thing):
        async def run_once():
            await asyncio.wait_for(thing.run_async(self.array()), self.random.random() * 0.002)

        async def main():
            while self.armed:
                calls = [asyncio.ensure_future(run_once()) for _ in range(12)]
                for call in calls:
                    if self.random.random() < 0.2:
                        call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)

        self.in_a_loop(main)

    def mapping_async(self, pool):
        async def main():
            async for _ in pool.map_async(self.arrays()):
                if self.random.random() < 0.02:
                    return

        self.in_a_loop(main)

    def left(self):
        """Inputs and futures that are still there."""
        gc.collect()
        self.inputs = [item for item in self.inputs if item() is not None]
        self.futures = [future for future in self.futures if future() is not None]
        return len(self.inputs), sum(not future().done() for future in self.futures)


def settled(*queues):
    """Returns the contents of some queues, once they had time for running work."""
    until = time.monotonic() + 20
    while True:
        results = [(queue._room._inside, len(queue._threads._waiting)) for queue in queues]
        if not any(map(any, results)) or time.monotonic() > until:
            return results
        time.sleep(0.005)


def storm(count, seed=0):
    """Calls that are cut off, so many; what stays is counted."""
    result, before = Storm(seed), threading.active_count()
    with rlx.onnx.Model(RAW, "cpu") as model, rlx.Pool(model, ["cpu"], max_pending=6) as pool:
        compiled = model.compile(result.array())
        things = {
            result.mapping: (pool,),
            result.listing: (pool,),
            result.mapping_async: (pool,),
            result.running: (pool, model),
            result.submitting: (pool, model, compiled),
            result.awaiting: (pool, model, compiled),
        }
        for thing in (pool, model, compiled):  # their threads, and all that is compiled
            thing.submit(result.array()).result()
        threads = threading.active_count()
        for _ in range(count):
            way = result.random.choice(list(things))
            thing = result.random.choice(things[way])
            result.interrupt(functools.partial(way, thing), result.random.choice([0.0005, 0.004]))
        queues = [item._queue for item in (pool, model, compiled)]
        assert settled(*queues) == [(0, 0)] * 3
        assert threading.active_count() == threads
        for thing in (
            pool,
            model,
            compiled,
        ):  # each still works, and holds no more than its last inputs
            assert thing.submit(result.array()).result(20)[0].shape == (3, 8)
            assert thing.run(result.array())[0].shape == (3, 8)
        inputs, unanswered = result.left()
        assert inputs <= 8
        assert not unanswered
        assert pool.devices == (rlx.Device("cpu"),)
    assert threading.active_count() == before
    return result


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch):
    """Drops the reports of exceptions by Python and asyncio: pytest would keep them, with all that they refer to."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)


@pytest.mark.filterwarnings("ignore")
def test_interrupts_and_cancellations_leave_nothing_behind():
    assert storm(200).interrupts > 150


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore")
def test_ten_thousand_interrupts_leave_nothing_behind():
    assert storm(10_000, seed=1).interrupts > 9_000
