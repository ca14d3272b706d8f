"""Instructions that kernels take on ARM, counted by qemu: products beside OpenBLAS, and functions beside their arithmetic.

A count does not depend on this machine, which has no ARM processor. It says nothing of memory or of how many instructions
run at once. A kernel fails where more than a few of its instructions compute with a single float: its loops would not be
vectors.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from _setup import apt, say

from _portable.aarch64 import installed
from _portable.sources import HOME

HERE = Path(__file__).parent
PACKAGES = "qemu-user gcc"
PROGRAMS = ("qemu-aarch64", "gcc")
# The processor that qemu plays: OpenBLAS takes wider vectors than NEON's where there are any.
PROCESSOR = "neoverse-n1"
# Instructions by those of OpenBLAS, and the share of those that compute with one float, at most.
PRODUCT, SCALAR = 1.15, 0.02
# Instructions of the arithmetic for four results of a function, counted in kernels/elementwise/functions.h, and how many
# times as many there may be. The rest are moves of constants, loads, stores, and the loop.
ARITHMETIC, TIMES = {"exp": 24, "tanh": 21, "gelu": 52}, 1.5


def plugin() -> Path:
    """The plug-in, compiled."""
    made = HOME / "made/instructions.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(made)]
    subprocess.run([*command, str(HERE / "instructions.c")], check=True)
    return made


def counts(wheel: Path) -> dict[str, tuple[float, float, float]]:
    """All instructions of a call by the name of its case, those of one float, and those of vectors."""
    root = installed(wheel)
    command = ["qemu-aarch64", "-cpu", PROCESSOR, "-L", str(root), "-plugin", str(plugin())]
    command += [str(root / "usr/bin/python3"), str(HERE / "instruction_cases.py")]
    env = {
        **os.environ,
        "PYTHONPATH": str(root / "opt/site"),
        "OPENBLAS_NUM_THREADS": "1",
        "RLX_CACHE": "off",
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    asked = [tuple(map(int, row)) for row in re.findall(r"counts (\d+) (\d+) (\d+)", done.stderr)]
    said = re.search(r"^names (.*)$", done.stdout, re.MULTILINE)
    if said is None:
        raise RuntimeError(f"the cases did not run in qemu: {done.stderr[-2000:]}")
    about = json.loads(said[1])
    found = {}
    for name, before, after in zip(about["names"], asked[::2], asked[1::2], strict=True):
        every, scalar, vector = (
            (b - a) / about["calls"] for a, b in zip(before, after, strict=True)
        )
        found[name] = every, scalar, vector
    return found


def judged(found: dict[str, tuple[float, float, float]]) -> list[tuple[str, str, bool]]:
    """A line for each case: its name, what is said of it, and whether that is within the bounds."""
    lines = []
    for name, (every, scalar, vector) in found.items():
        kind, _, size = name.partition(" ")
        said, well = f"{every:14,.0f}  vectors {vector / every:4.0%}", scalar <= SCALAR * every
        said += f"  single floats {scalar / every:4.1%}"
        if kind == "product" and f"OpenBLAS {size}" in found:
            ratio = every / found[f"OpenBLAS {size}"][0]
            said, well = f"{said}  {ratio:.2f} of OpenBLAS", well and ratio <= PRODUCT
        if kind in ARITHMETIC and size == "4096":
            times = every / 1024 / ARITHMETIC[kind]
            said, well = f"{said}  {times:.2f} of the arithmetic", well and times <= TIMES
        lines.append((name, said, well or kind == "OpenBLAS"))
    return lines


def check(wheel: Path) -> bool:
    """Prints the table, keeps it, and tells whether all is within the bounds."""
    if None in map(shutil.which, PROGRAMS) and not apt(PACKAGES):
        return False
    say("counting instructions on ARM")
    lines = judged(counts(wheel))
    for name, said, well in lines:
        print(f"{name:34s} {said}{'' if well else '  TOO MANY'}", flush=True)
    kept = HOME / "results/instructions.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({name: said for name, said, _ in lines}, indent=1) + "\n")
    return all(well for *_, well in lines)
