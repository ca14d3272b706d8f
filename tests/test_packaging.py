"""The installed forms: the sdist, the wheel made from it, and rlx in a zip file and in a checkout that is not built."""

import compileall
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from python_process import run_python

import rlx
from rlx.backends.webgpu.wgsl import shader_files
from rlx.build_digest import build_digest, digest_of, module_text

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 16 << 20
BIN = "Scripts/python.exe" if os.name == "nt" else "bin/python"
GELU = """
import numpy as np, rlx
g = rlx.Graph()
x = g.input("x", (2, 3))
g.set_outputs([g.gelu(x), g.tanh(x), g.erf(x), g.softplus(x)])
for device in ("cpu", "webgpu"):
    if rlx.is_available(device):
        print(device, rlx.compile(g, device).run({"x": np.ones((2, 3), "f4")})[0].shape)
"""


def run(*command: object, cwd: Path, **env: str) -> str:
    """Runs a command that has to succeed, and returns its output."""
    texts = [str(c) for c in command]
    done = subprocess.run(texts, cwd=cwd, capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder with the sdist and the wheel made from it: those of ``script/test``, else built here."""
    arguments = os.environ.get("RLX_TEST_WHEEL")
    if arguments:
        return Path(arguments).parent
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "-n", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    """A folder with the wheel's files."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_a_build_takes_the_modules_of_a_wheel_of_the_same_sources(dist, wheel, unpacked, tmp_path):
    shutil.unpack_archive(next(dist.glob("*.tar.gz")), tmp_path)
    (root,) = tmp_path.iterdir()
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "made"]
    run(*command, cwd=root, RLX_BUILD_FROM=str(wheel))
    results = [
        path for path in (root / "made/rlx/_ext").iterdir() if path.suffix in (".so", ".pyd")
    ]
    assert len(results) == 4
    for path in results:
        assert path.read_bytes() == (unpacked / "rlx/_ext" / path.name).read_bytes()
    # With other sources they have to be compiled; asking for the version does not compile them.
    with (root / "rlx/version.py").open("a") as file:
        file.write("# changed\n")
    done = run_python("setup.py", "--version", cwd=root, env={"RLX_BUILD_FROM": str(wheel)})
    assert "was built from other sources: compiling" in done.stderr


def test_the_suite_runs_on_the_installed_wheel():
    """``script/test`` says so by RLX_TEST_WHEEL; nothing of the checkout may be imported then."""
    package = Path(rlx.__file__).resolve().parent
    if not os.environ.get("RLX_TEST_WHEEL"):
        assert package in (ROOT / "rlx", Path(sysconfig.get_path("platlib")) / "rlx")
        return
    assert package == Path(sysconfig.get_path("platlib")).resolve() / "rlx"
    assert ROOT not in [Path(folder).resolve() for folder in sys.path]


def test_contents_and_size(wheel, unpacked):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        installed = sum(item.file_size for item in archive.infolist())
    print(f"wheel {wheel.stat().st_size} bytes, installed {installed} bytes")
    assert installed < LIMIT
    assert "rlx/py.typed" in names
    assert "rlx/_wgpu_types.py" in names
    for stub in ("_ext/cpu.pyi", "ir/builders.pyi", "ops/__init__.pyi", "signal/__init__.pyi"):
        assert f"rlx/{stub}" in names
    assert not [n for n in names if n.endswith((".c", ".pyx", ".h")) or n.startswith("cython_src")]
    # The shaders are the files of the checkout, byte for byte.
    sources = sorted(path for path in (ROOT / "shaders").rglob("*.wgsl"))
    assert [path.relative_to(ROOT / "shaders").as_posix() for path in sources] == shader_files()
    for source in sources:
        packaged = unpacked / "rlx/_shaders" / source.relative_to(ROOT / "shaders")
        assert packaged.read_bytes() == source.read_bytes(), source


