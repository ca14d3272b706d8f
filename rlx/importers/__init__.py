"""Readers of model files: graphs out of ONNX, weights out of safetensors and GGUF. Nothing in a file is run."""
