"""Many samples as one graph: to compile a graph of one node takes far longer than its kernels take on few elements."""

import numpy as np

import rlx


class Joined:
    """A graph of samples that have nothing in common; each kernel is called as in a graph of its sample alone."""

    def __init__(self):
        self.graph, self.operands, self.counts, self.outputs = rlx.Graph(), [], [], []

    def add(self, build, *operands):
        """Adds a sample: ``build`` makes one result or some of the graph and the operands, which are no constants."""
        first = len(self.operands)
        self.operands += operands
        inputs = [
            self.graph.input(f"x{index}", x.shape, f"{x.dtype.kind}{8 * x.itemsize}")
            for index, x in enumerate(operands, first)
        ]
        made = build(self.graph, *inputs)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        self.counts.append(len(made))
        self.outputs += made

    def results(self, device="cpu", *others, **options):
        """The results of each sample, in a list; then those of other operands of the same shapes."""
        self.graph.set_outputs(self.outputs)
        with rlx.compile(self.graph, device, options=rlx.CompileOptions(**options)) as compiled:
            lists = [self._split(compiled.run_slots(*given)) for given in (self.operands, *others)]
        return lists if others else lists[0]

    def _split(self, slots):
        rest = iter([np.array(slot) for slot in slots])
        return [[next(rest) for _ in range(count)] for count in self.counts]