def test_one_wheel_for_all_versions_of_python(wheel, unpacked):
    """Its modules use the limited API of CPython 3.11. Pythons without the GIL have none."""
    modules = [
        path.name for path in (unpacked / "rlx/_ext").iterdir() if path.suffix in (".so", ".pyd")
    ]
    assert sorted(name.partition(".")[0] for name in modules) == [
        "cpu",
        "locks",
        "program",
        "webgpu_hot",
    ]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert sysconfig.get_config_var("SOABI") in wheel.name
        return
    assert "-cp311-abi3-" in wheel.name
    suffix = ".pyd" if os.name == "nt" else ".abi3.so"
    assert all(name.partition(".")[2] == suffix[1:] for name in modules)


@pytest.mark.skipif(sys.platform != "linux", reason="ELF files")
def test_a_backtrace_and_perf_find_functions(unpacked):
    """The compiled modules keep unwind tables, and names and lines of functions."""
    for module in (unpacked / "rlx/_ext").glob("*.so"):
        raw = module.read_bytes()
        for section in (b".eh_frame\0", b".symtab\0", b".debug_line\0"):
            assert section in raw, f"{module.name} has no {section!r}"
    assert b"kernel_softmax_f32" in next((unpacked / "rlx/_ext").glob("cpu*.so")).read_bytes()


