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
        # What an interrupt does in place of raising an exception; None where it raises one.
        self.cut = None
        # Empty once the exception was raised. Python drops one that is raised in a finalizer.
        self.armed = []

    def array(self):
        made = np.full((3, 8), 0.25, np.float32)
        self.inputs.append(weakref.ref(made))
        return made

    def arrays(self):
        while self.armed:
            yield self.array()

    def interrupt(self, call, most):
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
        after = self.random.random() * most
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
        async def one():
            await asyncio.wait_for(thing.run_async(self.array()), self.random.random() * 0.002)

        async def main():
            while self.armed:
                calls = [asyncio.ensure_future(one()) for _ in range(12)]
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
        self.inputs = [one for one in self.inputs if one() is not None]
        self.futures = [one for one in self.futures if one() is not None]
        return len(self.inputs), sum(not one().done() for one in self.futures)


def settled(*queues):
    """What is in some queues, once they had time to do what is under way."""
    until = time.monotonic() + 20
    while True:
        found = [(queue._room._inside, len(queue._threads._waiting)) for queue in queues]
        if not any(map(any, found)) or time.monotonic() > until:
            return found
        time.sleep(0.005)


def storm(count, seed=0):
    """Calls that are cut off, so many; what stays is counted."""
    made, before = Storm(seed), threading.active_count()
    with rlx.onnx.Model(RAW, "cpu") as model, rlx.Pool(model, ["cpu"], max_pending=6) as pool:
        compiled = model.compile(made.array())
        things = {
            made.mapping: (pool,),
            made.listing: (pool,),
            made.mapping_async: (pool,),
            made.running: (pool, model),
            made.submitting: (pool, model, compiled),
            made.awaiting: (pool, model, compiled),
        }
        for thing in (pool, model, compiled):  # their threads, and all that is compiled
            thing.submit(made.array()).result()
        threads = threading.active_count()
        for _ in range(count):
            way = made.random.choice(list(things))
            thing = made.random.choice(things[way])
            made.interrupt(functools.partial(way, thing), made.random.choice([0.0005, 0.004]))
        queues = [one._queue for one in (pool, model, compiled)]
        assert settled(*queues) == [(0, 0)] * 3
        assert threading.active_count() == threads
        for thing in (
            pool,
            model,
            compiled,
        ):  # each still works, and holds no more than its last inputs
            assert thing.submit(made.array()).result(20)[0].shape == (3, 8)
            assert thing.run(made.array())[0].shape == (3, 8)
        inputs, unanswered = made.left()
        assert inputs <= 8
        assert not unanswered
        assert pool.devices == (rlx.Device("cpu"),)
    assert threading.active_count() == before
    return made


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch):
    """What Python and asyncio tell of exceptions is dropped: pytest would keep it, with all that it refers to."""
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
