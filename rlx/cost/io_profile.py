"""Counts the launches, waits and bytes of one run of a graph, from the graph alone.

The counts are exact and know no device's speed; ``rlx.cost.gate`` turns two of them into time.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import SupportsIndex

from rlx.dataclasses import dataclass
from rlx.errors import GraphError, InputError
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.opdef import lookup
from rlx.ir.static_sizes import usual

# Ops that stop a device for the host unless it has kernels of its own for them.
HOST_SYNC_OPS = frozenset({"log_mel", "log_mel_backward", "custom", "welch_peaks"})
# Every op whose node is a Fourier transform; stft and the like are made of these.
FFT_OPS = frozenset({"fft", "rfft"})
# Leaves and reorderings: nothing is launched, nothing counts, also where they are outputs.
_UNCOUNTED = frozenset({"input", "param", "constant", "reshape", "transpose", "narrow", "leading"})


@dataclass(frozen=True)
class GraphIoOptions:
    """Options of sync points: what counts as one.

    Attributes:
        fft_host_sync: Every ``fft`` and ``rfft`` node waits for the host.
        kernel_set: The kernels of the device that the profile is for: "cpu", "webgpu" or "webgpu-f16".
            The nodes of ``rlx.host_sync_op_kinds()`` then wait for the host only where they have no
            kernel in it. None is no device in particular: they all do.

    Example:
        >>> GraphIoOptions(fft_host_sync=True).kernel_set is None
        True
    """

    fft_host_sync: bool = False
    kernel_set: str | None = None


@dataclass(frozen=True)
class GraphIoProfile:
    """The counts of one run.

    Attributes:
        kernel_launches: Nodes that a device computes.
        sync_points: Nodes where it waits for the host.
        host_output_bytes: Bytes of the outputs, each node once.
        device_traffic_bytes: Bytes that the nodes read and write.

    Example:
        >>> GraphIoProfile(2, 1, 8192, 16384).host_readback_bytes(unified_memory=False)
        12288
    """

    kernel_launches: int = 0
    sync_points: int = 0
    host_output_bytes: int = 0
    device_traffic_bytes: int = 0

    def host_readback_bytes(self, unified_memory: bool) -> int:
        """Bytes taken to cross to the host.

        Args:
            unified_memory: Host and device share memory.

        Returns:
            The bytes of the outputs, and without shared memory a quarter of the traffic besides.
        """
        staged = 0 if unified_memory else self.device_traffic_bytes // 4
        return self.host_output_bytes + staged


def host_sync_ops(kernel_set: str | None = None) -> frozenset[str]:
    """The op kinds of which a node may wait for the host on a device with these kernels.

    Args:
        kernel_set: "cpu", "webgpu", "webgpu-f16"; "" for a device that takes graphs whole and so cuts
            none; None for no device in particular, which is the conservative set.
    """
    if kernel_set is None:
        return HOST_SYNC_OPS
    if not kernel_set or KERNEL_SETS[kernel_set].on_host:
        return frozenset()
    result = ((name, lookup(name)) for name in HOST_SYNC_OPS)
    return frozenset(n for n, o in result if o.kernels(kernel_set) is None or o.host_reason)


def profile_graph_io(graph: Graph, options: GraphIoOptions | None = None) -> GraphIoProfile:
    """Counts what one run of a graph moves and waits for.

    Inputs, params, constants, reshapes, transposes and narrows count nothing, also as outputs. Every
    other node is one launch, and its traffic is the bytes of each operand that it lists and of its
    results. Selecting one of several results is no launch; as an output it counts its bytes.

    Args:
        graph: The graph, before or after passes; one with dims is taken at usual sizes.
        options: These say which steps count as a sync point.

    Raises:
        GraphError: It is not a graph.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.relu(g.input("x", (2, 4)) * 2.0)])
        >>> profile_graph_io(g)
        GraphIoProfile(kernel_launches=2, sync_points=0, host_output_bytes=32, device_traffic_bytes=132)
    """
    if not isinstance(graph, Graph):
        raise GraphError("not a graph", got=repr(graph), expected="a rlx.Graph")
    graph = usual(graph)
    options = options or GraphIoOptions()
    syncing = host_sync_ops(options.kernel_set)
    counted = [node for node in graph.nodes if node.op not in _UNCOUNTED and node.op != PART]
    moved = (type for node in counted for type in (*(x.type for x in node.inputs), *node.types))
    return GraphIoProfile(
        kernel_launches=len(counted),
        sync_points=sum(_waits(node, options, syncing) for node in counted),
        host_output_bytes=_bytes_of(graph.outputs),
        device_traffic_bytes=sum(type.nbytes for type in moved),
    )


def profile_graph_io_outputs(
    graph: Graph, output_indices: Iterable[SupportsIndex], options: GraphIoOptions | None = None
) -> GraphIoProfile:
    """``profile_graph_io`` for a run that reads back only these outputs.

    Args:
        graph: The graph.
        output_indices: Positions in ``graph.outputs``.
        options: These say which steps count as a sync point.

    Raises:
        GraphError: It is not a graph.
        InputError: An index is not one of an output.
    """
    profile = profile_graph_io(graph, options)
    graph = usual(graph)
    chosen = [_output(graph.outputs, i) for i in output_indices]
    return replace(profile, host_output_bytes=_bytes_of(chosen))


def _output(outputs: Sequence[Node], index: SupportsIndex) -> Node:
    try:
        pos = -1 if isinstance(index, bool) else operator.index(index)
    except TypeError:
        pos = -1
    if not 0 <= pos < len(outputs):
        raise InputError(
            "no such output", got=repr(index), expected=f"an index from 0 below {len(outputs)}"
        )
    return outputs[pos]


def _bytes_of(outputs: Iterable[Node]) -> int:
    unique = {node.id: node for node in outputs if node.op not in _UNCOUNTED}
    return sum(node.type.nbytes for node in unique.values())


def _waits(node: Node, options: GraphIoOptions, syncing: frozenset[str]) -> bool:
    if node.op in FFT_OPS:
        return options.fft_host_sync
    if node.op not in syncing:
        return False
    opdef, kernels = node.opdef, options.kernel_set
    if kernels is None or opdef.kernels(kernels) is None or opdef.host_reason is None:
        return True
    return opdef.host_reason(node) is not None
