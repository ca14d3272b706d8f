"""Memory of params and constants: as they are, packed, or both; equal ones are kept once by all graphs."""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from rlx.backends.cpu.layouts import Layout
from rlx.backends.cpu.memory import aligned, view_of
from rlx.ir.opdef import Array
from rlx.ir.plan import Value

# Bytes from which on it is worth looking whether another graph has the same.
_SHARED = 1 << 14
# Bytes that are looked at before all are.
_SAMPLE = 4096


class _Block:
    """Memory of some weights that are equal."""

    def __init__(self, nbytes: int) -> None:
        self.memory = aligned(max(1, nbytes))
        self.owners: weakref.WeakSet[Weight] = weakref.WeakSet()
        self.key: Hashable = None


_LOCK = threading.RLock()
_BLOCKS: weakref.WeakValueDictionary[Hashable, _Block] = weakref.WeakValueDictionary()


class Weight:
    """A param or constant in memory: as it is, packed, or both where it is read in both ways.

    Args:
        value: The param or constant.
        layout: How it is packed; None for not at all.
        plain: Whether it is also kept as it is.
    """

    def __init__(self, value: Value, layout: Layout | None = None, plain: bool = True) -> None:
        self._type, self.layout = value.type, layout
        self._blocks: dict[Layout | None, _Block] = {}
        if layout is not None:
            self._make(layout)
        if plain or layout is None:
            self._make(None)
        if value.array is not None:
            self.set(value.array)

    def _make(self, layout: Layout | None) -> Array:
        block = _Block(self._type.nbytes if layout is None else layout.nbytes)
        block.owners.add(self)
        self._blocks[layout] = block
        return block.memory

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return sum(block.memory.nbytes for block in self._blocks.values())

    @property
    def plain(self) -> Array:
        """Its memory as it is. Whoever asks for it first makes it."""
        if None not in self._blocks:
            values = self.read()
            view_of(self._make(None), 0, self._type)[...] = values
        return self._blocks[None].memory

    def packed(self, layout: Layout | None) -> Array | None:
        """Its memory in a layout; None where it is not packed like this."""
        found = self._blocks.get(layout) if layout is not None else None
        return found.memory if found else None

    @property
    def shared(self) -> bool:
        """Whether its memory is that of another graph as well."""
        return any(len(block.owners) > 1 for block in self._blocks.values())

    def set(self, array: Any) -> bool:
        """Copies values to where the kernels read them.

        Returns:
            Whether that is another place than before, since the memory was that of other graphs as well.
        """
        moved = self._alone()
        given = np.asarray(array, self._type.dtype.numpy)
        for layout, block in self._blocks.items():
            if layout is None:
                view_of(block.memory, 0, self._type)[...] = given
            else:
                layout.pack(np.broadcast_to(given, self._type.shape), block.memory)
        return moved

    def read(self) -> Array:
        """A copy of the values."""
        if None in self._blocks:
            return view_of(self._blocks[None].memory, 0, self._type).copy()
        assert self.layout is not None
        values: Array = np.empty(self._type.shape, self._type.dtype.numpy)
        self.layout.unpack(self._blocks[self.layout].memory, values)
        return values

    def _alone(self) -> bool:
        """Takes memory of its own where it has that of others, and no longer offers it to them."""
        moved = False
        with _LOCK:
            for layout, block in list(self._blocks.items()):
                if len(block.owners) > 1:
                    block.owners.discard(self)
                    self._make(layout)
                    moved = True
                elif block.key is not None:
                    _BLOCKS.pop(block.key, None)
                    block.key = None
        return moved

    def share(self) -> bool:
        """Takes the memory of another graph's equal weight, or offers its own to others.

        Returns:
            Whether it stands elsewhere now.
        """
        moved = False
        for layout, block in list(self._blocks.items()):
            memory = block.memory
            if memory.nbytes < _SHARED or block.key is not None:
                continue
            sample = zlib.crc32(memory[:: max(1, memory.nbytes // _SAMPLE)].tobytes())
            key = layout, self._type.dtype, memory.nbytes, sample
            with _LOCK:
                found = _BLOCKS.setdefault(key, block)
                if found is block:
                    block.key = key
                elif np.array_equal(found.memory, memory):
                    found.owners.add(self)
                    self._blocks[layout] = found
                    moved = True
        return moved


class Weights:
    """The weights of a graph, which its clones share.

    Args:
        by_id: Each by the id of its value.
        names: Ids of the params by their names.

    Attributes:
        readers: What is linked to the places of the weights.
    """

    def __init__(self, by_id: Mapping[int, Weight], names: Mapping[str, int]) -> None:
        self._by_id, self._names = by_id, names
        self._unset = set(names)
        self.readers: weakref.WeakSet[Any] = weakref.WeakSet()
        if not self._unset:
            self._share()

    def __getitem__(self, at: int) -> Weight:
        return self._by_id[at]

    @property
    def nbytes(self) -> int:
        """Bytes of all of them, those that other graphs share included."""
        return sum(weight.nbytes for weight in self._by_id.values())

    def set(self, name: str, array: Array) -> None:
        """Gives a param its value. When all have one, those that other graphs have as well are kept once.

        Raises:
            RlxError: The weight is that of other graphs, too, and a clone runs in another thread:
                it can't be told now where the weight moves.
        """
        weight = self._by_id[self._names[name]]
        if weight.shared:
            for reader in self.readers:
                reader.idle()
        moved = weight.set(array)
        if name in self._unset:
            self._unset.discard(name)
            moved |= not self._unset and self._share()
        if moved:
            for reader in self.readers:
                reader.relink()

    def read(self, name: str) -> Array:
        """A copy of a param."""
        return self._by_id[self._names[name]].read()

    def _share(self) -> bool:
        return any([weight.share() for weight in self._by_id.values()])
