"""Looks into the modules of a wheel for macOS, which this machine can't load: what loads them there, and what they need."""

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _setup import say

from _portable.wheel import exported

MAGIC, PROCESSORS = 0xFEEDFACF, {"x86_64": 0x01000007, "arm64": 0x0100000C}
# Load commands, by what Apple's mach-o/loader.h calls them.
DYLIBS, RPATH, BUILD_VERSION, DYLD_INFO = (
    {0x0C, 0x80000018, 0x8000001F, 0x20},
    0x8000001C,
    0x32,
    0x80000022,
)
MACOS = 1
# Steps of the list of bindings: a step is the upper half of its byte.
ORDINAL, LONG_ORDINAL, SPECIAL_ORDINAL, SYMBOL = 0x10, 0x20, 0x30, 0x40
BIND = {0x90, 0xA0, 0xB0, 0xC0}
# How many numbers follow a step, each in bytes of seven bits.
NUMBERS = {0x20: 1, 0x60: 1, 0x70: 1, 0x80: 1, 0xA0: 1, 0xC0: 2}
# Where a symbol is looked for: in all libraries of the process. Python's are found so.
ANYWHERE = -2
SYSTEM = "/usr/lib/libSystem.B.dylib"
# The oldest macOS that the wheels say they are for (targets.py).
OLDEST = (11, 0)
# The symbols that each module needs from the system; other modules need none in particular.
ASKED = {"cpu": {"_pthread_attr_set_qos_class_np"}}


class Module(NamedTuple):
    """The facts about a module in its file.

    Attributes:
        processor: The number of its processor.
        oldest: The oldest macOS that loads it; None where it is for another system or does not say.
        libraries: Paths of the libraries that it needs.
        folders: Folders that it has libraries looked for in.
        symbols: Each symbol that it is bound to, with the library that has it, or None for any of the process.
    """

    processor: int
    oldest: tuple[int, int] | None
    libraries: list[str]
    folders: list[str]
    symbols: dict[str, str | None]


def text_at(data: bytes, start: int) -> str:
    """The text there, which ends in a zero."""
    return data[start : data.index(b"\0", start)].decode()


def number_at(data: bytes, index: int) -> tuple[int, int]:
    """``(a number in bytes of seven bits, where the next one begins)``."""
    value = shift = 0
    while True:
        value |= (data[index] & 0x7F) << shift
        index, shift = index + 1, shift + 7
        if not data[index - 1] & 0x80:
            return value, index


def bound(data: bytes, position: int, end: int) -> Iterator[tuple[str, int]]:
    """``(symbol, number of its library)`` of a list of bindings, which the system goes through to load a module."""
    symbol, ordinal = "", 0
    while position < end:
        step, small = data[position] & 0xF0, data[position] & 0x0F
        position += 1
        if step == ORDINAL:
            ordinal = small
        elif step == SPECIAL_ORDINAL:
            ordinal = small - 16 if small else 0
        elif step == SYMBOL:
            symbol = text_at(data, position)
            position += len(symbol) + 1
        elif step in BIND:
            yield symbol, ordinal
        for _ in range(NUMBERS.get(step, 0)):
            value, position = number_at(data, position)
            ordinal = value if step == LONG_ORDINAL else ordinal


def read(data: bytes) -> Module:
    """Reads a file for one processor with 64 bits.

    Raises:
        ValueError: It is none, or binds symbols in a newer way.
    """
    magic, processor, _, _, count = struct.unpack_from("<IiIII", data)
    if magic != MAGIC:
        raise ValueError("no Mach-O file of 64 bits")
    oldest, libraries, folders, lists = None, [], [], None
    position = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, position)
        if command in DYLIBS:
            libraries.append(
                text_at(data, position + struct.unpack_from("<I", data, position + 8)[0])
            )
        elif command == RPATH:
            folders.append(
                text_at(data, position + struct.unpack_from("<I", data, position + 8)[0])
            )
        elif command == BUILD_VERSION:
            platform, version = struct.unpack_from("<II", data, position + 8)
            oldest = (version >> 16, version >> 8 & 0xFF) if platform == MACOS else None
        elif command == DYLD_INFO:
            lists = struct.unpack_from("<IIIIII", data, position + 16)
        position += size
    if lists is None:
        raise ValueError("no list of bindings")
    symbols = {}
    for start, length in zip(lists[::2], lists[1::2], strict=True):
        for symbol, ordinal in bound(data, start, start + length):
            symbols[symbol] = None if ordinal == ANYWHERE else [*libraries, "itself"][ordinal - 1]
    return Module(processor, oldest, libraries, folders, symbols)


def faults(name: str, module: Module, processor: str, python: set[str]) -> list[str]:
    """Lists the reasons why some Python or macOS that the wheel is for can't load a module.

    Args:
        name: The module's own name.
        module: What its file says.
        processor: The processor in the name of the wheel.
        python: Python's functions and objects that it may use.
    """
    results = []
    if module.processor != PROCESSORS[processor]:
        results.append(f"is for the processor {module.processor:#x}, not for {processor}")
    if module.oldest != OLDEST:
        results.append(f"needs macOS {module.oldest}, not {OLDEST}")
    results += [f"needs the library {path}" for path in module.libraries if path != SYSTEM]
    results += [f"looks for libraries in {path}" for path in module.folders]
    for symbol, library in module.symbols.items():
        if library is None and symbol.removeprefix("_") not in python:
            results.append(f"needs {symbol}, which neither Python's limited API nor macOS has")
        elif library not in (None, SYSTEM):
            results.append(f"looks for {symbol} in {library}")
    lacking = ASKED.get(name, set()) - {key for key, where in module.symbols.items() if where}
    return results + [f"does not call {symbol}" for symbol in sorted(lacking)]


def check(wheel: Path) -> bool:
    """Checks from their files whether all modules of a wheel can be loaded."""
    processor = "arm64" if wheel.stem.endswith("arm64") else "x86_64"
    python, well = {name for name, _ in exported()}, True
    with zipfile.ZipFile(wheel) as archive:
        for path in archive.namelist():
            if not path.endswith(".so"):
                continue
            module = read(archive.read(path))
            name = Path(path).name.partition(".")[0]
            said = faults(name, module, processor, python)
            own = sum(library is None for library in module.symbols.values())
            say(f"{name} for {processor}: macOS {module.oldest}, {own} symbols of Python, "
                f"{len(module.symbols) - own} of {', '.join(module.libraries)}")  # fmt: skip
            print("".join(f"{path} {item}\n" for item in said), end="", flush=True)
            well &= not said
    return well
