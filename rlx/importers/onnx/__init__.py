"""ONNX models as graphs: the file's bytes (wire, schema, tensors), the walk (lower), the operators (ops)."""

from rlx.importers.onnx.load import load

__all__ = ["load"]
