"""Variants of a GPU kernel: different tilings of the same work, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Protocol

from rlx import flags
from rlx.dataclasses import dataclass
from rlx.errors import CompileError, did_you_mean
from rlx.resource_limits import during
from rlx.sizes import hinted, preferring

Limits = Mapping[str, int]
# A key of the limits: 1 where kernels may exchange values within a subgroup, whose size they find out at run time.
SUBGROUPS = "subgroups"
# The same, for devices whose ``unpack2x16float`` is exact for all halves, subnormal and infinite ones too.
UNPACKS = "unpacks-halves"
# The WebGPU specification's default limits, which every device has.
DEFAULTS: Limits = {
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-invocations-per-workgroup": 256,
}


@dataclass(frozen=True)
class Variant:
    """One way of running a kernel.

    Attributes:
        name: Its name in its family.
        threads: Threads of a workgroup.
        storage: Bytes of workgroup memory.
        params: The parameters of the kernel's file.
    """

    name: str
    threads: int
    storage: int
    params: Mapping[str, int] = field(default_factory=dict)

    def fits(self, limits: Limits) -> bool:
        """Returns whether a device has room for a workgroup of it."""
        have = {**DEFAULTS, **limits}
        return (
            self.storage <= have["max-compute-workgroup-storage-size"]
            and self.threads <= have["max-compute-invocations-per-workgroup"]
        )


# By family: problems that were measured, as points, and the variant that was fastest there.
Table = Mapping[str, tuple[tuple[tuple[float, ...], str], ...]]
# A problem goes by the nearest one that was measured, if no size is further off than by this factor (as a
# power of two).
NEAR = 1.5


@dataclass(frozen=True)
class Choices:
    """Choices among variants that override the rules.

    Attributes:
        forced: Variant by family, as ``RLX_VARIANT`` asks for them.
        tuned: The fastest variants on the device.
    """

    forced: tuple[tuple[str, str], ...] = ()
    tuned: Table = field(default_factory=dict)

    @classmethod
    def now(cls, tuned: Table) -> Choices:
        """With what ``RLX_VARIANT`` says now."""
        pairs = (part.partition("=") for part in flags.VARIANT.get().split(",") if part.strip())
        return cls(tuple((family.strip(), variant.strip()) for family, _, variant in pairs), tuned)

    def text(self) -> str:
        """Everything about them: other choices have another text."""
        return repr((self.forced, sorted(self.tuned.items())))


class Chooser(Protocol):
    """The inputs of a choice: the device's limits, and choices that override the rules."""

    limits: Limits
    choices: Choices


@dataclass(frozen=True)
class Family:
    """The variants of a kernel.

    Attributes:
        name: Its name in ``RLX_VARIANT`` and in the tuner's table.
        variants: All of them, the simplest last: it fits every device and takes every problem.
        rule: The choice for a problem among those that fit, where nothing was measured; by default the first.
        takes: Whether a variant can do a problem at all.
    """

    name: str
    variants: tuple[Variant, ...]
    rule: Callable[[Any, tuple[Variant, ...]], Variant] = lambda problem, legal: legal[0]
    takes: Callable[[Variant, Any], bool] = lambda variant, problem: True

    def legal(self, problem: Any, limits: Limits) -> tuple[Variant, ...]:
        """The variants that fit a device and can do a problem."""
        return tuple(v for v in self.variants if v.fits(limits) and self.takes(v, problem))

    def choose(self, problem: Any, chooser: Chooser) -> Variant:
        """Chooses the variant that runs: a forced variant, else the fastest measured one, else the rule's.

        A variant that is not legal for the problem is skipped.

        Args:
            problem: A tuple of numbers, truths and tuples of numbers.
            chooser: The emitter that the op is lowered with.

        Raises:
            CompileError: ``RLX_VARIANT`` names a variant that there is not.
        """
        legal = {variant.name: variant for variant in self.legal(problem, chooser.limits)}
        for watching in _watching.get():
            watching.append((self, problem, tuple(legal.values())))
        wanted = dict(chooser.choices.forced).get(self.name)
        if wanted is None:
            tuned = chooser.choices.tuned.get(self.name, ())
            wanted = nearest(tuned, point(problem)) if tuned else None
        else:
            self._known(wanted)
        if wanted in legal:
            return legal[wanted]
        with preferring():
            return self.rule(problem, tuple(legal.values()))

    def _known(self, wanted: str) -> None:
        names = tuple(variant.name for variant in self.variants)
        if wanted not in names:
            raise CompileError(
                f"RLX_VARIANT: {self.name} has no such variant",
                got=wanted,
                expected=", ".join(names),
                hint=did_you_mean(wanted, names),
            )


def point(problem: Any) -> tuple[float, ...]:
    """A problem as a point: sizes by their logarithms, truths far apart; sizes that are known when the graph runs by their hints."""
    results: list[float] = []
    for value in problem:
        if isinstance(value, Mapping):
            continue  # the device's limits: a table is one device's
        if isinstance(value, tuple):
            results += (math.log2(1 + hinted(sum(value))), math.log2(1 + len(value)))
        elif isinstance(value, bool):
            results.append(8.0 * value)
        else:
            results.append(math.log2(1 + abs(hinted(value))))
    return tuple(round(x, 3) for x in results)


def nearest(
    measured: Sequence[tuple[tuple[float, ...], str]], indices: tuple[float, ...]
) -> str | None:
    """The variant of the measured problem that is nearest, if one is near."""
    best, name = NEAR, None
    for other, variant in measured:
        if len(other) == len(indices):
            off = max((abs(a - b) for a, b in zip(indices, other, strict=True)), default=0.0)
            if off <= best and (name is None or off < best):
                best, name = off, variant
    return name


_watching: ContextVar[tuple[list[tuple[Family, Any, tuple[Variant, ...]]], ...]] = ContextVar(
    "watching", default=()
)


@contextmanager
def watching() -> Iterator[list[tuple[Family, Any, tuple[Variant, ...]]]]:
    """A list of what is chosen meanwhile: the family, the problem, and the variants that were legal."""
    results: list[tuple[Family, Any, tuple[Variant, ...]]] = []
    with during(_watching, (*_watching.get(), results)):
        yield results
