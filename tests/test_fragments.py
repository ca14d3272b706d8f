"""Kernels for matrix units without a device that has them: which are chosen, and what they take."""

import re
from types import SimpleNamespace

import half_graphs
import numpy as np
import pytest
import tiny_lm
from dispatches import PER_DIMENSION
from shader_sizes import threads_of

import rlx
from rlx._ext import cpu as compiled
from rlx.backends.base import CompileOptions, DeviceInfo
from rlx.backends.executable import Capabilities
from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.codegen import lower
from rlx.backends.webgpu.loop_bounds import trips_of
from rlx.backends.webgpu.sized_kernels import SizedKernels
from rlx.compiler import target
from rlx.compiler.host_sizes import on_host
from rlx.compiler.segments import cut
from rlx.compiler.target import Target
from rlx.cost.gate import IoFusionGate
from rlx.device.names import info_of
from rlx.ir.dtype import DType
from rlx.ir.fragments import ROUNDS, Fragment, fragment_limits, fragment_params
from rlx.ir.states import with_states
from rlx.ir.static_sizes import inferred_anew
from rlx.ir.variants import Choices
from rlx.lm.network import Network
from rlx.ops.attention.tiles import PREFILL
from rlx.ops.products.integer_tiles import INTEGER
from rlx.ops.products.tiles import DEQUANT, FRAGMENTS, MATMUL
from rlx.ops.windows.tiles import CONV
from rlx.passes.memory_plan import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler
from rlx.sizes import Assumptions, deciding

pytestmark = pytest.mark.by_program

# The matrix units of adapters: multiplications, bytes of workgroup memory, threads of a workgroup.
ADAPTERS = {
    "NVIDIA": ((16, 16, 16, 32), (16, 16, 32, 32), 49152, 1024),
    "Apple": ((8, 8, 8, 32), None, 32768, 1024),
    "Intel": ((8, 16, 16, 16), (8, 16, 32, 16), 32768, 1024),
    "Mesa": ((8, 8, 8, 8), (8, 8, 8, 8), 32768, 1024),
}
SIZE = re.compile(r"shared_memory: buffer<(\d+)>")


def limits_of(name):
    halves, integers, storage, threads = ADAPTERS[name]
    results = [Fragment("f16", "f32", *halves, halves[-1])]
    if integers is not None:
        results.append(Fragment("i8", "i32", *integers, integers[-1]))
    return {
        **DEFAULT_LIMITS,
        "max-compute-workgroup-storage-size": storage,
        "max-storage-buffers-per-shader-stage": 10,
        "max-compute-invocations-per-workgroup": threads,
        **fragment_limits(results, ("subgroup-size-control",)),
        ROUNDS: 1,
    }


def dispatches(graph, limits, variant=""):
    """The dispatches of a graph under ``precision="f16"`` within some limits."""

    def specialise(item):
        return run_pipeline(item, lambda option: option != "fold", "webgpu-f16")

    fused, _ = specialise(graph)
    choices = Choices(tuple([tuple(variant.split("="))] if variant else ()))
    schedule = Scheduler(fused, "webgpu-f16", limits, specialise, choices).run()
    plan = plan_memory(schedule)
    return [item for item in (lower(call, PER_DIMENSION, plan) for call in schedule.calls) if item]


def test_the_largest_fragments_of_a_known_size_are_taken():
    results = [
        Fragment("f16", "f16", 16, 16, 16, 32, 32),
        Fragment("f16", "f32", 16, 8, 8, 32, 32),
        Fragment("f16", "f32", 16, 16, 16, 32, 32),
        Fragment("f16", "f32", 32, 32, 32, 8, 32),
    ]
    fixed = fragment_params(fragment_limits(results, ()))
    assert fixed == {"fm": 16, "fn": 16, "fk": 16, "lanes": 32, "sized": 0}
    # One whose subgroups may have several sizes can be used only where a kernel can ask for a size.
    asked = fragment_params(fragment_limits(results, ("subgroup-size-control",)))
    assert asked == {"fm": 32, "fn": 32, "fk": 32, "lanes": 32, "sized": 1}
    assert fragment_params(fragment_limits((), ())) == {}


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_kind_of_product_has_a_tile_on_every_adapter(name):
    limits = limits_of(name)
    graphs = [half_graphs.product(100, 64, 72), half_graphs.product(100, 64, 72, right=True), half_graphs.gated(70, 64, 72), half_graphs.joined(40, 64, (32, 48)),
              half_graphs.attention(*(((1, 2, 70, 64),) * 3)), half_graphs.convolution((1, 32, 20, 20), (48, 32, 3, 3), padding=1)]  # fmt: skip
    if ADAPTERS[name][1] is not None:
        graphs.append(half_graphs.integers((64, 64), (64, 64), ("u8", "i8")))
    for graph in graphs:
        text = "".join(dispatch.source for dispatch in dispatches(graph, limits))
        assert "subgroupMatrixMultiplyAccumulate" in text, graph.nodes[-1].op


