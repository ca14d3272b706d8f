"""All rows of the table of ``benchmarks/gpu.py``."""

from gpu_products import ROWS as PRODUCTS
from gpu_work import Row

ROWS: tuple[Row, ...] = (*PRODUCTS,)
