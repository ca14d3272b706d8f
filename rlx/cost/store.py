"""Stores calibrations in JSON files, which processes share and which are never trusted."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx import flags
from rlx.cost.calibration import Calibration, CalibrationError, Identity, Progress, meter
from rlx.errors import describe
from rlx.file_cache import mark_used, prune, user_folder
from rlx.files import UnfitFileError, is_private, read_regular
from rlx.ir.container import write
from rlx.ir.spans import Watcher, watched, watcher
from rlx.locks import Lock

_FORMAT = "rlx calibration 1"
# Names of the files in a folder, those of ``rlx.cost.tuned`` among them.
_OURS = re.compile(r".+-[0-9a-f]{12}-[0-9a-f]{8}(\.variants)?\.json")
# The largest file that is read; a whole one has a few KiB.
MAX_BYTES = 4 << 20
_log = logging.getLogger(__name__)
_lock = Lock()
# One measurement at a time: two would disturb each other. Figures that are known can be had meanwhile.
_measuring = Lock()
# Calibrations loaded or measured by this process, keyed by identity and file.
_known: dict[tuple[Identity, str], Calibration] = {}
# Files that a warning was issued for: one warning per file.
_refused: set[Path] = set()


def default_folder() -> Path:
    """The user's cache folder for calibrations; it need not exist."""
    return user_folder("calibration")


def file_of(identity: Identity) -> Path | None:
    """The file that a device's figures are in, or would be; None with ``RLX_CALIBRATION=off``.

    In a folder each version of rlx and of wgpu has files of its own: programs that were frozen with different
    ones would otherwise replace each other's figures at every start. The driver's version does not name a file.

    Args:
        identity: The device.

    Raises:
        InputError: ``RLX_CALIBRATION`` does not parse.
    """
    wanted = flags.CALIBRATION.get()
    if wanted == "off":
        return None
    if wanted.endswith(".json"):
        return Path(wanted)
    folder = default_folder() if wanted in ("on", "measure") else Path(wanted)
    versions = repr((identity.rlx_version, identity.wgpu_version))
    return folder / f"{_slug(identity)}-{hashlib.sha256(versions.encode()).hexdigest()[:8]}.json"


def usable(path: Path) -> bool:
    """Returns whether a file of figures may be read and written: its folder is private, or the user named it."""
    return flags.CALIBRATION.get().endswith(".json") or is_private(path.parent)


def stored(device: Any) -> Calibration | None:
    """The figures of a device if they are here already; nothing is measured.

    Args:
        device: A device or its name.

    Returns:
        None where there are none, or with ``RLX_CALIBRATION=off``. A file that can't be used counts
        as none, and a ``RuntimeWarning`` says so.

    Raises:
        DeviceUnavailableError: The device is not on this machine.
        InputError: ``RLX_CALIBRATION`` does not parse.
    """
    if flags.CALIBRATION.get() == "off":
        return None
    identity = meter().identity(device)
    path = file_of(identity)
    with _lock:
        result = _known.get((identity, str(path)))
        if result is None and path is not None and flags.CALIBRATION.get() != "measure":
            result = _load(path, identity)
            if result is not None:
                _known[identity, str(path)] = result
                flags.renew()
        return result


def kept_of(backend: str, versions: tuple[str, str]) -> list[Calibration]:
    """The stored figures of a backend's devices. The backend is not asked, which would start it.

    Args:
        backend: Its name.
        versions: Of rlx and of the backend's library; figures of others are not among them.

    Raises:
        InputError: ``RLX_CALIBRATION`` does not parse.
    """
    wanted, result = flags.CALIBRATION.get(), list[Calibration]()
    if wanted in ("off", "measure"):
        return result
    folder = default_folder() if wanted == "on" else Path(wanted)
    for path in [folder] if wanted.endswith(".json") else sorted(folder.glob(f"{backend}*.json")):
        if not usable(path):
            continue
        try:
            figures = [_figures(entry) for entry in _entries(path).values()]
        except (OSError, CalibrationError):
            continue  # whoever asks for the device is told
        result += [figure for figure in figures if _is_of(figure.identity, backend, versions)]
    return result


def _is_of(identity: Identity, backend: str, versions: tuple[str, str]) -> bool:
    own = identity.rlx_version, identity.wgpu_version
    return identity.device.partition(":")[0] == backend and own == versions


def load_or_measure(device: Any, progress: Progress | None = None) -> Calibration:
    """See ``Calibration.load_or_measure``."""
    identity = meter().identity(device)
    result = _find(identity, device)
    if result is not None:
        return result
    with _measuring:
        # Another thread may have measured it meanwhile.
        return _find(identity, device) or _measured(identity, device, progress)


