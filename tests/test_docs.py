"""The documentation site: pages of the operations from their records, examples that run."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.cli.ops import public_ops
from rlx.ir.shape import is_sized

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OPS = public_ops()


@pytest.fixture(autouse=True)
def extensions(monkeypatch):
    """The extensions of the site can be imported."""
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))


def test_every_operation_stands_on_one_page():
    from op_families import TITLES, families

    names = [opdef.name for family in families() for opdef in family.ops]
    assert sorted(names) == [opdef.name for opdef in OPS]
    assert [family.name for family in families()] == [name.replace(".", "-") for name in TITLES]


@looped("opdef", OPS, ids=lambda opdef: opdef.name)
def test_example_runs_on_the_cpu(opdef):
    """Runs a docstring's own example as a doctest, or else the example that is made of a sample."""
    from op_examples import chosen, own_example

    if own_example(opdef):
        parsed = doctest.DocTestParser().get_doctest(opdef.doc, {}, opdef.name, None, None)
        assert doctest.DocTestRunner(verbose=False).run(parsed).failed == 0
        return
    case, text = chosen(opdef)
    names = {}
    exec(compile(text, opdef.name, "exec"), names)
    graph = names["g"]
    types = ", ".join(str(node.type) for node in graph.outputs)
    assert text.endswith(f"# {types}")
    with rlx.compile(graph, device="cpu") as cg:
        results = cg.run(dict(zip(graph.input_names, case.operands(), strict=True)))
    for result, node in zip(results, graph.outputs, strict=True):
        assert len(result.shape) == len(node.shape)
        pairs = zip(result.shape, node.shape, strict=True)
        assert all(is_sized(size) or got == size for got, size in pairs)


def test_literals():
    from op_examples import UnshowableError, literal

    for value in (None, True, 3, 0.5, "a", (1,), (1, (2, 3)), [0.25], {"a": 1}):
        assert eval(literal(value)) == value
    assert literal(rlx.DType.F16) == '"f16"'
    assert literal(np.float32(2)) == "2.0"
    assert eval(literal(np.arange(3, dtype=np.int32))).dtype == np.int32
    with pytest.raises(UnshowableError):
        literal(rlx.Graph())


def test_errors_are_those_of_the_checks():
    from op_errors import raised

    record = next(opdef for opdef in OPS if opdef.name == "matmul")
    result = raised(record)
    assert any(said.startswith("shapes do not fit (expected: ") for said in result["ShapeError"])
    g = rlx.Graph()
    with pytest.raises(rlx.ShapeError, match="shapes do not fit"):
        g.matmul(g.input("a", (2, 3)), g.input("b", (4, 5)))


def test_the_public_names_have_a_page():
    """Every public name of rlx, rlx.lm and rlx.signal stands in the reference."""
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    documented = set(re.findall(r"auto\w+:: rlx\.(\S+)", text))
    modules = {"cost", "gguf", "lm", "onnx", "ops", "safetensors", "signal", "__version__"}
    assert set(rlx.__all__) - modules - documented == set()
    assert {f"signal.{name}" for name in rlx.signal.__all__} <= documented
    # The page of architectures describes this table in its text.
    assert {f"lm.{name}" for name in rlx.lm.__all__} - documented == {"lm.ARCHITECTURES"}


def test_docstrings_become_text_without_markup():
    from docstrings import to_rst

    assert to_rst("|z| times a * b, ``x * y`` and x_") == r"\|z\| times a \* b, ``x * y`` and x\_"
    assert to_rst(">>> a * b") == ">>> a * b"
    assert to_rst("Here::") == "Here::"


def test_every_page_can_be_reached():
    """Each page stands in the table of contents of its folder."""
    for folder in (
        DOCS,
        *(DOCS / name for name in ("tutorials", "guides", "reference", "explanation")),
    ):
        listed = (folder / "index.md").read_text().split("```{toctree}")[1].split("```")[0].split()
        pages = {page.stem for page in folder.glob("*.md")} - {"index"}
        assert pages == {name for name in listed[1:] if "/" not in name}, folder
