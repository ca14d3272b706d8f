"""Progress and cancellation of compiles, ``warm``, and why a device was chosen."""

import gc
import threading
import time

import numpy as np
import pytest
from test_onnx import info, model, node

import rlx
from rlx.compiler import progress

X = np.ones((8, 8), np.float32)


def graph(nodes=40, seed=0):
    """Nodes of several kinds, one after the other."""
    g = rlx.Graph("chain")
    y = g.input("x", (8, 8))
    w = np.random.default_rng(seed).normal(size=(8, 8)).astype(np.float32)
    for k in range(nodes):
        y = (g.tanh(y), y @ g.constant(w), g.softmax(y, axis=-1), y + float(k))[k % 4]
    g.set_outputs([y])
    return g


@pytest.fixture(autouse=True)
def nothing_cached(monkeypatch):
    monkeypatch.setenv("RLX_CACHE", "off")
    rlx.clear_cache()


def test_progress(device):
    told, threads = [], set()

    def note(progress):
        told.append(progress)
        threads.add(threading.get_ident())

    with rlx.compile(graph(), device, progress=note) as cg:
        cg.run_slots(X)
    assert threads == {threading.get_ident()}
    assert told[0].phase == "begin"
    assert str(told[-1]) == "done 100%"
    names = [item.phase for item in told]
    for name in ("verify", "passes", "load"):
        assert name in names
    seconds = [item.seconds for item in told]
    assert seconds == sorted(seconds)
    assert all(item.part is None or 0 <= item.part <= 1 for item in told)
    done = [item.done for item in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 1)
    assert len(set(done)) > 3


def test_progress_of_several_compiles_is_one_fraction():
    told = []
    data = model([node("Relu", "x", "y")], [info("x", ["n"])], ["y"])
    with rlx.onnx.Model(data, "cpu") as result:
        result.prewarm([{"n": size} for size in (0, 1, 2, 3)], progress=told.append)
    done = [item.done for item in told]
    assert done == sorted(done)
    ends = [item.done for item in told if item.phase == "shapes"]
    assert ends == [0.25, 0.5, 0.75, 1.0]
    # Within each of them it goes on.
    assert any(0.25 < part < 0.5 for part in done)


def test_an_error_in_progress_ends_the_compile(device):
    def fails(progress):
        if progress.phase == "load":
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        rlx.compile(graph(), device, progress=fails)
    with rlx.compile(graph(), device) as cg:
        cg.run_slots(X)


def test_cancelled_at_every_step(device, monkeypatch):
    """Wherever it ends, nothing is left behind, and compiling again gives the same results."""
    rlx.clear_cache()
    with rlx.compile(graph(), device) as cg:
        wanted = cg.run_slots(X)[0].copy()
    calls = [0]
    real = rlx.CancelToken.check

    def counted(self, during=""):
        calls[0] += 1
        real(self, during)

    monkeypatch.setattr(rlx.CancelToken, "check", counted)
    rlx.clear_cache()
    rlx.compile(graph(), device, cancel=rlx.CancelToken()).close()
    total = calls[0]
    assert total > 40
    for index in range(1, total, max(1, total // 25)):
        token, calls[0] = rlx.CancelToken(), 0

        def cancels(self, during="", token=token, position=index):
            calls[0] += 1
            if calls[0] == position:
                token.cancel()
            real(self, during)

        monkeypatch.setattr(rlx.CancelToken, "check", cancels)
        rlx.clear_cache()
        with pytest.raises(rlx.CancelledError, match="cancelled"):
            rlx.compile(graph(), device, cancel=token)
        assert calls[0] == index
    monkeypatch.setattr(rlx.CancelToken, "check", real)
    gc.collect()
    with rlx.compile(graph(), device) as cg:
        assert np.array_equal(cg.run_slots(X)[0], wanted)


def test_cancelled_from_another_thread(device):
    token, ended = rlx.CancelToken(), []
    g = graph(4000)

    def work():
        try:
            rlx.compile(g, device, cancel=token).close()
        except rlx.CancelledError:
            ended.append(time.perf_counter())

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    assert thread.is_alive()
    cancelled = time.perf_counter()
    token.cancel()
    thread.join(30)
    assert token.cancelled
    assert len(ended) == 1
    assert ended[0] - cancelled < 1.0  # 50 ms on a machine with nothing else to do


def test_steps_are_short():
    """The compile of a large graph looks at the token every few milliseconds."""
    rlx.compile(graph(20), "cpu").close()  # what is imported for the first time is no step
    gaps, last = [], [0.0]

    class Token(rlx.CancelToken):
        def check(self, during=""):
            gaps.append(time.thread_time() - last[0])
            last[0] = time.thread_time()

    large = graph(2000)  # building it is no step of the compile
    gc.collect()
    gc.freeze()  # nor is a collection of what other tests of this process left
    try:
        last[0] = time.thread_time()
        rlx.compile(large, "cpu", cancel=Token()).close()
    finally:
        gc.unfreeze()
    assert len(gaps) > 2000
    assert np.quantile(gaps, 0.99) < 0.01
    assert max(gaps) < 0.5


def test_a_session_and_a_model_can_be_cancelled(device):
    token = rlx.CancelToken()
    token.cancel()
    session = rlx.Session(device)
    with pytest.raises(rlx.CancelledError):
        session.compile(graph(), cancel=token)
    session.compile(graph()).close()


def test_no_watcher_costs_nothing():
    assert progress.watcher() is None
    with progress.watching(None, None):
        assert progress.watcher() is None


def test_warm(device):
    """The first run finds everything made, and results are those of any run."""
    with rlx.compile(graph(), device) as cg, rlx.compile(graph(), device) as other:
        cg.warm()
        assert np.array_equal(cg.run_slots(X)[0], other.run_slots(X)[0])
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,)) * g.param("w", (2,))])
    with rlx.compile(g, device) as cg:
        cg.warm()  # a param is not set yet
        cg.set_param("w", np.float32([2, 3]))
        assert cg.run_slots(np.float32([1, 1]))[0].tolist() == [2.0, 3.0]


def test_choices():
    g = graph()
    choice = rlx.choose(g)
    assert choice.device in choice.estimates
    assert all(ns > 0 for ns in choice.estimates.values())
    with rlx.compile(g) as cg:
        assert cg.choice.device == cg.device == choice.device
        assert cg.choice.estimates.keys() == choice.estimates.keys()
        assert not cg.choice.lowered  # not kept alive
        assert cg.clone().choice is cg.choice
    with rlx.compile(g, "reference") as cg:
        assert cg.choice.reason == "'reference' was asked for"