@pytest.mark.parametrize("name", ADAPTERS)
def test_tiles_keep_to_what_an_adapter_has(name):
    limits = limits_of(name)
    graphs = [(half_graphs.product(**item), MATMUL) for item in half_graphs.PRODUCTS]
    graphs.append((half_graphs.gated(70, 65, 72, True), MATMUL))
    graphs.append((half_graphs.joined(40, 66, (31, 48, 9)), MATMUL))
    graphs += [
        (half_graphs.attention(*shapes, **attrs), PREFILL)
        for shapes, attrs in half_graphs.ATTENTIONS
    ]
    graphs += [
        (half_graphs.convolution(x, w, **attrs), CONV) for x, w, attrs in half_graphs.CONVOLUTIONS
    ]
    graphs += [
        (half_graphs.integers(*shapes, ("u8", "u8")), INTEGER) for shapes in half_graphs.INTEGERS
    ]
    graphs += [(half_graphs.packed(*item)[0], DEQUANT) for item in half_graphs.PACKED]
    met = set()
    for graph, family in graphs:
        for variant in family.variants:
            if not variant.name.startswith("fragments"):
                continue
            for dispatch in dispatches(graph, limits, f"{family.name}={variant.name}"):
                sizes = SIZE.findall(dispatch.source)
                if sizes:
                    met.add((family.name, variant.name))
                    assert int(sizes[0]) <= limits["max-compute-workgroup-storage-size"], variant
                    assert (
                        threads_of(dispatch.source)
                        <= limits["max-compute-invocations-per-workgroup"]
                    )
                    assert trips_of(dispatch.source).total < 65_535
    kinds = {"matmul", "attention", "conv", "dequant"} | (
        {"matmul_integer"} if ADAPTERS[name][1] else set()
    )
    assert {family for family, _ in met} == kinds


def test_f32_is_rounded_only_where_the_compile_asks_for_it():
    plain = rlx.Graph()
    plain.set_outputs([plain.input("a", (256, 256)) @ plain.input("b", (256, 256))])
    asked = limits_of("NVIDIA")
    for limits, units in ((asked, True), ({**asked, ROUNDS: 0}, False), (DEFAULT_LIMITS, False)):
        (first,) = dispatches(plain, limits)
        assert ("subgroupMatrix" in first.source) == units
    for first in dispatches(half_graphs.product(256, 256, 256), DEFAULT_LIMITS):
        assert "subgroupMatrix" not in first.source


def decoder(graph, kernels, limits, count):
    sizes = {"count": count, "position": 70, "wanted": 1}
    assumptions = Assumptions(sizes, ones=True, steady=True)
    info = DeviceInfo("webgpu", 0, "", limits=limits)
    with deciding(assumptions):
        fused, _ = run_pipeline(inferred_anew(with_states(graph)), lambda _: True, kernels)
        schedule = Scheduler(fused, kernels, limits, None, Choices(), in_place=True).run()
        made = SizedKernels(schedule, sizes, info, 256)
    assert DType.F16 not in (value.type.dtype for value in schedule.values)
    return [item.source for item in made.work], assumptions


