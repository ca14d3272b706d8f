"""Loads changed files in a process of its own, with limits, and says what happened to each."""

import hashlib
import json
import os
import signal
import struct
import sys
import time
import tracemalloc
from collections import Counter
from importlib import import_module
from itertools import chain
from pathlib import Path

import model_files as files
import numpy as np
import onnx
from mutations import TEXTS, bytes_changed, json_changed, message_changed, pick

import rlx
from rlx.compiler import compile_cache
from rlx.importers.onnx.load import open_model
from rlx.ir import container
from rlx.ir.dtype import DType, widen
from rlx.ir.opdef import REGISTRY
from rlx.ir.shape import estimated
from rlx.ops.block_formats import FORMATS, scrambled_blocks
from rlx.ops.conformance_cases import cases
from rlx.ops.interpret import interpret
from rlx.runtime.device_bench import made_up

ADDRESSES = 4 << 30  # bytes; what the libraries map at start counts
PEAK = 96 << 20
# A planted loop without end is found by any limit.
SECONDS = 0.2 if sys.argv[1:2] == ["fault"] else 2.0
# Graphs of so many elements are compiled and run, too.
RUNNABLE = 1 << 18

NODE_CASES = (
    "test_add", "test_conv_with_strides_padding", "test_lstm_defaults", "test_resize_upsample_sizes_cubic",
    "test_slice", "test_gather_0", "test_loop11", "test_if", "test_scan9_sum", "test_softmax_axis_0_expanded",
    "test_reshape_negative_dim", "test_quantizelinear_axis", "test_attention_4d", "test_top_k",
    "test_constantofshape_float_ones", "test_range_int32_type_negative_delta_expanded", "test_einsum_sum",
    "test_layer_normalization_2d_axis0_expanded", "test_split_equal_parts_1d_opset13", "test_constant_pad",
)  # fmt: skip
# The modules of onnx that make these cases. To make all of its cases takes longer than to change and load the files.
NODE_MODULES = (
    "add", "conv", "lstm", "resize", "slice", "gather", "loop", "if_", "scan", "softmax", "reshape", "quantizelinear",
    "attention", "topk", "constantofshape", "rangeop", "einsum", "layernormalization", "split", "pad",
)  # fmt: skip


