"""Block-quantised weights in graphs: products that leave them packed, and plain decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.products import PANEL_SCHEMES, SCHEMES
from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.fragments import INT8, FragmentVariant, fragment_params, halves
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Attrs, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import size
from rlx.ops.block_formats import (
    FORMATS,
    GROUPED,
    decode_blocks,
    group_size,
    parse_scheme,
    row_weights,
    scrambled_blocks,
)
from rlx.ops.declare import named_operands, op, operand_names
from rlx.ops.movement.gather import check_indices
from rlx.ops.products.calls import Split, tiled_product, write_product
from rlx.ops.products.matmul import Product, product_params, rounded_rows
from rlx.ops.products.tiles import (
    DEQUANT,
    ENOUGH,
    BlockMatmulProblem,
    packed_strips,
    packed_workgroups,
)

_WORKGROUP = 256

_SCALES = (DType.F32, DType.F16)
_ZEROS = (DType.U8, DType.F32, DType.F16)


def _check_packed(
    name: str, types: dict[str, TensorType], attrs: dict[str, Any]
) -> tuple[str, int]:
    """The scheme and the weights of a row, after checking everything that holds them.

    Raises:
        DTypeError: A dtype is wrong.
        ShapeError: The bytes, scales or zero points do not fit.
    """
    scheme = attrs["scheme"] = parse_scheme(attrs["scheme"], where=name)
    packed = types["packed"]
    if packed.dtype is not DType.U8:
        raise DTypeError(f"[{name}] packed weights are bytes", got=packed.dtype, expected="u8")
    if not packed.shape:
        raise ShapeError(f"[{name}] packed weights have no axis", got=packed.shape)
    scales, zeros = types.get("scales"), types.get("zeros")
    if scheme in FORMATS and (scales or zeros):
        raise ShapeError(
            f"[{name}] {scheme} holds its scales in the blocks",
            hint=f"scales and zeros are for {' and '.join(GROUPED)}",
        )
    weights = row_weights(scheme, packed.shape[-1], where=name)
    if scheme in FORMATS:
        return scheme, weights
    if scales is None:
        raise ShapeError(f"[{name}] {scheme} needs scales, one per group of a row")
    group_size(packed.shape, scheme, scales.shape, where=name)
    if zeros is not None and zeros.shape != scales.shape:
        raise ShapeError(f"[{name}] zero points", got=zeros.shape, expected=scales.shape)
    for what, type, legal in (("scales", scales, _SCALES), ("zeros", zeros, _ZEROS)):
        if type is not None and type.dtype not in legal:
            raise DTypeError(
                f"[{name}] {what}", got=type.dtype, expected=" or ".join(map(str, legal))
            )
    return scheme, weights


def _named(
    types: Sequence[TensorType], attrs: Attrs, first: Sequence[str]
) -> dict[str, TensorType]:
    return dict(zip((*first, *attrs["present"]), types, strict=True))


def _geometry(node: Node) -> dict[str, Any]:
    """Returns the kernels' parameters for the packed operand."""
    types = dict(zip(operand_names(node), (i.type for i in node.inputs), strict=True))
    scheme, packed = node.attrs["scheme"], types["packed"].shape
    k = row_weights(scheme, packed[-1], where=node.op)
    scales, zeros = types.get("scales"), types.get("zeros")
    grouped = scales is not None and group_size(packed, scheme, scales.shape, where=node.op)
    return {
        "k": k,
        "row_bytes": packed[-1],
        "group": int(grouped) or 1,
        "scale_bytes": scales.dtype.itemsize if scales else 0,
        "zero_bytes": zeros.dtype.itemsize if zeros else 0,
    }


def _webgpu_scheme(scheme: str) -> dict[str, Any]:
    """A scheme as shaders/lib/blocks.wgsl takes it."""
    form = FORMATS.get(scheme)
    return {
        "scheme": scheme,
        "weights": form.weights if form else 16,
        "block_bytes": form.nbytes if form else 2 * GROUPED[scheme],
    }


# --- the product ----------------------------------------------------------------------------------

_PRODUCT = ("x", "packed", "scales", "zeros")


