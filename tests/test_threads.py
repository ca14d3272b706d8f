"""The CPU's threads: the same bits on any number of them, forks, several callers, and how many there are."""

import math
import os
import sys
from functools import partial

import numpy as np
import pytest
from dispatches import of_each_kernel
from python_process import run_python
from samples import ALL, looped
from side_by_side import side_by_side

import rlx
from rlx import flags, threads
from rlx._ext import cpu
from rlx.abi.kernels import KERNELS
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import linker, split
from rlx.backends.executable import aligned
from rlx.cgroups import most_memory
from rlx.compiler import compile_cache
from rlx.ops.conformance_cases import Case, cases

COUNTS = (2, 3, 7)
CASES = [case for case in cases() if case.opdef.cpu is not None]
BENCHES = [case for case in cases(bench=True) if case.opdef.cpu is not None]


@pytest.fixture
def shared(monkeypatch):
    """Splits every call that can be split, and returns the ways of the split calls."""
    results: dict[str, int] = {}

    def spy(call, count):
        result = split.split_of(call, count)
        if result is not None:
            results[call.kernel] = results.get(call.kernel, 0) + 1
        return result

    monkeypatch.setattr(split, "_WORTH", 1e-9)
    monkeypatch.setattr(split, "usable_cores", lambda: 64)
    monkeypatch.setattr(linker, "split_of", spy)
    return results


def differs(case: Case, count: int) -> bool:
    """Returns whether so many threads give other bits than one; both run the same graph on the same operands."""
    graph, operands, results = case.graph(), case.operands(), []
    for number in (1, count):
        options = CompileOptions(threads=number, fold=False)
        with rlx.Session("cpu", options=options).compile(graph) as compiled:
            results.append([view.tobytes() for view in compiled.run_slots(*operands)])
    return results[0] != results[1]


# The instruction set that every run of the tests takes: the widest of this machine. Slow tests take the rest.
WIDEST = cpu.isas()[0]


@pytest.mark.parametrize(
    "isa",
    [pytest.param(isa, marks=[] if isa == WIDEST else pytest.mark.slow) for isa in cpu.isas()],
)
def test_every_op_gives_the_same_bits(isa, shared, monkeypatch):
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    lower, last = compile_cache._lower, {}

    # The linker alone reads the number of threads, so a graph is lowered once. Large cases, below, are lowered twice.
    def lowered_once(graph, target):
        if graph not in last:
            last.clear()
            last[graph] = lower(graph, target)
        return last[graph]

    monkeypatch.setattr(compile_cache, "_lower", lowered_once)
    # Normally every kernel, the largest cases of each operation, of which the largest may be one row, and some more.
    by_size = sorted(CASES, key=lambda case: -sum(map(math.prod, case.sample.shapes)))
    few = of_each_kernel(CASES)
    for name in {case.opdef.name for case in CASES}:
        own = [case for case in by_size if case.opdef.name == name]
        numbers = list(dict.fromkeys(case.number for case in own))[:4]
        few |= {id(case) for case in own if case.number in numbers}
    some = 4 if ALL else 8
    chosen = [case for case in CASES if id(case) in few or case.number % some == 0]
    assert [str(case) for case in chosen if differs(case, 3)] == []
    # Operands of cases are inputs; winograd_last takes weights that are known (test_winograd.py), and rows are rounded
    # for known weights (test_block_panels.py).
    parallel = {name for name, kernel in KERNELS.items() if kernel.parallel}
    known = {"winograd_last", "round_rows", "round_windows", "dequant_products"}
    assert set(shared) == parallel - known


@pytest.mark.parametrize("count", COUNTS)
def test_large_ones_give_the_same_bits(count, shared):
    assert [str(case) for case in BENCHES if differs(case, count)] == []
    assert {"matmul", "conv_last", "attention", "elementwise", "softmax", "rfft"} <= set(shared)


def product(m=300, k=257, n=301):
    g = rlx.Graph()
    x, w = g.input("x", (m, k)), g.input("w", (k, n))
    g.set_outputs([g.softmax(g.gelu(x @ w))])
    rng = np.random.default_rng(5)
    return g, [rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n))]