def small_model(outside=False):
    """relu(x @ w) + b; with ``outside`` the first weight stands in a file beside it."""
    helper, array = onnx.helper, onnx.numpy_helper.from_array
    w = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            helper.make_node("Relu", ["p"], ["r"], name="rectified"),
            helper.make_node("Add", ["r", "b"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [array(w, "w"), array(np.ones(3, np.float32), "b")],
    )
    if outside:
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", "16"), ("length", "48")):
            tensor.external_data.add(key=key, value=value)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def onnx_files():
    """Models: nodes of many kinds, subgraphs, functions, and weights in another file."""
    from onnx.backend.test.case import node

    for name in NODE_MODULES:
        import_module(f"{node.__name__}.{name}")
    models = {case.name: case.model for case in node._NodeTestCases}
    return [small_model(), small_model(outside=True), *(models[name] for name in NODE_CASES)]


def onnx_changed(model, rng):
    if rng.random() < 0.5:
        return bytes_changed(model.SerializeToString(), rng)
    return message_changed(model, rng).SerializeToString()


def run_onnx(path):
    inputs = open_model(path).inputs
    names = {dim for port in inputs for dim in port.dims or () if isinstance(dim, str)}
    run_graph(rlx.onnx.load(path, dict.fromkeys(names, 2)))


def run_graph(graph):
    """Compiles and runs a graph if it is small."""
    graph.verify()
    str(graph)
    with graph.deciding():
        usual = sum(estimated(type.size) for node in graph.nodes for type in node.types)
    if usual > RUNNABLE:
        return
    with rlx.compile(graph, "cpu") as compiled:
        for name in set(graph.param_names) - set(graph.param_values):
            compiled.set_param(name, made_up(graph.named(name)))
        compiled.run({name: made_up(graph.named(name)) for name in graph.input_names})


def safetensors_files():
    rng = np.random.default_rng(3)
    results = {
        f"t.{kind}": (rng.standard_normal((2, 3)) * 9).astype(kind) for kind in files.SAFE_TYPES
    }
    return [files.safetensors({**results, "none": np.zeros((0, 4), "f4")}, {"by": "test"})]


def safetensors_changed(raw, rng):
    if rng.random() < 0.5:
        return bytes_changed(raw, rng, 1600)
    end = 8 + struct.unpack_from("<Q", raw)[0]
    header = json_changed(json.loads(raw[8:end]), rng)
    return files.safetensors_raw(json.dumps(header), raw[end:])


def run_safetensors(path):
    tensors = rlx.safetensors.load(path)
    for tensor in tensors.values():
        np.asarray(tensor).sum(dtype="f8")
    return "refused in part" if tensors.refused else None


def gguf_files():
    blocks = {f"w.{kind}": files.blocks(scrambled_blocks(kind, 2, 256), kind) for kind in FORMATS}
    kinds = ("f4", "f2", "f8", "i1", "i4", "i8")
    plain = {f"w.{kind}": np.arange(6).reshape(2, 3).astype(kind) for kind in kinds}
    metadata = {
        "general.architecture": "test", "a.u8": np.uint8(7), "a.i64": np.int64(-7), "a.f64": np.float64(0.1),
        "a.bool": True, "a.texts": ["x", "", "é"], "a.numbers": np.float32([1, 2]),
        "a.bools": np.array([True, False]), "a.nested": [["p"], ["q", "r"]], "a.none": [],
    }  # fmt: skip
    return [files.gguf(metadata, {**plain, **blocks})]


def gguf_changed(raw, rng):
    return bytes_changed(raw, rng, 2400)


def run_gguf(path):
    model = rlx.gguf.load(path)
    for tensor in model.tensors.values():
        tensor.dequantized().sum(dtype="f8")
    return "refused in part" if model.tensors.refused or model.metadata.refused else None


def rlx_files():
    """A model of every op with a compiled plan, and one of several with weights and a constant."""
    g = rlx.Graph("layer")
    x, w = g.input("x", (4, 6)), g.param("w", (6, 5))
    y = g.softmax(g.relu(x @ w) + g.constant(np.arange(5, dtype="f4")))
    g.param_values["w"] = np.float32(np.arange(30).reshape(6, 5))
    g.set_outputs([y, g.argmax(x, -1)])
    graphs = {"layer": g}
    for case in cases():
        # The first sample is of the usual kind; custom ops are Python functions.
        if case.number == 0 and case.opdef.name != "custom":
            graphs.setdefault(case.opdef.name, case.graph())
    path, result = Path("source.rlx"), []
    for graph in graphs.values():
        rlx.save_model(graph, path, devices=["cpu"])
        result.append(path.read_bytes())
    return result


def rlx_changed(raw, rng):
    """Half of them with checksums that are right: whoever changes a file can compute them."""
    if rng.random() < 0.5:
        return bytes_changed(raw, rng, 6000)
    header, body = opened(raw)
    nodes = header["data"]["graph"]["nodes"]
    if rng.random() < 0.3:
        header = json_changed(header, rng)
    else:  # what is in most danger of being believed
        node = pick(rng, nodes)
        node["attrs"] = json_changed(node["attrs"], rng)
    if rng.random() < 0.3:
        body = bytes_changed(body, rng)
    return sealed(raw, header, body)


def run_rlx(path):
    run_graph(rlx.load_model(path, check=path.stat().st_size % 2 == 0))


def sealed(raw, header, body):
    """A container with another header or other arrays, and checksums that are right."""
    text = json.dumps(header).encode()
    text += b" " * (-(96 + len(text)) % 64)
    front = raw[:16] + struct.pack("<QQ", len(text), 96 + len(text) + len(body))
    front += hashlib.sha256(body).digest()
    return front + hashlib.sha256(front + text).digest() + text + body


def opened(raw):
    """The header of a container, and its arrays."""
    length = struct.unpack_from("<Q", raw, 16)[0]
    return json.loads(raw[96 : 96 + length]), raw[96 + length :]


def plan_files():
    """A model of every op, and layers that passes rewrite: fused, prepared, widened, looped."""

    def convolutions(g):
        x = g.input("x", (1, 3, 8, 8))
        w, scale = g.param("w", (8, 3, 3, 3)), g.param("scale", (1, 8, 1, 1))
        y = g.relu(g.conv2d(x, w, padding=1) * scale)
        y = g.relu(g.conv2d(y, g.param("v", (8, 8, 3, 3)), padding=1) + y)
        return g.mean(g.max_pool(y, 2), (2, 3)) @ g.exp(g.param("dense", (8, 4)))

    def attention(g):
        x = g.input("x", (6, 16))
        parts = [x @ g.param(name, (16, 16)) + g.param(f"{name}b", (16,)) for name in "qkv"]
        q, k, v = (g.transpose(g.reshape(part, (6, 4, 4)), (1, 0, 2)) for part in parts)
        mixed = g.softmax((q @ g.transpose(k, (0, 2, 1))) * 0.5, -1) @ v
        y = x + g.reshape(g.transpose(mixed, (1, 0, 2)), (6, 16))
        y = g.layer_norm(y, g.param("n", (16,)), g.param("m", (16,)))
        return g.silu(y @ g.param("gate", (16, 24))) * (y @ g.param("up", (16, 24)))

    def halves(g):
        x = g.input("x", (4, 8), "f16")
        return g.cast(g.gelu(x @ g.param("w", (8, 8), "f16")) * 0.5, "f32")

    def lookups(g):
        table, position = g.param("table", (10, 4)), g.input("at", (3,), "i64")
        result = g.gather(table, position, 0)
        return g.topk(g.concat([result, g.flip(result, (0,))], 0), 2)[0]

    def looped(g):
        body = rlx.Graph("body")
        state, row = body.input("state", (3,)), body.input("row", (3,))
        body.set_outputs([body.tanh(state * 0.5 + row), state * row])
        return g.scan(body, 1, g.input("start", (3,)), g.input("xs", (5, 3)))[1]

    def recurrent(g):
        x = g.input("x", (5, 2, 3))
        return g.lstm(x, g.param("w", (1, 16, 3)), g.param("r", (1, 16, 4)))[0]

    path, result = Path("source.rlx"), rlx_files()
    for build in (convolutions, attention, halves, lookups, looped, recurrent):
        # Each as often as ten ops: here passes leave most to be believed.
        g = rlx.Graph(build.__name__)
        g.set_outputs([build(g)])
        rlx.save_model(g, path, devices=["cpu"])
        result += [path.read_bytes()] * 10
    # Graphs that compute sizes are compiled in parts, whose plans no file holds.
    return [raw for raw in result if container.load(raw).data["plans"]]


def plan_changed(raw, rng):
    """The file as it is, but for its compiled plan: nodes, operands, attributes, arrays, offsets."""
    box = container.load(raw)
    (position,) = box.data["plans"].values()
    plan = box.arrays[position].tobytes()
    header, body = opened(plan)
    stored = header["data"]["lowered"]
    part = rng.random()
    if part < 0.1:
        body = bytes_changed(body, rng)
    elif part < 0.2:
        header["arrays"] = json_changed(header["arrays"], rng)
    elif part < 0.4:
        changed = json_changed({"offsets": stored["offsets"]}, rng)
        stored["offsets"] = changed.get("offsets")
    elif part < 0.5:
        header["data"]["lowered"] = json_changed(stored, rng)
    else:
        nodes = pick(rng, stored["graphs"])[1]
        node = pick(rng, nodes)
        # Name, label, operands, attributes.
        which = int(rng.choice(4, p=(0.15, 0.05, 0.3, 0.5)))
        if which == 0:
            node[0] = pick(rng, (*REGISTRY, *TEXTS))
        elif rng.random() < 0.1:
            stored["graphs"] = json_changed(stored["graphs"], rng)
        else:
            node[which] = json_changed([node[which]], rng)[:1] or None
            node[which] = node[which] and node[which][0]
    arrays = [np.array(array) for array in box.arrays]
    arrays[position] = np.frombuffer(sealed(plan, header, body), np.uint8)
    return container.dump(box.kind, box.data, arrays)


def run_plan(path):
    """Runs the loaded graph: by its plan where that is legal, and then as the plan's own graph says."""
    graph = rlx.load_model(path)
    assert compile_cache._of_files[graph].raw
    compile_cache._kept.clear()  # an equal graph was compiled for the file before
    before = rlx.cache_stats().model_hits
    arrays = {name: made_up(graph.named(name)) for name in graph.input_names}
    params = {name: made_up(graph.named(name)) for name in graph.param_names}
    with rlx.compile(graph, "cpu", params) as compiled:
        used = rlx.cache_stats().model_hits > before
        lowered = compiled._state.lowered
        results = [array.copy() for array in compiled.run(arrays)]
    said = [
        lowered.graph,
        *lowered.subgraphs,
        *(preparation.graph for preparation in lowered.preparations),
    ]
    elements = sum(type.size for item in said for node in item.nodes for type in node.types)
    outcome = "plan used" if used else "plan refused"
    if elements > RUNNABLE or lowered.subgraphs:
        return outcome
    with np.errstate(all="ignore"):
        for preparation in lowered.preparations:
            result = interpret(
                preparation.graph, {name: params[name] for name in preparation.graph.input_names}
            )
            params |= dict(zip(preparation.names, result, strict=True))
        arguments = arrays | {name: params[name] for name in lowered.graph.param_names}
        # The last outputs of a lowered graph are its states, which runs leave where they are.
        expected = interpret(lowered.graph, arguments)[: len(results)]
    halves = any(
        type.dtype is DType.F16 for item in said for node in item.nodes for type in node.types
    )
    _compare(results, expected, [node.dtype for node in graph.outputs], halves)
    return outcome


def _compare(result, expected, dtypes, halves):
    """Kernels and references agree where numbers are ordinary: what is read elsewhere shows here.

    Between operations a kernel may hold more than f16 can, or infinity: ``halves`` says that f16 is among them.
    """
    for first, other, dtype in zip(result, expected, dtypes, strict=True):
        wide, exact = widen(first, dtype).astype("f8"), widen(other, dtype).astype("f8")
        if not np.isfinite(exact).all() or np.abs(exact).max(initial=0) > (6e4 if halves else 1e6):
            continue
        far = np.abs(wide - exact) > 1e-2 * (1 + np.abs(exact))
        # Rounding may decide between two near values: a few results may be of another order.
        if far.mean() > 0.2:
            raise AssertionError(f"{far.sum()} of {far.size} results are wrong")


def _forever():
    while True:
        pass


# Faults that must not happen. A test plants each and sees that it is noticed.
FAULTS = {
    "another error": lambda: {}["key"],
    "a file elsewhere": lambda: Path("../secret.bin").read_bytes(),
    "a file written": lambda: Path("w.bin").write_bytes(bytes(64)),
    "much memory": lambda: np.ones(PEAK // 8 + 1),
    "no end": _forever,
    "a crash": os.abort,
}


def run_fault(path):
    FAULTS.get(path.read_text(), str)()


KINDS = {
    "onnx": (onnx_files, onnx_changed, run_onnx),
    "safetensors": (safetensors_files, safetensors_changed, run_safetensors),
    "gguf": (gguf_files, gguf_changed, run_gguf),
    "rlx": (rlx_files, rlx_changed, run_rlx),
    "plan": (plan_files, plan_changed, run_plan),
    "fault": (lambda: [b"%d" % index for index in range(len(FAULTS))],
              lambda raw, rng: [*FAULTS][int(raw)].encode(), run_fault),
}  # fmt: skip


class FileWatch:
    """Notes the files that are opened or changed outside of a folder while it is on."""

    CODE = (sys.prefix, sys.base_prefix, str(Path(rlx.__file__).parent))
    CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink",
               "os.truncate", "os.system", "subprocess.Popen", "socket.connect")  # fmt: skip

    def __init__(self, folder):
        self.folder, self.on, self.seen = str(folder.resolve()), False, []
        sys.addaudithook(self)

    def __call__(self, event, args):
        if not self.on or event not in ("open", *self.CHANGES):
            return
        if event == "open":
            path, mode, flags = args
            if isinstance(path, int):
                return
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR)) or bool(set(str(mode)) & set("wa+x"))
            path = os.path.realpath(os.fsdecode(path))
            if not writes and path.startswith((self.folder, *self.CODE)):
                return
        self.seen.append(f"{event} {args}")


