"""The figures that are committed: tables and chart are what the scripts make of the measurements beside them."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from python_process import run_python

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
CHART = ROOT / "docs" / "_static" / "speed.svg"


@pytest.mark.parametrize(("script", "measured"), [("cpu", "cpu"), ("gpu", "gpu_h200")])
def test_tables_follow_from_the_measurements(tmp_path, script, measured):
    page = tmp_path / "page.md"
    shutil.copyfile(PAGE, page)
    result = BENCHMARKS / f"{measured}.json"
    run_python(BENCHMARKS / f"{script}.py", "--from-json", result, "--docs", page)
    assert page.read_text() == PAGE.read_text()


def test_chart_and_readme_follow_from_the_measurements(tmp_path):
    chart, readme = tmp_path / "speed.svg", tmp_path / "README.md"
    shutil.copyfile(README, readme)
    run_python(BENCHMARKS / "chart.py", "--out", chart, "--readme", readme)
    assert chart.read_bytes() == CHART.read_bytes()
    assert readme.read_text() == README.read_text()
    ElementTree.parse(chart)  # well-formed


def test_every_compared_row_belongs_to_a_kind_of_work(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import chart

    for name in ("cpu.json", "gpu_h200.json"):
        rows = json.loads((BENCHMARKS / name).read_text())["rows"]
        compared = [row["row"] for row in rows if "ratio" in row or row.get("ratios")]
        assert compared
        assert [row for row in compared if chart.kind_of(row) is None] == []
