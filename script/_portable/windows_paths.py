"""Installed as ``sitecustomize`` into the Python that runs in wine: wine 8 can't say where a path of more than 260 characters leads to.

Windows can. Python goes up such a path part by part where Windows says that a file system can't tell, so that is said.
"""

import ntpath

_TOO_LONG, _CANNOT_TELL = 234, 1
_plain = ntpath._getfinalpathname  # type: ignore[attr-defined]


def _final(path: str) -> str:
    try:
        return _plain(path)
    except OSError as error:
        if error.winerror != _TOO_LONG:  # type: ignore[attr-defined]
            raise
        raise OSError(0, "wine can't tell", path, _CANNOT_TELL) from None


ntpath._getfinalpathname = _final  # type: ignore[attr-defined]
