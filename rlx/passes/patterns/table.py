"""The table of patterns, in the order in which they are looked for."""

from rlx.passes.patterns.attention import attention
from rlx.passes.patterns.convolutions import conv_affine, conv_bias
from rlx.passes.patterns.match import Pattern
from rlx.passes.patterns.norms import residual_norm
from rlx.passes.patterns.products import product, turned

PATTERNS = (
    Pattern("attention", attention),
    Pattern("convolution and batch norm", conv_affine),
    Pattern("convolution and bias", conv_bias),
    Pattern("product, bias and activation", product),
    Pattern("product and transpose", turned),
    Pattern("residual and norm", residual_norm),
)
