"""The domain ``com.microsoft``: what ONNX Runtime's optimizer and quantiser write, a file per family."""

from rlx.importers.onnx.ops.contrib import (
    activations,
    attention,
    distances,
    grouped_queries,
    integers,
    normalization,
    positions,
    products,
    quantization,
    standard,
    windows,
)

__all__ = [
    "activations",
    "attention",
    "grouped_queries",
    "distances",
    "integers",
    "normalization",
    "positions",
    "products",
    "quantization",
    "standard",
    "windows",
]
