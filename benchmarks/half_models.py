"""Models in f16 on a GPU, from end to end: through Dawn and through wgpu-native, beside PyTorch and ONNX Runtime.

usage: python benchmarks/half_models.py [--only REGEX] [--quick] [--devices dawn,webgpu] [--json FILE] [--docs PAGE]
       python benchmarks/half_models.py --from-json benchmarks/half_h100.json --docs docs/benchmarks.md

Each model is written once, as calls of a builder, and made of random weights: an ONNX file of f16, which rlx and ONNX
Runtime (WebGPU) load, and the same calls in PyTorch (CUDA, f16, replayed as a CUDA graph). Inputs and weights stay on
the device; the time is that of many runs that are handed over one after the other, from the first to the end of the
last, by run. Results are compared with PyTorch's in f32 on the CPU. ``--quick`` makes small models.
"""

import argparse
import json
import math
import os
import re
import sys
import time
from pathlib import Path
from statistics import median

os.environ["RLX_CACHE"] = "off"

import numpy as np
import report
from rich.console import Console

HALF = np.float16
# Runs between two looks at the clock, rounds, and seconds of work before the first.
RUNS, ROUNDS, WARMING_S = 20, 5, 0.6


class Values:
    """Random weights by name: the same for every builder."""

    def __init__(self, seed=0):
        self._rng, self.made = np.random.default_rng(seed), {}

    def __call__(self, name, shape, fan=None):
        if name not in self.made:
            scale = (fan or 400) ** -0.5
            self.made[name] = (self._rng.standard_normal(shape) * scale).astype(HALF)
        return self.made[name]


# --- models: calls of a builder ----------------------------------------------------------------------------


def _norm(b, x, name, n):
    return b.layer_norm(x, b.weight(f"{name}.g", (n,)), b.weight(f"{name}.b", (n,)))


def _linear(b, x, name, k, n):
    return b.add(b.matmul(x, b.weight(f"{name}.w", (k, n), k)), b.weight(f"{name}.c", (n,)))


def _attended(b, x, name, heads, batch, tokens, width):
    """Self-attention as exporters write it: products, a softmax and transposed views."""
    d = width // heads
    split = (batch, tokens, heads, d)
    q, k, v = (b.reshape(_linear(b, x, f"{name}.{item}", width, width), split) for item in "qkv")
    q, v = b.transpose(q, (0, 2, 1, 3)), b.transpose(v, (0, 2, 1, 3))
    scores = b.matmul(b.scale(q, d**-0.5), b.transpose(k, (0, 2, 3, 1)))
    mixed = b.transpose(b.matmul(b.softmax(scores), v), (0, 2, 1, 3))
    return _linear(b, b.reshape(mixed, (batch, tokens, width)), f"{name}.o", width, width)


def _layers(b, x, count, heads, batch, tokens, width, first=True):
    """Transformer layers, the norms before the parts or behind them."""
    for index in range(count):
        for part in ("a", "f"):
            name = f"{index}.{part}"
            inner = _norm(b, x, f"{name}.n", width) if first else x
            if part == "a":
                result = _attended(b, inner, name, heads, batch, tokens, width)
            else:
                result = b.gelu(_linear(b, inner, f"{name}.1", width, 4 * width))
                result = _linear(b, result, f"{name}.2", 4 * width, width)
            x = b.add(x, result)
            x = x if first else _norm(b, x, f"{name}.n", width)
    return x


def minilm(b, batch, tokens=128, layers=6):
    """BERT of MiniLM-L6's sizes, behind the embeddings."""
    return _layers(b, b.input("x", (batch, tokens, 384)), layers, 12, batch, tokens, 384, False)


