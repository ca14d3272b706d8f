"""Merges bindings: a kernel that binds a range of memory twice gets it under one name.

WebGPU refuses a dispatch that binds a range as writable and binds part of it once more. A value may stand at two operands,
``x @ x``, and a result may take over the memory of an operand. Values that share memory begin at the same place
and have equally many bytes (``rlx.passes.memory_plan``), so that their bindings are one range.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rlx.backends.webgpu.wgsl_scope import behind, closing, references, tokens_of
from rlx.dataclasses import dataclass
from rlx.errors import CompileError

_BINDING = re.compile(
    r"@group\(0\) @binding\((\d+)\) var<storage, (\w+)> (\w+): array<([^;]+)>;[^\S\n]*\n?"
)
_TYPE = re.compile(r"(?:vec([24])<)?(f16|[fiu]32)>?")
_PACKED = "WidePacked"  # four i64, in shaders/lib/wide.wgsl

# How elements of so many halves (16 bits) are read from an array of elements of more: one of ``n[e]``.
_PARTS = {
    (2, 4): "{n}[u32({e}) >> 1u][u32({e}) & 1u]",
    (2, 8): "{n}[u32({e}) >> 2u][u32({e}) & 3u]",
    (4, 8): "select({n}[u32({e}) >> 1u].xy, {n}[u32({e}) >> 1u].zw, (u32({e}) & 1u) == 1u)",
    (4, 16): (
        "select(select({n}[u32({e}) >> 2u].first.xy, {n}[u32({e}) >> 2u].first.zw, (u32({e}) & 1u) == 1u), "
        "select({n}[u32({e}) >> 2u].second.xy, {n}[u32({e}) >> 2u].second.zw, (u32({e}) & 1u) == 1u), "
        "(u32({e}) & 2u) == 2u)"
    ),
}
# How one half is read from an array of words of so many halves, and from one of vectors of four halves.
_HALF = {
    2: "bitcast<vec2<f16>>({n}[u32({e}) >> 1u])[u32({e}) & 1u]",
    4: "bitcast<vec2<f16>>({n}[u32({e}) >> 2u][(u32({e}) >> 1u) & 1u])[u32({e}) & 1u]",
    8: "bitcast<vec2<f16>>({n}[u32({e}) >> 3u][(u32({e}) >> 1u) & 3u])[u32({e}) & 1u]",
}
_HALF_OF_FOUR = "{n}[u32({e}) >> 2u][u32({e}) & 3u]"


@dataclass(frozen=True)
class _Element:
    """The elements of a binding: how many halves (16 bits) one has, and what its numbers are."""

    halves: int
    word: str

    def __str__(self) -> str:
        if self.halves == 16:
            return _PACKED
        count = self.halves // _SIZES[self.word]
        return self.word if count == 1 else f"vec{count}<{self.word}>"

    def part(self, whole: _Element) -> str | None:
        """Returns WGSL that reads this element from an array of larger elements; None where that is impossible."""
        if self.word != "f16":
            return _PARTS.get((self.halves, whole.halves)) if whole.word != "f16" else None
        if self.halves > 1:
            return _PARTS.get((self.halves, whole.halves))
        return _HALF_OF_FOUR if whole.word == "f16" else _HALF.get(whole.halves)


# Halves of one number.
_SIZES = {"f16": 1, "f32": 2, "i32": 2, "u32": 2}


def joined(source: str, pattern: Sequence[int], label: str) -> str:
    """Rewrites a kernel so that values in shared memory have one binding, and renumbers the bindings.

    Raises:
        CompileError: It uses the memory in two ways that don't go together.
    """
    if list(pattern) == list(range(len(pattern))):
        return source
    results = {int(match[1]): match for match in _BINDING.finditer(source)}
    groups: dict[int, list[re.Match[str]]] = {}
    for i, first in enumerate(pattern):
        if i not in results:
            raise _refused(label, f"no declaration of binding {i}", "one line for each")
        groups.setdefault(first, []).append(results[i])
    lines, renamed = {}, dict[str, tuple[str, str, str]]()
    for number, group in enumerate(groups.values()):
        names, types = [item[3] for item in group], [item[4] for item in group]
        name, kind = names[0], types[0]
        if len(group) > 1:
            name, kind = _free("_".join(names), source), _common(types, label)
            renamed |= {own: (name, old, kind) for own, old in zip(names, types, strict=True)}
        start = f"@group(0) @binding({number}) var<storage, {group[0][2]}>"
        lines[group[0][1]] = f"{start} {name}: array<{kind}>;\n"
    text = _BINDING.sub(lambda item: lines.get(item[1], ""), source)
    return _Renaming(text, renamed, label).text()


def _free(name: str, text: str) -> str:
    """A name that the text does not use."""
    while re.search(rf"\b{name}\b", text):
        name += "_"
    return name


def _common(types: Sequence[str], label: str) -> str:
    """The type that stands for all of these: the largest, of words that are bits where they differ."""
    if len(set(types)) == 1:
        return types[0]
    elements = [_element(type) for type in types]
    known = [element for element in elements if element is not None]
    words = {item.word for item in known}
    widest = max((item.halves for item in known), default=0)
    common = _Element(widest, words.pop() if len(words) == 1 else "u32")
    reach = all(item.halves == widest or item.part(common) is not None for item in known)
    if len(known) < len(elements) or not reach:
        raise _refused(label, ", ".join(types), "numbers or vectors of them")
    return str(common)


def _element(type: str) -> _Element | None:
    """Returns the element of a type; None for a type that can't be replaced."""
    if type == _PACKED:
        return _Element(16, "u32")
    match = _TYPE.fullmatch(type)
    return _Element(int(match[1] or 1) * _SIZES[match[2]], match[2]) if match else None


