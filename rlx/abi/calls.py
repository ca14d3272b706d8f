"""Checks calls of CPU kernels against their signatures, and writes their parameters as the C structs."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from rlx.abi.kernels import KERNELS
from rlx.abi.signature import Operand, ParamField, Signature
from rlx.errors import CompileError, UnsupportedOpError
from rlx.sizes import Ratio, SizeExpr

Words = np.ndarray[Any, np.dtype[np.int64]]


class SignatureError(CompileError):
    """A call of a CPU kernel does not fit its signature: a mistake in the lowering rule of an op."""


class Given(NamedTuple):
    """A dtype by its name, as in "f32", and the bytes of its elements."""

    name: str
    itemsize: int


def kernel(name: str) -> Signature:
    """The signature of a kernel.

    Raises:
        SignatureError: There is no such kernel.
    """
    result = KERNELS.get(name)
    if result is None:
        import difflib

        near = difflib.get_close_matches(name, KERNELS, 1)
        hint = f"; do you mean {near[0]!r}?" if near else ""
        raise SignatureError(f"the CPU has no kernel {name!r}{hint}")
    return result


def type_of(sig: Signature, first: Given) -> str:
    """The type that a kernel is taken for, by its first operand; "" where it is compiled for none.

    Raises:
        UnsupportedOpError: The kernel is not compiled for that dtype.
    """
    if not sig.types:
        return ""
    for name in (first.name, f"b{first.itemsize}"):
        if name in sig.types:
            return name
    raise UnsupportedOpError(f"the CPU has no kernel {sig.name!r} for {first.name}")


def fields(params: Mapping[str, Any], itemsize: int = 0) -> SimpleNamespace:
    """Parameters as the formulas of a signature take them."""
    return SimpleNamespace(**params, itemsize=itemsize)


def scratch(sig: Signature, params: Mapping[str, Any], first: Given) -> list[tuple[str, int]]:
    """The scratch memory of a call.

    Args:
        sig: The signature.
        params: The fields that the call gives.
        first: The dtype of its first operand.

    Returns:
        The dtype and the number of elements of each piece; unused pieces at the end are left out.

    Raises:
        SignatureError: The parameters do not fit.
    """
    check_fields(sig, params)
    args = fields(params, first.itemsize)
    results = [
        (first.name if s.type == "T" else s.type, s.length(args)) for s in sig.scratch.values()
    ]
    while results and not results[-1][1]:
        results.pop()
    return results


def check_fields(sig: Signature, params: Mapping[str, Any]) -> None:
    """Refuses parameters of which one is missing, surplus or of another type.

    Raises:
        SignatureError: One is.
    """
    if params.keys() != sig.given:
        missing, surplus = (sorted(sig.given - params.keys()), sorted(params.keys() - sig.given))
        said = [f"no {', '.join(missing)}"] if missing else []
        said += [f"{', '.join(surplus)}, which it does not have"] if surplus else []
        raise SignatureError(f"the kernel {sig.name!r} is given {' and '.join(said)}")
    for name, value in params.items():
        fault = _fault(sig.flat[name], value)
        if fault:
            raise SignatureError(f"the kernel {sig.name!r}: {name} is {value!r}, expected {fault}")


def _fault(field: ParamField, value: Any) -> str:
    """Describes the values that a field takes, if a value is not one of them."""
    if field.length is not None:
        if not isinstance(value, (tuple, list)):
            return "a tuple"
        if field.length and len(value) != field.length:
            return f"a tuple of {field.length}"
        return next(
            (f"a tuple, each {said}" for item in value if (said := _number(field, item))), ""
        )
    return _number(field, value)


def _number(field: ParamField, value: Any) -> str:
    if field.real:
        return "" if isinstance(value, (float, int, np.floating, SizeExpr, Ratio)) else "a number"
    if isinstance(value, SizeExpr):
        return ""
    if not isinstance(value, (int, np.integer)):
        return "an integer"
    if field.choices and not 0 <= value < len(field.choices):
        return f"0 to {len(field.choices) - 1}: {', '.join(field.choices)}"
    return ""


def check_operands(
    sig: Signature, reads: Sequence[Given | None], writes: Sequence[Given], type: str
) -> None:
    """Refuses operands that are missing, too many, or of a dtype that the kernel does not take.

    Args:
        sig: The signature.
        reads: Operands that are read, None for an absent one; those behind the last present one may lack.
        writes: Operands that are written, without scratch memory.
        type: The type that the kernel is taken for, as ``type_of`` says.

    Raises:
        SignatureError: One does not fit.
    """
    for what, operands, item in (("reads", sig.inputs, reads), ("writes", sig.outputs, writes)):
        if len(item) > len(operands):
            raise SignatureError(
                f"the kernel {sig.name!r} {what} {len(operands)} operands, and is given {len(item)}"
            )
        for i, (name, operand) in enumerate(operands.items()):
            stored = item[i] if i < len(item) else None
            if not _takes(operand, stored, type):
                expected = " or ".join(type if each == "T" else each for each in operand.types)
                said = stored.name if stored else "nothing"
                raise SignatureError(
                    f"the kernel {sig.name!r} {what} {name}: it is {said}, expected {expected}"
                )


def check_scratch(
    sig: Signature, params: Mapping[str, Any], first: Given, stored: Sequence[tuple[str, int]]
) -> None:
    """Refuses scratch memory that differs from the signature's formulas for a call.

    Args:
        sig: The signature.
        params: The fields that the call gives.
        first: The dtype of its first operand.
        stored: The dtype and the number of elements of each piece.

    Raises:
        SignatureError: A piece is missing, surplus, of another dtype or too small.
    """
    needed = scratch(sig, params, first)
    fits = len(stored) == len(needed) and all(
        dtype == wanted and size >= least
        for (dtype, size), (wanted, least) in zip(stored, needed, strict=True)
    )
    if not fits:
        raise SignatureError(
            f"the kernel {sig.name!r} needs scratch memory {needed}, and is given {list(stored)}"
        )


def _takes(operand: Operand, stored: Given | None, type: str) -> bool:
    if stored is None:
        return operand.optional
    own = stored.name == type or f"b{stored.itemsize}" == type
    return stored.name in operand.types or "any" in operand.types or ("T" in operand.types and own)


class Struct(NamedTuple):
    """The parameters of calls as the struct of their kernel, with its arrays behind it.

    Attributes:
        words: The words; pointers are left out.
        pointers: The position of each pointer, and that of the word which it points to.
    """

    words: Words
    pointers: tuple[tuple[int, int], ...]

    def placed(self) -> Words:
        """A copy for one call, which has to live as long as the call: its pointers point into itself."""
        result = self.words.copy()
        start: int = result.ctypes.data
        for i, to in self.pointers:
            result[i] = start + 8 * to
        return result


def struct_of(sig: Signature, params: Mapping[str, Any]) -> Struct:
    """Checked parameters, and those that the linker sets, as words.

    Args:
        sig: The signature.
        params: Every field by name; those of a packed operand may lack.
    """
    head: list[int] = []
    tail: list[int] = []
    pointers: list[tuple[int, int]] = []
    for name, field in sig.flat.items():
        value = params.get(name, 0)
        if field.length is None:
            head.append(_word(field, value))
        elif field.length:
            head += [_word(field, item) for item in value]
        else:
            pointers.append((len(head), len(tail)))
            head.append(0)
            tail += [_word(field, item) for item in value]
    result = np.array([*head, *tail], np.int64)
    return Struct(result, tuple((i, len(head) + offset) for i, offset in pointers))


def sized_words(sig: Signature, params: Mapping[str, Any]) -> list[tuple[int, Any, bool]]:
    """The words of a struct that depend on sizes known only when a graph runs.

    Args:
        sig: The signature.
        params: Every field by name; those that the linker sets may lack.

    Returns:
        The position of each word, its expression, and whether it is a double.
    """
    head: list[tuple[Any, bool]] = []
    tail: list[tuple[Any, bool]] = []
    for name, field in sig.flat.items():
        value = params.get(name, 0)
        if field.length is None:
            head.append((value, field.real))
        elif field.length:
            head += [(item, field.real) for item in value]
        else:
            head.append((0, False))
            tail += [(item, field.real) for item in value]
    return [
        (i, value, real)
        for i, (value, real) in enumerate([*head, *tail])
        if isinstance(value, SizeExpr | Ratio)
    ]


def _word(field: ParamField, value: Any) -> int:
    if field.real:
        return int.from_bytes(struct.pack("<d", value), "little", signed=True)
    return int(value)
