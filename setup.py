"""The Cython extensions, the packaging of shaders/, and build switches; the rest is pyproject.toml.

Switches, from the environment: ``RLX_BUILD_DEBUG=1`` turns Cython's checks on and optimisation down;
``RLX_BUILD_SANITIZE=address,undefined`` builds with those sanitizers; ``RLX_BUILD_ANNOTATE=1`` writes Cython's
annotated HTML beside the generated C in build/cython; ``RLX_BUILD_ABI3=0`` builds for this version of Python alone, in
place of CPython 3.11 and all later ones; ``RLX_BUILD_NUMPY`` is the folder of NumPy's headers for another system than
this one; ``RLX_BUILD_PROGRESS`` is a file that gets a line for each source file that is compiled, since installers hide
what a build writes; ``RLX_BUILD_FROM`` is a wheel for this system, whose modules are reused if it has the same sources.

The compiler is GCC, clang or zig, and ``CC`` names it, on every system. ``sysconfig.get_platform()`` is the system that
is built for; ``_PYTHON_HOST_PLATFORM`` makes it another one than this. ``script/portable`` builds for other systems.
"""

import functools
import importlib
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)  # extension sources are relative, and pip may start elsewhere

DEBUG = os.environ.get("RLX_BUILD_DEBUG") == "1"
SANITIZE = os.environ.get("RLX_BUILD_SANITIZE", "")
ANNOTATE = os.environ.get("RLX_BUILD_ANNOTATE") == "1"
FROM = os.environ.get("RLX_BUILD_FROM", "")
PROGRESS = os.environ.get("RLX_BUILD_PROGRESS", "")
# True if the modules use only the part of Python's API that CPython 3.11 and all later versions share. Builds
# without the GIL have no such set of functions before 3.15.
ABI3 = os.environ.get("RLX_BUILD_ABI3", "1") != "0" and not sysconfig.get_config_var(
    "Py_GIL_DISABLED"
)

WINDOWS = sysconfig.get_platform().startswith("win")
NUMPY = os.environ.get("RLX_BUILD_NUMPY") or numpy.get_include()
MSVC = """
rlx can't be built by Microsoft's compiler, which has no vector types. Set CC to clang or GCC for MinGW, or use zig:
    pip install ziglang
    set CC=python -m ziglang cc
"""

# Module name -> sources; every header is a dependency of every module.
EXTENSIONS = {
    "rlx._ext.cpu": [
        "cython_src/cpu.pyx",
        "cython_src/parallel.c",
        "cython_src/parts.c",
        "cython_src/block_packing.c",
        "cython_src/kernels/isa_plain.c",
        "cython_src/kernels/isa_neon.c",
        "cython_src/kernels/isa_avx2.c",
        "cython_src/kernels/isa_avx512.c",
    ],
    "rlx._ext.locks": ["cython_src/locks.pyx"],
    "rlx._ext.program": ["cython_src/program.pyx"],
    "rlx._ext.webgpu_hot": ["cython_src/webgpu_hot.pyx"],
}
GENERATED = Path("build/generated")
HEADERS = sorted(
    str(path) for pattern in ("*.h", "*.pxd", "*.pxi") for path in Path("cython_src").rglob(pattern)
)

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": not DEBUG,
    "embedsignature": True,
    # Importing a module that does not say so switches the GIL on in a Python that runs without it.
    "freethreading_compatible": True,
}


# One row for each flag of GCC and Clang: why it is there.
COMPILE = (
    "-std=gnu11",  # vector types and statement expressions
    "-O3",  # loops become vectors, and short ones are unrolled
    "-fwrapv",  # integers of graphs wrap around, as in NumPy
    "-fno-math-errno",  # nothing reads errno, and setting it keeps loops from becoming vectors
    "-fno-trapping-math",  # nothing reads floating-point exception flags; they keep loops scalar, too
    "-fvisibility=hidden",  # only the module's own entry is called from outside
    "-MMD",  # writes which files an object is made from
    "-g1",  # function names and lines, for perf and for backtraces; no variables
    "-Wno-unknown-pragmas",  # each compiler skips the other's
    "-Wno-pass-failed",  # clang need not tell which loops, that may be vectors, it can't make so
)


# Flags that only some compilers know; one that refuses them goes without.
IF_KNOWN = (
    # GCC 13 leaves some sums of products unfused for the sake of some processors, in one loop and not in the next.
    # The last bits of a product would then depend on how threads share it.
    "--param=avoid-fma-max-bits=0",
)


def flags() -> tuple[list[str], list[str]]:
    """Compiler and linker arguments."""
    compile_args, link_args = list(COMPILE), []
    # Debug information without the folders of this build: equal sources make equal modules.
    folders = {str(ROOT): ".", NUMPY: "numpy"}
    compile_args += [f"-ffile-prefix-map={folder}={name}" for folder, name in folders.items()]
    if DEBUG:
        compile_args += ["-O1", "-g"]
    if SANITIZE:
        compile_args += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
        link_args += [f"-fsanitize={SANITIZE}"]
    # CFLAGS of the environment stand last: a compiler takes the last of several -O.
    return [*compile_args, *os.environ.get("CFLAGS", "").split()], link_args


