"""The CPU benchmark runs: rlx and its peers are right on every family, bursts take turns, tables follow."""

import json
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from python_process import run_python

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "cpu.py"
run = partial(run_python, SCRIPT, timeout=300)
MARKS = "<!-- benchmarks/cpu.py -->", "<!-- end of benchmarks/cpu.py -->"
# Kinds of shapes that the list has to have.
NAMED = (
    "matmul 1x64x64",
    "matmul 4096^3",
    "softmax 128x50257",
    "attention 1x12x128x64",
    "attention 1x8x2048x64 causal",
    "fft 4096 x 64",
    "rfft 4 x 65536",
    "lstm step 128, 128",
)


@pytest.mark.slow
def test_small_sizes_are_right_and_every_row_has_a_peer(tmp_path):
    result = tmp_path / "found.json"
    run("--check", "--threads", "1", "--json", result)
    lines = json.loads(result.read_text())["checks"]
    rows = {line["row"] for line in lines}
    assert len(rows) >= 60
    assert rows >= set(NAMED)
    assert all(line["correct"] and line["error"] <= line["tolerance"] for line in lines)
    assert [line["row"] for line in lines if not line["peers"] or line["peer_absent"]] == []


def test_rows_are_timed_and_their_table_goes_into_a_file(tmp_path):
    result, page = tmp_path / "found.json", tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    only = "^(matmul 1x64x64|int8 matmul 1024.3|fft 1 x 512|attention 1x12x128x64)$"
    arguments = ("--only", only, "--seconds", "0.01", "--peak", "130,20", "--docs", page)
    run("--small", "--threads", "1,2", "--json", result, *arguments)
    lines = json.loads(result.read_text())["rows"]
    assert [line["threads"] for line in lines] == [1, 2] * 4
    for line in lines:
        assert line["spread"][0] <= line["ratio"] <= line["spread"][1]
        assert 0 < line["p50"][0] <= line["p99"][0]
        assert 0 < line["p50"][1] <= line["p99"][1]
        assert line["part"] > 0
    peers = {line["row"]: line["peer"].split()[0] for line in lines}
    assert set(peers.values()) == {"ORT", "SciPy"}
    assert peers["matmul 1x64x64"] == "ORT"
    assert peers["fft 1 x 512"] == "SciPy"
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| fft 1 x 512 | SciPy |" in text
    assert text.count("| quartiles ") == 2
    assert re.search(r"- 2 threads: rlx is \d+\.\d\d times as fast", text)
    # The figures alone make the same table again.
    run("--from-json", result, "--docs", page)
    assert page.read_text() == text


def test_no_row_fits():
    run("--check", "--only", "no such row", status=1)
    run("--only", "no such row", status=1)


def test_contestants_take_turns(benchmark_modules):
    import cpu_clock

    calls = []
    # Long enough that a burst is one call and nothing is warmed.
    cpu_clock.BURST_NS, cpu_clock.WARM_NS = 1, 1
    pair = cpu_clock.in_pairs([lambda: calls.append("a"), lambda: calls.append("b")], 0.0)
    assert pair.pairs == cpu_clock.FEWEST
    # Who was second goes first next time; what comes before finds out how long a call takes.
    assert "".join(calls).endswith("abbaab")


def test_ratios_are_those_of_neighbouring_bursts(benchmark_modules):
    import cpu_clock

    # The machine is ten times slower in the second pair: the ratio stays 2, that of all calls does not.
    ours, theirs = [[100], [1000], [100]], [[200], [2000], [200]]
    pair = cpu_clock._summary([ours, theirs], [1, 1])
    assert (pair.ratio, pair.spread) == (2.0, (2.0, 2.0))
    assert pair.p50 == (0.1, 0.2)
    assert pair.calls == (1, 1)
    alone = cpu_clock._summary([ours], [1])
    assert np.isnan(alone.ratio)


def test_wrong_results_are_not_timed(benchmark_modules):
    import argparse
    from dataclasses import replace

    import cpu

    (row,) = [row for row in cpu.ROWS if row.name == "gelu 1x3072"]
    work = row.work(row.small[0])
    arguments = argparse.Namespace(seconds=0.0, peak=None)
    assert cpu.time_row(work, 1, arguments)["peer"] == "ORT"
    wrong = replace(work, build=lambda g, v: [g.tanh(v["x"])])
    result = cpu.time_row(wrong, 1, arguments)
    assert not result["correct"]
    assert "p50" not in result
    # A peer that computes something else is none, and costs the row its comparison only.
    other = replace(work, peer=("unary", {"kind": "tanh"}))
    result = cpu.time_row(other, 1, arguments)
    assert result["correct"]
    assert "peer" not in result
    assert "error" in result["peer_failures"]["ORT"]


def test_an_absent_peer_is_said_to_be_absent(benchmark_modules, monkeypatch):
    import cpu

    (row,) = [row for row in cpu.ROWS if row.name == "log-mel of 1 s"]
    work = row.work(row.small[0])
    monkeypatch.setitem(sys.modules, "librosa", None)
    calls, said = cpu.peers_of(work, 1)
    assert list(calls) == ["SciPy"]
    assert said == {"peer_failures": {}, "peer_absent": {"librosa": "librosa is not installed"}}


def test_the_mean_and_the_slower_rows_are_told(benchmark_modules):
    import cpu_report

    lines = [
        {
            "row": f"r{index}",
            "threads": 1,
            "peer": "ORT",
            "ratio": value,
            "spread": (value / 2, value * 1.05),
        }
        for index, value in enumerate((2.0, 0.5, 0.99, 4.0))
    ]
    said = next(cpu_report.notes({"rows": lines, "versions": {}, "load": None}))
    assert said.startswith("1 thread: rlx is 1.41 times as fast")
    assert said.endswith("of 4 rows; 2 rows are slower, 1 of them with both quartiles below 1")
