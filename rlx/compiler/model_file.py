"""``.rlx`` files: a graph, its weights and compiled plans in one file, which is loaded memory-mapped."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.build_digest import build_digest
from rlx.compiler import compile_cache
from rlx.compiler.loading import programmed
from rlx.compiler.lowering import lower
from rlx.compiler.target import Target
from rlx.device.names import Device
from rlx.errors import ImportModelError, InputError, RlxError, unreadable
from rlx.files import contents
from rlx.ir import container
from rlx.ir.content import OpaqueError
from rlx.ir.graph import Graph
from rlx.ir.serialize import from_data, parted
from rlx.passes.quantize_weights import shrunk

KIND = "model"


def save_model(
    graph: Graph,
    path: str | os.PathLike[str],
    weights: str | None = None,
    devices: Iterable[Device | str] = (),
    options: CompileOptions | None = None,
) -> list[str]:
    """Writes a graph with its attached weights to one file.

    Args:
        graph: The graph, with outputs set; params without a value have to be set after loading.
        path: The file, by custom ``*.rlx``; an older one is replaced in one step. Graphs that were loaded
            from that keep their weights. On Windows it stays beside for as long, under a name that ends in
            ``.old``.
        weights: "f16" or "int8" stores large f32 weights in fewer bytes, and computes with what they
            round to.
        devices: Devices that the graph is compiled for beforehand. Loading it on a machine with such
            a device, driver and release of rlx skips the compiler; elsewhere it is compiled anew.
        options: How it is compiled for them; ``rlx.compile`` has to be given the same.

    Returns:
        A line for every weight that was changed or had to be left, and for every device that the graph
        can't be compiled for beforehand: because of a custom op, or because a plug-in compiles it itself.

    Raises:
        VerifyError: The graph is not legal.
        InputError: There are no such weights.
        DeviceError: A device is not here.
        FileInUseError: On Windows: another program has the file open and forbids renaming it.
        OSError: The file can't be written.

    Example:
        >>> import numpy as np, rlx, tempfile, os
        >>> g = rlx.Graph("scale")
        >>> g.set_outputs([g.input("x", (2,)) * g.param("w", (2,))])
        >>> g.param_values["w"] = np.float32([3, 4])
        >>> path = os.path.join(tempfile.mkdtemp(), "scale.rlx")
        >>> rlx.save_model(g, path, devices=["cpu"])
        []
        >>> cg = rlx.compile(rlx.load_model(path), device="cpu")
        >>> cg.run_slots(np.float32([1, 1]))[0].tolist()
        [3.0, 4.0]
    """
    graph.verify()
    notes: list[str] = []
    if weights is not None:
        graph, notes = shrunk(graph, weights)
    data, arrays = parted(graph)
    # Plans are made for the graph as it will be read back.
    loaded = from_data(Graph, data, arrays)
    plans = {}
    for device in devices:
        target = Target.of(Device.parse(device), options or CompileOptions())
        if graph.dims:
            notes.append(f"{device}: it is compiled when it is loaded, since its graph has dims")
            continue
        if not target.reads_kernels:
            notes.append(
                f"{device}: it is compiled when it is loaded; its backend takes graphs whole"
            )
            continue
        try:
            plan = compile_cache.packed(loaded, target, programmed(lower(loaded, target), target))
        except OpaqueError as error:
            notes.append(f"{device}: it is compiled when it is loaded, because of {error}")
            continue
        plans[plan.name] = len(arrays)
        arrays.append(np.frombuffer(plan.raw, np.uint8))
    container.write(
        path, container.dump(KIND, {"graph": data, "plans": plans, "build": build_digest()}, arrays)
    )
    return notes


def load_model(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO, check: bool = False
) -> Graph:
    """Reads a file written by ``save_model``.

    Weights stay in the file and are read when they are touched; it must not be written over while they are in use.
    Nothing in the file is code, and nothing in it is believed: the graph is checked node by node, and so is a compiled
    plan when it is used, from which the kernel calls are made anew. A plan that fails its checks is ignored with a
    warning, and the graph is compiled. A plan serves only the graph that this call returns, never an equal one.

    Args:
        path: The file; or its contents, or a binary file object that is read to its end: a program may
            decrypt a model in memory.
        check: Whether the weights' checksum is computed now, which reads all of them. That of
            everything else always is.

    Returns:
        The graph, its weights attached as read-only arrays.

    Raises:
        ImportModelError: It is no such file, of another version, or damaged.
        ModelFileError: It can't be read; ``ModelNotFoundError`` where it is not there.
    """
    stored = contents(path)
    where = "the model" if stored is not None else os.fspath(path)  # type: ignore[arg-type]
    try:
        result = (
            container.mapped(where, check)
            if stored is None
            else container.load(bytes(stored), where, check)
        )
        if result.kind != KIND:
            raise InputError("the container holds no model", got=result.kind, expected=KIND)
        graph = from_data(Graph, result.data["graph"], result.arrays)
        plans = {str(name): result.arrays[value] for name, value in result.data["plans"].items()}
    except (RlxError, LookupError, TypeError, AttributeError) as error:
        raise ImportModelError(
            f"{where!r} holds no model", got=error, expected="a file written by rlx.save_model"
        ) from error
    except OSError as error:
        raise unreadable("the model can't be read", where, error) from None
    compile_cache.offer(graph, plans, result.data.get("build"))
    return graph
