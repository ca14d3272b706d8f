"""The families of operations: the files that register them, with a heading and a meaning for each."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.cli.ops import public_ops
from rlx.ir.opdef import REGISTRY, OpDef

# Heading and meaning of the families, in the order of the index; a family without them fails the build.
TITLES = {
    "elementwise.records": (
        "Elementwise functions and casts",
        "Each element of the result depends on one element of each operand. Operands are broadcast as "
        "in NumPy. Chains of these run as one pass over memory.",
    ),
    "elementwise.activations": (
        "Activations with parameters",
        "Elementwise functions that take numbers besides their operand.",
    ),
    "movement.strided": (
        "Shapes, slices and joins",
        "Operations that change the shape or the order of elements and leave the values alone.",
    ),
    "movement.layout": (
        "Splitting, padding and rearranging",
        "Rearrangements that are made of simpler ones.",
    ),
    "movement.gather": (
        "Reading at indices",
        "Elements picked at places that integer tensors give.",
    ),
    "movement.scatter": (
        "Writing at indices",
        "Updates written at places that integer tensors give. Several updates of one place are "
        "applied in order, so that results do not vary between runs.",
    ),
    "movement.update": (
        "Rows written into a value",
        "Updates of the state that a graph keeps from run to run, or of any other value.",
    ),
    "movement.creation": ("Ranges, one-hot and triangles", "Tensors made from positions."),
    "elementwise.random": (
        "Random numbers and sampling",
        "Random numbers with the same bits on every device, and tokens drawn from logits.",
    ),
    "rows.reduction": (
        "Reductions and running sums",
        "Sums, maxima and other summaries over any axes, and running sums along one.",
    ),
    "rows.softmax": (
        "Softmax",
        "Exponentials that add up to one along an axis, and their logarithm.",
    ),
    "rows.sorting": (
        "Sorting and top-k",
        "The first entries of an axis in order, with their positions, or all of them.",
    ),
    "selection.positions": (
        "Picking by a condition",
        "Results that are as many as the data say, with a dim of their own for the number.",
    ),
    "selection.unique": (
        "Different entries",
        "Entries without repetitions, with their places and counts.",
    ),
    "selection.repeats": ("Repetitions", "Entries repeated as often as numbers say."),
    "selection.suppression": ("Boxes of detectors", "Boxes that do not overlap better ones."),
    "rows.normalization": (
        "Normalisation",
        "Values shifted and scaled to mean 0 and variance 1, or to length 1, over some of the axes.",
    ),
    "products.matmul": (
        "Matrix products",
        "Batched products of matrices, and the product with bias and activation that the compiler "
        "makes of its parts.",
    ),
    "products.grouped": (
        "Products by expert, with low-rank updates, and of integers",
        "Products of matrices other than the plain one.",
    ),
    "products.quantization": (
        "Quantisation to 8 bits",
        "Numbers as 8-bit integers with a scale and a zero point.",
    ),
    "products.dequant": (
        "Products by packed weights",
        "Weights of 2 to 8 bits in blocks, multiplied without being unpacked in memory first.",
    ),
    "products.grouped_dequant": (
        "Packed weights of experts",
        "Rows by the block-quantised matrices of their experts.",
    ),
    "products.einsum": ("Einstein sums", "Sums of products over named axes."),
    "windows.convolution": (
        "Convolutions",
        "Convolutions over one to three axes, with groups, dilation and any padding.",
    ),
    "windows.transposed": (
        "Transposed convolutions",
        "Every entry of the operand adds a scaled kernel to the result.",
    ),
    "windows.pooling": (
        "Pooling",
        "The maximum, mean or norm of sliding windows, or of whole planes.",
    ),
    "resize.interpolate": ("Resizing", "Images and signals of another size, by interpolation."),
    "attention.attention": (
        "Attention",
        "Scaled dot-product attention with every kind of mask, shared heads and both layouts.",
    ),
    "attention.rotary": (
        "Rotary position embedding",
        "Pairs of elements rotated by an angle that depends on the position.",
    ),
    "recurrent.layers": (
        "LSTM, GRU and RNN",
        "Recurrent layers, with the meaning that ONNX gives them.",
    ),
    "recurrent.state_space": ("State-space scan", "The selective scan of state-space models."),
    "control": (
        "Branches and loops",
        "Operations whose operands are run through graphs of their own.",
    ),
    "spectra.fft": ("Fourier transform", "The discrete Fourier transform of any length."),
    "spectra.real_fft": (
        "Fourier transform of real signals",
        "The half of the spectrum that a real signal has.",
    ),
    "signal.composites": (
        "Short-time Fourier transform",
        "Spectra of frames of a signal, and the signal of such spectra.",
    ),
    "spectra.welch": (
        "Strongest bins of Welch's spectrum",
        "Spectra of segments, averaged, and their strongest bins, in one pass.",
    ),
    "spectra.log_mel": (
        "Log-mel features",
        "The log-mel spectrogram of a spectrum, and its gradient.",
    ),
    "recurrent.recursive": (
        "Recursive filters",
        "Filters whose results depend on earlier results.",
    ),
    "spectra.find_peaks": ("Peaks of a signal", "Local maxima with SciPy's conditions."),
    "custom": (
        "Operations of your own",
        "Operations that your program registers: a NumPy function, and C and WGSL where there is more.",
    ),
}


@dataclass(frozen=True)
class OpFamily:
    """The operations of one file.

    Attributes:
        name: The name of its page: the file's folder and name, ``rows-softmax``.
        title: Its heading.
        about: What its operations have in common.
        ops: Its records, in the order of the file.
    """

    name: str
    title: str
    about: str
    ops: tuple[OpDef, ...]


def families() -> list[OpFamily]:
    """Every family, in the order of ``TITLES``.

    Raises:
        KeyError: A family has no title.
    """
    by_module: dict[str, list[OpDef]] = {}
    public = {record.name for record in public_ops()}
    for name, record in REGISTRY.items():
        if name in public:
            by_module.setdefault(record.reference.__module__, []).append(record)
    results = {}
    for module, records in by_module.items():
        name = module.removeprefix("rlx.").removeprefix("ops.")
        results[name] = OpFamily(name.replace(".", "-"), *TITLES[name], tuple(records))
    return [results[name] for name in TITLES if name in results]
