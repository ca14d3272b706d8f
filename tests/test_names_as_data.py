"""Names of files are data: never markup, and never characters that drive a terminal, in anything that rlx shows."""

import json
import pickle
import unicodedata

import model_files
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rlx
from rlx.cli import screen
from rlx.cli.main import main
from rlx.errors import did_you_mean, printable

EVIL = "x\x1b]0;pwned\x07\x1b[2J[/red][bold]\x9b31m\u202e\u2066\nrlx: fake\r\x7f\u2028"
FAKE = "\nrlx: fake"


def clean(text):
    """Returns whether nothing in a text drives a terminal; the lines and the tables of rlx itself may stay."""
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n"}
    return not bad and FAKE not in text


def evil_model(path, op="Relu", domain="", dim=2):
    graph = helper.make_graph(
        [helper.make_node(op, [EVIL], ["y" + EVIL], name="n" + EVIL, domain=domain)],
        "g" + EVIL,
        [helper.make_tensor_value_info(EVIL, TensorProto.FLOAT, [dim])],
        [helper.make_tensor_value_info("y" + EVIL, TensorProto.FLOAT, [dim])],
    )
    sets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    result = helper.make_model(graph, opset_imports=sets, ir_version=8, producer_name=EVIL)
    onnx.save(result, path)
    return str(path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path


COMMANDS = {
    "run": ["run", "{good}", "--device", "cpu"],
    "run with an open dimension": ["run", "{open}", "--device", "cpu"],
    "run an operator": ["run", "{op}"],
    "run a domain": ["run", "{domain}"],
    "run with a dimension": ["run", "{good}", "--dim", f"{EVIL}=3"],
    "run with an input": ["run", "{good}", "--input", f"{EVIL}1=none.npy"],
    "run a path": ["run", f"none{EVIL}.onnx"],
    "profile": ["profile", "{good}", "--device", "cpu", "--nodes", "--runs", "2"],
    "bench": ["bench", "{good}", "--devices", "cpu", "--seconds", "0.01"],
    "bench with an output": ["bench", "{good}", "--expect", f"{EVIL}=none.npy"],
    "bench of a failure": ["bench", "{good}", "--devices", "cuda", "--seconds", "0.01"],
    "convert": ["convert", "{good}", "-o", "{folder}/x.rlx"],
    "a device": ["run", "{good}", "--device", EVIL],
    "devices": ["devices", "--graph", "{json}"],
    "no graph": ["devices", "--graph", "{good}"],
    "regress": ["regress", "show", "{good}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name, folder, capfd):
    files = {
        "folder": folder,
        "good": evil_model(folder / "good.onnx"),
        "open": evil_model(folder / "open.onnx", dim=EVIL),
        "op": evil_model(folder / "op.onnx", op="No" + EVIL),
        "domain": evil_model(folder / "domain.onnx", op="Foo", domain="d" + EVIL),
        "json": folder / "g.json",
    }
    files["json"].write_text(rlx.onnx.load(files["good"]).to_json())
    status = main([part.format(**files) for part in COMMANDS[name]])
    out, err = capfd.readouterr()
    assert out or err
    assert clean(out)
    assert clean(err)
    assert status in (0, 1, 2)


def test_rlx_files(folder, capfd):
    rlx.save_model(rlx.onnx.load(evil_model(folder / "good.onnx")), folder / "x.rlx")
    for command in (["run", "--device", "cpu"], ["profile", "--device", "cpu", "--runs", "2"]):
        assert main([command[0], str(folder / "x.rlx"), *command[1:]]) == 0
        assert clean("".join(capfd.readouterr()))


def test_texts_of_objects(folder, device):
    path = evil_model(folder / "good.onnx", dim=EVIL)
    with rlx.onnx.Model(path, device) as result:
        x = np.ones(2, np.float32)
        result.run(x)
        texts = [str(result.inputs[0]), repr(result), str(result.report())]
        cg = result.compile(x)
        texts += [cg.as_text(stage) for stage in ("graph", "fused", "schedule", "memory")]
        texts.append(repr(cg.host_fallbacks))
        if cg.capabilities.device_timestamps:
            texts.append(str(cg.profile({EVIL: x}, 1)))
    graph = rlx.onnx.load(path, {EVIL: 2})
    texts += [str(graph), repr(graph), repr(graph.nodes[0]), graph.nodes[-1].where()]
    for text in texts:
        assert clean(text), text


def test_errors(folder):
    path = evil_model(folder / "good.onnx", dim=EVIL)
    tensors = model_files.safetensors_raw(json.dumps({EVIL: {"dtype": EVIL}}))
    (folder / "w.safetensors").write_bytes(tensors)
    result = rlx.safetensors.load(folder / "w.safetensors")
    gguf = model_files.gguf({"general.architecture": EVIL}, {})
    (folder / "w.gguf").write_bytes(gguf)
    assert clean(repr(rlx.gguf.load(folder / "w.gguf")))
    with rlx.onnx.Model(path, "cpu") as output:
        calls = [
            lambda: rlx.onnx.load(path, {"a" + EVIL: 2}),
            lambda: rlx.onnx.load(folder / f"none{EVIL}.onnx"),
            lambda: output.run({}),
            lambda: output.run({"a": np.ones(2)}),
            lambda: output.run({EVIL: np.ones((2, 2), np.float32)}),
            lambda: output.compile({EVIL: np.ones(2, np.complex64)}),
            lambda: rlx.onnx.Model(evil_model(folder / "op.onnx", op="No" + EVIL)),
            lambda: result[EVIL],
            lambda: result["a" + EVIL],
            lambda: rlx.Graph().input(EVIL, (2,)).graph.named("b" + EVIL),
            lambda: rlx.Device.parse(EVIL),
        ]
        for call in calls:
            with pytest.raises(rlx.RlxError) as error:
                call()
            assert clean(str(error.value)), str(error.value)


def test_messages_are_cleaned_where_they_are_made():
    error = rlx.GraphError("a\x1b[2J\nb\x85")
    assert str(error) == "a\\x1b[2J\nb\\x85"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert printable("é日本 a\tb\n\ud800") == "é日本 a\\tb\\n\\ud800"
    assert clean(did_you_mean("a", [EVIL]))


def test_the_screen_takes_no_markup(capsys):
    out = screen.Screen()
    out.print(
        screen.columns("[red]t" + EVIL, ["[b]h"], [["[/red]" + EVIL], [["one", "two" + EVIL]]])
    )
    out.print("[link=x]" + EVIL)
    screen.say("[dim]" + EVIL)
    screen.fail("rlx", "what [b]\n  where: here" + EVIL)
    result = capsys.readouterr()
    for text in ("[red]t", "[b]h", "[/red]", "[link=x]", "[dim]"):
        assert text in result.out
    assert clean(result.out.replace(FAKE, ""))
    # Programs read one line, whose parts are told apart.
    assert "rlx: what [b]; where: here" in result.err


def test_only_one_module_shows_things():
    """Whatever prints a table, a bar or a line of text from a file goes through ``rlx.cli.screen``."""
    import ast
    from pathlib import Path

    root = Path(rlx.__file__).parent
    rich = [
        path.relative_to(root).as_posix()
        for path in root.glob("**/*.py")
        for item in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(item, ast.Call)
        and isinstance(item.func, ast.Name)
        and item.func.id in ("Console", "Table", "Progress", "TextColumn")
    ]
    # A profile is text of its own, and prints names by ``printable``.
    assert sorted(set(rich) - {"compiler/progress.py", "serving/pool.py"}) == [
        "cli/screen.py",
        "runtime/profile.py",
    ]
