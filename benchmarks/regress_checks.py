"""Measures the error rate of ``rlx regress`` on this machine: comparisons of equal code, and of slowed code.

usage: python benchmarks/regress_checks.py [--repeats 20] [--cases 50] [--slow 10] [--parts 0 0.1 0.25] [--processes 5]

Each repetition records two installs of the same rlx in turn, on the CPU; with a part above 0 the new one takes that part
longer in ``--slow`` of the cases. Printed are, for each part, how many cases of each verdict there were among those that
are slower and among those that are not. ``--load N`` keeps N other processes busy meanwhile.
"""

import argparse
import json
import multiprocessing
import random
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from faulty_installs import slow

from rlx.regress.compare import compare
from rlx.regress.record import RecordPlan, RecordTarget, record
from rlx.regress.recording import read
from rlx.regress.regress_cases import subjects


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--slow", type=int, default=10, help="cases that are made slower")
    parser.add_argument("--parts", type=float, nargs="+", default=[0.0, 0.1, 0.25])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=int, default=0, help="processes that keep the machine busy")
    return parser.parse_args()


def busy():
    while True:
        sum(range(100_000))


def repetition(part, chosen, slower, processes):
    """Verdicts of one comparison: of cases that were made slower, and of the others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        how = random.choice(["wait", "memory"])
        python = slow(path / "slow", slower, part, how) if part else sys.executable
        targets = [
            RecordTarget(sys.executable, path / "base.rlxreg"),
            RecordTarget(python, path / "new.rlxreg"),
        ]
        only = "^(" + "|".join(re.escape(name) for name in chosen) + ")$"
        record(targets, RecordPlan(("ops",), ["cpu"], processes, True, only, False))
        base, new = (read([target.path])[0] for target in targets)
    result, left, reasons = Counter(), Counter(), Counter()
    for case in compare(base, new).cases:
        (result if part and case.op in slower else left)[str(case.verdict)] += 1
        reasons[" ".join(word for word in case.decisive.reason.split() if not word.isdigit())] += 1
    return result, left, reasons


def main():
    args = arguments()
    random.seed(args.seed)
    names = {subject.op: subject.name for subject in subjects(["ops"], quick=True) if subject.timed}
    others = [multiprocessing.Process(target=busy, daemon=True) for _ in range(args.load)]
    for other in others:
        other.start()
    for part in args.parts:
        result, left, reasons = Counter(), Counter(), Counter()
        for _ in range(args.repeats):
            ops = random.sample(sorted(names), min(args.cases, len(names)))
            slower = set(ops[: args.slow]) if part else set()
            a, b, c = repetition(part, [names[op] for op in ops], slower, args.processes)
            result += a
            left += b
            reasons += c
            said = {
                "part": part,
                "made slower": dict(result),
                "unchanged": dict(left),
                "why": reasons.most_common(4),
            }
            print(json.dumps(said), flush=True)
    for other in others:
        other.terminate()


if __name__ == "__main__":
    main()
