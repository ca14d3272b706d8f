"""Licences of what a program carries: the list, the texts, the command, and what is left out."""

import json
import sys
from importlib import metadata

import pytest

import rlx
from rlx import licenses as module
from rlx.cli.main import main
from rlx.licenses import License, as_json, licenses, notices, requirements


class DistributionStub(metadata.Distribution):
    """An installed distribution that a test makes up."""

    def __init__(self, name, header="", files=None, **texts):
        self.text = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{header}",
            **texts,
        }
        self.listed = files

    def read_text(self, filename):
        return self.text.get(filename)

    def locate_file(self, path):
        raise AssertionError("only a checkout has files beside its sources")

    @property
    def files(self):
        return self.listed and [metadata.PackagePath(name) for name in self.listed]


@pytest.fixture
def installed(monkeypatch):
    """Puts made-up distributions in place of all that are installed."""

    def install(*fakes):
        known = {fake.metadata["Name"].lower(): fake for fake in fakes}

        def distribution(name):
            try:
                return known[name]
            except KeyError:
                raise metadata.PackageNotFoundError(name) from None

        monkeypatch.setattr(metadata, "distribution", distribution)

    return install


def test_what_is_installed():
    results = {item.name.lower(): item for item in licenses()}
    assert [item.name for item in licenses()][:2] == ["rlx", "Python"]
    # Every requirement of rlx, and what those require.
    direct = {"numpy", "wgpu", "jinja2", "rich", "platformdirs"}
    assert direct | {"cffi", "pycparser", "markupsafe", "pygments"} <= results.keys()
    # Nothing of an extra, though the tests have it installed.
    assert not {"pytest", "scipy", "onnx", "msgspec"} & results.keys()
    for value in results.values():
        assert value.license, value
        if value.inside:
            assert value.inside.lower() in results
        else:
            assert value.version, value
    for name in ("rlx", "numpy", "wgpu", "cffi", "pycparser", "jinja2", "markupsafe"):
        assert results[name].texts, name
        assert all(results[name].texts), name
        assert len(results[name].texts) == len(results[name].files)
    assert results["rlx"].license == "Apache-2.0"
    assert results["wgpu-native"].license == "MIT OR Apache-2.0"
    assert "Cargo.lock" in results["rust crates of wgpu-native"].home


def test_what_wheels_bundle_is_listed_where_it_is_there(installed):
    listing = (
        "Name: BLAS\nFiles: fake.libs/libblas*.so\nDescription: bundled\nLicense: BSD-3-Clause\n  text\n\n"
        "Name: Other system\nFiles: fake.libs/other*.dll\nAvailability: elsewhere\nLicense: MIT\n"
    )
    header = "License-File: LICENSE\nLicense-Expression: MIT\n"
    files = ["fake/__init__.py", "fake.libs/libblas-1.so.3"]
    installed(
        DistributionStub("rlx", "Requires-Dist: fake>=1\n"),
        DistributionStub("fake", header, files, **{"licenses/LICENSE": listing}),
    )
    *_, fake, inside = licenses()
    assert (fake.name, fake.license, fake.files, fake.texts) == (
        "fake",
        "MIT",
        ("LICENSE",),
        (listing,),
    )
    assert inside == License("BLAS", "", "BSD-3-Clause", "fake", "", (), ())


@pytest.mark.parametrize(
    ("header", "texts", "terms"),
    [
        ("License-Expression: MIT\nLicense: other\n", {}, "MIT"),
        ("License: MIT\n", {}, "MIT"),
        ("Classifier: License :: OSI Approved :: BSD License\n", {}, "BSD License"),
        ("License: The Terms\n        All rights\n", {}, "The Terms"),
        ("License-File: COPYING\n", {"COPYING": "Terms of it\n\nmore"}, "Terms of it"),
        ("", {}, ""),
    ],
)
def test_terms_come_from_what_metadata_says(installed, header, texts, terms):
    installed(DistributionStub("rlx", header, **texts))
    assert licenses()[0].license == terms


def test_older_metadata_names_no_files(installed):
    files = ["rlx/__init__.py", "rlx-1.dist-info/LICENSE.txt", "rlx/LICENSE-of-a-part"]
    installed(DistributionStub("rlx", "", files, **{"LICENSE.txt": "terms"}))
    assert licenses()[0].files == ("LICENSE.txt",)


def test_requirements_go_around_extras_and_what_is_not_here(installed):
    installed(
        DistributionStub("rlx", "Requires-Dist: a>=1\nRequires-Dist: tool\nRequires-Dist: gone; sys_platform == 'x'\n"
             "Requires-Dist: extra-one; extra == 'x'\n"),
        DistributionStub("a", "Requires-Dist: A-Part (<3)\n"),
        DistributionStub("a-part", "Requires-Dist: a\n"),
        DistributionStub("tool", "Requires-Dist: brought[more]>=2\n"),
        DistributionStub("brought"),
        DistributionStub("extra-one"),
    )  # fmt: skip
    assert requirements("rlx") == ["a", "a-part", "brought", "rlx", "tool"]
    assert requirements("rlx", without=("tool",)) == ["a", "a-part", "rlx"]


def test_a_frozen_program_lists_what_it_carries(installed, monkeypatch):
    """Metadata that was copied for a package that was left out doesn't count."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    installed(
        DistributionStub(
            "rlx", "Requires-Dist: here\nRequires-Dist: left-out\nRequires-Dist: no-files\n"
        ),
        DistributionStub("no-files"),
        DistributionStub("here", files=["here-1.dist-info/METADATA", "json/__init__.py"]),
        DistributionStub(
            "left-out", files=["left-1.dist-info/METADATA", "no_such_module/__init__.py"]
        ),
    )
    assert requirements("rlx") == ["here", "rlx"]


def test_a_program_without_metadata_says_so(installed):
    installed()
    with pytest.raises(rlx.RlxError, match="frozen") as caught:
        licenses()
    assert "docs/guides/freezing.md" in str(caught.value)


def test_without_the_library_of_wgpu(monkeypatch):
    def missing(name):
        if name.startswith("wgpu"):
            raise RuntimeError("no library")
        return plain(name)

    plain = module.importlib.import_module
    monkeypatch.setattr(module.importlib, "import_module", missing)
    names = [item.name for item in licenses()]
    assert "wgpu" in names
    assert "wgpu-native" not in names


def test_the_texts():
    text = notices()
    for item in licenses():
        assert f"{item.name} {item.version}" in text
        assert all(part in text for part in item.texts)


def test_the_command(capsys):
    assert main(["licenses"]) == 0
    table = capsys.readouterr().out
    assert "Apache-2.0" in table
    assert main(["licenses", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == json.loads(json.dumps(as_json()))
    assert all("texts" not in row for row in rows)
    assert main(["licenses", "--json", "--full"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert any("Apache License" in text for text in rows[0]["texts"])
    assert main(["licenses", "--full"]) == 0
    assert capsys.readouterr().out == notices() + "\n"
