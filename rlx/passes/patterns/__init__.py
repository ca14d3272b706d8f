"""Fusion by pattern: a table of small graphs, and the single nodes that compute the same."""

from rlx.passes.patterns.apply import fuse_patterns, fuse_widened
from rlx.passes.patterns.table import PATTERNS

__all__ = ["PATTERNS", "fuse_patterns", "fuse_widened"]
