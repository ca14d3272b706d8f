"""The domain ``com.microsoft``: what ONNX Runtime's optimizer and quantiser write, a file per family."""
