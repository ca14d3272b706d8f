"""The report of ``rlx.onnx.Model``: the compiled executables, with the reasons."""

from __future__ import annotations

from rlx.dataclasses import dataclass
from rlx.errors import printable


@dataclass(frozen=True)
class ShapesReport:
    """One executable of a model.

    Attributes:
        dims: The dimensions that the model leaves open, each with the size that it was compiled for; None for any size.
        seconds: How long it took to lower and compile.
        reason: Why sizes of 2 and more are compiled as they are; "" where none is.
    """

    dims: tuple[tuple[str, int | None], ...]
    seconds: float
    reason: str = ""

    def __str__(self) -> str:
        sizes = [
            f"{printable(name)} of any size" if size is None else f"{printable(name)} {size}"
            for name, size in self.dims
        ]
        because = f"; {self.reason}" if self.reason else ""
        return f"{', '.join(sizes) or 'no open dimensions'} ({self.seconds * 1e3:.0f} ms{because})"


@dataclass(frozen=True)
class ModelReport:
    """The compiled executables of a model.

    Attributes:
        executables: Those that are kept, the one used longest ago first.
        compiles: How many were compiled so far, forgotten ones too.

    Example:
        ``docs/guides/onnx.md`` prints one.
    """

    executables: tuple[ShapesReport, ...]
    compiles: int

    def __str__(self) -> str:
        return "\n".join([f"{self.compiles} compiled", *(f"  {item}" for item in self.executables)])
