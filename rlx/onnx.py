"""ONNX models: ``load`` makes a graph of one, ``Model`` runs one on arrays of any shape.

Example:
    ```python
    model = rlx.onnx.Model("model.onnx", device="auto")
    outputs = model.run({"x": x})
    graph = rlx.onnx.load("model.onnx", dims={"batch": 1})
    ```
"""

from typing import TYPE_CHECKING

from rlx import lazy_imports

if TYPE_CHECKING:
    from rlx.importers.onnx.load import load as load
    from rlx.serving.model_report import ModelReport as ModelReport
    from rlx.serving.model_report import ShapesReport as ShapesReport
    from rlx.serving.onnx_model import Model as Model

# A model that the cache folder knows needs no importer.
_homes = lazy_imports.names_of(
    __name__,
    {
        "rlx.importers.onnx.load": "load",
        "rlx.serving.model_report": "ModelReport ShapesReport",
        "rlx.serving.onnx_model": "Model",
    },
)
__all__ = sorted(_homes)