class _Renaming:
    """Writes a text with other names for some bindings; ``renamed`` has each one's new name, old type and new type."""

    def __init__(self, text: str, renamed: Mapping[str, tuple[str, str, str]], label: str) -> None:
        self._tokens, self._renamed, self._label = tokens_of(text), renamed, label
        self._at = frozenset(references(self._tokens, renamed))

    def text(self) -> str:
        """The text."""
        return self._between(0, len(self._tokens))

    def _between(self, index: int, end: int) -> str:
        pieces = []
        while index < end:
            if index in self._at:
                piece, index = self._reference(index)
            else:
                piece, index = self._tokens[index], index + 1
            pieces.append(piece)
        return "".join(pieces)

    def _reference(self, index: int) -> tuple[str, int]:
        """Returns the replacement of a reference with its suffix, and the position after it."""
        name, old, new = self._renamed[self._tokens[index]]
        if old == new:
            return name, index + 1
        tokens, opened = self._tokens, behind(self._tokens, index)
        if tokens[opened : opened + 1] != ["["]:
            raise self._unclear(index, "an element")
        closed = closing(tokens, opened)
        inside = self._between(opened + 1, closed)
        follows = behind(tokens, closed)
        sign, second = (*tokens[follows : follows + 2], "", "")[:2]
        if sign in tuple("+-*/%&|^") and second == "=":
            raise self._unclear(index, "a read or a write")
        had, has = _element(old), _element(new)
        assert had is not None
        assert has is not None
        if sign == "=" and second != "=":
            return self._write(index, follows, f"{name}[{inside}]", had, has)
        if had.halves == has.halves:
            read = f"{name}[{inside}]"
        elif "atomic" in inside:
            raise self._unclear(index, "an index without effects")
        else:
            part = had.part(has)
            assert part is not None
            read = part.format(n=name, e=inside)
        # One half is read as such.
        alike = had.word == has.word or (had.halves == 1 and has.halves > 1)
        return (read if alike else f"bitcast<{had}>({read})"), closed + 1

    def _write(
        self, index: int, sign: int, place: str, had: _Element, has: _Element
    ) -> tuple[str, int]:
        # A vector is written as a whole: threads that write its parts at the same time may write over each other.
        if had.halves != has.halves:
            raise self._unclear(index, "whole vectors written")
        end = self._tokens.index(";", sign)
        return f"{place} = bitcast<{has}>({self._between(sign + 1, end).strip()})", end

    def _unclear(self, index: int, expected: str) -> CompileError:
        return _refused(self._label, "".join(self._tokens[index : index + 12]), expected)


def _refused(label: str, got: str, expected: str) -> CompileError:
    return CompileError(
        f"kernel {label} can't have two operands in the same memory",
        got=got,
        expected=expected,
        hint="give it a copy of one of them, or compile with CompileOptions(reuse_memory=False)",
    )
