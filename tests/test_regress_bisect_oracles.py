"""Verdicts of ``rlx regress bisect`` on an install, from made-up recordings, and its command line."""

import subprocess
from pathlib import Path

import pytest

from rlx.cli.main import main
from rlx.errors import InputError
from rlx.regress import bisect_oracles
from rlx.regress.bisect_oracles import BY, RecordedCase
from rlx.regress.record import RecordPlan
from rlx.regress.record_schema import (
    CaseLine,
    DeviceLine,
    Difference,
    Failure,
    Load,
    Output,
    Run,
    Times,
)
from rlx.regress.recording import encoded

CASE = "ab" * 8


class InstallsStub:
    """Installs whose measurements are made up; takes the place of ``record``.

    Args:
        candidates: For each call the candidate: the factor of its times and their spread, the bits, the error.
    """

    def __init__(self, *candidates):
        self.candidates, self.plans = list(candidates), []

    def __call__(self, targets, plan):
        index = min(len(self.plans), len(self.candidates) - 1)
        self.plans.append(plan)
        sides = ({"slow": 1.0}, self.candidates[index])
        for number, (target, side) in enumerate(zip(targets, sides, strict=True)):
            target.path.write_bytes(b"".join(map(encoded, lines(f"{number}" * 8, plan, **side))))


def lines(run, plan, slow=1.0, spread=0.002, bits="0", ulp=1.0, fails=False):
    yield Run(
        1, run, "2026-01-01T00:00:00+00:00", ["ops"], plan.processes, False, "1", "", "", {}, "Linux 6", "x86_64",
        "A CPU", "avx2", 2, 2, 1 << 30, Load(0.0),
    )  # fmt: skip
    yield DeviceLine(run, "cpu", "A CPU", None, None, "native", "", False, {}, [])
    far = Difference(ulp * 1e-7, ulp, ulp * 1e-7, ulp * 1e-7, 0, 0, 0, 0)
    output = Output("y", "f32", [4], bits * 8, ["1.0"], far)
    yield CaseLine(
        run, "cpu", CASE, "gelu 4 f32", "ops", "gelu", [[4]], ["f32"], "", 0, 1e-5, [output], "c" * 8, [], 8, 0, 0, 0,
        0, 0, 0,
    )  # fmt: skip
    for process in range(plan.processes):
        ns = round(1e6 * slow * (1 + spread * (process % 3 - 1)))
        if fails:
            yield Failure(
                run, "cpu", CASE, "gelu 4 f32", process, "the process ended with status -11"
            )
        else:
            yield Times(run, "cpu", CASE, process, [ns] * 5, [], 1, 1, 1, 0.0, [bits * 8])


def judged(monkeypatch, by, *candidates, processes=5):
    installs = InstallsStub(*candidates)
    monkeypatch.setattr(bisect_oracles, "record", installs)
    judge = RecordedCase(RecordPlan(("ops",), ("cpu",), processes, only=CASE), by, 0.05)
    return judge(Path("good"), Path("candidate")), [plan.processes for plan in installs.plans]


@pytest.mark.parametrize(
    ("by", "candidate", "bad", "said"),
    [
        ("time", {"slow": 1.2}, True, "1.20 times as long"),
        ("time", {"slow": 1.02}, False, "1.02 times as long"),
        ("time", {"slow": 0.8}, False, "0.80 times as long"),
        ("time", {"bits": "1"}, False, "1.00 times as long"),
        ("time", {"fails": True}, None, "fails in 5 of 5 processes"),
        ("bits", {"slow": 1.2}, False, "same results"),
        ("bits", {"bits": "1"}, True, "output 'y'"),
        ("bits", {"fails": True}, True, "fails in 2 of 2 processes"),
        ("error", {"bits": "1"}, False, "same results"),
        ("error", {"bits": "1", "ulp": 30.0}, True, "30 ULP, 1 before"),
    ],
)
def test_what_is_bad(monkeypatch, by, candidate, bad, said):
    opinion, processes = judged(monkeypatch, by, candidate)
    assert opinion.bad is bad
    assert said in opinion.reason
    assert processes == [5] if by == "time" and bad is not None else processes[0] in (2, 5)


def test_an_undecided_time_is_measured_by_more_processes(monkeypatch):
    unsure = {"slow": 1.05, "spread": 0.02}
    opinion, processes = judged(monkeypatch, "time", unsure, {"slow": 1.1})
    assert opinion.bad is True
    assert processes == [5, 10]
    opinion, processes = judged(monkeypatch, "time", {"slow": 1.05, "spread": 0.001}, processes=2)
    assert processes[:2] == [2, 4]


def test_an_install_that_can_not_measure_is_skipped(monkeypatch):
    def refuses(targets, plan):
        raise InputError("a measuring process ended\n  got: status 1")

    monkeypatch.setattr(bisect_oracles, "record", refuses)
    opinion = RecordedCase(RecordPlan(), "time", 0.05)(Path("good"), Path("candidate"))
    assert opinion.bad is None
    assert opinion.reason == "can't be measured: a measuring process ended; got: status 1"


def test_kinds_of_regressions_are_kinds_of_findings():
    assert BY["error"] < BY["bits"]
    assert {"bits", "tolerance", "not-finite", "failure"} <= BY["bits"]


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    who = ("-c", "user.name=A", "-c", "user.email=a@b")
    commands = [("init", "--quiet", str(folder))]
    commands += [
        ("-C", str(folder), *who, "commit", "--quiet", "--allow-empty", "-m", subject)
        for subject in ("One", "Two")
    ]
    for command in commands:
        subprocess.run(["git", *command], check=True)
    return folder


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--repository", "/"], "not a git checkout"),
        (["--good", "nothing"], "no such commit"),
        (["--good", "HEAD", "--bad", "HEAD~1"], "no ancestor of the bad one"),
        (["--case", "no such case"], "no case is chosen"),
        (["--case", "("], "no regular expression"),
        (["--suite", "opps"], "did you mean 'ops'"),
        (["--device", "gpuu"], "gpuu"),
        (["--good", "HEAD~1", "--case", "^gelu .*small$"], "the good commit can't be built"),
        (["--min-effect", "much"], "such as 5% or 0.05"),
    ],
)
def test_bad_arguments_are_one_line(repository, tmp_path, capsys, options, said):
    inputs = {
        "--repository": str(repository), "--good": "HEAD~1", "--case": "^gelu ", "--wheels": str(tmp_path / "wheels"),
    }  # fmt: skip
    inputs |= dict(zip(options[::2], options[1::2], strict=True))
    arguments = [text for pair in inputs.items() for text in pair]
    assert main(["regress", "bisect", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("rlx regress")
    assert "Traceback" not in error


def test_the_commands_help(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["regress", "bisect", "--help"])
    assert ended.value.code == 0
    assert "--good" in capsys.readouterr().out