def test_the_sdist_holds_what_git_tracks(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        stored = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    left_out = {name for name in tracked if name not in stored}
    only_for_the_repository = {name for name in tracked if name.startswith((".git", ".ci/"))}
    assert left_out <= only_for_the_repository


def test_installed_wheel_runs(unpacked, tmp_path):
    """A fresh environment finds shaders and data in the installation, with warnings as errors."""
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / BIN
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", where, cwd=tmp_path).strip())
    for item in unpacked.iterdir():
        shutil.copytree(item, site / item.name)
    # The dependencies are those of this environment; rlx itself comes first on the path.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    said = run(python, "-W", "error", "-c", GELU + "print(rlx.__file__)", cwd=tmp_path)
    assert str(site) in said
    assert "cpu (2, 3)" in said


PLUGIN = """
import sys
from importlib.machinery import SourceFileLoader

def test_plain(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("rlx")
    assert not {"rlx.ir", "rlx.regress"} & sys.modules.keys()
    import rlx.ir
    assert type(rlx.ir.__loader__) is SourceFileLoader, "pytest rewrites rlx, which makes the import slow"

def test_fixture(rlx_regress):
    import numpy as np
    import rlx
    g = rlx.Graph()
    g.set_outputs([g.tanh(g.input("x", (3,)))])
    with rlx.compile(g, "cpu") as cg:
        assert rlx_regress(cg, np.ones(3, "f4"))[0].shape == (3,)
"""


def test_pytest_finds_the_plug_in(unpacked, tmp_path):
    """Its entry point is in the wheel, and other projects' tests start as before."""
    (tmp_path / "test_plugin.py").write_text(PLUGIN)
    dependencies = sysconfig.get_path("purelib")
    options = ("-q", "-p", "no:cacheprovider", "test_plugin.py")
    path = os.pathsep.join([str(unpacked), dependencies])
    said = run(sys.executable, "-m", "pytest", *options, cwd=tmp_path, PYTHONPATH=path)
    assert "2 passed" in said


def test_from_a_zip_file(unpacked, tmp_path):
    """Programs are frozen with their Python files in an archive and the compiled modules beside it."""
    archive = tmp_path / "library.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted((unpacked / "rlx").rglob("*")):
            if path.suffix not in (".so", ".pyd") and path.is_file():
                packed.write(path, path.relative_to(unpacked).as_posix())
    program = f"""
import importlib.machinery, importlib.util, pathlib, sys
class Beside:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("rlx._ext."):
            (file,) = pathlib.Path({str(unpacked / "rlx/_ext")!r}).glob(name.rpartition(".")[2] + ".*[od]")
            loader = importlib.machinery.ExtensionFileLoader(name, str(file))
            return importlib.util.spec_from_file_location(name, file, loader=loader)
sys.meta_path.insert(0, Beside())
sys.path.insert(0, {str(archive)!r})
{GELU}
from rlx.cli.eeg import load_recording
print(rlx.__file__, load_recording().samples.shape)
"""
    said = run(sys.executable, "-W", "error", "-c", program, cwd=tmp_path)
    assert str(archive) in said
    assert "(64, 9600)" in said
    assert "cpu (2, 3)" in said


@pytest.fixture(scope="module")
def compiled_only(unpacked, tmp_path_factory):
    """The package of the wheel with compiled Python files in place of their sources."""
    target = tmp_path_factory.mktemp("frozen") / "rlx"
    shutil.copytree(unpacked / "rlx", target)
    assert compileall.compile_dir(target, quiet=2, legacy=True, workers=1)
    for source in target.rglob("*.py"):
        source.unlink()
    return target


def frozen(compiled_only, folder, digest):
    """rlx as a frozen program has it: compiled Python files only, and the digest of a build or none."""
    target = folder / f"app-{digest}"
    shutil.copytree(compiled_only, target / "rlx")
    source = target / "rlx/_build.py"
    source.write_text(f"DIGEST = {digest!r}\n")
    assert compileall.compile_file(source, quiet=2, legacy=True, force=True)
    source.unlink()
    return target


STATS = """
import sys, numpy as np, rlx
assert rlx.__file__.endswith(".pyc"), rlx.__file__
g = rlx.Graph("app")
g.set_outputs([g.tanh(g.input("x", (3,))) * 2.0])
with rlx.compile(g, "cpu") as cg:
    assert abs(cg.run({"x": np.float32([0, 1, 2])})[0][1] - 1.5231884) < 1e-5
if len(sys.argv) > 1:
    print(rlx.save_model(g, sys.argv[1], devices=["cpu"]))
print(rlx.cache_stats())
"""


def test_a_frozen_program_never_takes_plans_of_another_build(compiled_only, tmp_path):
    """Two builds share a cache folder, and neither has sources that could tell them apart."""
    for path in (tmp_path / "cache", tmp_path / "apps"):
        path.mkdir(mode=0o700)

    def started(digest, *arguments):
        # In a folder of its own: nothing but the frozen package is on the path.
        app = tmp_path / "apps" / f"app-{digest}"
        app = app if app.exists() else frozen(compiled_only, tmp_path / "apps", digest)
        env = {"RLX_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(app)}
        program = tmp_path / "program.py"
        program.write_text(STATS)
        return run(sys.executable, program, *arguments, cwd=tmp_path, **env)

    def entries():
        return len(list((tmp_path / "cache").glob("*.rlxc")))

    assert "lowered=1" in (first := started("a" * 64))
    assert "stored=1" in first
    assert "disk_hits=1" in started("a" * 64)
    other = started("b" * 64)
    assert "disk_hits=0" in other
    assert "lowered=1" in other
    assert entries() == 2
    # Without a digest nothing is taken and nothing is left.
    for _ in range(2):
        none = started(None, tmp_path / "model.rlx")
        assert "disk_hits=0" in none
        assert "stored=0" in none
        assert "unidentified=1" in none
        assert "without its digest" in none
    assert entries() == 2


def test_the_digest_of_a_build(unpacked, dist, tmp_path):
    """The wheel, the sdist that it was made from and the checkout agree; a changed source has another one."""
    text = (unpacked / "rlx/_build.py").read_text()
    (sdist,) = dist.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path)
    (source,) = tmp_path.iterdir()
    result = digest_of(source)
    assert text == module_text(result)
    assert result == digest_of(ROOT)
    for name in (
        "rlx/ops/products/matmul.py",
        "cython_src/kernels/rows/rows.h",
        "shaders/products/matmul.wgsl",
        "setup.py",
    ):
        path = source / name
        retained = path.read_bytes()
        path.write_bytes(retained + b"\n")
        assert digest_of(source) != result, name
        path.write_bytes(retained)
    assert digest_of(source) == result


def test_a_checkout_reads_its_sources():
    if not os.environ.get("RLX_TEST_WHEEL"):
        build_digest.cache_clear()
        assert build_digest() == digest_of(ROOT)


def test_microsofts_compiler_is_refused_with_advice():
    program = """
import runpy, sys
from types import SimpleNamespace
from setuptools import Distribution, Extension
sys.argv = ["setup.py", "--version"]
command = runpy.run_path("setup.py")["BuildExtensions"](Distribution())
command.compiler = SimpleNamespace(compiler_type="msvc")
command.build_extension(Extension("rlx.nothing", []))
"""
    done = run_python("-c", program, cwd=ROOT, status=1)
    assert "set CC=python -m ziglang cc" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_checkout_that_is_not_built_says_what_to_do(tmp_path):
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT / "rlx", tmp_path / "rlx", ignore=ignored)
    for arguments in (("-c", "import rlx"), ("-m", "rlx", "devices")):
        done = run_python(*arguments, cwd=tmp_path, status=1)
        last = done.stderr.strip().splitlines()[-1]
        assert "not built" in last
        assert "pip install -e ." in last
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_checkout_and_its_sdist_build_the_same_wheel(wheel, tmp_path):
    """Every file is equal, the compiled modules too, though they are built in different folders."""
    source = tmp_path / "source"
    for name in run("git", "ls-files", cwd=ROOT).splitlines():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        tmp_path,
        source,
        cwd=tmp_path,
    )
    stored = []
    for path in (wheel, next(tmp_path.glob("*.whl"))):
        with zipfile.ZipFile(path) as archive:
            stored.append({name: archive.read(name) for name in archive.namelist()})
    assert stored[0].keys() == stored[1].keys()
    assert [name for name in stored[0] if stored[0][name] != stored[1][name]] == []


