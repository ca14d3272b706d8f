"""The input of a stream: checks of the samples that a device delivers, and the treatment of NaN."""

from __future__ import annotations

import numpy as np

from rlx.errors import InputError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.signal.arrays import real_numbers
from rlx.signal.checks import one_of

POLICIES = ("raise", "propagate", "skip")


class Intake:
    """Checks samples before a stream takes them.

    Args:
        where: The stream's name, for messages.
        outer: Leading dimensions of the samples.
        dtype: The dtype of the stream.
        nan: The policy for samples that are NaN or infinite, one of ``POLICIES``.

    Attributes:
        skips: Whether the stream leaves out samples that are not finite.
        taken: Samples since the beginning.

    Raises:
        InputError: There is no such policy.
    """

    def __init__(self, where: str, outer: Shape, dtype: DType, nan: str) -> None:
        one_of(where, "nan", nan, POLICIES)
        self._where, self._outer, self._dtype = where, outer, dtype.numpy
        self._raises, self.skips = nan == "raise", nan == "skip"
        self.taken = 0

    def take(self, samples: object) -> Array:
        """The samples ``[..., n]`` as an array of the stream's dtype.

        Raises:
            DTypeError: They are not real numbers.
            ShapeError: They have other leading dimensions.
            InputError: One is not finite, and the stream was told to raise then.
        """
        args = real_numbers(samples, self._where)
        if args.shape[:-1] != self._outer or args.ndim != len(self._outer) + 1:
            expected = "[" + ", ".join([*map(str, self._outer), "any number"]) + "]"
            raise ShapeError(
                f"[{self._where}] samples",
                got=args.shape,
                expected=expected,
                hint="time is the last axis",
            )
        with np.errstate(
            over="ignore"
        ):  # what is too large becomes infinite, which is checked here
            array = args.astype(self._dtype, copy=False)
        if self._raises:
            finite = np.isfinite(array)
            if not finite.all():
                self._refuse(args, finite)
        self.taken += array.shape[-1]
        return array

    def _refuse(self, array: Array, finite: Array) -> None:
        first = int((~finite).any(axis=tuple(range(finite.ndim - 1))).argmax())
        channel = np.argwhere(~finite[..., first])[0].tolist()
        pos = f"sample {self.taken + first}" + (f" of channel {channel}" if channel else "")
        raise InputError(
            f"[{self._where}] {pos} is not finite in {self._dtype}",
            got=array[(*channel, first)],
            expected="finite numbers; nothing of this piece was taken",
            hint='nan="skip" leaves such samples out, nan="propagate" computes with them',
        )
