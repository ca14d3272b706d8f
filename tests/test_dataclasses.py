"""``rlx.dataclasses.dataclass`` makes the classes that the standard decorator makes."""

import copy
import dataclasses
import inspect
import pickle
import threading
import types

import pytest
from side_by_side import side_by_side

from rlx import dataclasses as rlx_dataclasses

OPTIONS = [
    {},
    {"frozen": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"slots": True},
    {"slots": True, "eq": False},
]


def plain():
    class Datum:
        """A sample."""

        a: int
        b: str = "b"
        c: list = dataclasses.field(default_factory=list)
        d: int = dataclasses.field(default=4, repr=False, compare=False)
        e: int = dataclasses.field(default=5, kw_only=True)

    return Datum


def empty():
    class Datum:
        """No fields."""

    return Datum


def with_methods():
    class Datum:
        """Has methods of its own, which stay."""

        a: int
        b: int = 2

        def __repr__(self):
            return "mine"

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

    return Datum


def equal_alone():
    class Datum:
        """Says when instances are equal, and not how they are hashed."""

        a: int
        b: int = 2

        def __eq__(self, other):
            return True

    return Datum


def after():
    class Datum:
        """Checks what it is given."""

        a: int
        b: int = 2

        def __post_init__(self):
            if self.a < 0:
                raise ValueError("negative")

    return Datum


def unlisted():
    class Datum:
        """A field that no caller gives."""

        a: int
        b: list = dataclasses.field(init=False, default_factory=list)

    return Datum


def own_init():
    class Datum:
        """Is made in another way than by its fields."""

        a: int
        b: int

        def __init__(self, text):
            object.__setattr__(self, "a", int(text))
            object.__setattr__(self, "b", 2)

    return Datum


BODIES = [plain, empty, with_methods, equal_alone, after, unlisted, own_init]
CALLS = [
    ((), {}),
    ((1,), {}),
    ((1, "x"), {}),
    ((1,), {"e": 6}),
    (("3",), {}),
    ((1, 2, [3], 4, 5), {}),
    ((-1,), {}),
]


def result(call):
    """Returns the result of a call, or the type and text of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error).replace("<locals>.", "")


def traits(cls, args, kwargs):
    """Everything that can be seen of a class and of instances made of some arguments."""
    output = result(lambda: cls(*args, **kwargs))
    seen = [
        str(inspect.signature(cls)),
        [(f.name, f.type, f.repr, f.compare, f.init, f.kw_only) for f in dataclasses.fields(cls)],
        cls.__match_args__,
        cls.__doc__,
        cls.__hash__ is None,
        "__slots__" in cls.__dict__,
    ]
    if not isinstance(output, cls):
        return [*seen, output]
    other, last = cls(*args, **kwargs), copy.copy(output)
    seen += [
        repr(output),
        output == other,
        output != other,
        output == last,
        output == 3,
        result(lambda: hash(output) == hash(other)),
        result(lambda: dataclasses.asdict(output)),
        result(lambda: repr(dataclasses.replace(output, a=9))),
    ]
    for change in (
        lambda: setattr(output, "a", 5),
        lambda: setattr(output, "z", 5),
        lambda: delattr(output, "a"),
    ):
        seen.append(result(change))
        seen.append(result(lambda: output.a))
    return seen


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_it_does_what_the_standard_decorator_does(body, options):
    for args, kwargs in CALLS:
        standard = dataclasses.dataclass(**options)(body())
        ours = rlx_dataclasses.dataclass(**options)(body())
        assert traits(ours, args, kwargs) == traits(standard, args, kwargs), (args, kwargs)


@pytest.mark.parametrize("decorate", [rlx_dataclasses.dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("frozen", [False, True])
def test_subclasses(frozen, decorate):
    base = rlx_dataclasses.dataclass(frozen=frozen)(plain())

    @decorate(frozen=frozen)
    class Derived(base):
        """One field more."""

        f: int = 6

    derived = Derived(1, "b", [], 4, 7, e=8)
    assert (derived.a, derived.e, derived.f) == (1, 8, 7)
    assert derived == Derived(1, "b", [], 4, 7, e=8) != Derived(1)
    assert derived != base(1)
    assert base(1) == base(1)
    assert "f=7" in repr(derived)
    assert (result(lambda: setattr(derived, "f", 1)) is None) is not frozen
    # A plain subclass of a frozen class may have attributes of its own.
    bare = types.new_class("Bare", (base,))(1)
    bare.more = 3
    assert (result(lambda: setattr(bare, "a", 1)) is None) is not frozen


@pytest.mark.parametrize("decorate", [rlx_dataclasses.dataclass, dataclasses.dataclass])
def test_frozen_and_others_are_not_mixed(decorate):
    base = rlx_dataclasses.dataclass(frozen=True)(plain())
    with pytest.raises(TypeError, match="frozen"):
        decorate(type("Derived", (base,), {"__annotations__": {"f": int}, "f": 0, "__doc__": ""}))


@rlx_dataclasses.dataclass(frozen=True)
class Kept:
    """A class that pickle finds."""

    a: int
    b: str = "b"


@rlx_dataclasses.dataclass(slots=True)
class Slotted:
    """The same with slots."""

    a: int
    b: str = "b"


@pytest.mark.parametrize("cls", [Kept, Slotted])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_and_copies(cls, protocol):
    first = cls(3)
    for other in (
        pickle.loads(pickle.dumps(first, protocol)),
        copy.deepcopy(first),
        copy.copy(first),
    ):
        assert other == first
        assert repr(other) == repr(first)


def test_frozen_with_slots_is_refused():
    with pytest.raises(TypeError, match="no slots"):
        rlx_dataclasses.dataclass(frozen=True, slots=True)(plain())


def test_methods_are_written_when_they_are_used():
    cls = rlx_dataclasses.dataclass(frozen=True)(plain())
    placeholders = {"__init__", "__repr__", "__eq__", "__hash__"}
    assert all(type(cls.__dict__[name]) is rlx_dataclasses._Later for name in placeholders)
    single = cls(1)
    assert type(cls.__dict__["__init__"]) is types.FunctionType
    assert type(cls.__dict__["__eq__"]) is rlx_dataclasses._Later
    assert single == cls(1)
    assert all(
        type(cls.__dict__[name]) is rlx_dataclasses._Later for name in ("__repr__", "__hash__")
    )


def test_threads_may_come_first_together():
    for _ in range(20):
        cls = rlx_dataclasses.dataclass(frozen=True)(plain())
        cls.c = ()  # so that instances can be hashed
        start, output = threading.Barrier(8), []

        def use(cls=cls, start=start, value=output):
            start.wait()
            single = cls(1, c=())
            value.append((repr(single), hash(single), single == cls(1, c=())))

        side_by_side(*[use] * 8)
        assert len(output) == 8
        assert len(set(output)) == 1
        assert output[0][2]
