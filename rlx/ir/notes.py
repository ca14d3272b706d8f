"""Notes of a compile: the changes it made and the changes it left out, as records that a file can hold."""

from __future__ import annotations

from rlx.dataclasses import dataclass
from rlx.ir.graph import Node


@dataclass(frozen=True)
class Place:
    """A node as a note names it.

    Attributes:
        node: Its number, op and name.
        source: The line of the user's code that made it; "" where that is unknown.
    """

    node: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.node} <- {self.source}" if self.source else self.node


@dataclass(frozen=True)
class Note:
    """One remark about a graph.

    Attributes:
        step: The pass, or the part of the compiler, that makes it.
        parts: Its text, and the nodes that it names.
    """

    step: str
    parts: tuple[str | Place, ...]

    @classmethod
    def of(cls, step: str, *parts: str | Node) -> Note:
        """A note about nodes as they are now."""
        return cls(
            step,
            tuple(
                part if isinstance(part, str) else Place(part.label, part.source) for part in parts
            ),
        )

    def __str__(self) -> str:
        return f"{self.step}: {''.join(map(str, self.parts))}"