def signatures() -> str:
    """The C side of ``rlx/abi``, which is imported without the rest of rlx: that needs what is built here."""
    bare = ModuleType("rlx")
    bare.__path__ = ["rlx"]
    sys.modules["rlx"] = bare
    try:
        text: str = importlib.import_module("rlx.abi.header").c_header()
        return text
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "rlx"]:
            del sys.modules[name]


def generate() -> list[str]:
    """Writes the C side of tables in Python; unchanged text keeps its time stamp."""
    texts = {
        "elementwise_ops.h": runpy.run_path("rlx/ops/elementwise/table.py")["c_header"](),
        "kernel_signatures.h": signatures(),
    }
    GENERATED.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = GENERATED / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    return [str(GENERATED / name) for name in texts]


@functools.cache
def write_stubs() -> None:
    """Writes the types of the operations, and where their records are, beside the sources of rlx."""
    subprocess.run([sys.executable, "script/stubs"], check=True)


class BuildPackage(build_py):
    """Copies ``shaders/`` into the package, compiles them as templates and wgpu's C types as tables.

    It also writes which build it is.

    An editable install reads the shaders from the checkout instead.
    """

    def run(self) -> None:
        write_stubs()
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "rlx" / "_shaders"
        shutil.rmtree(target, ignore_errors=True)  # of a build before, with files that are gone
        shutil.copytree("shaders", target)
        compiled = target.parent / "_templates"
        shutil.rmtree(compiled, ignore_errors=True)
        folder = "rlx/backends/webgpu"
        environment = runpy.run_path(f"{folder}/template_runtime.py")["environment"]
        write = runpy.run_path(f"{folder}/template_compiler.py")["write"]
        write(Path("shaders"), compiled, environment.filters, environment.tests)
        # CPython 3.13 without the GIL has no cffi, and so no GPU.
        if find_spec("cffi") or not sysconfig.get_config_var("Py_GIL_DISABLED"):
            types = runpy.run_path(f"{folder}/c_types.py")
            text = types["source_of"](types["header"]())
            (target.parent / "_wgpu_types.py").write_text(text, encoding="utf-8", newline="\n")
        result = runpy.run_path("rlx/build_digest.py")
        text = result["module_text"](result["digest_of"](ROOT))
        (target.parent / "_build.py").write_text(text, encoding="utf-8", newline="\n")


class BuildProgress:
    """Says which source file is being compiled: in a terminal by one line that is rewritten, else by lines.

    Args:
        total: How many files there are.
    """

    def __init__(self, total: int) -> None:
        self._total, self._begun, self._lock = total, 0, Lock()

    def begin(self, source: str, is_compiled: bool = False) -> None:
        """The compiler begins a file, or leaves one that is compiled."""
        with self._lock:
            self._begun += 1
            verb = "keeping" if is_compiled else "compiling"
            text = f"{verb} {self._begun} of {self._total}: {Path(source).name}"
            if PROGRESS:
                with open(PROGRESS, "a") as file:
                    file.write(f"{text}\n")
            elif sys.stderr.isatty():
                last = "\n" if self._begun == self._total else ""
                print(f"\r\033[K{text}", end=last, file=sys.stderr, flush=True)
            else:
                print(text, file=sys.stderr, flush=True)


def is_compiled(target: Path, command: str) -> bool:
    """Returns whether an object was made by this command from the files that are there now.

    The compiler writes the names of these files beside the object, and ``compile_source`` writes the command.
    """
    made_from, made_by = target.with_suffix(".d"), target.with_suffix(".command")
    if not (target.exists() and made_from.exists() and made_by.exists()):
        return False
    _, _, names = made_from.read_text().replace("\\\n", " ").partition(": ")
    sources = [Path(name) for name in names.split()]
    made = target.stat().st_mtime_ns
    return made_by.read_text() == command and all(
        path.exists() and path.stat().st_mtime_ns < made for path in sources
    )


