"""Instructions that kernels take on ARM, counted by qemu, beside OpenBLAS, ONNX Runtime and the arithmetic of functions.

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

from _portable.aarch64 import PLATFORMS, installed
from _portable.sources import HOME, unpacked, wheels

HERE = Path(__file__).parent
PACKAGES = "qemu-user gcc"
PROGRAMS = ("qemu-aarch64", "gcc")
# The processors that qemu plays. OpenBLAS takes wider vectors than NEON's where there are any.
PLAIN, TILES = "neoverse-n1", "max,sve=off"
# The case that is counted on the second one too, which multiplies tiles of bytes (i8mm), and its name there.
BYTES = "product 256 of 8-bit integers"
# The newest that qemu 7.2 runs: later versions end while they are imported.
PEER = "onnxruntime==1.26.0"
# Instructions by those of OpenBLAS, and the share of those that compute with one float, at most.
PRODUCT, SCALAR = 1.15, 0.02
# Instructions of the arithmetic of a case, and how many times as many there may be. The rest are moves of constants, loads,
# stores, and the loop. Functions: for 1,024 vectors, counted in kernels/elementwise/functions.h. Products of bytes: 16 of
# them in an instruction, 32 in one of tiles, whose results and operands are rearranged besides.
ARITHMETIC = {
    "exp 4096": 24 * 1024,
    "tanh 4096": 21 * 1024,
    "gelu 4096": 52 * 1024,
    BYTES: 256**3 // 16,
}
TILED = f"{BYTES}, in tiles"
ARITHMETIC[TILED] = 256**3 // 32
TIMES = {TILED: 2.2}
MOST = 1.5


def plugin() -> Path:
    """The plug-in, compiled."""
    result = HOME / "made/instructions.so"
    result.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(result)]
    subprocess.run([*command, str(HERE / "instructions.c")], check=True)
    return result


def peer() -> Path:
    """The folder of ONNX Runtime for ARM. The tests of a wheel do without it."""
    folder = HOME / "aarch64/peer"
    if not folder.exists():
        unpacked(wheels(PLATFORMS, "3.11", PEER)[0], folder)
    return folder


def counts(root: Path, processor: str, *cases: str) -> dict[str, tuple[float, float, float]]:
    """All instructions of a call by the name of its case, those of one float, and those of vectors.

    Args:
        root: The system for ARM, with the wheel.
        processor: What qemu plays.
        cases: Names of cases; all of them when none is given.
    """
    command = ["qemu-aarch64", "-cpu", processor, "-L", str(root), "-plugin", str(plugin())]
    command += [str(root / "usr/bin/python3"), str(HERE / "instruction_cases.py"), *cases]
    env = {
        **os.environ,
        "PYTHONPATH": f"{root / 'opt/site'}:{peer()}",
        "OPENBLAS_NUM_THREADS": "1",
        "RLX_CACHE": "off",
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    asked = [tuple(map(int, row)) for row in re.findall(r"counts (\d+) (\d+) (\d+)", done.stderr)]
    said = re.search(r"^names (.*)$", done.stdout, re.MULTILINE)
    if said is None:
        raise RuntimeError(f"the cases did not run in qemu: {done.stderr[-2000:]}")
    about = json.loads(said[1])
    results = {}
    for name, before, after in zip(about["names"], asked[::2], asked[1::2], strict=True):
        every, scalar, vector = (
            (b - a) / about["calls"] for a, b in zip(before, after, strict=True)
        )
        results[name] = every, scalar, vector
    return results


def judged(results: dict[str, tuple[float, float, float]]) -> list[tuple[str, str, bool]]:
    """A line for each case: its name, what is said of it, and whether that is within the bounds."""
    lines = []
    for name, (every, scalar, vector) in results.items():
        if name.startswith(("OpenBLAS", "ONNX Runtime")):
            continue
        said, well = f"{every:14,.0f}  vectors {vector / every:4.0%}", scalar <= SCALAR * every
        said += f"  single floats {scalar / every:4.1%}"
        if (other := name.replace("product", "OpenBLAS")) in results and other != name:
            ratio = every / results[other][0]
            said, well = f"{said}  {ratio:.2f} of OpenBLAS", well and ratio <= PRODUCT
        if f"ONNX Runtime {name}" in results:
            said += f"  {every / results[f'ONNX Runtime {name}'][0]:.2f} of ONNX Runtime"
        if name in ARITHMETIC:
            times = every / ARITHMETIC[name]
            said = f"{said}  {times:.2f} of the arithmetic"
            well &= times <= TIMES.get(name, MOST)
        lines.append((name, said, well))
    return lines


def check(wheel: Path) -> bool:
    """Prints the table, keeps it, and tells whether all is within the bounds."""
    if None in map(shutil.which, PROGRAMS) and not apt(PACKAGES):
        return False
    say("counting instructions on ARM")
    root = installed(wheel)
    result = counts(root, PLAIN)
    tiled = counts(root, TILES, BYTES)
    result |= {name.replace(BYTES, TILED): row for name, row in tiled.items()}
    lines = judged(result)
    for name, said, well in lines:
        print(f"{name:40s} {said}{'' if well else '  TOO MANY'}", flush=True)
    retained = HOME / "results/instructions.json"
    retained.parent.mkdir(parents=True, exist_ok=True)
    retained.write_text(json.dumps({name: said for name, said, _ in lines}, indent=1) + "\n")
    return all(well for *_, well in lines)
