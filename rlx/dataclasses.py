"""``dataclass``, whose methods are written when they are first used.

The standard decorator writes and compiles six methods of each class when its module is imported: 0.4 ms, for more than a hundred
classes in the first second of a program, most of which never compare, print or hash anything. This one has the standard
decorator collect the fields, and puts a placeholder where each method goes. What a class does is the same.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False):
        """``dataclasses.dataclass`` with the options that rlx uses.

        Args:
            cls: The class; None where the decorator is called with options.
            frozen: Whether fields can't be assigned. Not together with ``slots``.
            eq: Whether instances are equal when their fields are.
            slots: Whether the class has slots instead of a dictionary.

        Example:
            >>> @dataclass(frozen=True)
            ... class Point:
            ...     x: int
            ...     y: int = 0
            >>> Point(1) == Point(1, 0), Point(3)
            (True, Point(x=3, y=0))
        """
        if cls is None:
            return lambda value: dataclass(value, frozen=frozen, eq=eq, slots=slots)
        return _make_class(cls, frozen, eq, slots)


class _Factory:
    """The default of a field that is made anew for each instance, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Later:
    """Stands for a method of a class until that is looked up."""

    __slots__ = ("_cls", "_name", "_write")

    def __init__(self, cls: type, name: str, write: Callable[[type, str], Any]) -> None:
        self._cls, self._name, self._write = cls, name, write

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        # Two threads that come here at once write equal methods.
        method = self._write(self._cls, self._name)
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


def _make_class(cls: type, frozen: bool, eq: bool, slots: bool) -> Any:
    if frozen and slots:
        raise TypeError(f"{cls.__qualname__}: a frozen class has no slots here")
    own = cls.__dict__
    methods = {"__init__": _initialiser, "__repr__": _standard}
    # The rules of the standard decorator: a class that defines a method keeps it.
    wanted = {name: write for name, write in methods.items() if name not in own}
    hashes = own.get("__hash__") is not None
    if eq and "__eq__" not in own:
        wanted["__eq__"] = _standard
    if eq and frozen and not hashes:
        wanted["__hash__"] = _standard
    unhashable = eq and not frozen and "__hash__" not in own
    # The standard decorator checks that both a class and its base are frozen, or neither is.
    inherits = frozen and any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
    collect = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=inherits, slots=slots)
    result: Any = collect(cls)
    for name, write in wanted.items():
        setattr(result, name, _Later(result, name, write))
    if unhashable:
        result.__hash__ = None
    if frozen:
        result.__dataclass_params__.frozen = True  # subclasses by the standard decorator ask for it
        result.__setattr__, result.__delattr__ = _refuse_set, _refuse_delete
    return result


def _refuse_set(self: Any, name: str, value: Any) -> None:
    _check_open(self, name, "assign to")
    object.__setattr__(self, name, value)


def _refuse_delete(self: Any, name: str) -> None:
    _check_open(self, name, "delete")
    object.__delattr__(self, name)


def _check_open(item: Any, name: str, what: str) -> None:
    kind = type(item)
    if "__dataclass_fields__" in kind.__dict__ or name in kind.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")


def _standard(cls: type, name: str) -> Any:
    """A method as the standard decorator writes it, for a subclass that has the same fields."""
    frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    body = {"__slots__": (), "__doc__": "", "__module__": cls.__module__}
    decorate = dataclasses.dataclass(init=False, unsafe_hash=True, frozen=frozen)
    return decorate(type(cls.__name__, (cls,), body)).__dict__[name]


def _initialiser(cls: type, name: str) -> Any:
    """``__init__``: it sets fields as they are given, and calls ``__post_init__`` where there is one."""
    frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    names: dict[str, Any] = {"put": object.__setattr__, "not_given": _FACTORY}
    first: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        value = field.name
        default = "" if field.default is dataclasses.MISSING else f" = default_{field.name}"
        names[f"default_{field.name}"] = field.default
        if field.default_factory is not dataclasses.MISSING:
            names[f"make_{field.name}"] = field.default_factory
            default = " = not_given"
            value = f"make_{value}()" + (
                f" if {value} is not_given else {value}" if field.init else ""
            )
        elif not field.init:
            continue  # the class holds its default, or __post_init__ sets it
        if field.init:
            (keyword if field.kw_only else first).append(f"{field.name}{default}")
        body.append(
            f"put(self, {field.name!r}, {value})" if frozen else f"self.{field.name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *first, *(["*", *keyword] if keyword else [])])
    lines = "\n  ".join(body or ["pass"])
    text = f"def write({', '.join(names)}):\n def {name}({parameters}):\n  {lines}\n return {name}"
    results: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), results)
    method = results["write"](**names)
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    method.__annotations__ = {
        **{field.name: field.type for field in dataclasses.fields(cls) if field.init},
        "return": None,
    }
    return method
