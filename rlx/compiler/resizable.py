"""The part of executables of graphs with dims that knows sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlx.backends.executable import Executable, Moved
from rlx.compiler.kept_programs import Values
from rlx.compiler.loading import LoadedGraph
from rlx.ir.input_sizes import InputSizes
from rlx.ir.opdef import Array


def sum_of(moves: Iterable[Moved]) -> Moved:
    """The bytes that all of some moved."""
    return Moved(*map(sum, zip(*moves, strict=True)))


class Resizable(ABC):
    """The part of executables of graphs with dims that knows sizes, and is made of other executables.

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
    def executables(self) -> Sequence[Executable]:
        """Returns the executables that it is made of."""

    def moved(self) -> Moved:
        """Returns the sums of its executables."""
        return sum_of(executable.moved() for executable in self.executables())

    def memory(self) -> dict[str, int]:
        """Returns the sums of its executables, and of what they hold."""
        sums = Counter[str]()
        for executable in self.executables():
            sums.update(executable.memory())
        return dict(sums)

    def close(self) -> None:
        """Closes its executables."""
        for executable in self.executables():
            executable.close()

    @abstractmethod
    def renewed(self) -> Executable:
        """Returns an executable of the same graph on a device that was opened again, without params."""
