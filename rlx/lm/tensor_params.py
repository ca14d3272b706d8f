"""The tensors of a file as params of a graph: packed as the file has them, their shapes checked."""

from __future__ import annotations

from rlx.errors import ImportModelError, did_you_mean
from rlx.importers.gguf import Tensor
from rlx.importers.mapped import Entries
from rlx.ir.graph import Graph, Node

# Up to so many tensors an error can name the one that was meant.
_FEW = 100


class TensorParams:
    """Makes params of a graph from tensors.

    Args:
        graph: The graph.
        tensors: By the names of GGUF files, without ``.weight`` where a method says so.
    """

    def __init__(self, graph: Graph, tensors: Entries[Tensor]) -> None:
        self._g, self._tensors = graph, tensors

    def has(self, name: str) -> bool:
        """Returns whether the file has a matrix or vector ``<name>.weight``."""
        return f"{name}.weight" in self._tensors

    def rows(self, name: str) -> int:
        """Returns the rows of the matrix ``<name>.weight``."""
        shape = tensor_of(self._tensors, f"{name}.weight").shape
        return shape[0] if shape else 0

    def table(self, name: str, tokens: Node, rows: int, width: int) -> Node:
        """Returns the rows of ``<name>.weight`` that integers name, in f32 ``[*tokens, width]``."""
        tensor = self._checked(f"{name}.weight", (rows, width))
        table = self._param(tensor)
        if tensor.dtype is None:
            return self._g.dequantize_blocks(table, tensor.type, rows=tokens)
        return self._g.cast(self._g.gather(table, tokens, axis=0), "f32")

    def product(self, x: Node, name: str, rows: int) -> Node:
        """Returns x times the matrix ``<name>.weight`` of so many rows, plus ``<name>.bias`` where the file has one.

        Matrices in blocks stay packed: the kernel decodes them as it multiplies.
        """
        g, width = self._g, x.shape[-1]
        tensor = self._checked(f"{name}.weight", (rows, int(width)))
        w = self._param(tensor)
        if tensor.dtype is None:
            y = g.dequant_matmul(x, w, tensor.type)
        else:
            y = x @ g.transpose(w if tensor.type == "F32" else g.cast(w, "f32"))
        bias = self.vector(f"{name}.bias", rows)
        return y if bias is None else y + bias

    def expert_product(self, x: Node, chosen: Node, name: str, experts: int, rows: int) -> Node:
        """Returns rows of x, each times one of the matrices of ``<name>.weight``, which have so many rows.

        Args:
            x: f32 ``[count, width]``.
            chosen: The expert of each row, i32 ``[count]``.
            name: The name.
            experts: The number of matrices.
            rows: Rows of each.
        """
        g = self._g
        tensor = self._checked(f"{name}.weight", (experts, rows, int(x.shape[-1])))
        w = self._param(tensor)
        if tensor.dtype is None:
            return g.grouped_dequant_matmul(x, w, chosen, tensor.type)
        wide = w if tensor.type == "F32" else g.cast(w, "f32")
        return g.grouped_matmul(x, g.transpose(wide, (0, 2, 1)), chosen)

    def vector(self, name: str, size: int) -> Node | None:
        """Returns the vector of a name in f32; None where the file has none."""
        if name not in self._tensors:
            return None
        # Some files have a matrix of one row.
        one_row = tensor_of(self._tensors, name).shape == (1, size)
        tensor = self._checked(name, (1, size) if one_row else (size,))
        return self._g.param(name, (size,), value=tensor.dequantized().reshape(size))

    def needed(self, name: str, size: int) -> Node:
        """Returns the vector of a name in f32.

        Raises:
            ImportModelError: The file has none.
        """
        result = self.vector(name, size)
        if result is None:
            tensor_of(self._tensors, name)  # raises
            raise AssertionError(name)
        return result

    def _param(self, tensor: Tensor) -> Node:
        g = self._g
        if (
            tensor.name in g.param_names
        ):  # the table of the tokens' vectors, which is the output matrix, too
            return g.named(tensor.name)
        if tensor.dtype is None:
            return g.param(tensor.name, tensor.packed.shape, "u8", tensor.packed)
        return g.param(tensor.name, tensor.shape, tensor.dtype, tensor.array())

    def _checked(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = tensor_of(self._tensors, name)
        floats = tensor.dtype is None or tensor.dtype.is_float
        if tensor.shape != shape or not floats:
            got = f"{tensor.type} {tensor.shape}"
            raise ImportModelError(f"tensor {name!r} does not fit", got=got, expected=shape)
        return tensor


def tensor_of(tensors: Entries[Tensor], name: str) -> Tensor:
    """Returns the tensor of a name.

    Raises:
        ImportModelError: The file has none, or it can't be read.
    """
    if name not in tensors:
        hint = did_you_mean(name, tensors) if len(tensors) < _FEW else None
        raise ImportModelError(f"the file has no tensor {name!r}", hint=hint)
    return tensors[name]
