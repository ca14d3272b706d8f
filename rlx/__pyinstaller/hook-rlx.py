"""A frozen program gets the kernels of both devices, and nothing of the command line."""

from importlib.util import find_spec
from pathlib import Path

from PyInstaller.utils.hooks import collect_submodules, copy_metadata

from rlx.backends.webgpu.wgsl import shader_files, shader_place

# Backends are imported by name when a device is first asked for, and compiled modules import each other.
hiddenimports = [
    *collect_submodules("rlx.backends"),
    *collect_submodules("rlx._ext"),
    *collect_submodules(
        "rlx._templates"
    ),  # none in a checkout, whose templates Jinja compiles when they are used
    "rlx.calibrate.measurer",
]
# The version of wgpu is a part of what tells one cache entry from another.
datas = copy_metadata("rlx") + copy_metadata("wgpu")
# In a checkout the shaders lie beside the package.
place = Path(str(shader_place()))
datas += [(str(place / name), str(Path("rlx/_shaders", name).parent)) for name in shader_files()]
# A profile prints itself as plain text where rich is absent.
excludedimports = ["rlx.cli", "rlx.regress", "rlx.__main__", "rich"]
if find_spec("rlx._templates") is not None:
    excludedimports += ["jinja2"]
