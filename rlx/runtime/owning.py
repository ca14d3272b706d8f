"""One call at a time: methods that hold an owner, and replacements for ``run_slots``."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

from rlx._ext.owner import Owner
from rlx._ext.program import Program
from rlx.backends.base import Executable
from rlx.errors import ClosedError, InputError, describe, listed
from rlx.ir.opdef import Array

P = ParamSpec("P")
R = TypeVar("R")
RunSlots = Callable[..., tuple[Array, ...]]


class Owned(Protocol):
    """An object with an owner."""

    _owner: Owner


S = TypeVar("S", bound=Owned)


def owned(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Makes a method hold the owner during the whole call, including the conversion of arguments.

    It raises ``BusyError`` where another call is under way, in another thread or further up in this one,
    and ``ClosedError`` where the object is closed. Methods that hold the owner don't call each other.
    """

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._owner.call(method, self, *args, **kwargs)

    return call


def guarded(executable: Executable, owner: Owner) -> RunSlots:
    """``run_slots`` of an executable that also holds the owner; compiled code where available."""
    compiled = getattr(executable, "owned_by", None)
    if compiled is not None:
        found: RunSlots = compiled(owner)
        return found
    run = executable.run_slots

    def run_slots(*arrays: Any) -> tuple[Array, ...]:
        return owner.call(run, *arrays)

    run_slots.__doc__ = Program.run_owned.__doc__
    return run_slots


class Refusing:
    """``run_slots`` of a closed graph.

    Like ``Incomplete``, it holds nothing that holds it: what is dropped is freed at once.

    Args:
        what: What the graph is called.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __call__(self, *arrays: Any) -> NoReturn:
        """Raises that error."""
        raise ClosedError(describe(f"{self._what} is closed", hint="compile the graph again"))


class Incomplete:
    """``run_slots`` of a graph whose params are not all set.

    Clones share the set of missing params, so that one of them may set the last. Then this passes calls
    on, and puts the plain function in its own place.

    Args:
        holder: Has it in its attribute ``run_slots``.
        run: The plain function.
        missing: Names of the missing params.
        graph: Name of the graph.
    """

    def __init__(self, holder: Any, run: RunSlots, missing: set[str], graph: str) -> None:
        self._holder, self._run = weakref.ref(holder), run
        self._missing, self._graph = missing, graph

    def __call__(self, *arrays: Any) -> tuple[Array, ...]:
        """Runs once no param is missing."""
        self.check()
        holder = self._holder()
        if holder is not None and holder.run_slots is self:
            holder.run_slots = self._run
        return self._run(*arrays)

    def check(self) -> None:
        """Raises an error while params are missing.

        Raises:
            InputError: They are.
        """
        if self._missing:
            raise InputError(
                describe(
                    f"params of graph {self._graph!r} were never set",
                    got=f"no value for {listed(sorted(self._missing))}",
                    hint="cg.set_param(name, array), or rlx.compile(g, params={...})",
                )
            )
