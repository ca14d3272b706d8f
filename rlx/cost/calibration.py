"""The measured figures of one device: a record whose field names have the units."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rlx.cost.curve import Curve
from rlx.dataclasses import dataclass
from rlx.errors import describe
from rlx.lazy_imports import provided

# Smallest and largest believable value of each figure; a file with any other is not believed.
RANGES: Mapping[str, tuple[float, float]] = {
    "roundtrip_ns": (10, 1e9),
    "dispatch_ns": (1, 1e9),
    "host_thunk_ns": (0, 1e10),
    "threads": (1, 4096),
    "measured_at_unix_s": (1e9, 1e11),
    "measuring_s": (0, 1e4),
}
# Work (bytes or operations) and ns per unit of it, of the points of every curve.
_WORK, _NS_PER_UNIT = (1, 1e18), (1e-9, 1e6)
_EACH_NS = (0, 1e9)
CURVES = ("upload_ns_by_bytes", "readback_ns_by_bytes", "copy_ns_by_bytes")
TABLES = (
    "matmul_ns_by_flops",
    "thin_matmul_ns_by_flops",
    "narrow_matmul_ns_by_flops",
    "kernel_ns_by_work",
)
NUMBERS = ("row_ns_by_kind", "serial_ns_by_kind")
# Upper bound on believable speeds of transfers, in bytes per ns: they are differences of noisy times.
FASTEST_TRANSFER = 1000.0

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Identity:
    """The identity that figures belong to: figures of another device, or of another rlx on it, differ in it.

    Attributes:
        device: Its name.
        adapter: The hardware's name.
        api: How it is reached.
        driver: Driver name and version; on the CPU its instruction set.
        path: How kernels are made and called, where that can be chosen.
        rlx_version: Version of rlx.
        wgpu_version: Version of wgpu; "" on the CPU.
    """

    device: str
    adapter: str
    api: str
    driver: str
    path: str
    rlx_version: str
    wgpu_version: str


@dataclass(frozen=True)
class Calibration:
    """The measured figures of one device.

    Attributes:
        identity: The identity that they belong to.
        threads: Parallel workers of the CPU kernels; 1 on a GPU.
        unified_memory: Host and device share memory, so nothing is transferred.
        roundtrip_ns: A run with next to nothing to do: on a GPU submit, wait and a small read-back,
            on the CPU the call.
        dispatch_ns: One kernel more in a run, each waiting for the one before; on the CPU one call.
        host_thunk_ns: The time that a part on the host adds to a run on a GPU, besides its work and
            its bytes; 0 on the CPU.
        upload_ns_by_bytes: The time that inputs of so many bytes add to a run.
        readback_ns_by_bytes: The time that outputs of so many bytes add.
        copy_ns_by_bytes: A kernel that reads and writes so many bytes, both counted.
        matmul_ns_by_flops: By dtype, products of 16, 64, 256, 1024 and 2048 cubed, the larger ones if time allowed.
        thin_matmul_ns_by_flops: By dtype, products with a single row.
        narrow_matmul_ns_by_flops: By dtype, products with eight columns.
        kernel_ns_by_work: By kind of kernel (see ``rlx.cost.op_classes``), floating-point operations, or
            bytes where a kind only moves them; on rows of 256 elements.
        row_ns_by_kind: The time that one more row adds to a kernel of a kind that works row by row, with as much work
            as was measured at most. On the CPU less work is slower for each element where it takes fewer threads,
            and so is a row.
        serial_ns_by_kind: On a GPU, what one of the steps takes that wait for each other in a kernel of a
            kind; see ``rlx.cost.dependency_chain``.
        measured_at_unix_s: When, in seconds since 1970.
        measuring_s: How long that took.
    """

    identity: Identity
    threads: int
    unified_memory: bool
    roundtrip_ns: float
    dispatch_ns: float
    host_thunk_ns: float
    upload_ns_by_bytes: Curve
    readback_ns_by_bytes: Curve
    copy_ns_by_bytes: Curve
    matmul_ns_by_flops: Mapping[str, Curve]
    thin_matmul_ns_by_flops: Mapping[str, Curve]
    narrow_matmul_ns_by_flops: Mapping[str, Curve]
    kernel_ns_by_work: Mapping[str, Curve]
    row_ns_by_kind: Mapping[str, float]
    serial_ns_by_kind: Mapping[str, float]
    measured_at_unix_s: float
    measuring_s: float

    @property
    def upload_gb_per_s(self) -> float:
        """Bandwidth of the largest upload measured."""
        return _largest_speed(self.upload_ns_by_bytes)

    @property
    def readback_gb_per_s(self) -> float:
        """Bandwidth of the largest read-back measured."""
        return _largest_speed(self.readback_ns_by_bytes)

    @property
    def copy_gb_per_s(self) -> float:
        """Memory bandwidth, read and written, at the largest copy measured."""
        return _largest_speed(self.copy_ns_by_bytes)

    @property
    def matmul_gflops(self) -> dict[str, dict[int, float]]:
        """GFLOP/s by dtype and by the size of a square product, where it was measured."""
        return {
            dtype: {round((flops / 2) ** (1 / 3)): flops / ns for flops, ns in curve.points}
            for dtype, curve in self.matmul_ns_by_flops.items()
        }

    @classmethod
    def load_or_measure(cls, device: Any, progress: Progress | None = None) -> Calibration:
        """The figures of a device: those that are stored, else they are measured now and stored.

        ``RLX_CALIBRATION`` decides where they are stored: by default in the user's cache folder. With
        "off" they are measured and not stored; with "measure" they are measured once per process.
        A stored file that can't be used is measured again, with a ``RuntimeWarning``.

        Args:
            device: A device or its name.
            progress: Called with the part that is done (0 to 1) and what comes next.

        Returns:
            The figures.

        Raises:
            DeviceParseError: ``device`` is not a device.
            DeviceUnavailableError: It is not on this machine.
            InputError: ``RLX_CALIBRATION`` does not parse.

        Example:
            >>> import rlx
            >>> found = rlx.cost.Calibration.load_or_measure("cpu")
            >>> found.dispatch_ns > 0
            True
        """
        return meter().load_or_measure(device, progress)

    @classmethod
    def measure(cls, device: Any, progress: Progress | None = None) -> Calibration:
        """Measures a device now, in two to ten seconds; nothing is stored.

        Args:
            device: A device or its name.
            progress: Called with the part that is done (0 to 1) and what comes next.

        Raises:
            DeviceParseError: ``device`` is not a device.
            DeviceUnavailableError: It is not on this machine.

        Example:
            >>> import rlx
            >>> rlx.cost.Calibration.measure("cpu").copy_gb_per_s > 0
            True
        """
        return meter().measure(device, progress)

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON takes them; ``from_json`` gives them back exactly."""
        results: dict[str, Any] = {}
        for name in _NAMES:
            value = getattr(self, name)
            if isinstance(value, Identity):
                results[name] = dataclasses.asdict(value)
            elif isinstance(value, Curve):
                results[name] = [list(point) for point in value.points]
            elif name in TABLES:
                results[name] = {k: [list(p) for p in curve.points] for k, curve in value.items()}
            else:
                results[name] = dict(value) if isinstance(value, Mapping) else value
        return results

    @classmethod
    def from_json(cls, data: Any) -> Calibration:
        """The figures that ``to_json`` wrote.

        Raises:
            CalibrationError: A figure is missing, of the wrong type, or not believable.
        """
        if not isinstance(data, dict) or set(data) != set(_NAMES):
            unknown = sorted(set(_NAMES) ^ set(data)) if isinstance(data, dict) else type(data)
            raise CalibrationError(describe("not a calibration", got=f"fields differ: {unknown}"))
        return cls(**{name: _read(name, value) for name, value in data.items()})


