"""The sdist, the wheel made from it, and an installation of that wheel."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from rlx.backends.webgpu.wgsl import shader_files

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 3 << 20
PROGRAM = """
import numpy as np, rlx
from rlx.backends.webgpu.wgsl import shader_names, shader_place
assert shader_place().name == "_shaders.zip", shader_place()
g = rlx.Graph()
g.set_outputs([g.gelu(g.input("x", (2, 3)) @ g.param("w", (3, 4)))])
cg = rlx.compile(g, "cpu", params={"w": np.ones((3, 4))})
print(rlx.__file__, len(shader_names()), cg.run({"x": np.ones((2, 3), "f4")})[0].shape)
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from the sdist of a clean copy of what git tracks."""
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    for name in tracked:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", folder, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, "-w", folder, sdist, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_contents_and_size(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        installed = sum(item.file_size for item in archive.infolist())
        with archive.open("rlx/_shaders.zip") as shaders, zipfile.ZipFile(shaders) as inner:
            assert sorted(inner.namelist()) == shader_files()
    print(f"wheel {wheel.stat().st_size} bytes, installed {installed} bytes")
    assert wheel.stat().st_size < LIMIT
    assert installed < LIMIT
    assert "rlx/py.typed" in names
    assert "rlx/_ext/cpu.pyi" in names
    assert not [n for n in names if n.endswith((".c", ".pyx", ".h")) or n.startswith("cython_src")]


def test_installed_wheel_runs(wheel, tmp_path):
    environment = tmp_path / "venv"
    venv.create(environment)
    python = environment / "bin" / "python"
    site = Path(
        run(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
        ).strip()
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The dependencies are those of this environment; rlx itself comes first on the path.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert str(site) in run(python, "-W", "error", "-c", PROGRAM, cwd=tmp_path)
