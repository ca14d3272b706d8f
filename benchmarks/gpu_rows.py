"""All rows of the table of ``benchmarks/gpu.py``."""

from gpu_products import ROWS as PRODUCTS
from gpu_signal import ROWS as SIGNAL
from gpu_streams import COPY
from gpu_streams import ROWS as STREAMS
from work import BenchmarkRow

ROWS: tuple[BenchmarkRow, ...] = (COPY, *PRODUCTS, *SIGNAL, *STREAMS)
assert len({row.name for row in ROWS}) == len(ROWS)
