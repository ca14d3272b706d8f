"""Every record is whole, every kernel it names exists, and no kernel is left without an op."""

import ast
from pathlib import Path

import pytest
from python_process import run_python
from samples import looped

import rlx
from rlx._ext import cpu
from rlx.backends.webgpu import elementwise_wgsl
from rlx.backends.webgpu.wgsl import shader_files, shader_paths, shader_text
from rlx.ir.op_index import MODULE_OF
from rlx.ir.opdef import REGISTRY
from rlx.ir.shape import HOST_CONTROL, READ_SIZE, is_sized
from rlx.ops.conformance_cases import cases
from rlx.ops.elementwise.table import loop_names
from rlx.ops.placeholders import LEAVES

OPS = [op for op in REGISTRY.values() if op.name not in (*LEAVES, "part")]


@looped("op", OPS, ids=lambda op: op.name)
def test_record(op):
    assert op.doc
    assert callable(op.reference)
    assert callable(op.flops)
    if op.name in (READ_SIZE, *HOST_CONTROL):
        return  # the compiler makes segments of them: no backend has kernels (tests/test_data_sizes.py)
    assert len(op.samples) >= 3
    sizes = set()
    for case in cases(only=op.name):
        graph = case.graph()
        ends = [node.type for node in graph.outputs]
        ends += [node.type for node in graph.nodes if node.op == "input"]
        ends = [type for type in ends if not is_sized(type)]
        sizes |= {min(type.size, 2) for type in ends}
        sizes |= {1 for type in ends if 1 in type.shape}
    # A scalar without operands is never empty.
    assert sizes >= ({1} if op.name == "size" else {0, 1}), (
        "no empty sample, or none with a dimension of 1"
    )
    assert op.view or op.expand or op.cpu is not None
    assert op.view or op.expand or op.webgpu is not None or op.host_reason


# Kernels of the CPU program itself: they depend on no dtype.
UNTYPED = {"python"}


@looped("op", OPS, ids=lambda op: op.name)
def test_kernel_names_resolve(op):
    kernels = {*cpu.kernels("plain"), *UNTYPED}
    for name in op.cpu.names if op.cpu else ():
        # Some kernels are chosen by another operand than the main one.
        typed = [k for k in kernels if k == name or k.rpartition("_")[0] == name]
        assert typed, f"{op.name}: no {name}"
    for name in op.webgpu.names if op.webgpu else ():
        assert name in shader_paths()


def test_no_orphan_kernels():
    named = {name for op in OPS if op.cpu for name in op.cpu.names}
    named.add("winograd_filters")  # packs the weights of winograd_last
    for exported in cpu.kernels("plain"):
        base = exported.rsplit("_", 1)[0]
        used = exported == "elementwise" or {base, exported} & named
        assert used, f"no op uses the kernel {exported}"
    shaders = {name for op in OPS if op.webgpu for name in op.webgpu.names}
    assert set(shader_paths()) <= shaders


@pytest.mark.parametrize("isa", cpu.isas())
def test_every_instruction_set_has_every_kernel(isa):
    # A way of its own beside the kernel that every set has.
    has_dots, has_mmla = isa != "plain", isa == "neon"
    names = ("matmul_integer", "dequant_matmul_f32", "dequant_products_f32")
    ways = {f"{name}_dots" for name in names} if has_dots else set()
    ways |= {"matmul_integer_mmla"} if has_mmla else set()
    ways |= (
        {f"{name}_tiles" for name in (*names[1:], "round_rows_f32", "matmul_f32", "matmul_f64")}
        if isa == "avx512"
        else set()
    )
    assert cpu.kernels(isa).keys() == cpu.kernels("plain").keys() | ways
    assert sorted(cpu.loops(isa)) == sorted(loop_names())


@looped("op", [op for op in OPS if not op.internal], ids=lambda op: op.name)
def test_builders_are_derived(op):
    assert getattr(rlx.Graph, op.name).__doc__ == op.doc
    assert getattr(rlx.ops, op.name).__doc__ == op.doc


