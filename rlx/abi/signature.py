"""The signature of a compiled CPU kernel: operands, typed fields, scratch memory, and how threads share a call.

Nothing here imports the rest of rlx: ``setup.py`` reads the signatures to write the C side of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from rlx.dataclasses import dataclass

# Types of elements, as in the names of kernels; bN is any type of N bytes.
FLOATS = ("f32", "f64")
NUMBERS = (*FLOATS, "i32", "u32", "i64")
BYTES = ("b1", "b2", "b4", "b8")

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class ParamField:
    """One parameter of a kernel: 64-bit words of the C struct.

    Attributes:
        real: A double; otherwise an integer.
        length: None for one number; n for n numbers inside the struct; 0 for a pointer to an array that
            stands behind the struct, of a length that another field or the kernel's text states.
        choices: The meanings of the values 0, 1, ...; empty where every number is allowed.
        enum: The C prefix of the choices: ACT makes RLX_ACT_RELU.
        address: The number is an address.
        linked: The linker sets it when it packs an operand; it is 0 where nothing is packed. Calls don't give it.
    """

    real: bool = False
    length: int | None = None
    choices: tuple[str, ...] = ()
    enum: str = ""
    address: bool = False
    linked: bool = False

    @property
    def words(self) -> int:
        """Words that it takes of the struct."""
        return self.length or 1


INT, REAL = ParamField(), ParamField(real=True)
FLAG = ParamField(choices=("no", "yes"))
INT3 = ParamField(length=3)
INTS, REALS = ParamField(length=0), ParamField(real=True, length=0)
ADDRESS, ADDRESSES = ParamField(address=True), ParamField(address=True, length=0)
LINKED = ParamField(linked=True)


def choice(enum: str, *choices: str) -> ParamField:
    """A field whose values 0, 1, ... are these."""
    return ParamField(choices=choices, enum=enum)


@dataclass(frozen=True)
class Group:
    """Fields that several kernels share: a struct of its own in C, without a name of its own in Python.

    Attributes:
        struct: The C struct.
        fields: Its fields; no arrays behind the struct.
    """

    struct: str
    fields: Mapping[str, ParamField]


class Scratch(NamedTuple):
    """Memory that a call uses while it runs; each thread has its own.

    Attributes:
        type: Of its elements: a dtype, or "T" for that of the kernel.
        length: Elements, by the fields (as attributes) and ``itemsize``, the bytes of a T.
    """

    type: str
    length: Callable[[Any], int]


@dataclass(frozen=True)
class Parallel:
    """The rule by which threads share a call.

    Attributes:
        rows: The field that counts rows which do not depend on each other: a part is a call on fewer of them.
            Empty for kernels that ask for their part of the result (``rlx_share`` of call.h).
        widths: Elements of such a row, by the fields: of each operand that is read, 0 for what all rows use,
            and of each that is written.
        parts: Parts for each thread. With one alone all would wait for a thread that another process holds up;
            there are fewer where each part begins with work of its own.
        most: Parts that there can be at most, by the fields; None for no such limit.
        tasks: Tasks of a phase, by the fields, for kernels whose phases a team can make (``rlx_phase`` of call.h):
            the call is made so where that takes more threads than there can be parts.
        once: Whether a part changes what it reads, so that no thread can make it again after another one began.
    """

    rows: str = ""
    widths: Callable[[Any], tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    parts: int = 8
    most: Callable[[Any], int] | None = None
    tasks: Callable[[Any], int] | None = None
    once: bool = False


class Operand(NamedTuple):
    """An operand of a kernel.

    Attributes:
        types: dtypes that it may have; "T" is that of the kernel, "any" all.
        optional: Whether it may be absent, which is NULL in C.
    """

    types: tuple[str, ...]
    optional: bool


def _operands(inputs: Mapping[str, str]) -> dict[str, Operand]:
    return {
        name: Operand(tuple(text.rstrip("?").split("|")), text.endswith("?"))
        for name, text in inputs.items()
    }


@dataclass(frozen=True)
class Signature:
    """The signature of a kernel.

    Attributes:
        name: Its name, without a type.
        doc: The description of its result, which the C header shows.
        fields: Its parameters, in the order of the C struct.
        reads: Operands that it reads, as "T", "f32|f64" or "any", with "?" for an operand that may be absent.
        writes: Operands that it writes, in the form of ``reads``.
        scratch: Operands that it uses while it runs; they follow the written operands.
        types: Types that it is compiled for; its C name ends in one. Empty for a kernel without such an ending.
        variants: Endings of the same kernel for instructions that not every processor of an instruction set has.
        parallel: How threads share a call; None where one thread makes it.
        alone: Why one thread makes it.
        flushes: Whether subnormal operands may count as 0: it adds up products, and compares no operands.
        in_table: Whether each instruction set compiles it. False: the module ``rlx._ext.program`` defines it.
    """

    name: str
    doc: str
    fields: Mapping[str, ParamField | Group] = field(default_factory=lambda: _NONE)
    reads: Mapping[str, str] = field(default_factory=lambda: _NONE)
    writes: Mapping[str, str] = field(default_factory=lambda: _NONE)
    scratch: Mapping[str, Scratch] = field(default_factory=lambda: _NONE)
    types: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    parallel: Parallel | None = None
    alone: str = ""
    flushes: bool = False
    in_table: bool = True

    @cached_property
    def inputs(self) -> dict[str, Operand]:
        """The operands that it reads."""
        return _operands(self.reads)

    @cached_property
    def outputs(self) -> dict[str, Operand]:
        """The operands that it writes, scratch apart."""
        return _operands(self.writes)

    @cached_property
    def flat(self) -> dict[str, ParamField]:
        """Every field by its name, those of groups too, in the order of the struct."""
        parts = (
            item.fields.items() if isinstance(item, Group) else ((name, item),)
            for name, item in self.fields.items()
        )
        return dict(chain.from_iterable(parts))

    @cached_property
    def given(self) -> frozenset[str]:
        """The fields that a call gives: all that the linker does not set."""
        return frozenset(name for name, value in self.flat.items() if not value.linked)

    @cached_property
    def words(self) -> int:
        """Words of the struct."""
        return sum(value.words for value in self.flat.values())

    def offset(self, name: str) -> int:
        """The first word of a field in the struct."""
        result = 0
        for each, value in self.flat.items():
            if each == name:
                return result
            result += value.words
        raise KeyError(name)
