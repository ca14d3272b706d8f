"""One function per ONNX operator, in a file per family; importing this fills the table of them."""

from rlx.importers.onnx.ops import activations, elementwise, shapes

__all__ = ["activations", "elementwise", "shapes"]
