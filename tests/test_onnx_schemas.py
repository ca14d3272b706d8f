"""Models made from the operators' schemas, on rlx and ONNX Runtime: equal, both refused, or a difference that is known.

A short part runs always, on fixed seeds. The slow part runs on fresh seeds, which it prints, for ``RLX_TEST_SECONDS``
(two minutes); ``RLX_TEST_SEED`` repeats one.
"""

import os
import random
import re
import time
from pathlib import Path

import numpy as np
import onnx_schemas
import pytest
from onnx_differences import TABLE, accepted
from onnx_schemas import OrtRefusal, difference, outcome, sweep
from schema_graphs import SchemaModel

import rlx

PAGE = Path(__file__).parent.parent / "docs/explanation/differences.md"
# Of so many models at least this part gives equal results: fewer would mean that the models test nothing.
EQUAL = 0.3


def judge(result, count):
    assert result.wrong == []
    assert sum(result.counts.values()) == count
    assert result.counts["equal"] >= EQUAL * count


def fresh():
    return int(os.environ.get("RLX_TEST_SEED", random.SystemRandom().randrange(1 << 40)))


def test_fixed_models(tmp_path):
    judge(sweep(0, 600, tmp_path), 600)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_models_for_long(tmp_path):
    seconds = float(os.environ.get("RLX_TEST_SECONDS", "120"))
    begin, seed, count = time.monotonic(), fresh(), 0
    while time.monotonic() - begin < seconds:
        print(f"onnx_schemas.py sweep {seed} 1000 FOLDER ({count} models before)", flush=True)
        judge(sweep(seed, 1000, tmp_path), 1000)
        seed, count = seed + 1000, count + 1000


def test_a_seed_is_one_model():
    first, other = (SchemaModel(np.random.default_rng(7)) for _ in range(2))
    assert first.proto == other.proto
    assert all(np.array_equal(first.feeds[name], other.feeds[name]) for name in first.feeds)


X = np.float32([[1, 2, np.nan], [0, np.inf, 3]])


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (X.copy(), None),
        (X * np.float32(1 + 1e-6), None),
        (X * np.float32(1 + 1e-3), "values"),
        (X.astype("f8"), "dtype"),
        (X[:1], "shape"),
        (np.nan_to_num(X, posinf=np.inf), "NaN or infinity"),
        (np.where(X == 0, np.float32(-0.0), X), "sign of zero"),
    ],
)
def test_differences_are_noticed(found, says):
    said = difference([found], [X])
    assert said is None if says is None else said.startswith(says)


class PlainModel:
    """A model of one Add of ordinary numbers."""

    ops, feeds = ("Add",), {}

    def operands(self):
        return [np.float32([1, 2])]


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ([X], [X], "equal"),
        ([X], [X + 1], "differ"),
        (KeyError("x"), [X], "fault"),
        (rlx.InputError("x"), [X], "only ONNX Runtime runs"),
        (rlx.InputError("x"), OrtRefusal("x"), "both refuse"),
        ([X], OrtRefusal("x"), "only rlx runs"),
        ([X], OrtRefusal("NOT_IMPLEMENTED : x"), "not in ONNX Runtime"),
    ],
)
def test_outcomes(one, other, name, monkeypatch):
    def give(value):
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(onnx_schemas, "run_rlx", lambda case: give(one))
    monkeypatch.setattr(onnx_schemas, "run_onnxruntime", lambda case: give(other))
    result, text = outcome(PlainModel())
    assert result == name
    if name in onnx_schemas.JUDGED:
        assert accepted(PlainModel(), result, text) is None


DIES = """
import json, os, sys
from pathlib import Path
first, count, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for seed in range(first, first + count):
    Path(folder, "seed").write_text(f"{seed} " + ("rlx" if seed == 3 else "onnxruntime"))
    if seed in (1, 3):
        os.abort()
    print(json.dumps([seed, "equal", ["Add"], 20, "", None]), flush=True)
"""


def test_a_death_is_laid_to_its_side(tmp_path):
    program = tmp_path / "dies.py"
    program.write_text(DIES)
    result = sweep(0, 5, tmp_path, program)
    assert result.counts == {"equal": 3, "ONNX Runtime ends": 1}
    assert len(result.wrong) == 1
    assert result.wrong[0].startswith("seed 3: rlx ended")


def test_the_page_lists_all_differences():
    """Each reason stands in the documentation, and nothing else does."""
    listed = [
        " ".join(item.split())
        for item in re.findall(r"(?ms)^- (.+?)(?=\n- |\n\n|\Z)", PAGE.read_text())
    ]
    reasons = [item.partition(": ")[2] for item in listed]
    assert sorted(reasons) == sorted({row.why for row in TABLE})
