"""One function per ONNX operator, in a file per family; importing this fills the table of them."""

from rlx.importers.onnx.ops import (
    activations,
    attention,
    control,
    convolution,
    elementwise,
    losses,
    movement,
    normalization,
    pooling,
    products,
    quantization,
    recurrent,
    reductions,
    sampling,
    sequences,
    shapes,
)

__all__ = [
    "activations",
    "attention",
    "control",
    "convolution",
    "elementwise",
    "losses",
    "movement",
    "normalization",
    "pooling",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "sampling",
    "sequences",
    "shapes",
]
