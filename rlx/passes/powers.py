"""Graph -> Graph without powers by some constants: they become products, roots and reciprocals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlx.ir.dtype import widen
from rlx.ir.graph import Graph, Node
from rlx.ir.notes import Note
from rlx.ir.rewrite import Rewriter
from rlx.passes.fusion_gate import Specialisation

# Exponent -> steps: an operation and its operands. Operand 0 is the base, operand k the result of step k. Each chain rounds
# three times at most, and gives what IEEE 754 says of powers of zeros, infinities and NaN: power_half is sqrt but for
# -0 and -inf, and a product with it has the sign of a power.
_POWERS: Mapping[float, tuple[tuple[str, ...], ...]] = {
    1.0: (),
    2.0: (("mul", "00"),),
    3.0: (("mul", "00"), ("mul", "10")),
    4.0: (("mul", "00"), ("mul", "11")),
    0.5: (("power_half", "0"),),
    0.25: (("power_half", "0"), ("power_half", "1")),
    1.5: (("abs", "0"), ("power_half", "0"), ("mul", "12")),
    2.5: (("mul", "00"), ("power_half", "0"), ("mul", "12")),
    -0.5: (("power_half", "0"), ("reciprocal", "1")),
    -1.0: (("reciprocal", "0"),),
    -2.0: (("reciprocal", "0"), ("mul", "11")),
}


def _exponent(node: Node) -> float | None:
    """The one number that a power has as its exponent, where the result has the shape of the base."""
    base, exponent = node.inputs
    while exponent.op == "cast":
        exponent = exponent.inputs[0]
    if exponent.op != "constant" or base.shape != node.shape or not exponent.type.size:
        return None
    values = widen(exponent.attrs["value"], exponent.dtype).astype(np.float64)
    return float(values.flat[0]) if np.all(values == values.flat[0]) else None


def expand_powers(graph: Graph, notes: list[Note], target: Specialisation) -> Graph:
    """Replaces powers by constants that products and roots give as exactly."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        exponent = _exponent(node) if node.op == "pow" else None
        steps = None if exponent is None else _POWERS.get(exponent)
        # Powers of integers below 0 are cut off, which reciprocals of integers are not made for.
        if steps is None or not (node.dtype.is_float or exponent in (1.0, 2.0, 3.0, 4.0)):
            rewriter.keep(node)
            continue
        results = [rewriter[node.inputs[0]]]
        for name, operands in steps:
            inputs = [results[int(operand)] for operand in operands]
            results.append(rewriter.new.add_node(name, inputs, source=node.source))
        rewriter.replace(node, results[-1])
        how = " ".join(name for name, _ in steps) or "its base"
        notes.append(Note.of("powers", node, f" to the power {exponent:g} is {how}"))
    return rewriter.finish()