def copy_of_the_checkout(target):
    """Copies the tracked files and an editable install's build, with time stamps so that nothing is compiled again."""
    results = [*(ROOT / "rlx/_ext").glob("*.so"), *(ROOT / "rlx/_ext").glob("*.pyd")]
    results += [
        p for part in ("cython", "generated") for p in (ROOT / "build" / part).rglob("*.[ch]")
    ]
    names = [
        *run("git", "ls-files", cwd=ROOT).splitlines(),
        *(p.relative_to(ROOT) for p in results),
    ]
    for name in names:
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_type_checkers_follow_an_editable_install(tmp_path):
    """mypy and pyright find a checkout that ``pip install -e`` installed, from a folder outside of it."""
    source, outside = tmp_path / "source", tmp_path / "outside"
    copy_of_the_checkout(source)
    with (source / "rlx/__init__.py").open("a") as file:
        file.write("\nFOUND_IN_THE_CHECKOUT: int = 1\n")
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / BIN
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", where, cwd=tmp_path).strip())
    # Everything else is that of this environment, and rlx in its checkout comes first on the path.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python)
    install = ("install", "-q", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, *install, "--force-reinstall", "-e", source, cwd=tmp_path)

    outside.mkdir()
    (outside / "use.py").write_text(
        "import rlx\nfrom rlx import pytest_plugin\n\n"
        "found: int = rlx.FOUND_IN_THE_CHECKOUT\nplug_in = pytest_plugin.rlx_regress\n"
    )
    assert str(source) in run(python, "-c", "import rlx; print(rlx.__file__)", cwd=outside)
    checker = (sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "mypy")
    assert "no issues" in run(*checker, "--python-executable", python, "use.py", cwd=outside)
    checker = (sys.executable, "-m", "pyright", "--pythonpath", python)
    assert "0 errors, 0 warnings" in run(*checker, "use.py", cwd=outside)
