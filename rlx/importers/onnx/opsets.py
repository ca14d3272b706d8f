"""The supported versions of the operator sets, and operators that had another meaning before version 7."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlx.errors import ImportModelError, UnsupportedOpError
from rlx.importers.onnx.schema import Attribute, Opset

# The newest version of each domain whose operators are those here.
NEWEST = {
    "": 28,
    "ai.onnx.ml": 6,
    "ai.onnx.preview": 1,
    "ai.onnx.preview.training": 1,
    "com.microsoft": 1,
}
# Operators that were given in another form: the first version with today's, and what was different.
_CHANGED = {
    "Cast": (6, "the type as text"),
    "Concat": (4, "axis 1 by default"),
    "Pad": (2, "pads under another name"),
    "Reshape": (5, "the shape as an attribute"),
    "Split": (2, "the sizes as an operand"),
    "Upsample": (7, "a scale for each of two axes"),
    "RNN": (7, "hidden states after the end of a sequence"),
    "GRU": (7, "hidden states after the end of a sequence"),
    "LSTM": (7, "hidden states after the end of a sequence"),
}
_TRAINING = ("BatchNormalization", "Dropout")


def plain(domain: str) -> str:
    """The name of a domain; ONNX's own has two."""
    return "" if domain == "ai.onnx" else domain


def versions(listed: Iterable[Opset], label: str) -> dict[str, int]:
    """The version of each domain that a model imports.

    Raises:
        UnsupportedOpError: A version is newer than this rlx supports.
        ImportModelError: It is no version.
    """
    results: dict[str, int] = {}
    for opset in listed:
        domain = plain(opset.domain)
        newest = NEWEST.get(domain, opset.version)
        if opset.version < 1:
            raise ImportModelError(
                f"operator set {domain or 'ai.onnx'!r}", where=label, got=opset.version
            )
        if opset.version > newest:
            raise UnsupportedOpError(
                f"operator set {domain or 'ai.onnx'!r} is newer than this rlx supports",
                where=label,
                got=opset.version,
                expected=f"at most {newest}",
                hint="save the model for an older operator set",
            )
        results[domain] = opset.version
    return results


def refused(op: str, version: int, attributes: Mapping[str, Attribute]) -> str | None:
    """Why an operator of an old version is not read, or None."""
    since, change = _CHANGED.get(op, (0, ""))
    if version < since:
        return f"{change} (version {version})"
    training = attributes.get("is_test")
    if op in _TRAINING and version < 7 and not (training is not None and training.i):
        return f"training mode (version {version})"
    return None
