"""Kernel templates as Python: the texts that Jinja itself makes, errors, and what a program loads for them."""

import json
import runpy
import sys
from pathlib import Path

import jinja2
import pytest
from python_process import run_python

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.webgpu import codegen, elementwise_wgsl, template_compiler, wgsl
from rlx.backends.webgpu.template_runtime import (
    GLOBALS,
    StrictUndefined,
    Template,
    TemplateRuntimeError,
    environment,
)
from rlx.compiler.loading import programmed
from rlx.compiler.lowering import lower
from rlx.compiler.target import Target
from rlx.ir.input_sizes import computes_sizes
from rlx.lru import Lru
from rlx.ops.conformance_cases import cases

OWN = ("range", "dict", "namespace")  # Jinja has these itself


def jinja():
    result = jinja2.Environment(
        loader=jinja2.FunctionLoader(wgsl.shader_text),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    result.globals.update({name: value for name, value in GLOBALS.items() if name not in OWN})
    for own, ours in ((result.tests, environment.tests), (result.filters, environment.filters)):
        own.update({name: function for name, function in ours.items() if name not in own})
    return result


@pytest.mark.webgpu
def test_texts_are_those_of_jinja(webgpu, monkeypatch):
    """Compares the texts of a third of the conformance cases, up to 40 texts of each kernel."""
    peer, plain, seen = jinja(), wgsl.render, {}

    def both(name, context):
        text = plain(name, context)
        if seen.setdefault(name, 0) < 40:
            seen[name] += 1
            assert text == peer.get_template(f"{name}.wgsl").render(context), name
        return text

    monkeypatch.setattr(codegen, "_sources", Lru(1024, 16 << 20))
    monkeypatch.setattr(codegen, "render", both)
    monkeypatch.setattr(elementwise_wgsl, "render", both)
    target = Target.of(rlx.Device.parse(webgpu), CompileOptions())
    for index, case in enumerate(cases()):
        # Those that compute sizes have more than one graph; samples of their parts have all kernels.
        if index % 3 == 0 and not computes_sizes(case.graph()):
            programmed(lower(case.graph(), target), target)
    assert len(seen) > 60, sorted(set(wgsl.shader_paths()) - set(seen))
    assert sum(seen.values()) > 500


def rendered(text, **context):
    source = template_compiler.python_of("own", text, environment.filters, environment.tests)
    module = type(sys)("own")
    exec(source, vars(module))
    return Template(module).render(context)


LANGUAGE = (
    "{% for a, b in pairs %}{{ loop.index0 }}{{ a }}{{ b }}{{ ', ' if not loop.last }}{% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
    "{% set ns = namespace(sum=0) %}{% for x in xs %}{% set ns.sum = ns.sum + x %}{% endfor %}{{ ns.sum }}",
    "{% set x = 1 %}{% for y in xs %}{% set x = y %}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if flag %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% macro twice(x, y=3) %}{{ x }}{{ y }}{% endmacro %}{{ twice(1) }}{{ twice(1, 2) }}{{ twice(y=5, x=4) }}",
    "{% macro around(n) %}<{{ caller(n, 2) }}>{% endmacro %}{% call(a, b) around(7) %}{{ a + b }}{% endcall %}",
    "{{ xs | max }}{{ xs | min }}{{ xs | length }}{{ xs | join('-') }}{{ xs | reverse | list }}{{ '7' | int + 1 }}",
    "{{ xs | reject('divisibleby', 2) | list }}{{ '%d of %s' | format(1, 'x') }}{{ 1 | string ~ 2 }}",
    "{{ absent is defined }}{{ flag is defined }}{{ none is none }}{{ 1 is number }}{{ 'a' is number }}",
    "{{ 'yes' if flag }}{{ 'no' if not flag }}{{ deep.inner[0] }}{{ deep['inner'][1] }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 3 }}",
    "{%- if flag -%}  a  {%- endif %}\n{# nothing #}\n  {% if flag %}\nb\n  {% endif %}\nc\n",
)


@pytest.mark.parametrize("text", LANGUAGE)
def test_the_language(text):
    inputs = {
        "pairs": [(1, "a"), (2, "b")],
        "xs": [3, 4, 5],
        "flag": True,
        "deep": {"inner": (8, 9)},
    }
    peer = jinja().from_string(text)
    assert rendered(text, **inputs) == peer.render(inputs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ absent }}", "'absent' is undefined"),
        ("{{ absent + 1 }}", "'absent' is undefined"),
        ("{% if absent %}{% endif %}", "'absent' is undefined"),
        ("{% for x in absent %}{% endfor %}", "'absent' is undefined"),
        ("{{ xs[7] }}", "7 is undefined in list"),
        ("{{ xs.nope }}", "'nope' is undefined in list"),
        ("{{ absent.nope }}", "'absent' is undefined"),
        ("{% macro f(x) %}{{ x }}{% endmacro %}{{ f() }}", "'x' was not provided"),
        ("{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1, 2) }}", "macro 'f' takes x"),
        ("{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1, y=2) }}", "macro 'f' takes x"),
        ("{% include 'nope.wgsl' %}", "there is no nope.wgsl"),
    ],
)
def test_what_a_template_lacks_is_said(text, words):
    with pytest.raises(TemplateRuntimeError, match=words):
        rendered(text, xs=[1])