def compiled(g, count):
    return rlx.compile(g, "cpu", options=CompileOptions(threads=count))


CONVOLUTIONS = {
    "rows of windows": ((1, 3, 70, 45), (20, 3, 3, 3), {"padding": 1}),
    "rows of windows, strided": ((1, 3, 141, 67), (20, 3, 5, 3), {"padding": 2, "stride": 2}),
    "without a copy": ((1, 6, 64, 66), (17, 6, 3, 3), {}),
    "outputs": ((1, 40, 9, 9), (70, 40, 3, 3), {"padding": 1}),
    "few windows": ((1, 64, 3, 3), (90, 64, 3, 3), {"padding": 0}),
    "images": ((40, 5, 9, 9), (9, 5, 3, 3), {"padding": 1}),
    "direct": ((1, 24, 60, 33), (24, 1, 3, 3), {"padding": 1, "groups": 24}),
    "direct, few groups": ((1, 2, 200, 33), (2, 1, 5, 5), {"padding": 2, "groups": 2}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_in_every_way_of_cutting(name, shared):
    shape, weight, attrs = CONVOLUTIONS[name]
    g = rlx.Graph()
    g.set_outputs([g.conv2d(g.input("x", shape), g.input("w", weight), **attrs)])
    rng = np.random.default_rng(7)
    arrays = [rng.normal(size=s).astype(np.float32) for s in (shape, weight)]
    single = compiled(g, 1).run_slots(*arrays)[0].copy()
    for count in (*COUNTS, 33):
        assert np.array_equal(compiled(g, count).run_slots(*arrays)[0], single), count
    assert sum(shared.values()) >= len(COUNTS) + 1


def test_long_lines_are_cut_into_columns(shared):
    g = rlx.Graph()
    g.set_outputs(
        [g.conv1d(g.input("x", (1, 4, 9001)), g.input("w", (20, 4, 7)), stride=3, padding=2)]
    )
    rng = np.random.default_rng(8)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((1, 4, 9001), (20, 4, 7))]
    single = compiled(g, 1).run_slots(*arrays)[0].copy()
    for count in COUNTS:
        assert np.array_equal(compiled(g, count).run_slots(*arrays)[0], single), count


def test_an_index_out_of_range_is_told_by_any_thread(shared):
    g = rlx.Graph()
    g.set_outputs([g.gather(g.input("x", (50, 64)), g.input("i", (4000,), "i32"))])
    indices = np.zeros(4000, np.int32)
    cg = compiled(g, 3)
    x = np.ones((50, 64), np.float32)
    cg.run_slots(x, indices)
    indices[3777] = 50
    with pytest.raises(rlx.InputError, match="out of range"):
        cg.run_slots(x, indices)
    indices[3777] = 0
    assert cg.run_slots(x, indices)[0].all()


def test_small_graphs_stay_on_one_thread():
    program = """
import numpy as np, rlx
from rlx._ext import cpu
def ran(n):
    g = rlx.Graph()
    g.set_outputs([g.relu(g.input("x", (n, n)) @ g.param("w", (n, n)))])
    options = rlx.CompileOptions(threads=3)
    cg = rlx.compile(g, "cpu", params={"w": np.ones((n, n))}, options=options)
    return cg.run_slots(np.ones((n, n), "f4"))[0][0, 0] == n and cpu.pool_counts()["started"]
print(ran(16), ran(500))
"""
    result = run_python("-c", program).stdout.split()
    assert result == ["0", str(min(3, threads.usable_cores()) - 1)]


def test_graphs_that_run_at_the_same_time():
    g, arrays = product()
    expected = compiled(g, 1).run_slots(*arrays)[0].copy()
    graphs = [compiled(g, count) for count in (3, 3, 2, 1)]
    right = []

    def work(cg):
        for _ in range(30):
            right.append(np.array_equal(cg.run_slots(*arrays)[0], expected))

    side_by_side(*(partial(work, cg) for cg in graphs))
    assert right == [True] * 120


@pytest.mark.parametrize("fork", [os.fork] if hasattr(os, "fork") else [])
def test_a_forked_process_starts_threads_of_its_own(fork):
    g, arrays = product()
    cg = compiled(g, 3)
    expected = cg.run_slots(*arrays)[0].copy()
    assert cpu.pool_counts()["started"] >= min(3, threads.usable_cores()) - 1
    child = fork()
    added = min(3, threads.usable_cores()) - 1
    if child == 0:
        code = 1
        try:
            before = cpu.pool_counts()["started"]
            same = np.array_equal(cg.run_slots(*arrays)[0], expected)
            code = 0 if (before, same, cpu.pool_counts()["started"]) == (0, True, added) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(cg.run_slots(*arrays)[0], expected)


@looped("count", [0, -1, 2.0, True, "2", 1025])
def test_no_such_number_of_threads(count):
    with pytest.raises(rlx.CompileError, match="threads"):
        rlx.Session("cpu", options=CompileOptions(threads=count))


@looped("text", ["0", "-1", "two", "1.5", "1025", "99999999999"])
def test_the_variable_has_no_such_value(text, monkeypatch):
    monkeypatch.setenv("RLX_THREADS", text)
    with pytest.raises(rlx.InputError, match="RLX_THREADS"):
        flags.THREADS.get()
    g, _ = product(2, 2, 2)
    with pytest.raises(rlx.InputError, match="RLX_THREADS"):
        rlx.compile(g, "cpu")


def test_the_option_comes_before_the_variable_and_that_before_the_machine(monkeypatch):
    monkeypatch.setenv("RLX_THREADS", "5")
    assert threads.thread_count(2) == 2
    assert threads.thread_count() == 5
    assert rlx.cost.CpuCostModel().num_threads() == 5
    monkeypatch.delenv("RLX_THREADS")
    assert 1 <= threads.thread_count() <= (os.cpu_count() or 1)


# Group of the process, files of cgroups by their folders, processors that these allow.
QUOTAS = {
    "no cgroups": ("", {}, None),
    "version 2": ("0::/a/b\n", {"a/b/cpu.max": "150000 100000\n"}, 2),
    "version 2, no quota": ("0::/a\n", {"a/cpu.max": "max 100000\n"}, None),
    "a group above is stricter": (
        "0::/a/b\n",
        {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "300000 100000\n"},
        1,
    ),
    "less than one": ("0::/\n", {"cpu.max": "5000 100000\n"}, 1),
    "the path is the host's": ("0::/elsewhere\n", {"cpu.max": "400000 100000\n"}, 4),
    "version 1": (
        "4:memory:/m\n3:cpu,cpuacct:/a\n",
        {
            "cpu,cpuacct/a/cpu.cfs_quota_us": "250000\n",
            "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
        },
        3,
    ),
    "version 1, no quota": (
        "3:cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        None,
    ),
    "not a number": ("0::/\n", {"cpu.max": "lots 100000\n"}, None),
    "another controller": ("3:memory:/\n", {"cpu.max": "100000 100000\n"}, None),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_quotas(name, tmp_path):
    group, files, allowed = QUOTAS[name]
    paths = {"proc/self/cgroup": group, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}
    for path, text in paths.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert threads.cpu_quota(tmp_path) == allowed


def test_threads_of_one_core_count_once_and_a_quota_bounds_them(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "processors", lambda: {0, 1, 2, 3, 6})
    siblings = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 6: "6-7"}
    for number, text in siblings.items():
        folder = tmp_path / f"one/sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    assert threads.usable_cores(tmp_path / "one") == 3
    assert threads.usable_cores(tmp_path / "none") == 5
    group = tmp_path / "one/proc/self/cgroup"
    group.parent.mkdir(parents=True)
    group.write_text("0::/\n")
    quota = tmp_path / "one/sys/fs/cgroup/cpu.max"
    quota.parent.mkdir(parents=True)
    quota.write_text("200000 100000\n")
    threads._usable.cache_clear()
    assert threads.usable_cores(tmp_path / "one") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems bind no threads")
def test_threads_keep_off_the_callers_processor():
    program = """
import os, numpy as np, rlx
g = rlx.Graph()
x, w = g.input("x", (512, 512)), g.param("w", (512, 512))
g.set_outputs([x @ w])
allowed = os.sched_getaffinity(0)
own = set(os.listdir("/proc/self/task"))
weights = {"w": np.ones((512, 512), np.float32)}
options = rlx.CompileOptions(threads=len(allowed))
run = rlx.compile(g, "cpu", weights, options=options).run_slots
for _ in range(50):
    run(np.ones((512, 512), np.float32))
added = [os.sched_getaffinity(int(task)) for task in set(os.listdir("/proc/self/task")) - own]
assert len(added) == len(allowed) - 1, added
assert all(mask < allowed and len(mask) == len(allowed) - 1 for mask in added), added
"""
    run_python("-c", program)


def test_more_threads_than_cores_gain_nothing(monkeypatch):
    results = []
    monkeypatch.setattr(split, "usable_cores", lambda: 3)
    monkeypatch.setattr(
        linker, "split_of", lambda call, count: results.append(split.split_of(call, count))
    )
    g, _ = product()
    compiled(g, 16)
    assert {item.threads for item in results if item} == {3}


def test_short_runs_end_while_threads_count_their_parts():
    program = """
import numpy as np, rlx
g = rlx.Graph()
x, w = np.ones((64, 256), "f4"), np.ones((256, 256), "f4")
g.set_outputs([g.input("x", x.shape) @ g.constant(w)])
run = rlx.compile(g, "cpu", options=rlx.CompileOptions(threads=2)).run_slots
for _ in range(60_000):
    assert run(x)[0][0, 0] == 256
"""
    run_python("-c", program)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems bind no processes")
@pytest.mark.parametrize("handled", [False, True])
def test_late_threads_on_busy_cores(handled):
    program = """
import os, signal, subprocess, sys, time, numpy as np, rlx
from rlx._ext import cpu
if sys.argv[1] == "True":  # then no thread is stopped
    signal.signal(signal.SIGURG, lambda *_: os._exit(1))
cores = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, cores)
if len(cores) < 2:
    sys.exit("this test needs two processors")
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
try:
    g = rlx.Graph()
    x = h = g.input("x", (256, 256))
    w = g.constant(np.eye(256, dtype=np.float32))
    for _ in range(8):
        h = h @ w
    g.set_outputs([h])
    shared = rlx.compile(g, "cpu", options=rlx.CompileOptions(threads=2))
    x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    until = time.monotonic() + 60
    while not cpu.pool_counts()["held_up"]:
        np.testing.assert_array_equal(shared.run_slots(x)[0], x)
        assert time.monotonic() < until, "no call was held up"
    for _ in range(50):
        np.testing.assert_array_equal(shared.run_slots(x)[0], x)
finally:
    for one in others:
        one.kill()
"""
    run_python("-c", program, str(handled))


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal:  8 kB\nMemFree: 1 kB\nSwapTotal: 2 kB\n"}, 10240),
        (
            {
                "proc/meminfo": "MemTotal:  8 kB\n",
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/memory.max": "5000\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            5000,
        ),
        (
            {
                "proc/meminfo": "MemTotal:  8 kB\n",
                "proc/self/cgroup": "4:memory:/a",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
            },
            8192,
        ),
    ],
)
def test_the_memory_of_a_process(tmp_path, files, most):
    for name, said in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(said)
    assert most_memory(tmp_path) == most


def test_more_memory_than_there_is_is_refused(monkeypatch):
    monkeypatch.setattr("rlx.backends.executable.most_memory", lambda: 1 << 20)
    with pytest.raises(rlx.DeviceMemoryError, match="at most 1048576"):
        aligned((1 << 20) + 1)
    assert aligned(1 << 20).size == 1 << 20
