"""Operators outside of ONNX's own domain against ONNX Runtime, five samples each, on every device."""

import functools
import re
from pathlib import Path

import contrib_attention_samples  # noqa: F401 - these fill the table of samples
import contrib_samples  # noqa: F401
import ml_samples  # noqa: F401
import node_samples
import pytest
import tree_samples  # noqa: F401
from onnx_oracle import node_model, run_model
from samples import each

import rlx
from rlx.importers.onnx import handlers

pytestmark = pytest.mark.by_program

KEYS = sorted(node_samples.MAKERS)


@functools.cache
def models_of(domain, op):
    """The samples of an operator; for each its model and feeds."""

    def made(sample, inputs):
        return node_model(
            op, inputs, sample.attrs, sample.outputs, domain=domain, weights=sample.weights
        )

    def theirs(sample, own):
        return own if sample.peer is None else made(sample, sample.peer)

    pairs = [(s, made(s, s.inputs)) for s in node_samples.samples(domain, op)]
    # ONNX Runtime's results are computed when they are asked for, once for all devices.
    return [
        (s, own, functools.cache(lambda s=s, own=own: s.wanted or run_model(*theirs(s, own))))
        for s, own in pairs
    ]


@pytest.mark.parametrize("key", KEYS, ids=[f"{d}.{op}" if d else op for d, op in KEYS])
def test_an_operator_gives_what_onnxruntime_gives(key, device):
    def check(numbered):
        _, (sample, (data, feeds), wanted_of) = numbered
        with rlx.onnx.Model(data, device=device) as model:
            result = model.run(feeds)
        wanted = wanted_of()
        assert len(result) == len(wanted)
        problems = [
            node_samples.differ(g, w, sample, index)
            for index, (g, w) in enumerate(zip(result, wanted, strict=True))
        ]
        assert problems == [None] * len(problems)

    each(enumerate(models_of(*key)), check, name=lambda s: f"sample {s[0]}")


def test_every_operator_has_samples():
    own = {key for key in handlers.names() if key[0] in handlers.STRICT}
    assert own - set(KEYS) == set()


def test_the_documentation_lists_every_operator():
    """The guide names all operators of these domains, and no others."""
    page = (Path(__file__).parent.parent / "docs/guides/onnx.md").read_text()
    for domain in handlers.STRICT:
        listed = page.partition(f"### {domain}\n")[2].split("\n\n")[1]
        names = re.findall(r"`(\w+)`", listed)
        assert names == [name for own, name in handlers.names() if own == domain]
