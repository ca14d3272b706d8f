"""Finds the references of a WGSL text to its bindings: a walk over its tokens that tracks what functions declare.

A parameter or variable of a function may have the name of a binding, and members of structures are often named x and y.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|[A-Za-z_]\w*|\d[\w.]*|\s+|.", re.S)
_SPACE = re.compile(r"\s|//|/\*")


def tokens_of(text: str) -> list[str]:
    """The text in pieces: words, numbers, signs, spaces and comments. Joined, they are the text again."""
    return _TOKEN.findall(text)


def behind(tokens: list[str], position: int) -> int:
    """The position of the next piece that is neither space nor comment; the end where there is none."""
    position += 1
    while position < len(tokens) and _SPACE.match(tokens[position]):
        position += 1
    return position


def closing(tokens: list[str], position: int) -> int:
    """The position of the bracket that closes the one at ``position``; the end where there is none."""
    opens, depth = tokens[position], 0
    closes = {"(": ")", "[": "]", "{": "}", "<": ">"}[opens]
    while position < len(tokens):
        depth += (tokens[position] == opens) - (tokens[position] == closes)
        if depth == 0:
            return position
        position += 1
    return position


def references(tokens: list[str], names: Collection[str]) -> Iterator[int]:
    """Positions inside functions that mean one of the module's variables of these names, in order."""
    pos = 0
    while pos < len(tokens):
        if tokens[pos] in ("struct", "fn"):
            begin = pos
            while pos < len(tokens) and tokens[pos] != "{":
                pos = closing(tokens, pos) if tokens[pos] == "(" else pos + 1
            end = closing(tokens, pos) if pos < len(tokens) else pos
            if tokens[begin] == "fn":
                yield from _in_function(tokens, begin, end, names)
            pos = end
        pos += 1


def _in_function(tokens: list[str], begin: int, end: int, names: Collection[str]) -> Iterator[int]:
    """The references of one function."""
    opened = tokens.index("(", begin)
    closed = closing(tokens, opened)
    parameters = {tokens[i] for i in range(opened, closed) if tokens[behind(tokens, i)] == ":"}
    # The names that each block declares, the outermost first. The header of a loop is a block around its body.
    scopes, header = [parameters], [False]
    declared = ""  # what a statement declares, from its end on
    before, pos = "", closed
    while pos < end:
        token = tokens[pos]
        if token in ("{", "for"):
            scopes.append(set())
            header.append(token == "for")
        elif token == "}":
            _leave(scopes, header)
            if header[-1]:
                _leave(scopes, header)
        elif token in ("let", "var", "const"):
            pos = behind(tokens, pos)
            if tokens[pos] == "<":
                pos = behind(tokens, closing(tokens, pos))
            declared = tokens[pos]
        elif token == ";" and declared:
            scopes[-1].add(declared)
            declared = ""
        elif token in names and before not in (".", "@"):
            if not any(token in scope for scope in scopes):
                yield pos
        before = tokens[pos]
        pos = behind(tokens, pos)


def _leave(scopes: list[set[str]], header: list[bool]) -> None:
    scopes.pop()
    header.pop()
