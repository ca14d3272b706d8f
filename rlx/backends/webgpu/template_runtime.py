"""Runs the Python functions that kernel templates are compiled to; see ``template_compiler``.

A compiled template is a module with a function ``root(context)`` that yields pieces of text. It names the classes and
functions of this module as Jinja's own runtime names them, since Jinja's compiler writes it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

# A name that a template does not have.
missing: Any = type("Missing", (), {"__repr__": lambda self: "missing"})()
_NO_ESCAPING = SimpleNamespace(autoescape=False, volatile=False)


@functools.cache
def _sizes() -> Any:
    """The arithmetic of sizes. The build runs this module by itself, without the package."""
    from rlx import sizes

    return sizes


class TemplateRuntimeError(Exception):
    """A template can't be rendered."""


class StrictUndefined:
    """A value that is not there. Every use but the test ``is defined`` fails.

    Args:
        hint: The cause, if it is known.
        name: The name or position that was asked for.
        obj: The object that it was asked of, if that is no template.
    """

    def __init__(self, hint: str | None = None, name: object = None, obj: object = missing) -> None:
        of = "" if obj is missing else f" in {type(obj).__name__}"
        self._text = hint or f"{name!r} is undefined{of}"

    def _fail(self, *_: object, **__: object) -> NoReturn:
        raise TemplateRuntimeError(self._text)

    def __getattr__(self, name: str) -> NoReturn:
        self._fail()


# Every use of an object that Python asks its class for.
for _special in (
    *("str", "iter", "bool", "len", "call", "eq", "ne", "hash", "neg", "int", "index"),
    *("lt", "le", "gt", "ge", "getitem", "contains", "add", "radd", "sub", "rsub", "mul", "rmul"),
    *("mod", "rmod", "floordiv", "rfloordiv", "truediv", "rtruediv"),
):
    setattr(StrictUndefined, f"__{_special}__", StrictUndefined._fail)


class Undefined:
    """The value of ``a if b`` where b is false: no text."""

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def __str__(self) -> str:
        return ""

    def __bool__(self) -> bool:
        return False


class Namespace:
    """The result of ``namespace(...)``: variables that loops and macros may change."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value


class LoopContext:
    """``loop`` inside a loop: where it is. Iterating gives each item with it."""

    def __init__(self, items: Iterable[Any], undefined: type[StrictUndefined]) -> None:
        self._items, self.index0 = list(items), -1
        self.length = len(self._items)

    @property
    def index(self) -> int:
        """The position from 1 on."""
        return self.index0 + 1

    @property
    def first(self) -> bool:
        """True for the first item."""
        return self.index0 == 0

    @property
    def last(self) -> bool:
        """True for the last item."""
        return self.index == self.length

    def __iter__(self) -> Iterator[tuple[Any, LoopContext]]:
        for i, item in enumerate(self._items):
            self.index0 = i
            yield item, self


class Macro:
    """A macro, or the block of a call: a function of text."""

    def __init__(
        self,
        environment: Environment,
        function: Callable[..., str],
        name: str | None,
        args: Sequence[str],
        *flags: bool,
    ) -> None:
        # The flags: it takes other keywords, other positions, a caller; and Jinja's autoescape.
        self._function, self._name, self._arguments = function, name, args
        self._takes_caller = flags[2]

    def __call__(self, *args: Any, **keywords: Any) -> str:
        """Its text.

        Raises:
            TemplateRuntimeError: It takes no such arguments.
        """
        rest = self._arguments[len(args) :]
        arguments = [*args, *(keywords.pop(name, missing) for name in rest)]
        if self._takes_caller:
            arguments.append(keywords.pop("caller", StrictUndefined("no caller", name="caller")))
        if keywords or len(args) > len(self._arguments):
            raise TemplateRuntimeError(f"macro {self._name!r} takes {', '.join(self._arguments)}")
        return self._function(*arguments)


class Context:
    """The variables of one rendering of a template.

    Args:
        parent: The variables passed to it.

    Attributes:
        vars: The variables that it sets.
        exported_vars: Names of the variables that an import exports.
    """

    eval_ctx = _NO_ESCAPING

    def __init__(self, parent: Mapping[str, Any]) -> None:
        self._parent = parent
        self.vars: dict[str, Any] = {}
        self.exported_vars: set[str] = set()

    def resolve_or_missing(self, name: str) -> Any:
        """The variable of that name."""
        result = self.vars.get(name, missing)
        return self._parent.get(name, missing) if result is missing else result

    def get_all(self) -> Mapping[str, Any]:
        """Returns all variables, for included and imported templates."""
        return {**self._parent, **self.vars} if self.vars else self._parent

    @staticmethod
    def call(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Calls a function or a macro."""
        keywords.pop("_loop_vars", None)
        keywords.pop("_block_vars", None)
        return function(*args, **keywords)


