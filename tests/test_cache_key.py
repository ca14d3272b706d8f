"""Nothing compiled for one device or one choice of kernels is found for another."""

import dataclasses

from rlx.backends.base import CompileOptions
from rlx.compiler import compile_cache
from rlx.compiler.target import Target
from rlx.device import Device
from rlx.ir.variants import Choices


def test_values_count_as_well_as_names():
    target = Target.of(Device.parse("cpu"), CompileOptions())
    infos = [dataclasses.replace(target.info, limits={"max-buffer-size": n}) for n in (1, 2)]
    targets = [target, *(dataclasses.replace(target, info=info) for info in infos)]
    assert len({compile_cache.target_text(target) for target in targets}) == 3


def test_choices_of_kernels():
    target = Target.of(Device.parse("cpu"), CompileOptions())
    choices = [
        Choices(),
        Choices((("matmul", "plain"),)),
        Choices((("matmul", "large"),)),
        Choices((), {"matmul": (((1.0, 2.0), "small"),)}),
        Choices((), {"matmul": (((1.0, 2.0), "large"),)}),
    ]
    texts = {
        compile_cache.target_text(dataclasses.replace(target, choices=choice)) for choice in choices
    }
    assert len(texts) == len(choices)
