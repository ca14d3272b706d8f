"""The fastest kernel variants of a device, measured by ``rlx bench --tune`` and stored beside its calibration."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

from rlx import flags
from rlx.cost.calibration import Identity, meter
from rlx.cost.store import MAX_BYTES, digest_of, file_of, put, usable
from rlx.file_cache import mark_used
from rlx.files import UnfitFileError, read_regular
from rlx.ir.variants import Table
from rlx.locks import Lock

_FORMAT = "rlx variants 1"
_lock = Lock()
_known: dict[tuple[Identity, str], Table] = {}


def variants_file(identity: Identity) -> Path | None:
    """The file that a device's fastest variants are in, or would be; None with ``RLX_CALIBRATION=off``."""
    path = file_of(identity)
    return None if path is None else path.with_suffix(".variants.json")


def stored_variants(device: Any) -> Table:
    """Returns the known fastest variants of a device by family; nothing is measured.

    A file that can't be used counts as none, and a ``RuntimeWarning`` says so; figures of another driver, or
    another rlx, are none either.

    Args:
        device: A device or its name.

    Raises:
        DeviceUnavailableError: The device is not on this machine.
    """
    if flags.CALIBRATION.get() == "off":
        return {}
    identity = meter().identity(device)
    path = variants_file(identity)
    assert path is not None
    with _lock:
        key = (identity, str(path))
        if key not in _known:
            _known[key] = _load(path, identity)
        return _known[key]


def store_variants(device: Any, table: Table) -> Path | None:
    """Keeps the fastest variants of a device, in place of older ones.

    Returns:
        The file; None where they are kept for this process only (``RLX_CALIBRATION=off``, or no folder that
        can be written).
    """
    identity = meter().identity(device)
    path = variants_file(identity)
    with _lock:
        _known[identity, str(path)] = table
        flags.renew()
    if path is None:
        return None
    body = {"identity": dataclasses.asdict(identity), "families": _plain(table)}
    record = {"format": _FORMAT, "sha256": digest_of(body), **body}
    return path if put(path, record, "the variants are") else None


def _load(path: Path, identity: Identity) -> Table:
    if not usable(path):
        return {}
    try:
        result = _table(read_regular(path, MAX_BYTES), identity)
    except (ValueError, TypeError, KeyError, RecursionError, UnfitFileError) as error:
        warnings.warn(f"the variants in {path} are not used: {error}", RuntimeWarning, stacklevel=4)
        return {}
    except OSError:
        return {}
    mark_used(path)
    return result


def _table(raw: bytes, identity: Identity) -> Table:
    """The table of a file.

    Raises:
        ValueError: It is not one, or was changed (KeyError, TypeError likewise).
    """
    data = json.loads(raw)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ValueError(f"it is no file of the format {_FORMAT!r}")
    body = {"identity": data["identity"], "families": data["families"]}
    if data["sha256"] != digest_of(body):
        raise ValueError("its checksum does not match")
    if body["identity"] != dataclasses.asdict(identity):
        return {}
    return {
        str(family): tuple((tuple(map(float, i)), str(name)) for i, name in rows)
        for family, rows in body["families"].items()
    }


def _plain(table: Table) -> dict[str, list[Any]]:
    return {family: [[list(i), name] for i, name in rows] for family, rows in table.items()}
