"""Every ``RLX_*`` environment variable, stated once: name, type, default, meaning.

A variable is read when it is first asked for, not at import. A malformed variable raises ``InputError`` naming the
variable and the bad token. ``rlx env`` prints this table.

The generation stands beside them: caches are valid for the flags and the generation that their entries were made with.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Generic, TypeVar

from rlx.dataclasses import dataclass
from rlx.errors import InputError

T = TypeVar("T")

TABLE: dict[str, Flag[object]] = {}


@dataclass(frozen=True)
class Flag(Generic[T]):
    """One environment variable.

    Attributes:
        name: Full name, with the ``RLX_`` prefix.
        parse: Turns the text into a value; raises ``ValueError`` for what it does not take.
        default: The value when the variable is unset or empty.
        doc: Its description, for ``rlx env``.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    doc: str

    def get(self) -> T:
        """The value now in force.

        Raises:
            InputError: The variable is set to something that does not parse.
        """
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise InputError(
                f"environment variable {self.name} does not parse",
                got=repr(text),
                expected=str(error),
                hint=self.doc,
            ) from None

    def under(self, prefix: str) -> Flag[T]:
        """The same variable with another prefix than ``RLX_``."""
        return replace(self, name=prefix + self.name.removeprefix("RLX_"))


def snapshot() -> tuple[str | None, ...]:
    """Returns the texts of all variables, for comparison with a later snapshot."""
    return tuple(map(os.environ.get, TABLE))


def _flag(name: str, parse: Callable[[str], T], default: T, doc: str) -> Flag[T]:
    if name in TABLE:
        raise RuntimeError(f"{name} is declared twice")
    flag = Flag(name, parse, default, doc)
    TABLE[name] = flag  # type: ignore[assignment]  # Flag is invariant; the table only reads
    return flag


def _bool(text: str) -> bool:
    words = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    try:
        return words[text.lower()]
    except KeyError:
        raise ValueError("0, 1, true, false, on or off") from None


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text.lower()

    return parse


def _count(text: str, what: str = "a whole number") -> int:
    try:
        result = int(text)
    except ValueError:
        result = 0
    if result < 1:
        raise ValueError(f"{what} >= 1")
    return result


_bytes = partial(_count, what="a whole number of bytes")


