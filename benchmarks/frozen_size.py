"""Measures the size of a frozen program by package: a small one frozen now, or a folder that PyInstaller made.

usage: python benchmarks/frozen_size.py [FOLDER] [--least MB]

The modules that PyInstaller packs into the program count for their packages, as large as they are there. Without
FOLDER, a program that compiles one graph is frozen from the installed rlx.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

PROGRAM = """
import numpy as np, rlx
g = rlx.Graph()
g.set_outputs([g.tanh(g.input("x", (4,)))])
print(rlx.compile(g).run({"x": np.ones(4, np.float32)}))
"""
PYTHON = "Python and libraries of the system"


def frozen(folder: Path) -> Path:
    """Freezes the small program; gives the folder that a user would get."""
    (folder / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR", "app.py"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "dist/app"


def owner(parts: tuple[str, ...]) -> str:
    """The package that a file belongs to, by its path in the folder of libraries."""
    first = parts[0]
    if len(parts) == 1 or first.startswith("python3"):
        return PYTHON
    return first.partition(".libs")[0].partition("-")[0]


def files(folder: Path) -> Counter[str]:
    """Bytes of the files by package; links count once."""
    results: Counter[str] = Counter()
    inside = folder / "_internal"
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and inside in path.parents:
            results[owner(path.relative_to(inside).parts)] += path.stat().st_size
    return results


def modules(program: Path) -> Counter[str]:
    """Bytes of the modules that are packed into the program, and of its own code."""
    from PyInstaller.archive.readers import CArchiveReader

    results: Counter[str] = Counter()
    packed = CArchiveReader(str(program)).open_embedded_archive("PYZ.pyz")
    for name, (_, _, size) in packed.toc.items():
        top = name.partition(".")[0]
        results[PYTHON if top in sys.stdlib_module_names else top] += size
    results["the program itself"] += program.stat().st_size - results.total()
    return results


def table(result: Counter[str], least: float) -> str:
    """Megabytes by package, as a table of a page; small packages together."""
    large = [(name, size) for name, size in result.most_common() if size >= least * 1e6]
    rest = result.total() - sum(size for _, size in large)
    rows = [*large, (f"{len(result) - len(large)} others", rest), ("all", result.total())]
    return "\n".join(
        ["| package | MB |", "|---|---|", *(f"| {n} | {s / 1e6:.1f} |" for n, s in rows)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "folder", nargs="?", type=Path, help="what PyInstaller made, without --onefile"
    )
    parser.add_argument(
        "--least", type=float, default=0.3, help="smallest package with a row, in MB"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or frozen(Path(scratch))
        (program,) = (path for path in folder.iterdir() if path.is_file())
        print(table(files(folder) + modules(program), args.least))


if __name__ == "__main__":
    main()
