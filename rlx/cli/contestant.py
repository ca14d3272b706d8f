"""One contestant of ``rlx bench`` in a process of its own: it reads commands from stdin, a line of JSON each.

The first command says what to load, and is answered with facts; the outputs of the first run go to a file. Each
later one asks for a burst of runs, and is answered with their nanoseconds.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import rlx
from rlx import model_files
from rlx.backends.registry import backend
from rlx.cli.cold_start import peer_session
from rlx.device.names import info_of
from rlx.errors import one_line
from rlx.ir.opdef import Array

Once = Callable[[], Any]
Ready = tuple[Once, list[Array], dict[str, Any]]


def main() -> None:
    """Answers commands until stdin ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    once: Once | None = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if once is None:
                once, answer = _load(command)
            else:
                answer = {"ns": _burst(once, command["seconds"])}
        except Exception as error:  # whatever goes wrong is this contestant's own
            text = one_line(error)
            kind = "" if isinstance(error, rlx.RlxError) else f"{type(error).__name__}: "
            answer = {"error": kind + text}
        print(json.dumps(answer), file=answers, flush=True)


def _load(spec: Mapping[str, Any]) -> tuple[Once, dict[str, Any]]:
    with np.load(spec["inputs"]) as result:
        inputs = {name: result[str(i)] for i, name in enumerate(spec["names"])}
    prepare = _PEERS.get(spec["contestant"], _device)
    once, outputs, facts = prepare(spec, inputs)
    saved: dict[str, Any] = {str(i): array for i, array in enumerate(outputs)}
    np.savez(spec["outputs"], **saved)
    gc.disable()
    return once, facts


def _burst(once: Once, seconds: float) -> list[int]:
    """Nanoseconds of each run for so long; the first, on caches that another process used, does not count."""
    times: list[int] = []
    clock = time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    once()
    while not times or clock() < end:
        start = clock()
        once()
        times.append(clock() - start)
    gc.collect()
    return times


def _device(spec: Mapping[str, Any], inputs: Mapping[str, Array]) -> Ready:
    began = time.perf_counter()
    graph, _ = model_files.load(spec["model"], spec["dims"])
    loaded = time.perf_counter()
    options = rlx.CompileOptions(threads=spec["threads"], denormals=spec["denormals"])
    compiled = rlx.compile(graph, spec["contestant"], options=options)
    ready = time.perf_counter()
    values = [inputs[name] for name in graph.input_names]
    outputs = [view.copy() for view in compiled.run_slots(*values)]
    first = time.perf_counter()
    info = info_of(compiled.device)
    facts = {
        "load_ms": (loaded - began) * 1e3,
        "compile_ms": (ready - loaded) * 1e3,
        "first_ms": (first - ready) * 1e3,
        "memory_mb": compiled.memory()["peak"] / 1e6,
        "on_the_host": [str(fallback) for fallback in compiled.host_fallbacks],
        "adapter": info.adapter,
        "driver": info.driver,
        "api": info.api,
        "path": backend(info.backend).path(info),
    }
    return partial(compiled.run_slots, *values), outputs, facts


def _onnxruntime(spec: Mapping[str, Any], inputs: Mapping[str, Array]) -> Ready:
    try:
        onnxruntime = import_module("onnxruntime")
    except ImportError as error:
        hint = "pip install onnxruntime"
        raise rlx.InputError("onnxruntime is not installed", hint=hint) from error
    if not spec["model"].lower().endswith(".onnx"):
        raise rlx.InputError("onnxruntime runs .onnx files only", got=spec["model"])
    began = time.perf_counter()
    try:
        session = peer_session(onnxruntime, spec)
        ready = time.perf_counter()
        outputs = session.run(None, inputs)
    except Exception as error:  # its errors have no common type
        raise rlx.InputError("onnxruntime refuses the model", got=error) from error
    facts = {
        "compile_ms": (ready - began) * 1e3,
        "first_ms": (time.perf_counter() - ready) * 1e3,
        "driver": f"onnxruntime {onnxruntime.__version__}",
        "adapter": "CPU",
        "on_the_host": [],
    }
    return partial(session.run, None, inputs), [np.asarray(output) for output in outputs], facts


_PEERS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Array]], Ready]] = {
    "onnxruntime": _onnxruntime
}
PEERS = tuple(_PEERS)

if __name__ == "__main__":
    main()
