"""One function per ONNX operator, in a file per family; importing this fills the table of them.

ONNX's own domain stands here, ``com.microsoft`` in ``contrib``, ``ai.onnx.ml`` in ``ml``.
"""

from rlx.importers.onnx.ops import (
    activations,
    attention,
    contrib,
    control,
    convolution,
    detection,
    elementwise,
    losses,
    ml,
    movement,
    normalization,
    pooling,
    products,
    quantization,
    random,
    recurrent,
    reductions,
    sampling,
    sequences,
    shapes,
    spectra,
    training,
)

__all__ = [
    "activations",
    "attention",
    "contrib",
    "control",
    "convolution",
    "detection",
    "elementwise",
    "losses",
    "ml",
    "movement",
    "normalization",
    "pooling",
    "products",
    "quantization",
    "random",
    "recurrent",
    "reductions",
    "sampling",
    "sequences",
    "shapes",
    "spectra",
    "training",
]
