"""Variants of a GPU kernel: the same work cut up differently, and which of them a device gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlx import flags
from rlx.errors import CompileError, describe, did_you_mean

Limits = Mapping[str, int]
# What a device that promises nothing has (the WebGPU specification's default limits).
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
        params: What the kernel's file is told.
    """

    name: str
    threads: int
    storage: int
    params: Mapping[str, int] = field(default_factory=dict)

    def fits(self, limits: Limits) -> bool:
        """Whether a device has room for a workgroup of it."""
        have = {**DEFAULTS, **limits}
        return (
            self.storage <= have["max-compute-workgroup-storage-size"]
            and self.threads <= have["max-compute-invocations-per-workgroup"]
        )


@dataclass(frozen=True)
class Family:
    """The variants of a kernel.

    Attributes:
        name: What ``RLX_VARIANT`` and the tuner's table call it.
        variants: All of them, the simplest last: it fits every device and takes every problem.
        rule: The choice for a problem among those that fit, where nothing was measured.
        takes: Whether a variant can do a problem at all.
    """

    name: str
    variants: tuple[Variant, ...]
    rule: Callable[[Any, tuple[Variant, ...]], Variant]
    takes: Callable[[Variant, Any], bool] = lambda variant, problem: True

    def legal(self, problem: Any, limits: Limits) -> tuple[Variant, ...]:
        """The variants that fit a device and can do a problem."""
        return tuple(v for v in self.variants if v.fits(limits) and self.takes(v, problem))

    def choose(self, problem: Any, limits: Limits) -> Variant:
        """The variant that runs: the one ``RLX_VARIANT`` names where it is legal, else the rule's."""
        legal = self.legal(problem, limits)
        wanted = forced().get(self.name)
        if wanted is None:
            return self.rule(problem, legal)
        if wanted not in {variant.name for variant in self.variants}:
            names = [variant.name for variant in self.variants]
            raise CompileError(
                describe(
                    f"RLX_VARIANT: {self.name} has no such variant",
                    got=wanted,
                    expected=", ".join(names),
                    hint=did_you_mean(wanted, tuple(names)),
                )
            )
        return next((v for v in legal if v.name == wanted), self.rule(problem, legal))


def forced() -> dict[str, str]:
    """What ``RLX_VARIANT`` asks for: the variant by family."""
    pairs = (part.partition("=") for part in flags.VARIANT.get().split(",") if part.strip())
    return {family.strip(): variant.strip() for family, _, variant in pairs}
