"""The part of executables of graphs with dims that knows sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.backends.executable import Executable
from rlx.compiler.kept_programs import Values
from rlx.compiler.loading import LoadedGraph
from rlx.ir.input_sizes import InputSizes
from rlx.ir.opdef import Array


class Resizable(ABC):
    """The part of executables of graphs with dims that knows sizes.

    Attributes:
        input_sizes: Reads the values of dims from arrays.
    """

    input_sizes: InputSizes

    @property
    @abstractmethod
    def loaded(self) -> LoadedGraph:
        """The lowered graph of the last run, with an executable."""

    @property
    @abstractmethod
    def sizes(self) -> Values:
        """The sizes of the last run, or those that ``resize`` was given."""

    @abstractmethod
    def resize(self, sizes: Values) -> None:
        """Takes the sizes of later runs without arguments."""

    @abstractmethod
    def sizes_of(self, shapes: Mapping[int, Sequence[int]]) -> dict[str, int]:
        """Returns the sizes of a run with arguments of these shapes, by position."""

    def exact(self, inputs: Any) -> list[Array] | None:
        """Returns named inputs in their order, if each is an array just as its input says; None where one may not be."""
        return None

    @abstractmethod
    def renewed(self) -> Executable:
        """Returns an executable of the same graph on a device that was opened again, without params."""
