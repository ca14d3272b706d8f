"""The shared parts of operations with 8-bit weights whose other operand the CPU rounds to 16 bits."""

from __future__ import annotations

from rlx.errors import ShapeError
from rlx.ir.graph import Node
from rlx.ir.opdef import TensorType

# An operand is off by up to 2^-16 of the largest element of its row, and so is each term of a sum.
ROUNDED_TOLERANCE = 1e-4


def check_scales(where: str, codes: TensorType, scales: TensorType) -> None:
    """Checks that 8-bit weights have a scale for each of their rows.

    Raises:
        ShapeError: They have not.
    """
    if not codes.shape or scales.shape != codes.shape[:-1]:
        expected = "codes [..., rows, k] and scales [..., rows]"
        got = f"codes {codes.shape}, scales {scales.shape}"
        raise ShapeError(f"[{where}] weights in 8 bits", got=got, expected=expected)


def on_cpu(node: Node) -> str:
    """Why a node that rounds an operand has no kernel elsewhere."""
    return "products that round an operand to 16 bits are made for the CPU alone"
