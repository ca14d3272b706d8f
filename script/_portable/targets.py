"""The systems that wheels are built for: what zig, Python and wheels call each of them, and how modules are linked."""

from typing import NamedTuple


class PortableTarget(NamedTuple):
    """A system to build for.

    Attributes:
        zig: zig's name for it.
        platform: ``sysconfig.get_platform()`` there.
        tag: The platform in the name of its wheels.
        numpy: The platforms in the names of NumPy's wheels for it, the best first.
        link: Arguments that link a module.
        machine: The name of its processor, as ``zig dlltool`` or the tests of the file's header want it.
    """

    zig: str
    platform: str
    tag: str
    numpy: tuple[str, ...]
    link: tuple[str, ...]
    machine: str


# Functions of Python are found in the process that loads the module.
LATER = ("-shared", "-Wl,-undefined,dynamic_lookup")
SHARED = ("-shared",)

TARGETS = {
    "windows": PortableTarget(
        "x86_64-windows-gnu", "win-amd64", "win_amd64", ("win_amd64",), SHARED, "i386:x86-64"
    ),
    "windows-arm64": PortableTarget(
        "aarch64-windows-gnu", "win-arm64", "win_arm64", ("win_arm64",), SHARED, "arm64"
    ),
    "aarch64": PortableTarget(
        "aarch64-linux-gnu.2.28",
        "linux-aarch64",
        "manylinux_2_28_aarch64",
        ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64"),
        SHARED,
        "aarch64",
    ),
    "musl": PortableTarget(
        "x86_64-linux-musl",
        "linux-x86_64",
        "musllinux_1_2_x86_64",
        ("musllinux_1_2_x86_64",),
        SHARED,
        "x86_64",
    ),
    "macos": PortableTarget(
        "aarch64-macos.11.0",
        "macosx-11.0-arm64",
        "macosx_11_0_arm64",
        ("macosx_11_0_arm64",),
        LATER,
        "arm64",
    ),
    # NumPy for Macs with Intel processors needs macOS 10.13 or later; rlx needs 11.
    "macos-x86_64": PortableTarget(
        "x86_64-macos.11.0",
        "macosx-11.0-x86_64",
        "macosx_11_0_x86_64",
        ("macosx_11_0_x86_64", "macosx_10_13_x86_64", "macosx_10_9_x86_64"),
        LATER,
        "x86_64",
    ),
}
