"""The repository's own rules that ruff and import-linter have no rules for: lengths, docstrings, and names of modules and classes."""

import ast
import functools
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES_OF_A_FILE = 500
MAX_LINES_OF_A_FUNCTION = 60
# Files that are still longer. Nothing may be added.
LONG: set[str] = set()
# Files that a script writes may have any length.
MADE = {"rlx/ir/builders.pyi", "rlx/ops/__init__.pyi", "rlx/signal/__init__.pyi"}
# Folders that have a file for each family of operations: one name there is one family.
BY_FAMILY = ("rlx/ops", "rlx/importers/onnx/ops", "rlx/passes/patterns", "rlx/abi")
# Folders with Python code. Classes of Cython are not read.
PYTHON = ("rlx", "plugins", "tests", "benchmarks", "script", "examples", "docs/_ext")

CYTHON = (".pyx", ".pxd", ".pxi")
# Beginnings and turns of docstrings that name no actor.
RIDDLE = re.compile(
    r"\A(What|Whether|How|Which|Where|Who|When|Of|As|Those|That)\b"
    r"|\bwhat\b[^.;:]*\bwhere\b|\bas far as\b|\bfor want of\b|\bof those that\b",
    re.IGNORECASE,
)


@functools.cache
def sources(*folders):
    """The text files of the repository in these folders."""
    results = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    ends = (".py", ".pyi", *CYTHON, ".c", ".h", ".wgsl", "")
    return sorted(
        path for path in results if path.suffix in ends and "__pycache__" not in path.parts
    )


@functools.cache
def text_of(path):
    """The text of a file, which several tests read."""
    return path.read_text(encoding="utf-8")


class Outline(NamedTuple):
    """The parts of a Python file that have rules: functions with their lines, classes, and docstrings by their lines."""

    functions: list[tuple[int, str, int]]
    classes: set[str]
    docstrings: list[tuple[int, str]]


@functools.cache
def outline(text):
    """Reads a Python text once for all tests. No expression holds a statement, so none is walked through."""
    results, left = Outline([], set(), []), [ast.parse(text)]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            results.functions.append((node.lineno, node.name, lines_of(node)))
        elif isinstance(node, ast.ClassDef):
            results.classes.add(node.name)
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            results.docstrings.append((node.lineno, value.value.strip()))
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, name, ())
    return results


def test_files_have_one_reason_to_exist():
    counts = {
        path.relative_to(ROOT).as_posix(): len(text_of(path).splitlines())
        for path in sources("rlx", "cython_src", "shaders", "tests")
    }
    long = {name for name, count in counts.items() if count > MAX_LINES_OF_A_FILE} - MADE
    assert long <= LONG, f"more than {MAX_LINES_OF_A_FILE} lines: {sorted(long - LONG)}"
    assert long >= LONG, f"no longer too long, take them off the list: {sorted(LONG - long)}"


def lines_of(function):
    """Lines of a function without its docstring."""
    count = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        first = function.body[0]
        count -= first.end_lineno - first.lineno + 1
    return count


def too_long(text, name):
    """The functions of a Python file that are too long."""
    return [
        f"{name}:{line} {function} has {lines} lines"
        for line, function, lines in outline(text).functions
        if lines > MAX_LINES_OF_A_FUNCTION
    ]


def python_files(*folders):
    """The Python files in these folders, scripts without an ending included."""
    return [
        path
        for path in sources(*folders)
        if path.suffix == ".py"
        or (not path.suffix and text_of(path).startswith("#!/usr/bin/env python"))
    ]


def test_functions_fit_on_a_screen():
    results = []
    for path in python_files("rlx", "tests", "benchmarks", "script", "docs/_ext", "examples"):
        results += too_long(text_of(path), path.relative_to(ROOT).as_posix())
    assert not results, "\n".join(results)


@pytest.mark.parametrize(("lines", "long"), [(59, False), (60, True)])
def test_the_length_of_a_function_counts_its_first_line(lines, long):
    text = 'def one():\n    """Says\n\n    something."""\n' + "    a = 1\n" * lines
    assert bool(too_long(text, "a.py")) == long


def docstrings(text, suffix):
    """The line and the text of each docstring; in Cython, of everything in such quotes."""
    if suffix not in CYTHON:
        return outline(text).docstrings
    found = re.finditer(r'"""(.*?)"""', text, re.DOTALL)
    return [(text.count("\n", 0, match.start()) + 1, match[1].strip()) for match in found]


def test_a_docstring_begins_with_a_noun_or_a_verb():
    found = []
    for path in sources(
        "rlx", "cython_src", "plugins", "script", "tests", "benchmarks", "examples", "docs/_ext"
    ):
        text = text_of(path)
        if path.suffix in (".py", *CYTHON) or text.startswith("#!/usr/bin/env python"):
            found += [
                f"{path.relative_to(ROOT)}:{line} {doc.splitlines()[0]}"
                for line, doc in docstrings(text, path.suffix)
                if RIDDLE.search(doc)
            ]
    assert not found, "name the actor:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("doc", "refused"),
    [("What a run does.", True), ("The steps of a run.", False), ("Runs as far as it can.", True)],
)
def test_a_docstring_that_names_no_actor_is_found(doc, refused):
    text = f'class A:\n    b: int = 1\n    """{doc}"""\n    def f(self):\n        "Returns 1."\n'
    assert any(RIDDLE.search(one) for _, one in docstrings(text, ".py")) == refused


def test_a_name_of_a_module_means_one_thing():
    places = defaultdict(set)
    for path in sources("rlx"):
        if path.suffix == ".py" and not path.name.startswith("__"):
            folder = path.parent.relative_to(ROOT).as_posix()
            by_family = next((top for top in BY_FAMILY if f"{folder}/".startswith(f"{top}/")), "")
            places[path.stem].add("" if by_family else folder)
    twice = {name: sorted(place) for name, place in places.items() if len(place) > 1}
    assert not twice, f"two modules of one name: {twice}"


def test_a_name_of_a_class_means_one_thing():
    places = defaultdict(set)
    for path in python_files(*PYTHON):
        for name in outline(text_of(path)).classes:
            if not name.startswith("_"):  # such a class is its file's own
                places[name].add(path.relative_to(ROOT).as_posix())
    twice = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    assert not twice, f"classes of one name in several files: {twice}"


def test_nested_classes_count():
    text = "class Outer:\n    class Inner: ...\n\n\ndef function():\n    class _Local: ...\n"
    assert outline(text).classes == {"Outer", "Inner", "_Local"}


def test_git_knows_no_file_that_is_made():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: nothing is tracked here")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    results = [name for name in listed if name.endswith((".so", ".pyc", ".egg-info"))]
    assert not results
