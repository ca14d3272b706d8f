"""Made-up figures, and a meter that gives them, for tests of what is done with them."""

from dataclasses import replace

from rlx import flags
from rlx.cost import Calibration, Curve, tuned
from rlx.cost.calibration import Identity, Meter, meter
from rlx.cost.store import load_or_measure

IDENTITY = Identity("cpu", "A processor", "native", "kernels for plain", "plain", "0.0", "")


def forget_variants():
    """Has this process read the files of variants again."""
    tuned._known.clear()
    flags.renew()


def line(per_ns, *works):
    """The same speed at any amount of work."""
    return Curve(tuple((float(work), work / per_ns) for work in works))


def figures(identity=IDENTITY, **changes):
    """A plausible CPU."""
    result = Calibration(
        identity=identity,
        threads=1,
        unified_memory=True,
        roundtrip_ns=200.0,
        dispatch_ns=20.0,
        host_thunk_ns=0.0,
        upload_ns_by_bytes=line(10.0, 1e3, 1e6),
        readback_ns_by_bytes=line(5.0, 1e3, 1e6),
        copy_ns_by_bytes=line(20.0, 1e3, 1e8),
        matmul_ns_by_flops={
            "f32": Curve(tuple((2.0 * n**3, 2.0 * n**3 / gflops) for n, gflops in GFLOPS.items()))
        },
        thin_matmul_ns_by_flops={"f32": line(5.0, 2e4, 2e6)},
        narrow_matmul_ns_by_flops={"f32": line(8.0, 2e4, 2e6)},
        kernel_ns_by_work={"arithmetic": line(15.0, 1e5, 1e7), "softmax": line(4.0, 1e5)},
        row_ns_by_kind={"softmax": 30.0},
        serial_ns_by_kind={},
        measured_at_unix_s=1.7e9,
        measuring_s=1.5,
    )
    return replace(result, **changes)


# By size of a square product.
GFLOPS = {16: 10.0, 64: 40.0, 256: 80.0, 1024: 90.0}


class FakeMeter(Meter):
    """Knows devices as the real one does, and has figures for them at once.

    Attributes:
        measured: The devices that it was asked to measure, in order.
    """

    def __init__(self, **changes):
        self.real, self.changes, self.measured = meter(), changes, []

    def identity(self, device):
        return self.real.identity(device)

    def load_or_measure(self, device, progress):
        return load_or_measure(device, progress)

    def measure(self, device, progress):
        self.measured.append(str(device))
        changes = {name: change for name, change in self.changes.items() if name != "by_device"}
        changes |= self.changes.get("by_device", {}).get(str(device), {})
        return figures(self.identity(device), **changes)
