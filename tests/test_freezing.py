"""Frozen programs: the hook for PyInstaller, and what they go without."""

import ast
import base64
import json
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from frozen import alone, freeze, packaged
from onnx import helper

import rlx
from rlx import lazy_imports
from rlx.importers.onnx.operator_index import MODULES
from rlx.ir.op_index import MODULE_OF
from rlx.passes.patterns import PATTERNS

PROGRAM = """
import base64, importlib.util, json, sys
import numpy as np
import rlx
from rlx.licenses import licenses, notices

g = rlx.Graph("app")
x = g.input("x", (4, 8))
g.set_outputs([g.softmax(x @ g.constant(np.eye(8, dtype=np.float32)), axis=-1)])
data = np.arange(32, dtype=np.float32).reshape(4, 8) / 8
wanted = np.exp(data) / np.exp(data).sum(-1, keepdims=True)
found = {"frozen": getattr(sys, "frozen", False), "errors": {}}
for device in [*map(str, rlx.available_devices()), "auto"]:
    with rlx.compile(g, device=device) as cg:
        found["errors"][device] = float(np.abs(cg.run({"x": data})[0] - wanted).max())
        found["profile"] = str(cg.profile())
found["welch"] = [rlx.signal.welch(np.ones(n, np.float32), nperseg=64)[1].shape for n in (500, 600, 700, 800)]
with rlx.onnx.Model(base64.b64decode("MODEL"), device="cpu") as model:
    found["onnx"] = model.run(np.array([[[-1, 0, 2]]], np.float32))[0].ravel().tolist()
found["licenses"] = [[one.name, one.inside, one.license, len(one.texts)] for one in licenses()]
found["notices"] = notices()
names = ("rich", "pygments", "markdown_it", "mdurl", "msgspec", "ruptures", "scipy", "rlx.cli", "rlx.regress")
found["carried"] = [name for name in names if importlib.util.find_spec(name)]
found["modules"] = sorted({name.split(".")[0] for name in sys.modules})
found["ours"] = sorted(name for name in sys.modules if name.startswith("rlx."))
print(json.dumps(found))
"""


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_a_profile_prints_without_rich(monkeypatch, device, webgpu):
    g = rlx.Graph()
    g.set_outputs([g.tanh(g.input("x", (4, 4)))])
    with rlx.compile(g, device) as cg:
        cg.run_slots(np.zeros((4, 4), np.float32))
        profile = cg.profile()
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    title, headings, *rows, peaks = str(profile).splitlines()
    assert title.startswith(f"{device}")
    assert headings.split()[:3] == ["op", "calls", "us"]
    assert len({len(row) for row in rows}) == 1
    assert any("tanh" in row for row in rows)
    assert "peak" in peaks


def test_the_hook_is_announced():
    """PyInstaller finds it by an entry point, and it is a file of that folder."""
    (point,) = [
        point
        for point in metadata.entry_points(group="pyinstaller40")
        if point.value.startswith("rlx.")
    ]
    (folder,) = point.load()()
    assert (Path(folder) / "hook-rlx.py").is_file()


def test_modules_that_are_only_named_are_in_the_hook():
    """PyInstaller follows imports. What a lower floor asks for by name is imported by nothing, perhaps."""
    package = Path(rlx.__file__).parent
    imported = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module)
    hook = (package / "__pyinstaller/hook-rlx.py").read_text("utf-8")
    named = {module for module, _ in lazy_imports._named.values()}
    # ``rlx.signal.composites`` imports the modules of all operations.
    named |= {module for module in MODULE_OF.values() if not module.startswith("rlx.ops.")}
    assert "rlx.signal.composites" in named - imported
    assert {module for module in named - imported if f'"{module}"' not in hook} == set()
    # Operators of ONNX and patterns are imported by the names of their modules, which the hook takes all of.
    assert all(module.startswith("rlx.importers.onnx.ops.") for module, _, _ in MODULES)
    assert {PATTERNS[0].match.__module__, PATTERNS[-1].match.__module__} - imported
    for folder in ("rlx.importers.onnx.ops", "rlx.passes.patterns"):
        assert f'collect_submodules("{folder}")' in hook


def two_domains():
    """A model with operators of two domains, in base64."""
    nodes = [
        helper.make_node("Abs", ["x"], ["y"]),
        helper.make_node("BiasAdd", ["y", "b", "b"], ["z"], domain="com.microsoft"),
    ]
    ports = [helper.make_tensor_value_info(name, 1, [1, 1, 3]) for name in "xz"]
    zeros = helper.make_tensor("b", 1, [3], [0.0] * 3)
    graph = helper.make_graph(nodes, "two", ports[:1], ports[1:], [zeros])
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    result = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return base64.b64encode(result.SerializeToString()).decode()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["--onedir", "--onefile"])
def test_a_frozen_program_runs(form, tmp_path, webgpu):
    """In an empty environment, from an empty folder, with nothing cached, on every device."""
    (tmp_path / "app.py").write_text(PROGRAM.replace("MODEL", two_domains()))
    result = freeze(tmp_path / "made", tmp_path / "app.py", form, site=packaged(tmp_path / "build"))
    for _ in range(2):  # with nothing cached, then with what the first run cached
        program = result / ("app/app" if form == "--onedir" else "app")
        output = json.loads(alone([program], tmp_path / "home").stdout)
        assert output["frozen"]
        assert {"cpu", "webgpu", "auto"} <= output["errors"].keys()
        assert max(output["errors"].values()) < 1e-6
        assert "softmax" in output["profile"]
        assert np.allclose(output["onnx"], [1, 0, 2])
        assert not {"rich", "scipy", "onnx", "matplotlib", "pygments"} & {*output["modules"]}
        assert not [name for name in output["ours"] if name.startswith(("rlx.cli", "rlx.regress"))]
        check_carried(output)
    if form == "--onedir":
        names = {path.name.lower().partition("-")[0] for path in (result / "app").rglob("*")}
        assert {"rlx", "numpy", "wgpu", "libscipy_openblas64_"} <= names
        assert not names & COMMAND_LINE
        check_without_parts(program, tmp_path / "home")


