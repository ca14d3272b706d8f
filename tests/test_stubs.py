"""The stubs of the operations say what the records say, and what rlx does when it runs."""

import ast
import inspect
from pathlib import Path

import pytest
from python_process import run_python

import rlx
from rlx.ir.opdef import REGISTRY
from rlx.ops.conformance_cases import cases

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(rlx.__file__).resolve().parent
METHODS, FUNCTIONS = PACKAGE / "ir/builders.pyi", PACKAGE / "ops/__init__.pyi"
BUILDERS = {record.name: record for record in REGISTRY.values() if not record.internal}
# How many nodes a builder returns, by the type of its result.
RESULTS = {
    "Node": 1,
    "tuple[Node, Node]": 2,
    "tuple[Node, Node, Node]": 3,
    "tuple[Node, Node, Node, Node]": 4,
}


def definitions(path):
    """The functions of a stub by name, those of its classes included."""
    result = ast.walk(ast.parse(path.read_text()))
    return {node.name: node for node in result if isinstance(node, ast.FunctionDef)}


def test_they_are_up_to_date():
    """``script/stubs`` would write what is there."""
    run_python(ROOT / "script/stubs", "--check")


def test_the_reference_of_a_clone_is_up_to_date(tmp_path):
    """``script/reference`` would write what is there, and finds a page that is another."""
    run_python(ROOT / "script/reference", "--check")
    plain = ROOT / "docs/reference/plain"
    names = {path.name for path in plain.glob("*.md")}
    assert {"index.md", "operations.md", "graphs.md", "errors.md"} <= names
    text = "".join(path.read_text(encoding="utf-8") for path in plain.glob("*.md"))
    assert "{eval-rst}" not in text
    public = [name for name in BUILDERS if f"### `{name}(" not in text]
    assert public == []


def test_a_changed_record_is_found(tmp_path):
    """A stub that differs in one default is named."""
    results = (
        "rlx/ir/builders.pyi",
        "rlx/ops/__init__.pyi",
        "rlx/ir/op_index.py",
        "rlx/importers/onnx/operator_index.py",
        "rlx/signal/__init__.pyi",
    )
    for path in ("script/stubs", "script/_setup.py", *results):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((ROOT / path).read_bytes())
    command = (tmp_path / "script/stubs", "--check")
    assert run_python(*command, cwd=tmp_path).stdout == ""
    stub = tmp_path / "rlx/ir/builders.pyi"
    stub.write_text(stub.read_text().replace("eps: float = 1e-05", "eps: float = 1e-06", 1))
    other = run_python(*command, cwd=tmp_path, status=1)
    assert other.stdout.splitlines() == [
        "rlx/ir/builders.pyi does not say what the records say; run script/stubs"
    ]


@pytest.mark.parametrize(("path", "first"), [(METHODS, ["self"]), (FUNCTIONS, [])])
def test_they_have_every_builder(path, first):
    """Names, parameters, defaults and docstrings are those that Python shows."""
    stubs = definitions(path)
    assert set(stubs) == set(BUILDERS) == set(rlx.ops.__all__)
    for name in BUILDERS:
        result = getattr(rlx.Graph if first else rlx.ops, name)
        shown = inspect.signature(result).parameters.values()
        stub, listed = stubs[name], stubs[name].args
        arguments = [*listed.args, *filter(None, [listed.vararg]), *listed.kwonlyargs]
        assert [a.arg for a in arguments] == [p.name for p in shown], name
        assert ast.get_docstring(stub) == inspect.getdoc(result), name
        defaults = [
            ast.literal_eval(d) for d in (*listed.defaults, *filter(None, listed.kw_defaults))
        ]
        assert defaults == [p.default for p in shown if p.default is not p.empty], name


def test_parameters_have_types():
    """Nothing but the results of subgraphs and the values of a custom operation's attributes may be anything."""
    open_ended = {
        f"{name}.{getattr(node, 'arg', 'result')}"
        for name, stub in definitions(METHODS).items()
        for node in (*stub.args.args[1:], *stub.args.kwonlyargs, stub)
        if "Any" in ast.unparse(getattr(node, "annotation", None) or getattr(node, "returns", None))
    }
    subgraphs = {f"{name}.result" for name in ("if_", "while_", "scan", "custom")}
    windows = {f"{name}.window" for name in ("stft", "istft")}
    assert open_ended == subgraphs | windows | {"custom.attrs"}


def test_results_are_as_many_as_they_say():
    """Every sample gives a node, or as many as the stub's tuple has."""
    stubs, seen = definitions(METHODS), set()
    for case in cases():
        name = case.opdef.name
        if name not in stubs or name in seen:
            continue
        seen.add(name)
        says = ast.unparse(stubs[name].returns)
        outputs = len(case.graph().outputs)
        if says in RESULTS:
            assert outputs == RESULTS[says], name
        else:
            assert says == ("tuple[Node, ...]" if name == "split" else "Any"), name
    assert seen >= {"gelu", "topk", "lstm", "split", "stft"}
