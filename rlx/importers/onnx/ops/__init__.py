"""One function per ONNX operator, in a file per family. ``handlers.find`` imports a file when an operator of it is named.

ONNX's own domain stands here, ``com.microsoft`` in ``contrib``, ``ai.onnx.ml`` in ``ml``.
"""
