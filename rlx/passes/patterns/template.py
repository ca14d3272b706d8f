"""Templates: a small graph written down as nested records, and the search for it around a node.

``Op("add", Op("mul", Outside("a"), Outside("b")), Outside("c"))`` fits a node a * b + c. Operands of ``add``, ``mul``
and ``maximum`` are tried in both orders. A name that stands twice has to be the same node both times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import chain
from typing import Protocol

from rlx.dataclasses import dataclass
from rlx.ir.graph import Node
from rlx.passes.patterns.match import scalar, scaled

_EITHER_WAY = ("add", "mul", "maximum")


@dataclass(frozen=True)
class TemplateMatch:
    """A match of a template.

    Attributes:
        named: The nodes that have names in the template.
        members: The nodes that the template is made of; what it reads from outside is not among them.
    """

    named: Mapping[str, Node] = field(default_factory=dict)
    members: frozenset[Node] = frozenset()

    @property
    def inside(self) -> tuple[Node, ...]:
        """The members in the order of the graph."""
        return tuple(sorted(self.members, key=lambda node: node.id))

    def naming(self, name: str, node: Node) -> TemplateMatch | None:
        """The same with one more name; None where the name is another node's."""
        if not name:
            return self
        if name in self.named:
            return self if self.named[name] is node else None
        return TemplateMatch({**self.named, name: node}, self.members)

    def joined_by(self, *nodes: Node) -> TemplateMatch:
        """The same with more members."""
        return TemplateMatch(self.named, self.members | set(nodes))


class NodeTemplate(Protocol):
    """A template of a node."""

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """Every way in which the template fits a node, besides what was found so far."""
        ...


def first(template: NodeTemplate, node: Node) -> TemplateMatch | None:
    """The first way in which a template fits a node."""
    return next(template.find(node, TemplateMatch()), None)


@dataclass(frozen=True)
class Outside:
    """A node that the pattern reads.

    Attributes:
        name: Its name.
        fits: Whether a node will do.
    """

    name: str
    fits: Callable[[Node], bool] = lambda node: True

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """See ``NodeTemplate``."""
        result = so_far.naming(self.name, node)
        if result is not None and self.fits(node):
            yield result


@dataclass(frozen=True)
class Number:
    """A constant that is about this number."""

    value: float

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """See ``NodeTemplate``."""
        number = scalar(node)
        if number is not None and _near(number, self.value):
            yield so_far


@dataclass(frozen=True)
class Op:
    """A node of an operation whose operands fit.

    A ``Number`` among the operands must not change the shape of the others.

    Attributes:
        op: The operation.
        operands: A template for each operand.
        name: A name for the node.
        fits: Whether a node of the operation will do.
        agree: Whether the nodes that have names so far, this one included, fit together.
    """

    op: str
    operands: tuple[NodeTemplate, ...]
    name: str
    fits: Callable[[Node], bool]
    agree: Callable[[Mapping[str, Node]], bool]

    def __init__(
        self,
        op: str,
        *operands: NodeTemplate,
        name: str = "",
        fits: Callable[[Node], bool] = lambda node: True,
        agree: Callable[[Mapping[str, Node]], bool] = lambda named: True,
    ) -> None:
        values = {"op": op, "operands": operands, "name": name, "fits": fits, "agree": agree}
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """See ``NodeTemplate``."""
        if node.op != self.op or len(node.inputs) != len(self.operands) or not self.fits(node):
            return
        named = so_far.naming(self.name, node)
        if named is None:
            return
        orders = [node.inputs]
        if self.op in _EITHER_WAY:
            orders.append(node.inputs[::-1])
        for inputs in orders:
            pairs = list(zip(self.operands, inputs, strict=True))
            if any(isinstance(operand, Number) for operand in self.operands) and any(
                not isinstance(item, Number) and value.shape != node.shape for item, value in pairs
            ):
                continue
            ways: Iterator[TemplateMatch] = iter((named.joined_by(node),))
            for template, value in pairs:
                ways = _each(template, value, ways)
            yield from (way for way in ways if self.agree(way.named))


@dataclass(frozen=True)
class OneOf:
    """A node that fits one of several templates."""

    templates: tuple[NodeTemplate, ...]

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """See ``NodeTemplate``."""
        return chain.from_iterable(template.find(node, so_far) for template in self.templates)


@dataclass(frozen=True)
class Scaled:
    """A node times a number, or divided by its inverse."""

    operand: NodeTemplate
    factor: float

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """See ``NodeTemplate``."""
        value, factor, nodes = scaled(node)
        if nodes and _near(factor, self.factor):
            yield from self.operand.find(value, so_far.joined_by(*nodes))


@dataclass(frozen=True)
class Named:
    """A node that gets a name and fits a template."""

    name: str
    template: NodeTemplate

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """See ``NodeTemplate``."""
        named = so_far.naming(self.name, node)
        if named is not None:
            yield from self.template.find(node, named)


@dataclass(frozen=True)
class Reshaped:
    """A node that fits, after any number of reshapes that keep its last axis."""

    operand: NodeTemplate

    def find(self, node: Node, so_far: TemplateMatch) -> Iterator[TemplateMatch]:
        """See ``NodeTemplate``."""
        while node.op == "reshape" and node.shape[-1:] == node.inputs[0].shape[-1:]:
            so_far = so_far.joined_by(node)
            node = node.inputs[0]
        yield from self.operand.find(node, so_far)


def _each(
    template: NodeTemplate, node: Node, ways: Iterator[TemplateMatch]
) -> Iterator[TemplateMatch]:
    """The ways in which a template fits a node besides each of several others."""
    for way in ways:
        yield from template.find(node, way)


def _near(result: float, number: float) -> bool:
    return math.isclose(result, number, rel_tol=1e-5)
