"""Writes every WGSL text that the samples become, within several limits, as lines of JSON.

usage: python tests/shader_texts.py FILE
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dispatches import CASES, joined_graph, planned
from shader_sizes import shared_of, threads_of

from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.modules import for_naga
from rlx.ir.dtype import DType
from rlx.ir.variants import SUBGROUPS
from rlx.ops.conformance_cases import Case

# Limits that adapters of Direct3D 12 and Metal usually have above the defaults.
LARGE = {
    **DEFAULT_LIMITS,
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-size-x": 1024,
    "max-compute-workgroup-storage-size": 32768,
    SUBGROUPS: 1,
}
# Limits, and the alignment of ranges.
ADAPTERS = (DEFAULT_LIMITS, 256), (LARGE, 64)
_BINDING = re.compile(r"@binding\(\d+\)")
_COMMENT = re.compile(r"//[^\n]*")


def texts(chosen: Iterable[Case] = CASES) -> Iterator[dict[str, Any]]:
    """Each text of some cases once.

    It has a label, its source, the same for naga, its bindings, and whether it exchanges values within subgroups.
    """
    seen = set()
    for case in chosen:
        if DType.F64 in case.dtypes:  # the CPU computes it
            continue
        graphs = case.graph(), joined_graph(case)[0]
        for graph, (limits, alignment) in itertools.product(graphs, ADAPTERS):
            for item in planned(graph, limits, alignment=alignment)[0]:
                if item.source in seen:
                    continue
                seen.add(item.source)
                bare = _COMMENT.sub("", item.source)
                yield {
                    "label": f"{case.opdef.name}: {item.label}",
                    "source": item.source,
                    "naga": for_naga(item.source),
                    "bindings": len(_BINDING.findall(bare)),
                    "shared": shared_of(bare),
                    "threads": threads_of(bare),
                    "subgroups": "subgroup_size" in bare,
                }


if __name__ == "__main__":
    lines = [json.dumps(text) for text in texts()]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