def _find(identity: Identity, device: Any) -> Calibration | None:
    """Returns the stored figures of a device, or those that this process measured."""
    with _lock:
        return stored(device) or _known.get((identity, str(file_of(identity))))


def remeasure(device: Any, progress: Progress | None = None) -> Calibration:
    """Measures a device now, and stores the figures in place of older ones."""
    with _measuring:
        return _measured(meter().identity(device), device, progress)


def forget() -> None:
    """Makes this process read the files again."""
    with _lock:
        _known.clear()
        flags.renew()
        _refused.clear()


def _measured(identity: Identity, device: Any, progress: Progress | None) -> Calibration:
    path = file_of(identity)
    _log.info("measuring %s (%s); this takes some seconds", identity.device, identity.adapter)
    told = watcher()
    if progress is None and told is not None:
        progress = _passed_on(told, f"measuring {identity.device}")
    # Do not report the compiles of a measurement as progress.
    with watched(None):
        result = meter().measure(device, progress)
    # Kept in memory even with "off", so that a process does not measure twice.
    with _lock:
        _known[identity, str(path)] = result
        flags.renew()
        if path is not None:
            save(path, result)
    return result


def _passed_on(told: Watcher, what: str) -> Progress:
    return lambda part, now: told(f"{what}: {now}", part)


def save(path: Path, calibration: Calibration) -> bool:
    """Writes figures to a file, beside those of other devices that it holds.

    Returns:
        Whether that could be done; if not, a debug line says why.
    """
    slug = _slug(calibration.identity)
    entries: dict[str, Any] = {}
    try:
        entries = _entries(path)
    except (OSError, CalibrationError):
        pass  # it is replaced
    figures = calibration.to_json()
    entries[slug] = {"sha256": digest_of(figures), "figures": figures}
    return put(path, {"format": _FORMAT, "devices": entries}, "the calibration is")


def put(path: Path, record: Mapping[str, Any], what: str) -> bool:
    """Writes a record to a file of figures, and removes old files beside it.

    Args:
        path: The file.
        record: The record.
        what: Its name at the beginning of a debug line, with its verb.

    Returns:
        Whether that could be done; if not, a debug line says why.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not usable(path):
            return False
        write(path, json.dumps(record, indent=1).encode())
        if not flags.CALIBRATION.get().endswith(
            ".json"
        ):  # a folder of rlx, not a file that the user named
            prune(path.parent, _OURS, flags.CACHE_DAYS.get())
    except OSError as error:
        _log.debug("%s not stored: %s", what, error)
        return False
    return True


def _load(path: Path, identity: Identity) -> Calibration | None:
    if not usable(path):
        return None
    try:
        entries = _entries(path)
        if _slug(identity) not in entries:
            return None
        result = _figures(entries[_slug(identity)])
        if result.identity != identity:
            raise CalibrationError(
                describe("its version is not supported", got=result.identity, expected=identity)
            )
        mark_used(path)
        return result
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.debug("the calibration can't be read: %s", error)
        return None
    except CalibrationError as error:
        if path not in _refused:
            _refused.add(path)
            text = f"calibration file {path} is not used, and {identity.device} is measured anew"
            warnings.warn(f"{text}: {error}", RuntimeWarning, stacklevel=3)
        return None


def _entries(path: Path) -> dict[str, Any]:
    """The records of a file by device.

    Raises:
        OSError: It can't be read.
        CalibrationError: It is no such file.
    """
    try:
        data = json.loads(read_regular(path, MAX_BYTES))
    except (ValueError, RecursionError, UnfitFileError) as error:
        raise CalibrationError(describe("it is not JSON", got=error)) from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise CalibrationError(describe("it is not a calibration file", expected=_FORMAT))
    entries = data.get("devices")
    if not isinstance(entries, dict):
        raise CalibrationError(describe("it holds no devices", got=repr(entries)[:80]))
    return entries


def _figures(entry: Any) -> Calibration:
    """The figures of an entry.

    Raises:
        CalibrationError: They are not as they were written, or not believable.
    """
    if not isinstance(entry, dict) or set(entry) != {"sha256", "figures"}:
        raise CalibrationError(describe("its entry is malformed", got=repr(entry)[:80]))
    result = Calibration.from_json(entry["figures"])
    # A changed digit would still be a believable figure, so a checksum is needed.
    if entry["sha256"] != digest_of(result.to_json()):
        raise CalibrationError("its checksum does not match")
    return result


def digest_of(figures: Mapping[str, Any]) -> str:
    """A checksum of figures."""
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _slug(identity: Identity) -> str:
    """A file name for a device: readable, and distinct by a digest."""
    parts = (identity.device, identity.adapter, identity.api, identity.path)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    readable = re.sub(r"[^a-z0-9]+", "-", f"{identity.device} {identity.adapter}".lower())
    return f"{readable.strip('-')[:60]}-{digest}"
