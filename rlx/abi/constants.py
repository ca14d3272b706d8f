"""Sizes that the C kernels and the Python that prepares their calls both need. The C header is made of them."""

from __future__ import annotations

# --- matrix products (kernels/products/micro.h) ---
# Rows of a panel of the right matrix that stay in the cache while rows of the left matrix go by.
PANEL_DEPTH = 512
# Columns of a panel at most, on any instruction set.
PANEL_COLUMNS = 64
# Elements of the largest panel.
PANEL = PANEL_DEPTH * PANEL_COLUMNS
# Rows of the left matrix that stay in the cache while panels go by.
PRODUCT_ROWS = 192
# Rows of the left matrix that a product of 8-bit integers prepares at a time.
BYTE_ROWS = 48
# Rows that a product with 8-bit weights rounds at a time, and columns of a panel of them at most.
ROUNDED_ROWS, ROUNDED_PANEL = 48, 64
# Rows of one expert that a grouped product makes together, and columns of them that are apart in memory.
EXPERT_ROWS, EXPERT_COLUMNS = 48, 512
# Bytes of 256 elements of a row that is rounded for quantised weights.
ROUNDED_BYTES = 576
# Weights that are decoded at a time.
DECODE_SPAN = 256

# --- windows ---
# Elements behind each padded plane, which whole vectors may overwrite.
PLANE_SLACK = 16
# Columns of a convolution's panel at most.
CONV_COLUMNS = 64
# Convolutions with 3x3 filters in tiles: results of a tile along each axis, and points that it is transformed to.
WINOGRAD_TILE, WINOGRAD_POINTS = 4, 36
# Powers of two that transforms of tiles and of long filters multiply elements and filters by. Transformed normal numbers
# are normal then. A result takes them back.
ELEMENT_SCALE, FILTER_SCALE = 1 << 24, 1 << 24
# The same once more for spectra, which are divided by the samples of a block: at most so many.
SPECTRUM_SCALE = 1 << 15
# Windows of a row that a pool makes together.
POOL_STRIP = 512
# Bytes of a mask of lanes of a depthwise convolution.
LANE_MASK_BYTES = 64

# --- transforms ---
# Bytes of the rows of a transform that go through the passes side by side.
FFT_LANE_BYTES = 64
# Points of the small transform inside a long convolution.
LONG_ACROSS = 16
# Rows of a spectrogram that meet the mel filters together.
MEL_ROWS = 128
# Rows of it that a thread takes at least.
MEL_UNIT = 16

# --- threads ---
# Tasks of a phase of a call that a team of threads makes, at most.
TEAM = 64

# --- other families ---
# Trees that are walked side by side, and rows that meet the same trees one after the other.
TREE_GROUP, TREE_ROWS = 16, 32
# Taps of a resized axis up to which the tables are turned.
RESIZE_TAPS = 8
# Neighbouring lines that a thread takes at least, where threads share the lines of a position: 2 cache lines of f32.
LINE_COLUMNS = 32
# Keys of a tile of attention, and queries that meet it together.
ATTENTION_KEYS, ATTENTION_QUERIES = 128, 64
# Elements of a vector at most: 64 bytes of f32.
VECTOR_ELEMENTS = 16
# Columns of a panel of a recurrence's weights at most.
RECURRENT_PANEL = 64
# Rows that a recursive filter takes side by side.
FILTER_LANES = 8
# Channels of a selective scan that a thread takes at least.
SCAN_CHANNELS = 4
# Bytes of the registers of an elementwise program, operands of it at most, and elements of a block at most.
REGISTER_BYTES, PROGRAM_OPERANDS, LARGEST_BLOCK = 49152, 48, 1024

NAMES = tuple(name for name in dict(globals()) if name.isupper())
