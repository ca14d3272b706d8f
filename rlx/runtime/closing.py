"""The base of objects that hold memory or a device until they are closed."""

from __future__ import annotations

from typing import Self


class Closing:
    """An object that a ``with`` statement closes at its end. Its class defines ``close``."""

    __slots__ = ()

    def close(self) -> None:
        """Frees what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