def test_one_program_reads_prompts_on_matrix_units_and_steps_are_exact(tmp_path):
    path, limits = tmp_path / "tiny.gguf", limits_of("NVIDIA")
    path.write_bytes(tiny_lm.model(layers=1, __context_length=1024))
    whole = Network(rlx.gguf.load(path), "f32").decoder(1024, 512)
    (graph,) = (part.graph for part in cut(whole, on_host(whole)) if not part.ahead)
    prompt, assumptions = decoder(graph, "webgpu-units", limits, 512)
    for count, position in ((17, 0), (512, 0), (500, 512), (33, 991)):
        assert assumptions.hold({"count": count, "position": position, "wanted": 1})
    packed = ["packed: array" in text for text in prompt if "subgroupMatrixMultiply" in text]
    assert sorted(packed) == [False] + 7 * [True], "attention as well"
    step, _ = decoder(graph, "webgpu-units", limits, 1)
    assert step == decoder(graph, "webgpu", {**limits, ROUNDS: 0}, 1)[0]


def test_the_fastest_precision_is_that_of_matrix_units(monkeypatch):
    able, fast = (
        Capabilities(f16=True),
        CompileOptions(precision="fast", io_gate=IoFusionGate(*[1] * 7)),
    )
    monkeypatch.setattr(target, "backend", lambda _: SimpleNamespace(
        kernel_set="webgpu", capabilities=lambda info: able))  # fmt: skip
    for fragments, wanted in (((Fragment("f16", "f32", 16, 16, 16, 32, 32),), "f16"), ((), "f32")):
        info = DeviceInfo("dawn", 0, "", fragments=fragments)
        monkeypatch.setattr(target, "info_of", lambda _, info=info: info)
        assert Target._resolve(rlx.Device("dawn"), fast).options.precision == wanted


def test_the_fastest_precision_of_devices(target_device):
    on_cpu = "bf16" if "tiles" in compiled.variants(compiled.isas()[0]) else "int8"
    made = Target.of(rlx.Device(target_device), CompileOptions(precision="fast"))
    assert made.options.precision == (on_cpu if target_device == "cpu" else "f32")


def test_every_tile_of_products_fits_some_adapter():
    for variant in (*FRAGMENTS, *(v for v in CONV.variants if v.name.startswith("fragments"))):
        assert any(variant.fits(limits_of(name)) for name in ADAPTERS), variant


def computes_halves(device):
    """Returns whether a GPU computes halves. A GPU that does not, such as SwiftShader, says so."""
    if "shader-f16" in info_of(rlx.Device.parse(device)).features:
        return True
    with pytest.raises(rlx.CompileError, match="no half-precision arithmetic"):
        rlx.Session(device, precision="f16").compile(half_graphs.product(8, 8, 8))
    return False


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(half_graphs.ATTENTIONS)))
def test_attention_of_halves_without_matrix_units(webgpu, at):
    shapes, attrs = half_graphs.ATTENTIONS[at]
    if computes_halves(webgpu):
        half_graphs.check_attention(webgpu, shapes, attrs, 2e-3)


@pytest.mark.webgpu
@pytest.mark.parametrize("at", range(len(half_graphs.CONVOLUTIONS)))
def test_convolution_of_halves_without_matrix_units(webgpu, at):
    if computes_halves(webgpu):
        half_graphs.check_convolution(webgpu, *half_graphs.CONVOLUTIONS[at])


def test_a_known_weight_is_turned_once(rng):
    g = rlx.Graph()
    x, w = g.input("x", (1, 16, 9, 9), "f16"), g.param("w", (16, 16, 3, 3), "f16")
    g.set_outputs([g.conv2d(x, w, padding=1)])
    fused, _ = run_pipeline(g, lambda option: True, "webgpu-units")
    assert [node.op for node in fused.nodes if "conv" in node.op] == ["turned_conv2d"]
    # The order is that of taps, and the graph means the same.
    arrays = half_graphs.draw(rng, [(1, 16, 9, 9), (16, 16, 3, 3)])
    result = rlx.compile(fused, "reference", {"w": arrays[1]}).run_slots(arrays[0])[0]
    wanted = rlx.compile(g, "reference", {"w": arrays[1]}).run_slots(arrays[0])[0]
    assert np.array_equal(result, wanted)


@pytest.mark.webgpu
def test_fewer_images_without_matrix_units(webgpu):
    if computes_halves(webgpu):
        half_graphs.check_fewer_images(webgpu)
