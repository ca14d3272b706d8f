"""Templates of patterns: operands in both orders, names that have to agree, numbers, what is inside."""

import pytest

import rlx
from rlx.passes.patterns.template import Named, Number, OneOf, Op, Outside, Reshaped, Scaled, first

SUM_OF_PRODUCT = Op("add", Op("mul", Outside("a"), Outside("b")), Outside("c"))


@pytest.fixture
def g():
    return rlx.Graph()


@pytest.fixture
def x(g):
    return g.input("x", (2, 4))


@pytest.fixture
def y(g):
    return g.input("y", (2, 4))


def test_operands_are_tried_in_both_orders(g, x, y):
    for node in (g.add(g.mul(x, y), x), g.add(x, g.mul(x, y))):
        result = first(SUM_OF_PRODUCT, node)
        assert (result.named["a"], result.named["b"], result.named["c"]) == (x, y, x)
        assert [item.op for item in result.inside] == ["mul", "add"]
    assert first(SUM_OF_PRODUCT, g.sub(g.mul(x, y), x)) is None


def test_order_matters_where_the_operation_says_so(g, x, y):
    template = Op("sub", Op("exp", Outside("a")), Outside("b"))
    assert first(template, g.sub(g.exp(x), y)) is not None
    assert first(template, g.sub(y, g.exp(x))) is None


def test_a_name_is_one_node(g, x, y):
    square = Op("mul", Outside("a"), Outside("a"))
    assert first(square, g.mul(x, x)).named == {"a": x}
    assert first(square, g.mul(x, y)) is None
    # The first order of the inner operands does not fit, and the second does.
    twice = Op("add", Op("mul", Outside("a"), Outside("b")), Op("exp", Outside("a")))
    assert first(twice, g.add(g.mul(y, x), g.exp(x))).named == {"a": x, "b": y}


def test_numbers_and_factors(g, x):
    template = Scaled(Op("add", Outside("a"), Number(3.0)), 0.25)
    assert first(template, g.div(g.add(g.constant(3.0), x), g.constant(4.0))).named == {"a": x}
    assert first(template, g.mul(g.add(x, g.constant(3.0)), g.constant(0.25))) is not None
    assert first(template, g.mul(g.add(x, g.constant(3.5)), g.constant(0.25))) is None
    assert first(template, g.add(x, g.constant(3.0))) is None, "a factor has to be there"
    single = g.input("one", (4,))
    wider = g.add(single, g.constant([[3.0]]))
    assert first(Op("add", Outside("a"), Number(3.0)), wider) is None, "the number adds an axis"


def test_checks_see_the_node_and_the_names(g, x):
    wide = Op("exp", Outside("a"), name="result", fits=lambda node: node.shape == (2, 4))
    assert first(wide, g.exp(x)).named["result"].op == "exp"
    assert first(wide, g.exp(g.input("z", (3,)))) is None
    never = Op("exp", Outside("a"), name="result", agree=lambda named: named["a"] is None)
    assert first(never, g.exp(x)) is None


def test_one_of_several_named_and_reshaped(g, x):
    either = OneOf((Op("exp", Outside("a")), Op("log", Outside("a"))))
    for node in (g.exp(x), g.log(x)):
        assert first(Named("level", either), node).named == {"level": node, "a": x}
    flat = g.reshape(g.reshape(g.exp(x), (1, 2, 4)), (2, 1, 4))
    assert [item.op for item in first(Reshaped(either), flat).inside] == [
        "exp",
        "reshape",
        "reshape",
    ]
    assert first(Reshaped(either), g.reshape(g.exp(x), (8,))) is None