class Template:
    """A compiled template.

    Args:
        module: Its module.

    Attributes:
        root_render_func: Yields the text.
    """

    def __init__(self, module: ModuleType) -> None:
        self.root_render_func: Callable[[Context], Iterator[str]] = module.root

    @staticmethod
    def new_context(
        variables: Mapping[str, Any], shared: bool = False, own: Mapping[str, Any] | None = None
    ) -> Context:
        """A context of these variables and those of the template that includes or imports this one."""
        parent = dict(variables) if shared else {**GLOBALS, **variables}
        parent.update({name: value for name, value in (own or {}).items() if value is not missing})
        return Context(parent)

    def make_module(
        self, variables: Mapping[str, Any], shared: bool, own: Mapping[str, Any]
    ) -> SimpleNamespace:
        """Returns the module that an import gives: macros and variables by name."""
        context = self.new_context(variables, shared, own)
        for _ in self.root_render_func(context):
            pass
        return SimpleNamespace(**{name: context.vars[name] for name in context.exported_vars})

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text for these variables.

        Raises:
            TemplateRuntimeError: The template reads an undefined variable, or calls a macro wrongly.
        """
        return "".join(self.root_render_func(self.new_context(variables)))


class Environment:
    """The state that compiled templates share."""

    undefined = StrictUndefined
    concat = staticmethod("".join)
    # Finds a template by the name of its file.
    find: Callable[[str], Template]

    def get_template(self, name: str, asking: str | None = None) -> Template:
        """A template that another one asks for."""
        return self.find(name)

    @staticmethod
    def getattr(thing: Any, name: str) -> Any:
        """``thing.name``: an attribute, else an item."""
        try:
            return getattr(thing, name)
        except AttributeError:
            return Environment.getitem(thing, name)

    @staticmethod
    def getitem(thing: Any, key: Any) -> Any:
        """``thing[key]``; a position holds for this number alone."""
        try:
            return thing[_sizes().pinned(key) if isinstance(key, _sizes().SizeExpr) else key]
        except (LookupError, TypeError):
            return StrictUndefined(name=key, obj=thing)

    # The tests (after ``is``) and the filters (after ``|``) of templates.
    tests: Mapping[str, Callable[..., bool]] = {
        "defined": lambda value: not isinstance(value, StrictUndefined),
        # Whether a kernel may leave out what only other sizes need: nothing is assumed for it.
        "known_multiple": lambda value, of: _sizes().surely(lambda: bool(value % of == 0)),
        "known_within": lambda value, most: _sizes().surely(lambda: bool(value <= most)),
        "divisibleby": lambda value, number: _sizes().divides(number, value),
        "may_exceed": lambda value, most: _sizes().may_exceed(value, most),
        "preferably_within": lambda value, most: _preferred(lambda: bool(value <= most)),
        "none": lambda value: value is None,
        "number": lambda value: isinstance(value, int | float | _sizes().SizeExpr),
    }
    filters: Mapping[str, Callable[..., Any]] = {
        "at_least": lambda value, least: _sizes().largest(value, least),
        "format": lambda text, *values: text % values,
        "int": int,
        "join": lambda values, between="": between.join(map(str, values)),
        "length": len,
        "list": list,
        "max": max,
        "min": min,
        "reject": lambda values, test, *args: [
            value for value in values if not Environment.tests[test](value, *args)
        ],
        "reverse": lambda values: list(reversed(values)),
        "string": str,
    }


def _preferred(question: Callable[[], bool]) -> bool:
    with _sizes().preferring():
        return question()


def _range(*bounds: Any) -> range:
    """The numbers between bounds; how often a text repeats something holds for these bounds alone."""
    return range(*map(_sizes().pinned, bounds))


environment = Environment()
# The globals of every template; ``wgsl`` adds to them.
GLOBALS: dict[str, Any] = {"range": _range, "dict": dict, "namespace": Namespace, "pi": math.pi}


def str_join(values: Iterable[Any]) -> str:
    """The operator ``~``."""
    return "".join(map(str, values))


def internalcode(function: Callable[..., Any]) -> Callable[..., Any]:
    """A mark for Jinja's tracebacks."""
    return function
