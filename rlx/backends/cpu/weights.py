"""Memory of params and constants, plain or packed for kernels. Graphs share equal ones."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from rlx.backends.cpu.layouts import Layout
from rlx.backends.executable import aligned, view_of
from rlx.ir.opdef import Array
from rlx.ir.plan import Value
from rlx.locks import Lock
from rlx.threads import mapped

# Minimum bytes for sharing: smaller weights are not compared with those of other graphs.
_SHARED = 1 << 14
# Bytes compared first, before whole weights are.
_SAMPLE = 4096


class WeightBlock:
    """Memory of some weights that are equal.

    Args:
        memory: The bytes; those of an array that is read where it is can't be written.

    Attributes:
        memory: See above.
        owners: The weights that it is the memory of, one in each graph.
        pins: The programs whose calls hold its address. It is not written to while another than the
            writer's is among them, and lives as long as there is one.
        key: The key for other graphs; None when it is not offered to them.
        source: The array that it was made of, which nobody changes; None where that is not known.
    """

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        self.owners: weakref.WeakSet[Weight] = weakref.WeakSet()
        self.pins: weakref.WeakSet[Any] = weakref.WeakSet()
        self.key: Hashable = None
        self.source: Array | None = None


_LOCK = Lock()
# Offered blocks: by what is in them, and by the array that they were made of.
_BLOCKS: weakref.WeakValueDictionary[Hashable, WeightBlock] = weakref.WeakValueDictionary()
_MADE: weakref.WeakValueDictionary[Hashable, WeightBlock] = weakref.WeakValueDictionary()


class Weight:
    """A param or constant in memory: as it is, packed, or both where it is read in both ways.

    Args:
        value: The param or constant.
        layout: How it is packed; None for not at all.
        plain: Whether it is also kept as it is.
    """

    def __init__(self, value: Value, layout: Layout | None = None, plain: bool = True) -> None:
        self._type, self.layout = value.type, layout
        layouts = [] if layout is None else [layout]
        self._blocks: dict[Layout | None, WeightBlock] = {
            layout: self._build_block(layout)
            for layout in (*layouts, *([None] if plain or not layouts else []))
        }
        if value.array is not None:
            self.set(value.array, None)

    def _build_block(self, layout: Layout | None) -> WeightBlock:
        nbytes = self._type.nbytes if layout is None else layout.nbytes
        block = WeightBlock(aligned(max(1, nbytes), tight=True, filled=True))
        block.owners.add(self)
        return block

    @property
    def nbytes(self) -> int:
        """Its part of the bytes of all copies, each of which its owners share."""
        blocks = self._blocks.values()
        return sum(block.memory.nbytes // max(1, len(block.owners)) for block in blocks)

    @property
    def plain(self) -> WeightBlock:
        """Returns its plain memory. The first call creates it."""
        if None not in self._blocks:
            block = self._build_block(None)
            view_of(block.memory, 0, self._type)[...] = self.read()
            self._blocks = {**self._blocks, None: block}
        return self._blocks[None]

    def packed(self, layout: Layout | None) -> WeightBlock | None:
        """Its memory in a layout; None where it is not packed like this."""
        return self._blocks.get(layout) if layout is not None else None

    def set(self, array: Any, writer: Any, lasting: bool = False) -> bool:
        """Gives it values. Its memory takes them where only the writer reads it; else it moves.

        Args:
            array: The values.
            writer: The program whose memory may be overwritten, since it does not run now; None for
                no program.
            lasting: Whether nobody changes the array. It is then read where it is, and what was made of it before is used.

        Returns:
            Whether it stands in another place than before.
        """
        args = np.asarray(array, self._type.dtype.numpy)
        results: dict[Layout | None, WeightBlock] = {}
        with _LOCK:
            for layout in self._blocks if lasting else ():
                made = _MADE.get((id(array), layout, self._type))
                if made is not None and made.source is array:
                    results[layout] = made
                    made.owners.add(self)
            rest = {k: self._own(b, writer) for k, b in self._blocks.items() if k not in results}
        whole = args.flags.c_contiguous and args.shape == self._type.shape
        for layout, own in rest.items():
            if layout is None and lasting and whole and args.nbytes:
                results[layout] = block = WeightBlock(args.reshape(-1).view(np.uint8))
                block.owners.add(self)
                continue
            results[layout] = block = own or self._build_block(layout)
            if layout is None:
                view_of(block.memory, 0, self._type)[...] = args
            else:
                layout.pack(np.broadcast_to(args, self._type.shape), block.memory)
        with _LOCK:
            for layout in rest if lasting else ():
                results[layout].source = array
                _MADE[id(array), layout, self._type] = results[layout]
            moved = False
            for layout, block in self._blocks.items():
                if results[layout] is not block:
                    block.owners.discard(self)
                    moved = True
            self._blocks = results
        return moved

    def _own(self, block: WeightBlock, writer: Any) -> WeightBlock | None:
        """A block that may be written to, which is no longer offered to others; None where it may not."""
        others = len(block.owners) > 1 or any(pin is not writer for pin in block.pins)
        if others or not block.memory.flags.writeable:
            return None
        block.source = None
        if block.key is not None:
            _BLOCKS.pop(block.key, None)
            block.key = None
        return block

    def read(self) -> Array:
        """A copy of the values."""
        blocks = self._blocks
        if None in blocks:
            return view_of(blocks[None].memory, 0, self._type).copy()
        assert self.layout is not None
        values: Array = np.empty(self._type.shape, self._type.dtype.numpy)
        self.layout.unpack(blocks[self.layout].memory, values)
        return values

    def share(self) -> bool:
        """Takes the memory of another graph's equal weight, or offers its own to others.

        Returns:
            Whether it stands elsewhere now.
        """
        moved = False
        for layout, block in list(self._blocks.items()):
            memory = block.memory
            if memory.nbytes < _SHARED or block.key is not None or not memory.flags.writeable:
                continue
            # An odd step: each fourth byte of f32 numbers that were f16 is 0.
            sample = zlib.crc32(memory[:: memory.nbytes // _SAMPLE | 1].tobytes())
            key = layout, self._type.dtype, memory.nbytes, sample
            with _LOCK:
                result = _BLOCKS.setdefault(key, block)
                if result is block:
                    block.key = key
                elif np.array_equal(result.memory, memory):
                    block.owners.discard(self)
                    result.owners.add(self)
                    self._blocks = {**self._blocks, layout: result}
                    moved = True
        return moved


class Weights:
    """The weights of a graph, which its clones share.

    Args:
        by_id: Each by the id of its value.
        names: Ids of the params by their names.
        lasting: Whether nobody changes an array that is a param's value.

    Attributes:
        lock: Held while a program is linked to the weights, and while weights change places: a program
            finds all values of one ``set``, or none.
        readers: The programs that are linked to them.
    """

    def __init__(
        self, by_id: Mapping[int, Weight], names: Mapping[str, int], lasting: bool = False
    ) -> None:
        self._by_id, self._names, self._lasting = by_id, names, lasting
        self._unset = set(names)
        self.lock = Lock()
        self.readers: weakref.WeakSet[Any] = weakref.WeakSet()
        if not self._unset:
            self._share()

    def __getitem__(self, index: int) -> Weight:
        return self._by_id[index]

    @property
    def nbytes(self) -> int:
        """Bytes of all of them. Graphs that share a weight have a part of it each."""
        return sum(weight.nbytes for weight in self._by_id.values())

    def set(self, values: Mapping[str, Array], writer: Any) -> None:
        """Gives params their values, all at once. When all params have one, equal ones are kept once.

        No run sees some of the values, or a part of one: runs that are under way go on with the old
        ones, and those that begin afterwards read the new ones.

        Args:
            values: By name.
            writer: An object that pins the memory of the program that sets them. That program does not run meanwhile.
        """
        with self.lock:
            # A clone may be linked, and run, at any time.
            alone = writer if len(self.readers) <= 1 else None

            def put(name: str) -> bool:
                lasting = self._lasting and not values[name].flags.writeable
                return self._by_id[self._names[name]].set(values[name], alone, lasting)

            moved = any(mapped(put, values, sum(array.nbytes for array in values.values())))
            waiting, self._unset = self._unset, self._unset - values.keys()
            if (waiting and not self._unset and self._share()) or moved:
                for reader in list(self.readers):
                    reader.stale()

    def read(self, name: str) -> Array:
        """A copy of a param."""
        return self._by_id[self._names[name]].read()

    def _share(self) -> bool:
        return any([weight.share() for weight in self._by_id.values()])
