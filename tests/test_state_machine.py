"""Any sequence of calls on any graphs: hypothesis looks for one after which a number or an error is wrong.

The model beside the graphs is NumPy on small whole numbers, so that every result is exact. A short part runs always. The
slow part runs for ``RLX_TEST_SECONDS`` (two minutes) on a fresh seed, which it prints; ``RLX_TEST_SEED`` repeats one.
"""

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from stateful_graphs import ACTIONS, KINDS, ROWS, WIDTH, CloneFamily, Live, graph, matrix

import rlx

# A signal handler may raise inside a finalizer or a callback of the garbage collector, where Python drops it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Meddled(BaseException):
    """Raised by the custom operation, and by signal handlers: like KeyboardInterrupt, no library drops it."""


class CallMachine(RuleBasedStateMachine):
    """The rules."""

    devices, steps = ("cpu", "reference"), 0

    @initialize()
    def begin(self):
        ACTIONS.clear()
        self.live = []

    @property
    def room(self):
        return len(self.live) < 6

    def one(self, index):
        return self.live[index % len(self.live)]

    def operands(self, live, seed):
        """Returns values of x and s; s comes from the handle if there is one."""
        return matrix(seed), live.state if live.state is not None else matrix(seed + 1)

    @invariant()
    def count(self):
        CallMachine.steps += 1

    # --- making and ending ---

    @rule(device=st.integers(0, 2), kind=st.sampled_from(KINDS), seed=st.integers(0, 3))
    def compile(self, device, kind, seed):
        if not self.room:
            return
        device = self.devices[device % len(self.devices)]
        weight = matrix(seed, WIDTH)
        cg = rlx.compile(graph(kind), device, {"w": weight})
        self.live.append(Live(cg, CloneFamily(device, kind, weight)))

    @precondition(lambda self: self.live and self.room)
    @rule(at=st.integers(0, 9))
    def clone(self, at):
        live = self.one(at)
        self.live.append(Live(live.cg.clone(), live.family))

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9), how=st.sampled_from(["close", "drop", "with"]))
    def end(self, at, how):
        live = self.live.pop(at % len(self.live))
        if how == "drop":
            return
        if how == "with":
            with live.cg:
                pass
        else:
            live.cg.close()
        live.cg.close()
        x = matrix(0)
        for call in (
            lambda: live.cg.run({"x": x, "s": x}),
            lambda: live.taken(x, x),
            live.cg.clone,
        ):
            with pytest.raises(rlx.InputError, match="closed"):
                call()

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9))
    def recover(self, at):
        """Without a loss it is allowed as well."""
        live = self.one(at)
        live.cg.recover()
        if live.family.device == "webgpu":
            self.recovered(live)

    @staticmethod
    def recovered(live):
        """Clones share params no longer, and a handle holds what it was bound to."""
        live.family = CloneFamily("webgpu", live.family.kind, live.family.weight)
        live.taken = live.cg.run_slots
        live.state = live.bound
        if live.state is not None:
            np.testing.assert_array_equal(live.cg.read_gpu_handle("s"), live.state)

    # --- running ---

    @precondition(lambda self: self.live)
    @rule(
        at=st.integers(0, 9),
        seed=st.integers(0, 99),
        how=st.sampled_from(
            ["run", "raw", "slots", "taken", "strided", "wide", "lists", "views", "outputs",
             "later", "many", "bytes"]
        ),
    )  # fmt: skip
    def run(self, at, seed, how):
        live = self.one(at)
        cg = live.cg
        x, s = self.operands(live, seed)
        bound = live.state is not None
        named = {"x": x} if bound else {"x": x, "s": s}
        arguments = tuple(named.values())
        if how == "run":
            result = cg.run(named)
        elif how == "raw":
            result = cg.run_raw(named)
        elif how == "slots":
            result = cg.run_slots(*arguments)
        elif how == "taken":
            result = live.taken(*arguments)
        elif how == "strided":
            result = cg.run_slots(*(np.repeat(item, 2, 1)[:, ::2] for item in arguments))
        elif how == "wide":
            result = cg.run_slots(*(item.astype(np.float64) for item in arguments))
        elif how == "lists":
            result = cg.run({name: value.tolist() for name, value in named.items()})
        elif how == "views":
            result = self.views(cg, arguments, bound)
        elif how == "outputs":
            result = cg.run_read_outputs(named, [1, 0])[::-1]
        elif how == "later":
            cg.commit_no_wait(named)
            cg.sync_pending()
            result = [
                cg._state.executable.output_views[0].copy(),
                cg._state.executable.output_views[1].copy(),
            ]
        elif how == "many":
            result = cg.run_pipelined([named])[0]
        else:
            raw = cg.run_typed([(name, value.tobytes(), "f32") for name, value in named.items()])
            result = [np.frombuffer(item, np.float32).reshape(ROWS, WIDTH) for item, _ in raw]
        live.check(result, x, s)

    @staticmethod
    def views(cg, value, bound):
        """The input views as arguments, each in the other's place."""
        views = cg.input_views
        if bound:
            views[0][:] = value[0]
            return cg.run_slots(views[0])
        views[0][:], views[1][:] = value[1], value[0]
        return cg.run_slots(views[1], views[0])

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9), what=st.sampled_from(["shape", "count", "name", "text", "none"]))
    def refuse(self, at, what):
        live = self.one(at)
        x = matrix(1)
        bad = {
            "shape": lambda: live.cg.run({"x": x[:1], "s": x}),
            "count": lambda: live.cg.run_slots(x, x, x),
            "name": lambda: live.cg.run({"x": x, "s": x, "z": x}),
            "text": lambda: live.cg.run_slots("x", x),
            "none": lambda: live.cg.run(None),
        }
        with pytest.raises(rlx.RlxError):
            bad[what]()

    # --- what stays ---

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9), seed=st.integers(0, 99))
    def set_param(self, at, seed):
        live = self.one(at)
        weight = matrix(seed, WIDTH)
        live.cg.set_param("w", weight)
        live.family.weight = weight

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9), seed=st.integers(0, 99), kind=st.sampled_from(["host", "gpu"]))
    def bind(self, at, seed, kind):
        live = self.one(at)
        live.state = live.bound = matrix(seed)
        (live.cg.bind_handle if kind == "host" else live.cg.bind_gpu_handle)("s", live.state)

    @precondition(lambda self: any(live.state is not None for live in self.live))
    @rule(at=st.integers(0, 9), how=st.sampled_from(["feed", "once", "read"]))
    def feed(self, at, how):
        bound = [live for live in self.live if live.state is not None]
        live = bound[at % len(bound)]
        if how == "feed":
            live.cg.set_gpu_handle_feed("s", 1)
            live.fed = True
        elif how == "once":
            x, s = self.operands(live, at)
            result = live.cg.run_feed_gpu_handle({"x": x}, "s", 1)
            np.testing.assert_array_equal(result, x - s)
            live.state = x - s
        np.testing.assert_array_equal(live.cg.read_gpu_handle("s"), live.state)

    # --- from elsewhere ---

    def custom(self, index):
        results = [live for live in self.live if live.family.kind == "custom"]
        return results[index % len(results)] if results else None

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9), seed=st.integers(0, 99))
    def raise_inside(self, at, seed):
        """An exception of a custom operation comes out, and the graph goes on."""
        live = self.custom(at)
        if live is None:
            return
        x, s = self.operands(live, seed)
        arguments = (x,) if live.state is not None else (x, s)

        def fail():
            raise Meddled

        ACTIONS.append(fail)
        with pytest.raises(Meddled):
            live.cg.run_slots(*arguments)
        live.check(live.cg.run_slots(*arguments), x, s)

    @precondition(lambda self: self.live)
    @rule(
        at=st.integers(0, 9),
        other=st.integers(0, 9),
        seed=st.integers(0, 99),
        what=st.sampled_from(["run", "set_param", "close", "recover", "bind", "clone"]),
    )
    def call_inside(self, at, other, seed, what):
        """A custom operation uses another graph, or tries its own."""
        live, used = self.custom(at), self.one(other)
        if live is None or (used is not live and used.family is live.family):
            return
        x, s = self.operands(live, seed)
        arguments = (x,) if live.state is not None else (x, s)
        calls = {
            "run": lambda: used.cg.run({"x": x} if used.state is not None else {"x": x, "s": x}),
            "set_param": lambda: used.cg.set_param("w", used.family.weight),
            "close": used.cg.close,
            "recover": used.cg.recover,
            "bind": lambda: used.cg.bind_handle("s", matrix(seed)),
            "clone": used.cg.clone,
        }
        if used is live and what != "clone":
            ACTIONS.append(calls[what])
            with pytest.raises(rlx.BusyError):
                live.cg.run_slots(*arguments)
            ACTIONS.clear()
        elif what in ("run", "clone", "set_param"):
            results = []
            ACTIONS.append(lambda: results.append(calls[what]()))
            live.check(live.cg.run_slots(*arguments), x, s)
            ACTIONS.clear()
            if what == "run":
                # A custom operation of its own found no action any more.
                used.check(results[0], x, used.state if used.state is not None else x)

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9), seed=st.integers(0, 99))
    def two_threads(self, at, seed):
        """A clone runs in another thread while the params are set: each run has one whole value of them."""
        live = self.one(at)
        old, new = live.family.weight, matrix(seed, WIDTH)
        x, s = matrix(seed + 1), matrix(seed + 2)
        clone, begun = live.cg.clone(), threading.Event()

        def work():
            for _ in range(6):
                result = clone.run({"x": x, "s": s})[0]
                begun.set()
                assert any(np.array_equal(result, x @ w + s) for w in (old, new))
            return clone

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(work)
            begun.wait(10)
            live.cg.set_param("w", new)
            live.family.weight = new
            result = running.result().run({"x": x, "s": s})
        np.testing.assert_array_equal(result[0], x @ new + s)

    @precondition(lambda self: self.live)
    @rule(at=st.integers(0, 9), seed=st.integers(0, 99))
    def a_second_thread(self, at, seed):
        """It is told while the first is inside, and runs afterwards."""
        live = self.custom(at)
        if live is None:
            return
        x, s = self.operands(live, seed)
        arguments = (x,) if live.state is not None else (x, s)
        inside, go_on = threading.Event(), threading.Event()

        def wait():
            inside.set()
            assert go_on.wait(10)

        ACTIONS.append(wait)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(lambda: [slot.copy() for slot in live.cg.run_slots(*arguments)])
            try:
                assert inside.wait(10)
                for call in (lambda: live.cg.run_slots(*arguments), live.cg.close, live.cg.recover):
                    with pytest.raises(rlx.BusyError):
                        call()
            finally:
                go_on.set()
            live.check(running.result(), x, s)

    @precondition(lambda self: self.live and hasattr(signal, "setitimer"))
    @rule(at=st.integers(0, 9), seed=st.integers(0, 99), after=st.floats(1e-5, 2e-3))
    def interrupt(self, at, seed, after):
        """A signal handler that uses the graph is refused, or comes between two calls; then it raises."""
        live = self.one(at)
        x, s = self.operands(live, seed)
        state = live.state
        named = {"x": x} if state is not None else {"x": x, "s": s}
        if live.fed:
            return

        def handle(*arguments):
            try:
                live.check(live.cg.run(named), x, s)
            except rlx.BusyError:
                pass
            raise Meddled

        before = signal.signal(signal.SIGALRM, handle)
        try:
            end = time.monotonic() + after + 0.05
            signal.setitimer(signal.ITIMER_REAL, after)
            # Not for ever: Python drops what a handler raises inside a finalizer.
            while time.monotonic() < end:
                live.check(live.cg.run(named), x, s)
        except Meddled:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        live.check(live.cg.run(named), x, s)

    # --- the device ---

    @precondition(lambda self: any(live.family.device == "webgpu" for live in self.live))
    @rule(at=st.integers(0, 60))
    def lose_the_device(self, at):
        """All graphs on it are told, and recover one after the other. Seldom, since a new device takes long."""
        if at:
            return
        there = [live for live in self.live if live.family.device == "webgpu"]
        # Graphs that recovered before are on another device than those that did not.
        for gpu in {live.cg._state.executable._gpu for live in there}:
            gpu.device.destroy()
        for live in there:
            x, s = self.operands(live, at)
            named = {"x": x} if live.state is not None else {"x": x, "s": s}
            with pytest.raises(rlx.DeviceLostError):
                live.cg.run(named)
            live.cg.recover()
            self.recovered(live)
            x, s = self.operands(live, at)
            live.check(live.cg.run(named), x, s)

    def teardown(self):
        """Drops the rest without closing it."""
        self.live = []


class OnWebGpu(CallMachine):
    """The same with graphs on a GPU among them."""

    devices = ("cpu", "webgpu", "reference")


def play(machine, examples, steps, seed=0):
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        # Times differ from run to run, so that a failure seldom becomes simpler by being tried again.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    machine.TestCase.settings = chosen

    from hypothesis import seed as seeded

    run_state_machine_as_test(seeded(seed)(machine), settings=chosen)


def test_calls():
    play(CallMachine, 25, 40)


@pytest.mark.webgpu
def test_calls_on_webgpu(webgpu):
    play(OnWebGpu, 6, 40)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("where", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def test_calls_for_long(where, request):
    if where == "webgpu":
        request.getfixturevalue("webgpu")
    seconds = float(os.environ.get("RLX_TEST_SECONDS", "120"))
    seed = int(os.environ.get("RLX_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    begin, CallMachine.steps = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        print(f"state machine: seed {seed}, {CallMachine.steps} steps", flush=True)
        play(OnWebGpu if where == "webgpu" else CallMachine, 100, 50, seed)
        seed += 1
    print(f"state machine: {CallMachine.steps} steps")
