"""The Cython extensions, the packaging of shaders/, and build switches; the rest is pyproject.toml.

Switches, from the environment: ``RLX_BUILD_DEBUG=1`` turns Cython's checks on and optimisation
down; ``RLX_BUILD_SANITIZE=address,undefined`` builds with those sanitizers; ``RLX_BUILD_ANNOTATE=1``
writes Cython's annotated HTML beside the generated C in build/cython.
"""

import os
import runpy
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)  # extension sources are relative, and pip may start elsewhere

DEBUG = os.environ.get("RLX_BUILD_DEBUG") == "1"
SANITIZE = os.environ.get("RLX_BUILD_SANITIZE", "")
ANNOTATE = os.environ.get("RLX_BUILD_ANNOTATE") == "1"

# Module name -> sources; every header is a dependency of every module.
EXTENSIONS = {
    "rlx._ext.cpu": [
        "cython_src/cpu.pyx",
        "cython_src/parallel.c",
        "cython_src/kernels/isa_plain.c",
        "cython_src/kernels/isa_avx2.c",
        "cython_src/kernels/isa_avx512.c",
    ],
    "rlx._ext.webgpu_hot": ["cython_src/webgpu_hot.pyx"],
}
# What only calls others is built for size.
SMALL = {} if DEBUG or sys.platform == "win32" else {"rlx._ext.webgpu_hot": ["-Os"]}
# Copies of code that gain no speed here: loops for strides of one, functions that do not ask to be
# inline, short loops with every trip written out (a pragma asks for it where it counts), padding. Other
# compilers than GCC know no such flags.
COMPILER = os.environ.get("CC") or sysconfig.get_config_var("CC") or ""
GCC = sys.platform == "linux" and "clang" not in COMPILER
SLIM = (
    "-fno-version-loops-for-strides -fno-split-loops -fno-ipa-cp-clone -fno-inline-functions "
    "--param=max-completely-peeled-insns=60 -falign-jumps=1 -falign-labels=1"
).split()
# Loops as vectors, without what -O3 adds: it makes the kernels a third larger and no faster, since those
# loops that have to be written out say so.
OPTIMISE = "-O2 -ftree-vectorize -fvect-cost-model=dynamic -fpredictive-commoning -g0".split()
GENERATED = Path("build/generated")
HEADERS = sorted(
    str(path) for pattern in ("*.h", "*.pxd") for path in Path("cython_src").rglob(pattern)
)

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": not DEBUG,
    "embedsignature": True,
}


def flags() -> tuple[list[str], list[str]]:
    """Compiler and linker arguments."""
    if sys.platform == "win32":
        return ["/O2", "/std:c11"], []
    common = [
        "-std=gnu11",
        "-fwrapv",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-Wno-unknown-pragmas",
        # Nothing is thrown through this code, and the tables for it would be a tenth of its size.
        "-fno-asynchronous-unwind-tables",
        *(SLIM if GCC else ()),
    ]
    optimise = ["-O1", "-g"] if DEBUG else OPTIMISE if GCC else ["-O3", "-g0"]
    compile_args = [*common, "-fvisibility=hidden", *optimise]
    # No symbols, and no empty rest of a page between code and data.
    link_args = ["-Wl,-s,-z,noseparate-code"] if sys.platform == "linux" and not DEBUG else []
    if SANITIZE:
        compile_args += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
        link_args = [f"-fsanitize={SANITIZE}"]
    return compile_args, link_args


def generate() -> list[str]:
    """Writes the C side of the elementwise table; unchanged text keeps its time stamp."""
    text = runpy.run_path("rlx/ops/elementwise_table.py")["c_header"]()
    path = GENERATED / "elementwise_ops.h"
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(path)]


class BuildPackage(build_py):
    """Puts shaders/ into the package, as an archive. An editable install reads them from the checkout instead.

    Their comments and indentation, a fifth of them, are for readers of the repository.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "rlx" / "_shaders.zip"
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for source in sorted(Path("shaders").rglob("*.wgsl")):
                lines = [line.strip() for line in source.read_text(encoding="utf-8").splitlines()]
                kept = [line for line in lines if line and not line.startswith("//")]
                # A time of its own would make every build another archive.
                entry = zipfile.ZipInfo(source.relative_to("shaders").as_posix())
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, "\n".join(kept) + "\n")


def extensions() -> list[Extension]:
    """The extension modules."""
    compile_args, link_args = flags()
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
                    numpy.get_include(),
                ],
                define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                extra_compile_args=[*compile_args, *SMALL.get(name, ())],
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


setup(ext_modules=extensions(), cmdclass={"build_py": BuildPackage})
