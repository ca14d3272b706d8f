"""The error tree: every exception that a public call may raise, with one shape of message.

A message has the error, its place, the value got, the value expected, and a hint. An error is raised with
these parts, and ``describe`` joins them; nothing else in the package formats errors by hand. Places are lines of the
user's code, which ``caller`` finds.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable


def printable(text: object) -> str:
    r"""A text that comes from a file, a driver or a command line, as it is shown: on one line, in characters that print.

    Others become escapes: those that drive a terminal, turn the direction of writing, or end the line.

    Example:
        >>> print(printable("a\x1b[2J"))
        a\x1b[2J
    """
    result = str(text)
    if result.isprintable():
        return result
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in result)


def printable_lines(text: object) -> str:
    """``printable`` of each line of a text that has several."""
    return "\n".join(map(printable, str(text).split("\n")))


def listed(names: Iterable[object]) -> str:
    """Names in a message, one behind the other."""
    return ", ".join(map(printable, names))


def printable_value(value: object) -> object:
    """``printable_lines`` of a text; anything else as it is: what templates of reports put their values through."""
    return printable_lines(value) if type(value) is str else value


class RlxError(Exception):
    """Base of everything rlx raises on purpose.

    Messages hold names from files. Characters of these that do not print are shown as escapes.

    Args:
        *args: The message, one sentence.
        where: The place of the error: an operation, an input, a file.
        got: The value that was given.
        expected: The values that are accepted.
        hint: A way out, one sentence.

    Example:
        >>> print(RlxError("[matmul] shapes do not fit", got="(2, 3) and (4, 5)"))
        [matmul] shapes do not fit
          got: (2, 3) and (4, 5)
    """

    def __init__(
        self,
        *args: object,
        where: object = None,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        if args and isinstance(args[0], str):
            text = describe(args[0], where=where, got=got, expected=expected, hint=hint)
            args = (text, *args[1:])
        super().__init__(
            *(printable_lines(item) if isinstance(item, str) else item for item in args)
        )


class GraphError(RlxError):
    """A graph is being built or checked, and something in it is not legal."""


class ShapeError(GraphError, ValueError):
    """Shapes do not fit: ``g.matmul`` of (2, 3) and (4, 5). Repair the operand shapes."""


class DTypeError(GraphError, ValueError):
    """An operand has a dtype that the operation does not take. Add a ``g.cast``."""


class UnknownNameError(GraphError, KeyError):
    """A name (input, param, op, option) that does not exist; the message suggests the nearest."""

    # KeyError prints the repr of its argument; ours is a sentence.
    def __str__(self) -> str:
        return Exception.__str__(self)


class NodeValueError(GraphError, TypeError):
    """A node is used as a number or a list, which it becomes only when its graph runs: ``float(x)``, ``len(x)``."""


class UnknownSizeError(ShapeError, TypeError):
    """A size that is known only when the graph runs (``rlx.Dim``) is used as a number while the graph is built.

    Attributes:
        names: The dims that the size depends on; empty where the error is about no size in particular.
    """

    names: frozenset[str] = frozenset()


class VerifyError(GraphError):
    """A graph breaks an invariant; the message shows the neighbouring nodes."""


class BusyError(RlxError):
    """A graph or model is called while a call of it is under way: in another thread, or around this one."""


class DeviceError(RlxError):
    """Something about a device: its name, its presence, its limits."""


class DeviceParseError(DeviceError, ValueError):
    """A device string that is none of the known names: ``Device.parse("gpuu")``."""


class DeviceUnavailableError(DeviceError):
    """The device is known but not on this machine; the message says what to install."""


class DeviceFallbackError(DeviceError):
    """Every device of a chain failed.

    Attributes:
        attempts: ``(Device, Exception)`` pairs in the order tried.
    """

    def __init__(self, message: str, attempts: Iterable[tuple[object, Exception]] = ()) -> None:
        super().__init__(message)
        self.attempts: list[tuple[object, Exception]] = list(attempts)


class DeviceLostError(DeviceError):
    """The driver dropped the device (reset, removed, timed out). Compile again."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A graph needs more memory than the device or ``memory_limit`` gives."""


class CancelledError(RlxError):
    """A ``CancelToken`` ended a compile."""


class CompileError(RlxError):
    """A legal graph could not be compiled for a device."""


class UnsupportedOpError(CompileError):
    """No kernel for an op and dtype on that device, and no host fallback was allowed."""


class InputError(RlxError, ValueError):
    """A value given to a call is wrong: missing, surplus, wrong shape, dtype or range."""


class SizesError(InputError):
    """A graph was built for other sizes: what built it compared a dim, and the comparison no longer holds."""


class ClosedError(InputError):
    """Something is used after its ``close``: a compiled graph, a model, a cache, a pool. Make a new one."""


class ImportModelError(RlxError):
    """A model file could not be read."""


class ModelFileError(ImportModelError, OSError):
    """The system refuses to open or read a model file: permissions, a folder, a faulty disk.

    Attributes:
        errno: The system's number of the fault, where it gave one.
        filename: The file.
    """

    # OSError shows its number and file name, which the message has already.
    def __str__(self) -> str:
        return Exception.__str__(self)


class ModelNotFoundError(ModelFileError, FileNotFoundError):
    """A model file is not there."""


class FileInUseError(RlxError, PermissionError):
    """A file can't be replaced on Windows while a program has it open in a way that forbids it."""


class LimitError(RlxError):
    """Loading, building or compiling is more work than ``rlx.limits`` allows; it was not done."""


# The exceptions of Python for data whose types, sizes or values are not those of its writer.
MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


def describe(
    what: str,
    *,
    where: object = None,
    got: object = None,
    expected: object = None,
    hint: str | None = None,
) -> str:
    """Joins the parts of an error message in the one order used everywhere.

    Args:
        what: One sentence, starting with the op or call in brackets when there is one.
        where: The node, file or call that the message is about.
        got: The rejected value.
        expected: The accepted values.
        hint: A way out.

    Returns:
        The parts that were given, one a line.

    Example:
        >>> print(describe("[matmul] shapes do not fit", got="(2, 3) and (4, 5)"))
        [matmul] shapes do not fit
          got: (2, 3) and (4, 5)
    """
    place = None if where is None else printable(where)
    parts = (("where", place), ("got", got), ("expected", expected), ("hint", hint))
    lines = [what, *(f"  {label}: {text}" for label, text in parts if text is not None)]
    return "\n".join(lines)


def one_line(error: object) -> str:
    """A message of several lines as one, its parts told apart.

    Example:
        >>> one_line(describe("no such file", where="a.onnx"))
        'no such file; where: a.onnx'
    """
    # A line that ends in a colon goes on in the next one.
    return "; ".join(line.strip() for line in str(error).split("\n")).replace(":; ", ": ")


def install_line(what: str) -> str:
    """Returns the command that installs an optional part of rlx; it is on no package index.

    Args:
        what: The argument of pip in a checkout: ".[regress]", "plugins/rlx_mlx".
    """
    return f"in a checkout of rlx: pip install '{what}'"


def unreadable(
    what: str, path: object, error: OSError | TypeError | ValueError
) -> ImportModelError:
    """The error for a model file that can't be opened or read.

    Args:
        what: One sentence.
        path: The file.
        error: The system's error, or the fault of the path.
    """
    text = describe(what, where=path, got=str(error))
    if not isinstance(error, OSError):
        return ImportModelError(text)
    missing = isinstance(error, FileNotFoundError)
    result = (ModelNotFoundError if missing else ModelFileError)(text)
    result.errno, result.filename = error.errno, error.filename
    return result


def first_line(error: BaseException) -> str:
    """The first line of an error's text; the name of its type where it has none, or makes none.

    Example:
        >>> first_line(ValueError("of three")), first_line(AssertionError())
        ('of three', 'AssertionError')
    """
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    return text.splitlines()[0] if text else type(error).__name__


# Names that a hint lists; of more only those that resemble what was asked for.
_SHOWN = 24


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a wrong name: the nearest known one, and the known ones, of many those that resemble it.

    Example:
        >>> did_you_mean("widht", ["width", "height"])
        "did you mean 'width'? known: height, width"
    """
    import difflib

    choices = sorted({printable(item) for item in known})
    folded = {choice.lower(): choice for choice in choices}
    near = [folded[n] for n in difflib.get_close_matches(name.lower(), folded, n=1)]
    if len(choices) > _SHOWN:
        similar = difflib.get_close_matches(name.lower(), folded, n=_SHOWN // 2, cutoff=0)
        more = f"and {len(choices) - len(similar)} more"
        choices = [*sorted(folded[n] for n in similar), more]
    known = ", ".join(choices) if choices else "(none)"
    return f"did you mean {near[0]!r}? known: {known}" if near else f"known: {known}"


_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def users_level() -> int:
    """The ``stacklevel`` of a warning that is about the user's line: the first one outside of rlx."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


def caller() -> str:
    """Returns the line of the user's code, ``file:line``: the first frame outside this package; "" where there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not _file(frame.f_code.co_filename):
        frame = frame.f_back
    name = _file(frame.f_code.co_filename)
    return f"{name}:{frame.f_lineno}" if name else ""


@functools.lru_cache(4096)
def _file(path: str) -> str:
    """The name of a source file; "" for those of this package."""
    return "" if path.startswith(_PACKAGE) else os.path.basename(path)