class BuildExtensions(build_ext):
    """Compiles the source files of all modules at the same time, one on each processor.

    A build in the checkout keeps the objects of files that did not change, nor any header that they include.
    """

    def finalize_options(self) -> None:
        if os.name == "nt" and self.compiler is None and os.environ.get("CC"):
            self.compiler = "mingw32"  # which is how setuptools calls all but Microsoft's
        super().finalize_options()
        self.parallel = self.parallel or len(EXTENSIONS)

    def run(self) -> None:
        if self.inplace:
            write_stubs()
        super().run()

    def get_libraries(self, extension: Extension) -> list[str]:
        """Modules of Windows name the library that has Python's functions; elsewhere the process has them."""
        version = "python3" if ABI3 else f"python3{sys.version_info.minor}"
        return [*extension.libraries, version] if WINDOWS else extension.libraries

    def get_ext_filename(self, fullname: str) -> str:
        """The name of a module's file on the system that is built for."""
        name: str = super().get_ext_filename(fullname)
        return (
            name.removesuffix(".abi3.so") + ".pyd"
            if WINDOWS and name.endswith(".abi3.so")
            else name
        )

    def copy_extensions_to_source(self) -> None:
        """Removes modules of other builds, too: Python prefers those of its own version."""
        super().copy_extensions_to_source()
        for extension in self.extensions:
            result = Path(extension.name.replace(".", "/"))
            retained = Path(self.get_ext_filename(extension.name)).name
            for path in result.parent.glob(f"{result.name}.*"):
                if path.suffix in (".so", ".pyd") and path.name != retained:
                    path.unlink()

    def build_extension(self, extension: Extension) -> None:
        if BUILT:
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(BUILT[f"rlx/_ext/{target.name}"])
            return
        if self.compiler.compiler_type == "msvc":
            raise SystemExit(MSVC)
        known = [flag for flag in IF_KNOWN if self.knows(flag)]
        # A list of its own: the modules share the first one, and are built side by side.
        extension.extra_compile_args = [*extension.extra_compile_args, *known]
        super().build_extension(extension)

    def build_extensions(self) -> None:
        """Each module has a thread, which waits for its source files; these share the processors."""
        compile_one = self.compiler.compile
        progress = BuildProgress(sum(len(extension.sources) for extension in self.extensions))

        def compile_source(source: str, **options: Any) -> list[str]:
            names = self.compiler.object_filenames([source], output_dir=options["output_dir"])
            target = Path(names[0])
            program = getattr(self.compiler, "compiler_so", "")
            command = f"{program} {options}".replace(str(ROOT), ".")
            made_by = target.with_suffix(".command")
            kept = is_compiled(target, command)
            progress.begin(source, kept)
            if not kept:
                made_by.unlink(missing_ok=True)  # a build that is stopped leaves no whole object
                compile_one([source], **options)
                made_by.write_text(command)
            return [str(target)]

        with ThreadPoolExecutor(os.cpu_count()) as pool:

            def compile_all(sources: list[str], **options: Any) -> list[str]:
                results = list(pool.map(partial(compile_source, **options), sources))
                return [name for names in results for name in names]

            self.compiler.compile = compile_all
            try:
                super().build_extensions()
            finally:
                self.compiler.compile = compile_one

    def knows(self, flag: str) -> bool:
        """Returns whether the compiler accepts a flag."""
        command = getattr(self.compiler, "compiler_so", None)
        if command is None:  # not a Unix compiler
            return False
        test = [*command, flag, "-Werror", "-fsyntax-only", "-x", "c", os.devnull]
        return subprocess.run(test, capture_output=True, check=False).returncode == 0


def built_before() -> dict[str, bytes]:
    """The modules of the wheel that ``RLX_BUILD_FROM`` names, by their paths.

    Empty where they have to be compiled: for other sources, and for builds with other switches than the wheel's.
    """
    if not FROM or not ABI3 or DEBUG or SANITIZE or ANNOTATE:
        return {}
    digests = runpy.run_path("rlx/build_digest.py")
    with zipfile.ZipFile(FROM) as wheel:
        of_the_wheel = wheel.read("rlx/_build.py").decode()
        if of_the_wheel != digests["module_text"](digests["digest_of"](ROOT)):
            print(f"{FROM} was built from other sources: compiling", file=sys.stderr)
            return {}
        names = [name for name in wheel.namelist() if name.startswith("rlx/_ext/")]
        return {name: wheel.read(name) for name in names}


def extensions() -> list[Extension]:
    """The extension modules."""
    if BUILT:
        return [
            Extension(name, sources, py_limited_api=ABI3) for name, sources in EXTENSIONS.items()
        ]
    compile_args, link_args = flags()
    macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
    macros += [("Py_LIMITED_API", "0x030B0000")] if ABI3 else []
    macros += (
        [("MS_WIN64", None)] if WINDOWS else []
    )  # Python's headers say it to Microsoft's compiler only
    depends = HEADERS + generate()
    return cythonize(
        [
            Extension(
                name,
                sources,
                include_dirs=[
                    "cython_src",
                    "cython_src/kernels",
                    str(GENERATED),
                    NUMPY,
                ],
                define_macros=macros,
                py_limited_api=ABI3,
                extra_compile_args=compile_args,
                extra_link_args=link_args,
                depends=depends,
            )
            for name, sources in EXTENSIONS.items()
        ],
        build_dir="build/cython",
        include_path=["cython_src"],
        compiler_directives=DIRECTIVES,
        annotate=ANNOTATE,
        quiet=True,
    )


BUILT = built_before()
setup(
    ext_modules=extensions(),
    cmdclass={"build_py": BuildPackage, "build_ext": BuildExtensions},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {},
)