def whisper_encoder(b, frames=3000, layers=4):
    """The encoder of Whisper tiny: two convolutions, and layers of 1,500 positions."""
    x = b.gelu(b.conv(b.input("x", (1, 80, frames)), "c1", 80, 384, 3))
    x = b.gelu(b.conv(x, "c2", 384, 384, 3, stride=2))
    x = b.transpose(x, (0, 2, 1))
    x = b.add(x, b.weight("positions", (1, frames // 2, 384)))
    return _norm(b, _layers(b, x, layers, 6, 1, frames // 2, 384), "n", 384)


def vit(b, batch, side=224, layers=12):
    """ViT-B/16 without its class token."""
    tokens = (side // 16) ** 2
    x = b.conv(b.input("x", (batch, 3, side, side)), "patch", 3, 768, 16, stride=16, padding=0)
    x = b.transpose(b.reshape(x, (batch, 768, tokens)), (0, 2, 1))
    x = b.add(x, b.weight("positions", (1, tokens, 768)))
    return _norm(b, _layers(b, x, layers, 12, batch, tokens, 768), "n", 768)


def _residual(b, x, name, c, o):
    result = x
    for index, (a, z) in enumerate(((c, o), (o, o))):
        result = b.silu(b.group_norm(result, f"{name}.n{index}", a))
        result = b.conv(result, f"{name}.c{index}", a, z, 3)
    return b.add(result, x if c == o else b.conv(x, f"{name}.s", c, o, 1, padding=0))


def unet(b, batch=1, side=64, widths=(320, 640, 1280)):
    """A U-Net of the kind that diffusion uses: residual blocks on three scales, attention on the lower two."""
    x, retained = b.conv(b.input("x", (batch, 4, side, side)), "in", 4, widths[0], 3), []
    for index, o in enumerate(widths):
        c = widths[max(0, index - 1)]
        if index:
            x = b.conv(x, f"d{index}", c, c, 3, stride=2)
        x = _residual(b, x, f"e{index}", c, o)
        if index:
            x = _attended_image(b, x, f"ea{index}", batch, side >> index, o)
        retained.append(x)
    for index in reversed(range(len(widths))):
        o = widths[index]
        x = b.add(_residual(b, x, f"u{index}", o, o), retained[index])
        if index:
            x = b.conv(b.doubled(x), f"up{index}", o, widths[index - 1], 3)
    return b.conv(b.silu(b.group_norm(x, "on", widths[0])), "out", widths[0], 4, 3)


def _attended_image(b, x, name, batch, side, c):
    tokens = side * side
    flat = b.transpose(b.reshape(x, (batch, c, tokens)), (0, 2, 1))
    result = _attended(b, _norm(b, flat, f"{name}.n", c), name, c // 64, batch, tokens, c)
    return b.add(x, b.reshape(b.transpose(result, (0, 2, 1)), (batch, c, side, side)))


MODELS = {
    "MiniLM-L6, 1 x 128 tokens": (minilm, {"batch": 1}, {"batch": 1, "tokens": 16, "layers": 1}),
    "MiniLM-L6, 32 x 128 tokens": (minilm, {"batch": 32}, {"batch": 2, "tokens": 16, "layers": 1}),
    "Whisper tiny's encoder": (whisper_encoder, {}, {"frames": 40, "layers": 1}),
    "ViT-B/16, 1 image": (vit, {"batch": 1}, {"batch": 1, "side": 64, "layers": 1}),
    "ViT-B/16, 8 images": (vit, {"batch": 8}, {"batch": 2, "side": 64, "layers": 1}),
    "U-Net, 64 x 64 latents": (unet, {}, {"side": 16, "widths": (64, 128)}),
}


# --- builders ----------------------------------------------------------------------------------------------


class Onnx:
    """Makes an ONNX model of f16."""

    def __init__(self, values):
        self._values, self._nodes, self._constants, self.inputs = values, [], [], {}

    def _add(self, kind, operands, **attributes):
        from onnx import helper

        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, operands, [name], **attributes))
        return name

    def _constant(self, array):
        from onnx import numpy_helper

        name = f"k{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def input(self, name, shape):
        self.inputs[name] = shape
        return name

    def weight(self, name, shape, fan=None):
        return self._constant(self._values(name, shape, fan))

    def add(self, x, y):
        return self._add("Add", [x, y])

    def scale(self, x, by):
        return self._add("Mul", [x, self._constant(np.array(by, HALF))])

    def matmul(self, x, y):
        return self._add("MatMul", [x, y])

    def reshape(self, x, shape):
        return self._add("Reshape", [x, self._constant(np.array(shape, np.int64))])

    def transpose(self, x, order):
        return self._add("Transpose", [x], perm=list(order))

    def softmax(self, x):
        return self._add("Softmax", [x], axis=-1)

    def gelu(self, x):
        return self._add("Gelu", [x])

    def silu(self, x):
        return self._add("Mul", [x, self._add("Sigmoid", [x])])

    def layer_norm(self, x, g, c):
        return self._add("LayerNormalization", [x, g, c], axis=-1, epsilon=1e-5)

    def group_norm(self, x, name, c):
        g, z = self.weight(f"{name}.g", (c,)), self.weight(f"{name}.b", (c,))
        return self._add("GroupNormalization", [x, g, z], num_groups=32, epsilon=1e-5)

    def conv(self, x, name, c, o, kernel, stride=1, padding=None):
        padding = kernel // 2 if padding is None else padding
        axes = len(self._shape_of(x, name))
        w, z = _filters(self.weight, name, c, o, kernel, axes)
        pads = [padding] * 2 * axes
        return self._add("Conv", [x, w, z], strides=[stride] * axes, pads=pads)

    def doubled(self, x):
        scales = self._constant(np.array([1, 1, 2, 2], np.float32))
        more = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        return self._add("Resize", [x, "", scales], nearest_mode="floor", **more)

    def _shape_of(self, _, name):
        # Of these models only Whisper's convolutions have one axis.
        return "t" if len(next(iter(self.inputs.values()))) == 3 else "hw"

    def model(self, result):
        from onnx import TensorProto, helper

        kind = TensorProto.FLOAT16
        inputs = [helper.make_tensor_value_info(n, kind, s) for n, s in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(result, kind, None)]
        graph = helper.make_graph(self._nodes, "half", inputs, outputs, self._constants)
        opset = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


def _filters(weight, name, c, o, kernel, axes):
    shape = (o, c, *[kernel] * axes)
    return weight(f"{name}.w", shape, c * kernel**axes), weight(f"{name}.c", (o,))


class Torch:
    """Computes a model in PyTorch."""

    def __init__(self, values, value, device, dtype):
        import torch

        self._torch, self._values, self._given = torch, values, value
        self._to = {"device": device, "dtype": dtype}
        self._weights = {}

    def input(self, name, shape):
        return self._given[name]

    def weight(self, name, shape, fan=None):
        if name not in self._weights:
            array = self._values(name, shape, fan)
            self._weights[name] = self._torch.from_numpy(array).to(**self._to)
        return self._weights[name]

    def add(self, x, y):
        return x + y

    def scale(self, x, by):
        return x * by

    def matmul(self, x, y):
        return x @ y

    def reshape(self, x, shape):
        return x.reshape(shape)

    def transpose(self, x, order):
        return x.permute(order)

    def softmax(self, x):
        return x.softmax(-1)

    def gelu(self, x):
        return self._torch.nn.functional.gelu(x)

    def silu(self, x):
        return self._torch.nn.functional.silu(x)

    def layer_norm(self, x, g, c):
        return self._torch.nn.functional.layer_norm(x, g.shape, g, c, 1e-5)

    def group_norm(self, x, name, c):
        g, z = self.weight(f"{name}.g", (c,)), self.weight(f"{name}.b", (c,))
        return self._torch.nn.functional.group_norm(x, 32, g, z, 1e-5)

    def conv(self, x, name, c, o, kernel, stride=1, padding=None):
        axes = x.ndim - 2
        w, z = _filters(self.weight, name, c, o, kernel, axes)
        run = getattr(self._torch.nn.functional, f"conv{axes}d")
        return run(x, w, z, stride, kernel // 2 if padding is None else padding)

    def doubled(self, x):
        return self._torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")


# --- what runs them ----------------------------------------------------------------------------------------


def by_run(send, finish):
    """Microseconds by run of runs that are handed over in a row: the median of some rounds."""
    until = time.perf_counter() + WARMING_S
    while time.perf_counter() < until:
        send()
        finish()
    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(RUNS):
            send()
        finish()
        spent.append((time.perf_counter() - began) / RUNS * 1e6)
    return median(spent)


def on_rlx(model, arrays, device):
    import rlx

    compiled = rlx.Session(device, precision="f16").compile(rlx.onnx.load(model))
    results = [np.array(slot) for slot in compiled.run_slots(*arrays.values())]
    for name, array in arrays.items():
        compiled.bind_gpu_handle(name, array)
    text = compiled.as_text("kernels")
    facts = {
        "kernels": text.count("// ---"),
        "on matrix units": text.count("MultiplyAccumulate(") > 0,
    }
    us = by_run(lambda: compiled.commit_no_wait({}), compiled.sync_pending)
    compiled.close()
    return results[0], us, facts


def on_torch(build, sizes, values, arrays):
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    inputs = {name: torch.from_numpy(array).cuda() for name, array in arrays.items()}
    builder = Torch(values, inputs, "cuda", torch.float16)
    with torch.inference_mode():
        for _ in range(3):
            result = build(builder, **sizes)
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            build(builder, **sizes)
        us = by_run(recorded.replay, torch.cuda.synchronize)
    return result.float().cpu().numpy(), us, {}


def on_ort(model, arrays):
    import onnxruntime as ort
    from gpu_peer_ort import ort_session

    session = ort_session(model, fallback=False)
    result = session.run(None, arrays)
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output(session.get_outputs()[0].name, "cpu")

    def send():
        session.run_with_iobinding(binding)

    return (
        result[0],
        by_run(send, lambda: None),
        {"with transfers": True, "version": ort.__version__},
    )


def truth(build, sizes, values, arrays, model):
    """In f32 by PyTorch; by ONNX Runtime on the CPU, which rounds as the model does, where there is none."""
    try:
        import torch
    except ImportError:
        import onnxruntime as ort

        (result,) = ort.InferenceSession(model).run(None, arrays)
        return result.astype(np.float64)
    inputs = {name: torch.from_numpy(array).float() for name, array in arrays.items()}
    with torch.inference_mode():
        return build(Torch(values, inputs, "cpu", torch.float32), **sizes).numpy()


def measured(build, sizes, devices):
    """Measures each engine on a model, and the difference of its result from f32's."""
    values = Values()
    builder = Onnx(values)
    model = builder.model(build(builder, **sizes))
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal(s).astype(HALF) for n, s in builder.inputs.items()}
    wanted = truth(build, sizes, values, arrays, model)
    engines = {
        f"rlx {device}": lambda item=device: on_rlx(model, arrays, item) for device in devices
    }
    engines["PyTorch"] = lambda: on_torch(build, sizes, values, arrays)
    engines["ONNX Runtime"] = lambda: on_ort(model, arrays)
    rows = {}
    for name, run in engines.items():
        try:
            result, us, facts = run()
        except Exception as error:  # an engine that can't is said to be absent
            rows[name] = {"absent": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}
            continue
        far = np.abs(np.float64(result) - wanted).max() / np.abs(wanted).max()
        rows[name] = {"us": us, "error": float(far), **facts}
    return rows


def table(result):
    """The page's table: microseconds by run, and the error of the first engine."""
    names = list(next(iter(result.values())))
    rows = []
    for model, row in result.items():
        cells = [f"{row[n]['us']:,.0f}" if "us" in row[n] else "-" for n in names]
        rows.append([model, *cells, f"{row[names[0]].get('error', math.nan):.0e}"])
    return report.markdown(["model (f16)", *(f"{name}, us" for name in names), "error"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--devices", default="dawn,webgpu")
    parser.add_argument("--json")
    parser.add_argument("--from-json")
    parser.add_argument("--docs")
    chosen = parser.parse_args()
    console, result = Console(), {}
    devices = chosen.devices.split(",")
    if chosen.from_json:
        result = json.loads(Path(chosen.from_json).read_text())
    for name, (build, sizes, small) in () if chosen.from_json else MODELS.items():
        if re.search(chosen.only, name):
            result[name] = measured(build, small if chosen.quick else sizes, devices)
            console.print(name, result[name])
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(result, file, indent=1)
    if chosen.docs:
        report.write_between(Path(chosen.docs), "half_models", "\n".join(table(result)))
    wrong = [
        n for n, row in result.items() for value in row.values() if value.get("error", 0) > 2e-2
    ]
    if wrong:
        console.print("wrong results:", wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
