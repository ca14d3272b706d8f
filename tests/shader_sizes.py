"""Measures the use of a workgroup by a WGSL text: threads, and bytes of its memory."""

from __future__ import annotations

import math
import re

_WORKGROUP = re.compile(r"@workgroup_size\(([^)]*)\)")
_SHARED = re.compile(r"var<workgroup>\s+\w+\s*:\s*([^;]+);")
_BYTES = {"f32": 4, "i32": 4, "u32": 4, "vec2": 2, "vec3": 4, "vec4": 4, "Wide": 32}


def shared_bytes(kind: str) -> int:
    """Bytes of a WGSL type in workgroup memory."""
    kind = re.sub(r"atomic<(\w+)>", r"\1", kind.replace(" ", ""))
    if match := re.fullmatch(r"array<(.+),(\d+)u?>", kind):
        return shared_bytes(match[1]) * int(match[2])
    if match := re.fullmatch(r"(vec\d)<(.+)>", kind):
        return _BYTES[match[1]] * shared_bytes(match[2])
    return _BYTES[kind]


def shared_of(source: str) -> int:
    """Bytes of workgroup memory of a text without comments."""
    return sum(shared_bytes(kind) for kind in _SHARED.findall(source))


def threads_of(source: str) -> int:
    """Threads of its largest workgroup; 0 for a text without an entry point."""
    sizes = (size.split(",") for size in _WORKGROUP.findall(source))
    return max((math.prod(map(int, size)) for size in sizes), default=0)
