"""Compiles WGSL texts with Dawn's compiler, which Chromium has: prints what it refuses, and how many became pipelines.

usage: python tests/dawn_compiles.py FILE      (FILE has lines of JSON as ``shader_texts`` writes them)

A text that is beyond the adapter's limits is checked as a module: by all of WGSL's own rules.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wgpudawn
from wgpudawn.backends.dawn import extras

_ACCESS = re.compile(r"@binding\(\d+\)\s*var<storage, (\w+)>")
_TYPES = {"read": "read-only-storage", "read_write": "storage"}
WANTED = ("shader-f16", "subgroups", "chromium-experimental-subgroup-matrix")


def device() -> Any:
    """A device of the first adapter, with all that it has."""
    extras.set_instance_extras(enable_toggles=["allow_unsafe_apis"])
    (adapter, *_) = wgpudawn.gpu.enumerate_adapters_sync()
    features = [name for name in WANTED if name in adapter.features]
    return adapter.request_device_sync(
        required_features=features, required_limits=dict(adapter.limits)
    )


def fits(item: dict[str, Any], limits: dict[str, int]) -> bool:
    """Returns whether a text is within the limits of a device."""
    maximum = (
        ("threads", "max-compute-invocations-per-workgroup"),
        ("shared", "max-compute-workgroup-storage-size"),
        ("bindings", "max-storage-buffers-per-shader-stage"),
    )
    return all(item[name] <= limits[limit] for name, limit in maximum)


def refused(texts: list[dict[str, Any]], report: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yields Dawn's messages about the texts that it refuses."""
    on = device()
    for text in texts:
        try:
            module = on.create_shader_module(label=text["label"], code=text["source"])
            if not fits(text, on.limits):
                continue
            entries = [
                {"binding": index, "visibility": 4, "buffer": {"type": _TYPES[access]}}
                for index, access in enumerate(_ACCESS.findall(text["source"]))
            ]
            bindings = on.create_bind_group_layout(entries=entries)
            layout = on.create_pipeline_layout(bind_group_layouts=[bindings])
            on.create_compute_pipeline(
                layout=layout, compute={"module": module, "entry_point": "main"}
            )
            report["pipelines"] += 1
        except wgpudawn.GPUError as error:
            yield {"label": text["label"], "why": str(error)}


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    found: dict[str, Any] = {"texts": len(lines), "pipelines": 0}
    found["refused"] = list(refused([json.loads(line) for line in lines], found))
    print(json.dumps(found))