class CalibrationError(ValueError):
    """Stored figures that can't be used; they are measured again."""


class Meter(Protocol):
    """Measures devices. It is on a higher floor."""

    def identity(self, device: Any) -> Identity:
        """Returns the identity that figures of the device belong to."""

    def load_or_measure(self, device: Any, progress: Progress | None) -> Calibration:
        """The stored figures of the device; without any, they are measured and stored."""

    def measure(self, device: Any, progress: Progress | None) -> Calibration:
        """The figures of the device, measured now."""


_NAMES = tuple(field.name for field in dataclasses.fields(Calibration))


def meter() -> Meter:
    """Returns the object that measures devices."""
    result: Meter = provided("meter")
    return result


def _largest_speed(curve: Curve) -> float:
    return curve.per_ns(curve.largest)


def _read(name: str, value: Any) -> Any:
    if name == "identity":
        return _identity(value)
    if name == "unified_memory":
        if not isinstance(value, bool):
            raise _wrong(name, value, "true or false")
        return value
    if name in CURVES:
        return _curve(name, value)
    if name in TABLES:
        if not isinstance(value, dict):
            raise _wrong(name, value, "curves by name")
        if "matmul" in name and "f32" not in value:
            raise _wrong(name, sorted(value), "a curve for f32 at least")
        return {key: _curve(f"{name}[{key!r}]", points) for key, points in value.items()}
    if name in NUMBERS:
        if not isinstance(value, dict):
            raise _wrong(name, value, "numbers by name")
        return {key: _number(f"{name}[{key!r}]", ns, *_EACH_NS) for key, ns in value.items()}
    if name == "threads" and not isinstance(value, int):
        raise _wrong(name, value, "a whole number")
    return _number(name, value, *RANGES[name])


def _identity(value: Any) -> Identity:
    names = {field.name for field in dataclasses.fields(Identity)}
    if not isinstance(value, dict) or set(value) != names:
        raise _wrong("identity", value, ", ".join(sorted(names)))
    if not all(isinstance(text, str) for text in value.values()):
        raise _wrong("identity", value, "texts")
    return Identity(**value)


def _curve(name: str, value: Any) -> Curve:
    pairs = isinstance(value, list) and all(isinstance(p, list) and len(p) == 2 for p in value)
    if not pairs:
        raise _wrong(name, value, "pairs of work and ns")
    points = []
    for work, ns in value:
        work = _number(f"work in {name}", work, *_WORK)
        ns = _number(f"ns in {name}", ns, work * _NS_PER_UNIT[0], max(1.0, work) * _NS_PER_UNIT[1])
        points.append((work, ns))
    try:
        return Curve(tuple(points))
    except ValueError as error:
        raise _wrong(name, value, str(error)) from None


def _number(name: str, value: Any, low: float, high: float) -> Any:
    # A bool is an int to Python, and 10**400 is one that no float holds.
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not low <= value <= high or not math.isfinite(value):
        raise _wrong(name, value, f"a number from {low:g} to {high:g}")
    return value


def _wrong(name: str, value: Any, expected: str) -> CalibrationError:
    return CalibrationError(describe(name, got=repr(value)[:80], expected=expected))