def _too_slow(*_):
    raise InterruptedError(f"not done after {2 * SECONDS} s of the processor's time")


def _limit():
    """Ends no file with a core dump, and lets no file take all of the machine's memory."""
    import resource  # there is none on Windows

    # AddressSanitizer maps terabytes of addresses for itself; script/sanitize limits its memory instead.
    if "ASAN_OPTIONS" not in os.environ:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _make_key(path):
    """The key of the compile cache, which is made once: before files are watched."""
    from rlx.compiler import signed_cache as entries

    entries.key_file = lambda: path
    assert entries._key(path)


def main(kind, folder, *ranges):
    """Prints as JSON what came of files. Each of ``ranges`` is FIRST+COUNT, for so many seeds from the first on."""
    folder = Path(folder) / "inside"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    Path("w.bin").write_bytes(bytes(64))
    Path("../secret.bin").write_bytes(bytes(64))
    if not Path("linked").exists():
        Path("linked").symlink_to("..")
    _make_key(folder.parent / "user" / "cache-key")
    sources, change, load = KINDS[kind]
    path, said = folder / f"file.{kind}", Counter()
    watch, wrong, slowest, peak = FileWatch(folder), [], (0.0, 0), (0, 0)
    result = sources()
    for item in result:  # as they are: what loading imports is imported then
        path.write_bytes(item if isinstance(item, bytes) else item.SerializeToString())
        try:
            load(path)
        except rlx.InputError:
            continue
    _limit()
    signal.signal(signal.SIGPROF, _too_slow)
    tracemalloc.start()
    pairs = [map(int, text.split("+")) for text in ranges]
    for seed in chain.from_iterable(range(first, first + count) for first, count in pairs):
        rng = np.random.default_rng(seed)
        path.unlink()
        path.write_bytes(change(result[seed % len(result)], rng))
        # Should the process die, this is what it died of.
        Path("../seed").write_text(str(seed))
        tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.process_time()
        signal.setitimer(signal.ITIMER_PROF, 2 * SECONDS)
        watch.on = True
        try:
            outcome = load(path)
            said[outcome or "taken"] += 1
        except rlx.RlxError as error:
            said[type(error).__name__] += 1
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            wrong.append(f"seed {seed}: {text[:300]}")
        watch.on = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, (time.process_time() - began, seed))
        peak = max(peak, (tracemalloc.get_traced_memory()[1] - before, seed))
        wrong += [f"seed {seed} touched {item}" for item in watch.seen]
        watch.seen.clear()
    if slowest[0] > SECONDS:
        wrong.append(f"seed {slowest[1]}: {slowest[0]:.1f} s")
    if peak[0] > PEAK:
        wrong.append(f"seed {peak[1]}: {peak[0]:,} bytes")
    print(json.dumps({"said": said, "wrong": wrong, "slowest": slowest, "peak": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
