"""The domain ``ai.onnx.ml``: models of scikit-learn and its like, a file per family."""
