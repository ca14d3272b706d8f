"""Fusion by pattern: a table of small graphs, and the single nodes that compute the same."""

from rlx.passes.patterns.apply import fuse_patterns
from rlx.passes.patterns.table import PATTERNS

__all__ = ["PATTERNS", "fuse_patterns"]
