"""Operations registered by users: NumPy functions, with C functions and WGSL where there is more.

A registered operation is used as ``g.custom(name, inputs, attrs)``. On the CPU it runs its C function, or
else its NumPy function between the compiled kernels; on WebGPU its WGSL, or else on the host.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.abi.kernels import MAX_INPUTS, MAX_OUTPUTS
from rlx.dataclasses import dataclass
from rlx.errors import DTypeError, GraphError, UnknownNameError, UnsupportedOpError, did_you_mean
from rlx.ir.dtype import ALL, DType, DTypeLike, widen
from rlx.ir.graph import Node
from rlx.ir.opdef import NO_F64, Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_shape
from rlx.ops.declare import op, stored_results

_WORKGROUP = 256
# The dtypes that a WGSL implementation can bind: types that don't share words.
_WGSL_DTYPES = frozenset({DType.F32, DType.I32, DType.U32})

ShapeRule = Callable[..., Any]


@dataclass(frozen=True)
class CustomOp:
    """One registered operation.

    Attributes:
        name: Its name in ``g.custom``.
        shape: Shapes of the inputs, then attributes by name -> the result's shape, or a list of
            ``(shape, dtype)`` for several results or another dtype than the first input's.
        numpy: Arrays, then attributes by name -> an array or a tuple of them.
        wgsl: A function ``fn compute(i: u32)`` that makes element ``i`` of the results.
        c: Address of a C function ``int f(const void *const *inputs, void *const *outputs,
            const int64_t *sizes, const double *numbers)``.
        dtypes: The dtypes of the WGSL and the C function.
        flops: Floating-point operations per element of the first result, for the cost model.
    """

    name: str
    shape: ShapeRule
    numpy: Callable[..., Any]
    wgsl: str | None = None
    c: int | None = None
    dtypes: frozenset[DType] = frozenset({DType.F32})
    flops: float = 1.0


CUSTOM: dict[str, CustomOp] = {}


def register_custom_op(
    name: str,
    *,
    shape: ShapeRule,
    numpy: Callable[..., Any],
    wgsl: str | None = None,
    c: Any = None,
    dtypes: Sequence[DTypeLike] = ("f32",),
    flops: float = 1.0,
) -> CustomOp:
    """Registers an operation under a name; one of that name is replaced.

    Args:
        name: Its name in ``g.custom``.
        shape: Called with the input shapes and the attributes by name. Returns the shape of the result
            (of the first input's dtype), or a list of ``(shape, dtype)``, one per result.
        numpy: The meaning: called with read-only arrays (floats in float64) and the attributes by name. Returns an
            array, or a tuple for several results. It is what other implementations are tested against.
        wgsl: WGSL with a function ``fn compute(i: u32)``, called for i below the number of elements of
            the first result. ``in0``, ``in1``, ... and ``out0``, ... are arrays of f32, i32 or u32;
            ``IN0_SIZE`` and ``OUT0_SIZE`` count their elements, ``IN0_D0`` is the first dimension, and
            numeric attributes are constants in upper case.
        c: A C function by address, or a ctypes function: ``int f(const void *const *inputs,
            void *const *outputs, const int64_t *sizes, const double *numbers)``. ``sizes`` counts the
            elements of every input, then of every output; ``numbers`` are the numeric attributes in the
            order of their names. It returns 0; it may be called from any thread, without the GIL.
            It takes at most 8 inputs and 4 outputs: compiling a call with more raises
            ``UnsupportedOpError``. The NumPy function has no such limit.
        dtypes: The dtypes of operands and results that ``wgsl`` and ``c`` are written for; with any
            other the NumPy function runs, for they are told no dtypes.
        flops: Operations per element of the first result, for the cost model.

    Returns:
        The registered operation.

    Raises:
        GraphError: The WGSL has no function ``compute``.
        DTypeError: ``dtypes`` names something that is no dtype.

    Example:
        >>> import rlx
        >>> _ = rlx.register_custom_op(
        ...     "cube", shape=lambda x: x, numpy=lambda x: x**3,
        ...     wgsl="fn compute(i: u32) { out0[i] = in0[i] * in0[i] * in0[i]; }")
        >>> g = rlx.Graph()
        >>> g.custom("cube", [g.input("x", (2, 3))]).shape
        (2, 3)
    """
    if wgsl is not None and "fn compute(" not in wgsl:
        raise GraphError(
            f"[custom {name}] the WGSL has no entry", expected="fn compute(i: u32) { ... }"
        )
    address = c if c is None or isinstance(c, int) else ctypes.cast(c, ctypes.c_void_p).value
    written_for = frozenset(DType.parse(dtype) for dtype in dtypes)
    CUSTOM[name] = CustomOp(name, shape, numpy, wgsl, address, written_for, flops)
    if address is not None and not isinstance(c, int):
        _KEPT[name] = c
    return CUSTOM[name]


# ctypes functions are freed with their object.
_KEPT: dict[str, Any] = {}


def custom_op(name: str) -> CustomOp:
    """The operation registered under a name.

    Raises:
        UnknownNameError: There is none.
    """
    try:
        return CUSTOM[name]
    except KeyError:
        raise UnknownNameError(
            f"no custom op is registered as {name!r}",
            hint=did_you_mean(name, CUSTOM) if CUSTOM else "call rlx.register_custom_op first",
        ) from None


def _attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(attrs["attrs"])


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    args = attrs["attrs"]
    pairs = args.items() if isinstance(args, Mapping) else args or ()
    attrs["attrs"] = tuple(sorted((str(key), value) for key, value in pairs))
    # They are arguments of Python functions and constants of WGSL, and may come out of a file.
    if not all(key.isascii() and key.isidentifier() for key, _ in attrs["attrs"]):
        raise GraphError("[custom] names of attributes", got=attrs["attrs"])
    single = custom_op(attrs["name"])
    result = single.shape(*(type.shape for type in types), **_attributes(attrs))
    if isinstance(result, list):
        listed = [(shape, DType.parse(dtype)) for shape, dtype in result]
    elif types:
        listed = [(result, types[0].dtype)]
    else:
        raise GraphError(
            f"[custom {single.name}] without inputs", expected="shape gives [(shape, dtype)]"
        )
    where = f"custom {single.name}"
    return tuple(TensorType(as_shape(shape, where=where), dtype) for shape, dtype in listed)


def _stored_dtypes(node: Node) -> set[DType]:
    """Dtypes of a node's operands and results."""
    return {operand.dtype for operand in node.inputs} | {type.dtype for type in node.types}


def _numbers(node: Node) -> dict[str, float]:
    return {k: v for k, v in node.attrs["attrs"] if isinstance(v, int | float)}


class HostFunction:
    """A NumPy function as the CPU program calls it, on fixed arrays.

    Attributes:
        error: The exception of a call that failed.
    """

    def __init__(self, node: Node) -> None:
        self._one = custom_op(node.attrs["name"])
        self._attrs = _attributes(node.attrs)
        self._input_types = [operand.type for operand in node.inputs]
        self._types = node.types
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []
        self.error: BaseException | None = None

    def __call__(self) -> bool:
        """Computes the outputs; False when the function failed."""
        try:
            wide = [
                widen(array.reshape(type.shape), type.dtype)
                for array, type in zip(self.inputs, self._input_types, strict=True)
            ]
            args = _called(self._one, wide, self._attrs)
            result = stored_results(f"custom {self._one.name}", args, self._types)
            for target, value in zip(self.outputs, result, strict=True):
                target.reshape(value.shape)[...] = value
        except BaseException as error:
            self.error = error
            return False
        return True


# Kinds of NumPy dtypes whose values are no real numbers: objects, texts, bytes, times, complex numbers.
_NO_NUMBERS = "OUSMmc"


def _read_only(array: Array) -> Array:
    """A view for functions of the user's: other operations read the same memory."""
    view = array.view()
    view.setflags(write=False)
    return view


def _called(item: CustomOp, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """Returns the results of a NumPy function.

    Raises:
        DTypeError: It gives no real numbers.
    """
    output = item.numpy(*map(_read_only, arrays), **attrs)
    results = tuple(map(np.asarray, output if isinstance(output, tuple) else (output,)))
    for result in results:
        if result.dtype.kind in _NO_NUMBERS:
            raise DTypeError(
                f"[custom {item.name}] the NumPy function gives no real numbers",
                got=result.dtype,
                expected="an array of integers, floats or bools",
                hint="return the real and the imaginary part of complex numbers as two results",
            )
    return results


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    single = custom_op(node.attrs["name"])
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    if single.c is None or _stored_dtypes(node) - single.dtypes:
        emitter.call("python", operands, emitter.results(), {"function": HostFunction(node)})
        return
    for what, item, limit in (
        ("inputs", len(operands), MAX_INPUTS),
        ("outputs", len(node.types), MAX_OUTPUTS),
    ):
        if item > limit:
            raise UnsupportedOpError(
                f"[custom {single.name}] too many {what} for a C function",
                where=node.where(),
                got=item,
                expected=f"at most {limit}",
                hint="a custom operation registered without c= has no such limit",
            )
    sizes = tuple(o.type.size for o in node.inputs) + tuple(type.size for type in node.types)
    numbers = tuple(float(v) for v in _numbers(node).values())
    params = {"function": single.c, "sizes": sizes, "numbers": numbers}
    emitter.call("custom", operands, emitter.results(), params)


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    single = custom_op(node.attrs["name"])
    constants: dict[str, Any] = {k.upper(): v for k, v in _numbers(node).items()}
    named = [(f"in{i}", operand.type) for i, operand in enumerate(node.inputs)]
    named += [(f"out{i}", type) for i, type in enumerate(node.types)]
    for name, type in named:
        constants[f"{name.upper()}_SIZE"] = type.size
        constants |= {f"{name.upper()}_D{axis}": d for axis, d in enumerate(type.shape)}
    count = node.type.size
    emitter.call(
        "custom",
        [emitter.operand(i) for i in range(len(node.inputs))],
        emitter.results(),
        {
            "names": tuple(name for name, _ in named),
            "text": single.wgsl or "",
            "count": count,
            **constants,
        },
        math.ceil(count / _WORKGROUP),
    )


def _host_reason(node: Node) -> str | None:
    first = custom_op(node.attrs["name"])
    if first.wgsl is None:
        return f"custom op {first.name!r} has no WGSL"
    stored = _stored_dtypes(node)
    if DType.F64 in stored:
        return NO_F64
    other = ", ".join(sorted(map(str, stored - (first.dtypes & _WGSL_DTYPES))))
    return f"custom op {first.name!r} has no WGSL for {other}" if other else None


# The smallest useful one; the conformance cases run it.
register_custom_op(
    "axpy",
    shape=lambda x, y, alpha: x,
    numpy=lambda x, y, alpha: alpha * x + y,
    wgsl="fn compute(i: u32) { out0[i] = ALPHA * in0[i] + in1[i]; }",
    flops=2.0,
)


@op(
    free=("inputs",),
    infer=_infer,
    flops=lambda node: custom_op(node.attrs["name"]).flops * node.type.size,
    cpu=Kernels(("custom", "python"), _lower_cpu),
    webgpu=Kernels(("custom",), _lower_webgpu),
    webgpu_dtypes=ALL,
    host_reason=_host_reason,
    samples=lambda: tuple(
        Sample((shape, shape), {"name": "axpy", "attrs": {"alpha": 0.5}}, (dtype, dtype))
        for shape in ((3, 5), (1,), (0, 4), (1031,))
        for dtype in (DType.F32, DType.F64, DType.F16)
    ),
)
def custom(name: str, inputs: Sequence[Array], attrs: Mapping[str, Any] | None = None) -> Any:
    """An operation registered with ``rlx.register_custom_op``.

    Args:
        name: The name it is registered under.
        inputs: A list of operands.
        attrs: Its attributes, a dict of numbers and strings.

    Returns:
        One result, or a tuple of them.

    Raises:
        UnknownNameError: Nothing is registered under the name.

    Example:
        >>> import rlx
        >>> _ = rlx.register_custom_op("square", shape=lambda x: x, numpy=lambda x: x * x)
        >>> g = rlx.Graph()
        >>> g.custom("square", [g.input("x", (2, 3))]).shape
        (2, 3)
    """
    return _called(custom_op(name), inputs, dict(attrs or ()))
