"""A compiled graph timed in fresh processes: the graph, its options and its inputs go there through a private folder."""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rlx.backends.base import CompileOptions
from rlx.compiler.model_file import load_model, save_model
from rlx.dataclasses import dataclass
from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.python_start import python
from rlx.regress import measure
from rlx.regress.record import NOTHING_KEPT
from rlx.regress.record_schema import Times
from rlx.regress.system_load import LoadWatch

SECONDS = 0.3
"""Seconds for which a process runs the graph."""

_GRAPH, _REST = "graph.rlx", "rest"
_MODULE = "rlx.regress.fresh"


@dataclass(frozen=True)
class FreshProcessJob:
    """The job of a fresh process, besides the graph.

    Attributes:
        device: The device.
        options: How the graph is compiled.
        inputs: Its inputs, in storage.
        run: The recording.
        case: The case's digest.
    """

    device: str
    options: CompileOptions
    inputs: Sequence[Array]
    run: str
    case: str


def times(graph: Graph, job: FreshProcessJob, processes: Sequence[int]) -> Iterator[Times]:
    """Times a graph in one fresh process after the other.

    Args:
        graph: The graph, with the values of its params.
        job: The rest.
        processes: Their numbers.

    Raises:
        RlxError: The graph can't be saved, as one with custom operations, or a process failed.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-fresh-") as folder:
        save_model(graph, Path(folder, _GRAPH))
        Path(folder, _REST).write_bytes(pickle.dumps(job))
        for process in processes:
            command = python("-m", _MODULE, folder, str(process))
            here = {**os.environ, **NOTHING_KEPT}
            done = subprocess.run(command, capture_output=True, env=here, check=False)
            if done.returncode:
                said = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
                raise RlxError("a measuring process failed", got=said[-1][:400])
            yield msgspec.json.decode(done.stdout, type=Times)


def main(argv: Sequence[str] | None = None) -> None:
    """Times the graph of a folder in this process, and writes a line of a record file."""
    parser = argparse.ArgumentParser(prog="rlx.regress.fresh")
    parser.add_argument("folder", type=Path)
    parser.add_argument("process", type=int)
    args = parser.parse_args(argv)
    watch = LoadWatch()
    answer = sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints is no answer
    # Written by the process that started this one, in a folder that only this user can write to.
    job: FreshProcessJob = pickle.loads((args.folder / _REST).read_bytes())
    graph = load_model(args.folder / _GRAPH)
    single = measure.loaded(graph, job.inputs, job.device, job.options)
    runs = measure.runs(single, SECONDS)
    result = measure.times(
        single, runs, SECONDS, watch, job.run, job.device, job.case, args.process
    )
    answer.write(msgspec.json.encode(result))
    answer.flush()


if __name__ == "__main__":
    main()
