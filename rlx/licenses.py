"""The licences of everything that a program carries because of rlx, for its "About" box and its installer.

What is carried is read from the metadata of the installed distributions, beginning at rlx and following its
requirements. A frozen program has that metadata too: the hook for PyInstaller takes it in.
"""

from __future__ import annotations

import csv
import fnmatch
import importlib
import importlib.util
import platform
import re
import sys
import sysconfig
from collections.abc import Collection, Iterator
from dataclasses import asdict
from importlib import metadata, resources
from pathlib import Path, PurePosixPath
from typing import Any

from rlx.dataclasses import dataclass
from rlx.errors import RlxError

# Where the hook for PyInstaller puts Python's own licence, which no distribution holds.
PYTHON_LICENSE = ("_python", "LICENSE.txt")
_LICENSE_FILE = re.compile(r"(?i)(licen[cs]e|copying|notice|authors)")
# How a licence file lists what is inside the wheel, as NumPy's does.
_BUNDLED = re.compile(r"^Name: (.+)\nFiles: (.+)\n(?:(?!Name:).*\n)*?License: (.+)$", re.MULTILINE)
# The shared library inside the distribution wgpu. Its wheels hold no licence file for it.
_NATIVE_LICENSE = "MIT OR Apache-2.0"
_NATIVE_HOME = "https://github.com/gfx-rs/wgpu-native"


@dataclass(frozen=True)
class License:
    """A piece of bundled software, and its licence.

    Attributes:
        name: Its name.
        version: Its version; "" where it does not say.
        license: The licence expression (SPDX) or the licence in its metadata; "" if that says nothing.
        inside: The distribution that bundles it; "" for a distribution.
        home: Where its sources are found; "" where its metadata does not say.
        files: Names of its licence files. The files of a distribution hold the texts of its bundled parts.
        texts: The texts of these files, in their order.
    """

    name: str
    version: str
    license: str
    inside: str
    home: str
    files: tuple[str, ...]
    texts: tuple[str, ...]


def licenses() -> list[License]:
    """Lists the software that a program with rlx bundles: rlx, its requirements, and the parts that those bundle.

    In a frozen program the list has only what was frozen. The program's own requirements are not listed, nor libraries
    of the system that a tool for freezing copies.

    Returns:
        rlx first, then Python, then the rest by name; what is inside a distribution follows it.

    Raises:
        RlxError: The metadata of rlx is missing, as in a program that was frozen without it.

    Example:
        >>> from rlx.licenses import licenses
        >>> [one.license for one in licenses()][:2]
        ['Apache-2.0', 'PSF-2.0']
    """
    result = _required("rlx")
    if "rlx" not in result:
        what = "the metadata of rlx is missing, so that nothing is known about licences"
        hint = "copy the metadata of rlx and its requirements when the program is frozen"
        raise RlxError(what, hint=f"{hint}; docs/guides/freezing.md")
    listed = [*_of("rlx", result.pop("rlx")), _python()]
    for name in sorted(result):
        listed += _of(name, result[name])
    return listed


def notices() -> str:
    """The licences with all their texts, as a program may show or ship them.

    Raises:
        RlxError: See ``licenses``.

    Example:
        >>> from rlx.licenses import notices
        >>> notices().startswith("rlx ")
        True
    """
    parts = []
    for item in licenses():
        parts.append(f"{summary(item)}\n{'=' * 100}")
        parts += [f"--- {name}\n\n{text}" for name, text in zip(item.files, item.texts)]
    return "\n\n".join(parts)


def summary(item: License) -> str:
    """One line about a piece of software."""
    inside = f", inside {item.inside}" if item.inside else ""
    home = f" ({item.home})" if item.home else ""
    return f"{item.name} {item.version}{inside}: {item.license or 'see its files'}{home}"


def as_json(full: bool = False) -> list[dict[str, Any]]:
    """The licences as JSON values.

    Args:
        full: With the texts of their files.

    Raises:
        RlxError: See ``licenses``.
    """
    rows = [asdict(item) for item in licenses()]
    return rows if full else [{k: v for k, v in row.items() if k != "texts"} for row in rows]


def requirements(root: str, without: Collection[str] = ()) -> list[str]:
    """Installed distributions that one needs, itself among them; optional extras don't count.

    Args:
        root: A distribution.
        without: Distributions that are left out, with what nothing else needs.

    Returns:
        Names in lower case, sorted.
    """
    return sorted(_required(root, without))


def _required(root: str, without: Collection[str] = ()) -> dict[str, metadata.Distribution]:
    results: dict[str, metadata.Distribution] = {}
    waiting = [root]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in results or name in without:
            continue
        try:
            single = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # not for this system, or left out when the program was frozen
        if not _carried(single):
            continue
        results[name] = single
        for line in single.requires or ():
            wanted, _, condition = line.partition(";")
            if "extra" not in condition:
                waiting.append(re.split(r"[^\w.-]", wanted.strip())[0])
    return results


