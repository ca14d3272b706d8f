"""Imports every module that registers operations, in the order of the tables and pages that list them.

They are imported by name, so that tools that read code find them: those that freeze a program, and type checkers.
"""

# isort: off
from rlx.ops import placeholders as placeholders
from rlx.ops.elementwise import records as records, activations as activations
from rlx.ops.movement import (
    strided as strided, pads as pads, gather as gather, scatter as scatter, layout as layout, creation as creation,
    read_size as read_size, update as update,
)  # fmt: skip
from rlx.ops.elementwise import random as random
from rlx.ops.resize import interpolate as interpolate, plane as plane
from rlx.ops.rows import (
    reduction as reduction, softmax as softmax, sorting as sorting, trees as trees, normalization as normalization,
)  # fmt: skip
from rlx.ops.products import (
    matmul as matmul, grouped as grouped, gated_matmul as gated_matmul, quantization as quantization, dequant as dequant, grouped_dequant as grouped_dequant,
    einsum as einsum, packed_products as packed_products,
)  # fmt: skip
from rlx.ops.windows import (
    convolution as convolution,
    fused as fused,
    conv_last as conv_last,
    hwio_weights as hwio_weights,
    transposed as transposed,
    pooling as pooling,
)
from rlx.ops.attention import (
    attention as attention,
    narrow_attention as narrow_attention,
    quantize_q8_0 as quantize_q8_0,
    rotary as rotary,
)
from rlx.ops.products import half as half, int8_weights_matmul as int8_weights_matmul
from rlx.ops.recurrent import (
    recurrence as recurrence,
    int8_weights_recurrent as int8_weights_recurrent,
    layers as layers,
    state_space as state_space,
)
from rlx.ops.selection import (
    positions as positions, unique as unique, repeats as repeats, suppression as suppression, draw_token as draw_token,
)  # fmt: skip
from rlx.ops import control as control, host_control as host_control
from rlx.ops.spectra import (
    fft as fft, real_fft as real_fft, frames as frames, welch as welch, frame_peaks as frame_peaks, log_mel as log_mel,
)  # fmt: skip
from rlx.ops.recurrent import recursive as recursive
from rlx.ops.spectra import find_peaks as find_peaks
from rlx.ops import custom as custom
# isort: on
