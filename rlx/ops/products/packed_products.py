"""Products of one row by packed weights, with the norm before and the sum or the gate behind them, in one kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.products import ACTIVATIONS
from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.plan import OFFSETS
from rlx.ir.shape import size
from rlx.ir.variants import UNPACKS
from rlx.ops.block_formats import FORMATS, decode_blocks, row_weights, scrambled_blocks
from rlx.ops.declare import op
from rlx.ops.movement.strided import emit_strided_copy
from rlx.ops.products.gated_matmul import MAX_PARTS
from rlx.ops.products.matmul import activated
from rlx.ops.rows.normalization import rms_norm
from rlx.ops.rows.rotation import rotated

# shaders/products/packed_gemv.wgsl: threads of a workgroup, and those that share a row of weights; where the row of x has
# no room in workgroup memory, as many as there are share one.
_THREADS, _LANES, _LANES_UNSTAGED = 256, 32, 128
# What may be added to each product.
BIASES = ("bias", "bias1", "bias2")
# Formats that are no blocks.
PLAIN = ("F16", "BF16")
# Rows of weights that threads share at a time, by the rows that there are.
_ROWS = ((16384, 4), (1024, 2), (0, 1))


def _is_weight(w: TensorType, scheme: str, k: Any) -> bool:
    """Returns whether a type is that of a matrix of k columns in a format."""
    if len(w.shape) != 2:
        return False
    if scheme in PLAIN:
        return w.dtype is DType[scheme] and bool(w.shape[1] == k) and k % 32 == 0
    known = scheme in FORMATS and w.dtype is DType.U8
    return known and bool(row_weights(scheme, w.shape[1], where="packed_products") == k)


def _decoded(w: Array, scheme: str) -> Array:
    return w if scheme in PLAIN else decode_blocks(w, scheme)


def _infer(
    types: Sequence[TensorType], attrs: dict[str, Any]
) -> TensorType | tuple[TensorType, ...]:
    name, schemes, present = "packed_products", attrs["schemes"], attrs["present"]
    x, *rest = types
    beside, weights = rest[: len(present)], rest[len(present) :]
    if any(type.dtype is not DType.F32 for type in (x, *beside)):
        raise DTypeError(f"[{name}] operands", got=", ".join(map(str, types)), expected="f32")
    k = x.shape[-1] if x.shape else 0
    fits = 0 < len(weights) == len(schemes) <= MAX_PARTS and size(x.shape[:-1]) == 1
    fits = fits and all(_is_weight(w, s, k) for w, s in zip(weights, schemes, strict=True))
    fits = fits and ("cos" in present) == ("sin" in present)
    counts = [w.shape[0] if w.shape else 0 for w in weights] or [0]
    each = attrs["head"]
    shapes = {"norm": k, "residual": counts[0], "cos": each // 2, "sin": each}
    shapes |= dict(zip(BIASES, [*counts, 0, 0], strict=False))
    fits = fits and all(size(t.shape) == shapes[n] for t, n in zip(beside, present, strict=True))
    if "cos" in present:
        fits = fits and len(counts) == 3 and counts[0] % each == counts[1] % each == each % 2 == 0
    if attrs["act"] != "none":
        fits = fits and len(counts) == 2 and counts[0] == counts[1]
        fits = fits and not {"residual", *BIASES} & {*present}
    elif "residual" in present:
        fits = fits and len(counts) == 1
    if not fits:
        got = ", ".join(map(str, types))
        expected = "one row [..., k], and up to 3 packed weights of k columns"
        raise ShapeError(f"[{name}] operands do not fit", got=got, expected=expected)
    narrow = len(counts) - attrs.setdefault("halves", 0)
    results = tuple(
        TensorType((*x.shape[:-1], n), DType.F32 if i < narrow else DType.F16)
        for i, n in enumerate(counts)
    )
    return results[0] if len(results) == 1 or attrs["act"] != "none" else results


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    """The operations that it stands for; a call of a C kernel costs so little that passes for the CPU keep them apart."""
    g, attrs, present = Graph("packed products"), node.attrs, node.attrs["present"]
    inputs = [
        g.input(f"x{i}", operand.shape, operand.dtype) for i, operand in enumerate(node.inputs)
    ]
    named, weights = dict(zip(present, inputs[1:], strict=False)), inputs[1 + len(present) :]
    x = g.rms_norm(inputs[0], named["norm"], attrs["eps"]) if "norm" in named else inputs[0]
    results = [
        x @ g.transpose(g.cast(w, "f32")) if scheme in PLAIN else g.dequant_matmul(x, w, scheme)
        for w, scheme in zip(weights, attrs["schemes"], strict=True)
    ]
    if "bias" in named:
        results = [y + named[bias] for y, bias in zip(results, BIASES, strict=False)]
    if attrs["act"] != "none":
        results = [g.mul(getattr(g, attrs["act"])(results[0]), results[1])]
    if "residual" in named:
        results = [results[0] + g.reshape(named["residual"], results[0].shape)]
    if "cos" in named:
        half, neox = attrs["head"] // 2, attrs["style"] == "neox"
        cos = g.reshape(named["cos"], (half,))
        signed = g.reshape(named["sin"], (2, half) if neox else (half, 2))
        sin = g.reshape(g.narrow(signed, 0 if neox else 1, 1, 1), (half,))
        for i in range(2):
            heads = g.reshape(results[i], (-1, 2 * half))
            turned = g.rope(heads, cos, sin, None, attrs["style"])
            results[i] = g.reshape(turned, results[i].shape)
    g.set_outputs([g.cast(y, type.dtype) for y, type in zip(results, node.types, strict=True)])
    made = emitter.inline(g, [emitter.operand(i) for i in range(len(inputs))])
    for value, result, type in zip(made, emitter.results(), node.types, strict=True):
        emit_strided_copy(emitter, value, result, type.dtype, (type.size,), (1,), (1,))


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    count = len(node.inputs) - 1 - len(node.attrs["present"])
    buffers = len(node.inputs) + len(node.types)
    if buffers <= emitter.limits["max-storage-buffers-per-shader-stage"]:
        _call(node, emitter, range(count))
        return
    for part in range(count):  # each product by itself
        _call(node, emitter, range(part, part + 1))


def workgroups_of(
    emitter: Emitter,
    k: int,
    counts: Sequence[int],
    gated: bool = False,
    normed: bool = False,
    least: int = 1,
) -> tuple[list[int], dict[str, int]]:
    """Returns the workgroups of each product of packed_gemv.wgsl, and its params that say how threads share the work.

    Args:
        emitter: Knows the limits of the device.
        k: Weights of a row.
        counts: Rows of weights of each product.
        gated: Whether the second product gates the first.
        normed: Whether the kernel norms the row.
        least: Results of a workgroup at least: 2 where pairs of them turn, 4 where they share words.
    """
    sums = next(rows for fewest, rows in _ROWS if max(counts) >= fewest)
    rows = sums if not gated else max(1, sums // 2)
    kept = rows * (2 if gated else 1) + int(normed)
    needed = 4 * (k + k // 8 + kept * (_THREADS + 8 * _THREADS // _LANES))
    staged = needed <= emitter.limits["max-compute-workgroup-storage-size"]
    threads, lanes = (_THREADS, _LANES) if staged else (_LANES_UNSTAGED, _LANES_UNSTAGED)
    rows = max(rows, least // (threads // lanes))
    params = {"k": k, "rows": rows, "lanes": lanes, "threads": threads, "staged": int(staged)}
    params["unpacks"] = emitter.limits.get(UNPACKS, 0)
    each = threads // lanes * rows
    return [math.ceil(n / each) for n in counts[: 1 if gated else None]], params


def _call(node: Node, emitter: Emitter, chosen: range) -> None:
    """Writes the call that makes some of the products."""
    present, act = node.attrs["present"], node.attrs["act"]
    gated, normed = act != "none", "norm" in present
    # Queries and keys turn.
    turned = len([i for i in chosen if i < 2]) if "cos" in present else 0
    weights = [node.inputs[1 + len(present) + i] for i in chosen]
    k, counts = node.inputs[0].shape[-1], [w.shape[0] for w in weights]
    halves = tuple(int(node.types[0 if gated else i].dtype is DType.F16) for i in chosen)
    least = 4 if any(halves) else 2 if turned else 1
    groups, shape = workgroups_of(emitter, k, counts, gated, normed, least)
    params = {
        **shape,
        "parts": tuple(
            (node.attrs["schemes"][i], w.shape[0], w.shape[1] * w.dtype.itemsize)
            for i, w in zip(chosen, weights, strict=True)
        ),
        "ends": tuple(sum(groups[: i + 1]) for i in range(len(groups))),
        "gated": int(gated),
        "act": ACTIVATIONS.index(act) if gated else 0,
        "normed": int(normed),
        "added": int("residual" in present),
        "biased": int("bias" in present),
        "turned": turned,
        "style": node.attrs["style"],
        "head": node.attrs["head"],
        "eps": node.attrs["eps"],
        "experts": 0,
        "halves": halves,
        OFFSETS: (0,) * len(groups),
    }
    named = dict(zip(present, range(1, 1 + len(present)), strict=True))
    idle = {name for i, name in enumerate(BIASES) if i not in chosen}
    idle |= set() if turned else {"cos", "sin"}
    before = [i for name, i in named.items() if name not in idle]
    operands = [0, *before, *(1 + len(present) + i for i in chosen)]
    results = emitter.results()
    emitter.call(
        "packed_gemv",
        [emitter.operand(i) for i in operands],
        results if gated else [results[i] for i in chosen],
        params,
        sum(groups),
    )


def _packed(
    *counts: int,
    k: int,
    schemes: Sequence[str],
    act: str = "none",
    style: str = "",
    head: int = 2,
    halves: int = 0,
    **present: bool,
) -> Sample:
    values: list[Array] = [np.sin(np.arange(k)).reshape(1, k)]
    if present.get("norm"):
        values.append(1 + 0.5 * np.cos(np.arange(k)))
    if present.get("residual"):
        values.append(np.cos(np.arange(counts[0])).reshape(1, -1))
    if present.get("bias"):
        values += [np.sin(3 * np.arange(n)) for n in counts]
    if style:
        angles, signs = np.arange(head // 2), np.array([-1, 1])
        sines = np.sin(angles)[:, None] * signs
        values += [np.cos(angles), (sines.T if style == "neox" else sines).reshape(1, -1)]
    types = [DType.F32] * len(values) + [DType[s] if s in PLAIN else DType.U8 for s in schemes]
    for scheme, n in zip(schemes, counts, strict=True):
        plain = np.cos(np.arange(n * k)).reshape(n, k)
        values.append(plain if scheme in PLAIN else scrambled_blocks(scheme, n, k))
    names = tuple(name for name in ("norm", "residual") if present.get(name))
    names += BIASES[: len(counts)] if present.get("bias") else ()
    names += ("cos", "sin") if style else ()
    attrs = {"schemes": tuple(schemes), "act": act, "eps": 1e-5, "present": names}
    attrs |= {"style": style, "head": head, "halves": halves}
    return Sample(tuple(v.shape for v in values), attrs, tuple(types), values=tuple(values))


def _samples() -> tuple[Sample, ...]:
    results = []
    for scheme, form in FORMATS.items():
        results += [
            _packed(5, k=2 * form.weights, schemes=[scheme]),
            _packed(67, k=5 * form.weights, schemes=[scheme], norm=True, residual=True),
        ]
    results += [
        _packed(40, 9, 1, k=512, schemes=["Q4_K", "Q6_K", "Q8_0"], norm=True),
        _packed(1030, 7, k=1280, schemes=["Q5_0", "Q4_0"]),
        _packed(35, 9, k=96, schemes=["F16", "BF16"], norm=True),
        _packed(1030, k=320, schemes=["BF16"]),
        _packed(9, k=512, schemes=["F16"], residual=True),
        *(_packed(33, 33, k=256, schemes=["Q6_K", "Q5_1"], act=act) for act in ACTIVATIONS if act != "none"),
        _packed(1100, 1100, k=768, schemes=["Q2_K", "Q3_K"], act="silu", norm=True),
        *(_packed(64, 32, 7, k=256, schemes=["Q4_K", "Q5_0", "Q6_K"], style=style, head=16, norm=True)
          for style in ("neox", "gptj")),
        _packed(2304, 1152, 1152, k=512, schemes=["Q8_0"] * 3, style="neox", head=64, norm=True),
        *(_packed(64, 32, 7, k=256, schemes=["Q4_K", "F16", "Q8_0"], style=style, head=16, norm=True, bias=True)
          for style in ("neox", "gptj")),
        *(_packed(64, 32, 14, k=256, schemes=["Q4_K", "F16", "Q8_0"], style=style, head=16, norm=True, halves=2)
          for style in ("neox", "gptj")),
        _packed(40, 24, 8, k=16640, schemes=["Q4_K"] * 3, style="neox", head=8, halves=2),
        _packed(9, 5, k=512, schemes=["Q4_K", "Q6_K"], bias=True),
        _packed(0, k=256, schemes=["Q4_K"]),
        # A row that has no room in workgroup memory.
        _packed(11, k=16384, schemes=["Q4_K"], norm=True),
        _packed(9, 9, k=16640, schemes=["Q6_K", "Q5_K"], act="gelu", norm=True),
        _packed(6, k=20480, schemes=["MXFP4"], residual=True),
    ]  # fmt: skip
    return tuple(results)


@op(
    free=("weights",),
    infer=_infer,
    cpu=Kernels(("dequant_matmul", "layer_norm", "strided_copy"), _lower_cpu),
    flops=lambda node: (
        2.0
        * node.inputs[0].shape[-1]
        * sum(w.shape[0] for w in node.inputs[1 + len(node.attrs["present"]) :])
    ),
    webgpu=Kernels(("packed_gemv",), _lower_webgpu),
    internal=True,
    dtypes=frozenset({DType.F32}),
    tolerance={DType.F32: 1e-5},  # as dequant_matmul
    samples=lambda: _samples(),
)
def packed_products(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    norm: Array | None = None,
    residual: Array | None = None,
    bias: Array | None = None,
    bias1: Array | None = None,
    bias2: Array | None = None,
    cos: Array | None = None,
    sin: Array | None = None,
    weights: Sequence[Array] = (),
    schemes: Sequence[str] = (),
    act: str = "none",
    eps: float = 1e-5,
    style: str = "",
    head: int = 2,
    halves: int = 0,
) -> Any:
    """``dequant_matmul`` of one row by up to 3 weights.

    ``norm`` is the weight of an ``rms_norm`` of the row. ``residual`` is added to a single product, a bias to each of
    several. With an activation there are two products: act(first) * second. With ``cos`` and ``sin`` there are three, of which the first two are
    ``head`` by ``head`` turned as by ``rope``; ``sin`` has an entry for each of a head, with its sign. The last ``halves`` results are f16.
    """
    if norm is not None:
        x = rms_norm.reference(x, norm, eps, x.ndim - 1)
    results = [x @ _decoded(w, s).astype(x.dtype).T for w, s in zip(weights, schemes, strict=True)]
    biases = [vector for vector in (bias, bias1, bias2) if vector is not None]
    results = [y + b for y, b in itertools.zip_longest(results, biases, fillvalue=0)]
    if act != "none":
        return np.asarray(activated(results[0], act) * results[1])
    if residual is not None:
        results[0] = results[0] + residual
    if cos is not None and sin is not None:
        for i in range(2):
            heads = results[i].reshape(-1, head)
            sines = sin.reshape(2, -1)[1] if style == "neox" else sin.reshape(-1, 2)[:, 1]
            turned = rotated(heads, cos.reshape(-1), sines, head, style)
            results[i] = turned.reshape(results[i].shape)
    return results[0] if len(results) == 1 else tuple(results)
