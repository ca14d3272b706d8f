"""The completions of editors: jedi (IPython, vim, Emacs) and pyright's language server (Pylance in VS Code)."""

import gc
import json
import subprocess
import sys
import warnings
from contextlib import contextmanager

import jedi
import pytest

import rlx

PROGRAM = """\
import rlx
g = rlx.Graph("mlp")
x = g.input("x", (2, 3))
y = g.layer_norm(x)
z = rlx.ops.gelu(x)
"""
LAYER_NORM = "layer_norm(x: Operand, weight: Operand | None=None, bias: Operand | None=None, axis: int=-1, eps: float=1e-05) -> Node"


@pytest.fixture(scope="module")
def written():
    """jedi on the program, with a last line that somebody is writing."""
    here = [jedi.create_environment(sys.prefix, safe=False)]

    def script(text, folder):
        result = jedi.Script(f"{PROGRAM}{text}", path=folder / "program.py", environment=here[0])
        return result, len(text)

    yield script
    # jedi ends the process that it started without waiting for it, and Python warns of that.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        here.clear()
        gc.collect()


@pytest.mark.parametrize("text", ["g.layer_n", "rlx.ops.layer_n", "y = x.graph.layer_n"])
def test_jedi_completes_and_shows_the_docstring(text, tmp_path, written):
    script, column = written(text, tmp_path)
    (result,) = script.complete(6, column)
    assert result.name == "layer_norm"
    shown = result.docstring()
    assert shown.startswith(LAYER_NORM)
    assert rlx.Graph.layer_norm.__doc__.splitlines()[0] in shown


def test_jedi_knows_results_and_parameters(tmp_path, written):
    script, column = written("y.sha", tmp_path)
    assert [item.name for item in script.complete(6, column)] == ["shape"]
    script, column = written("g.topk(x, ", tmp_path)
    (signature,) = script.get_signatures(6, column)
    assert [p.name for p in signature.params] == ["x", "k", "axis", "largest"]
    assert signature.index == 1


def test_jedi_in_an_interpreter():
    """IPython and notebooks complete objects that are there."""
    names = [item.name for item in jedi.Interpreter("g.conv", [{"g": rlx.Graph()}]).complete()]
    assert {"conv1d", "conv2d", "conv_transpose2d"} <= set(names)


class Server:
    """A language server that is spoken to over its standard streams."""

    def __init__(self, process):
        self.process, self.count = process, 0

    def send(self, **message):
        raw = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
        self.process.stdin.flush()

    def receive(self):
        length = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert length, "the language server has ended"
        return json.loads(self.process.stdout.read(length))

    def ask(self, method, **params):
        """The answer to a request; what the server asks in the meantime, it is told."""
        self.count += 1
        self.send(id=self.count, method=method, params=params)
        while True:
            said = self.receive()
            if "method" not in said and said["id"] == self.count:
                assert "error" not in said, said
                return said["result"]
            if "method" in said and "id" in said:
                items = said.get("params", {}).get("items", [])
                settings = [
                    {"pythonPath": sys.executable} if i.get("section") == "python" else {}
                    for i in items
                ]
                self.send(id=said["id"], result=settings)


@contextmanager
def language_server(folder):
    """pyright's language server with the program open."""
    command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        server = Server(process)
        root = folder.as_uri()
        can = {"workspace": {"configuration": True}}
        hover = {"textDocument": {"hover": {"contentFormat": ["plaintext"]}}}
        folders = [{"uri": root, "name": "root"}]
        server.ask(
            "initialize",
            processId=None,
            rootUri=root,
            workspaceFolders=folders,
            capabilities=can | hover,
        )
        server.send(method="initialized", params={})
        try:
            yield server
        finally:
            server.ask("shutdown")
            server.send(method="exit")


def test_the_language_server_completes_and_shows_the_docstring(tmp_path):
    """Completion, hover and the parameters of a call, as an editor asks for them."""
    text = f"{PROGRAM}g.layer_n\ng.topk(x, \n"
    uri = (tmp_path / "program.py").as_uri()
    lines = text.splitlines()
    with language_server(tmp_path) as server:
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        server.send(method="textDocument/didOpen", params={"textDocument": document})

        def asked(what, line, column):
            place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}
            return server.ask(f"textDocument/{what}", **place)

        result = asked("completion", 5, len(lines[5]))["items"]
        assert "layer_norm" in [item["label"] for item in result]
        for line, name in ((3, "layer_norm"), (4, "gelu")):
            shown = json.dumps(asked("hover", line, lines[line].index(name)), ensure_ascii=False)
            assert f"def {name}(" in shown
            assert "x: Operand" in shown
            assert "-> Node" in shown
            assert getattr(rlx.ops, name).__doc__.splitlines()[0][:20] in shown
        (signature,) = asked("signatureHelp", 6, len(lines[6]))["signatures"]
        assert "k: int" in signature["label"]
        assert "largest: bool = True" in signature["label"]
        assert signature["activeParameter"] == 1
    assert server.process.returncode == 0
