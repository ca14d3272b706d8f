"""The table of patterns, in the order in which they are looked for."""

from __future__ import annotations

from rlx.abi.products import ACTIVATIONS
from rlx.passes.patterns.attention import attention, attention_by_position
from rlx.passes.patterns.convolutions import conv_affine, conv_after, conv_bias, turned_weight
from rlx.passes.patterns.match import Finder, Pattern
from rlx.passes.patterns.norms import NORMS, residual_norm
from rlx.passes.patterns.products import (
    WIDENED,
    halves,
    product,
    rounded,
    rounded_recurrence,
    scaled,
    transposed,
)
from rlx.passes.patterns.shared_products import PRODUCTS, gated, shared
from rlx.passes.patterns.spectra import frame_peaks, frame_powers, frame_spectra, log_mel, peaks
from rlx.passes.patterns.sums import sum_of_each


def _row(name: str, match: Finder, *ends: str) -> Pattern:
    return Pattern(name, match, frozenset(ends))


PATTERNS = (
    _row("spectrum and peaks", peaks, "ordered"),
    _row("spectrum and log-mel", log_mel, "mul", "div"),
    _row("frames and peaks", frame_peaks, "spectrum_peaks", "welch_peaks"),
    _row("frames and powers", frame_powers, "add"),
    _row("frames and spectrum", frame_spectra, "rfft"),
    # Before the next row, which would leave the transposes.
    _row("attention between transposes", attention_by_position, "transpose"),
    _row("attention", attention, "matmul"),
    _row("convolution and batch norm", conv_affine, "fma"),
    _row("convolution and bias", conv_bias, "add"),
    # After the row above has joined the bias.
    _row("convolution and what follows", conv_after, "add", *ACTIVATIONS),
    # After the rows that change weights and biases.
    _row("convolution by taps", turned_weight, "conv1d", "conv2d", "conv3d"),
    # Before the next row, which would take its first half for a product with an activation.
    _row("gated product", gated, "mul"),
    _row("product, bias and activation", product, "add", *ACTIVATIONS),
    _row("product and transpose", transposed, "matmul"),
    _row("product of bytes and scale", scaled, "mul"),
    _row("product of weights in 16 bits", halves, *WIDENED),
    # After the rows that join biases to products.
    _row("product of weights in 8 bits", rounded, "matmul", "fused_matmul_bias_act"),
    _row("recurrence of weights in 8 bits", rounded_recurrence, "recurrence"),
    _row("products of one input", shared, *PRODUCTS),
    _row("residual and norm", residual_norm, *NORMS),
    _row("squares or sizes and their sum", sum_of_each, "sum"),
)
