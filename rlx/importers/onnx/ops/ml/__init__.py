"""The domain ``ai.onnx.ml``: models of scikit-learn and its like, a file per family."""

from rlx.importers.onnx.ops.ml import encoding, linear, scaling, trees, vectors

__all__ = ["encoding", "linear", "scaling", "trees", "vectors"]
