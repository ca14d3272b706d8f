"""A frozen program gets the kernels of both devices, and nothing of the command line."""

from importlib.util import find_spec
from pathlib import Path

from PyInstaller.utils.hooks import collect_submodules, copy_metadata

from rlx.backends.webgpu.wgsl import shader_files, shader_place
from rlx.licenses import PYTHON_LICENSE, python_license_file, requirements

# Backends are imported by name when a device is first asked for, files of ONNX operators when a model has one of
# theirs, patterns when a graph may have one, and compiled modules import each other.
# In a checkout there are no compiled templates and C types: Jinja and cffi compile each when it is used.
compiled = collect_submodules("rlx._templates")
types = ["rlx._wgpu_types"] if find_spec("rlx._wgpu_types") else []
hiddenimports = [
    *collect_submodules("rlx.backends"),
    *collect_submodules("rlx._ext"),
    *collect_submodules("rlx.importers.onnx.ops"),
    *collect_submodules("rlx.passes.patterns"),
    *compiled,
    *types,
    # Named by strings alone, and imported by nothing.
    "rlx.calibrate.measurer",
    "rlx.signal.composites",
]
# Packages that the program does not need: only reports and the command line use them.
left_out = ["rich", "jinja2"] if compiled else ["rich"]
# The bundled distributions, with the licences: rlx.licenses reads them, and the version of wgpu tells one cache entry
# from another.
datas = [pair for name in requirements("rlx", left_out) for pair in copy_metadata(name)]
if python_license_file().is_file():
    datas += [(str(python_license_file()), str(Path("rlx", *PYTHON_LICENSE).parent))]
# In a checkout the shaders lie beside the package.
place = Path(str(shader_place()))
datas += [(str(place / name), str(Path("rlx/_shaders", name).parent)) for name in shader_files()]
# A profile prints itself as plain text where rich is absent.
excludedimports = ["rlx.cli", "rlx.regress", "rlx.pytest_plugin", "rlx.__main__", *left_out]
