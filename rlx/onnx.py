"""ONNX models: ``load`` makes a graph of one, ``Model`` runs one on arrays of any shape.

Example:
    ```python
    model = rlx.onnx.Model("model.onnx", device="auto")
    outputs = model.run({"x": x})
    graph = rlx.onnx.load("model.onnx", dims={"batch": 1})
    ```
"""

from rlx.importers.onnx.load import load
from rlx.many.model_report import ModelReport, ShapesReport
from rlx.many.onnx_model import Model

__all__ = ["Model", "ModelReport", "ShapesReport", "load"]