def check_without_parts(program, home):
    """A frozen program that lacks the shaders, and then wgpu's library, goes on without its GPU."""
    inside = program.parent / "_internal"
    shutil.rmtree(inside / "rlx/_shaders")
    done = alone([program], home)
    assert json.loads(done.stdout)["errors"].keys() == {"cpu", "auto"}
    assert done.stderr.count("RuntimeWarning") == 1
    assert "the WGSL shaders are missing" in done.stderr
    (library,) = (inside / "wgpu").rglob("*wgpu_native*.*")
    library.unlink()
    assert json.loads(alone([program], home).stdout)["errors"].keys() == {"cpu", "auto"}


# Packages that only the command line uses, and their dependencies.
COMMAND_LINE = {"rich", "pygments", "markdown_it", "markdown_it_py", "mdurl", "msgspec", "ruptures"}


def check_carried(result):
    """The licences of all that is there, with their texts, and none of the command line's libraries."""
    assert result["carried"] == []
    rows = {
        name.lower(): (inside, terms, texts) for name, inside, terms, texts in result["licenses"]
    }
    wanted = {"rlx", "python", "numpy", "wgpu", "cffi", "pycparser", "platformdirs"}
    assert wanted <= rows.keys()
    assert not rows.keys() & (COMMAND_LINE | {"markdown-it-py", "jinja2"})
    for name, (inside, terms, texts) in rows.items():
        assert terms, name
        assert bool(texts) == (not inside), name
    assert rows["wgpu-native"][0] == "wgpu"
    assert rows["openblas"][0] == "numpy"
    for text in (
        "Apache License",
        "PYTHON SOFTWARE FOUNDATION LICENSE",
        "NumPy Developers",
        "OpenBLAS",
    ):
        assert text in result["notices"], text


# The constant is folded when the graph is compiled, so a cached graph holds it.
UPDATED = """
import json
import numpy as np
import rlx

g = rlx.Graph("app")
folded = g.tanh(g.constant(np.ones(8, np.float32)))
g.set_outputs([g.input("x", (8,)) + folded, g.softmax(g.input("y", (300, 4)), axis=0)])
given = {"x": np.zeros(8, np.float32), "y": np.zeros((300, 4), np.float32)}
found = {}
for device in ("cpu", "webgpu"):
    with rlx.compile(g, device) as cg:
        folded, rows = cg.run(given)
        found[device] = [float(folded[0]), float(rows.sum(0)[0])]
stats = rlx.cache_stats()
print(json.dumps(found | {name: getattr(stats, name) for name in ("disk_hits", "lowered", "stored")}))
"""
# A later build, in which tanh and the GPU's softmax give twice as much.
EDITS = (
    ("rlx/ops/elementwise/table.py", 'np.tanh, "safe_tanh(x)"', 'lambda x: 2 * np.tanh(x), "safe_tanh(x)"'),
    ("shaders/rows/softmax.wgsl", "1.0 / part[0]", "2.0 / part[0]"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_update_over_an_old_cache_folder(tmp_path, webgpu):
    """Two builds of one version share a cache folder: each finds its own entries, and never the other's."""
    (tmp_path / "app.py").write_text(UPDATED)
    programs = {
        name: freeze(tmp_path / name, tmp_path / "app.py", site=packaged(tmp_path / f"{name} built", edits))
        for name, edits in (("old", ()), ("new", EDITS))
    }  # fmt: skip
    once = float(np.tanh(np.float32(1)))
    results = {
        "old": {"cpu": [once, 1.0], "webgpu": [once, 1.0]},
        "new": {"cpu": [2 * once, 1.0], "webgpu": [2 * once, 2.0]},
    }
    fresh, retained = (
        {"disk_hits": 0, "lowered": 2, "stored": 2},
        {"disk_hits": 2, "lowered": 0, "stored": 0},
    )
    # An update, and a user who goes back to the version before.
    for name, counts in (
        ("old", fresh), ("old", retained), ("new", fresh), ("new", retained), ("old", retained), ("new", retained),
    ):  # fmt: skip
        result = json.loads(alone([programs[name] / "app/app"], tmp_path / "home").stdout)
        assert {count: result.pop(count) for count in counts} == counts, name
        for device, wanted in results[name].items():
            np.testing.assert_allclose(result[device], wanted, rtol=1e-6, err_msg=name)
    entries = list((tmp_path / "home").rglob("*.rlxc"))
    assert len(entries) == 4
    # An entry that nothing used for long goes when the next one is stored.
    for entry in entries:
        os.utime(entry, (1, 1))
    alone([programs["new"] / "app/app"], tmp_path / "home", RLX_WEBGPU_DEFAULT_LIMITS="1")
    left = list((tmp_path / "home").rglob("*.rlxc"))
    assert 0 < len(left) < 4, [path.name for path in left]
