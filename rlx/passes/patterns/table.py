"""The table of patterns, in the order in which they are looked for."""

from __future__ import annotations

from rlx.abi.products import ACTIVATIONS
from rlx.passes.patterns.match import Pattern


def _row(name: str, finder: str, *ends: str, needs: str = "") -> Pattern:
    return Pattern(name, finder, frozenset(ends), needs)


# A finder is a function of a module of this package, which is imported when a graph may have what it finds.
PATTERNS = (
    _row("spectrum and peaks", "spectra.peaks", "ordered"),
    _row("spectrum and log-mel", "spectra.log_mel", "mul", "div", needs="log"),
    _row("frames and peaks", "spectra.frame_peaks", "spectrum_peaks", "welch_peaks"),
    _row("frames and powers", "spectra.frame_powers", "add", needs="rfft"),
    _row("frames and spectrum", "spectra.frame_spectra", "rfft"),
    # Before the next row, which would leave the transposes.
    _row("attention between transposes", "attention.attention_by_position", "transpose"),
    _row("attention", "attention.attention", "matmul"),
    _row("attention over narrow keys and values", "attention.narrow", "attention"),
    _row("convolution and batch norm", "convolutions.conv_affine", "fma"),
    _row("convolution and bias", "convolutions.conv_bias", "add"),
    # After the row above has joined the bias.
    _row("convolution and what follows", "convolutions.conv_after", "add", "mul", *ACTIVATIONS),
    # After the rows that change weights and biases.
    _row("convolution by taps", "convolutions.turned_weight", "conv1d", "conv2d", "conv3d"),
    # Before the rows that join a product with what is behind it.
    _row("product of rows in 16 bits", "products.half_weights", "matmul", needs="cast"),
    _row("rows of a table in 16 bits", "products.half_table", "cast", needs="gather"),
    # Before the next row, which would take its first half for a product with an activation.
    _row("gated product", "shared_products.gated", "mul"),
    _row("product, bias and activation", "products.product", "add", *ACTIVATIONS),
    _row("product and transpose", "products.transposed", "matmul"),
    _row("product of bytes and scale", "products.scaled", "mul"),
    _row(
        "product of weights in 16 bits",
        "products.halves",
        "matmul",
        "fused_matmul_bias_act",
        "matmul_transposed",
    ),
    # After the rows that join biases to products.
    _row("product of weights in 8 bits", "products.rounded", "matmul", "fused_matmul_bias_act"),
    _row("recurrence of weights in 8 bits", "products.rounded_recurrence", "recurrence"),
    _row("products of one input", "shared_products.shared", "matmul", "fused_matmul_bias_act"),
    # Of one row, as in a step of a language model. The last of the three has what the other two leave.
    _row("packed products and gate", "packed_products.gated", "mul"),
    _row("packed product and sum", "packed_products.added", "add"),
    _row(
        "norm and packed products",
        "packed_products.normed",
        "dequant_matmul",
        "half_matmul",
        "packed_products",
    ),
    _row("packed products and biases", "packed_products.biased", "add", needs="packed_products"),
    _row("turned heads", "packed_products.turned", "add", needs="packed_products"),
    # After the row that turns keys.
    _row("packed products and casts", "packed_products.narrowed", "cast", needs="packed_products"),
    _row("residual and norm", "norms.residual_norm", "layer_norm", "rms_norm"),
    _row("squares or sizes and their sum", "sums.sum_of_each", "sum"),
)