def test_no_orphan_shader_libraries():
    files = shader_files()
    sources = [shader_text(name) for name in files]
    package = Path(elementwise_wgsl.__file__).parent
    sources += [path.read_text() for path in package.glob("*.py")]
    for name in files:
        wanted = (name, f'"{name.removesuffix(".wgsl")}"')
        used = not name.startswith("lib/") or any(
            item in text for text in sources for item in wanted
        )
        assert used, f"no shader includes {name}"


def test_every_module_of_records_is_imported_by_name():
    """Tools that freeze programs read imports: those of ``rlx.ops.all_ops``."""
    folder = Path(rlx.ops.__file__).parent
    files = [path for path in folder.rglob("*.py") if "\n@op(" in path.read_text()]
    modules = {
        f"rlx.ops.{path.relative_to(folder).with_suffix('')}".replace("/", ".") for path in files
    }
    imports = [
        node
        for node in ast.parse((folder / "all_ops.py").read_text()).body
        if isinstance(node, ast.ImportFrom)
    ]
    imported = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    assert modules <= imported
    assert set(MODULE_OF.values()) <= imported | {"rlx.signal.composites"}


def test_every_operation_is_found_by_its_name_alone():
    """In a process of its own: importing the module that the table names registers it."""
    code = """
import sys
from rlx.ir.opdef import REGISTRY, lookup
from rlx.ir.op_index import MODULE_OF, INTERNAL
for name in sys.argv[1:]:
    assert lookup(name).name == name and name in REGISTRY
    assert lookup(name).internal == (name in INTERNAL)
known = [name for name in MODULE_OF if name in REGISTRY._records]
assert "rlx.ops.all_ops" not in sys.modules or set(sys.argv[1:]) & {"stft", "istft"}, known
"""
    names = list(MODULE_OF)
    assert names == [name for name in REGISTRY if name in MODULE_OF]
    for index in range(0, len(names), 40):
        run_python("-c", code, *names[index : index + 40])


def test_threads_may_name_an_operation_first_at_the_same_time():
    """One imports it, slowed down here; the others wait until its module is complete."""
    code = """
import threading, time
import rlx
from rlx.ir import opdef
from rlx.ops import declare

def slow(owner, name):
    function = getattr(owner, name)
    def slower(*args, **kwargs):
        made = function(*args, **kwargs)
        time.sleep(0.01)
        return made
    setattr(owner, name, slower)

slow(opdef.Registry, "add")
slow(declare, "attach")
failed = []

def build(name):
    try:
        g = rlx.Graph()
        g.set_outputs([getattr(g, name)(g.input("x", (4, 4)))])
    except Exception as error:
        failed.append(f"{name}: {error!r}"[:200])

for name in ("softmax", "gelu", "sort", "mish", "rfft", "trilu", "l2_normalize"):
    threads = [threading.Thread(target=build, args=(name,)) for _ in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.004)
    for thread in threads:
        thread.join()
assert not failed, failed
"""
    run_python("-c", code)


def test_what_is_imported_for_a_few_operations():
    """The modules of others are not."""
    code = """
import sys
import rlx
g = rlx.Graph()
g.set_outputs([g.gelu(g.input("x", (2,)) * 2.0)])
rlx.compile(g, "cpu").run({"x": [1.0, 2.0]})
print(*sorted(name for name in sys.modules if name.startswith("rlx.ops.")))
"""
    imported = run_python("-c", code).stdout.split()
    for absent in ("all_ops", "recurrent.layers", "spectra.welch", "resize.plane", "rows.sorting"):
        assert f"rlx.ops.{absent}" not in imported


def test_names_of_families_are_operations():
    """``attention`` and ``resize`` are packages, too."""
    code = """
import rlx.ops.attention.attention, rlx.ops.resize.plane
import rlx.ops
from rlx.ops import attention, resize, placeholders
for name in ("attention", "resize"):
    assert getattr(rlx.ops, name).__name__ == name and callable(getattr(rlx.ops, name))
assert callable(attention) and callable(resize) and placeholders.LEAVES
"""
    run_python("-c", code)


def test_each_kernel_has_a_name_of_its_own():
    """Kernels are found by name alone, so no two families may have a file of one name."""
    kernels = [name for name in shader_files() if not name.startswith("lib/")]
    assert len(kernels) == len(shader_paths())
