"""Leaves out samples of WebGPU tests that passed before with the same program on the same runtime.

``RLX_TEST_GREEN`` is empty where every sample runs. ``record`` runs all of them and writes what passed to
``tests/green``, one file a driver. Any other text, the name of a commit, leaves out the samples that the file has,
and chooses one in a hundred of them to run all the same.

A sample is known by a digest of the source graph, of the program that the compiler makes of it (WGSL, bindings,
grids, places in memory), of the test file and of the folders of the operations. The compiler always runs. The file
is used only where its header holds: the driver, the versions of packages, and the floor, which is every source whose
output no digest covers. A new folder is part of the floor. A sample that compiles two graphs is never left out.

A whole test file is left out where nothing has changed that its tests stand on (tests/file_selection.py). The record
has a line for each file with the shaders that its tests read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import platform
import re
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import numpy as np
from file_selection import PROCESSES, of_tests, shader_of
from source_digests import KERNELS, ROOT, digest, files, floor, of_sources

import rlx
from rlx import flags
from rlx._ext import cpu
from rlx.backends.registry import backend
from rlx.backends.webgpu import codegen, elementwise_wgsl, wgsl
from rlx.backends.webgpu.dispatch import Dispatch
from rlx.compiler import loading
from rlx.device.names import info_of
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.opdef import REGISTRY
from rlx.ir.plan import HOST
from rlx.runtime.session import Session
from rlx.signal import arrays

MODE = os.environ.get("RLX_TEST_GREEN", "")
# Folders that compute outside of programs, too, and the words by which a test file names them. Passes compute programs
# alone, but for a test that imports them.
BESIDE = {
    "rlx/signal": "signal", "rlx/serving": "signal|many|serving", "rlx/importers": "onnx|gguf|importers", "rlx/passes": r"rlx\.passes",
    "examples": "examples?|tiny_lm", "rlx/lm": "lm", "benchmarks": "benchmarks?", "rlx/cost": "cost", "rlx/tune": "tun(e|ed|er|ing)", "rlx/calibrate": "calibrat(e|ion)",
}  # fmt: skip
PACKAGES = ("numpy", "wgpu", "scipy", "onnx", "onnxruntime", "wgpudawn", "cython")
AUDITED = 100  # one of so many known samples runs
# The counts, digests, shaders, and tests left out of a process, and why every sample runs.
Result = tuple[dict[str, int], list[str], dict[str, list[str]], int, str]


class LeftOut(BaseException):
    """The sample under test is known. Nothing that a test catches is of this type."""


def compiler() -> str:
    """The C compiler's version: the first line of its own report without the program's name."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [""])[0].partition(" ")[2]


def header() -> dict[str, str]:
    """Everything besides its digest that the result of a sample depends on."""
    info = info_of(rlx.Device("webgpu"))
    results = {"library": f"{flags.WEBGPU.get()} {backend('webgpu').build_id()}"}
    results |= {
        "adapter": info.adapter,
        "driver": info.driver,
        "limits": digest(sorted(info.limits.items())),
    }
    python = ".".join(platform.python_version_tuple()[:2])
    results |= {"python": python, "compiler": compiler()}
    results["processor"] = " ".join(cpu.isas())
    results |= {name: version(name) for name in PACKAGES}
    return results | {f"floor {name}": value for name, value in floor().items()}


def record_of(said: dict[str, str]) -> Path:
    """The file of a driver."""
    name = re.sub(r"[^a-z0-9]+", "_", f"{said['library']} {said['adapter']}".lower()).strip("_")
    return ROOT / "tests/green" / f"{name}.txt"


def read(path: Path) -> tuple[dict[str, str], frozenset[str]]:
    """The header of a record, and its digests."""
    top, _, rest = path.read_text().partition("\n\n")
    lines = (line.partition(": ") for line in top.splitlines())
    return {name: value for name, _, value in lines}, frozenset(rest.split())


