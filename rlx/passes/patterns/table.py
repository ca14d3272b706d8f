"""The table of patterns, in the order in which they are looked for."""

from rlx.passes.patterns.attention import attention
from rlx.passes.patterns.convolutions import conv_affine, conv_after, conv_bias
from rlx.passes.patterns.match import Pattern
from rlx.passes.patterns.norms import residual_norm
from rlx.passes.patterns.products import halves, product, scaled, transposed
from rlx.passes.patterns.shared_products import gated, shared
from rlx.passes.patterns.spectra import frame_peaks, frame_powers, frame_spectra, log_mel, peaks
from rlx.passes.patterns.sums import sum_of_each

PATTERNS = (
    Pattern("spectrum and peaks", peaks),
    Pattern("spectrum and log-mel", log_mel),
    Pattern("frames and peaks", frame_peaks),
    Pattern("frames and powers", frame_powers),
    Pattern("frames and spectrum", frame_spectra),
    Pattern("attention", attention),
    Pattern("convolution and batch norm", conv_affine),
    Pattern("convolution and bias", conv_bias),
    # After the row above has joined the bias.
    Pattern("convolution and what follows", conv_after),
    # Before the next row, which would take its first half for a product with an activation.
    Pattern("gated product", gated),
    Pattern("product, bias and activation", product),
    Pattern("product and transpose", transposed),
    Pattern("product of bytes and scale", scaled),
    Pattern("product of weights in 16 bits", halves),
    # After the rows that join biases to products.
    Pattern("products of one input", shared),
    Pattern("residual and norm", residual_norm),
    Pattern("squares or sizes and their sum", sum_of_each),
)
