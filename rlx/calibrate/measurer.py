"""The meter of ``rlx.cost``. The first measurement imports the probes."""

from __future__ import annotations

from typing import Any

from rlx.calibrate.calibration_key import identity_of
from rlx.cost.calibration import Calibration, Identity, Progress
from rlx.cost.store import load_or_measure
from rlx.device.names import Device, info_of


class Measurer:
    """Measures devices; ``rlx.cost`` knows it as its meter."""

    def identity(self, device: Any) -> Identity:
        """Returns the identity that figures of a device belong to: two names of one device have the same.

        Raises:
            DeviceUnavailableError: It is not on this machine.
        """
        return identity_of(info_of(Device.parse(device)))

    def load_or_measure(self, device: Any, progress: Progress | None = None) -> Calibration:
        """See ``Calibration.load_or_measure``."""
        return load_or_measure(device, progress)

    def measure(self, device: Any, progress: Progress | None = None) -> Calibration:
        """Measures a device now.

        Args:
            device: A device or its name.
            progress: Called with the part that is done (0 to 1) and what comes next.

        Raises:
            DeviceUnavailableError: It is not on this machine.
        """
        from rlx.calibrate.measurement import Measurement

        return Measurement(Device.parse(device), progress or (lambda part, what: None)).run()


METER = Measurer()