def _runs(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise ValueError("a whole number of runs, or 0 to go by estimates")
    return int(text)


def _threads(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= 1024:
        raise ValueError("a whole number from 1 to 1024")
    return int(text)


def _cache(text: str) -> str:
    # A misspelt word would else become a folder of that name in the working directory.
    if text.lower() in ("on", "off"):
        return text.lower()
    if not os.path.isabs(os.path.expanduser(text)):
        raise ValueError("on, off or the absolute path of a folder")
    return os.path.expanduser(text)


def _calibration(text: str) -> str:
    if text.lower() in ("on", "off", "measure"):
        return text.lower()
    path = os.path.expanduser(text)
    if not os.path.isabs(path) and not path.endswith(".json"):
        raise ValueError("on, off, measure, a .json file, or the absolute path of a folder")
    return os.path.abspath(path)


def _power(text: str) -> str:
    if text.lower() not in ("auto", "low", "high"):
        raise ValueError("auto, low or high")
    return text.lower()


def _plugins(text: str) -> Mapping[str, str]:
    results = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        device, equals, package = (part.strip() for part in item.partition("="))
        if not (device and equals and package):
            raise ValueError("devices with packages: cuda=rlx-xla,mlx=rlx-mlx")
        results[device.lower()] = re.sub(r"[-_.]+", "-", package).lower()
    return results


_NO_PLUGINS: Mapping[str, str] = MappingProxyType({})
PLUGINS = _flag(
    "RLX_PLUGINS",
    _plugins,
    _NO_PLUGINS,
    "the package to use for a device that several packages serve: cuda=rlx-xla",
)
CACHE = _flag(
    "RLX_CACHE",
    _cache,
    "on",
    "keep compiled graphs in memory and in the user's cache folder; off, or another folder",
)
CACHE_BYTES = _flag(
    "RLX_CACHE_BYTES",
    _bytes,
    256 << 20,
    "largest size of the cache folder; the least recently used entries are removed first",
)
CACHE_DAYS = _flag(
    "RLX_CACHE_DAYS",
    _count,
    90,
    "days after which unused compiled graphs and measured speeds are removed",
)
GPU_CACHE_BYTES = _flag(
    "RLX_GPU_CACHE_BYTES",
    _bytes,
    128 << 20,
    "estimated memory of the pipelines that are kept on a GPU after their graphs are freed",
)
CALIBRATION = _flag(
    "RLX_CALIBRATION",
    _calibration,
    "on",
    "keep the measured speeds of devices in the user's cache folder; off takes defaults, measure "
    "measures anew in each process, a .json file or a folder is used instead",
)
DEVICE = _flag("RLX_DEVICE", str, "", "device used when a call says 'auto'")
DEVICES = _flag("RLX_DEVICES", str, "", "the only devices that may be picked, with commas")
DENY_DEVICES = _flag("RLX_DENY_DEVICES", str, "", "devices that are never picked, with commas")
PREFER_DEVICES = _flag(
    "RLX_PREFER_DEVICES",
    str,
    "",
    "devices picked first among those within 10 % of the fastest, with commas",
)
DEVICE_CHAIN = _flag(
    "RLX_DEVICE_CHAIN", str, "", "devices that are tried in turn, with commas: cuda,gpu,cpu"
)
BENCHMARK_PICK = _flag(
    "RLX_BENCHMARK_PICK", _runs, 0, "pick by this many timed runs on each device; 0 by estimates"
)
POWER = _flag(
    "RLX_POWER",
    _power,
    "auto",
    "low prefers a GPU inside the processor, high the fastest, auto is low on battery",
)
MAX_ELEMENTS = _flag(
    "RLX_MOST_ELEMENTS",
    _count,
    1 << 26,
    "numbers that one load, build or compile may compute itself: tables, folded constants",
)
MAX_NODES = _flag(
    "RLX_MOST_NODES",
    _count,
    250_000,
    "nodes that one load may make, unrolled loops included, and kernel calls of one compile",
)
MAX_SECONDS = _flag("RLX_MOST_SECONDS", _count, 120, "seconds that one load or compile may take")
CPU_ISA = _flag(
    "RLX_CPU_ISA",
    _choice("auto", "plain", "neon", "avx2", "avx512"),
    "auto",
    "instruction set of the CPU kernels; 'auto' takes the best this processor has",
)
THREADS = _flag(
    "RLX_THREADS",
    _threads,
    None,
    "threads of the CPU kernels, 1 to 1024; without it the cores that the process may use",
)
VARIANT = _flag(
    "RLX_VARIANT",
    str,
    "",
    "variants of GPU kernels to use wherever they fit, with commas: matmul=large",
)
REQUIRE_FRAGMENTS = _flag(
    "RLX_REQUIRE_FRAGMENTS",
    _bool,
    False,
    "tests that need an adapter with matrix units fail instead of being left out when there is none",
)
REQUIRE_WEBGPU = _flag(
    "RLX_REQUIRE_WEBGPU",
    _bool,
    False,
    "tests that need a WebGPU adapter fail instead of being left out when there is none",
)
WEBGPU = _flag(
    "RLX_WEBGPU",
    _choice("wgpu", "dawn"),
    "wgpu",
    "the library of the device webgpu: wgpu-native, or Dawn (of the package wgpudawn)",
)
WEBGPU_DEFAULT_LIMITS = _flag(
    "RLX_WEBGPU_DEFAULT_LIMITS",
    _bool,
    False,
    "ask a WebGPU adapter for the specification's default limits instead of its own",
)
SHADER_CHECKS = _flag(
    "RLX_SHADER_CHECKS",
    _bool,
    False,
    "run WebGPU kernels with the driver's bounds and loop checks; slower, for debugging",
)
WEBGPU_HOT = _flag(
    "RLX_WEBGPU_HOT",
    _bool,
    True,
    "runs on a GPU call its library from C; 0 goes through Python, slower, same results",
)
VERIFY = _flag(
    "RLX_VERIFY", _bool, False, "verify graphs after passes, and kernels' bindings (the tests do)"
)


_numbers = itertools.count()
_current = next(_numbers)


def generation() -> tuple[int, int]:
    """Returns the generation. Results that were derived from devices and figures of another one are stale."""
    return os.getpid(), _current


def renew() -> None:
    """Begins a new generation: backends, adapters, calibrations or tuned variants have changed."""
    global _current
    _current = next(_numbers)
