"""The report of ``rlx.onnx.Model``: compiled shapes and buckets, with the reasons."""

from __future__ import annotations

from rlx.dataclasses import dataclass
from rlx.errors import printable


@dataclass(frozen=True)
class ShapesReport:
    """One executable of a model.

    Attributes:
        dims: The dimensions that the model leaves open, each with its first and last size.
        bucket: Whether it runs inputs padded to the last sizes.
        shapes: Sets of shapes that it has run.
        seconds: How long it took to lower and compile.
        reason: Why the shapes are compiled as they are; "" for a bucket.
    """

    dims: tuple[tuple[str, int, int], ...]
    bucket: bool
    shapes: int
    seconds: float
    reason: str = ""

    def __str__(self) -> str:
        sizes = [
            f"{printable(name)} {first}"
            if first == last
            else f"{printable(name)} {first} to {last}"
            for name, first, last in self.dims
        ]
        what = f"bucket, {self.shapes} sets of shapes" if self.bucket else f"exact: {self.reason}"
        return f"{', '.join(sizes) or 'no open dimensions'}: {what} ({self.seconds * 1e3:.0f} ms)"


@dataclass(frozen=True)
class ModelReport:
    """The compiled executables of a model.

    Attributes:
        executables: Those that are kept, the one used longest ago first.
        compiles: How many were compiled so far, forgotten ones too.
        lengths: How many times the model was lowered just to see that shapes fit a bucket.

    Example:
        ``docs/guides/onnx.md`` prints one.
    """

    executables: tuple[ShapesReport, ...]
    compiles: int
    lengths: int

    def __str__(self) -> str:
        lines = [f"{self.compiles} compiled, {self.lengths} more sets of shapes fitted to buckets"]
        return "\n".join([*lines, *(f"  {executable}" for executable in self.executables)])