def _infer_product(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    name = "dequant_matmul"
    scheme, k = _check_packed(name, _named(types, attrs, ("x", "packed")), attrs)
    x, packed = types[0].shape, types[1].shape
    if len(packed) != 2:
        raise ShapeError(f"[{name}] packed weights", got=packed, expected="[N, bytes of a row]")
    if not x or x[-1] != k:
        form = FORMATS.get(scheme)
        whole = form is None or not x or x[-1] % form.weights == 0
        raise ShapeError(
            f"[{name}] x and the packed weights do not fit",
            got=f"x {x}, rows of {k} weights ({packed[1]} bytes of {scheme})",
            expected=f"x [..., {k}]",
            hint=None if whole else f"{scheme} has blocks of {form and form.weights} weights",
        )
    return TensorType((*x[:-1], packed[0]), types[0].dtype)


def _product_params(node: Node) -> dict[str, Any]:
    m, n = size(node.shape[:-1]), node.shape[-1]
    return {"m": m, "n": n, "experts": 0, "index_bytes": 0, **_geometry(node)}


def _lower_product_cpu(node: Node, emitter: Emitter) -> None:
    params = {"scheme": SCHEMES.index(node.attrs["scheme"]), "bf16": 0, **_product_params(node)}
    operands = named_operands(node, emitter, _PRODUCT)
    # Weights that are known are packed when they are set; others are multiplied as under "f32".
    known = node.inputs[1].op in ("param", "constant")
    if not known or not emitter.limits.get(INT8) or node.attrs["scheme"] not in PANEL_SCHEMES:
        emitter.call("dequant_matmul", operands, [emitter.result()], params)
        return
    (x, w), m, k = operands[:2], params["m"], params["k"]
    own = {"n": (params["n"],), "schemes": (params["scheme"],), "row_bytes": (params["row_bytes"],)}
    if emitter.joins("dequant_products", x, w, own):
        return
    rows, sizes = rounded_rows(emitter, x, m, k)
    emitter.call("dequant_products", [x, rows, w], [emitter.result()], {**sizes, **own})


def _lower_product_webgpu(node: Node, emitter: Emitter) -> None:
    params = {**_webgpu_scheme(node.attrs["scheme"]), **_product_params(node)}
    call_packed_product(node, emitter, named_operands(node, emitter, _PRODUCT), params)


def call_packed_product(
    node: Node, emitter: Emitter, operands: list[Any], params: dict[str, Any]
) -> None:
    """Writes the calls of the WGSL kernels that decode weights as they multiply.

    Args:
        node: The product.
        emitter: Takes the calls.
        operands: x, the packed weights, scales and zeros.
        params: The scheme, as ``lib/blocks.wgsl`` takes it, and the sizes.
    """
    units = halves(node.dtype, emitter.limits)
    problem = BlockMatmulProblem(params["m"], params["n"], params["k"], units)
    # Rows of the plain groups may end in half a piece.
    params["piece"] = 16 if problem.k % 32 else 32
    variant = DEQUANT.choose(problem, emitter)
    product = product_params(
        Product(problem.m, problem.k, problem.n, 1, (1,), (0,), (0,)), DType.F32
    )
    params |= {**product, "transposed_b": 1, **variant.params}
    if variant.name == "few":
        cut = packed_strips(problem, params["piece"])
        params |= cut._asdict()
        more = emitter, operands, [emitter.result()], params
        write_product("dequant_gemv", Split(cut.splits), cut.across, cut.across, *more)
        return
    if isinstance(variant, FragmentVariant):
        params |= {**fragment_params(emitter.limits), "rounded": 1, "fragments": 1}
        kernel, limit = "dequant_fragments", 9 * ENOUGH // 4
    else:
        kernel, limit = "dequant_matmul", packed_workgroups(variant)
    tiled_product(kernel, variant, emitter, operands, [emitter.result()], params, limit)


def _group_values(scheme: str, rows: int, weights: int, group: int) -> tuple[Array, Array, Array]:
    """Codes, scales and zero points that use every code."""
    nbytes = weights * GROUPED[scheme] // 8
    codes = scrambled_blocks("Q8_0", rows, 32 * math.ceil(nbytes / 32))
    groups = weights // group
    scales = 0.25 + np.arange(rows * groups).reshape(rows, groups) % 7 / 8
    zeros = (np.arange(rows * groups).reshape(rows, groups) * 5) % (1 << GROUPED[scheme])
    return codes[:, :nbytes], scales, zeros


# Operands of a sample, its attributes, the dtypes of the operands.
_Drawn = tuple[tuple[Array, ...], dict[str, Any], tuple[DType, ...]]


def _x(*shape: int) -> Array:
    return np.sin(np.arange(math.prod(shape))).reshape(shape)


def _product_samples() -> list[Sample]:
    results: list[_Drawn] = []
    for scheme, form in FORMATS.items():
        for lead, n, blocks in (((1,), 5, 2), ((67,), 9, 3), ((0,), 3, 1), ((2, 3), 66, 1)):
            k = blocks * form.weights
            values = (_x(*lead, k), scrambled_blocks(scheme, n, k))
            results.append((values, {"scheme": scheme}, (DType.F32, DType.U8)))
    first = FORMATS["Q4_0"].weights
    w = scrambled_blocks("Q4_0", 1, first)
    results += [((_x(first), w), {"scheme": "q4_0"}, (dtype, DType.U8))
             for dtype in (DType.F16, DType.BF16, DType.F32)]  # fmt: skip
    results += [((_x(m, 0), np.zeros((4, 0))), {"scheme": "Q6_K"}, (DType.F32, DType.U8))
             for m in (1, 20)]  # fmt: skip
    # Rows longer than the kernels take at once, and more rows than one tile has.
    results += [((_x(m, 1312), scrambled_blocks("Q5_0", 5, 1312)), {"scheme": "Q5_0"},
              (DType.F32, DType.U8)) for m in (1, 4, 8, 9, 130)]  # fmt: skip
    for scheme, group, scale, zero in (
        ("int4", 16, DType.F32, None), ("int4", 32, DType.F16, DType.U8),
        ("int4", 128, DType.F32, DType.F16), ("int8", 64, DType.F16, None),
        ("int8", 128, DType.F32, DType.U8), ("int8", 256, DType.F16, DType.F32),
    ):  # fmt: skip
        for lead, n, groups in (((1,), 5, 3), ((67,), 9, 1), ((0,), 3, 1), ((2, 5), 66, 2)):
            codes, scales, zeros = _group_values(scheme, n, groups * group, group)
            operands = (_x(*lead, groups * group), codes, scales, zeros)
            types = (DType.F32, DType.U8, scale, *([zero] if zero else []))
            results.append((operands[: len(types)], {"scheme": scheme}, types))
    return [
        Sample(tuple(v.shape for v in values), attrs, dtypes, values=values)
        for values, attrs, dtypes in results
    ]


@op(
    free=("packed", "scales", "zeros"),
    infer=_infer_product,
    flops=lambda node: 2.0 * size(node.shape) * node.inputs[0].shape[-1],
    cpu=Kernels(("dequant_matmul", "dequant_products", "round_rows"), _lower_product_cpu),
    webgpu=Kernels(
        ("dequant_matmul", "dequant_fragments", "dequant_gemv", "split_sum"), _lower_product_webgpu
    ),
    dtypes=frozenset({DType.F32}),
    tolerance={DType.F32: 1e-5},  # scales of the samples differ by 2^15, and so do the terms of a sum
    samples=lambda: (
        *_product_samples(),
        # Bytes up to 59 make scales below 1.
        *(Sample(((m, 1024), (1024, 576)), {"scheme": "Q4_0"}, (DType.F32, DType.U8),
                 low=(-2, 0), high=(2, 59.9), bench=True) for m in (1, 64)),
    ),
)  # fmt: skip
def dequant_matmul(
    x: Array, packed: Array, scheme: str, scales: Array | None = None, zeros: Array | None = None
) -> Array:
    """X @ W^T with block-quantised weights W, which stay packed in memory.

    Args:
        x: f32, f16 or bf16 ``[..., K]``.
        packed: u8 ``[N, bytes of a row]``: W ``[N, K]`` row by row in blocks along K, as a GGUF file
            holds it (``quantize_blocks`` makes such arrays).
        scheme: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K, IQ4_NL, IQ4_XS or MXFP4; or
            int4 (two codes a byte, the low half first) or int8 with scales of their own.
        scales: For int4 and int8: f32 or f16 ``[N, K / group]``, the group 16, 32, 64, 128 or 256.
        zeros: For int4 and int8: u8, f32 or f16 of the same shape, the code that stands for 0; 8 and
            128 if absent. A weight is (code - zero) * scale, codes unsigned.

    Returns:
        ``[..., N]``.
    """
    return np.asarray(x @ decode_blocks(packed, scheme, scales, zeros).T)


# --- decoding -------------------------------------------------------------------------------------

_DECODED = ("packed", "scales", "zeros", "rows")


def _infer_decoded(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    name = "dequantize_blocks"
    named = _named(types, attrs, ("packed",))
    _, k = _check_packed(name, named, attrs)
    packed, rows = types[0].shape, named.get("rows")
    if rows is None:
        return TensorType((*packed[:-1], k), DType.F32)
    check_indices(name, rows)
    if len(packed) != 2 or (packed[0] == 0 and rows.size):
        raise ShapeError(
            f"[{name}] rows can't be picked",
            got=f"packed {packed}",
            expected="[V, bytes of a row], V >= 1",
        )
    return TensorType((*rows.shape, k), DType.F32)


def _decoded_params(node: Node) -> dict[str, Any]:
    rows = "rows" in node.attrs["present"]
    geometry = _geometry(node)
    return {
        "count": size(node.shape) // (geometry["k"] or 1),
        "table": size(node.inputs[0].shape[:-1]),
        "index_bytes": node.inputs[-1].dtype.itemsize if rows else 0,
        **geometry,
    }


def _lower_decoded_cpu(node: Node, emitter: Emitter) -> None:
    params = {"scheme": SCHEMES.index(node.attrs["scheme"]), **_decoded_params(node)}
    operands = named_operands(node, emitter, _DECODED)
    emitter.call("dequantize_blocks", operands, [emitter.result()], params)


def _lower_decoded_webgpu(node: Node, emitter: Emitter) -> None:
    params = {**_webgpu_scheme(node.attrs["scheme"]), **_decoded_params(node)}
    work = math.ceil(size(node.shape) / (4 * _WORKGROUP))
    operands = named_operands(node, emitter, _DECODED)
    emitter.call("dequantize_blocks", operands, [emitter.result()], params, work)


def _decoded_samples() -> list[Sample]:
    results: list[_Drawn] = []
    for scheme, form in FORMATS.items():
        table = scrambled_blocks(scheme, 6, 3 * form.weights)
        absent = {"scheme": scheme, "scales": None, "zeros": None}
        results += [
            ((table,), {"scheme": scheme}, (DType.U8,)),
            ((table.reshape(2, 3, -1)[:1],), {"scheme": scheme}, (DType.U8,)),
            ((table[:0],), {"scheme": scheme}, (DType.U8,)),
            ((table, np.array([[5, -6], [0, 2], [2, -1]])), absent, (DType.U8, DType.I32)),
        ]
    table = scrambled_blocks("Q4_K", 1, 256)
    absent = {"scheme": "Q4_K", "scales": None, "zeros": None}
    results += [
        ((table, np.zeros(shape)), absent, (DType.U8, DType.I64)) for shape in ((1,), (), (0,))
    ]
    groups = (("int4", 32, DType.U8), ("int4", 64, None), ("int8", 16, DType.F16))
    for scheme, group, zero in groups:
        for scale in (DType.F32, DType.F16):
            dtypes = (DType.U8, scale, *([zero] if zero else []))
            values: tuple[Array, ...] = _group_values(scheme, 5, 3 * group, group)[: len(dtypes)]
            results.append((values, {"scheme": scheme}, dtypes))
            absent = {"scheme": scheme} | ({} if zero else {"zeros": None})
            results.append(((*values, np.array([4, 0, -2])), absent, (*dtypes, DType.I32)))
    return [
        Sample(tuple(v.shape for v in values), attrs, dtypes, values=values)
        for values, attrs, dtypes in results
    ]


@op(
    free=("scales", "zeros", "rows"),
    infer=_infer_decoded,
    flops=lambda node: 2.0 * size(node.shape),
    cpu=Kernels(("dequantize_blocks",), _lower_decoded_cpu),
    webgpu=Kernels(("dequantize_blocks",), _lower_decoded_webgpu),
    dtypes=frozenset({DType.U8}),
    webgpu_dtypes=frozenset({DType.U8}),
    samples=lambda: (
        *_decoded_samples(),
        Sample(((1024, 576),), {"scheme": "Q4_0"}, (DType.U8,), low=0, high=59.9, bench=True),
    ),
)
def dequantize_blocks(
    packed: Array,
    scheme: str,
    scales: Array | None = None,
    zeros: Array | None = None,
    rows: Array | None = None,
) -> Array:
    """The f32 weights of packed blocks, or of some rows of them (an embedding look-up).

    Args:
        packed: u8 ``[..., bytes of a row]``.
        scheme: As for ``dequant_matmul``.
        scales: As there: ``[..., K / group]``.
        zeros: As there.
        rows: i32 or i64, any shape, with packed ``[V, bytes of a row]``: only these rows are decoded.
            Negative ones count from the end. One out of range is an ``InputError`` on the CPU;
            WebGPU takes the nearest row.

    Returns:
        f32 ``[..., K]``, or ``[*rows.shape, K]``. For the GGUF formats the very values that ggml
        computes.
    """
    weights = decode_blocks(packed, scheme, scales, zeros)
    return weights if rows is None else weights[rows]