def test_what_is_not_there_is_no_value():
    nothing = StrictUndefined(name="x")
    for use in (str, bool, len, iter, int, hash, lambda x: x == 1, lambda x: -x, lambda x: x()):
        with pytest.raises(TemplateRuntimeError):
            use(nothing)


def test_unknown_filters_are_found_when_rlx_is_built():
    for text in ("{{ 1 | abs }}", "{{ 1 is odd }}"):
        with pytest.raises(jinja2.TemplateAssertionError):
            rendered(text)
    # Jinja leaves those inside conditions to the time of use.
    for text in ("{% if x %}{{ 1 | abs }}{% endif %}", "{% if x %}{{ 1 is odd }}{% endif %}"):
        with pytest.raises(ValueError, match="which is not among the"):
            rendered(text, x=True)


def test_kernels_name_what_is_wrong():
    with pytest.raises(
        rlx.CompileError, match=r"kernel 'nope' can't be rendered\n.*there is no nope"
    ):
        wgsl.render("nope", {})
    with pytest.raises(rlx.CompileError, match=r"kernel 'gemv' can't be rendered\n.*is undefined"):
        wgsl.render("gemv", {})


def test_a_written_package_has_every_template(tmp_path):
    shaders = Path(str(wgsl.shader_place()))
    compiler = runpy.run_path(template_compiler.__file__)
    compiler["write"](shaders, tmp_path / "made", environment.filters, environment.tests)
    modules = runpy.run_path(str(tmp_path / "made/__init__.py"))["MODULES"]
    assert (
        len(modules) == len(wgsl.shader_files()) == len(list((tmp_path / "made").glob("*.py"))) - 1
    )
    for name, module in modules.items():
        result = runpy.run_path(str(tmp_path / f"made/{module}.py"))
        assert result["name"].endswith(name)
        assert callable(result["root"])


@pytest.mark.webgpu
def test_an_installed_rlx_needs_no_jinja_for_kernels(webgpu):
    """In a checkout templates are compiled when they are used."""
    code = """
import json, sys
import rlx
g = rlx.Graph()
g.set_outputs([g.softmax(g.input("x", (4, 40)) @ g.input("w", (40, 8)), -1)])
rlx.compile(g, "webgpu").run({"x": [[1] * 40] * 4, "w": [[1] * 8] * 40})
print(json.dumps(["rlx._templates" in sys.modules, "jinja2" in sys.modules]))
"""
    compiled, jinja_loaded = json.loads(run_python("-P", "-c", code).stdout)
    assert compiled != jinja_loaded
