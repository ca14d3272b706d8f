"""The results of the demo: the figures behind its tables, its report and its JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, field

from rlx.dataclasses import dataclass
from rlx.ir.opdef import Array


@dataclass
class DeviceResult:
    """The results of one device."""

    device: str
    label: str
    hops: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0
    p999_us: float = 0.0
    realtime: float = 0.0
    scipy_difference: float | None = None
    device_difference: float = 0.0
    alpha_hz: list[float] = field(default_factory=list)
    alpha_power: list[float] = field(default_factory=list)


@dataclass
class DemoResult:
    """Everything that the tables and the report show; the arrays are left out of the JSON."""

    source: str
    channels: list[str]
    fs: float
    seconds: float
    chosen: str
    reason: str
    devices: list[DeviceResult]
    versions: dict[str, str]
    problems: list[str]
    latencies_us: dict[str, Array]
    spectra: dict[str, Array]
    track_hz: Array

    def as_json(self) -> str:
        """The figures."""
        plain = {
            key: value
            for key, value in asdict(self).items()
            if key not in ("latencies_us", "spectra", "track_hz")
        }
        return json.dumps(plain, indent=2)
