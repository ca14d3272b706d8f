"""The state of the walk over a model: values by name, and nodes that can't be imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from rlx.dataclasses import dataclass
from rlx.errors import ImportModelError
from rlx.importers.onnx.schema import Attribute
from rlx.importers.onnx.values import Held, MissingError, RefusedError, RefusedResult


@dataclass(slots=True)
class Scope:
    """The names of a graph, and those of the graphs around it.

    Attributes:
        values: The values of this graph's names; None for results of nodes that were not imported.
        opsets: Version by domain.
        parent: The graph around it.
        attributes: In a function: the attributes it was called with.
    """

    values: dict[str, Held | None] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    parent: Scope | None = None
    attributes: Mapping[str, Attribute] | None = None

    def find(self, name: str) -> Held:
        """Returns the value of a name.

        Raises:
            ImportModelError: Nothing before it has that name.
            MissingError: It would be the result of a node that was not imported.
            RefusedError: It is a result that can't be made.
        """
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                result = scope.values[name]
                if result is None:
                    raise MissingError(name)
                if isinstance(result, RefusedResult):
                    raise RefusedError(f"{name!r}: {result.reason}")
                return result
            scope = scope.parent
        raise ImportModelError(
            f"{name!r} is undefined",
            expected="an input, an initializer or a result of this graph or of one around it",
        )

    def inner(self) -> Scope:
        """A scope for a subgraph."""
        return Scope({}, self.opsets, self, self.attributes)

    def define(self, name: str, value: Held | None) -> None:
        """Gives a name its value.

        Raises:
            ImportModelError: It has one.
        """
        if name in self.values:
            raise ImportModelError(f"two values have the name {name!r}")
        self.values[name] = value


@dataclass(slots=True)
class ImportProblem:
    """Nodes of one kind that can't be imported, for one reason."""

    reason: str
    first: str
    count: int = 0
