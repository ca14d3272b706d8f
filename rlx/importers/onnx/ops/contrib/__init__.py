"""The domain ``com.microsoft``: operators of ONNX Runtime's optimizer and quantiser, a file per family."""