def write(path: Path, said: dict[str, str], digests: Iterable[str]) -> None:
    """Writes a record."""
    top = "\n".join(f"{name}: {value}" for name, value in said.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{top}\n\n" + "".join(f"{item}\n" for item in sorted(set(digests))))


@functools.cache
def family(module: str) -> str:
    """A digest of the folder of ``rlx/ops`` that an operation's reference stands in; empty outside of them."""
    parts = module.split(".")
    inside = parts[:2] == ["rlx", "ops"] and len(parts) > 3
    return of_sources((ROOT / "rlx/ops" / parts[2]).rglob("*.py")) if inside else ""


@functools.cache
def of_file(path: Path) -> str:
    """A digest of a test file, and of the folders beside the floor that it names."""
    text = path.read_text()
    named = (
        name for name, word in BESIDE.items() if re.search(f"(?<![a-z])({word})(?![a-z])", text)
    )
    return digest(of_sources([path]), [of_sources(files([f"{name}/**/*.py"])) for name in named])


@functools.cache
def kernels_of_the_host() -> str:
    """A digest of what the CPU computes beside a GPU: nodes without a kernel, and prepared params."""
    return of_sources(files(KERNELS))


def of_array(array: Any) -> str:
    """A digest of an array's elements."""
    raw = np.ascontiguousarray(array).reshape(-1)
    return hashlib.sha256(raw.view(np.uint8)).hexdigest()


def of_graph(graph: Any, params: Any) -> str:
    """A digest of a source graph, of the values of its params, and of the operations' folders."""
    values = {**graph.param_values, **(params or {})}
    modules = {
        REGISTRY[node.op].reference.__module__ for node in graph.nodes if node.op in REGISTRY
    }
    return digest(
        content_hash(graph),
        [(name, of_array(values[name])) for name in sorted(values)],
        sorted({family(module) for module in modules}),
    )


def of_program(lowered: Any, target: Any) -> str:
    """A digest of what a device gets: texts, bindings, grids, places in memory, constants."""
    schedule = lowered.schedule
    values = [
        (value.kind, str(value.type), value.array is not None and of_array(value.array))
        for value in schedule.values
    ]
    ends = [item.id for item in (*schedule.inputs, *schedule.outputs, *schedule.params.values())]
    steps = [item for item in lowered.program.work if isinstance(item, Dispatch)]
    texts = [(step.source, step.access, step.grid, [v.id for v in step.values]) for step in steps]
    hosted: tuple[str, ...] = ()
    if lowered.preparations or any(call.kernel == HOST for call in schedule.calls):
        prepared = (
            f"{content_hash(preparation.graph)} {preparation.names}"
            for preparation in lowered.preparations
        )
        hosted = (content_hash(lowered.graph), *prepared, kernels_of_the_host())
    notes, info = [str(note) for note in lowered.notes], target.info
    device = (info.adapter, sorted(info.limits.items()), sorted(info.features))
    return digest(values, ends, texts, hosted, notes, str(lowered.plan), target.options, device)


class Selection:
    """The samples of one process: which are known, which passed.

    Attributes:
        counts: How many samples were left out, run because they are not known, and run to audit the record.
        tests: How many tests of known files were left out.
        passed: Digests of samples that passed; kept for a new record.
        reads: By test file, the shaders that its tests read; kept for a new record.
        why: Why every sample runs; empty where the record holds.
    """

    def __init__(self, mode: str = MODE) -> None:
        self.mode = mode
        self.counts = {"left out": 0, "run": 0, "audited": 0}
        self.passed: set[str] = set()
        self.reads: dict[str, set[str]] = {}
        self.tests = 0
        self.why = ""
        self._item: tuple[str, ...] = ()
        self._sample: list[Any] | None = None
        self._source: tuple[Any, Any] = (None, None)
        self._digests: list[str] = []
        self._file = ""

    @property
    def selects(self) -> bool:
        """True if this run leaves out known samples; such a run takes fewer of other kinds, too."""
        return self.mode not in ("", "record") and rlx.is_available("webgpu") and bool(self.known)

    @functools.cached_property
    def header(self) -> dict[str, str]:
        return header()

    @functools.cached_property
    def known(self) -> frozenset[str]:
        """The digests of the record; none where its header does not hold."""
        if self.mode == "record":
            return frozenset()
        path = record_of(self.header)
        if not path.exists():
            self.why = f"there is no {path.relative_to(ROOT)}"
            return frozenset()
        said, result = read(path)
        other = [
            name for name in {**said, **self.header} if said.get(name) != self.header.get(name)
        ]
        self.why = f"{path.relative_to(ROOT)} has another {', '.join(other)}" if other else ""
        return frozenset() if other else result

    @functools.cached_property
    def known_reads(self) -> dict[str, tuple[str, ...]]:
        """The shaders of each test file in the record."""
        pairs = (item.split(":") for item in self.known if ":" in item)
        return {name: tuple(filter(None, names.split(","))) for name, names in pairs}

    def leaves_out(self, path: Path, name: str) -> bool:
        """Returns True if a test is left out, since its file passed with the same tree. A record takes its file."""
        if self.mode == "record":
            self.reads.setdefault(path.name, set())
        if self.mode in ("", "record") or not rlx.is_available("webgpu"):
            return False
        reads = self.known_reads.get(path.name)
        known = reads is not None and of_tests(path, reads) in self.known
        if not known or int(digest(self.mode, name), 16) % AUDITED == 0:
            return False
        self.tests += 1
        return True

    def begin(self, path: Path) -> None:
        """A test of a file begins. For a record, what tests of other files compiled and rendered is made anew."""
        if self.mode == "record" and path.name != self._file:
            self._file = path.name
            for cache in (arrays._cache, arrays._families, codegen._sources):
                cache.clear()
            for function in (elementwise_wgsl._functions, elementwise_wgsl._structures):
                function.cache_clear()

    def read(self, name: str) -> None:
        """Notes for the record that the tests of the file read a shader."""
        if self.mode == "record" and self._file:
            self.reads.setdefault(self._file, set()).add(name)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A hook of ``sys.addaudithook``."""
        if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec"):
            self.read(PROCESSES)
        elif event == "open" and str(arguments[0]).endswith(".wgsl"):
            self.read(shader_of(str(arguments[0])))

    @contextlib.contextmanager
    def item(self, path: Path, name: str) -> Iterator[None]:
        """An item of pytest that has the marker; it is a sample itself where it has none."""
        self._item = (of_file(path), path.name, name)
        try:
            with self.sample("", None):
                yield
        finally:
            self._item = ()

    @contextlib.contextmanager
    def sample(self, name: str, value: Any) -> Iterator[None]:
        """One sample: its body ends early where it is known."""
        if not self.mode or not self._item:
            yield
            return
        parts = value if isinstance(value, tuple) else ()
        records = [part.opdef for part in (value, *parts) if hasattr(part, "opdef")]
        before = self._sample, self._digests
        self._digests = []
        self._sample = [
            *self._item,
            name,
            [family(record.reference.__module__) for record in records],
        ]
        try:
            yield
            if len(self._digests) == 1 and self._digests != [""]:
                self.passed.add(self._digests[0])
        except LeftOut:
            self.counts["left out"] += 1
        finally:
            self._sample, self._digests = before

    def meet(self, lowered: Any, target: Any) -> None:
        """A program is about to be loaded."""
        if self._sample is None or target.info.backend != "webgpu":
            return
        graph, params = self._source
        try:
            # Runs of graphs with dims load programs, too: nothing says what these were made of.
            what = () if graph is None else (of_graph(graph, params), of_program(lowered, target))
        except OpaqueError:
            what = ()
        # Nobody would see that a thread of the test's own has ended.
        self.compiles(*(what if current_thread() is main_thread() else ()))

    def compiles(self, *what: Any) -> None:
        """The sample is about to compile something: counts it, and ends the sample where the record has it.

        Args:
            what: Text that says what it is; nothing for what no text describes.
        """
        if self._sample is None:
            return
        result = digest(self._sample, what) if what else ""
        self._digests.append(result)
        if len(self._digests) > 1 or result not in self.known:
            self.counts["run"] += 1
        elif int(digest(self.mode, result), 16) % AUDITED == 0:
            self.counts["audited"] += 1
        else:
            raise LeftOut

    def result(self) -> Result:
        """Returns the counts of this process, for ``add`` of another one."""
        reads = {name: sorted(names) for name, names in self.reads.items()}
        return self.counts, sorted(self.passed), reads, self.tests, self.why

    def add(self, result: Result | None) -> None:
        """Adds what another process counted. Each collects all tests, and leaves out the same ones."""
        counts, passed, reads, self.tests, self.why = result or ({}, [], {}, self.tests, self.why)
        self.passed |= set(passed)
        for name, names in reads.items():
            self.reads.setdefault(name, set()).update(names)
        self.counts = {name: n + counts.get(name, 0) for name, n in self.counts.items()}

    def text(self) -> str:
        """The counts in a line or two."""
        out, run, audited = self.counts.values()
        said = f"{run} programs of WebGPU samples ran, {out} samples were left out: they passed before with"
        said += f" the same programs; {audited} more of those ran all the same\n{self.tests} tests were left out:"
        said += " their files passed before with the same tree"
        return f"{said}\nevery sample ran: {self.why}" if self.why else said

    def write(self) -> None:
        """Writes the record of this driver."""
        write(record_of(self.header), self.header, self.lines())

    def lines(self) -> set[str]:
        """Returns the lines of a record."""
        results = set(self.passed)
        for name, names in self.reads.items():
            reads = tuple(sorted(names))
            results |= {of_tests(ROOT / "tests" / name, reads), f"{name}:{','.join(reads)}"} - {""}
        return results

    def patch(self, patch: Any) -> None:
        """Looks at what is compiled from here on."""
        compiled, programmed = Session.compile, loading.programmed
        template = wgsl._template

        @functools.wraps(compiled)
        def compile(
            session: Session, graph: Any, params: Any = None, *more: Any, **named: Any
        ) -> Any:
            if self._sample is not None:
                self._source = graph, params
            try:
                return compiled(session, graph, params, *more, **named)
            finally:
                self._source = None, None

        @functools.wraps(programmed)
        def watched(module: Any, target: Any) -> Any:
            result = programmed(module, target)
            self.meet(result, target)
            return result

        @functools.wraps(template)
        def found(name: str) -> Any:
            self.read(name.removesuffix(".wgsl"))
            return template(name)

        # A warning names the first line outside of rlx, so all count as lines of rlx.
        for wrapper in (compile, watched, found):
            code = wrapper.__code__
            wrapper.__code__ = code.replace(
                co_filename=inspect.unwrap(wrapper).__code__.co_filename
            )

        patch.setattr(Session, "compile", compile)
        patch.setattr(loading, "programmed", watched)
        patch.setattr(wgsl, "_template", found)
        patch.setattr(wgsl.environment, "find", found)


SELECTION = Selection()
