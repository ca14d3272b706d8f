"""Sizes in kernels that are known only when the graph runs: their places in the uniform buffer of the graph.

While a kernel is rendered, sizes write themselves as marks. Then the marks become reads of the buffer, constants that depend
on them are written where they are used, and sizes that WGSL needs as numbers are pinned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlx.errors import UnknownSizeError
from rlx.sizes import Ratio, SizeExpr, pinned, spelling
from rlx.sizes.program import SizeProgram

# A mark is the number of a size between two signs that no text has.
_MARK = "\ue000{}\ue001"
_MARKED = re.compile("\ue000(\\d+)\ue001(u|i|\\.0)?")
# A mark that stands for a whole number: it is no part of a name or of a longer number.
_WHOLE = re.compile(f"(?<![\\w.]){_MARKED.pattern}(?![\\w.\ue000])")
# What a mark becomes, by the end of the number that it stands for. The bits of a quotient are those of an f32.
_READS = {"u": "{}", "i": "i32({})", None: "i32({})", ".0": "f32(i32({}))"}
_CONSTANT = re.compile(
    "^[ \t]*const (\\w+)(?: *: *(\\w+))? *= *([^;\n]*\ue000[^;\n]*);[^\n]*\n", re.M
)
# Where WGSL takes constants alone: lengths of arrays, threads of a workgroup, and cases of a switch.
_NUMBERS = re.compile(
    "array<(?:[^<>\n]|<[^<>\n]*>)*>|@workgroup_size\\([^)\n]*\\)|\\bcase [^:\n]*:"
)
_COMMENT = re.compile(r"//[^\n]*")
_TRIPS = re.compile(r"//\s*trips:")
# The largest uniform buffer that every device binds, in bytes.
_MOST = 65536


class Resolved(NamedTuple):
    """A text without marks.

    Attributes:
        text: WGSL.
        trips: The sizes that declarations of trips name.
        vectors: Vectors of the uniform buffer that it reads from; 0 where it reads no size.
    """

    text: str
    trips: Mapping[str, Any]
    vectors: int


class SizeTable:
    """The sizes that the kernels of a graph read, each once.

    Args:
        names: The dims.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._marked: list[Any] = []
        self._places: dict[Any, int] = {}
        self._sizes: list[Any] = []

    def copy(self) -> SizeTable:
        """Returns a table with the same sizes, to which others are added."""
        result = SizeTable(self._names)
        result._places, result._sizes = dict(self._places), list(self._sizes)
        return result

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer, in whole vectors."""
        return 16 * max(1, -(-len(self._sizes) // 4))

    def resolved(self, render: Callable[[], str]) -> Resolved:
        """Renders a text.

        Args:
            render: Returns the text, with sizes written by ``str``.

        Raises:
            UnknownSizeError: A size stands where none can be read.
        """
        self._marked = []
        with spelling(self._mark):
            text = render()
        text = _NUMBERS.sub(self._pinned, _with_constants(text))
        trips: dict[str, Any] = {}
        text = _COMMENT.sub(lambda match: self._comment(match[0], trips), text)
        places = [-1]
        text = _WHOLE.sub(lambda match: self._read(match, places), text)
        if _MARKED.search(text):
            line = next(line for line in text.splitlines() if _MARKED.search(line))
            raise UnknownSizeError(
                "a kernel needs the text of a size",
                got=_MARKED.sub(lambda match: f"[{self._marked[int(match[1])]!r}]", line.strip()),
                expected="sizes as whole numbers",
            )
        return Resolved(text, trips, max(places) // 4 + 1)

    @staticmethod
    def declaration(binding: int, vectors: int) -> str:
        """The WGSL that binds so many vectors of the buffer."""
        return f"\n@group(0) @binding({binding}) var<uniform> sizes: array<vec4<u32>, {vectors}>;\n"

    def added(self, program: SizeProgram) -> list[tuple[Any, Any]]:
        """Adds the sizes to a program: for each word of the buffer a number, or a numerator and a denominator."""
        return [
            (program.add(size.above), program.add(size.below))
            if isinstance(size, Ratio)
            else (program.add(size), None)
            for size in self._sizes
        ]

    def check(self) -> None:
        """Refuses more sizes than a GPU binds; all texts have been rendered.

        Raises:
            UnknownSizeError: There are more.
        """
        if self.nbytes > _MOST:
            raise UnknownSizeError("the kernels of a graph read more sizes than a GPU binds")

    def _mark(self, size: Any) -> str:
        self._marked.append(size)
        return _MARK.format(len(self._marked) - 1)

    def _place(self, size: Any) -> int:
        """The place of a size in the buffer."""
        parts = (size.above, size.below) if isinstance(size, Ratio) else (size,)
        key = tuple(part.terms if isinstance(part, SizeExpr) else part for part in parts)
        if key not in self._places:
            self._places[key] = len(self._sizes)
            self._sizes.append(size)
        return self._places[key]

    def _read(self, match: re.Match[str], places: list[int]) -> str:
        """WGSL that reads a size, or the bits of a quotient of sizes."""
        size = self._marked[int(match[1])]
        place = self._place(size)
        places.append(place)
        word = f"sizes[{place // 4}].{'xyzw'[place % 4]}"
        if isinstance(size, Ratio):
            return f"bitcast<f32>({word})" if match[2] is None else match[0]
        return _READS[match[2]].format(word)

    def _pinned(self, match: re.Match[str]) -> str:
        return _MARKED.sub(lambda m: f"{pinned(self._marked[int(m[1])])}{m[2] or ''}", match[0])

    def _comment(self, text: str, trips: dict[str, Any]) -> str:
        def named(match: re.Match[str]) -> str:
            size = self._marked[int(match[1])]
            name = f"size_{self._place(size)}"
            trips[name] = size
            return name

        if _TRIPS.match(text):
            return _MARKED.sub(named, text)
        return _MARKED.sub(lambda match: repr(self._marked[int(match[1])]), text)


def _with_constants(text: str) -> str:
    """A text with constants that have marks written where they are used."""
    while (match := _CONSTANT.search(text)) is not None:
        name, kind, value = match.groups()
        whole = _MARKED.fullmatch(value)
        if whole is None or whole[2] != ("u" if kind == "u32" else None):
            value = f"{kind or ''}({value})"
        text = text[: match.start()] + text[match.end() :]
        text = re.sub(rf"(?<![\w.]){name}(?!\w)", value, text)
    return text
