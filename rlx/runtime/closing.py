"""Objects that a ``with`` closes at its end."""

from __future__ import annotations

from typing import Self


class Closing:
    """The base of objects that a ``with`` closes at its end."""

    __slots__ = ()

    def close(self) -> None:
        """Frees what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
