"""Scaled dot-product attention with every kind of mask, grouped heads and both layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from rlx.abi.attention import KEPT, KINDS
from rlx.dataclasses import dataclass
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.fragments import fragment_params, halves
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import Shape, broadcast, broadcast_strides
from rlx.ir.variants import UNPACKS, Variant
from rlx.ops.attention.few_queries import DECODE, Decode, columns, splits
from rlx.ops.attention.tiles import PREFILL, FragmentQueries, Prefill
from rlx.ops.block_formats import FORMATS
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.f16_via_f32 import lower_widened
from rlx.sizes import divides, flag, pinned, surely

# The number of a mask kind is its parameter in the kernels.


def _head(shape: Shape, heads: int, layout: str) -> tuple[int, int, int, int]:
    """(batch, heads, length, head size) of an operand."""
    if len(shape) == 3:
        return shape[0], heads, shape[1], shape[2] // heads
    b, x, y, d = shape
    return (b, x, y, d) if layout == "bhsd" else (b, y, x, d)


def _steps(shape: Shape, heads: int, layout: str) -> tuple[int, int, int]:
    """Element strides of (batch, head, position)."""
    _, h, s, d = _head(shape, heads, layout)
    return (h * s * d, s * d, d) if len(shape) == 4 and layout == "bhsd" else (h * s * d, d, h * d)


def _kind(text: str) -> tuple[str, int]:
    """``"sliding:4"`` as ("sliding", 4)."""
    name, colon, window = text.partition(":")
    if name not in KINDS or (name == "sliding") != bool(colon) or (colon and not window.isdigit()):
        raise GraphError(
            "[attention] no such mask kind",
            got=repr(text),
            expected="none, causal, sliding:W, custom or bias",
        )
    return name, int(window or 0)


@dataclass(frozen=True)
class Heads:
    """Sizes of one attention, read off its operands."""

    batch: int
    heads: int
    kv_heads: int
    sq: int
    sk: int
    d: int
    dv: int

    @staticmethod
    def of(types: Sequence[TensorType], attrs: dict[str, Any]) -> Heads:
        """Reads and checks the operand shapes.

        Raises:
            ShapeError: They do not fit each other or the attributes.
        """
        q, k, v = (type.shape for type in types[:3])
        heads, layout = attrs["num_heads"], attrs["layout"]
        if len({len(q), len(k), len(v)}) != 1 or len(q) not in (3, 4):
            raise ShapeError(
                "[attention] q, k and v need one rank, 3 or 4",
                got=f"{q}, {k}, {v}",
                expected="[B, S, H*D], or [B, H, S, D]",
            )
        if layout not in ("bhsd", "bshd"):
            raise GraphError(
                "[attention] no such layout", got=repr(layout), expected="bhsd or bshd"
            )
        axis = 1 if layout == "bhsd" else 2
        if heads is None:
            if len(q) == 3:
                raise GraphError("[attention] rank 3 operands need num_heads", got=f"q {q}")
            heads = q[axis]
        kv_heads = attrs["num_kv_heads"]
        if kv_heads is None:
            kv_heads = heads if len(q) == 3 else k[axis]
        for name, shape, count in (("q", q, heads), ("k", k, kv_heads), ("v", v, kv_heads)):
            fits = shape[2] % count == 0 if len(q) == 3 else shape[axis] == count
            if count < 1 or not fits:
                raise ShapeError(f"[attention] {name} does not hold {count} heads", got=shape)
        bq, _, sq, d = _head(q, heads, layout)
        bk, _, sk, dk = _head(k, kv_heads, layout)
        bv, _, sv, dv = _head(v, kv_heads, layout)
        alike = (bq, d, sk) == (bk, dk, sv) and bq == bv and heads % kv_heads == 0
        if not alike or (attrs["scale"] is None and d == 0):
            raise ShapeError(
                "[attention] q, k and v do not fit",
                got=f"q {q}, k {k}, v {v}, heads {heads}, kv heads {kv_heads}",
                expected="equal batch and head size, not 0 without a scale, k and v of one length, kv heads dividing heads",
            )
        if attrs["head_dim"] not in (None, d):
            raise ShapeError(
                "[attention] head_dim is not that of q", got=attrs["head_dim"], expected=d
            )
        return Heads(bq, heads, kv_heads, sq, sk, d, dv)


# WebGPU: minimum queries for the tiled kernel, in which 64 queries share the keys, and the widest values it takes.
_TILED = 16
_WIDEST = 256
# Most trips of the loops of one call.
_MAX_TRIPS = 50_000
# Minimum queries for the path of matrix products on the CPU.
_FEWEST = 4
WEBGPU_KERNELS = (
    "attention",
    "attention_split",
    "attention_join",
    "attention_tiles",
    "attention_wide",
    "attention_fragments",
)


def attention_type(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    """Infers the type of the result, and completes the attributes."""
    heads = Heads.of(types, attrs)
    kind, _ = _kind(attrs["kind"])
    has_mask = len(types) > 3
    if has_mask != (kind in ("custom", "bias")):
        raise GraphError(
            "[attention] mask and kind do not fit",
            got=f"kind {attrs['kind']!r} {'with' if has_mask else 'without'} a mask",
            expected="a mask for custom and bias, none otherwise",
        )
    if kind == "custom" and types[3] != TensorType((heads.batch, heads.sk), DType.BOOL):
        raise ShapeError(
            "[attention] a custom mask marks the visible keys",
            got=types[3],
            expected=TensorType((heads.batch, heads.sk), DType.BOOL),
        )
    if kind == "bias":
        full = (heads.batch, heads.heads, heads.sq, heads.sk)
        if types[3].dtype is not types[0].dtype:
            raise DTypeError("[attention] bias dtype", got=types[3].dtype, expected=types[0].dtype)
        if broadcast(types[3].shape, full, where="attention") != full:
            raise ShapeError(
                "[attention] bias does not broadcast", got=types[3].shape, expected=full
            )
    softcap = attrs["softcap"]
    if not (softcap is None or (isinstance(softcap, int | float) and math.isfinite(softcap))):
        raise GraphError("[attention] softcap", got=repr(softcap), expected="a number")
    attrs.update(
        num_heads=heads.heads,
        num_kv_heads=heads.kv_heads,
        head_dim=heads.d,
        scale=float(1 / math.sqrt(pinned(heads.d)) if attrs["scale"] is None else attrs["scale"]),
    )
    q, layout = types[0].shape, attrs["layout"]
    if len(q) == 3:
        shape: Shape = (heads.batch, heads.sq, heads.heads * heads.dv)
    elif layout == "bhsd":
        shape = (heads.batch, heads.heads, heads.sq, heads.dv)
    else:
        shape = (heads.batch, heads.sq, heads.heads, heads.dv)
    return TensorType(shape, types[0].dtype)


def shares_keys(node: Node) -> bool:
    """Returns whether there are so many queries that tiles of them share keys."""
    return bool(_of(node).sq >= _TILED)


def unpacked(type: TensorType) -> TensorType:
    """Returns the type of what blocks hold; other types as they are."""
    if type.dtype is not DType.U8:
        return type
    weights, nbytes = FORMATS["Q8_0"].weights, FORMATS["Q8_0"].nbytes
    return TensorType((*type.shape[:-1], type.shape[-1] // nbytes * weights), DType.F32)


def _kept(node: Node) -> str:
    """The format of keys and values, of ``KEPT``."""
    dtype = node.inputs[1].dtype
    return "same" if dtype is node.dtype else "f16" if dtype is DType.F16 else "q8_0"


def _of(node: Node) -> Heads:
    return Heads.of([unpacked(operand.type) for operand in node.inputs], node.attrs)


def attention_flops(node: Node) -> float:
    """Floating-point operations; half of the keys are seen by a query where they are causal."""
    h = _of(node)
    both = 2.0 * h.batch * h.heads * h.sq * h.sk * (h.d + h.dv)
    return both / 2 if node.attrs["kind"] == "causal" else both


def lower_attention_cpu(node: Node, emitter: Emitter) -> None:
    """Writes the call of the C kernel."""
    _call("attention", node, emitter, more={"many": 0 if _of(node).sq < _FEWEST else 1})


def lower_attention_webgpu(node: Node, emitter: Emitter) -> None:
    """Writes the calls of WGSL kernels."""
    h = _of(node)
    if h.sq >= _TILED and halves(node.dtype, emitter.limits) and _kept(node) != "q8_0":
        variant = PREFILL.choose(_prefill(h, emitter, half=True), emitter)
        if isinstance(variant, FragmentQueries):
            _fragments(node, emitter, h, variant)
            return
    lower_widened(node, emitter, _lower_wide)


def _prefill(h: Heads, emitter: Emitter, half: bool = False) -> Prefill:
    return Prefill(h.batch * h.heads, h.sq, h.sk, h.d, h.dv, half, emitter.limits)


def _fragments(node: Node, emitter: Emitter, h: Heads, variant: Variant) -> None:
    """Queries whose products are made by matrix units."""
    fragment = fragment_params(emitter.limits)
    queries = variant.params["subgroups"] * fragment["lanes"]
    counts = (h.heads, h.kv_heads, h.kv_heads, h.heads)
    steps = [
        _steps(item.shape, count, node.attrs["layout"])
        for item, count in zip((*node.inputs[:3], node), counts, strict=True)
    ]
    # So many numbers are read at once where all lines begin at a multiple of them.
    aligned = (next(of for of in (8, 4, 2, 1) if all(divides(of, n) for n in s)) for s in steps)
    more = {
        **fragment,
        "fragments": 1,
        "rounded": int(node.dtype is DType.F32),
        "queries": queries,
        "keys": variant.params["keys"],
        **dict(zip(("q_aligned", "k_aligned", "v_aligned", "o_aligned"), aligned, strict=True)),
    }
    work = h.batch * h.heads * math.ceil(h.sq / queries)
    _call("attention_fragments", node, emitter, work, more=more)


def _lower_wide(node: Node, emitter: Emitter) -> None:
    """By kernels of f32."""
    h = _of(node)
    if h.sq >= _TILED and h.dv <= _WIDEST:
        _tiles(node, emitter, h)
        return
    name, window = _kind(node.attrs["kind"])
    # No query sees the keys before the first query's window.
    first = max(0, h.sk - h.sq - window) if name == "sliding" else 0
    few = Decode(h.batch * h.kv_heads, h.heads // h.kv_heads * h.sq, h.sk - first, h.d, h.dv)
    variant = DECODE.choose(few, emitter)
    if variant.name != "plain":
        _split(node, emitter, few, variant, first)
    elif _plain_trips(h) > _MAX_TRIPS and h.dv <= _WIDEST:
        _tiles(node, emitter, h)
    else:
        _call("attention", node, emitter, h.batch * h.heads * h.sq)


def _plain_trips(h: Heads) -> int:
    """Trips of the kernel that takes one query: a block of 64 keys meets its elements, then those of the values."""
    return math.ceil(h.sk / 64) * (h.d + 20 + 65 * math.ceil(h.dv / 64))


def _tiles(node: Node, emitter: Emitter, h: Heads) -> None:
    """Tiles of queries, which share the keys that they read."""
    variant = PREFILL.choose(_prefill(h, emitter), emitter)
    kernel = "attention_tiles" if variant.name == "tiles" else "attention_wide"
    work = h.batch * h.heads * math.ceil(h.sq / variant.params["queries"])
    name, window = _kind(node.attrs["kind"])
    met = min(h.sk, window + variant.params["queries"]) if name == "sliding" else h.sk
    # Blocks of 64 keys per call. The kernel loops over the elements of a key in each block.
    keys = 64 * (_MAX_TRIPS // (math.ceil(h.d / 16) + 25))
    if met <= keys:
        _call(kernel, node, emitter, work, more=variant.params)
        return
    state = emitter.temp(TensorType((h.batch, h.heads, h.sq, 2), DType.F32))
    outputs = [emitter.result(), state]
    for start in range(0, h.sk, keys):
        part = {"key_from": start, "key_to": min(start + keys, h.sk)}
        _call(kernel, node, emitter, work, outputs, {**variant.params, **part})


def _split(node: Node, emitter: Emitter, problem: Decode, variant: Variant, first: int) -> None:
    """One call where a workgroup reads all keys of a head. Else a second call joins what several workgroups found.

    With dims there are both calls, and the sizes of a run tell whether the second one has anything to do.
    """
    h = _of(node)
    count, trips = splits(problem, variant)
    rows = h.batch * h.heads * h.sq
    shared = {"threads": variant.threads, "columns": columns(problem), "splits": count}
    several = flag(count - 1)
    parts = [
        emitter.temp(TensorType((rows * several, count, n), DType.F32))
        for n in (h.dv, 2)
        if not surely(lambda: count == 1)
    ]
    more = {
        **shared,
        "keys": variant.params["keys"],
        "trips": trips,
        "first": first,
        "rows": problem.at_once,
        "blocks": problem.blocks,
    }
    groups = problem.pairs * count * problem.blocks
    _call("attention_split", node, emitter, groups, [emitter.result(), *parts], more)
    if parts:
        steps = _steps(node.shape, h.heads, node.attrs["layout"])
        layout = {"heads": h.heads, "sq": h.sq, "dv": h.dv, "o_steps": steps}
        to = [emitter.result()]
        emitter.call("attention_join", parts, to, {**shared, **layout}, rows * several)


def _call(
    kernel: str,
    node: Node,
    emitter: Emitter,
    groups: int = 1,
    outputs: Sequence[Any] = (),
    more: Mapping[str, int] = MappingProxyType({}),
) -> None:
    h, attrs = _of(node), node.attrs
    kind, window = _kind(attrs["kind"])
    mask_steps = (0, 0, 0, 0)
    if kind == "custom":
        mask_steps = (h.sk, 0, 0, 1)
    elif kind == "bias":
        full = (h.batch, h.heads, h.sq, h.sk)
        b, hh, q, k = broadcast_strides(node.inputs[3].shape, full)
        mask_steps = (b, hh, q, k)
    layout = attrs["layout"]
    if emitter.limits.get(UNPACKS):
        more = {**more, "unpacks": 1}
    emitter.call(
        kernel,
        [emitter.operand(i) if i < len(node.inputs) else None for i in range(4)],
        outputs or [emitter.result()],
        {
            **vars(h),
            "q_steps": _steps(node.inputs[0].shape, h.heads, layout),
            "k_steps": _steps(unpacked(node.inputs[1].type).shape, h.kv_heads, layout),
            "v_steps": _steps(unpacked(node.inputs[2].type).shape, h.kv_heads, layout),
            "o_steps": _steps(node.shape, h.heads, layout),
            "mask_steps": mask_steps,
            "kind": KINDS.index(kind),
            "window": window,
            "scale": attrs["scale"],
            "softcap": float(attrs["softcap"] or 0.0),
            "kv_format": KEPT.index(_kept(node)),
            **more,
        },
        groups,
    )


def _case(shapes: tuple[Shape, ...], **attrs: Any) -> Sample:
    masked = attrs.get("kind") == "custom"
    dtypes = (DType.F32,) * 3 + ((DType.BOOL,) if masked else (DType.F32,))
    return Sample(shapes, attrs, dtypes[: len(shapes)])


@op(
    free=("mask",),
    infer=attention_type,
    flops=attention_flops,
    cpu=Kernels(("attention",), lower_attention_cpu),
    webgpu=Kernels(WEBGPU_KERNELS, lower_attention_webgpu),
    dtypes=FLOAT_KERNELS,
    units_f16=shares_keys,
    tolerance={DType.F32: 1e-5},  # the GPU's exp is 3 + 2|x| ULP, rescaled along the keys
    samples=lambda: (
        _case(((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))),
        _case(((2, 5, 12), (2, 5, 12), (2, 5, 12)), num_heads=3, kind="causal"),
        _case(((1, 2, 3, 8), (1, 2, 9, 8), (1, 2, 9, 6)), kind="causal"),
        _case(((1, 4, 6, 4), (1, 2, 6, 4), (1, 2, 6, 4)), kind="sliding:2"),
        _case(((2, 5, 4, 4), (2, 6, 2, 4), (2, 6, 2, 4)), layout="bshd", scale=0.3, softcap=2.0),
        _case(((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (2, 5)), kind="custom"),
        _case(((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (2, 1, 3, 5)), kind="bias"),
        _case(((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1))),
        _case(((0, 2, 3, 4), (0, 2, 3, 4), (0, 2, 3, 4))),
        _case(((1, 2, 9, 4), (1, 2, 3, 4), (1, 2, 3, 4)), kind="causal"),
        _case(((1, 2, 70, 64), (1, 2, 130, 64), (1, 2, 130, 64)), kind="causal"),
        _case(((2, 2, 17, 6), (2, 1, 70, 6), (2, 1, 70, 5))),
        _case(((1, 2, 90, 40), (1, 2, 70, 40), (1, 2, 70, 72)), kind="causal"),
        _case(
            ((1, 200, 64), (1, 200, 32), (1, 200, 32)),
            num_heads=4,
            num_kv_heads=2,
            kind="sliding:50",
        ),
        _case(((2, 66, 2, 20), (2, 131, 2, 20), (2, 131, 2, 130)), layout="bshd", softcap=2.0),
        _case(((2, 2, 40, 8), (2, 2, 75, 8), (2, 2, 75, 8), (2, 75)), kind="custom"),
        _case(((2, 2, 40, 8), (2, 2, 75, 8), (2, 2, 75, 8), (2, 1, 40, 75)), kind="bias"),
        _case(((1, 1, 16, 4), (1, 1, 3, 4), (1, 1, 3, 300))),
        *(
            _case(((2, h, sq, d), (2, 2, sk, d), (2, 2, sk, dv)), kind=kind)
            for h, sq, sk, d, dv, kind in (
                (2, 1, 300, 128, 128, "none"),
                (8, 1, 130, 64, 64, "causal"),
                (6, 3, 257, 36, 20, "causal"),
                (2, 11, 150, 8, 260, "sliding:70"),
                (2, 2, 65, 256, 4, "none"),
            )
        ),
        _case(((2, 1, 4, 40), (2, 300, 2, 40), (2, 300, 2, 40)), layout="bshd", softcap=2.0),
        _case(((2, 4, 2, 8), (2, 2, 275, 8), (2, 2, 275, 8), (2, 275)), kind="custom"),
        _case(((2, 4, 2, 8), (2, 2, 275, 8), (2, 2, 275, 8), (2, 1, 2, 275)), kind="bias"),
        Sample(((1, 8, 256, 64),) * 3, {"kind": "causal"}, bench=True),
    ),
)
def attention(  # noqa: PLR0913 - the operation's own signature
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    kind: str = "none",
    num_heads: int | None = None,
    head_dim: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    num_kv_heads: int | None = None,
    layout: Literal["bhsd", "bshd"] = "bhsd",
) -> Array:
    """softmax(q k^T * scale + mask) v per head; the score matrix is never stored.

    Args:
        q: ``[B, Sq, H*D]``, or ``[B, H, Sq, D]`` (``[B, Sq, H, D]`` with ``layout="bshd"``).
        k: The same with Sk and the key-value heads.
        v: As ``k``; its head size may differ.
        mask: bool ``[B, Sk]``, True where visible, for ``kind="custom"``; float, broadcastable to
            ``[B, H, Sq, Sk]``, added to the scores, for ``kind="bias"``.
        kind: none, causal (offset by Sk - Sq), sliding:W (keys in [q - W, q]), custom or bias.
        num_heads: Needed for rank 3.
        head_dim: Checked against q where given.
        scale: 1 / sqrt(D) where None.
        softcap: c * tanh(score / c) before masking.
        num_kv_heads: Fewer heads of k and v, each shared by H / num_kv_heads query heads.
        layout: Axis order of rank 4 operands.

    A row that sees no key gives zeros.
    """
    assert num_heads is not None and num_kv_heads is not None, "inference states them"  # noqa: PT018

    def heads_first(x: Array, heads: int) -> Array:
        if x.ndim == 3:
            return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)
        return x if layout == "bhsd" else x.transpose(0, 2, 1, 3)

    q4, k4, v4 = (
        heads_first(x, h) for x, h in ((q, num_heads), (k, num_kv_heads), (v, num_kv_heads))
    )
    per_kv_head = num_heads // num_kv_heads
    k4, v4 = np.repeat(k4, per_kv_head, 1), np.repeat(v4, per_kv_head, 1)
    scores = q4 @ k4.swapaxes(-1, -2) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    sq, sk = scores.shape[-2:]
    name, window = _kind(kind)
    pos, key = np.arange(sq)[:, None] + (sk - sq), np.arange(sk)[None, :]
    visible = np.ones((sq, sk), bool)
    if name in ("causal", "sliding"):
        visible = key <= pos
    if name == "sliding":
        visible = visible & (key >= pos - window)
    if name == "custom":
        assert mask is not None
        visible = np.asarray(mask, bool)[:, None, None, :]
    if name == "bias":
        scores = scores + mask
    scores = np.where(visible, scores, -np.inf)
    top = np.max(scores, -1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    y = (e / np.where(total == 0, 1, total)) @ v4
    if q.ndim == 3:
        return y.transpose(0, 2, 1, 3).reshape(q.shape[0], sq, -1)
    return y if layout == "bhsd" else y.transpose(0, 2, 1, 3)