def _carried(distribution: metadata.Distribution) -> bool:
    """Returns whether its modules are installed: a frozen program may have the metadata alone."""
    if not getattr(sys, "frozen", False):
        return True
    tops = {PurePosixPath(path).parts[0].partition(".")[0] for path in _paths(distribution)}
    names = [top for top in tops if top.isidentifier()]
    # Some tools copy metadata without the list of files.
    names = names or [re.sub(r"[-.]", "_", distribution.metadata["Name"]).lower()]
    return any(importlib.util.find_spec(name) is not None for name in names)


def _paths(distribution: metadata.Distribution) -> list[str]:
    """Lists the installed files, deleted ones included: ``files`` leaves out missing files since Python 3.12."""
    record = distribution.read_text("RECORD")
    if record:
        return [row[0] for row in csv.reader(record.splitlines()) if row]
    return [str(file) for file in distribution.files or ()]


def _of(name: str, distribution: metadata.Distribution) -> Iterator[License]:
    """A distribution, then what is inside it."""
    files, texts = _texts(distribution)
    about = distribution.metadata
    terms = _terms(about) or (texts[0].strip().partition("\n")[0] if texts else "")
    yield License(about["Name"], distribution.version, terms, "", _home(about), files, texts)
    paths = _paths(distribution)
    for text in texts:
        for inner, pattern, terms in _BUNDLED.findall(text):
            if not paths or fnmatch.filter(paths, f"{pattern}*"):
                yield License(inner, "", terms, about["Name"], "", (), ())
    if name == "wgpu":
        yield from _native()


def _texts(distribution: metadata.Distribution) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and texts of the licence files that lie beside a distribution's metadata."""
    named = distribution.metadata.get_all("License-File") or ()
    results = {}
    for name in dict.fromkeys([*named, *_beside(distribution)]):
        text = (
            distribution.read_text(f"licenses/{name}")
            or distribution.read_text(name)
            or _in_checkout(distribution, name)
        )
        if text:
            results[name] = text
    return tuple(results), tuple(results.values())


def _in_checkout(distribution: metadata.Distribution, name: str) -> str:
    """A licence file beside the sources, where the metadata is that of a checkout."""
    if name not in map(str, distribution.files or ()):
        return ""
    path = Path(str(distribution.locate_file(name)))
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _beside(distribution: metadata.Distribution) -> list[str]:
    """Licence files of older packages, whose metadata does not name them."""
    paths = map(PurePosixPath, _paths(distribution))
    return [
        path.name
        for path in paths
        if len(path.parts) == 2
        and path.parts[0].endswith(".dist-info")
        and _LICENSE_FILE.search(path.name)
    ]


def _terms(about: Any) -> str:
    """The licence by its expression, else by a short field, the classifiers, or the first line of a long field."""
    expression, field = about.get("License-Expression"), (about.get("License") or "").strip()
    kinds = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or ()
        if line.startswith("License :: ")
    ]
    one_line = field if "\n" not in field else ""
    return str(expression or one_line or ", ".join(kinds) or field.partition("\n")[0])


def _home(about: Any) -> str:
    links = dict(line.split(", ", 1) for line in about.get_all("Project-URL") or () if ", " in line)
    known = {name.lower().replace(" ", ""): link for name, link in links.items()}
    wanted = ("source", "sourcecode", "repository", "homepage")
    return next((known[name] for name in wanted if name in known), about.get("Home-page") or "")


def _native() -> Iterator[License]:
    """The library that wgpu calls; the lock file of its sources names every Rust crate in it."""
    try:
        native = importlib.import_module("wgpu.backends.wgpu_native")
    except Exception:  # without its library wgpu can't be imported, and then there is none
        return
    sources = f"{_NATIVE_HOME}/tree/{native.__commit_sha__}"
    yield License("wgpu-native", native.__version__, _NATIVE_LICENSE, "wgpu", sources, (), ())
    crates = f"{_NATIVE_HOME}/blob/{native.__commit_sha__}/Cargo.lock"
    terms = "each has its own: crates.io shows it by name and version"
    yield License("Rust crates of wgpu-native", native.__version__, terms, "wgpu", crates, (), ())


def _python() -> License:
    text = _python_text()
    home = "https://docs.python.org/3/license.html"
    files, texts = (("LICENSE.txt",), (text,)) if text else ((), ())
    return License("Python", platform.python_version(), "PSF-2.0", "", home, files, texts)


def _python_text() -> str:
    carried = resources.files("rlx").joinpath(*PYTHON_LICENSE)
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    file = python_license_file()
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def python_license_file() -> Path:
    """Python's own licence, where it is installed; the file need not exist."""
    return Path(sysconfig.get_path("stdlib"), "LICENSE.txt")
