"""Simulates how often ``rlx regress compare`` is wrong, and how often it finds a slow-down, by noise and processes.

Recordings are made up (tests/recordings.py): 100 cases, of which 10 are slower in the second one. Nothing is measured,
so the table is the same on every machine. docs/explanation/regression_statistics.md has it.

    python benchmarks/regress_power.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from recordings import recording

from rlx.regress.compare import compare

CASES = 100
SLOWED = range(0, CASES, 10)
REPEATS = 20
SPREADS = (0.01, 0.02, 0.03, 0.05, 0.08)
PROCESSES = (3, 5, 10)
FACTORS = (1.1, 1.25)


def pairs(factor, **results):
    """Pairs of recordings; some cases of the second are slower by a factor."""
    slower = dict.fromkeys(SLOWED, factor)
    for seed in range(REPEATS):
        base = recording(seed=2 * seed, cases=CASES, **results)
        yield base, recording(seed=2 * seed + 1, cases=CASES, slower=slower, **results)


def row(spread, processes):
    """Returns the shares of unchanged cases called slower and inconclusive, and the share of slowed cases found."""
    results = {"spread": spread, "processes": processes}
    verdicts = [
        str(case.verdict)
        for base, new in pairs(1.0, **results)
        for case in compare(base, new).cases
    ]
    outputs = []
    for factor in FACTORS:
        compared = [compare(base, new).cases for base, new in pairs(factor, **results)]
        slowed = [cases[index] for cases in compared for index in SLOWED]
        outputs.append(sum(case.verdict == "slower" for case in slowed) / len(slowed))
    return (
        verdicts.count("slower") / len(verdicts),
        verdicts.count("inconclusive") / len(verdicts),
        *outputs,
    )


def main():
    titles = (
        "spread",
        "processes",
        "false slower",
        "A/A inconclusive",
        *(f"{100 * (f - 1):.0f} % found" for f in FACTORS),
    )
    print("| " + " | ".join(titles) + " |")
    print("|" + "---:|" * len(titles))
    for spread in SPREADS:
        for processes in PROCESSES:
            cells = [f"{100 * share:.1f} %" for share in row(spread, processes)]
            print(
                "| " + " | ".join([f"{100 * spread:.0f} %", str(processes), *cells]) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
